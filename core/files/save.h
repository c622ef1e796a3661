/* save.h -- shared by the reader and the writer of safetensors files.
**
** The format: eight bytes N, little endian; N bytes of JSON, {"name": {"dtype": "F32",
** "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "value"}}; then the
** values, of which every byte belongs to exactly one tensor.
*/
#ifndef MOTH_SAVE_H
#define MOTH_SAVE_H

#include "file.h"

#define MOTH_MAX_HEADER 100000000 /* as in the reference implementation */

/* The names of dtypes in files: "BOOL", "U8", ... */
extern const char *const moth_safetensors_dtypes[MOTH_DTYPES];

int moth_text_order(const moth_text *a, const moth_text *b); /* bytewise, as strcmp */

#endif

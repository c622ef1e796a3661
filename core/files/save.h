/* save.h -- what the reader and the writer of safetensors share, and the tests' way in.
**
** The format: eight bytes N, little endian; N bytes of JSON, {"name": {"dtype": "F32", "shape":
** [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "value"}}; then the values, every
** byte of which belongs to exactly one tensor.
*/
#ifndef MOTH_SAVE_H
#define MOTH_SAVE_H

#include "file.h"

#define MOTH_MAX_HEADER 100000000 /* as in the reference implementation */

/* The file's dtype names by dtype, "BOOL", "U8", ... */
extern const char *const moth_safetensors_dtypes[MOTH_DTYPES];

int moth_text_order(const moth_text *a, const moth_text *b); /* bytewise, as strcmp orders */

#endif

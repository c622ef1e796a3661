/* json.h -- the JSON of file headers: a scanner for untrusted text, and a writer.
**
** The scanner allocates nothing and never reads past the given end. It has no recursion: it returns
** tokens, and its callers know which token must come next. An unexpected token sets `wrong`, and
** all later calls fail. Strings are returned raw, as in the text, and compared or decoded by their
** own functions.
*/
#ifndef MOTH_JSON_H
#define MOTH_JSON_H

#include <stdbool.h>

#include "moth.h"

/* -- reading -- */

typedef struct moth_json {
  const char *text, *at, *end;
  const char *wrong; /* what was expected at `at`; NULL: no error */
} moth_json;

bool moth_json_next(moth_json *j, char c); /* if c is the next token, skips it */
bool moth_json_need(moth_json *j, char c, const char *wanted);
bool moth_json_string(moth_json *j, moth_text *raw); /* valid UTF-8 and escapes, or wrong */
bool moth_json_size(moth_json *j, int64_t *value);   /* an integer from 0 to INT64_MAX */
bool moth_json_end(moth_json *j);                    /* is only space left? */

bool moth_json_is(moth_text raw, const char *word);   /* does a raw string equal this word? */
size_t moth_json_decode(moth_text raw, char *to);     /* never longer; `to` may be raw.at */

/* -- writing -- */

typedef struct moth_buffer { /* grows by malloc; the caller calls free(at) */
  char *at;
  size_t size, capacity;
  bool failed; /* out of memory; later writes do nothing */
} moth_buffer;

void moth_put(moth_buffer *b, const char *bytes, size_t size);
void moth_put_word(moth_buffer *b, const char *word); /* without quotes */
void moth_put_size(moth_buffer *b, int64_t value);
void moth_put_json(moth_buffer *b, moth_text text); /* as a JSON string; text is valid UTF-8 */

/* -- text -- */

bool moth_utf8(moth_text text);
/* Text for a message: quoted, shortened, without control characters. size is at least 16. */
const char *moth_quote(moth_text text, char *to, size_t size);

#endif

/* json.h -- the JSON of file headers: a scanner over text that nobody trusts, and a writer.
**
** The scanner allocates nothing and never looks beyond the end it was given. It knows tokens, not
** values: its callers know which token must come, so nothing here recurses. What does not fit
** sets `wrong`, which sticks. Strings come out raw, as they stand in the text, and are compared
** or decoded on demand.
*/
#ifndef MOTH_JSON_H
#define MOTH_JSON_H

#include <stdbool.h>

#include "moth.h"

/* -- reading -- */

typedef struct moth_json {
  const char *text, *at, *end;
  const char *wrong; /* what was expected at `at`; NULL while all is well */
} moth_json;

bool moth_json_next(moth_json *j, char c); /* is c the next token? If so, step over it */
bool moth_json_need(moth_json *j, char c, const char *wanted);
bool moth_json_string(moth_json *j, moth_text *raw); /* valid UTF-8 and escapes, or wrong */
bool moth_json_size(moth_json *j, int64_t *value);   /* an integer from 0 to INT64_MAX */
bool moth_json_end(moth_json *j);                    /* nothing but space is left */

bool moth_json_is(moth_text raw, const char *word);   /* a raw string stands for this word */
size_t moth_json_decode(moth_text raw, char *to);     /* never longer; `to` may be raw.at */

/* -- writing -- */

typedef struct moth_buffer { /* grows by malloc; free(at) when done */
  char *at;
  size_t size, room;
  bool failed; /* out of memory; sticks */
} moth_buffer;

void moth_put(moth_buffer *b, const char *bytes, size_t size);
void moth_put_word(moth_buffer *b, const char *word); /* as it is */
void moth_put_size(moth_buffer *b, int64_t value);
void moth_put_json(moth_buffer *b, moth_text text); /* as a JSON string; text is valid UTF-8 */

/* -- text -- */

bool moth_utf8(moth_text text);
/* text for a message: quoted, shortened, without control characters; room of at least 16. */
const char *moth_quote(moth_text text, char *to, size_t room);

#endif

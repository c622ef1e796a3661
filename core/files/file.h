/* file.h -- files for the formats: a source, mapped or read, and a sink, whose file appears
** complete or not at all.
*/
#ifndef MOTH_FILE_H
#define MOTH_FILE_H

#include "base/context.h"
#include "json.h"
#include "base/system.h"

#define MOTH_SHOWN 200 /* size of a buffer for a path in a message */

/* -- reading -- */

typedef struct moth_source {
  int fd;          /* -1 if mapped */
  char *map;       /* the whole file, a private mapping; NULL: not mapped */
  bool copied;     /* map is from malloc: a copy of bytes in memory */
  int64_t size;
  char shown[MOTH_SHOWN]; /* the path, quoted */
} moth_source;

/* Opens a regular file; fails for others. */
int moth_source_open(moth_ctx *ctx, const moth_text *path, moth_source *s);
/* Uses a copy of bytes in memory as the file. */
int moth_source_bytes(moth_ctx *ctx, const moth_text *bytes, moth_source *s);
int moth_source_read(moth_ctx *ctx, const moth_source *s, int64_t from, char *to, int64_t size);
bool moth_source_map(moth_source *s); /* false: the file is not mapped, but can be read */
void moth_source_close(moth_source *s);

/* -- writing: a temporary file in the target's folder, fsync, rename, fsync of the folder. The
** fsyncs are left out if the file need not be durable -- */

typedef struct moth_sink {
  moth_ctx *ctx;
  int fd;
  char *path, *temp; /* temp: NULL for a device or a pipe */
  bool durable, alone; /* alone: its folder is not writable */
  int64_t written, sent; /* bytes written; bytes whose write to the disk was started */
  char shown[MOTH_SHOWN];
  moth_signals held;
} moth_sink;

/* `size`: bytes that will be written. */
int moth_sink_open(moth_ctx *ctx, const moth_text *path, int64_t size, bool durable, moth_sink *s);
int moth_sink_write(moth_sink *s, const char *bytes, int64_t size);
/* Closes the sink; call it once in any case. If status is MOTH_OK and nothing fails, the target is
** replaced. Otherwise the target is unchanged and the temporary file is removed. If only the
** folder's fsync fails, the target is replaced and the error says so. Returns the status. */
int moth_sink_close(moth_sink *s, int status);

#endif

/* file.h -- files as the formats need them: one mapped or read at will, and one that appears
** whole or not at all.
*/
#ifndef MOTH_FILE_H
#define MOTH_FILE_H

#include "base/context.h"
#include "json.h"
#include "base/system.h"

#define MOTH_SHOWN 200 /* room for a path in a message */

/* -- reading -- */

typedef struct moth_source {
  int fd;          /* -1 when mapped */
  char *map;       /* the whole file, private to us; NULL when not mapped */
  bool copied;     /* map is from malloc: the bytes came from memory */
  int64_t size;
  char shown[MOTH_SHOWN]; /* the path, quoted */
} moth_source;

/* Only regular files. */
int moth_source_open(moth_ctx *ctx, const moth_text *path, moth_source *s);
/* A copy of bytes in memory, in the place of a file. */
int moth_source_bytes(moth_ctx *ctx, const moth_text *bytes, moth_source *s);
int moth_source_read(moth_ctx *ctx, const moth_source *s, int64_t from, char *to, int64_t size);
bool moth_source_map(moth_source *s); /* false: it stays one to read */
void moth_source_close(moth_source *s);

/* -- writing: a temporary file beside the target, fsync, rename, fsync of the directory; without
** the fsyncs if it need not be durable -- */

typedef struct moth_sink {
  moth_ctx *ctx;
  int fd;
  char *path, *temp; /* temp is NULL for what is no regular file: a device, a pipe */
  bool durable, alone; /* alone: it may be written, but nothing be made beside it */
  int64_t written, sent; /* bytes written, and of these on their way to the disk */
  char shown[MOTH_SHOWN];
  moth_signals held;
} moth_sink;

/* `size` is what will be written. */
int moth_sink_open(moth_ctx *ctx, const moth_text *path, int64_t size, bool durable, moth_sink *s);
int moth_sink_write(moth_sink *s, const char *bytes, int64_t size);
/* Ends it either way, and only once: the target is replaced if status is MOTH_OK and all goes
** well, else it is as it was and the temporary file is gone; if the folder's fsync alone fails it
** is replaced, and the error says so. Returns the status to report. */
int moth_sink_close(moth_sink *s, int status);

#endif

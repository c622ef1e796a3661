/* file.c -- files: mapped, read, or written atomically. */
#include "file.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_BYTES ((int64_t)16 << 20)    /* bytes between two cancel checks */
#define FIXED_NAMES 8u                    /* after these, random names */
#define MIN_SEND_BYTES ((int64_t)8 << 20) /* bytes that are worth an early write to the disk */

/* The path as a C string, which the caller frees. Returns NULL with E_ARG or E_MEM. */
static char *path_of(moth_ctx *ctx, const moth_text *path) {
  if (!path || !path->at || path->size == 0) {
    moth_fail(ctx, MOTH_E_ARG, "path", "an empty path");
    return NULL;
  }
  if (memchr(path->at, 0, path->size)) {
    moth_fail(ctx, MOTH_E_ARG, "path", "a path cannot hold a NUL");
    return NULL;
  }
  char *copy = malloc(path->size + 1);
  if (!copy) {
    moth_fail(ctx, MOTH_E_MEM, "path", "out of memory");
    return NULL;
  }
  memcpy(copy, path->at, path->size);
  copy[path->size] = 0;
  return copy;
}

/* The path for messages: quoted, and only the end of a long one. */
static void show(moth_text path, char to[MOTH_SHOWN]) {
  const size_t most = MOTH_SHOWN - 16;
  const bool cut = path.size > most;
  if (cut) {
    path.at += path.size - most;
    for (path.size = most; path.size && (*path.at & 0xc0) == 0x80; path.size--) path.at++;
  }
  moth_quote(path, cut ? to + 3 : to, cut ? MOTH_SHOWN - 3 : MOTH_SHOWN);
  if (cut) memcpy(to, "'...", 4); /* over the opening quote */
}

static int io_error(moth_ctx *ctx, const char *what, const char *shown, int code) {
  char text[128];
  return moth_fail(ctx, code == ENOMEM ? MOTH_E_MEM : MOTH_E_IO, "path", "cannot %s %s: %s", what,
                   shown, moth_errno_text(code, text, sizeof text));
}

/* -- reading -- */

static int refuse_kind(moth_ctx *ctx, const char *shown, int kind) {
  return moth_fail(ctx, MOTH_E_IO, "path", "%s is %s, not a file", shown,
                   kind == MOTH_OF_FOLDER ? "a directory" : "a device or a pipe");
}

int moth_source_open(moth_ctx *ctx, const moth_text *path, moth_source *s) {
  *s = (moth_source){.fd = -1};
  char *name = path_of(ctx, path);
  if (!name) return ctx->error.code;
  show(*path, s->shown);
  moth_disk_info info = moth_disk_stat(name);
  int code = 0, status;
  if (info.kind < MOTH_OF_FOLDER) { /* some systems do not open others */
    s->fd = moth_disk_open(name);
    if (s->fd >= 0) info = moth_disk_fstat(s->fd);
    code = errno;
  }
  free(name);
  if (info.kind == MOTH_OF_FILE && s->fd >= 0) {
    s->size = info.size;
    return MOTH_OK;
  }
  status = info.kind > MOTH_OF_FILE ? refuse_kind(ctx, s->shown, info.kind)
                                    : io_error(ctx, "open", s->shown, code);
  moth_source_close(s);
  return status;
}

static bool ends_part(char c) { return c == '/' || !c; }

/* Cuts a path to its folder. */
static void to_folder(char *path) {
  size_t n = strlen(path);
  while (n && !ends_part(path[n - 1])) n--;
  path[n > 1 ? n - 1 : n] = 0;
}

/* Is a file below a folder? Both paths have no links. */
static bool below(const char *file, const char *folder) {
  const size_t n = folder ? strlen(folder) : 0;
  return n && strncmp(file, folder, n) == 0 && (ends_part(file[n]) || ends_part(folder[n - 1]));
}

/* The folder of a path, and the folder of the file that it links to. The caller frees both. */
static void folders_of(char *path, char *folders[2]) {
  folders[1] = moth_disk_real(path);
  if (folders[1]) to_folder(folders[1]);
  to_folder(path);
  folders[0] = moth_disk_real(*path ? path : ".");
}

int32_t moth_file_beside(moth_ctx *ctx, const moth_text *path, const moth_text *other) {
  MOTH_NEED(ctx, path && other, MOTH_E_ARG);
  moth_error_clear(ctx);
  char *name = path_of(ctx, path), *model = name ? path_of(ctx, other) : NULL;
  if (!model) {
    free(name);
    return ctx->error.code;
  }
  char *file = moth_disk_real(name), *folders[2];
  const int64_t links = moth_disk_stat(name).links;
  folders_of(model, folders);
  const bool good = file && links <= 1 && (below(file, folders[0]) || below(file, folders[1]));
  free(file);
  free(folders[0]);
  free(folders[1]);
  free(model);
  free(name);
  return good;
}

int moth_source_bytes(moth_ctx *ctx, const moth_text *bytes, moth_source *s) {
  *s = (moth_source){.fd = -1, .shown = "this data"};
  if (!bytes || (!bytes->at && bytes->size))
    return moth_fail(ctx, MOTH_E_ARG, "bytes", "there are none");
  s->map = malloc(bytes->size ? bytes->size : 1);
  if (!s->map)
    return moth_fail(ctx, MOTH_E_MEM, "bytes", "out of memory for %lld bytes",
                     (long long)bytes->size);
  if (bytes->size) memcpy(s->map, bytes->at, bytes->size);
  s->copied = true;
  s->size = (int64_t)bytes->size;
  return MOTH_OK;
}

int moth_source_read(moth_ctx *ctx, const moth_source *s, int64_t from, char *to, int64_t size) {
  if (s->map) {
    memcpy(to, s->map + from, (size_t)size);
    return MOTH_OK;
  }
  while (size > 0) {
    int status = moth_poll(ctx);
    if (status) return status;
    const size_t part = (size_t)(size < POLL_BYTES ? size : POLL_BYTES);
    const int64_t n = moth_disk_read(s->fd, to, part, from);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(ctx, "read", s->shown, errno);
    if (n == 0)
      return moth_fail(ctx, MOTH_E_IO, "path", "%s was cut short while it was read", s->shown);
    from += n;
    to += n;
    size -= n;
  }
  return MOTH_OK;
}

bool moth_source_map(moth_source *s) {
  s->map = moth_disk_map(s->fd, s->size);
  if (!s->map) return false;
  moth_disk_close(s->fd);
  s->fd = -1;
  return true;
}

void moth_source_close(moth_source *s) {
  if (s->fd >= 0) moth_disk_close(s->fd);
  if (s->copied) free(s->map);
  else if (s->map) moth_disk_unmap(s->map, s->size);
  s->fd = -1;
  s->map = NULL;
  s->copied = false;
}

/* -- writing -- */

/* The size of the directory part of a path, with its slash; 0 for a bare name. */
static size_t directory_size(const char *path) {
  size_t size = 0;
  for (size_t i = 0; path[i]; i++)
    if (strchr(MOTH_SLASHES, path[i])) size = i + 1;
  return size;
}

/* FNV-1a of a file's name. */
static uint64_t hash_of(const char *name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
  return hash;
}

/* Creates a file in the target's folder, with a name that depends on the target's name. A leftover
** of a killed save has the same name and is replaced. Concurrent saves to one path use further
** names. */
static int open_temporary(moth_sink *s, int mode) {
  size_t dir = directory_size(s->path), size = dir + 64;
  const uint64_t hash = hash_of(s->path + dir);
  s->temp = malloc(size);
  if (!s->temp) return ENOMEM;
  memcpy(s->temp, s->path, dir);
  for (unsigned attempt = 0; attempt < 100; attempt++) {
    uint64_t name = hash;
    if (attempt >= FIXED_NAMES) name ^= (uint64_t)(moth_seconds() * 1e9) << 20 ^ (uint64_t)getpid();
    snprintf(s->temp + dir, size - dir, ".moth-%016llx-%u.tmp", (unsigned long long)name, attempt);
    s->fd = moth_disk_temporary(s->temp, mode); /* mode of the replaced file */
    if (s->fd >= 0) return 0;
    if (errno != EEXIST && errno != EINTR) break;
  }
  int code = errno;
  free(s->temp);
  s->temp = NULL;
  return code;
}

/* Creates a file that does not exist. The path may be a link to a missing file: then the target of
** the link is created. */
static int open_new(moth_sink *s) {
  for (int hops = 0; hops < 40; hops++) {
    char *to = moth_disk_link(s->path);
    if (!to && errno == ENOMEM) return ENOMEM;
    if (!to) break;
    free(s->path);
    s->path = to;
  }
  return open_temporary(s, 0);
}

static int open_target(moth_sink *s) {
  const moth_disk_info info = moth_disk_stat(s->path);
  if (info.kind == MOTH_OF_NOTHING) return errno == ENOENT ? open_new(s) : errno;
  if (info.kind == MOTH_OF_FOLDER) return EISDIR;
  if (!moth_disk_writable(s->path)) return errno;
  if (info.kind == MOTH_OF_DEVICE) {
    s->fd = moth_disk_rewrite(s->path);
    return s->fd < 0 ? errno : 0;
  }
  char *real = moth_disk_real(s->path); /* replaces the target of a link, not the link */
  if (!real) return errno;
  free(s->path);
  s->path = real;
  const int code = open_temporary(s, info.mode);
  s->alone = code != 0;
  return code;
}

/* Starts writing to the disk while later bytes are still copied, so that fsync takes less time. */
static void send_off(moth_sink *s) {
  if (!s->durable || !s->temp || s->written - s->sent < MIN_SEND_BYTES) return;
  moth_disk_send(s->fd, s->sent, s->written - s->sent);
  s->sent = s->written;
}

int moth_sink_open(moth_ctx *ctx, const moth_text *path, int64_t size, bool durable,
                   moth_sink *s) {
  *s = (moth_sink){.ctx = ctx, .fd = -1, .path = path_of(ctx, path), .durable = durable};
  if (!s->path) return ctx->error.code;
  show(*path, s->shown);
  int code = open_target(s);
  if (code) {
    free(s->path);
    return io_error(ctx, s->alone ? "make a file next to" : "write", s->shown, code);
  }
  moth_signals_hold(&s->held);
  if (s->temp && size > 0) moth_disk_reserve(s->fd, size);
  return MOTH_OK;
}

int moth_sink_write(moth_sink *s, const char *bytes, int64_t size) {
  while (size > 0) {
    int status = moth_poll(s->ctx);
    if (status) return status;
    const size_t part = (size_t)(size < POLL_BYTES ? size : POLL_BYTES);
    const int64_t n = moth_disk_write(s->fd, bytes, part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(s->ctx, "write", s->shown, errno);
    bytes += n;
    size -= n;
    s->written += n;
    send_off(s);
  }
  return MOTH_OK;
}

/* The rename is durable only after the directory is synced. */
static int sync_directory(moth_sink *s) {
  size_t dir = directory_size(s->path);
  if (dir) s->path[dir] = 0;
  if (!moth_folder_sync(dir ? s->path : ".")) return MOTH_OK;
  char text[128];
  return moth_fail(s->ctx, MOTH_E_IO, "path", "%s is written, but a power failure may undo that: "
                   "cannot sync its folder: %s", s->shown,
                   moth_errno_text(errno, text, sizeof text));
}

static int commit(moth_sink *s) {
  bool regular = s->temp != NULL;
  if (regular && s->durable && moth_disk_sync(s->fd))
    return io_error(s->ctx, "write", s->shown, errno);
  int fd = s->fd;
  errno = 0;
  s->fd = regular ? moth_disk_hold(fd) : -1; /* keeps the lock until the rename */
  if (regular && s->fd < 0 && errno) {
    s->fd = fd;
    return io_error(s->ctx, "write", s->shown, errno);
  }
  if (moth_disk_close(fd) && errno != EINTR) return io_error(s->ctx, "write", s->shown, errno);
  if (!regular) return MOTH_OK;
  if (moth_disk_replace(s->temp, s->path)) return io_error(s->ctx, "replace", s->shown, errno);
  free(s->temp);
  s->temp = NULL;
  return s->durable ? sync_directory(s) : MOTH_OK;
}

int moth_sink_close(moth_sink *s, int status) {
  if (!status) status = commit(s);
  if (s->temp) moth_disk_discard(s->fd, s->temp);
  else if (s->fd >= 0) moth_disk_close(s->fd);
  moth_signals_release(&s->held, status != MOTH_OK);
  free(s->temp);
  free(s->path);
  *s = (moth_sink){.fd = -1};
  return status;
}

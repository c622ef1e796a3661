/* file.c -- files, mapped, read, or written atomically (POSIX). */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((int64_t)16 << 20) /* between two looks at the cancel flag */
#define SEND ((int64_t)8 << 20)   /* bytes that are worth sending to the disk on their own */

/* A C string of the path, to be freed; NULL: E_ARG is set. */
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

static int io_error(moth_ctx *ctx, const char *what, const char *shown, int code) {
  char text[128];
  return moth_fail(ctx, code == ENOMEM ? MOTH_E_MEM : MOTH_E_IO, "path", "cannot %s %s: %s", what,
                   shown, strerror_r(code, text, sizeof text));
}

/* -- reading -- */

int moth_source_open(moth_ctx *ctx, const moth_text *path, moth_source *s) {
  *s = (moth_source){.fd = -1};
  char *name = path_of(ctx, path);
  if (!name) return ctx->error.code;
  moth_quote(*path, s->shown, sizeof s->shown);
  do s->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
  while (s->fd < 0 && errno == EINTR);
  free(name);
  struct stat st;
  if (s->fd < 0 || fstat(s->fd, &st)) {
    int status = io_error(ctx, "open", s->shown, errno);
    moth_source_close(s);
    return status;
  }
  if (!S_ISREG(st.st_mode)) {
    moth_source_close(s);
    return moth_fail(ctx, MOTH_E_IO, "path", "%s is %s, not a file", s->shown,
                     S_ISDIR(st.st_mode) ? "a directory" : "a device or a pipe");
  }
  s->size = st.st_size;
  return MOTH_OK;
}

int moth_source_read(moth_ctx *ctx, const moth_source *s, int64_t from, char *to, int64_t size) {
  while (size > 0) {
    int status = moth_poll(ctx);
    if (status) return status;
    ssize_t n = pread(s->fd, to, (size_t)(size < CHUNK ? size : CHUNK), from);
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
  void *map = mmap(NULL, (size_t)s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                   s->fd, 0);
  if (map == MAP_FAILED) return false;
  close(s->fd);
  s->fd = -1;
  s->map = map;
  return true;
}

void moth_source_close(moth_source *s) {
  if (s->fd >= 0) close(s->fd);
  if (s->map) munmap(s->map, (size_t)s->size);
  s->fd = -1;
  s->map = NULL;
}

/* -- writing -- */

/* A file-size limit or a closed pipe would end the process by a signal; held back, they are
** ordinary errors of write. */
static void hold_signals(moth_sink *s) {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGXFSZ);
  sigaddset(&held, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &held, &s->mask);
}

static void release_signals(moth_sink *s, bool failed) {
  static const int held[] = {SIGXFSZ, SIGPIPE};
  for (int i = 0; failed && i < 2; i++) {
    sigset_t pending, one;
    int got;
    sigemptyset(&one);
    sigaddset(&one, held[i]);
    if (!sigismember(&s->mask, held[i]) && !sigpending(&pending) &&
        sigismember(&pending, held[i]))
      sigwait(&one, &got);
  }
  pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
}

/* The directory part of a path, with its slash; "" for a bare name. */
static size_t directory_size(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Creates a new file beside the target, under a name nobody has. */
static int open_temporary(moth_sink *s, mode_t mode) {
  size_t dir = directory_size(s->path), room = dir + 64;
  s->temp = malloc(room);
  if (!s->temp) return ENOMEM;
  memcpy(s->temp, s->path, dir);
  for (unsigned attempt = 0; attempt < 100; attempt++) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(s->temp + dir, room - dir, ".moth-%ld-%lx-%u.tmp", (long)getpid(),
             (unsigned long)now.tv_nsec ^ (unsigned long)((uintptr_t)s >> 4), attempt);
    s->fd = open(s->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (s->fd >= 0) {
      if (mode) (void)!fchmod(s->fd, mode); /* that of the file it will replace */
      return 0;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  int code = errno;
  free(s->temp);
  s->temp = NULL;
  return code;
}

static int open_target(moth_sink *s) {
  struct stat st;
  if (stat(s->path, &st)) return open_temporary(s, 0);
  if (S_ISDIR(st.st_mode)) return EISDIR;
  if (access(s->path, W_OK)) return errno;
  if (!S_ISREG(st.st_mode)) {
    s->fd = open(s->path, O_WRONLY | O_CLOEXEC);
    return s->fd < 0 ? errno : 0;
  }
  char *real = realpath(s->path, NULL); /* what a link names is replaced, not the link */
  if (!real) return errno;
  free(s->path);
  s->path = real;
  return open_temporary(s, st.st_mode & 0777);
}

/* Blocks for the whole file at once, where the file system can: it writes faster and lies in one
** piece. If there is no room, writing will say so. */
static void reserve(const moth_sink *s, int64_t size) {
#ifdef __linux__
  if (s->temp && size > 0) (void)!fallocate(s->fd, FALLOC_FL_KEEP_SIZE, 0, size);
#else
  (void)s, (void)size;
#endif
}

/* Lets the disk begin while the rest is still being copied: fsync then waits for little. */
static void send_off(moth_sink *s) {
#ifdef __linux__
  if (!s->durable || !s->temp || s->written - s->sent < SEND) return;
  (void)!sync_file_range(s->fd, s->sent, s->written - s->sent, SYNC_FILE_RANGE_WRITE);
  s->sent = s->written;
#else
  (void)s;
#endif
}

int moth_sink_open(moth_ctx *ctx, const moth_text *path, int64_t size, bool durable,
                   moth_sink *s) {
  *s = (moth_sink){.ctx = ctx, .fd = -1, .path = path_of(ctx, path), .durable = durable};
  if (!s->path) return ctx->error.code;
  moth_quote(*path, s->shown, sizeof s->shown);
  int code = open_target(s);
  if (code) {
    free(s->path);
    return io_error(ctx, "write", s->shown, code);
  }
  hold_signals(s);
  reserve(s, size);
  return MOTH_OK;
}

int moth_sink_write(moth_sink *s, const char *bytes, int64_t size) {
  while (size > 0) {
    int status = moth_poll(s->ctx);
    if (status) return status;
    ssize_t n = write(s->fd, bytes, (size_t)(size < CHUNK ? size : CHUNK));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(s->ctx, "write", s->shown, errno);
    bytes += n;
    size -= n;
    s->written += n;
    send_off(s);
  }
  return MOTH_OK;
}

/* The rename itself is durable only once the directory is. */
static int sync_directory(moth_sink *s) {
  size_t dir = directory_size(s->path);
  if (dir) s->path[dir] = 0;
  int fd = open(dir ? s->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return MOTH_OK; /* one may write in a directory without reading it */
  int code = fsync(fd) && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  close(fd);
  return code ? io_error(s->ctx, "make durable", s->shown, code) : MOTH_OK;
}

static int commit(moth_sink *s) {
  bool regular = s->temp != NULL;
  if (regular && s->durable && fsync(s->fd)) return io_error(s->ctx, "write", s->shown, errno);
  int fd = s->fd;
  s->fd = -1;
  if (close(fd) && errno != EINTR) return io_error(s->ctx, "write", s->shown, errno);
  if (!regular) return MOTH_OK;
  if (rename(s->temp, s->path)) return io_error(s->ctx, "replace", s->shown, errno);
  free(s->temp);
  s->temp = NULL;
  return s->durable ? sync_directory(s) : MOTH_OK;
}

int moth_sink_close(moth_sink *s, int status) {
  if (!status) status = commit(s);
  if (s->fd >= 0) close(s->fd);
  if (s->temp) unlink(s->temp);
  release_signals(s, status != MOTH_OK);
  free(s->temp);
  free(s->path);
  *s = (moth_sink){.fd = -1};
  return status;
}

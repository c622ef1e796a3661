/* system.c -- the operating system's functions: POSIX, with Linux's futex. */
#undef _FORTIFY_SOURCE /* a fortified longjmp refuses to jump to another stack */
#include "system.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <locale.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "moth_lua.h"

/* -- libraries -- */

void *moth_library_open(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }

/* If a dependency of the library is missing, the message of dlerror names the dependency. */
const char *moth_library_trouble(const char *path) {
  const char *why = dlerror();
  const size_t n = strlen(path);
  const bool itself = why && !strncmp(why, path, n) && why[n] == ':';
  return why && !(itself && strstr(why + n, "No such file")) ? why : NULL;
}

void *moth_library_symbol(void *library, const char *name) { return dlsym(library, name); }

void moth_library_close(void *library) { dlclose(library); }

/* The environment is replaced by another array during the call, so that no other thread sees a
** partial change. That array is never freed, since another thread may still read it. */
void *moth_library_open_alone(const char *path, const char *core) {
  static char one[] = "OPENBLAS_NUM_THREADS=1", kernels[64];
  char **old = environ, **with = NULL;
  size_t n = 0;
  const bool threads = !getenv("OPENBLAS_NUM_THREADS");
  if (getenv("OPENBLAS_CORETYPE")) core = NULL;
  if (threads || core) {
    while (old && old[n]) n++;
    with = malloc((n + 3) * sizeof *with);
  }
  if (with) {
    if (n) memcpy(with, old, n * sizeof *with);
    if (threads) with[n++] = one;
    if (core) snprintf(kernels, sizeof kernels, "OPENBLAS_CORETYPE=%.40s", core);
    if (core) with[n++] = kernels;
    with[n] = NULL;
    environ = with;
  }
  void *library = moth_library_open(path);
  if (with) environ = old;
  static char **kept[8];
  for (size_t i = 0; with && i < sizeof kept / sizeof *kept; i++)
    if (!kept[i]) {
      kept[i] = with;
      break;
    }
  return library;
}

bool moth_library_folder(void (*inside)(void), char folder[MOTH_PATH_SIZE]) {
  Dl_info self;
  if (!dladdr((void *)(uintptr_t)inside, &self) || !self.dli_fname) return false;
  const char *end = strrchr(self.dli_fname, '/');
  if (!end || end - self.dli_fname >= MOTH_PATH_SIZE) return false;
  memcpy(folder, self.dli_fname, (size_t)(end - self.dli_fname));
  folder[end - self.dli_fname] = 0;
  return true;
}

bool moth_program_path(char path[MOTH_PATH_SIZE]) {
  const ssize_t n = readlink("/proc/self/exe", path, MOTH_PATH_SIZE - 1);
  path[n > 0 ? n : 0] = 0;
  return n > 0;
}

/* -- memory -- */

void *moth_aligned_new(size_t align, size_t size) {
  void *block = NULL;
  return posix_memalign(&block, align, size) ? NULL : block;
}

void moth_aligned_free(void *block) { free(block); }

void moth_aligned_drop(void *block, size_t size) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)block;
  const uintptr_t from = (at + page - 1) / page * page, to = (at + size) / page * page;
  if (to > from) madvise((char *)block + (from - at), to - from, MADV_DONTNEED);
}

void moth_aligned_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

static size_t whole_pages(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size + page - 1) / page * page;
}

static char *map_pages(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Linux aligns a mapping of this size from 6.7 on. Older kernels map a larger size, which is
** cut. */
void *moth_pages_new(size_t align, size_t size) {
  size = whole_pages(size);
  char *at = map_pages(size);
  if (at && (uintptr_t)at % align) {
    munmap(at, size);
    if (!(at = map_pages(size + align))) return NULL;
    const size_t before = (align - (uintptr_t)at % align) % align;
    if (before) munmap(at, before);
    at += before;
    if (before < align) munmap(at + size, align - before);
  }
  if (at) madvise(at, size, MADV_HUGEPAGE);
  return at;
}

void moth_pages_free(void *block, size_t size) { munmap(block, whole_pages(size)); }

/* -- files -- */

static moth_disk_info info_of(int failed, const struct stat *st) {
  if (failed) return (moth_disk_info){.kind = MOTH_OF_NOTHING};
  const int kind = S_ISREG(st->st_mode)   ? MOTH_OF_FILE
                   : S_ISDIR(st->st_mode) ? MOTH_OF_FOLDER
                                          : MOTH_OF_DEVICE;
  return (moth_disk_info){kind, (int)(st->st_mode & 0777), st->st_size, (int64_t)st->st_nlink};
}

moth_disk_info moth_disk_stat(const char *path) {
  struct stat st;
  const int failed = stat(path, &st);
  return info_of(failed, &st);
}

moth_disk_info moth_disk_fstat(int fd) {
  struct stat st;
  const int failed = fstat(fd, &st);
  return info_of(failed, &st);
}

int moth_disk_open(const char *path) {
  int fd;
  do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/* Is fd a regular file of this user with no other name, and does `path` still name it? */
static bool is_ours(int fd, const char *path) {
  struct stat here, there;
  return !fstat(fd, &here) && !lstat(path, &there) && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev && here.st_uid == geteuid() && here.st_nlink == 1 &&
         S_ISREG(here.st_mode);
}

/* The process that writes the file holds a lock on it, which ends with the process. A file that can
** be locked has no owner: it is removed and created again, with the permissions of a new file. */
int moth_disk_temporary(const char *path, int mode) {
  const int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int old = open(path, flags);
  if (old >= 0) {
    const bool ours = !flock(old, LOCK_EX | LOCK_NB) && is_ours(old, path) && !unlink(path);
    close(old);
    if (!ours) errno = EEXIST;
    if (!ours) return -1;
  }
  const int fd = open(path, flags | O_CREAT | O_EXCL, 0666);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) { /* others: no lock support */
    close(fd);
    errno = EEXIST;
    return -1;
  }
  if (mode) (void)!fchmod(fd, (mode_t)mode);
  return fd;
}

int moth_disk_hold(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

int moth_disk_rewrite(const char *path) { return open(path, O_WRONLY | O_CLOEXEC); }

bool moth_disk_writable(const char *path) { return access(path, W_OK) == 0; }

int64_t moth_disk_read(int fd, void *to, size_t size, int64_t from) {
  return pread(fd, to, size, from);
}

int64_t moth_disk_write(int fd, const void *bytes, size_t size) { return write(fd, bytes, size); }

int moth_disk_close(int fd) { return close(fd); }

void *moth_disk_map(int fd, int64_t size) {
  void *map = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  return map == MAP_FAILED ? NULL : map;
}

void moth_disk_unmap(void *map, int64_t size) { munmap(map, (size_t)size); }

void moth_disk_reserve(int fd, int64_t size) {
  (void)!fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size);
}

void moth_disk_send(int fd, int64_t from, int64_t size) {
  (void)!sync_file_range(fd, from, size, SYNC_FILE_RANGE_WRITE);
}

int moth_disk_sync(int fd) { return fsync(fd); }

int moth_disk_replace(const char *from, const char *to) { return rename(from, to); }

/* The file is removed first: once it is closed, another process may lock it. */
void moth_disk_discard(int fd, const char *path) {
  unlink(path);
  if (fd >= 0) close(fd);
}

char *moth_disk_real(const char *path) { return realpath(path, NULL); }

char *moth_disk_link(const char *path) {
  char name[MOTH_PATH_SIZE];
  const ssize_t n = readlink(path, name, sizeof name - 1);
  if (n < 0) return NULL;
  name[n] = 0;
  const char *slash = name[0] == '/' ? NULL : strrchr(path, '/'); /* relative to the link's
                                                                  ** folder */
  const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  char *to = malloc(folder + (size_t)n + 1);
  if (!to) return NULL;
  memcpy(to, path, folder);
  memcpy(to + folder, name, (size_t)n + 1);
  return to;
}

int moth_folder_sync(const char *path) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return 0; /* a directory may be writable but not readable */
  const int code = fsync(fd) && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  close(fd);
  errno = code;
  return code ? -1 : 0;
}

const char *moth_errno_text(int code, char *text, size_t size) {
  return strerror_r(code, text, size);
}

static const int held_back[] = {SIGXFSZ, SIGPIPE};

void moth_signals_hold(moth_signals *held) {
  sigset_t some;
  sigemptyset(&some);
  for (int i = 0; i < 2; i++) sigaddset(&some, held_back[i]);
  pthread_sigmask(SIG_BLOCK, &some, held);
}

void moth_signals_release(const moth_signals *held, bool failed) {
  for (int i = 0; failed && i < 2; i++) {
    sigset_t pending, one;
    int got;
    sigemptyset(&one);
    sigaddset(&one, held_back[i]);
    if (!sigismember(held, held_back[i]) && !sigpending(&pending) &&
        sigismember(&pending, held_back[i]))
      sigwait(&one, &got);
  }
  pthread_sigmask(SIG_SETMASK, held, NULL);
}

void moth_interrupts_to(void (*handler)(int number), bool restarts) {
  struct sigaction action = {.sa_flags = restarts ? SA_RESTART : 0};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
}

void moth_interrupts_end(bool on) {
  static struct sigaction before;
  struct sigaction ends = {.sa_flags = 0};
  ends.sa_handler = SIG_DFL;
  sigemptyset(&ends.sa_mask);
  if (on) sigaction(SIGINT, NULL, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGINT, on ? &ends : &before, NULL);
}

static volatile sig_atomic_t stop_signal; /* the first signal of this watch */
static const int stop_signals[] = {SIGINT, SIGTERM};
static struct sigaction stop_before[2]; /* the actions that the watch replaces */
static int stop_watchers;

/* The second signal acts as if there were no watch: it is delivered when this handler returns. */
static void on_stop(int number) {
  if (stop_signal) {
    sigaction(number, &stop_before[number == SIGTERM], NULL);
    raise(number);
  }
  stop_signal = number;
}

void moth_stop_watch(int32_t on) {
  const bool changes = on ? stop_watchers++ == 0 : --stop_watchers == 0;
  if (!changes) return;
  struct sigaction action = {.sa_flags = SA_RESTART};
  action.sa_handler = on_stop;
  sigemptyset(&action.sa_mask);
  if (on) stop_signal = 0;
  for (int i = 0; i < 2; i++) {
    struct sigaction now;
    if (on) {
      sigaction(stop_signals[i], NULL, &stop_before[i]);
      if (stop_before[i].sa_handler != SIG_IGN) sigaction(stop_signals[i], &action, NULL);
    } else { /* a handler that was set in the meantime stays */
      sigaction(stop_signals[i], NULL, &now);
      if (now.sa_handler == on_stop) sigaction(stop_signals[i], &stop_before[i], NULL);
    }
  }
}

int32_t moth_stop_requested(void) { return (int32_t)stop_signal; }

void moth_stop_repeat(void) {
  fflush(NULL); /* the signal may end the process without that */
  raise((int)stop_signal);
}

/* -- numbers as text -- */

double moth_text_number(const char *text) {
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc allocates nothing */
  if (!plain) return strtod(text, NULL);
  const double number = strtod_l(text, NULL, plain);
  freelocale(plain);
  return number;
}

void moth_text_print(char *to, size_t size, const char *format, va_list list) {
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  const locale_t before = plain ? uselocale(plain) : (locale_t)0; /* of this thread */
  vsnprintf(to, size, format, list);
  if (!plain) return;
  uselocale(before);
  freelocale(plain);
}

/* -- time -- */

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double moth_seconds(void) { return seconds_of(CLOCK_MONOTONIC); }
double moth_thread_seconds(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

/* -- threads and processes -- */

void moth_sleep(double seconds) {
  nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

int moth_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

bool moth_thread_start(void *(*run)(void *arg), void *arg, size_t stack) {
  /* The host's signal handler gets a fault only if the thread does not block it. */
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  sigset_t all, old;
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  if (stack) pthread_attr_setstacksize(&attr, stack);
  sigfillset(&all);
  for (int i = 0; i < 4; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const bool started = !pthread_create(&thread, &attr, run, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return started;
}

void moth_word_wait(_Atomic uint32_t *word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void moth_word_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void moth_at_fork(void (*before)(void), void (*after)(void), void (*child)(void)) {
  pthread_atfork(before, after, child);
}

/* -- fibers -- */

#if defined(__SANITIZE_ADDRESS__)
#define FIBERS_TELL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS_TELL_ASAN 1
#endif
#endif
#if FIBERS_TELL_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* swapcontext makes a system call for the mask of signals, so later switches are jumps. */
struct moth_fiber {
  ucontext_t first; /* of a fiber that has not started */
  jmp_buf outside, inside;
  bool started;
  void (*run)(void *arg);
  void *arg;
  char *pages; /* the lowest one is not accessible: it catches an overflow */
  size_t size;
#if FIBERS_TELL_ASAN
  const void *outer_stack;
  size_t outer_size;
  void *outer_fake, *inner_fake;
#endif
};

/* Each switch is announced to AddressSanitizer, which tracks stacks. */
#if FIBERS_TELL_ASAN
#define START_SWITCH(fake, bottom, size) __sanitizer_start_switch_fiber(fake, bottom, size)
#define END_SWITCH(fake, bottom, size) __sanitizer_finish_switch_fiber(fake, bottom, size)
#else
#define START_SWITCH(fake, bottom, size) ((void)0)
#define END_SWITCH(fake, bottom, size) ((void)0)
#endif

/* makecontext passes ints: the address comes in two. */
static void fiber_start(unsigned high, unsigned low) {
  moth_fiber *f = (moth_fiber *)((uintptr_t)high << 16 << 16 | low);
  END_SWITCH(NULL, &f->outer_stack, &f->outer_size);
  f->run(f->arg);
  abort(); /* run never returns */
}

/* In a function of its own: a compiler expects that getcontext returns twice. */
static bool context_made(ucontext_t *context) { return getcontext(context) == 0; }

moth_fiber *moth_fiber_new(void (*run)(void *arg), void *arg, size_t stack) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  moth_fiber *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->run = run;
  f->arg = arg;
  f->size = stack + page;
  f->pages = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                  -1, 0);
  if (f->pages == MAP_FAILED || mprotect(f->pages, page, PROT_NONE) ||
      !context_made(&f->first)) {
    if (f->pages != MAP_FAILED) munmap(f->pages, f->size);
    free(f);
    return NULL;
  }
  f->first.uc_stack.ss_sp = f->pages + page;
  f->first.uc_stack.ss_size = stack;
  f->first.uc_link = NULL;
  const uintptr_t at = (uintptr_t)f;
  makecontext(&f->first, (void (*)(void))fiber_start, 2, (unsigned)(at >> 16 >> 16),
              (unsigned)at);
  return f;
}

static void jump(jmp_buf from, jmp_buf to) {
  if (!_setjmp(from)) _longjmp(to, 1);
}

void moth_fiber_enter(moth_fiber *f) {
  START_SWITCH(&f->outer_fake, f->first.uc_stack.ss_sp, f->first.uc_stack.ss_size);
  if (f->started) {
    jump(f->outside, f->inside);
  } else if (!_setjmp(f->outside)) {
    f->started = true;
    setcontext(&f->first);
  }
  END_SWITCH(f->outer_fake, NULL, NULL);
}

void moth_fiber_leave(moth_fiber *f) {
  START_SWITCH(&f->inner_fake, f->outer_stack, f->outer_size);
  jump(f->inside, f->outside);
  END_SWITCH(f->inner_fake, &f->outer_stack, &f->outer_size);
}

void moth_fiber_free(moth_fiber *f) {
  if (!f) return;
  munmap(f->pages, f->size);
  free(f);
}

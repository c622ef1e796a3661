/* system_windows.c -- the operating system's functions on Windows 8 or later, built by MinGW-w64
** with its POSIX threads.
*/
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <windows.h>

#include "moth_lua.h"

/* -- paths: UTF-8 here, UTF-16 there -- */

static wchar_t *wide(const char *path) {
  const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
  wchar_t *to = n > 0 ? malloc((size_t)n * sizeof *to) : NULL;
  if (to) MultiByteToWideChar(CP_UTF8, 0, path, -1, to, n);
  else errno = n > 0 ? ENOMEM : EILSEQ;
  return to;
}

static bool narrow(const wchar_t *path, char *to, int size) {
  return WideCharToMultiByte(CP_UTF8, 0, path, -1, to, size, NULL, NULL) > 0;
}

/* Sets errno from the system's last error. Returns -1. */
static int set_errno(void) {
  switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: errno = ENOENT; break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_USER_MAPPED_FILE: errno = EACCES; break;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: errno = EEXIST; break;
    case ERROR_WRITE_PROTECT: errno = EROFS; break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL: errno = ENOSPC; break;
    case ERROR_INVALID_NAME: errno = EINVAL; break;
    case ERROR_NOT_ENOUGH_MEMORY: errno = ENOMEM; break;
    default: errno = EIO;
  }
  return -1;
}

/* -- libraries -- */

static _Thread_local char trouble[256];

void *moth_library_open(const char *path) {
  wchar_t *name = wide(path);
  if (!name) return NULL;
  void *library = (void *)LoadLibraryW(name);
  const DWORD code = library ? 0 : GetLastError();
  free(name);
  trouble[0] = 0;
  if (code && code != ERROR_MOD_NOT_FOUND)
    snprintf(trouble, sizeof trouble, "%.200s cannot be loaded (error %lu)", path, code);
  return library;
}

/* Windows does not report which library is missing. */
const char *moth_library_trouble(const char *path) {
  (void)path;
  return trouble[0] ? trouble : NULL;
}

void *moth_library_symbol(void *library, const char *name) {
  union {
    FARPROC function;
    void *at;
  } found = {.function = GetProcAddress((HMODULE)library, name)};
  return found.at;
}

void moth_library_close(void *library) { FreeLibrary((HMODULE)library); }

void *moth_library_open_alone(const char *path, const char *core) {
  const bool set = !GetEnvironmentVariableW(L"OPENBLAS_NUM_THREADS", NULL, 0);
  if (GetEnvironmentVariableW(L"OPENBLAS_CORETYPE", NULL, 0)) core = NULL;
  if (set) SetEnvironmentVariableW(L"OPENBLAS_NUM_THREADS", L"1");
  if (core) SetEnvironmentVariableA("OPENBLAS_CORETYPE", core);
  void *library = moth_library_open(path);
  if (core) SetEnvironmentVariableA("OPENBLAS_CORETYPE", NULL);
  if (set) SetEnvironmentVariableW(L"OPENBLAS_NUM_THREADS", NULL);
  return library;
}

static bool path_of(HMODULE module, char path[MOTH_PATH_SIZE]) {
  wchar_t name[MOTH_PATH_SIZE];
  const DWORD n = GetModuleFileNameW(module, name, MOTH_PATH_SIZE);
  if (!n || n == MOTH_PATH_SIZE || !narrow(name, path, MOTH_PATH_SIZE)) return false;
  for (char *at = path; *at; at++)
    if (*at == '\\') *at = '/'; /* Windows accepts both separators */
  return true;
}

bool moth_library_folder(void (*inside)(void), char folder[MOTH_PATH_SIZE]) {
  HMODULE self;
  const DWORD how =
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(how, (LPCWSTR)(uintptr_t)inside, &self)) return false;
  char *end = path_of(self, folder) ? strrchr(folder, '/') : NULL;
  if (end) *end = 0;
  return end != NULL;
}

bool moth_program_path(char path[MOTH_PATH_SIZE]) { return path_of(NULL, path); }

/* -- memory -- */

void *moth_aligned_new(size_t align, size_t size) { return _aligned_malloc(size, align); }

void moth_aligned_free(void *block) { _aligned_free(block); }

void moth_aligned_drop(void *block, size_t size) { (void)block, (void)size; }

void moth_aligned_trim(void) {}

void *moth_pages_new(size_t align, size_t size) { return _aligned_malloc(size, align); }

void moth_pages_free(void *block, size_t size) {
  (void)size;
  _aligned_free(block);
}

/* -- files: the C library's descriptors -- */

static moth_disk_info info_of(int unknown, const struct _stat64 *st) {
  if (unknown) return (moth_disk_info){.kind = MOTH_OF_NOTHING};
  const int type = st->st_mode & S_IFMT;
  const int kind = type == S_IFREG ? MOTH_OF_FILE
                   : type == S_IFDIR ? MOTH_OF_FOLDER
                                     : MOTH_OF_DEVICE;
  return (moth_disk_info){kind, st->st_mode & 0777, st->st_size, st->st_nlink};
}

moth_disk_info moth_disk_stat(const char *path) {
  struct _stat64 st;
  wchar_t *name = wide(path);
  const int unknown = !name || _wstat64(name, &st);
  free(name);
  return info_of(unknown, &st);
}

moth_disk_info moth_disk_fstat(int fd) {
  struct _stat64 st;
  const int unknown = _fstat64(fd, &st);
  return info_of(unknown, &st);
}

static int open_as(const char *path, int flags) {
  wchar_t *name = wide(path);
  const int fd = name ? _wopen(name, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE) : -1;
  const int code = errno;
  free(name);
  errno = code;
  return fd;
}

int moth_disk_open(const char *path) { return open_as(path, _O_RDONLY); }

int moth_disk_temporary(const char *path, int mode) {
  (void)mode; /* the file inherits its folder's permissions */
  return open_as(path, _O_WRONLY | _O_CREAT | _O_EXCL);
}

int moth_disk_hold(int fd) { return (void)fd, -1; } /* an open file cannot be renamed */

int moth_disk_rewrite(const char *path) { return open_as(path, _O_WRONLY); }

bool moth_disk_writable(const char *path) {
  wchar_t *name = wide(path);
  const bool can = name && !_waccess(name, 2);
  free(name);
  return can;
}

/* Reads at an offset of its own, as pread does. */
int64_t moth_disk_read(int fd, void *to, size_t size, int64_t from) {
  OVERLAPPED at = {.Offset = (DWORD)from, .OffsetHigh = (DWORD)(from >> 32)};
  DWORD n = 0;
  if (ReadFile((HANDLE)_get_osfhandle(fd), to, (DWORD)size, &n, &at)) return n;
  return GetLastError() == ERROR_HANDLE_EOF ? 0 : set_errno();
}

int64_t moth_disk_write(int fd, const void *bytes, size_t size) {
  return _write(fd, bytes, (unsigned)size);
}

int moth_disk_close(int fd) { return _close(fd); }

/* Reads the file instead of mapping it: Windows cannot replace a mapped file, and a checkpoint file
** that was loaded may be saved again. */
void *moth_disk_map(int fd, int64_t size) {
  (void)fd, (void)size;
  return NULL;
}

void moth_disk_unmap(void *map, int64_t size) { (void)map, (void)size; }

void moth_disk_reserve(int fd, int64_t size) { (void)fd, (void)size; }

void moth_disk_send(int fd, int64_t from, int64_t size) { (void)fd, (void)from, (void)size; }

int moth_disk_sync(int fd) { return _commit(fd); }

/* EACCES if another process has mapped or opened the file. */
int moth_disk_replace(const char *from, const char *to) {
  wchar_t *old = wide(from), *new = wide(to);
  const DWORD how = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  const int status = !old || !new ? -1 : MoveFileExW(old, new, how) ? 0 : set_errno();
  const int code = errno;
  free(old);
  free(new);
  errno = code;
  return status;
}

void moth_disk_discard(int fd, const char *path) {
  if (fd >= 0) _close(fd);
  wchar_t *name = wide(path);
  if (name) DeleteFileW(name);
  free(name);
}

char *moth_disk_real(const char *path) { return _strdup(path); } /* links are rare on Windows */
char *moth_disk_link(const char *path) { return (void)path, NULL; }

int moth_folder_sync(const char *path) {
  (void)path; /* MOVEFILE_WRITE_THROUGH has written it */
  return 0;
}

const char *moth_errno_text(int code, char *text, size_t size) {
  return strerror_s(text, size, code) ? "unknown error" : text;
}

void moth_signals_hold(moth_signals *held) { *held = 0; } /* Windows has no such signals */

void moth_signals_release(const moth_signals *held, bool waiting) { (void)held, (void)waiting; }

void moth_interrupts_to(void (*handler)(int number), bool restarts) {
  (void)restarts;
  signal(SIGINT, handler);
}

void moth_interrupts_end(bool on) {
  static void (*before)(int number);
  if (on) before = signal(SIGINT, SIG_DFL);
  else signal(SIGINT, before);
}

static volatile sig_atomic_t stop_signal; /* the first signal of this watch */
static void (*stop_before)(int number);   /* the handler that the watch replaces */
static int stop_watchers;

static void on_stop(int number) {
  signal(SIGINT, stop_signal ? stop_before : on_stop); /* Windows resets it to SIG_DFL */
  if (stop_signal) raise(number);
  stop_signal = number;
}

/* Windows sends no SIGTERM. */
void moth_stop_watch(int32_t on) {
  const bool changes = on ? stop_watchers++ == 0 : --stop_watchers == 0;
  if (!changes) return;
  if (on) stop_signal = 0;
  if (on) stop_before = signal(SIGINT, on_stop);
  else signal(SIGINT, stop_before);
}

int32_t moth_stop_requested(void) { return (int32_t)stop_signal; }

void moth_stop_repeat(void) {
  fflush(NULL); /* the signal may end the process without that */
  raise((int)stop_signal);
}

/* -- numbers as text: this thread has the locale "C" meanwhile -- */

static int plain_begin(char **before) {
  const int mode = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE);
  const char *name = setlocale(LC_NUMERIC, NULL);
  *before = name ? _strdup(name) : NULL;
  setlocale(LC_NUMERIC, "C");
  return mode;
}

static void plain_end(int mode, char *before) {
  if (before) setlocale(LC_NUMERIC, before);
  free(before);
  _configthreadlocale(mode);
}

double moth_text_number(const char *text) {
  char *before;
  const int mode = plain_begin(&before);
  const double number = strtod(text, NULL);
  plain_end(mode, before);
  return number;
}

void moth_text_print(char *to, size_t size, const char *format, va_list list) {
  char *before;
  const int mode = plain_begin(&before);
  vsnprintf(to, size, format, list);
  plain_end(mode, before);
}

/* -- time -- */

double moth_seconds(void) {
  LARGE_INTEGER now, second;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&second);
  return (double)now.QuadPart / (double)second.QuadPart;
}

/* Windows counts a thread's time in ticks of 15 ms; the clock is more precise. */
double moth_thread_seconds(void) { return moth_seconds(); }

/* -- threads and processes -- */

void moth_sleep(double seconds) { Sleep((DWORD)(seconds * 1e3) + 1); }

int moth_processors(void) {
  DWORD_PTR mine, all;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) return 1;
  return __builtin_popcountll(mine);
}

bool moth_thread_start(void *(*run)(void *arg), void *arg, size_t stack) {
  pthread_attr_t attr;
  pthread_t thread;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  if (stack) pthread_attr_setstacksize(&attr, stack);
  const bool started = !pthread_create(&thread, &attr, run, arg);
  pthread_attr_destroy(&attr);
  return started;
}

void moth_word_wait(_Atomic uint32_t *word, uint32_t seen) {
  WaitOnAddress((volatile void *)word, &seen, sizeof seen, INFINITE);
}

void moth_word_wake(_Atomic uint32_t *word) { WakeByAddressAll((void *)word); }

void moth_at_fork(void (*before)(void), void (*after)(void), void (*child)(void)) {
  (void)before, (void)after, (void)child; /* Windows has no fork */
}

/* -- fibers -- */

struct moth_fiber {
  void *outside, *inside;
  void (*run)(void *arg);
  void *arg;
};

static void CALLBACK fiber_start(void *arg) {
  moth_fiber *f = arg;
  f->run(f->arg); /* never returns */
}

moth_fiber *moth_fiber_new(void (*run)(void *arg), void *arg, size_t stack) {
  moth_fiber *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->run = run;
  f->arg = arg;
  f->inside = CreateFiber(stack, fiber_start, f);
  if (f->inside) return f;
  free(f);
  return NULL;
}

/* GetCurrentFiber reads a small address, which GCC 12 takes for an error. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
void moth_fiber_enter(moth_fiber *f) {
  if (!IsThreadAFiber()) ConvertThreadToFiber(NULL); /* for good: so is any thread that enters */
  f->outside = GetCurrentFiber();
  SwitchToFiber(f->inside);
}
#pragma GCC diagnostic pop

void moth_fiber_leave(moth_fiber *f) { SwitchToFiber(f->outside); }

void moth_fiber_free(moth_fiber *f) {
  if (!f) return;
  DeleteFiber(f->inside);
  free(f);
}

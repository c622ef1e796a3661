/* system.h -- functions of the operating system beyond C and POSIX threads. system.c is for POSIX,
** system_windows.c for Windows. (moth.h declares the clocks.)
*/
#ifndef MOTH_SYSTEM_H
#define MOTH_SYSTEM_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define MOTH_SLASHES "/\\:"
#define MOTH_LIBRARIES "?.dll" /* pattern of library names */
#define MOTH_BLAS_LIBRARIES "libopenblas.dll" /* tried in this order */
typedef int moth_signals;
#else
#include <signal.h>
#define MOTH_SLASHES "/"
#define MOTH_LIBRARIES "?.so"
#define MOTH_BLAS_LIBRARIES \
  "libopenblas.so.0", "libopenblas.so", "libcblas.so.3", "libblas.so.3"
typedef sigset_t moth_signals;
#endif

#define MOTH_PATH_SIZE 4096 /* size of a buffer for any path */

/* -- libraries, by paths in UTF-8 -- */

void *moth_library_open(const char *path); /* NULL on failure */
/* The reason why this thread's last moth_library_open of this path failed. NULL: the file is
** missing. */
const char *moth_library_trouble(const char *path);
void *moth_library_symbol(void *library, const char *name);
void moth_library_close(void *library);
/* Opens OpenBLAS. It starts its threads while it loads, so the environment sets one thread during
** the call, and the processor type whose kernels it uses unless core is NULL. Variables that the
** user has set keep their values. */
void *moth_library_open_alone(const char *path, const char *core);
/* The folder of the library that contains this function. */
bool moth_library_folder(void (*inside)(void), char folder[MOTH_PATH_SIZE]);
bool moth_program_path(char path[MOTH_PATH_SIZE]); /* of the running program */

/* -- memory: blocks that begin at multiples of a power of 2 -- */

void *moth_aligned_new(size_t align, size_t size);
void moth_aligned_free(void *block);
void moth_aligned_drop(void *block, size_t size); /* drops its pages and contents */
void moth_aligned_trim(void); /* returns the pages of freed small blocks to the system */

/* Pages from the system, which return to it when they are freed. In a heap, the gaps between blocks
** would become huge pages too, and a write of 16 bytes there would take 2 MiB. NULL: no memory. */
void *moth_pages_new(size_t align, size_t size);
void moth_pages_free(void *block, size_t size);

/* -- files, by paths in UTF-8; errors set errno -- */

enum { MOTH_OF_NOTHING, MOTH_OF_FILE, MOTH_OF_FOLDER, MOTH_OF_DEVICE };

typedef struct moth_disk_info {
  int kind; /* MOTH_OF_...; MOTH_OF_NOTHING: no file, or no permission to look */
  int mode; /* permissions */
  int64_t size;
  int64_t links; /* hard links */
} moth_disk_info;

moth_disk_info moth_disk_stat(const char *path);
moth_disk_info moth_disk_fstat(int fd);
int moth_disk_open(const char *path); /* to read; does not wait for a pipe; -1: error */
/* Creates an empty file to write. An existing file is replaced if it is a leftover of a process
** that has ended (not on Windows). mode: permissions; 0: the default. EEXIST: another process uses
** the name. */
int moth_disk_temporary(const char *path, int mode);
/* A second descriptor, which keeps the lock of a temporary file until it is renamed; -1: none. */
int moth_disk_hold(int fd);
int moth_disk_rewrite(const char *path); /* to write; EACCES: not permitted */
bool moth_disk_writable(const char *path);
int64_t moth_disk_read(int fd, void *to, size_t size, int64_t from);
int64_t moth_disk_write(int fd, const void *bytes, size_t size);
int moth_disk_close(int fd);
void *moth_disk_map(int fd, int64_t size); /* a private mapping; NULL: error */
void moth_disk_unmap(void *map, int64_t size);
/* Allocates blocks for the whole file at once, if the file system supports it: writing is faster
** and the file is contiguous. A full disk is reported by the write. */
void moth_disk_reserve(int fd, int64_t size);
void moth_disk_send(int fd, int64_t from, int64_t size); /* starts writing this range to the disk */
int moth_disk_sync(int fd);
int moth_disk_replace(const char *from, const char *to);
void moth_disk_discard(int fd, const char *path); /* closes and removes a temporary file */
char *moth_disk_real(const char *path); /* resolves links; the caller frees it */
/* The target of a symbolic link; the caller frees it. NULL: not a link, or errno is ENOMEM. */
char *moth_disk_link(const char *path);
int moth_folder_sync(const char *path);
const char *moth_errno_text(int code, char *text, size_t size);

/* Writes above a file-size limit or to a closed pipe raise a signal that would end the process.
** While signals are held, these writes fail with an ordinary error. */
void moth_signals_hold(moth_signals *held);
void moth_signals_release(const moth_signals *held, bool failed); /* failed: may be pending */

/* Sets the handler of Ctrl-C, which runs on any thread. restarts: interrupted reads continue. */
void moth_interrupts_to(void (*handler)(int number), bool restarts);

/* Between (true) and (false) Ctrl-C ends the process, unless the process ignores it: for calls
** that cannot be cancelled. One thread at a time. */
void moth_interrupts_end(bool on);

/* -- numbers as text, with a decimal point in every locale that the host sets -- */

double moth_text_number(const char *text); /* strtod */
void moth_text_print(char *to, size_t size, const char *format, va_list list); /* vsnprintf */

/* -- fibers: stacks of their own, which run on the thread that enters them -- */

typedef struct moth_fiber moth_fiber;
/* One that runs run(arg) when it is first entered; run never returns. NULL: no memory */
moth_fiber *moth_fiber_new(void (*run)(void *arg), void *arg, size_t stack);
void moth_fiber_enter(moth_fiber *f); /* returns when the fiber leaves */
void moth_fiber_leave(moth_fiber *f); /* inside the fiber; returns when it is entered again */
void moth_fiber_free(moth_fiber *f);  /* one that is not entered */

/* -- threads and processes -- */

void moth_sleep(double seconds); /* for less than a second */

int moth_processors(void); /* processors that this process may use */
/* Starts a detached thread that blocks all signals except faults. stack 0: the system's size. */
bool moth_thread_start(void *(*run)(void *arg), void *arg, size_t stack);
/* Parks this thread until the word is woken. Returns at once if the word is not `seen`. */
void moth_word_wait(_Atomic uint32_t *word, uint32_t seen);
void moth_word_wake(_Atomic uint32_t *word); /* wakes all waiting threads */
/* Sets functions for forks: in the parent before and after it, and in the child. NULL: none. */
void moth_at_fork(void (*before)(void), void (*after)(void), void (*child)(void));

#endif

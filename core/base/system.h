/* system.h -- what the engine asks of the operating system beside C and POSIX threads: system.c has
** it for POSIX, system_windows.c for Windows. (The clocks are declared in moth.h.)
*/
#ifndef MOTH_SYSTEM_H
#define MOTH_SYSTEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define MOTH_SLASHES "/\\:"
#define MOTH_LIBRARIES "?.dll" /* how they are called */
#define MOTH_BLAS_LIBRARIES "libopenblas.dll" /* the first that is found */
typedef int moth_signals;
#else
#include <signal.h>
#define MOTH_SLASHES "/"
#define MOTH_LIBRARIES "?.so"
#define MOTH_BLAS_LIBRARIES \
  "libopenblas.so.0", "libopenblas.so", "libcblas.so.3", "libblas.so.3"
typedef sigset_t moth_signals;
#endif

#define MOTH_PATH_ROOM 4096 /* bytes of the longest path, and its end */

/* -- libraries, by paths in UTF-8 -- */

void *moth_library_open(const char *path); /* NULL: it cannot be used */
/* Why the last one of this thread, by this path, was not opened; NULL: there is none there. */
const char *moth_library_trouble(const char *path);
void *moth_library_symbol(void *library, const char *name);
void moth_library_close(void *library);
/* OpenBLAS, which starts its threads while it is being loaded unless the environment says one: for
** that moment it does, and names the processor whose kernels are to be taken, unless core is NULL.
** What the user says there holds. */
void *moth_library_open_alone(const char *path, const char *core);
/* The folder that the library with this function of its own lies in. */
bool moth_library_folder(void (*inside)(void), char folder[MOTH_PATH_ROOM]);
bool moth_program_path(char path[MOTH_PATH_ROOM]); /* of the program that runs */

/* -- memory: blocks that begin at multiples of a power of 2 -- */

void *moth_aligned_new(size_t align, size_t size);
void moth_aligned_free(void *block);
void moth_aligned_drop(void *block, size_t size); /* its pages go; what it holds is lost */
void moth_aligned_trim(void); /* gives back the pages of small blocks that were freed */

/* Whole pages of the system, which go back to it when they are freed. From a heap, the gaps between
** blocks would become large pages too: a write of 16 bytes there takes 2 MiB. NULL: no memory */
void *moth_pages_new(size_t align, size_t size);
void moth_pages_free(void *block, size_t size);

/* -- files, by paths in UTF-8; what fails sets errno -- */

enum { MOTH_OF_NOTHING, MOTH_OF_FILE, MOTH_OF_FOLDER, MOTH_OF_DEVICE };

typedef struct moth_disk_info {
  int kind; /* one of those; MOTH_OF_NOTHING: there is none, or it cannot be looked at */
  int mode; /* its permissions */
  int64_t size;
  int64_t links; /* names that it has: more than one where it is linked */
} moth_disk_info;

moth_disk_info moth_disk_stat(const char *path);
moth_disk_info moth_disk_fstat(int fd);
int moth_disk_open(const char *path); /* to read; a pipe does not make us wait; -1: it fails */
/* To write an empty file of our own: a new one, or one that a process left which has ended (not on
** Windows). mode 0: any. EEXIST: somebody else has it. */
int moth_disk_temporary(const char *path, int mode);
/* A second descriptor, to keep such a file until it has its name; -1: there is none. */
int moth_disk_hold(int fd);
int moth_disk_rewrite(const char *path); /* to write, where there is one; EACCES if one may not */
bool moth_disk_writable(const char *path);
int64_t moth_disk_read(int fd, void *to, size_t size, int64_t from);
int64_t moth_disk_write(int fd, const void *bytes, size_t size);
int moth_disk_close(int fd);
void *moth_disk_map(int fd, int64_t size); /* private to us; NULL: it cannot be mapped */
void moth_disk_unmap(void *map, int64_t size);
/* Blocks for the whole file at once, where the file system can: it writes faster and lies in one
** piece. If there is no room, writing will say so. */
void moth_disk_reserve(int fd, int64_t size);
void moth_disk_send(int fd, int64_t from, int64_t size); /* on their way to the disk */
int moth_disk_sync(int fd);
int moth_disk_replace(const char *from, const char *to);
void moth_disk_discard(int fd, const char *path); /* closes and removes a temporary file */
char *moth_disk_real(const char *path); /* what links lead to, to be freed */
/* What a link names, to be freed; NULL: it is none, or errno is ENOMEM. */
char *moth_disk_link(const char *path);
int moth_folder_sync(const char *path);
const char *moth_errno_text(int code, char *text, size_t size);

/* A file-size limit or a closed pipe would end the process by a signal; held back, they are
** ordinary errors of write. */
void moth_signals_hold(moth_signals *held);
void moth_signals_release(const moth_signals *held, bool failed); /* failed: they may wait */

/* What Ctrl-C calls, on whatever thread; `restarts`: what waits for input meanwhile waits on. */
void moth_interrupts_to(void (*handler)(int number), bool restarts);

/* -- threads and processes -- */

int moth_processors(void); /* that this process may use */
/* A thread that ends by itself and hears no signals; stack 0: the system's size. */
bool moth_thread_start(void *(*run)(void *arg), void *arg, size_t stack);
/* Parks this thread until the word is woken, unless it has another value than `seen`. */
void moth_word_wait(_Atomic uint32_t *word, uint32_t seen);
void moth_word_wake(_Atomic uint32_t *word); /* all that wait for it */
/* What runs around a fork, in the parent before and after it and in the child; NULL: nothing. */
void moth_at_fork(void (*before)(void), void (*after)(void), void (*child)(void));

#endif

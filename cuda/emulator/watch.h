/* watch.h -- calls from the emulator to the race checker (watch.cpp). WATCH(...) is empty in builds
** without it. */
#ifndef MOTH_EMULATED_WATCH_H
#define MOTH_EMULATED_WATCH_H

#include <stddef.h>

#ifndef MOTH_WATCHED
#define WATCH(...)
#else
#define WATCH(...) __VA_ARGS__

/* -- a launch; `args` are copies of the kernel's arguments -- */
void moth_watch_launch(const void *kernel, const void *args, size_t nargs);
void moth_watch_block_begins(unsigned number, const void *shared, size_t nshared);
/* This thread runs now; -1: none. */
void moth_watch_thread(int number, const char *stack, size_t nstack);
void moth_watch_barrier(void);                         /* all threads of the block have arrived */
/* Two threads that waited at these addresses were released together. */
void moth_watch_place(unsigned one, const void *at, unsigned other, const void *there);
void moth_watch_meeting(unsigned warp, unsigned lanes); /* these threads have synchronized */

/* -- calls for the running thread -- */
bool moth_watch_pause(bool pause); /* pauses the checks, for work on behalf of other threads;
                                   ** returns the previous state */
void moth_watch_copy_asked(const void *to, const void *from, size_t n, const void *where);
void moth_watch_copy_comes(const void *to, size_t n);

/* -- device memory -- */
enum watch_state : unsigned char { NOBODYS, UNWRITTEN, WRITTEN };
void moth_watch_arena(const void *at, size_t n);
void moth_watch_memory(const void *at, size_t n, watch_state now);
/* The part of a block that a tensor uses. */
void moth_watch_used(const void *at, size_t used, size_t size);
void moth_watch_move(const void *to, const void *from, size_t n); /* from NULL: a fill */

#endif
#endif

/* watch.h -- what the emulator tells of a kernel's run to who checks it (watch.cpp), in the build
** that is made for that: WATCH(...) is nothing in the other.
*/
#ifndef MOTH_EMULATED_WATCH_H
#define MOTH_EMULATED_WATCH_H

#include <stddef.h>

#ifndef MOTH_WATCHED
#define WATCH(...)
#else
#define WATCH(...) __VA_ARGS__

/* -- a launch; `args` are copies of what the kernel is called with -- */
void moth_watch_launch(const void *kernel, const void *args, size_t nargs);
void moth_watch_block_begins(unsigned number, const void *shared, size_t nshared);
void moth_watch_thread(int number, const char *stack, size_t nstack); /* goes on; -1: none does */
void moth_watch_barrier(void);                         /* all threads of the block have come */
/* Two threads that go on together: from where each waited. */
void moth_watch_place(unsigned one, const void *at, unsigned other, const void *there);
void moth_watch_meeting(unsigned warp, unsigned lanes); /* these threads of a warp have */

/* -- what the running thread asks for -- */
bool moth_watch_pause(bool pause); /* what follows is done for other threads too; what it was */
void moth_watch_copy_asked(const void *to, const void *from, size_t n, const void *where);
void moth_watch_copy_comes(const void *to, size_t n);

/* -- device memory -- */
enum watch_state : unsigned char { NOBODYS, UNWRITTEN, WRITTEN };
void moth_watch_arena(const void *at, size_t n);
void moth_watch_memory(const void *at, size_t n, watch_state now);
void moth_watch_used(const void *at, size_t used, size_t room); /* of a block, by a tensor */
void moth_watch_move(const void *to, const void *from, size_t n); /* from NULL: a fill */

#endif
#endif

/* error.h -- errors and interrupts. A function that fails sets the message and returns the code.
** `arg` may be NULL. Messages format positions with MOTH_POS.
*/
#ifndef MOTH_ERROR_H
#define MOTH_ERROR_H

#include "context.h"

#if defined(__GNUC__)
#define MOTH_FORMAT(f, a) __attribute__((format(printf, f, a)))
#else
#define MOTH_FORMAT(f, a)
#endif

#define MOTH_POS "\1%lld\2"
int moth_fail(moth_ctx *ctx, int code, const char *arg, const char *format, ...) MOTH_FORMAT(4, 5);
/* Sets the error of MOTH_NEED. ctx may be NULL. The text for a busy context is the thread's own. */
void moth_fail_need(moth_ctx *ctx);
void moth_error_clear(moth_ctx *ctx);
void moth_error_blame(moth_ctx *ctx, const char *op); /* the op that failed; text that is never
                                                      ** freed */
void moth_error_blame_copy(moth_ctx *ctx, const char *op);

/* For an op that calls another op: renames the argument `from` of the inner op's error to `to`.
** Returns the status. */
int moth_error_as(moth_ctx *ctx, int status, const char *from, const char *to);

/* -- one thread at a time --
**
** A long call writes its thread to the context. This is no lock: it finds the mistake of a host,
** unless two threads enter within a few nanoseconds. */

/* A number of the calling thread, not 0. */
static inline uintptr_t moth_thread(void) {
#if defined(_WIN32)
  uintptr_t block;
  __asm__("movq %%gs:0x30, %0" : "=r"(block));
  return block;
#elif defined(__x86_64__)
  uintptr_t block;
  __asm__("movq %%fs:0, %0" : "=r"(block));
  return block;
#else
  return (uintptr_t)__builtin_thread_pointer();
#endif
}

/* Does another thread run a call in this context? */
static inline bool moth_is_busy(const moth_ctx *ctx) {
  const uintptr_t thread = atomic_load_explicit(&ctx->thread, memory_order_relaxed);
  return thread && thread != moth_thread();
}

/* Begins a long call. Returns the argument of moth_leave. */
static inline uintptr_t moth_enter(moth_ctx *ctx) {
  const uintptr_t before = atomic_load_explicit(&ctx->thread, memory_order_relaxed);
  atomic_store_explicit(&ctx->thread, moth_thread(), memory_order_relaxed);
  return before;
}
static inline void moth_leave(moth_ctx *ctx, uintptr_t before) {
  atomic_store_explicit(&ctx->thread, before, memory_order_relaxed);
}

/* The first line of each public function that takes pointers: returns `value` if the context or a
** pointer that the function needs is NULL, or if another thread runs a call in the context. */
#define MOTH_NEED(ctx, pointers, value)                                    \
  do {                                                                     \
    if (__builtin_expect(!(ctx) || !(pointers) || moth_is_busy(ctx), 0)) { \
      moth_fail_need(ctx);                                                 \
      return value;                                                        \
    }                                                                      \
  } while (0)

extern atomic_int moth_interrupts; /* a counter, so that every context sees each interrupt */

bool moth_cancelled_now(moth_ctx *ctx);
/* Sets the time of moth_seconds from which on ops fail. 0: none. Returns the old one. */
double moth_deadline(moth_ctx *ctx, double seconds);
/* Is there anything that moth_cancelled must check: a request, a deadline, a slice of time? */
static inline bool moth_needs_poll(const moth_ctx *ctx) {
  return atomic_load_explicit(&ctx->cancel, memory_order_relaxed) |
         (atomic_load_explicit(&moth_interrupts, memory_order_relaxed) != ctx->interrupts);
}
/* Returns true if a cancel is requested. Ops call it at their start and inside long loops. A slice
** of time that is over pauses here (slice.h). */
static inline bool moth_cancelled(moth_ctx *ctx) {
  return moth_needs_poll(ctx) && moth_cancelled_now(ctx);
}
/* Returns E_INTERRUPT. For code that saw a cancel and left work undone, even if the cancel was
** withdrawn since. */
int moth_stopped(moth_ctx *ctx);
static inline int moth_poll(moth_ctx *ctx) {
  return moth_cancelled(ctx) ? moth_stopped(ctx) : MOTH_OK;
}
int moth_fail_closed(moth_ctx *ctx); /* the error for calls with a closed context */

#endif

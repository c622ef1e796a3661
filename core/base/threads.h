/* threads.h -- the thread pool. Work is split into pieces; the calling thread and a few workers
** take one after another. Nobody waits for a worker that has no piece, so the caller can finish
** alone.
*/
#ifndef MOTH_THREADS_H
#define MOTH_THREADS_H

#include "context.h"

#define MOTH_MAX_LANES 64

/* Computes items first to last - 1 of a job. `lane`, below moth_lanes(ctx), is the thread index: it
** selects this thread's scratch memory, which is allocated before. The function must not allocate,
** fail or start a job. Its result for an item must not depend on where pieces begin. */
typedef void moth_work(int64_t first, int64_t last, int lane, const void *arg);

/* The number of threads for jobs of this context. It is constant during a call into the library,
** even if another thread calls moth_set_num_threads: scratch memory is sized by it. */
static inline int moth_lanes(const moth_ctx *ctx) { return ctx->lanes; }

/* Runs work over items 0 to n - 1, on several threads if that is faster. Pieces are multiples of
** `grain` items. `cost`: about how many nanoseconds an item takes. Cancels are checked between
** pieces: E_INTERRUPT, with the remaining pieces not done. */
int moth_parallel(moth_ctx *ctx, int64_t n, int64_t grain, double cost, moth_work *work,
                  const void *arg);

/* Long loops of a piece call this: if the piece runs in a slice of time that is over, the slice
** pauses here (slice.h). Pieces that call it often enough are not made shorter for slices: see
** moth_grain. */
void moth_pause(void);
moth_ctx *moth_pause_for(moth_ctx *ctx); /* the context that pauses on this thread; the old one */
/* The grain for n items whose work calls moth_pause: in a slice, all of them are one piece. */
static inline int64_t moth_grain(const moth_ctx *ctx, int64_t n) { return ctx->slice ? n : 1; }

/* True on a DataLoader worker's thread, which starts no jobs on others. */
extern _Thread_local bool moth_on_worker;

extern atomic_uint moth_forks; /* forks between the first process and this one */
void moth_forks_watch(void);   /* starts counting them */

/* Fixes the number of threads for this call. Every entry point that runs ops calls it. */
extern atomic_int moth_pool_lanes; /* 1 to MOTH_MAX_LANES once a context is open */
void moth_pool_ready(moth_ctx *ctx); /* reads the environment variables */
static inline void moth_settle_lanes(moth_ctx *ctx) {
  ctx->lanes = atomic_load_explicit(&moth_pool_lanes, memory_order_relaxed);
}

#endif

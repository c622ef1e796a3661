/* threads.h -- the pool: work is cut into pieces, which the calling thread and a few workers take
** one after another. Nobody waits for a worker that took nothing, so the caller can finish alone.
*/
#ifndef MOTH_THREADS_H
#define MOTH_THREADS_H

#include "context.h"

#define MOTH_MAX_LANES 64

/* Items first to last - 1 of a job. `lane`, below moth_lanes(ctx), is this thread's own: scratch
** memory is laid out by lane beforehand. It neither allocates nor fails, and starts no job itself.
** What it computes for an item must not depend on where pieces begin. */
typedef void moth_work(int64_t first, int64_t last, int lane, const void *arg);

/* How many threads may take part in a job of this context's. It stays while an entrance from
** outside runs, whatever another thread asks for meanwhile: scratch is sized by it. */
static inline int moth_lanes(const moth_ctx *ctx) { return ctx->lanes; }

/* Runs work over items 0 to n - 1, on several threads where that pays. Pieces are multiples of
** `grain` items; `cost` is what one item takes one thread, in nanoseconds, roughly. Between pieces
** a cancel is heard: E_INTERRUPT, with what was begun finished and the rest left out. */
int moth_parallel(moth_ctx *ctx, int64_t n, int64_t grain, double cost, moth_work *work,
                  const void *arg);

/* This thread is a DataLoader worker's: it starts no jobs on others. */
extern _Thread_local bool moth_on_worker;

extern atomic_uint moth_forks; /* forks between the first process and this one */
void moth_forks_watch(void);   /* from now on they are counted */

/* What moth_set_num_threads asks for holds from here on; called where ops are run from outside. */
extern atomic_int moth_pool_lanes; /* 1 to MOTH_MAX_LANES once a context is open */
void moth_pool_ready(moth_ctx *ctx); /* reads what the environment says */
static inline void moth_settle_lanes(moth_ctx *ctx) {
  ctx->lanes = atomic_load_explicit(&moth_pool_lanes, memory_order_relaxed);
}

#endif

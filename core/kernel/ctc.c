/* ctc.c -- connectionist temporal classification; threads take samples of the batch. */
#include "ctc.h"
#include "base/alloc.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "kernel/math/exp_f64.h"

typedef struct sample { /* a thread's sample, and its scratch buffers */
  int64_t n, steps, states, wide; /* wide: places of a row */
  bool keeps;                     /* keeps all rows */
  int64_t *label;                 /* of each state */
  double *shift;                  /* subtracted from each row */
  void *skip, *emits, *rows;
} sample;

typedef struct job {
  const moth_ctc *c;
  const void *dloss;
  void *y, *loss; /* y: (T, N, C), or NULL */
  char *scratch;
  int64_t each; /* bytes of it for a thread */
} job;

#define LOOPS "kernel/ctc_real.h"
#include "each_level.h"

static int run(moth_ctx *ctx, int dtype, job *j) {
  const moth_ctc *c = j->c;
  const int64_t wide = 2 * c->longest + 5, size = moth_dtype_size[dtype];
  const int64_t rows = (j->y ? c->steps : 2) + 4;
  j->each = wide * 8 + (c->steps + 2) * 8 + rows * wide * size;
  j->each = (j->each + 63) / 64 * 64;
  const int64_t bytes = j->each * moth_lanes(ctx);
  if (c->samples == 0) return MOTH_OK;
  j->scratch = moth_alloc(ctx, bytes);
  if (!j->scratch) return ctx->error.code;
  int status = moth_parallel(ctx, c->samples, 1, (double)(c->steps * wide) * (j->y ? 8 : 4),
                             dtype == MOTH_F32 ? MOTH_BEST(samples) : samples_f64, j);
  moth_dealloc(ctx, j->scratch, bytes);
  return status;
}

int moth_ctc_losses(moth_ctx *ctx, int dtype, const moth_ctc *c, void *loss) {
  job j = {.c = c, .loss = loss};
  return run(ctx, dtype, &j);
}

int moth_ctc_back(moth_ctx *ctx, int dtype, const moth_ctc *c, const void *dloss, void *dx) {
  job j = {.c = c, .dloss = dloss, .y = dx};
  return run(ctx, dtype, &j);
}

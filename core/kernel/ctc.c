/* ctc.c -- connectionist temporal classification. Each thread computes one sample of the batch at a
** time. */
#include "ctc.h"
#include "base/alloc.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "kernel/math/exp_f64.h"

typedef struct sample { /* one sample, and the scratch buffers of a thread */
  int64_t n, steps, states, wide; /* wide: elements of a row of states */
  bool keeps;                     /* all rows are kept, for the gradient */
  int64_t *label;                 /* the class of each state */
  double *shift;                  /* for each row, the sum of the maxima subtracted so far */
  void *skip, *emits, *rows;
} sample;

typedef struct job {
  const moth_ctc *c;
  const void *dloss;
  void *y, *loss; /* y: the gradient, (T, N, C), or NULL */
  char *scratch;
  int64_t each; /* bytes of scratch for a thread */
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

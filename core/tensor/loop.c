/* loop.c -- loops over several tensors, and the copies that use them, also from a GPU to the CPU.
**
** The common case, all operands in one dense layout, is tested first and becomes one run. Otherwise
** the dimensions are sorted by stride, and two dimensions that step as one are merged.
*/
#include "device/device.h"
#include "call/observer.h"
#include "shape.h"
#include "base/error.h"
#include "tensor.h"

#include "kernel/copy.h"
#include "kernel/transpose.h"
#include "base/threads.h"

#define POLL_RUN (1 << 20)  /* elements of a run between two cancel checks */
#define POLL_RUNS (1 << 14) /* runs between two cancel checks */
#define MIN_POOL_NS 1e3     /* ns; shorter work does not use the thread pool */
#define GRAIN 256           /* elements: pieces of threads begin at multiples */

/* -- setting up -- */

/* Returns true if all operands have one dense layout or one element: a single run. Operands
** broadcast to `over`: one with as many elements and dimensions has the same shape. */
static bool flat(moth_loop *loop, const moth_layout *over, int n,
                 const moth_tensor *const *operands) {
  const moth_layout *first = NULL;
  for (int k = 0; k < n; k++) {
    const moth_layout *l = &operands[k]->l;
    loop->at[k] = moth_at(operands[k]);
    loop->step[0][k] = moth_dtype_size[l->dtype];
    if (l->numel == 1) {
      if (over->numel != 1) loop->step[0][k] = 0;
    } else if (l->numel != over->numel || (first && !moth_same_strides(l, first))) {
      return false;
    } else if (!first) {
      first = l;
    }
  }
  if (first && !moth_layout_dense(first)) return false;
  loop->ndim = 1;
  loop->size[0] = over->numel;
  return true;
}

/* Should dim b be inside dim a? The first operand with different steps decides. */
static bool inside(const moth_loop *loop, int b, int a) {
  for (int k = 0; k < loop->noperands; k++) {
    int64_t p = loop->step[a][k], q = loop->step[b][k];
    if (p < 0) p = -p;
    if (q < 0) q = -q;
    if (p && q && p != q) return q < p;
  }
  return false;
}

static void swap_dims(moth_loop *loop, int a, int b) {
  int64_t size = loop->size[a];
  loop->size[a] = loop->size[b];
  loop->size[b] = size;
  for (int k = 0; k < loop->noperands; k++) {
    int64_t step = loop->step[a][k];
    loop->step[a][k] = loop->step[b][k];
    loop->step[b][k] = step;
  }
}

static void merge_dims(moth_loop *loop) {
  int to = 0;
  for (int d = 1; d < loop->ndim; d++) {
    bool same = true;
    for (int k = 0; k < loop->noperands; k++)
      same = same && loop->step[d][k] == loop->step[to][k] * loop->size[to];
    if (same) {
      loop->size[to] *= loop->size[d];
      continue;
    }
    to++;
    if (to != d) swap_dims(loop, to, d);
  }
  loop->ndim = to + 1;
}

void moth_loop_over(moth_loop *loop, moth_ctx *ctx, const moth_layout *over, int noperands,
                    const moth_tensor *const *operands) {
  loop->ctx = ctx;
  loop->noperands = noperands;
  if (flat(loop, over, noperands, operands)) return;
  for (int k = 0; k < noperands; k++) loop->at[k] = moth_at(operands[k]);
  loop->ndim = 0;
  for (int d = over->ndim - 1; d >= 0; d--) {
    if (over->shape[d] == 1) continue;
    int to = loop->ndim++;
    loop->size[to] = over->shape[d];
    for (int k = 0; k < noperands; k++) {
      const moth_layout *l = &operands[k]->l;
      int at = d - (over->ndim - l->ndim);
      bool moves = at >= 0 && l->shape[at] != 1;
      loop->step[to][k] = moves ? l->stride[at] * moth_dtype_size[l->dtype] : 0;
    }
    for (; to > 0 && inside(loop, to, to - 1); to--) swap_dims(loop, to, to - 1);
  }
  if (loop->ndim == 0 || over->numel == 0) {
    loop->ndim = 1;
    loop->size[0] = over->numel;
    memset(loop->step[0], 0, sizeof loop->step[0]);
    return;
  }
  merge_dims(loop);
}

/* -- running -- */

/* Runs one long run in pieces, with cancel checks between them. */
static int long_run(const moth_loop *loop, char **at, moth_inner inner, const void *arg) {
  int64_t n = loop->size[0];
  while (n > 0) {
    int64_t m = n < POLL_RUN ? n : POLL_RUN;
    inner(m, at, loop->step[0], arg);
    n -= m;
    for (int k = 0; k < loop->noperands; k++) at[k] += m * loop->step[0][k];
    if (n > 0 && moth_cancelled(loop->ctx)) return moth_stopped(loop->ctx);
  }
  return MOTH_OK;
}

int moth_loop_run(const moth_loop *loop, moth_inner inner, const void *arg) {
  char *at[MOTH_LOOP_OPERANDS], *start[MOTH_LOOP_OPERANDS];
  int64_t index[MOTH_MAX_DIMS] = {0};
  int n = loop->noperands;
  if (loop->size[0] == 0) return MOTH_OK;
  if (loop->ndim == 1 && loop->size[0] <= POLL_RUN) {
    inner(loop->size[0], loop->at, loop->step[0], arg);
    return MOTH_OK;
  }
  memcpy(at, loop->at, sizeof(char *) * (size_t)n);
  for (int64_t runs = 1;; runs++) {
    memcpy(start, at, sizeof(char *) * (size_t)n);
    int status = long_run(loop, start, inner, arg);
    if (status) return status;
    if (runs % POLL_RUNS == 0 && moth_cancelled(loop->ctx)) return moth_stopped(loop->ctx);
    int d = 1;
    for (; d < loop->ndim; d++) {
      for (int k = 0; k < n; k++) at[k] += loop->step[d][k];
      if (++index[d] < loop->size[d]) break;
      for (int k = 0; k < n; k++) at[k] -= loop->size[d] * loop->step[d][k];
      index[d] = 0;
    }
    if (d == loop->ndim) return MOTH_OK;
  }
}

/* Runs elements first to last - 1 of the loop: a part of a row, full rows, a part of a row. */
typedef struct shared_run {
  const moth_loop *loop;
  moth_inner inner;
  const void *arg;
} shared_run;

static void run_share(int64_t first, int64_t last, int lane, const void *arg) {
  const shared_run *run = arg;
  const moth_loop *loop = run->loop;
  char *at[MOTH_LOOP_OPERANDS];
  int64_t index[MOTH_MAX_DIMS], rest = first;
  (void)lane;
  for (int k = 0; k < loop->noperands; k++) at[k] = loop->at[k];
  for (int d = 0; d < loop->ndim; d++) {
    index[d] = rest % loop->size[d];
    rest /= loop->size[d];
    for (int k = 0; k < loop->noperands; k++) at[k] += index[d] * loop->step[d][k];
  }
  while (first < last) {
    int64_t m = loop->size[0] - index[0] < last - first ? loop->size[0] - index[0] : last - first;
    run->inner(m, at, loop->step[0], run->arg);
    first += m;
    if (first == last) return;
    for (int k = 0; k < loop->noperands; k++) at[k] -= index[0] * loop->step[0][k];
    index[0] = 0;
    for (int d = 1; d < loop->ndim; d++) {
      for (int k = 0; k < loop->noperands; k++) at[k] += loop->step[d][k];
      if (++index[d] < loop->size[d]) break;
      for (int k = 0; k < loop->noperands; k++) at[k] -= loop->size[d] * loop->step[d][k];
      index[d] = 0;
    }
  }
}

int moth_loop_share(const moth_loop *loop, moth_inner inner, const void *arg, double cost) {
  int64_t n = loop->size[0];
  if (loop->ndim == 1 && (double)n * cost < MIN_POOL_NS) {
    if (n > 0) inner(n, loop->at, loop->step[0], arg);
    return MOTH_OK;
  }
  for (int d = 1; d < loop->ndim; d++) n *= loop->size[d];
  shared_run run = {loop, inner, arg};
  return moth_parallel(loop->ctx, n, GRAIN, cost, run_share, &run);
}

typedef struct across_run {
  const moth_loop *loop;
  int d;
  moth_inner inner;
  const void *arg;
} across_run;

static void run_across(int64_t first, int64_t last, int lane, const void *arg) {
  const across_run *run = arg;
  moth_loop part = *run->loop;
  int64_t n = 1;
  for (int k = 0; k < part.noperands; k++) part.at[k] += first * part.step[run->d][k];
  part.size[run->d] = last - first;
  for (int d = 0; d < part.ndim; d++) n *= part.size[d];
  run_share(0, n, lane, &(shared_run){&part, run->inner, run->arg});
}

int moth_loop_share_across(const moth_loop *loop, int d, moth_inner inner, const void *arg,
                           double cost) {
  for (int k = 0; k < loop->ndim; k++)
    if (k != d) cost *= (double)loop->size[k];
  const int64_t grain = d ? 1 : 64; /* pieces of the innermost dim share no cache line */
  const across_run run = {loop, d, inner, arg};
  return moth_parallel(loop->ctx, loop->size[d], grain, cost, run_across, &run);
}

/* -- copying -- */

typedef struct copy_plan {
  int from, to;
  int64_t rows, y_step, x_step; /* of the tile's other dimension, in bytes */
  int64_t bands;                /* the number of tiles in `rows` */
  const moth_loop *loop;
} copy_plan;

static void copy_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const copy_plan *plan = arg;
  int64_t size = moth_dtype_size[plan->to];
  if (step[1] == 0 && step[0] == size && n > 0) {
    char value[8];
    moth_convert(1, plan->from, at[1], 0, plan->to, value, size);
    moth_fill((int)size, n, at[0], value);
    return;
  }
  moth_convert(n, plan->from, at[1], step[1], plan->to, at[0], step[0]);
}

/* Copies rows first to last - 1. A row is short, and contiguous or one repeated element. */
static void copy_rows(int64_t first, int64_t last, int lane, const void *arg) {
  const copy_plan *plan = arg;
  const moth_loop *loop = plan->loop;
  const int64_t n = loop->size[0], size = moth_dtype_size[plan->to];
  const int64_t y_step = loop->step[1][0], x_step = loop->step[1][1];
  const bool moves = loop->step[0][1] != 0;
  (void)lane;
  while (first < last) {
    int64_t row = first % loop->size[1], place = first / loop->size[1];
    int64_t end = first - row + loop->size[1] < last ? first - row + loop->size[1] : last;
    char *y = loop->at[0] + row * y_step, *x = loop->at[1] + row * x_step;
    for (int d = 2; d < loop->ndim; d++) {
      y += place % loop->size[d] * loop->step[d][0];
      x += place % loop->size[d] * loop->step[d][1];
      place /= loop->size[d];
    }
    if (!moves && n <= 16 && x_step == size && y_step == n * size) {
      moth_repeat_each((int)size, end - first, n, x, y);
      first = end;
    }
    for (; first < end; first++, y += y_step, x += x_step) {
      if (moves) memcpy(y, x, (size_t)(n * size));
      else moth_fill((int)size, n, y, x);
    }
  }
}

static bool in_rows(const moth_loop *loop, const copy_plan *plan) {
  const int64_t size = moth_dtype_size[plan->to];
  return plan->from == plan->to && loop->ndim > 1 && loop->size[0] * size <= 1 << 14 &&
         loop->step[0][0] == size && (loop->step[0][1] == size || loop->step[0][1] == 0);
}

enum { COPY_TILE = 64 };

/* A transposed copy: y is contiguous along n, x along the rows. Tiles keep both in the CPU
** cache. */
static void copy_tiles(int64_t n, char *const *at, const int64_t *step, const copy_plan *plan,
                       int64_t first, int64_t last) {
  const int64_t size = moth_dtype_size[plan->to];
  const bool turns = size == 4 && plan->from == plan->to && step[0] == 4 && plan->x_step == 4;
  for (int64_t j = 0; j < n; j += COPY_TILE) {
    const int64_t w = n - j < COPY_TILE ? n - j : COPY_TILE;
    const char *x = at[1] + j * step[1] + first * plan->x_step;
    char *y = at[0] + j * step[0] + first * plan->y_step;
    if (turns) {
      moth_transpose_block(last - first, w, x, step[1], y, plan->y_step);
      continue;
    }
    for (int64_t r = first; r < last; r++, x += plan->x_step, y += plan->y_step)
      moth_convert(w, plan->from, x, step[1], plan->to, y, step[0]);
  }
}

/* Copies bands first to last - 1. A band is COPY_TILE rows at one index of the outer dimensions. */
static void run_tiles(int64_t first, int64_t last, int lane, const void *arg) {
  const copy_plan *plan = arg;
  const moth_loop *loop = plan->loop;
  (void)lane;
  for (int64_t i = first; i < last; i++) {
    int64_t place = i / plan->bands, row = i % plan->bands * COPY_TILE;
    char *at[2] = {loop->at[0], loop->at[1]};
    for (int d = 1; d < loop->ndim; d++) {
      const int64_t index = place % loop->size[d];
      place /= loop->size[d];
      for (int k = 0; k < 2; k++) at[k] += index * loop->step[d][k];
    }
    copy_tiles(loop->size[0], at, loop->step[0], plan, row,
               plan->rows - row < COPY_TILE ? plan->rows : row + COPY_TILE);
  }
}

/* If the smallest step of x is in another dimension than that of y, that dimension becomes the
** tile's rows. */
static bool plan_tiles(moth_loop *loop, copy_plan *plan, int64_t size) {
  if (loop->step[0][1] == size || loop->step[0][1] == 0) return false;
  for (int d = 1; d < loop->ndim; d++) {
    if (loop->step[d][1] != size || loop->size[d] < 4) continue;
    plan->rows = loop->size[d];
    plan->bands = (plan->rows + COPY_TILE - 1) / COPY_TILE;
    plan->loop = loop;
    plan->y_step = loop->step[d][0];
    plan->x_step = loop->step[d][1];
    for (int i = d + 1; i < loop->ndim; i++) swap_dims(loop, i - 1, i);
    loop->ndim--;
    return true;
  }
  return false;
}

int moth_copy_into(moth_tensor *y, const moth_tensor *x) {
  const moth_tensor *operands[] = {y, x};
  if (y->ctx->observer && moth_observe_function(y->ctx, NULL, y->l.dtype, 2, operands, NULL))
    return MOTH_OK;
  if (y->l.device | x->l.device) return moth_device_copy(y, x, true);
  moth_loop loop;
  copy_plan plan = {.from = x->l.dtype, .to = y->l.dtype};
  moth_loop_over(&loop, y->ctx, &y->l, 2, operands);
  const double cost = 0.02 * (moth_dtype_size[plan.from] + moth_dtype_size[plan.to]) +
                      (plan.from == plan.to ? 0 : 0.1);
  if (in_rows(&loop, &plan)) {
    int64_t rows = 1;
    for (int d = 1; d < loop.ndim; d++) rows *= loop.size[d];
    plan.loop = &loop;
    return moth_parallel(y->ctx, rows, 4, cost * (double)loop.size[0] + 2, copy_rows, &plan);
  }
  if (!plan_tiles(&loop, &plan, moth_dtype_size[x->l.dtype]))
    return moth_loop_share(&loop, copy_run, &plan, cost);
  int64_t bands = plan.bands;
  for (int d = 1; d < loop.ndim; d++) bands *= loop.size[d];
  return moth_parallel(y->ctx, bands, 1, (cost + 0.2) * COPY_TILE * (double)loop.size[0], run_tiles,
                       &plan);
}

moth_tensor *moth_packed(const moth_tensor *x) {
  if (moth_contiguous(x)) return moth_tensor_retain((moth_tensor *)(uintptr_t)x);
  return moth_cast(x, x->l.dtype);
}

/* Copies x's elements into `take`, a new tensor or NULL, and returns it. */
static moth_tensor *filled(moth_tensor *take, const moth_tensor *x) {
  if (!take) return NULL;
  take->l.index_base = x->l.index_base;
  if (moth_copy_into(take, x) == MOTH_OK) return take;
  moth_tensor_release(take);
  return NULL;
}

moth_tensor *moth_packed_channels_last(const moth_tensor *x) {
  if (moth_layout_channels_last(&x->l)) return moth_tensor_retain((moth_tensor *)(uintptr_t)x);
  return filled(moth_tensor_new_channels_last(x->ctx, &x->l), x);
}

moth_tensor *moth_packed_like(const moth_tensor *x, const moth_layout *order) {
  moth_layout l = x->l;
  moth_layout_follow(&l, 1, &order);
  if (moth_same_strides(&x->l, &l)) return moth_tensor_retain((moth_tensor *)(uintptr_t)x);
  moth_tensor *y = moth_tensor_new(x->ctx, &x->l);
  if (y) memcpy(y->l.stride, l.stride, sizeof l.stride);
  return filled(y, x);
}

moth_tensor *moth_positions(const moth_tensor *x) {
  const moth_storage *root = moth_storage_root(x->storage);
  return root->shared || root->foreign || root->deleter ? moth_cast(x, x->l.dtype) : moth_packed(x);
}

moth_tensor *moth_cast(const moth_tensor *x, int dtype) {
  moth_layout l = x->l;
  l.dtype = (uint8_t)dtype;
  return filled(moth_tensor_new(x->ctx, &l), x);
}

moth_tensor *moth_to_host(const moth_tensor *x) {
  if (x->l.device == 0) return moth_packed(x);
  moth_layout l = x->l;
  l.device = 0;
  moth_tensor *y = moth_tensor_new(x->ctx, &l);
  if (!y) return NULL;
  if (!moth_device_copy(y, x, true)) return y;
  moth_tensor_release(y);
  return NULL;
}

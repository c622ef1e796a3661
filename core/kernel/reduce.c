/* reduce.c -- reductions over dimensions: the loop over elements, and the division of the work.
** reduce_loops.c has the inner loops.
*/
#include "reduce.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "level.h"

enum { BLOCK = MOTH_REDUCE_BLOCK, POLL = 1 << 18, PIECE = 1 << 18, CHUNK = 1 << 17, HALVES = 4096 };
/* BLOCK: accumulators at a time; POLL: elements between two polls; PIECE: elements read at once;
** CHUNK: elements of one chunk of a reduction to few results; HALVES: half-precision elements
** converted at a time. */

typedef struct axes {
  int n;
  int64_t size[MOTH_MAX_DIMS], step[MOTH_MAX_DIMS]; /* [0] is the innermost; steps in bytes */
} axes;

/* Adds an outer dimension, or merges it with the last one if the two are contiguous. */
static void add_axis(axes *a, int64_t size, int64_t step) {
  if (a->n && step == a->step[a->n - 1] * a->size[a->n - 1]) {
    a->size[a->n - 1] *= size;
    return;
  }
  a->size[a->n] = size;
  a->step[a->n++] = step;
}

/* The dims in mask (reduced), or the other dims. Reduced dims are sorted by stride, since their
** order is free. */
static void axes_of(axes *a, const moth_layout *l, uint32_t mask, bool reduced) {
  int order[MOTH_MAX_DIMS], n = 0;
  for (int d = l->ndim - 1; d >= 0; d--) {
    if ((mask >> d & 1u) != reduced) continue;
    int i = n++;
    for (; reduced && i > 0 && l->stride[order[i - 1]] > l->stride[d]; i--) order[i] = order[i - 1];
    order[i] = d;
  }
  a->n = 0;
  for (int i = 0; i < n; i++)
    if (l->shape[order[i]] != 1) /* a dim of size 1 has an arbitrary stride */
      add_axis(a, l->shape[order[i]], l->stride[order[i]] * moth_dtype_size[l->dtype]);
  if (a->n == 0) a->size[0] = 1, a->step[0] = 0, a->n = 1;
}

/* Steps to the next index of all axes except the innermost; false after the last index. */
static bool next(const axes *a, int64_t *index, const char **x) {
  for (int d = 1; d < a->n; d++) {
    *x += a->step[d];
    if (++index[d] < a->size[d]) return true;
    *x -= a->step[d] * a->size[d];
    index[d] = 0;
  }
  return false;
}

/* One reduction. A work item is a block of `wide` accumulators; each index of the outer kept
** dimensions has `across` blocks. If there are few blocks, each is cut into chunks along the
** outermost reduced dimension, and the accumulators of the chunks are joined in order afterwards.
** The cuts depend on the shape only. */
typedef struct job {
  moth_ctx *ctx;
  const moth_reducer *reducer;
  moth_reduce_take *take;
  int dtype;  /* dtype of x, */
  bool half;  /* ... which is a half type, to be converted */
  const axes *kept, *over;
  const char *x;
  char *y;
  int64_t size, count;            /* bytes of a result; elements per result */
  int64_t wide, across, blocks, results; /* across: blocks of a row; blocks: of all rows */
  int64_t chunk, chunks;
  int64_t words;  /* 8-byte words of an accumulator */
  uint64_t *part; /* the accumulators of all chunks */
  atomic_bool *stopped; /* set when a cancel stopped an item */
} job;

static void widen(const job *j, int64_t n, const char *x, int64_t step, float *scratch) {
  moth_convert(n, j->dtype, x, step, MOTH_F32, (char *)scratch, sizeof *scratch);
}

/* `take` for half types: converts tiles of rows, or of columns if columns are contiguous. */
static void take_half(const job *j, int64_t n, int64_t r, char *acc, const char *x, int64_t step,
                      int64_t next) {
  _Alignas(64) float scratch[HALVES];
  const int64_t one = sizeof *scratch;
  if (n > 1 && (step < 0 ? -step : step) < (next < 0 ? -next : next)) {
    const int64_t most = HALVES / n;
    for (int64_t i = 0; i < r; i += most) {
      const int64_t some = r - i < most ? r - i : most;
      for (int64_t k = 0; k < some; k++) widen(j, n, x + (i + k) * next, step, scratch + k * n);
      j->take(n, some, acc, (const char *)scratch, one, n * one);
    }
    return;
  }
  if (r > 0 && r <= HALVES / 2) {
    const int64_t most = HALVES / r;
    for (int64_t i = 0; i < n; i += most) {
      const int64_t some = n - i < most ? n - i : most;
      if (step == r * next) widen(j, some * r, x + i * step, next, scratch);
      else
        for (int64_t k = 0; k < some; k++) widen(j, r, x + (i + k) * step, next, scratch + k * r);
      j->take(some, r, acc + i * j->reducer->acc, (const char *)scratch, r * one, one);
    }
    return;
  }
  for (int64_t i = 0; i < n; i++, x += step, acc += j->reducer->acc)
    for (int64_t at = 0; at < r; at += HALVES) {
      const int64_t some = r - at < HALVES ? r - at : HALVES;
      widen(j, some, x + at * next, next, scratch);
      j->take(1, some, acc, (const char *)scratch, one, one);
    }
}

/* Reduces the elements of `over` to n accumulators. Returns false if a cancel stopped it. */
static bool reduce_block(const job *j, const axes *over, int64_t n, const char *x, uint64_t *acc) {
  const int64_t step = j->kept->step[0], piece = PIECE / n;
  int64_t index[MOTH_MAX_DIMS] = {0}, left = POLL;
  j->reducer->start(n, acc);
  do {
    int64_t at = 0, length = over->size[0];
    do {
      int64_t m = length - at < piece ? length - at : piece;
      const char *from = x + at * over->step[0];
      if (j->half) take_half(j, n, m, (char *)acc, from, step, over->step[0]);
      else j->take(n, m, acc, from, step, over->step[0]);
      at += m;
      if ((left -= n * m) > 0) continue;
      left = POLL;
      if (!moth_cancelled(j->ctx)) continue;
      atomic_store_explicit(j->stopped, true, memory_order_relaxed);
      return false;
    } while (at < length);
  } while (next(over, index, &x));
  return true;
}

static void reduce_item(const job *j, int64_t item) {
  uint64_t acc[2 * BLOCK];
  const axes *kept = j->kept;
  int64_t c = item / j->blocks, block = item % j->blocks, outer = block / j->across;
  int64_t first = block % j->across * j->wide, n = kept->size[0] - first;
  int64_t result = outer * kept->size[0] + first;
  const char *x = j->x + first * kept->step[0];
  for (int d = 1; d < kept->n; d++) {
    x += outer % kept->size[d] * kept->step[d];
    outer /= kept->size[d];
  }
  if (n > j->wide) n = j->wide;
  if (j->chunks == 1) {
    if (reduce_block(j, j->over, n, x, acc))
      j->reducer->finish(n, acc, j->y + result * j->size, j->count);
    return;
  }
  axes over = *j->over;
  int64_t *length = &over.size[over.n - 1], from = c * j->chunk;
  *length = *length - from < j->chunk ? *length - from : j->chunk;
  reduce_block(j, &over, n, x + from * over.step[over.n - 1],
             j->part + (c * j->results + result) * j->words);
}

static void reduce_items(int64_t first, int64_t last, int thread, const void *arg) {
  (void)thread;
  for (int64_t i = first; i < last; i++) reduce_item(arg, i);
}

/* Joins the chunks, block by block, since a block's accumulators may be smaller than 64 bits. */
static void join_chunks(const job *j) {
  for (int64_t block = 0; block < j->blocks; block++) {
    int64_t first = block % j->across * j->wide, n = j->kept->size[0] - first;
    int64_t result = block / j->across * j->kept->size[0] + first;
    uint64_t *acc = j->part + result * j->words;
    if (n > j->wide) n = j->wide;
    for (int64_t c = 1; c < j->chunks; c++)
      j->reducer->join(n, acc, acc + c * j->results * j->words);
    j->reducer->finish(n, acc, j->y + result * j->size, j->count);
  }
}

static void cut(job *j, int64_t numel, int64_t element) {
  const int64_t last = j->over->size[j->over->n - 1];
  j->wide = BLOCK;
  if (j->over->step[0] == element && j->count > CHUNK / BLOCK) /* whole rows are read in order */
    j->wide = j->count < CHUNK ? CHUNK / j->count : 1;
  j->across = (j->kept->size[0] + j->wide - 1) / j->wide;
  j->blocks = j->results / j->kept->size[0] * j->across;
  j->chunks = 1;
  int64_t wanted = (numel / j->blocks + CHUNK - 1) / CHUNK;
  if (wanted > 64) wanted = 64;
  if (wanted > last) wanted = last;
  if (j->blocks >= 16 || wanted < 2) return;
  j->chunk = (last + wanted - 1) / wanted;
  j->chunks = (last + j->chunk - 1) / j->chunk;
}

static int run_job(job *j, int64_t numel) {
  const int64_t items = j->blocks * j->chunks;
  const int64_t bytes = j->chunks > 1 ? j->chunks * j->results * j->words * 8 : 0;
  int status = MOTH_OK;
  atomic_bool stopped = false;
  j->stopped = &stopped;
  if (bytes && !(j->part = moth_alloc(j->ctx, bytes))) return j->ctx->error.code;
  if (numel < 4096 || items == 1) reduce_items(0, items, 0, j);
  else
    status = moth_parallel(j->ctx, items, 1, 0.1 * (double)numel / (double)items, reduce_items, j);
  if (!status && stopped) status = moth_stopped(j->ctx);
  if (!status && bytes) join_chunks(j);
  if (bytes) moth_dealloc(j->ctx, j->part, bytes);
  return status;
}

/* y := x reduced over the dims in mask. y is contiguous and has the reducer's result dtype; a
** half-precision x is converted a block at a time. */
static int run(const moth_reducer *reducer, moth_tensor *y, const moth_tensor *x, uint32_t mask) {
  axes kept, over;
  if (y->l.numel == 0) return MOTH_OK;
  axes_of(&kept, &x->l, mask, false);
  axes_of(&over, &x->l, mask, true);
  job j = {.ctx = y->ctx, .reducer = reducer, .take = reducer->take[moth_level()], .kept = &kept,
           .dtype = x->l.dtype, .half = moth_is_half(x->l.dtype),
           .over = &over, .x = moth_at(x), .y = moth_at(y), .size = moth_dtype_size[y->l.dtype],
           .count = 1, .results = y->l.numel, .words = reducer->acc > 8 ? 2 : 1};
  for (int d = 0; d < over.n; d++) j.count *= over.size[d];
  if (j.count == 0) over.n = 1, over.size[0] = 0;
  cut(&j, x->l.numel, moth_dtype_size[x->l.dtype]);
  return run_job(&j, x->l.numel);
}

/* The index of the first infinite or NaN result, from i on; the number of results if there is
** none. */
static int64_t not_finite(const moth_tensor *y, int64_t i) {
  const float *f = (const float *)(const void *)moth_at(y);
  const double *d = (const double *)(const void *)moth_at(y);
  while (i < y->l.numel && isfinite(y->l.dtype == MOTH_F64 ? d[i] : (double)f[i])) i++;
  return i;
}

typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

/* True if all results are finite. There is no branch per result. */
static bool all_finite(const moth_tensor *y) {
  uint32_t odd = 0;
  if (y->l.dtype == MOTH_F64) {
    const bits64 *d = (const bits64 *)(const void *)moth_at(y);
    for (int64_t i = 0; i < y->l.numel; i++)
      odd |= (uint32_t)(d[i] >> 32 & 0x7ff00000u) == 0x7ff00000u;
  } else {
    const bits32 *f = (const bits32 *)(const void *)moth_at(y);
    for (int64_t i = 0; i < y->l.numel; i++) odd |= (f[i] & 0x7f800000u) == 0x7f800000u;
  }
  return !odd;
}

/* Recomputes, in a wider range, sums and means that overflowed although the result is in range. */
static int run_wide(const moth_reducer *reducer, moth_tensor *y, const moth_tensor *x,
                    uint32_t mask) {
  const int64_t size = moth_dtype_size[y->l.dtype];
  if (!reducer->wide || all_finite(y)) return MOTH_OK;
  int64_t i = not_finite(y, 0);
  moth_tensor *again = moth_tensor_new(y->ctx, &y->l);
  int status = again ? run(reducer->wide, again, x, mask) : y->ctx->error.code;
  for (; !status && i < y->l.numel; i = not_finite(y, i + 1))
    memcpy(moth_at(y) + i * size, moth_at(again) + i * size, (size_t)size);
  moth_tensor_release(again);
  return status;
}

int moth_reduce_into(const moth_reducer *reducers, moth_tensor *y, const moth_tensor *x,
                     moth_ints dims, int from, int to) {
  moth_ctx *ctx = y->ctx;
  moth_tensor *cast = NULL, *work = y;
  uint32_t mask;
  int status = moth_dim_mask(ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  const bool half = from == MOTH_F32 && moth_compute_dtype(x->l.dtype) == MOTH_F32;
  if (x->l.dtype != from && !half && !(x = cast = moth_cast(x, from))) return ctx->error.code;
  if (y->l.dtype != to) {
    moth_layout l = y->l;
    l.dtype = (uint8_t)to;
    work = moth_tensor_new(ctx, &l);
  }
  status = work ? run(&reducers[from], work, x, mask) : ctx->error.code;
  if (!status) status = run_wide(&reducers[from], work, x, mask);
  if (!status && work != y) status = moth_copy_into(y, work);
  if (work != y) moth_tensor_release(work);
  moth_tensor_release(cast);
  return status;
}

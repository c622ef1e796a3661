/* gather.c -- the inner loops of indexing: get, put, add and masks. A loop that copies depends on
** the element size, a loop that computes depends on the dtype.
*/
#include "gather.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <stdatomic.h>

#include "base/threads.h"
#include "copy.h"

/* -- loops: over a whole dimension, over positions, and over one position per value -- */

typedef struct mover {
  void (*run)(int64_t n, char *base, int64_t base_step, char *values, int64_t value_step);
  void (*pick)(int64_t n, char *base, const int64_t *offset, char *values, int64_t value_step);
  moth_inner along;
} mover;

#define MOVER(name, type, statement)                                                          \
  static void run_##name(int64_t n, char *base, int64_t base_step, char *values,              \
                         int64_t value_step) {                                                \
    if (base_step == sizeof(type) && value_step == sizeof(type)) {                            \
      type *to = (type *)(void *)base, *from = (type *)(void *)values;                        \
      for (int64_t i = 0; i < n; i++) {                                                       \
        type *b = to + i, *v = from + i;                                                      \
        statement;                                                                            \
      }                                                                                       \
      return;                                                                                 \
    }                                                                                         \
    for (int64_t i = 0; i < n; i++, base += base_step, values += value_step) {                \
      type *b = (type *)(void *)base, *v = (type *)(void *)values;                            \
      statement;                                                                              \
    }                                                                                         \
  }                                                                                           \
  static void pick_##name(int64_t n, char *base, const int64_t *offset, char *values,         \
                          int64_t value_step) {                                               \
    for (int64_t i = 0; i < n; i++, values += value_step) {                                   \
      type *b = (type *)(void *)(base + offset[i]), *v = (type *)(void *)values;              \
      statement;                                                                              \
    }                                                                                         \
  }                                                                                           \
  static void along_##name(int64_t n, char *const *at, const int64_t *step, const void *arg) { \
    const int64_t dim_step = *(const int64_t *)arg, size = sizeof(type);                      \
    if (step[0] == 8 && step[1] == size && step[2] == 0 && dim_step == size) {                \
      const int64_t *position = (const int64_t *)(const void *)at[0];                         \
      type *v = (type *)(void *)at[1], *row = (type *)(void *)at[2];                          \
      for (int64_t i = 0; i < n; i++, v++) {                                                  \
        type *b = row + position[i];                                                          \
        statement;                                                                            \
      }                                                                                       \
      return;                                                                                 \
    }                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                         \
      int64_t position = *(const int64_t *)(const void *)(at[0] + i * step[0]);               \
      type *v = (type *)(void *)(at[1] + i * step[1]);                                        \
      type *b = (type *)(void *)(at[2] + i * step[2] + position * dim_step);                  \
      statement;                                                                              \
    }                                                                                         \
  }                                                                                           \
  static const mover move_##name = {run_##name, pick_##name, along_##name};

MOVER(get1, uint8_t, *v = *b)
MOVER(get2, uint16_t, *v = *b)
MOVER(get4, uint32_t, *v = *b)
MOVER(get8, uint64_t, *v = *b)
MOVER(put1, uint8_t, *b = *v)
MOVER(put2, uint16_t, *b = *v)
MOVER(put4, uint32_t, *b = *v)
MOVER(put8, uint64_t, *b = *v)
MOVER(add_bool, uint8_t, *b = (uint8_t)(*b || *v))
MOVER(add_u8, uint8_t, *b = (uint8_t)(*b + *v))
MOVER(add_i16, uint16_t, *b = (uint16_t)(*b + *v))
MOVER(add_i32, uint32_t, *b += *v)
MOVER(add_i64, uint64_t, *b += *v)
MOVER(add_f32, float, *b += *v)
MOVER(add_f64, double, *b += *v)
MOVER(mul_i64, uint64_t, *b *= *v)
MOVER(mul_f32, float, *b *= *v)
MOVER(mul_f64, double, *b *= *v)

/* NaN wins. There are no branches, because random data would mispredict half of them. */
#define EITHER(type, second)              \
  const type either[2] = {*b, *v};        \
  *b = either[(second) | (*v != *v)]
#define EXTREMES(name, type)                      \
  MOVER(max_##name, type, EITHER(type, *v > *b))  \
  MOVER(min_##name, type, EITHER(type, *v < *b))
EXTREMES(i64, int64_t)
EXTREMES(f32, float)
EXTREMES(f64, double)

/* Signed integers wrap like unsigned ones of their size. */
static const mover *mover_of(int mode, int dtype) {
  static const mover *const adds[MOTH_DTYPES] = {
    [MOTH_BOOL] = &move_add_bool, [MOTH_U8] = &move_add_u8,   [MOTH_I8] = &move_add_u8,
    [MOTH_I16] = &move_add_i16,   [MOTH_I32] = &move_add_i32, [MOTH_I64] = &move_add_i64,
    [MOTH_F32] = &move_add_f32,   [MOTH_F64] = &move_add_f64,
  };
  static const mover *const rest[][3] = {
    {&move_mul_i64, &move_mul_f32, &move_mul_f64},
    {&move_max_i64, &move_max_f32, &move_max_f64},
    {&move_min_i64, &move_min_f32, &move_min_f64},
  };
  if (mode == MOTH_GATHER_ADD) return adds[dtype];
  if (mode > MOTH_GATHER_ADD)
    return rest[mode - MOTH_GATHER_MUL][dtype == MOTH_I64 ? 0 : dtype == MOTH_F32 ? 1 : 2];
  bool get = mode == MOTH_GATHER_GET;
  switch (moth_dtype_size[dtype]) {
  case 1: return get ? &move_get1 : &move_put1;
  case 2: return get ? &move_get2 : &move_put2;
  case 4: return get ? &move_get4 : &move_put4;
  default: return get ? &move_get8 : &move_put8;
  }
}

/* -- walking a plan -- */

/* Merges adjacent dimensions that are copied completely, are contiguous in both tensors, and are on
** the same side of the indexed dimensions. */
static void merge(moth_gather_plan *p) {
  _Static_assert(sizeof p->size == sizeof p->base_step && sizeof p->size == sizeof p->value_step,
                 "one count of bytes moves all three arrays");
  for (int32_t d = p->nwhole - 2; d >= 0; d--) {
    if (d + 1 == p->before) continue; /* the indexed dimensions are between d and d + 1 */
    if (p->base_step[d] != p->base_step[d + 1] * p->size[d + 1] ||
        p->value_step[d] != p->value_step[d + 1] * p->size[d + 1])
      continue;
    p->size[d] *= p->size[d + 1];
    p->base_step[d] = p->base_step[d + 1];
    p->value_step[d] = p->value_step[d + 1];
    size_t bytes = (size_t)(p->nwhole - d - 2) * sizeof *p->size;
    memmove(p->size + d + 1, p->size + d + 2, bytes);
    memmove(p->base_step + d + 1, p->base_step + d + 2, bytes);
    memmove(p->value_step + d + 1, p->value_step + d + 2, bytes);
    p->nwhole--;
    if (d < p->before) p->before--;
  }
}

typedef struct inner { /* the loop for each index of the outer dimensions */
  const mover *move;
  /* the innermost whole dimension; n = 0: the loop is over positions */
  int64_t n, base_step, value_step;
  /* bytes of that dimension if it is contiguous on both sides and only copied, else 0 */
  size_t block;
  bool get;
} inner;

static void inner_run(const moth_gather_plan *p, const inner *in, char *base, char *values) {
  if (!in->n) {
    in->move->pick(p->count, base, p->offset, values, p->step);
    return;
  }
  for (int64_t i = 0; i < p->count; i++, values += p->step) {
    char *from = base + p->offset[i];
    if (in->block) memcpy(in->get ? values : from, in->get ? from : values, in->block);
    else in->move->run(in->n, from, in->base_step, values, in->value_step);
  }
}

/* Reads positions first to last - 1 on one of several threads. */
typedef struct reading {
  const moth_gather_plan *pick;
  const inner *in;
  char *base, *values;
} reading;

static void read_positions(int64_t first, int64_t last, int thread, const void *arg) {
  const reading *r = arg;
  moth_gather_plan p = *r->pick;
  (void)thread;
  p.count = last - first;
  p.offset += first;
  inner_run(&p, r->in, r->base, r->values + first * p.step);
}

static inner inner_of(moth_gather_plan *p, int mode, int dtype) {
  inner in = {.move = mover_of(mode, dtype), .get = mode == MOTH_GATHER_GET};
  int64_t size = moth_dtype_size[dtype];
  if (p->nwhole == p->before) return in;
  int32_t last = --p->nwhole;
  in.n = p->size[last];
  in.base_step = p->base_step[last];
  in.value_step = p->value_step[last];
  bool dense = mode < MOTH_GATHER_ADD && in.base_step == size && in.value_step == size;
  if (dense && in.n > 1) in.block = (size_t)(in.n * size);
  return in;
}

int moth_gather_run(moth_ctx *ctx, const moth_gather_plan *pick, int mode, int dtype, char *base,
                  char *values) {
  moth_gather_plan p = *pick;
  int64_t at[MOTH_MAX_DIMS] = {0};
  for (int32_t d = 0; d < p.nwhole; d++)
    if (p.size[d] == 0) return MOTH_OK;
  if (p.count == 0) return MOTH_OK;
  merge(&p);
  inner in = inner_of(&p, mode, dtype);
  if (in.get && p.nwhole == 0) {
    const double each = in.block ? 3 + 0.05 * (double)in.block : 1 + (double)in.n;
    return moth_parallel(ctx, p.count, 16, each, read_positions, &(reading){&p, &in, base, values});
  }
  for (;;) {
    inner_run(&p, &in, base, values);
    int32_t d = p.nwhole - 1;
    for (; d >= 0; d--) {
      base += p.base_step[d];
      values += p.value_step[d];
      if (++at[d] < p.size[d]) break;
      base -= p.base_step[d] * p.size[d];
      values -= p.value_step[d] * p.size[d];
      at[d] = 0;
    }
    if (d < 0) return MOTH_OK;
    if (moth_cancelled(ctx)) return moth_stopped(ctx);
  }
}

typedef struct along { /* `step` comes first, because the loops read it through the argument */
  int64_t step, first, size;
  moth_inner move;
  atomic_bool *wrong;
} along;

static bool within(int64_t n, const char *at, int64_t step, int64_t first, int64_t size) {
  if (step == 8) return moth_positions_within(n, (const int64_t *)(const void *)at, first, size);
  for (int64_t i = 0; i < n; i++, at += step) {
    const int64_t position = *(const int64_t *)(const void *)at;
    if (position < first || position - first >= size) return false;
  }
  return true;
}

/* CHECKED_POSITIONS: positions of a block, which stays in L1 between check and copy. */
static void checked_along(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  enum { CHECKED_POSITIONS = 1024 };
  const along *a = arg;
  char *here[3] = {at[0], at[1], at[2]};
  for (; n > 0; n -= CHECKED_POSITIONS) {
    const int64_t m = n < CHECKED_POSITIONS ? n : CHECKED_POSITIONS;
    if (!within(m, here[0], step[0], a->first, a->size)) {
      atomic_store(a->wrong, true);
      return;
    }
    a->move(m, here, step, a);
    for (int k = 0; k < 3; k++) here[k] += m * step[k];
  }
}

/* Threads divide the longest dimension along which the base's elements are distinct. */
int moth_gather_along(moth_ctx *ctx, int mode, const moth_tensor *index, const moth_tensor *values,
                    const moth_tensor *base, int64_t step, const moth_reach *reach) {
  moth_loop loop;
  atomic_bool wrong = false;
  along a = {.step = step, .first = index->l.index_base,
             .move = mover_of(mode, base->l.dtype)->along,
             .wrong = &wrong};
  if (reach) a.size = reach->size;
  const moth_inner run = reach ? checked_along : a.move;
  int status, across = -1;
  moth_loop_over(&loop, ctx, &index->l, 3, (const moth_tensor *const[]){index, values, base});
  for (int d = 0; d < loop.ndim; d++)
    if (loop.step[d][2] && (across < 0 || loop.size[d] > loop.size[across])) across = d;
  if (mode == MOTH_GATHER_GET) status = moth_loop_share(&loop, run, &a, 1);
  else if (across < 0) status = moth_loop_run(&loop, run, &a);
  else status = moth_loop_share_across(&loop, across, run, &a, 1.5);
  return !status && wrong ? moth_gather_check_positions(index, reach) : status;
}

/* -- masks: both sides are packed, with one value for each true element of the mask. There are no
** branches on the mask, because half of them would be mispredicted. -- */

typedef struct masked { /* the work that remains */
  int64_t n, count;
  const uint8_t *mask;
  char *base, *values;
} masked;

#define MASKED(name, type, sum)                                                   \
  static void masked_##name(int mode, int64_t n, bool one, masked *m) {           \
    type *x = (type *)(void *)m->base, *v = (type *)(void *)m->values;            \
    const uint8_t *mask = m->mask;                                                \
    int64_t i = 0, at = 0;                                                        \
    if (mode == MOTH_GATHER_PUT && one) {                                         \
      const type w = *v;                                                          \
      for (; i < n; i++) x[i] = mask[i] ? w : x[i];                               \
    } else if (mode == MOTH_GATHER_GET) {                                         \
      for (; i < n && at < m->count; i++) v[at] = x[i], at += mask[i] != 0;       \
    } else {                                                                      \
      for (; i < n && at < m->count; i++) {                                       \
        const type w = v[one ? 0 : at];                                           \
        const type either[2] = {x[i], mode == MOTH_GATHER_PUT ? w : (type)(sum)}; \
        x[i] = either[mask[i] != 0];                                              \
        at += mask[i] != 0;                                                       \
      }                                                                           \
    }                                                                             \
    m->base = (char *)(x + n);                                                    \
    m->count -= at;                                                               \
    if (!one) m->values = (char *)(v + at);                                       \
  }
MASKED(bool, uint8_t, x[i] || w)
MASKED(u8, uint8_t, x[i] + w)
MASKED(i16, uint16_t, x[i] + w)
MASKED(i32, uint32_t, x[i] + w)
MASKED(i64, uint64_t, x[i] + w)
MASKED(f32, float, x[i] + w)
MASKED(f64, double, x[i] + w)

int moth_gather_masked(moth_ctx *ctx, int mode, int dtype, const moth_tensor *mask, int64_t count,
                     char *base, char *values, bool one) {
  typedef void masked_loop(int mode, int64_t n, bool one, masked *m);
  static masked_loop *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = masked_bool, [MOTH_U8] = masked_u8,   [MOTH_I8] = masked_u8,
    [MOTH_I16] = masked_i16,   [MOTH_I32] = masked_i32, [MOTH_I64] = masked_i64,
    [MOTH_F16] = masked_i16,   [MOTH_BF16] = masked_i16, /* half types are only copied */
    [MOTH_F32] = masked_f32,   [MOTH_F64] = masked_f64,
  };
  masked m = {.n = mask->l.numel, .count = count, .base = base, .values = values,
              .mask = (const uint8_t *)moth_at(mask)};
  while (m.n > 0 && m.count > 0) {
    const int64_t n = m.n < 1 << 16 ? m.n : 1 << 16;
    loops[dtype](mode, n, one, &m);
    m.mask += n;
    m.n -= n;
    if (m.n > 0 && moth_cancelled(ctx)) return moth_stopped(ctx);
  }
  return MOTH_OK;
}

/* -- values and positions -- */

int moth_gather_check(const char *arg, const moth_tensor *values, int dtype) {
  moth_ctx *ctx = values->ctx;
  int from = values->l.dtype;
  bool number = values->flags & MOTH_T_NUMBER;
  if (number && from != MOTH_BOOL && dtype == MOTH_BOOL)
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "true or false is needed for bool, got a number");
  if (number && !moth_value_fits(from, moth_at(values), dtype)) {
    moth_slot v;
    memcpy(&v, moth_at(values), sizeof v);
    if (from == MOTH_F64)
      return moth_fail(ctx, MOTH_E_DTYPE, arg, "%.17g does not fit %s", v.number,
                       moth_dtype_name(dtype));
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "%lld does not fit %s", (long long)v.integer,
                     moth_dtype_name(dtype));
  }
  if (!number && ((moth_is_float(from) && !moth_is_float(dtype)) ||
                  (moth_is_int(from) && dtype == MOTH_BOOL)))
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "%s does not go into %s; convert it with :to()",
                     moth_str(values), moth_dtype_name(dtype));
  return MOTH_OK;
}

moth_tensor *moth_gather_values(const char *arg, const moth_tensor *values, int dtype) {
  return moth_gather_check(arg, values, dtype) ? NULL : moth_cast(values, dtype);
}

typedef struct bounds {
  int64_t first, size, wrong;
  bool found;
} bounds;

static void check_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  bounds *b = (bounds *)(uintptr_t)arg;
  if (b->found || within(n, at[0], step[0], b->first, b->size)) return;
  for (int64_t i = 0; i < n && !b->found; i++) {
    const int64_t position = *(const int64_t *)(const void *)(at[0] + i * step[0]);
    if (position >= b->first && position - b->first < b->size) continue;
    b->wrong = position;
    b->found = true;
  }
}

int moth_gather_check_positions(const moth_tensor *index, const moth_reach *reach) {
  moth_loop loop;
  moth_ctx *ctx = index->ctx;
  bounds b = {.first = index->l.index_base, .size = reach->size};
  moth_loop_over(&loop, ctx, &index->l, 1, (const moth_tensor *const[]){index});
  int status = moth_loop_run(&loop, check_run, &b);
  if (status || !b.found) return status;
  if (b.wrong == 0 && b.first)
    return moth_fail(ctx, MOTH_E_INDEX, "index", "positions count from 1, got 0");
  if (b.wrong < 0)
    return moth_fail(ctx, MOTH_E_INDEX, "index",
                     "positions count from " MOTH_POS " here, got " MOTH_POS, 0LL,
                     (long long)b.wrong);
  return moth_fail(ctx, MOTH_E_INDEX, "index",
                   "position " MOTH_POS " is out of range for dim " MOTH_POS
                   " of %s, which has size %lld",
                   (long long)(b.wrong - b.first), (long long)reach->dim, moth_str(reach->of),
                   (long long)reach->size);
}

moth_tensor *moth_gather_positions(const moth_tensor *index, const moth_reach *reach) {
  moth_tensor *list = moth_positions(index);
  if (!list || moth_gather_check_positions(list, reach) == MOTH_OK) return list;
  moth_tensor_release(list);
  return NULL;
}

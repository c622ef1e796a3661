/* fold.c -- reductions: how dimensions are walked, and the loops of sum, count, all, any, extremes.
**
** f32 sums in f64. f64 sums in eight lanes and by halves (pairwise), so that the error grows with
** the logarithm of the count.
*/
#include "fold.h"

#include <math.h>

#include "elementwise.h"

/* -- the walk -- */

enum { BLOCK = 128, POLL = 1 << 20, PIECE = 1 << 24 };
/* accumulators at a time; elements between two polls; and the most that are read at once */

typedef struct axes {
  int n;
  int64_t size[MOTH_MAX_DIMS], step[MOTH_MAX_DIMS]; /* [0] is the innermost; bytes */
} axes;

/* Adds a dimension outside those that are there, merged with the last one if they step as one. */
static void add_axis(axes *a, int64_t size, int64_t step) {
  if (size == 1) return;
  if (a->n && step == a->step[a->n - 1] * a->size[a->n - 1]) {
    a->size[a->n - 1] *= size;
    return;
  }
  a->size[a->n] = size;
  a->step[a->n++] = step;
}

/* The dims in mask, or those not in it. Reduced ones may run in any order: by stride. */
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
    add_axis(a, l->shape[order[i]], l->stride[order[i]] * moth_dtype_size[l->dtype]);
  if (a->n == 0) a->size[0] = 1, a->step[0] = 0, a->n = 1;
}

/* Steps to the next index of the axes outside the innermost; false after the last one. */
static bool next(const axes *a, int64_t *index, const char **x) {
  for (int d = 1; d < a->n; d++) {
    *x += a->step[d];
    if (++index[d] < a->size[d]) return true;
    *x -= a->step[d] * a->size[d];
    index[d] = 0;
  }
  return false;
}

/* How many elements may still be read before the next poll. */
typedef struct patience {
  moth_ctx *ctx;
  int64_t left;
} patience;

static bool tired(patience *p, int64_t read) {
  if ((p->left -= read) > 0) return false;
  p->left = POLL;
  return moth_cancelled(p->ctx);
}

/* A long row is read in pieces, so that it can be stopped; what it has by then is not finished. */
static int fold_block(const moth_fold *fold, const axes *over, int64_t n, int64_t step,
                      const char *x, char *y, int64_t count, patience *p) {
  uint64_t acc[BLOCK];
  int64_t index[MOTH_MAX_DIMS] = {0}, piece = PIECE / n;
  fold->start(n, acc);
  do {
    int64_t at = 0, length = over->size[0];
    do {
      int64_t m = length - at < piece ? length - at : piece;
      fold->take(n, m, acc, x + at * over->step[0], step, over->step[0]);
      at += m;
      if (tired(p, n * m)) return moth_poll(p->ctx);
    } while (at < length);
  } while (next(over, index, &x));
  fold->finish(n, acc, y, count);
  return MOTH_OK;
}

int moth_fold_run(const moth_fold *fold, moth_tensor *y, const moth_tensor *x, uint32_t mask) {
  axes kept, over;
  int64_t index[MOTH_MAX_DIMS] = {0}, count = 1, size = moth_dtype_size[y->l.dtype];
  if (y->l.numel == 0) return MOTH_OK;
  axes_of(&kept, &x->l, mask, false);
  axes_of(&over, &x->l, mask, true);
  for (int d = 0; d < over.n; d++) count *= over.size[d];
  if (count == 0) over.n = 1, over.size[0] = 0;
  const char *from = moth_at(x);
  char *to = moth_at(y);
  patience p = {y->ctx, POLL};
  int status = MOTH_OK;
  do {
    for (int64_t j = 0; j < kept.size[0] && !status; j += BLOCK) {
      int64_t n = kept.size[0] - j < BLOCK ? kept.size[0] - j : BLOCK;
      status = fold_block(fold, &over, n, kept.step[0], from + j * kept.step[0], to, count, &p);
      to += n * size;
    }
  } while (!status && next(&kept, index, &from));
  return status;
}

/* -- loops --
** JOIN(p, q) combines two accumulators, FROM is an element x as one. Along a row: eight lanes,
** long rows by halves. Across rows: as many at once as there are accumulators. */

#define AT(type, p) (*(const type *)(const void *)(p))

#define FOLD(name, type, acc_type, ZERO, FROM, JOIN)                                               \
  static void name##_start(int64_t n, void *room) {                                                \
    acc_type *acc = room;                                                                          \
    for (int64_t j = 0; j < n; j++) acc[j] = ZERO;                                                 \
  }                                                                                                \
  static acc_type name##_row(int64_t r, const char *at, int64_t next) {                            \
    if (r > 4096) {                                                                                \
      int64_t half = r / 2 / 8 * 8;                                                                \
      acc_type p = name##_row(half, at, next), q = name##_row(r - half, at + half * next, next);   \
      return JOIN(p, q);                                                                           \
    }                                                                                              \
    acc_type lane[8] = {ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO};                           \
    int64_t i = 0;                                                                                 \
    if (next == sizeof(type)) {                                                                    \
      const type *p = (const type *)(const void *)at;                                              \
      for (; i + 8 <= r; i += 8)                                                                   \
        for (int k = 0; k < 8; k++) {                                                              \
          const type x = p[i + k];                                                                 \
          const acc_type v = FROM;                                                                 \
          lane[k] = JOIN(lane[k], v);                                                              \
        }                                                                                          \
    }                                                                                              \
    for (; i < r; i++) {                                                                           \
      const type x = AT(type, at + i * next);                                                      \
      const acc_type v = FROM;                                                                     \
      lane[i % 8] = JOIN(lane[i % 8], v);                                                          \
    }                                                                                              \
    for (int k = 4; k; k /= 2)                                                                     \
      for (int j = 0; j < k; j++) lane[j] = JOIN(lane[j], lane[j + k]);                            \
    return lane[0];                                                                                \
  }                                                                                                \
  static void name##_across(int64_t n, int64_t r, acc_type *acc, const char *at, int64_t step,     \
                            int64_t next) {                                                        \
    for (int64_t i = 0; i < r; i++, at += next) {                                                  \
      if (step == sizeof(type)) {                                                                  \
        const type *p = (const type *)(const void *)at;                                            \
        MOTH_IVDEP for (int64_t j = 0; j < n; j++) {                                               \
          const type x = p[j];                                                                     \
          const acc_type v = FROM, was = acc[j];                                                   \
          acc[j] = JOIN(was, v);                                                                   \
        }                                                                                          \
      } else {                                                                                     \
        for (int64_t j = 0; j < n; j++) {                                                          \
          const type x = AT(type, at + j * step);                                                  \
          const acc_type v = FROM;                                                                 \
          acc[j] = JOIN(acc[j], v);                                                                \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  static void name##_take(int64_t n, int64_t r, void *room, const char *x, int64_t step,           \
                          int64_t next) {                                                          \
    acc_type *acc = room, part[BLOCK];                                                             \
    if (n == 1 || next == sizeof(type)) {                                                          \
      for (int64_t j = 0; j < n; j++) {                                                            \
        const acc_type v = name##_row(r, x + j * step, next);                                      \
        acc[j] = JOIN(acc[j], v);                                                                  \
      }                                                                                            \
      return;                                                                                      \
    }                                                                                              \
    for (int64_t i = 0; i < r; i += 256) {                                                         \
      name##_start(n, part);                                                                       \
      name##_across(n, r - i < 256 ? r - i : 256, part, x + i * next, step, next);                 \
      for (int64_t j = 0; j < n; j++) acc[j] = JOIN(acc[j], part[j]);                              \
    }                                                                                              \
  }

#define FINISH(name, acc_type, to, expression)                                        \
  static void name(int64_t n, const void *room, char *y, int64_t count) {             \
    const acc_type *acc = room;                                                       \
    (void)count;                                                                      \
    for (int64_t j = 0; j < n; j++) {                                                 \
      const acc_type v = acc[j];                                                      \
      ((to *)(void *)y)[j] = (to)(expression);                                        \
    }                                                                                 \
  }

#define ENTRY(fold, finish) {fold##_take, fold##_start, finish}
#define TABLE(fold)                                                                   \
  [MOTH_BOOL] = ENTRY(fold##_u8, fold##_u8_end), [MOTH_U8] = ENTRY(fold##_u8, fold##_u8_end), \
  [MOTH_I8] = ENTRY(fold##_i8, fold##_i8_end), [MOTH_I16] = ENTRY(fold##_i16, fold##_i16_end), \
  [MOTH_I32] = ENTRY(fold##_i32, fold##_i32_end), [MOTH_I64] = ENTRY(fold##_i64, fold##_i64_end), \
  [MOTH_F32] = ENTRY(fold##_f32, fold##_f32_end), [MOTH_F64] = ENTRY(fold##_f64, fold##_f64_end)

/* -- sum, mean -- */

#define PLUS(p, q) ((p) + (q))
#define SUM_INT(name, type, wide)                                     \
  FOLD(sum_##name, type, uint64_t, 0, (uint64_t)x, PLUS)              \
  FINISH(sum_##name##_end, uint64_t, int64_t, v)
#define SUM_FLOAT(name, type, wide)                                   \
  FOLD(sum_##name, type, double, 0, (double)x, PLUS)                  \
  FINISH(sum_##name##_end, double, type, v)                           \
  FINISH(mean_##name##_end, double, type, v / (double)count)
MOTH_EACH_INT(SUM_INT)
MOTH_EACH_FLOAT(SUM_FLOAT)
const moth_fold moth_sum_folds[MOTH_DTYPES] = {TABLE(sum)};
const moth_fold moth_mean_folds[MOTH_DTYPES] = {
  [MOTH_F32] = ENTRY(sum_f32, mean_f32_end), [MOTH_F64] = ENTRY(sum_f64, mean_f64_end)};

/* -- count, all, any -- */

#define OR(p, q) ((p) | (q))
#define TRUTH(name, type, wide)                                                \
  FOLD(count_##name, type, uint64_t, 0, (uint64_t)(x != 0), PLUS)              \
  FOLD(any_##name, type, uint64_t, 0, (uint64_t)(x != 0), OR)                  \
  FOLD(all_##name, type, uint64_t, 0, (uint64_t)(x == 0), OR)                  \
  FINISH(count_##name##_end, uint64_t, int64_t, v)                             \
  FINISH(any_##name##_end, uint64_t, uint8_t, v)                               \
  FINISH(all_##name##_end, uint64_t, uint8_t, v == 0)
MOTH_EACH_INT(TRUTH)
MOTH_EACH_FLOAT(TRUTH)
const moth_fold moth_count_folds[MOTH_DTYPES] = {TABLE(count)};
const moth_fold moth_any_folds[MOTH_DTYPES] = {TABLE(any)};
const moth_fold moth_all_folds[MOTH_DTYPES] = {TABLE(all)};

/* -- products -- */

#define TIMES(p, q) ((p) * (q))
#define PROD_INT(name, type, wide)                                    \
  FOLD(prod_##name, type, uint64_t, 1, (uint64_t)x, TIMES)            \
  FINISH(prod_##name##_end, uint64_t, int64_t, v)
#define PROD_FLOAT(name, type, wide)                                  \
  FOLD(prod_##name, type, double, 1, (double)x, TIMES)                \
  FINISH(prod_##name##_end, double, type, v)
MOTH_EACH_INT(PROD_INT)
MOTH_EACH_FLOAT(PROD_FLOAT)
const moth_fold moth_prod_folds[MOTH_DTYPES] = {TABLE(prod)};

/* -- extremes: NaN wins -- */

#define MORE(p, q) ((((q) > (p)) | ((q) != (q))) ? (q) : (p))
#define LESS(p, q) ((((q) < (p)) | ((q) != (q))) ? (q) : (p))
#define EXTREMES(name, type, least, most)                   \
  FOLD(amax_##name, type, type, least, x, MORE)             \
  FOLD(amin_##name, type, type, most, x, LESS)              \
  FINISH(amax_##name##_end, type, type, v)                  \
  FINISH(amin_##name##_end, type, type, v)
EXTREMES(u8, uint8_t, 0, UINT8_MAX)
EXTREMES(i8, int8_t, INT8_MIN, INT8_MAX)
EXTREMES(i16, int16_t, INT16_MIN, INT16_MAX)
EXTREMES(i32, int32_t, INT32_MIN, INT32_MAX)
EXTREMES(i64, int64_t, INT64_MIN, INT64_MAX)
EXTREMES(f32, float, -INFINITY, INFINITY)
EXTREMES(f64, double, -INFINITY, INFINITY)
const moth_fold moth_amax_folds[MOTH_DTYPES] = {TABLE(amax)};
const moth_fold moth_amin_folds[MOTH_DTYPES] = {TABLE(amin)};

int moth_fold_into(const moth_fold *folds, moth_tensor *y, const moth_tensor *x, moth_ints dims,
                   int from, int to) {
  moth_ctx *ctx = y->ctx;
  moth_tensor *cast = NULL, *work = y;
  moth_layout l = y->l;
  uint32_t mask;
  int status = moth_dim_mask(ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  if (x->l.dtype != from && !(x = cast = moth_cast(x, from))) return ctx->error.code;
  l.dtype = (uint8_t)to;
  if (y->l.dtype != to) work = moth_tensor_new(ctx, &l);
  status = work ? moth_fold_run(&folds[from], work, x, mask) : ctx->error.code;
  if (!status && work != y) status = moth_copy_into(y, work);
  if (work != y) moth_tensor_release(work);
  moth_tensor_release(cast);
  return status;
}

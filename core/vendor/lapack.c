/* lapack.c -- finds LAPACK and calls it for each matrix of a stack (lapack.h), on several threads
** if there are many.
*/
#include "lapack.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "blas.h"
#include "call/frame.h"
#include "kernel/transpose.h"
#include "base/system.h"
#include "autograd/tape.h"
#include "base/threads.h"

#define SIDE 16                   /* side of the blocks in a transposition */
#define MAX_SMALLER_SIZE 16383    /* twice its square must fit an int */
#define MAX_LARGER_SIZE (1 << 28) /* limit of the larger size */

/* -- the library: BLAS if it has LAPACK in it, as OpenBLAS does; else liblapack -- */

static moth_lapack lapack;
static const char *missing; /* the first function that was not found; NULL: none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool look_up(void *library, const char *name, int wide, void *function) {
  char symbol[16];
  snprintf(symbol, sizeof symbol, "%c%s_", wide ? 'd' : 's', name);
  void *at = moth_library_symbol(library, symbol);
  memcpy(function, &at, sizeof at);
  return at != NULL;
}

static bool take(void *library) {
  missing = NULL;
  for (int wide = 0; wide < 2; wide++) {
#define TAKE(name, arguments) \
  if (!missing && !look_up(library, #name, wide, &lapack.name[wide])) missing = #name;
    MOTH_LAPACK_LIST(TAKE)
#undef TAKE
  }
  return !missing;
}

static void find(void) {
  static const char *const candidates[] = {"liblapack.so.3", "liblapack.so"};
  void *library = moth_blas_library();
  if (library && take(library)) return;
  const char *first = library ? missing : "";
  const char *wanted = getenv("MOTH_BLAS"); /* a BLAS that the user chose */
  for (size_t i = 0; !(wanted && *wanted) && i < sizeof candidates / sizeof *candidates; i++) {
    library = moth_library_open(candidates[i]);
    if (library && take(library)) return;
    if (library) moth_library_close(library);
  }
  missing = first;
}

static const moth_lapack *open_library(moth_ctx *ctx) {
  pthread_once(&once, find);
  if (!missing) return &lapack;
  if (*missing)
    moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "the BLAS that is used, %.120s, has no LAPACK in it "
              "('%s' is missing), and liblapack.so.3 was not found: install libopenblas0",
              moth_blas_name(), missing);
  else
    moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "this needs LAPACK, and neither libopenblas.so.0 nor "
              "liblapack.so.3 is used (BLAS: %.120s): install libopenblas0%s", moth_blas_name(),
              getenv("MOTH_BLAS") ? ", unset MOTH_BLAS" : "");
  return NULL;
}

/* -- stacks -- */

int moth_stack_open(moth_stack *s, const void *args, const moth_tensor *first,
                    const moth_tensor *second, moth_tensor **out, int32_t vector) {
  const moth_layout *l = &first->l;
  *s = (moth_stack){.ctx = first->ctx, .args = args, .wide = l->dtype == MOTH_F64,
                    .size = moth_dtype_size[l->dtype], .y = out, .nrhs = 1,
                    .m = (int)l->shape[l->ndim - 2], .n = (int)l->shape[l->ndim - 1]};
  s->k = s->m < s->n ? s->m : s->n;
  s->inner[0] = 2;
  s->inner[1] = vector ? 1 : 2;
  s->over = *l;
  s->over.ndim = s->batch = l->ndim - 2;
  if (second) { /* the shape rule has checked that they fit */
    moth_layout other = second->l;
    other.ndim -= s->inner[1];
    moth_layout_broadcast(&s->over, &other);
    s->batch = s->over.ndim;
    if (!vector) s->nrhs = (int)second->l.shape[second->l.ndim - 1];
  }
  s->count = 1;
  for (int32_t d = 0; d < s->batch; d++) s->count *= s->over.shape[d];
  s->lapack = open_library(s->ctx);
  s->x[0] = s->lapack ? moth_packed(first) : NULL;
  s->x[1] = s->x[0] && second ? moth_packed(second) : NULL;
  return s->x[0] && (s->x[1] || !second) ? MOTH_OK : s->ctx->error.code;
}

int64_t moth_stack_reserve(moth_stack *s, int64_t n, int64_t size) {
  int64_t at = s->scratch_size;
  s->scratch_size += (n * size + 63) & ~(int64_t)63;
  return at;
}

int moth_stack_asked(const moth_stack *s, const char *answer) {
  const double n = moth_stack_get(s, answer, 0);
  return (int)fmin(n + n * 0x1p-22 + 1, INT_MAX);
}

void moth_stack_close(moth_stack *s) {
  moth_tensor_release((moth_tensor *)(uintptr_t)s->x[0]);
  moth_tensor_release((moth_tensor *)(uintptr_t)s->x[1]);
}

typedef struct stack_job {
  const moth_stack *s;
  char *scratch;
} stack_job;

static void work(int64_t first, int64_t last, int lane, const void *arg) {
  const stack_job *job = arg;
  const moth_stack *s = job->s;
  char *scratch = job->scratch + lane * s->scratch_size;
  if (s->side)
    for (int64_t i = first; i < last; i++) s->side(s, i * (MOTH_SIDE_BYTES / s->size), scratch);
  else
    for (int64_t i = first; i < last; i++) s->info[i] = s->each(s, i, scratch);
}

int moth_stack_run(moth_stack *s, moth_stack_work *each, double flops, int64_t *failed) {
  moth_ctx *ctx = s->ctx;
  const int64_t infos = s->count * (int64_t)sizeof *s->info;
  const int64_t many = MOTH_SIDE_BYTES / s->size, lanes = s->count > 1 ? moth_lanes(ctx) : 1;
  *failed = -1;
  if (s->count == 0) return MOTH_OK;
  const int64_t bytes = s->scratch_size * lanes;
  stack_job job = {.s = s, .scratch = bytes ? moth_alloc(ctx, bytes) : NULL};
  s->info = s->scratch_size && !job.scratch ? NULL : moth_alloc(ctx, infos);
  s->each = each;
  int status = s->info ? MOTH_OK : ctx->error.code;
  if (!status && s->count == 1) work(0, 1, 0, &job);
  else if (!status && s->side)
    status = moth_parallel(ctx, (s->count + many - 1) / many, 1, 300 + flops, work, &job);
  else if (!status) status = moth_parallel(ctx, s->count, 1, 500 + flops / 4, work, &job);
  for (int64_t i = 0; i < s->count && !status && *failed < 0; i++)
    if (s->info[i]) *failed = i;
  for (int64_t i = 0; s->codes && i < s->count && !status; i++)
    s->codes[i] = s->info[i] == MOTH_NOT_FINITE ? 1 : s->info[i];
  if (s->codes) *failed = -1;
  s->failure = *failed < 0 ? 0 : s->info[*failed];
  if (s->info) moth_dealloc(ctx, s->info, infos);
  if (job.scratch) moth_dealloc(ctx, job.scratch, s->scratch_size * lanes);
  s->info = NULL;
  return status;
}

/* -- addresses -- */

/* The index of x's matrix that belongs to matrix i of the stack, by broadcasting. */
static int64_t beside(const moth_stack *s, const moth_tensor *x, int32_t leading, int64_t i) {
  int64_t at = 0, step = 1;
  if (leading == s->batch && memcmp(x->l.shape, s->over.shape,
                                    (size_t)leading * sizeof(int64_t)) == 0) return i;
  for (int32_t d = s->batch - 1; d >= s->batch - leading; d--) {
    const int64_t n = s->over.shape[d], own = x->l.shape[d - (s->batch - leading)];
    if (own > 1) at += i % n * step;
    step *= own;
    i /= n;
  }
  return at;
}

const char *moth_stack_x(const moth_stack *s, int which, int64_t i) {
  const moth_tensor *x = s->x[which];
  const int32_t leading = x->l.ndim - s->inner[which];
  int64_t elements = 1;
  for (int32_t d = leading; d < x->l.ndim; d++) elements *= x->l.shape[d];
  return moth_at(x) + beside(s, x, leading, i) * elements * s->size;
}

char *moth_stack_y(const moth_stack *s, int which, int64_t i) {
  const moth_tensor *y = s->y[which];
  return moth_at(y) + i * (y->l.numel / s->count) * moth_dtype_size[y->l.dtype];
}

/* -- elements -- */

#define EXPONENT_f32 0x7f800000u
#define EXPONENT_f64 0x7ff0000000000000u

#define ELEMENTS(real, bits, mask)                                                               \
  static bool load_##real(int64_t n, const real *x, real *y) {                                   \
    bits bad = 0;                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                            \
      bits v;                                                                                    \
      memcpy(&v, x + i, sizeof v);                                                               \
      bad |= (v & mask) == mask;                                                                 \
      y[i] = x[i];                                                                               \
    }                                                                                            \
    return !bad;                                                                                 \
  }                                                                                              \
  static bool turn_##real(int64_t rows, int64_t cols, const real *x, real *y, int64_t step) {    \
    bits bad = 0;                                                                                \
    for (int64_t i = 0; i < rows * cols; i++) {                                                  \
      bits v;                                                                                    \
      memcpy(&v, x + i, sizeof v);                                                               \
      bad |= (v & mask) == mask;                                                                 \
    }                                                                                            \
    if (sizeof(real) == 4) {                                                                     \
      const void *from = x;                                                                      \
      void *to = y;                                                                              \
      moth_transpose_block(cols, rows, from, cols * 4, to, step * 4);                            \
      return !bad;                                                                               \
    }                                                                                            \
    for (int64_t i0 = 0; i0 < rows; i0 += SIDE)                                                  \
      for (int64_t j0 = 0; j0 < cols; j0 += SIDE) {                                              \
        const int64_t i1 = i0 + SIDE < rows ? i0 + SIDE : rows;                                  \
        const int64_t j1 = j0 + SIDE < cols ? j0 + SIDE : cols;                                  \
        for (int64_t j = j0; j < j1; j++)                                                        \
          for (int64_t i = i0; i < i1; i++) y[j * step + i] = x[i * cols + j];                   \
      }                                                                                          \
    return !bad;                                                                                 \
  }                                                                                              \
  static uint32_t side_##real(const moth_stack *s, int which, int64_t i, int part, int64_t rows, \
                              int64_t cols, bool turned, real *y) {                              \
    const int64_t lanes = MOTH_SIDE_BYTES / (int64_t)sizeof(real), last = s->count - 1;          \
    const int64_t down = turned ? lanes : cols * lanes, across = turned ? rows * lanes : lanes;  \
    uint32_t all = 0;                                                                            \
    for (int64_t l = 0; l < lanes; l++) {                                                        \
      const void *from = moth_stack_x(s, which, i + l < last ? i + l : last);                    \
      const real *x = from;                                                                      \
      bits bad = 0;                                                                              \
      for (int64_t r = 0; r < rows; r++) {                                                       \
        const int64_t end = part == MOTH_LOWER ? r + 1 : cols;                                   \
        for (int64_t c = part == MOTH_UPPER ? r : 0; c < end; c++) {                             \
          bits v;                                                                                \
          memcpy(&v, x + r * cols + c, sizeof v);                                                \
          bad |= (v & mask) == mask;                                                             \
          y[r * down + c * across + l] = x[r * cols + c];                                        \
        }                                                                                        \
      }                                                                                          \
      all |= (uint32_t)bad << l;                                                                 \
    }                                                                                            \
    return all;                                                                                  \
  }                                                                                              \
  static void apart_##real(int64_t l, int64_t rows, int64_t cols, bool turned, const real *x,    \
                           real *y) {                                                            \
    const int64_t lanes = MOTH_SIDE_BYTES / (int64_t)sizeof(real);                               \
    const int64_t down = turned ? lanes : cols * lanes, across = turned ? rows * lanes : lanes;  \
    for (int64_t r = 0; r < rows; r++)                                                           \
      for (int64_t c = 0; c < cols; c++) y[r * cols + c] = x[r * down + c * across + l];         \
  }                                                                                              \
  static void swap_##real(int64_t n, real *x, real *y, int64_t step) {                           \
    for (int64_t i = 0; i < n; i++) {                                                            \
      const real v = x[i * step];                                                                \
      x[i * step] = y[i * step];                                                                 \
      y[i * step] = v;                                                                           \
    }                                                                                            \
  }

ELEMENTS(float, uint32_t, EXPONENT_f32)
ELEMENTS(double, uint64_t, EXPONENT_f64)

bool moth_stack_load(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y) {
  const void *from = x;
  void *to = y;
  return s->wide ? load_double(rows * cols, from, to) : load_float(rows * cols, from, to);
}

bool moth_stack_turn(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y,
                     int64_t step) {
  const void *from = x;
  void *to = y;
  return s->wide ? turn_double(rows, cols, from, to, step) : turn_float(rows, cols, from, to, step);
}

void moth_stack_swap(const moth_stack *s, char *x, char *y, int64_t n, int64_t step) {
  void *a = x, *b = y;
  if (s->wide) swap_double(n, a, b, step);
  else swap_float(n, a, b, step);
}

double moth_stack_get(const moth_stack *s, const char *x, int64_t i) {
  const void *at = x;
  return s->wide ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

void moth_stack_put(const moth_stack *s, char *y, int64_t i, double value) {
  void *at = y;
  if (s->wide) ((double *)at)[i] = value;
  else ((float *)at)[i] = (float)value;
}

void moth_stack_fill(const moth_stack *s, char *y, int64_t n, double value) {
  for (int64_t i = 0; i < n; i++) moth_stack_put(s, y, i, value);
}

bool moth_stack_turns(const moth_stack *s, const char *x, int64_t n, int64_t step) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    const double v = fabs(moth_stack_get(s, x, i * step));
    if (v > most) most = v;
  }
  for (int64_t i = 0; i < n; i++) {
    const double v = moth_stack_get(s, x, i * step);
    if (fabs(v) > 0.1 * most) return v < 0;
  }
  return false;
}

void moth_stack_negate(const moth_stack *s, char *y, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; i++) moth_stack_put(s, y, i * step, -moth_stack_get(s, y, i * step));
}

void moth_stack_identity(const moth_stack *s, int which) {
  const int64_t n = s->y[which]->l.shape[s->batch];
  for (int64_t i = 0; i < s->count; i++) {
    char *y = moth_stack_y(s, which, i);
    moth_stack_fill(s, y, n * n, 0);
    for (int64_t j = 0; j < n; j++) moth_stack_put(s, y, j * n + j, 1);
  }
}

/* -- many small matrices -- */

#define MIN_SIDE_COUNT 4 /* fewer matrices are not faster */
#define MAX_SIDE_ROWS 16 /* largest number of rows and of right sides */

bool moth_side_open(moth_stack *s, moth_side_work *side, int nrhs) {
  if (s->m != s->n || s->n > MAX_SIDE_ROWS || nrhs > MAX_SIDE_ROWS || s->count < MIN_SIDE_COUNT)
    return false;
  s->side = side;
  s->a = moth_stack_reserve(s, (int64_t)s->n * s->n, MOTH_SIDE_BYTES);
  s->b = moth_stack_reserve(s, (int64_t)s->n * nrhs, MOTH_SIDE_BYTES);
  s->integers = moth_stack_reserve(s, s->n, MOTH_SIDE_BYTES);
  s->tau = moth_stack_reserve(s, 1, MOTH_SIDE_BYTES);
  s->work = moth_stack_reserve(s, 1, MOTH_SIDE_BYTES);
  return true;
}

int moth_side_lanes(const moth_stack *s, int64_t i) {
  const int64_t lanes = MOTH_SIDE_BYTES / s->size, left = s->count - i;
  return (int)(left < lanes ? left : lanes);
}

uint32_t moth_side_load(const moth_stack *s, int which, int64_t i, int part, bool turned, char *y) {
  const moth_layout *l = &s->x[which]->l;
  const int64_t cols = s->inner[which] == 1 ? 1 : l->shape[l->ndim - 1];
  const int64_t rows = l->shape[l->ndim - s->inner[which]];
  void *to = y;
  return s->wide ? side_double(s, which, i, part, rows, cols, turned, to)
                 : side_float(s, which, i, part, rows, cols, turned, to);
}

void moth_side_store(const moth_stack *s, int64_t i, bool turned, const char *x, uint32_t bad) {
  const moth_layout *l = &s->y[0]->l;
  const int64_t cols = s->inner[1] == 1 ? 1 : l->shape[l->ndim - 1];
  const int64_t rows = l->shape[l->ndim - s->inner[1]];
  const void *from = x;
  for (int k = 0; k < moth_side_lanes(s, i); k++) {
    char *y = moth_stack_y(s, 0, i + k);
    void *to = y;
    if (s->info[i + k] || (bad >> k & 1)) moth_stack_fill(s, y, rows * cols, NAN);
    else if (s->wide) apart_double(k, rows, cols, turned, from, to);
    else apart_float(k, rows, cols, turned, from, to);
  }
}

/* -- messages -- */

const char *moth_stack_name(const moth_stack *s, int64_t i, char text[160]) {
  const char *whole = moth_str(s->x[0]);
  if (s->batch == 0) snprintf(text, 160, "%s", whole);
  else snprintf(text, 160, "matrix " MOTH_POS " of %s", (long long)i, whole);
  return text;
}

int moth_stack_not_finite(const moth_stack *s, int64_t i) {
  char text[160];
  return moth_fail(s->ctx, MOTH_E_DOMAIN, "A", "%s has infinities or NaN",
                   moth_stack_name(s, i, text));
}

int moth_stack_not_converged(const moth_stack *s, int64_t i) {
  char text[160];
  if (s->failure == MOTH_NOT_FINITE) return moth_stack_not_finite(s, i);
  return moth_fail(s->ctx, MOTH_E_DOMAIN, "A", "LAPACK's iteration does not converge for %s",
                   moth_stack_name(s, i, text));
}

/* -- shape rules -- */

int moth_check_matrices(moth_ctx *ctx, const char *arg, const moth_tensor *x, bool square) {
  const int64_t *inner = x->l.shape + x->l.ndim - 2;
  if (x->l.ndim < 2 || (square && inner[0] != inner[1]))
    return moth_fail(ctx, MOTH_E_SHAPE, arg, "a %smatrix or a stack of them, (..., %s, N), is "
                     "needed, got %s", square ? "square " : "", square ? "N" : "M", moth_str(x));
  const int64_t least = inner[0] < inner[1] ? inner[0] : inner[1];
  const int64_t most = inner[0] < inner[1] ? inner[1] : inner[0];
  if (least <= MAX_SMALLER_SIZE && most <= MAX_LARGER_SIZE) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_LIMIT, arg, "%s is too large for LAPACK: %d by %d is",
                   moth_str(x), MAX_SMALLER_SIZE + 1, MAX_LARGER_SIZE);
}

bool moth_vectors(const moth_tensor *a, const moth_tensor *b) {
  const int32_t n = b->l.ndim;
  if (n == 1) return true;
  return n == a->l.ndim - 1 && memcmp(a->l.shape, b->l.shape, (size_t)n * sizeof(int64_t)) == 0;
}

int moth_stack_shape(moth_ctx *ctx, const moth_tensor *a, const moth_tensor *b, int32_t inner,
                     moth_layout *y) {
  moth_layout other;
  y->ndim = a->l.ndim - 2;
  other.ndim = b->l.ndim - inner;
  memcpy(y->shape, a->l.shape, sizeof(int64_t) * (size_t)y->ndim);
  memcpy(other.shape, b->l.shape, sizeof(int64_t) * (size_t)other.ndim);
  if (moth_layout_broadcast(y, &other)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "B", "the leading dimensions of %s and %s do not match",
                   moth_str(b), moth_str(a));
}

/* -- devices -- */

int moth_on_host(const moth_op *op, const void *args, moth_tensor **out) {
  moth_args copy;
  moth_tensor *held[MOTH_MAX_ARGS], *here[MOTH_MAX_OUTPUTS] = {NULL};
  moth_ctx *ctx = ((const moth_args *)args)->ctx;
  uint32_t n = 0, made = 0;
  int status = MOTH_OK;
  memcpy(&copy, args, op->size);
  moth_cursor c = {.op = op, .args = &copy};
  while (!status && moth_next_input(&c)) {
    if (!*c.at || !(*c.at)->l.device) continue;
    held[n] = moth_to_host(*c.at);
    if (!held[n]) status = ctx->error.code;
    else *c.at = held[n++];
  }
  for (; !status && made < op->nout + op->nhidden; made++) {
    if (!out[made]) continue; /* a hidden result that this call does not have */
    moth_layout l = out[made]->l;
    l.device = 0;
    here[made] = moth_tensor_new(ctx, &l);
    if (!here[made]) status = ctx->error.code;
  }
  if (!status) status = op->cpu(&copy, here);
  for (uint32_t i = 0; i < made; i++) {
    if (!status && out[i]) status = moth_device_copy(out[i], here[i], true);
    moth_tensor_release(here[i]);
  }
  while (n) moth_tensor_release(held[--n]);
  return status;
}

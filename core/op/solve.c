/* solve.c -- systems of linear equations, inverses and determinants, by LAPACK's LU factorization.
**
** LAPACK is column-major, so it factors A' and large matrices are not transposed; small matrices
** are transposed when they are copied into a batch.
*/
#include "solve.h"
#include "tensor/shape.h"
#include "base/error.h"

#include <float.h>
#include <math.h>

#include "kernel/gemm/triangle.h"
#include "vendor/lapack.h"
#include "create.h"
#include "gradient_formula.h"
#include "singular.h"

static const int *pivots_of(const moth_stack *s, const char *scratch) {
  return (const int *)(const void *)(scratch + s->integers);
}

static bool has_subnormal_pivot(const moth_stack *s, const char *x) {
  const double least = s->wide ? DBL_MIN : (double)FLT_MIN;
  for (int64_t j = 0; j < s->k; j++) {
    const double pivot = fabs(moth_stack_get(s, x, j * (s->m + 1)));
    if (pivot > 0 && pivot < least) return true;
  }
  return false;
}

/* As getrf, but divides by pivots: getrf may multiply by the reciprocal of a pivot, which is
** infinite for subnormal pivots. */
static int factor_slowly(const moth_stack *s, char *x, int *pivots) {
  const int64_t m = s->m, n = s->n;
  int info = 0;
  for (int64_t j = 0; j < s->k; j++) {
    char *at = x + j * m * s->size;
    int64_t best = j;
    for (int64_t r = j + 1; r < m; r++)
      if (fabs(moth_stack_get(s, at, r)) > fabs(moth_stack_get(s, at, best))) best = r;
    pivots[j] = (int)best + 1;
    if (best != j) moth_stack_swap(s, x + j * s->size, x + best * s->size, n, m);
    const double pivot = moth_stack_get(s, at, j);
    if (pivot == 0 && !info) info = (int)j + 1;
    for (int64_t r = j + 1; r < m && pivot != 0; r++) {
      const double by = moth_stack_get(s, at, r) / pivot;
      moth_stack_put(s, at, r, by);
      for (int64_t c = j + 1; c < n; c++)
        moth_stack_put(s, x, c * m + r,
                       moth_stack_get(s, x, c * m + r) - by * moth_stack_get(s, x, c * m + j));
    }
  }
  return info;
}

/* x := the i-th matrix, in LAPACK's order if `transpose`. Returns true if it is finite. */
static bool lay(const moth_stack *s, int64_t i, bool transpose, char *x) {
  const char *from = moth_stack_x(s, 0, i);
  return transpose ? moth_stack_turn(s, from, s->m, s->n, x, s->m)
                : moth_stack_load(s, from, s->n, s->n, x);
}

int moth_stack_factor(const moth_stack *s, int64_t i, bool transpose, char *x, int *pivots) {
  int info = 0;
  if (!lay(s, i, transpose, x)) return MOTH_NOT_FINITE;
  LAPACK(s, getrf)(&s->m, &s->n, x, &s->m, pivots, &info);
  if (!has_subnormal_pivot(s, x)) return info;
  lay(s, i, transpose, x);
  return factor_slowly(s, x, pivots);
}

static int factor(const moth_stack *s, int64_t i, char *x, char *scratch) {
  return moth_stack_factor(s, i, false, x, (int *)(void *)(scratch + s->integers));
}

static int singular(const moth_stack *s, int64_t i) {
  char text[160];
  return moth_fail(s->ctx, MOTH_E_DOMAIN, "A", "%s is singular: it has no inverse",
                   moth_stack_name(s, i, text));
}

/* y := T^-1 y, or y T^-1. LAPACK reads the transposed matrices. */
static void triangle(const moth_stack *s, const char *x, const char *side, const char *half,
                     const char *unit, int rows, int cols, char *y) {
  const double one = 1;
  const float narrow = 1;
  const void *alpha = s->wide ? (const void *)&one : (const void *)&narrow;
  if (*side == 'R' && !s->wide && s->n <= MOTH_TRIANGLE) {
    const void *t = x;
    void *to = y;
    moth_triangle_solve(*half == 'L', *unit == 'U', s->n, rows, t, to);
    return;
  }
  LAPACK(s, trsm)(side, half, "N", unit, &rows, &cols, alpha, x, &s->n, y, &rows, 1, 1, 1, 1);
}

/* y := X, the solution of A X = y with k columns or X A = y with k rows. x holds the factors P L U
** of A'. LAPACK reads these equations as y P L U or P L U y. */
static void solve_by(const moth_stack *s, const char *x, const int *pivots, char *y, int k,
                     bool left) {
  const int n = s->n;
  const int64_t row = k * s->size;
  if (left) {
    triangle(s, x, "R", "U", "N", k, n, y);
    triangle(s, x, "R", "L", "U", k, n, y);
    for (int64_t i = n - 1; i >= 0; i--)
      if (pivots[i] != i + 1) moth_stack_swap(s, y + i * row, y + (pivots[i] - 1) * row, k, 1);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    if (pivots[i] != i + 1)
      moth_stack_swap(s, y + i * s->size, y + (pivots[i] - 1) * s->size, k, n);
  triangle(s, x, "L", "L", "U", n, k, y);
  triangle(s, x, "L", "U", "N", n, k, y);
}

/* -- batches of small matrices: one matrix per SIMD element -- */

/* scratch + s->a := the factors of the matrices from i on. Returns the set of matrices that are not
** finite; their info is 0. */
static uint32_t factor_side(const moth_stack *s, int64_t i, bool transpose, char *scratch) {
  const uint32_t bad = moth_side_load(s, 0, i, MOTH_ALL, transpose, scratch + s->a);
  moth_small_loops(s->wide)->lu(s->n, scratch + s->a, scratch + s->integers, scratch + s->tau,
                                scratch + s->work);
  for (int l = 0; l < moth_side_lanes(s, i); l++)
    s->info[i + l] = bad >> l & 1 ? 0 : (int)moth_stack_get(s, scratch + s->work, l);
  return bad;
}

/* scratch + s->b := the solutions for k columns, from the factors. */
static void solve_side_by(const moth_stack *s, int k, char *scratch) {
  const moth_small *loops = moth_small_loops(s->wide);
  loops->swap(s->n, k, scratch + s->integers, scratch + s->b);
  loops->substitute(s->n, k, scratch + s->a, false, true, scratch + s->b);
  loops->substitute(s->n, k, scratch + s->a, true, false, scratch + s->b);
}

static void invert_side(const moth_stack *s, char *scratch) {
  const int64_t lanes = MOTH_SIDE_BYTES / s->size;
  moth_stack_fill(s, scratch + s->b, s->n * s->n * lanes, 0);
  for (int64_t j = 0; j < s->n; j++)
    moth_stack_fill(s, scratch + s->b + j * (s->n + 1) * MOTH_SIDE_BYTES, lanes, 1);
  solve_side_by(s, s->n, scratch);
}

/* -- inv -- */

static int square_shape(moth_ctx *ctx, const moth_tensor *x, moth_layout *y) {
  int status = moth_check_matrices(ctx, "A", x, true);
  return status ? status : moth_shape_like(x, y);
}

static int linalg_inv_shape(const linalg_inv_args *a, moth_layout *y) {
  return square_shape(a->ctx, a->A, y);
}

/* Returns true if solving equations is faster than getri. */
static bool by_equations(const moth_stack *s) { return s->n <= (s->wide ? 64 : MOTH_TRIANGLE); }

static int inv_one(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t n = s->n;
  int *pivots = (int *)(void *)(scratch + s->integers);
  char *y = moth_stack_y(s, 0, i), *x = by_equations(s) ? scratch + s->a : y;
  int info = factor(s, i, x, scratch);
  if (info) {
    if (info != MOTH_NOT_FINITE) { /* find the zero pivot of A, not of A' */
      const int of_a = moth_stack_factor(s, i, true, x, pivots);
      if (of_a) info = of_a;
    }
    moth_stack_fill(s, y, n * n, NAN);
    return info == MOTH_NOT_FINITE ? 0 : info;
  }
  if (!by_equations(s)) {
    LAPACK(s, getri)(&s->n, y, &s->n, pivots, scratch + s->work, &s->lwork, &info);
  } else {
    moth_stack_fill(s, y, n * n, 0);
    for (int64_t j = 0; j < n; j++) moth_stack_put(s, y, j * (n + 1), 1);
    solve_by(s, x, pivots, y, s->n, true);
  }
  return info;
}

static void inv_side(const moth_stack *s, int64_t i, char *scratch) {
  const uint32_t bad = factor_side(s, i, false, scratch);
  invert_side(s, scratch);
  moth_side_store(s, i, false, scratch + s->b, bad);
}

static void inv_reserve(moth_stack *s) {
  int info, query = -1;
  char most[8];
  LAPACK(s, getri)(&s->n, NULL, &s->n, NULL, most, &query, &info);
  s->lwork = moth_stack_asked(s, most);
  s->integers = moth_stack_reserve(s, s->n, sizeof(int));
  s->work = moth_stack_reserve(s, s->lwork, s->size);
}

static int inverse(const void *args, const moth_tensor *x, moth_tensor **out, int32_t *codes) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, args, x, NULL, out, 0);
  const double n = s.n;
  s.codes = codes;
  if (!status && s.n) {
    if (!moth_side_open(&s, inv_side, s.n)) {
      if (by_equations(&s)) s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
      inv_reserve(&s);
    }
    status = moth_stack_run(&s, inv_one, 2 * n * n * n, &failed);
  }
  if (failed >= 0) status = singular(&s, failed);
  moth_stack_close(&s);
  return status;
}

static int linalg_inv_cpu(const linalg_inv_args *a, moth_tensor **out) {
  return inverse(a, a->A, out, NULL);
}

static int inverse_back(moth_grad *g, const moth_tensor *x, moth_tensor *dy) {
  moth_tensor *transpose = TRANSPOSED(g->out[0]);
  return moth_flow(g, x, NEGATED(PRODUCT(transpose, PRODUCT(dy, transpose))));
}

static int linalg_inv_grad(const linalg_inv_args *a, moth_grad *g) {
  return inverse_back(g, a->A, g->dy);
}

MOTH_LAPACK_OP(linalg_inv, LINALG_SQUARE, .saves = "y",
               .doc = "The inverse of a matrix; a singular matrix is an error. To solve equations, "
                      "linalg.solve is faster and more accurate.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3)  -- domain: matrix")

static int linalg_inv_ex_shape(const linalg_inv_ex_args *a, moth_layout *y) {
  int status = square_shape(a->ctx, a->A, &y[0]);
  y[1].dtype = MOTH_I32;
  if (status) return status;
  y[1].ndim = y[0].ndim - 2;
  memcpy(y[1].shape, y[0].shape, (size_t)y[1].ndim * sizeof(int64_t));
  return MOTH_OK;
}

static int linalg_inv_ex_cpu(const linalg_inv_ex_args *a, moth_tensor **out) {
  int32_t *codes = (int32_t *)(void *)moth_at(out[1]);
  memset(codes, 0, (size_t)out[1]->l.numel * sizeof *codes);
  return inverse(a, a->A, out, a->check_errors ? NULL : codes);
}

static int linalg_inv_ex_grad(const linalg_inv_ex_args *a, moth_grad *g) {
  return g->dys[0] ? inverse_back(g, a->A, g->dys[0]) : g->status;
}

MOTH_LAPACK_OP(linalg_inv_ex, LINALG_INV_EX, .saves = "inverse", .outputs = "inverse, info",
               .doc = "inv without errors: the inverse of a singular matrix is NaN. info is the "
                      "number of the first pivot that is 0, counted from 1, or 0 on success.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3), {check_errors = true}  -- domain: matrix")

/* -- det, slogdet -- */

static int linalg_det_shape(const linalg_det_args *a, moth_layout *y) {
  int status = square_shape(a->ctx, a->A, y);
  y->ndim -= status ? 0 : 2;
  return status;
}

static int linalg_slogdet_shape(const linalg_slogdet_args *a, moth_layout *y) {
  int status = square_shape(a->ctx, a->A, &y[0]);
  y[0].ndim -= status ? 0 : 2;
  if (!status) y[1] = y[0];
  return status;
}

/* Returns -1 for an odd number of swaps, else 1. */
static double parity(const moth_stack *s, const char *scratch) {
  const int *pivots = pivots_of(s, scratch);
  int odd = 0;
  for (int j = 0; j < s->n; j++) odd ^= pivots[j] != j + 1;
  return odd ? -1 : 1;
}

/* Writes the results for the i-th matrix from its factors, which are `step` elements apart, and the
** sign of its swaps. The sign is NaN if there are no factors. */
static void put_det(const moth_stack *s, int64_t i, const char *x, int64_t step, double sign) {
  double y = s->job ? sign - sign : sign; /* s->job means slogdet: begins with 0, or NaN */
  for (int64_t j = 0; j < s->n && sign == sign; j++) {
    const double v = moth_stack_get(s, x, j * (s->n + 1) * step);
    sign *= v > 0 ? 1 : v < 0 ? -1 : 0;
    y = s->job ? y + log(fabs(v)) : y * v;
  }
  if (s->job) moth_stack_put(s, moth_stack_y(s, 0, i), 0, sign);
  moth_stack_put(s, moth_stack_y(s, s->job, i), 0, y);
}

static int det_one(const moth_stack *s, int64_t i, char *scratch) {
  char *x = scratch + s->a;
  const bool finite = factor(s, i, x, scratch) != MOTH_NOT_FINITE;
  put_det(s, i, x, 1, finite ? parity(s, scratch) : NAN);
  return 0;
}

static void det_side(const moth_stack *s, int64_t i, char *scratch) {
  const uint32_t bad = factor_side(s, i, false, scratch);
  for (int l = 0; l < moth_side_lanes(s, i); l++) {
    const double sign = moth_stack_get(s, scratch + s->tau, l);
    put_det(s, i + l, scratch + s->a + l * s->size, MOTH_SIDE_BYTES / s->size,
            bad >> l & 1 ? NAN : sign);
    s->info[i + l] = 0;
  }
}

static int determinants(const void *args, const moth_tensor *x, moth_tensor **out, bool logarithm) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, args, x, NULL, out, 0);
  const double n = s.n;
  if (!status) {
    s.job = logarithm;
    if (!moth_side_open(&s, det_side, 0)) {
      s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
      s.integers = moth_stack_reserve(&s, s.n, sizeof(int));
    }
    if (s.n) status = moth_stack_run(&s, det_one, 2 * n * n * n / 3, &failed);
    for (int64_t i = 0; i < s.count && !s.n; i++) put_det(&s, i, NULL, 0, 1); /* empty matrices */
  }
  moth_stack_close(&s);
  return status;
}

static int linalg_det_cpu(const linalg_det_args *a, moth_tensor **out) {
  return determinants(a, a->A, out, false);
}

static int linalg_slogdet_cpu(const linalg_slogdet_args *a, moth_tensor **out) {
  return determinants(a, a->A, out, true);
}

#define UNSQUEEZED(p) \
  GRAD(g, unsqueeze, .dim = -1, .input = GRAD(g, unsqueeze, .input = p, .dim = -1))

static int linalg_det_grad(const linalg_det_args *a, moth_grad *g) {
  return moth_flow(g, a->A, TIMES(UNSQUEEZED(g->dy), GRAD(g, linalg_cofactor, .A = a->A)));
}

static int linalg_slogdet_grad(const linalg_slogdet_args *a, moth_grad *g) {
  if (!g->dys[1]) return g->status;
  moth_tensor *inverse = GRAD(g, linalg_inv, .A = a->A);
  return moth_flow(g, a->A, TIMES(UNSQUEEZED(g->dys[1]), TRANSPOSED(inverse)));
}

MOTH_LAPACK_OP(linalg_det, LINALG_SQUARE, .saves = "A", .doc = "The determinant of a matrix.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3)  -- domain: matrix")

MOTH_LAPACK_OP(linalg_slogdet, LINALG_SQUARE, .saves = "A", .outputs = "sign, logabsdet",
               .doc = "The sign of the determinant of a matrix and the logarithm of its absolute "
                      "value; 0 and -inf for a singular matrix.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3)  -- domain: matrix")

/* -- cofactor: the gradient of det, also for singular matrices -- */

static int linalg_cofactor_shape(const linalg_cofactor_args *a, moth_layout *y) {
  return square_shape(a->ctx, a->A, y);
}

/* Returns the determinant from these factors. A pivot of 0 is replaced with a tiny number, which
** cancels in the product of determinant and inverse. */
static double det_of(const moth_stack *s, char *x, int64_t step, double det) {
  double largest = 0;
  step *= s->n + 1;
  for (int64_t j = 0; j < s->n; j++) largest = fmax(largest, fabs(moth_stack_get(s, x, j * step)));
  const double tiny = (largest > 0 ? largest : 1) * (s->wide ? 0x1p-60 : 0x1p-30);
  for (int64_t j = 0; j < s->n; j++) {
    if (moth_stack_get(s, x, j * step) == 0) moth_stack_put(s, x, j * step, tiny);
    det *= moth_stack_get(s, x, j * step);
  }
  return det;
}

/* det(A) A^-T */
static int cofactor_one(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t n = s->n;
  char *x = scratch + s->a, *y = moth_stack_y(s, 0, i);
  int info = factor(s, i, x, scratch);
  if (info == MOTH_NOT_FINITE) {
    moth_stack_fill(s, y, n * n, NAN);
    return 0;
  }
  const double det = det_of(s, x, 1, parity(s, scratch));
  LAPACK(s, getri)(&s->n, x, &s->n, pivots_of(s, scratch), scratch + s->work, &s->lwork, &info);
  for (int64_t j = 0; j < n * n; j++) moth_stack_put(s, x, j, det * moth_stack_get(s, x, j));
  moth_stack_turn(s, x, n, n, y, n);
  return info;
}

static void cofactor_side(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t n = s->n, lanes = MOTH_SIDE_BYTES / s->size;
  const uint32_t bad = factor_side(s, i, false, scratch);
  char *signs = scratch + s->tau;
  for (int64_t l = 0; l < lanes; l++) {
    const double sign = moth_stack_get(s, signs, l);
    moth_stack_put(s, signs, l, det_of(s, scratch + s->a + l * s->size, lanes, sign));
  }
  invert_side(s, scratch);
  for (int64_t e = 0; e < n * n * lanes; e++) {
    const double v = moth_stack_get(s, scratch + s->b, e);
    moth_stack_put(s, scratch + s->b, e, v * moth_stack_get(s, signs, e % lanes));
  }
  for (int l = 0; l < moth_side_lanes(s, i); l++) s->info[i + l] = 0;
  moth_side_store(s, i, true, scratch + s->b, bad);
}

static int linalg_cofactor_cpu(const linalg_cofactor_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double n = s.n;
  if (!status && s.n) {
    if (!moth_side_open(&s, cofactor_side, s.n)) {
      s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
      inv_reserve(&s);
    }
    status = moth_stack_run(&s, cofactor_one, 2 * n * n * n, &failed);
  }
  if (failed >= 0) status = singular(&s, failed);
  moth_stack_close(&s);
  return status;
}

static int linalg_cofactor_grad(const linalg_cofactor_args *a, moth_grad *g) {
  return moth_flow(g, a->A, GRAD(g, linalg_cofactor_back, .A = a->A, .grad = g->dy));
}

MOTH_LAPACK_OP(linalg_cofactor, LINALG_SQUARE, .saves = "A", .public_name = "det",
               .doc = "The cofactors of a matrix: the gradient of its determinant.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix")

/* -- solve -- */

static int sides_shape(moth_ctx *ctx, const moth_tensor *x, const moth_tensor *b, bool left,
                       bool vector, moth_layout *y) {
  int status = moth_check_matrices(ctx, "A", x, true);
  if (!status && !vector) status = moth_check_matrices(ctx, "B", b, false);
  if (status) return status;
  const int32_t inner = vector ? 1 : 2;
  const int64_t n = x->l.shape[x->l.ndim - 1], *own = b->l.shape + b->l.ndim - inner;
  if (own[left || vector ? 0 : 1] != n)
    return moth_fail(ctx, MOTH_E_SHAPE, "B", "%s does not fit %s: %lld %s are needed", moth_str(b),
                     moth_str(x), (long long)n, vector ? "numbers" : left ? "rows" : "columns");
  status = moth_stack_shape(ctx, x, b, inner, y);
  for (int32_t d = 0; d < inner; d++) y->shape[y->ndim++] = own[d];
  return status;
}

static int linalg_solve_shape(const linalg_solve_args *a, moth_layout *y) {
  const bool vector = moth_vectors(a->A, a->B);
  if (vector && !a->left)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "left", "X A = B needs matrices B, got the vectors %s",
                     moth_str(a->B));
  return sides_shape(a->ctx, a->A, a->B, a->left, vector, y);
}

static int solve_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_solve_args *a = s->args;
  const int64_t n = s->n, k = s->nrhs;
  char *x = scratch + s->a, *y = moth_stack_y(s, 0, i);
  int info = factor(s, i, x, scratch);
  if (info == MOTH_NOT_FINITE) moth_stack_fill(s, y, n * k, NAN);
  if (info) return info == MOTH_NOT_FINITE ? 0 : info;
  moth_stack_load(s, moth_stack_x(s, 1, i), n, k, y);
  solve_by(s, x, pivots_of(s, scratch), y, s->nrhs, a->left);
  return 0;
}

static void solve_side(const moth_stack *s, int64_t i, char *scratch) {
  const bool right = !((const linalg_solve_args *)s->args)->left;
  const uint32_t bad = factor_side(s, i, right, scratch);
  moth_side_load(s, 1, i, MOTH_ALL, right, scratch + s->b);
  solve_side_by(s, s->nrhs, scratch);
  moth_side_store(s, i, right, scratch + s->b, bad);
}

static int linalg_solve_cpu(const linalg_solve_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  const bool vector = moth_vectors(a->A, a->B);
  int status = moth_stack_open(&s, a, a->A, a->B, out, vector);
  if (!a->left) s.nrhs = (int)a->B->l.shape[a->B->l.ndim - 2];
  const double n = s.n;
  if (!status && s.n && s.nrhs) {
    if (!moth_side_open(&s, solve_side, s.nrhs)) {
      s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
      s.integers = moth_stack_reserve(&s, s.n, sizeof(int));
    }
    status = moth_stack_run(&s, solve_one, n * n * (n * 0.7 + 2 * s.nrhs), &failed);
  }
  if (failed >= 0) status = singular(&s, failed);
  moth_stack_close(&s);
  return status;
}

/* dB solves A' X = dX. The gradient of A is -dB X', with the factors swapped without `left`. */
static int linalg_solve_grad(const linalg_solve_args *a, moth_grad *g) {
  const bool vector = moth_vectors(a->A, a->B);
  moth_tensor *x = g->out[0], *dx = g->dy; /* x was only saved if A needs a gradient */
  if (vector) dx = GRAD(g, unsqueeze, .input = dx, .dim = -1);
  if (vector && moth_wants(g, a->A)) x = GRAD(g, unsqueeze, .input = x, .dim = -1);
  moth_tensor *db = GRAD(g, linalg_solve, .A = TRANSPOSED(a->A), .B = dx, .left = a->left);
  if (moth_wants(g, a->B))
    moth_flow(g, a->B, vector ? GRAD(g, select, .input = db, .dim = -1, .index = 0) : db);
  if (moth_wants(g, a->A))
    moth_flow(g, a->A, NEGATED(a->left ? PRODUCT(db, TRANSPOSED(x)) : PRODUCT(TRANSPOSED(x), db)));
  return g->status;
}

MOTH_LAPACK_OP(linalg_solve, LINALG_SOLVE, .saves = "A y:A",
               .doc = "The solution X of A X = B for square A; a singular matrix is an error. B is "
                      "a vector, or a batch of vectors, if it has one dimension or the shape of A "
                      "without the last dimension.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}, moth.ones(2, 3)  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 1, 3, 3), moth.ones(4, 2, 3), {left = false}"
                           "  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3), moth.ones(2, 3)  -- domain: matrix")

/* -- solve_triangular -- */

static int linalg_solve_triangular_shape(const linalg_solve_triangular_args *a, moth_layout *y) {
  return sides_shape(a->ctx, a->A, a->B, a->left, false, y);
}

static int triangular_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_solve_triangular_args *a = s->args;
  const int n = s->n, k = s->nrhs;
  char *y = moth_stack_y(s, 0, i);
  (void)scratch;
  moth_stack_load(s, moth_stack_x(s, 1, i), n, k, y);
  triangle(s, moth_stack_x(s, 0, i), a->left ? "R" : "L", a->upper ? "L" : "U",
           a->unitriangular ? "U" : "N", a->left ? k : n, a->left ? n : k, y);
  return 0;
}

static void triangular_side(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_solve_triangular_args *a = s->args;
  moth_side_load(s, 0, i, a->upper ? MOTH_UPPER : MOTH_LOWER, !a->left, scratch + s->a);
  moth_side_load(s, 1, i, MOTH_ALL, !a->left, scratch + s->b);
  moth_small_loops(s->wide)->substitute(s->n, s->nrhs, scratch + s->a, a->upper == a->left,
                                        a->unitriangular, scratch + s->b);
  for (int l = 0; l < moth_side_lanes(s, i); l++) s->info[i + l] = 0;
  moth_side_store(s, i, !a->left, scratch + s->b, 0);
}

static int linalg_solve_triangular_cpu(const linalg_solve_triangular_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, a->B, out, 0);
  if (!a->left) s.nrhs = (int)a->B->l.shape[a->B->l.ndim - 2];
  const double n = s.n;
  if (!status && s.n && s.nrhs) moth_side_open(&s, triangular_side, s.nrhs);
  if (!status && s.n && s.nrhs)
    status = moth_stack_run(&s, triangular_one, n * n * s.nrhs, &failed);
  moth_stack_close(&s);
  return status;
}

static int linalg_solve_triangular_grad(const linalg_solve_triangular_args *a, moth_grad *g) {
  moth_tensor *x = g->out[0], *transpose = TRANSPOSED(a->A);
  moth_tensor *db = GRAD(g, linalg_solve_triangular, .A = transpose, .B = g->dy, .upper = !a->upper,
                         .left = a->left, .unitriangular = a->unitriangular);
  if (moth_wants(g, a->B)) moth_flow(g, a->B, db);
  if (!moth_wants(g, a->A)) return g->status;
  moth_tensor *da = NEGATED(a->left ? PRODUCT(db, TRANSPOSED(x)) : PRODUCT(TRANSPOSED(x), db));
  const int64_t off = a->unitriangular ? 1 : 0;
  if (a->upper) da = GRAD(g, triu, .input = da, .diagonal = off);
  else da = GRAD(g, tril, .input = da, .diagonal = -off);
  return moth_flow(g, a->A, da);
}

MOTH_LAPACK_OP(linalg_solve_triangular, LINALG_SOLVE_TRIANGULAR, .saves = "A y:A",
               .doc = "The solution X of A X = B for a triangular A; only one triangle of A is "
                      "read. Zeros on the diagonal result in infinities.",
               .examples = "moth.tensor{{2, 1}, {0, 3}}, moth.ones(2, 3), {upper = true}"
                           "  -- domain: matrix\n"
                           "moth.eye(3), moth.ones(2, 4, 3), {upper = false, left = false, "
                           "unitriangular = true}  -- domain: matrix")

const moth_op *const moth_solve_ops[] = {
  &moth_op_linalg_solve, &moth_op_linalg_solve_triangular, &moth_op_linalg_inv,
  &moth_op_linalg_inv_ex,
  &moth_op_linalg_det, &moth_op_linalg_slogdet, &moth_op_linalg_cofactor, NULL};

/* singular.c -- ops with singular values: svd, svdvals, pinv, lstsq, the gradient of cofactors.
** factor.c lists the ops.
**
** Gradients: Giles 2008 (svd), Golub & Pereyra 1973 (pinv).
*/
#include "singular.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <math.h>

#include "vendor/blas.h"
#include "vendor/lapack.h"
#include "factor.h"
#include "gradient_formula.h"
#include "scan.h"
#include "rearrange.h"
#include "reduce.h"
#include "solve.h"

/* -- svd: LAPACK reads A', so its left singular vectors are the right ones of A -- */

static const char *job_of(const moth_stack *s) {
  return s->job == 0 ? "N" : s->job == 1 ? "S" : "A";
}

/* job 0: values only; 1: as many vectors as values; 2: all vectors. Reserves scratch memory for
** gesdd. */
static void svd_reserve(moth_stack *s, int job) {
  int info, query = -1;
  char most[8];
  const int ldvt = job == 1 ? s->k : s->m;
  s->job = job;
  LAPACK(s, gesdd)(job_of(s), &s->n, &s->m, NULL, &s->n, NULL, NULL, &s->n, NULL, &ldvt, most,
                   &query, NULL, &info, 1);
  s->lwork = moth_stack_asked(s, most);
  s->a = moth_stack_reserve(s, (int64_t)s->m * s->n, s->size);
  s->integers = moth_stack_reserve(s, 8 * (int64_t)s->k, sizeof(int));
  s->work = moth_stack_reserve(s, s->lwork, s->size);
}

static int svd_run(const moth_stack *s, int64_t i, char *scratch, char *u, char *values, char *vh) {
  const int ldvt = s->job == 1 ? s->k : s->m;
  char *x = scratch + s->a;
  int info = 0;
  if (!moth_stack_load(s, moth_stack_x(s, 0, i), s->m, s->n, x)) return MOTH_NOT_FINITE;
  LAPACK(s, gesdd)(job_of(s), &s->n, &s->m, x, &s->n, values, vh, &s->n, u, &ldvt,
                   scratch + s->work, &s->lwork, (int *)(void *)(scratch + s->integers), &info, 1);
  return info;
}

static int svd_one(const moth_stack *s, int64_t i, char *scratch) {
  char *u = moth_stack_y(s, 0, i), *vh = moth_stack_y(s, 2, i);
  const int64_t m = s->m, n = s->n, cols = s->job == 1 ? s->k : m;
  const int64_t rows = s->job == 1 ? s->k : n;
  int info = svd_run(s, i, scratch, u, moth_stack_y(s, 1, i), vh);
  for (int64_t j = 0; j < cols && !info; j++) {
    if (!moth_stack_turns(s, u + j * s->size, m, cols)) continue;
    moth_stack_negate(s, u + j * s->size, m, cols);
    if (j < s->k) moth_stack_negate(s, vh + j * n * s->size, n, 1);
  }
  for (int64_t j = s->k; j < rows && !info; j++)
    if (moth_stack_turns(s, vh + j * n * s->size, n, 1))
      moth_stack_negate(s, vh + j * n * s->size, n, 1);
  return info;
}

static int linalg_svd_shape(const linalg_svd_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (status) return status;
  const int32_t n = a->A->l.ndim;
  const int64_t rows = a->A->l.shape[n - 2], cols = a->A->l.shape[n - 1];
  const int64_t k = rows < cols ? rows : cols;
  if (a->full_matrices && (rows > cols ? rows : cols) > INT16_MAX)
    return moth_fail(a->ctx, MOTH_E_LIMIT, "full_matrices",
                     "all vectors of %s are too large for LAPACK: use full_matrices = false",
                     moth_str(a->A));
  for (int i = 0; i < 3; i++) moth_shape_like(a->A, &y[i]);
  y[0].shape[n - 1] = a->full_matrices ? rows : k;
  y[1].ndim = n - 1;
  y[1].shape[n - 2] = k;
  y[2].shape[n - 2] = a->full_matrices ? cols : k;
  y[2].shape[n - 1] = cols;
  return MOTH_OK;
}

static int linalg_svd_cpu(const linalg_svd_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double m = s.m, n = s.n;
  if (!status && s.k) {
    svd_reserve(&s, a->full_matrices ? 2 : 1);
    status = moth_stack_run(&s, svd_one, 14 * m * n * s.k, &failed);
  } else if (!status && a->full_matrices && s.count) {
    moth_stack_identity(&s, 0);
    moth_stack_identity(&s, 2);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

#define ROW(p) GRAD(g, unsqueeze, .input = p, .dim = -2)
#define COLUMN(p) GRAD(g, unsqueeze, .input = p, .dim = -1)
#define FIRST(p, along) ((p) ? GRAD(g, narrow, .input = p, .dim = along, .length = k) : NULL)

static moth_tensor *sum_of(moth_grad *g, moth_tensor *p, moth_tensor *q) {
  return p && q ? PLUS(p, q) : p ? p : q;
}

/* The gradient is U (X(U) S + S X(V) + diag(dS)) V', plus the parts outside the space of the
** vectors that belong to singular values. Other vectors are not unique and have no gradient.
** Computed in f64, so that squares of f32 do not overflow. */
static int linalg_svd_grad(const linalg_svd_args *a, moth_grad *g) {
  const int32_t d = a->A->l.ndim;
  const int64_t m = a->A->l.shape[d - 2], n = a->A->l.shape[d - 1], k = m < n ? m : n;
  moth_tensor *du = FIRST(moth_grad_wide(g, g->dys[0]), -1), *ds = moth_grad_wide(g, g->dys[1]);
  moth_tensor *dvh = FIRST(moth_grad_wide(g, g->dys[2]), -2), *s = moth_grad_wide(g, g->out[1]);
  moth_tensor *u = FIRST(moth_grad_wide(g, g->out[0]), -1);
  moth_tensor *vh = FIRST(moth_grad_wide(g, g->out[2]), -2);
  moth_tensor *inside = ds ? GRAD(g, diag_embed, .input = ds, .dim1 = -2, .dim2 = -1) : NULL;
  if ((!du && !ds && !dvh) || g->status) return g->status;
  moth_tensor *udu = du ? PRODUCT(TRANSPOSED(u), du) : NULL;
  moth_tensor *vdv = dvh ? PRODUCT(vh, TRANSPOSED(dvh)) : NULL;
  if (du) inside = sum_of(g, inside, TIMES(moth_rotation(g, udu, OF(square, s)), ROW(s)));
  if (dvh) inside = sum_of(g, inside, TIMES(COLUMN(s), moth_rotation(g, vdv, OF(square, s))));
  moth_tensor *left = PRODUCT(u, inside);
  if (du && m > k) left = PLUS(left, OVER(MINUS(du, PRODUCT(u, udu)), ROW(s)));
  moth_tensor *dx = PRODUCT(left, vh);
  if (dvh && n > k) {
    moth_tensor *beyond = MINUS(dvh, PRODUCT(TRANSPOSED(vdv), vh));
    dx = PLUS(dx, PRODUCT(u, OVER(beyond, COLUMN(s))));
  }
  return moth_flow(g, a->A, dx);
}

MOTH_LAPACK_OP(linalg_svd, LINALG_SVD, .saves = "U S Vh", .outputs = "U, S, Vh",
               .doc = "The singular value decomposition A = U diag(S) Vh: U has orthonormal "
                      "columns, Vh orthonormal rows, S is descending. In each column of U the "
                      "first entry above a tenth of the largest is positive.",
               .examples = "moth.tensor{{3, 1}, {1, 2}}  -- domain: matrix\n"
                           "moth.eye(4, 3):expand(2, 4, 3), {full_matrices = false}"
                           "  -- domain: matrix\n"
                           "moth.ones(2, 3), false  -- domain: matrix")

/* -- svdvals -- */

static int linalg_svdvals_shape(const linalg_svdvals_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (status) return status;
  const int32_t n = a->A->l.ndim;
  moth_shape_like(a->A, y);
  if (y->shape[n - 1] < y->shape[n - 2]) y->shape[n - 2] = y->shape[n - 1];
  y->ndim--;
  return MOTH_OK;
}

static int svdvals_one(const moth_stack *s, int64_t i, char *scratch) {
  return svd_run(s, i, scratch, NULL, moth_stack_y(s, 0, i), NULL);
}

static int linalg_svdvals_cpu(const linalg_svdvals_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double m = s.m, n = s.n;
  if (!status && s.k) {
    svd_reserve(&s, 0);
    status = moth_stack_run(&s, svdvals_one, 4 * m * n * s.k, &failed);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

/* U diag(dS) V' */
static moth_tensor *values_back(moth_grad *g, moth_tensor *x, moth_tensor *ds) {
  moth_tensor *y[3] = {NULL, NULL, NULL};
  if (g->status) return NULL;
  g->status = MOTH_CALL(g->ctx, y, linalg_svd, .A = x, .full_matrices = false);
  moth_tensor_release(y[1]);
  moth_tensor *u = y[0] ? moth_grad_own(g, y[0]) : NULL, *vh = y[2] ? moth_grad_own(g, y[2]) : NULL;
  return PRODUCT(TIMES(u, ROW(ds)), vh);
}

static int linalg_svdvals_grad(const linalg_svdvals_args *a, moth_grad *g) {
  return moth_flow(g, a->A, values_back(g, a->A, g->dy));
}

MOTH_LAPACK_OP(linalg_svdvals, LINALG_SVDVALS, .saves = "A",
               .doc = "The singular values of a matrix, descending.",
               .examples = "moth.eye(2, 3):expand(2, 2, 3)  -- domain: matrix")

/* -- pinv -- */

static double precision(const moth_tensor *x) { return x->l.dtype == MOTH_F64 ? 0x1p-52 : 0x1p-23; }

static double share_of(double given, double otherwise, const moth_tensor *x) {
  const int64_t *inner = x->l.shape + x->l.ndim - 2;
  if (!moth_absent(given)) return given;
  if (otherwise > 0) return 0;
  return precision(x) * (double)(inner[0] > inner[1] ? inner[0] : inner[1]);
}

static int linalg_pinv_shape(const linalg_pinv_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (status) return status;
  const int32_t n = a->A->l.ndim;
  moth_shape_like(a->A, y);
  y->shape[n - 2] = a->A->l.shape[n - 1];
  y->shape[n - 1] = a->A->l.shape[n - 2];
  return MOTH_OK;
}

/* V S^+ U'. The rows of Vh are divided by S; the product reads both matrices transposed. */
static int pinv_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_pinv_args *a = s->args;
  const int64_t m = s->m, n = s->n, k = s->k;
  char *u = scratch + s->b, *vh = u + m * k * s->size, *values = vh + n * k * s->size;
  char *ut = scratch + s->a; /* memory that gesdd no longer needs */
  int info = svd_run(s, i, scratch, u, values, vh);
  if (info) return info;
  const double largest = moth_stack_get(s, values, 0);
  const double part = share_of(a->rtol, a->atol, a->A) * largest;
  const double least = part > a->atol ? part : a->atol;
  for (int64_t j = 0; j < k; j++) {
    const double v = moth_stack_get(s, values, j), share = v > least ? 1 / v : 0;
    for (int64_t c = 0; c < n; c++) {
      const double old = moth_stack_get(s, vh, j * n + c);
      moth_stack_put(s, vh, j * n + c, share * old);
    }
  }
  moth_stack_turn(s, u, m, k, ut, m);
  const moth_product p = {.dtype = s->wide ? MOTH_F64 : MOTH_F32, .m = n, .n = m, .k = k, .a = vh,
                          .rs_a = 1, .cs_a = n, .b = ut, .rs_b = m, .cs_b = 1,
                          .c = moth_stack_y(s, 0, i), .ldc = m};
  moth_multiply_inside(&p);
  return 0;
}

static int linalg_pinv_cpu(const linalg_pinv_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double m = s.m, n = s.n;
  if (!status && s.k) {
    svd_reserve(&s, 1);
    s.b = moth_stack_reserve(&s, ((int64_t)s.m + s.n + 1) * s.k, s.size);
    status = moth_stack_run(&s, pinv_one, 16 * m * n * s.k, &failed);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

/* Returns the gradient of A. dP is the gradient of its pseudoinverse P:
** -P' dP P' + (I - A P) dP' P P' + P' P dP' (I - P A) */
static moth_tensor *pinv_back(moth_grad *g, moth_tensor *x, moth_tensor *p, moth_tensor *dp) {
  moth_tensor *t = TRANSPOSED(p), *dt = TRANSPOSED(dp);
  moth_tensor *right = PRODUCT(PRODUCT(dt, p), t), *left = PRODUCT(t, PRODUCT(p, dt));
  right = MINUS(right, PRODUCT(x, PRODUCT(p, right)));
  left = MINUS(left, PRODUCT(PRODUCT(left, p), x));
  return MINUS(PLUS(left, right), PRODUCT(t, PRODUCT(dp, t)));
}

static int linalg_pinv_grad(const linalg_pinv_args *a, moth_grad *g) {
  return moth_flow(g, a->A, pinv_back(g, a->A, g->out[0], g->dy));
}

MOTH_LAPACK_OP(linalg_pinv, LINALG_PINV, .saves = "A y",
               .doc = "The Moore-Penrose pseudoinverse of a matrix, by its singular values.",
               .examples = "moth.eye(2, 3) * 2  -- domain: matrix\n"
                           "moth.eye(3, 2):expand(2, 3, 2), {atol = 0.01, rtol = 0.01}"
                           "  -- domain: matrix")

/* -- lstsq -- */

enum { GELSY, GELS, GELSD, GELSS };

static int linalg_lstsq_solve_shape(const linalg_lstsq_solve_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (!status) status = moth_check_matrices(a->ctx, "B", a->B, false);
  if (status) return status;
  const int32_t p = a->A->l.ndim, q = a->B->l.ndim;
  const int64_t m = a->A->l.shape[p - 2], n = a->A->l.shape[p - 1];
  if (a->B->l.shape[q - 2] != m)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "B", "%s does not have the %lld rows of %s",
                                                moth_str(a->B),
                     (long long)m, moth_str(a->A));
  for (int i = 0; i < 3 && !status; i++) status = moth_stack_shape(a->ctx, a->A, a->B, 2, &y[i]);
  if (status) return status;
  y[1].dtype = MOTH_I64;
  const bool values = a->driver == GELSD || a->driver == GELSS;
  y[2].shape[y[2].ndim++] = values ? (m < n ? m : n) : 0;
  y[0].shape[y[0].ndim++] = n;
  y[0].shape[y[0].ndim++] = a->B->l.shape[q - 1];
  return MOTH_OK;
}

/* Calls LAPACK once. With *lwork = -1, LAPACK returns the size of its workspace. */
static int least_squares(const moth_stack *s, int *rank, char *x, char *b, char *values, char *work,
                         const int *lwork, int *integers) {
  const linalg_lstsq_solve_args *a = s->args;
  const int most = s->m > s->n ? s->m : s->n;
  const double part = share_of(a->rcond, 0, a->A);
  const float narrow = (float)part;
  const void *rcond = s->wide ? (const void *)&part : (const void *)&narrow;
  int info = 0;
  *rank = s->k;
  if (a->driver == GELSY)
    LAPACK(s, gelsy)(&s->m, &s->n, &s->nrhs, x, &s->m, b, &most, integers, rcond, rank, work, lwork,
                     &info);
  else if (a->driver == GELS)
    LAPACK(s, gels)("N", &s->m, &s->n, &s->nrhs, x, &s->m, b, &most, work, lwork, &info, 1);
  else if (a->driver == GELSD)
    LAPACK(s, gelsd)(&s->m, &s->n, &s->nrhs, x, &s->m, b, &most, values, rcond, rank, work, lwork,
                     integers, &info);
  else
    LAPACK(s, gelss)(&s->m, &s->n, &s->nrhs, x, &s->m, b, &most, values, rcond, rank, work, lwork,
                     &info);
  return info;
}

#define B_NOT_FINITE (MOTH_NOT_FINITE + 1)

/* s->job is the number of right-hand sides. If it is 0, one column of zeros is used, because LAPACK
** does not factor A without a right-hand side. */
static int lstsq_one(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t m = s->m, n = s->n, most = m > n ? m : n, sides = s->job;
  char *x = scratch + s->a, *b = scratch + s->b;
  int *integers = (int *)(void *)(scratch + s->integers), rank;
  if (!moth_stack_turn(s, moth_stack_x(s, 0, i), m, n, x, m)) return MOTH_NOT_FINITE;
  if (!moth_stack_turn(s, moth_stack_x(s, 1, i), m, sides, b, most)) return B_NOT_FINITE;
  if (!sides) moth_stack_fill(s, b, most, 0);
  memset(integers, 0, (size_t)s->n * sizeof(int)); /* gelsy may permute all columns */
  int info = least_squares(s, &rank, x, b, moth_stack_y(s, 2, i), scratch + s->work, &s->lwork,
                           integers);
  for (int64_t c = 0; c < sides; c++)
    for (int64_t r = 0; r < n; r++)
      moth_stack_put(s, moth_stack_y(s, 0, i), r * sides + c,
                     moth_stack_get(s, b, c * most + r));
  *(int64_t *)(void *)moth_stack_y(s, 1, i) = rank;
  return info;
}

static void lstsq_empty(const moth_stack *s) {
  for (int64_t i = 0; i < s->count; i++) {
    moth_stack_fill(s, moth_stack_y(s, 0, i), s->y[0]->l.numel / s->count, 0);
    *(int64_t *)(void *)moth_stack_y(s, 1, i) = 0;
  }
}

static int linalg_lstsq_solve_cpu(const linalg_lstsq_solve_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int query = -1, rank, integers = 0;
  char most[8], text[160];
  int status = moth_stack_open(&s, a, a->A, a->B, out, 0);
  const double m = s.m, n = s.n;
  s.job = s.nrhs;
  if (!s.nrhs) s.nrhs = 1;
  if (!status && s.k) {
    least_squares(&s, &rank, NULL, NULL, NULL, most, &query, &integers);
    s.lwork = moth_stack_asked(&s, most);
    s.a = moth_stack_reserve(&s, (int64_t)s.m * s.n, s.size);
    s.b = moth_stack_reserve(&s, (int64_t)(s.m > s.n ? s.m : s.n) * s.nrhs, s.size);
    s.integers = moth_stack_reserve(&s, integers > s.n ? integers : s.n, sizeof(int));
    s.work = moth_stack_reserve(&s, s.lwork, s.size);
    status = moth_stack_run(&s, lstsq_one, 4 * m * n * s.k, &failed);
  } else if (!status) {
    lstsq_empty(&s);
  }
  if (failed >= 0 && s.failure > 0 && a->driver == GELS)
    status = moth_fail(a->ctx, MOTH_E_DOMAIN, "A",
                       "%s does not have full rank, which driver 'gels' needs",
                       moth_stack_name(&s, failed, text));
  else if (failed >= 0 && s.failure == B_NOT_FINITE)
    status = moth_fail(a->ctx, MOTH_E_DOMAIN, "B", "%s has infinities or NaN", moth_str(a->B));
  else if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

/* The solution is A^+ B, so its gradient uses that of the pseudoinverse. */
static int linalg_lstsq_solve_grad(const linalg_lstsq_solve_args *a, moth_grad *g) {
  moth_tensor *dx = g->dys[0], *ds = g->dys[2], *da = NULL;
  if (ds && ds->l.shape[ds->l.ndim - 1] && moth_wants(g, a->A)) da = values_back(g, a->A, ds);
  if (dx) {
    moth_tensor *p = GRAD(g, linalg_pinv, .A = a->A, .rtol = share_of(a->rcond, 0, a->A));
    if (moth_wants(g, a->B)) moth_flow(g, a->B, PRODUCT(TRANSPOSED(p), dx));
    if (moth_wants(g, a->A))
      da = sum_of(g, da, pinv_back(g, a->A, p, PRODUCT(dx, TRANSPOSED(a->B))));
  }
  return da ? moth_flow(g, a->A, da) : g->status;
}

MOTH_LAPACK_OP(linalg_lstsq_solve, LINALG_LSTSQ, .saves = "A B:A", .public_name = "lstsq",
               .outputs = "solution, rank, singular_values",
               .doc = "The least squares solution X of A X = B with the smallest norm, the rank of "
                      "A, and its singular values if the driver computes them.",
               .examples = "moth.eye(3, 2), moth.ones(3, 1)  -- domain: matrix\n"
                           "moth.eye(2, 3), moth.ones(4, 2, 1), {rcond = 0.001, driver = 'gelsd'}"
                           "  -- domain: matrix")

/* -- cofactor_back: the gradient of cofactors, the second derivative of det -- */

static int linalg_cofactor_back_shape(const linalg_cofactor_back_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, true);
  if (status) return status;
  if (a->grad->l.ndim != a->A->l.ndim ||
      memcmp(a->grad->l.shape, a->A->l.shape, (size_t)a->A->l.ndim * sizeof(int64_t)) != 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "%s does not have the shape of %s",
                     moth_str(a->grad), moth_str(a->A));
  return moth_shape_like(a->A, y);
}

/* Returns the determinant of an orthogonal matrix, 1 or -1. */
static double orientation(const moth_stack *s, const char *x, char *scratch) {
  int info = 0, *pivots = (int *)(void *)(scratch + s->integers);
  char *copy = scratch + s->a;
  double y = 1;
  moth_stack_load(s, x, s->n, s->n, copy);
  LAPACK(s, getrf)(&s->n, &s->n, copy, &s->n, pivots, &info);
  for (int64_t j = 0; j < s->n; j++) {
    if (pivots[j] != j + 1) y = -y;
    if (moth_stack_get(s, copy, j * (s->n + 1)) < 0) y = -y;
  }
  return y;
}

/* c := a b; with `transpose`, a' b. */
static void square_product(const moth_stack *s, const char *a, bool transpose, const char *b,
                           char *c) {
  const int64_t n = s->n;
  const moth_product p = {.dtype = s->wide ? MOTH_F64 : MOTH_F32, .m = n, .n = n, .k = n, .a = a,
                          .rs_a = transpose ? 1 : n, .cs_a = transpose ? n : 1, .b = b, .rs_b = n,
                          .cs_b = 1, .c = c, .ldc = n};
  moth_multiply_inside(&p);
}

static void add_at(const moth_stack *s, char *y, int64_t i, double value) {
  moth_stack_put(s, y, i, moth_stack_get(s, y, i) + value);
}

/* Computes m. p(i, j) is the product of all values except the i-th and the j-th. For all i != j,
** m(j, j) += p(i, j) d(i, i) and m(j, i) = -p(i, j) d(i, j); all are multiplied by `sign`. */
static void pairs(const moth_stack *s, double sign, const char *values, double *behind,
                  const char *d, char *m) {
  const int64_t n = s->n;
  moth_stack_fill(s, m, n * n, 0);
  behind[n] = 1; /* behind[j]: the product of the values from j on */
  for (int64_t j = n; j-- > 0;) behind[j] = behind[j + 1] * moth_stack_get(s, values, j);
  for (int64_t i = 0; i < n; i++) {
    double but = sign;
    for (int64_t j = i + 1; j < n; j++) {
      const double p = but * behind[j + 1];
      add_at(s, m, j * (n + 1), p * moth_stack_get(s, d, i * (n + 1)));
      add_at(s, m, i * (n + 1), p * moth_stack_get(s, d, j * (n + 1)));
      moth_stack_put(s, m, j * n + i, -p * moth_stack_get(s, d, i * n + j));
      moth_stack_put(s, m, i * n + j, -p * moth_stack_get(s, d, j * n + i));
      but *= moth_stack_get(s, values, j);
    }
    sign *= moth_stack_get(s, values, i);
  }
}

/* Computes det(U V) U M V', where M is the result of `pairs` for U' dC V. It does not divide by
** singular values, so they may be 0. */
static int cofactor_back_one(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t n = s->n, bytes = n * n * s->size;
  char *u = scratch + s->b, *vh = u + bytes, *p = vh + bytes, *q = p + bytes, *values = q + bytes;
  char *y = moth_stack_y(s, 0, i);
  const int info = svd_run(s, i, scratch, u, values, vh);
  if (info == MOTH_NOT_FINITE) moth_stack_fill(s, y, n * n, NAN);
  if (info) return info == MOTH_NOT_FINITE ? 0 : info;
  const double sign = orientation(s, u, scratch) * orientation(s, vh, scratch);
  moth_stack_turn(s, vh, n, n, q, n);
  square_product(s, u, true, moth_stack_x(s, 1, i), p);
  square_product(s, p, false, q, y);
  pairs(s, sign, values, (double *)(void *)(scratch + s->tau), y, q);
  square_product(s, u, false, q, p);
  square_product(s, p, false, vh, y);
  return 0;
}

static int linalg_cofactor_back_cpu(const linalg_cofactor_back_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, a->grad, out, 0);
  const double n = s.n;
  if (!status && s.n) {
    svd_reserve(&s, 1);
    s.b = moth_stack_reserve(&s, (4 * (int64_t)s.n + 1) * s.n, s.size);
    s.tau = moth_stack_reserve(&s, (int64_t)s.n + 1, sizeof(double));
    status = moth_stack_run(&s, cofactor_back_one, 24 * n * n * n, &failed);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

#define SUM(p) \
  GRAD(g, sum, .input = p, .dim = {both, 2}, .keepdim = true, .dtype = -1)

/* With C the cofactors, y = (sum(dC C) C - C dC' C) / det(A). As a linear map of dC, y is
** symmetric. The matrix must be invertible here. */
static int linalg_cofactor_back_grad(const linalg_cofactor_back_args *a, moth_grad *g) {
  static const int64_t both[] = {-2, -1};
  moth_tensor *w = g->dy, *d = a->grad, *y = g->out[0];
  if (moth_wants(g, d)) moth_flow(g, d, GRAD(g, linalg_cofactor_back, .A = a->A, .grad = w));
  if (!moth_wants(g, a->A)) return g->status;
  moth_tensor *c = GRAD(g, linalg_cofactor, .A = a->A), *ct = TRANSPOSED(c);
  moth_tensor *det = GRAD(g, unsqueeze, .input = GRAD(g, linalg_det, .A = a->A), .dim = -1);
  det = GRAD(g, unsqueeze, .input = det, .dim = -1);
  moth_tensor *dc = PLUS(TIMES(SUM(TIMES(w, c)), d), TIMES(SUM(TIMES(d, c)), w));
  dc = MINUS(dc, PRODUCT(w, PRODUCT(ct, d)));
  dc = MINUS(dc, PRODUCT(d, PRODUCT(ct, w)));
  moth_tensor *through = GRAD(g, linalg_cofactor_back, .A = a->A, .grad = dc);
  return moth_flow(g, a->A, OVER(MINUS(through, TIMES(SUM(TIMES(w, y)), c)), det));
}

MOTH_LAPACK_OP(linalg_cofactor_back, LINALG_COFACTOR_BACK, .saves = "A grad y",
               .public_name = "det",
               .doc = "The gradient of linalg_cofactor, also for singular matrices.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}, moth.ones(2, 2)  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3), moth.ones(2, 3, 3)  -- domain: matrix")

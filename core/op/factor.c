/* factor.c -- factorizations of matrices, by LAPACK: cholesky, qr, eigh, lu. Ops with singular
** values are in singular.c, eigenvalues of general matrices in eig.c. The op list of all three
** files is at the end.
**
** Gradients: Murray 2016 (cholesky), Liao, Liu, Wang & Xiang 2019 and Roberts & Roberts 2020 (qr),
** Giles 2008 (eigh, svd).
*/
#include "factor.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <math.h>

#include "call/frame.h"
#include "vendor/lapack.h"
#include "autograd/tape.h"
#include "create.h"
#include "eig.h"
#include "gradient_formula.h"
#include "index.h"
#include "join.h"
#include "rearrange.h"
#include "singular.h"
#include "solve.h"

static int copy_shape(const moth_tensor *x, int32_t ndim, moth_layout *y) {
  y->ndim = ndim;
  memcpy(y->shape, x->l.shape, (size_t)ndim * sizeof(int64_t));
  return MOTH_OK;
}

/* Copies the upper or lower triangle of the i-th matrix to y: LAPACK reads nothing else. Returns
** true if it is finite. */
static bool load_triangle(const moth_stack *s, int64_t i, bool upper, char *y) {
  const char *x = moth_stack_x(s, 0, i);
  const int64_t n = s->n;
  bool finite = true;
  for (int64_t r = 0; r < n; r++) {
    const int64_t at = (r * n + (upper ? r : 0)) * s->size;
    if (!moth_stack_load(s, x + at, 1, upper ? n - r : r + 1, y + at)) finite = false;
  }
  return finite;
}

/* -- cholesky -- */

static int linalg_cholesky_shape(const linalg_cholesky_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, true);
  return status ? status : moth_shape_like(a->A, y);
}

/* Sets the other triangle to 0. */
static void clear_other(const moth_stack *s, char *y, bool upper) {
  const int64_t n = s->n;
  for (int64_t r = 0; r < n; r++)
    if (upper) moth_stack_fill(s, y + r * n * s->size, r, 0);
    else moth_stack_fill(s, y + (r * n + r + 1) * s->size, n - r - 1, 0);
}

static int cholesky_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_cholesky_args *a = s->args;
  char *y = moth_stack_y(s, 0, i);
  const int64_t n = s->n;
  int info = 0;
  (void)scratch;
  if (!load_triangle(s, i, a->upper, y)) info = MOTH_NOT_FINITE;
  else LAPACK(s, potrf)(a->upper ? "L" : "U", &s->n, y, &s->n, &info, 1);
  if (info) moth_stack_fill(s, y, n * n, NAN);
  clear_other(s, y, a->upper);
  return info;
}

static void cholesky_side(const moth_stack *s, int64_t i, char *scratch) {
  const bool upper = ((const linalg_cholesky_args *)s->args)->upper;
  const int64_t n = s->n;
  char *x = scratch + s->a;
  const uint32_t bad = moth_side_load(s, 0, i, upper ? MOTH_UPPER : MOTH_LOWER, upper, x);
  moth_small_loops(s->wide)->cholesky(s->n, x, scratch + s->work);
  for (int64_t r = 0; r < n; r++)
    memset(x + (r * n + r + 1) * MOTH_SIDE_BYTES, 0, (size_t)(n - r - 1) * MOTH_SIDE_BYTES);
  for (int l = 0; l < moth_side_lanes(s, i); l++)
    s->info[i + l] = bad >> l & 1 ? MOTH_NOT_FINITE : (int)moth_stack_get(s, scratch + s->work, l);
  moth_side_store(s, i, upper, x, 0);
  for (int l = 0; l < moth_side_lanes(s, i); l++)
    if (s->info[i + l]) clear_other(s, moth_stack_y(s, 0, i + l), upper);
}

static int cholesky(const linalg_cholesky_args *a, moth_tensor **out, int32_t *codes) {
  moth_stack s;
  int64_t failed = -1;
  char text[160];
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  s.codes = codes;
  const double n = s.n;
  if (!status && s.n) moth_side_open(&s, cholesky_side, 0);
  if (!status && s.n) status = moth_stack_run(&s, cholesky_one, n * n * n / 3, &failed);
  if (failed >= 0 && s.failure == MOTH_NOT_FINITE) status = moth_stack_not_finite(&s, failed);
  else if (failed >= 0)
    status = moth_fail(a->ctx, MOTH_E_DOMAIN, "A", "%s is not positive-definite: the leading block "
                       "of size %d is not", moth_stack_name(&s, failed, text), s.failure);
  moth_stack_close(&s);
  return status;
}

static int linalg_cholesky_cpu(const linalg_cholesky_args *a, moth_tensor **out) {
  return cholesky(a, out, NULL);
}

#define SOLVED(matrix, right, is_upper, is_left) \
  GRAD(g, linalg_solve_triangular, .A = matrix, .B = right, .upper = is_upper, .left = is_left)
#define LOWER(p, d) GRAD(g, tril, .input = p, .diagonal = d)
#define UPPER(p, d) GRAD(g, triu, .input = p, .diagonal = d)

/* A = L L' and S = L^-T phi(L' dL) L^-1, where phi keeps the lower triangle and halves its
** diagonal. dA is the symmetric part of S. */
static int cholesky_back(moth_grad *g, const moth_tensor *a, bool upper, moth_tensor *dl) {
  moth_tensor *l = upper ? TRANSPOSED(g->out[0]) : g->out[0];
  if (upper) dl = TRANSPOSED(dl);
  moth_tensor *transposed = TRANSPOSED(l), *p = PRODUCT(transposed, dl);
  moth_tensor *s = PLUS(LOWER(p, 0), LOWER(p, -1));
  s = SOLVED(transposed, s, true, true);
  s = SOLVED(l, s, false, false);
  return moth_flow(g, a, TIMES(PLUS(s, TRANSPOSED(s)), NUMBER(0.25)));
}

static int linalg_cholesky_grad(const linalg_cholesky_args *a, moth_grad *g) {
  return cholesky_back(g, a->A, a->upper, g->dy);
}

MOTH_LAPACK_OP(linalg_cholesky, LINALG_CHOLESKY, .saves = "y",
               .doc = "The Cholesky factor: lower triangular L with A = L L^T, or with `upper` "
                      "L^T. Only one triangle of A is read.",
               .examples = "moth.tensor{{4, 1}, {1, 3}}  -- domain: symmetric\n"
                           "moth.eye(3):expand(2, 3, 3), {upper = true}  -- domain: symmetric")

static int linalg_cholesky_ex_shape(const linalg_cholesky_ex_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, true);
  y[1].dtype = MOTH_I32;
  if (!status) status = copy_shape(a->A, a->A->l.ndim - 2, &y[1]);
  return status ? status : moth_shape_like(a->A, &y[0]);
}

static int linalg_cholesky_ex_cpu(const linalg_cholesky_ex_args *a, moth_tensor **out) {
  const linalg_cholesky_args same = {.ctx = a->ctx, .A = a->A, .upper = a->upper};
  int32_t *codes = (int32_t *)(void *)moth_at(out[1]);
  memset(codes, 0, (size_t)out[1]->l.numel * sizeof *codes);
  return cholesky(&same, out, a->check_errors ? NULL : codes);
}

static int linalg_cholesky_ex_grad(const linalg_cholesky_ex_args *a, moth_grad *g) {
  return g->dys[0] ? cholesky_back(g, a->A, a->upper, g->dys[0]) : g->status;
}

MOTH_LAPACK_OP(linalg_cholesky_ex, LINALG_CHOLESKY_EX, .saves = "L", .outputs = "L, info",
               .doc = "cholesky without errors: L is NaN where A is not positive-definite. info is "
                      "the size of the first leading block that is not positive-definite, 1 where "
                      "A is not finite, and 0 on success.",
               .examples = "moth.tensor{{4, 1}, {1, 3}}  -- domain: symmetric\n"
                           "moth.eye(3), {upper = true, check_errors = true}"
                           "  -- domain: symmetric")

/* -- qr: geqrf computes R and Householder reflections, orgqr multiplies the reflections to Q -- */

enum { REDUCED, COMPLETE, NO_Q };

static int linalg_qr_shape(const linalg_qr_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (status) return status;
  const int32_t n = a->A->l.ndim;
  const int64_t rows = a->A->l.shape[n - 2], cols = a->A->l.shape[n - 1];
  const int64_t k = a->mode == COMPLETE || rows < cols ? rows : cols;
  if (a->mode == COMPLETE && rows > cols && k > INT16_MAX)
    return moth_fail(a->ctx, MOTH_E_LIMIT, "mode",
                     "a square Q of %lld columns is too large for LAPACK", (long long)k);
  copy_shape(a->A, n, &y[0]);
  copy_shape(a->A, n, &y[1]);
  y[0].shape[n - 1] = k;
  y[1].shape[n - 2] = k;
  if (a->mode == NO_Q) {
    y[0].ndim = 1;
    y[0].shape[0] = 0;
  }
  return MOTH_OK;
}

static int qr_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_qr_args *a = s->args;
  const int64_t m = s->m, n = s->n, q = s->y[1]->l.shape[s->batch]; /* number of columns of Q */
  const int columns = (int)q;
  char *x = scratch + s->a, *tau = scratch + s->tau, *r = moth_stack_y(s, 1, i);
  int info = 0;
  if (!moth_stack_turn(s, moth_stack_x(s, 0, i), m, n, x, m)) {
    if (a->mode != NO_Q) moth_stack_fill(s, moth_stack_y(s, 0, i), m * q, NAN);
    moth_stack_fill(s, r, q * n, NAN);
    return 0;
  }
  LAPACK(s, geqrf)(&s->m, &s->n, x, &s->m, tau, scratch + s->work, &s->lwork, &info);
  for (int64_t row = 0; row < q; row++)
    for (int64_t col = 0; col < n; col++)
      moth_stack_put(s, r, row * n + col, row > col ? 0 : moth_stack_get(s, x, col * m + row));
  if (info || a->mode == NO_Q) return info;
  LAPACK(s, orgqr)(&s->m, &columns, &s->k, x, &s->m, tau, scratch + s->work, &s->lwork, &info);
  moth_stack_turn(s, x, q, m, moth_stack_y(s, 0, i), q);
  return info;
}

static int linalg_qr_cpu(const linalg_qr_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int info, query = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double m = s.m, n = s.n;
  if (!status && s.k) {
    const int columns = (int)out[1]->l.shape[s.batch];
    char most[2][8];
    LAPACK(&s, geqrf)(&s.m, &s.n, NULL, &s.m, NULL, most[0], &query, &info);
    LAPACK(&s, orgqr)(&s.m, &columns, &s.k, NULL, &s.m, NULL, most[1], &query, &info);
    const int p = moth_stack_asked(&s, most[0]), q = moth_stack_asked(&s, most[1]);
    s.lwork = p > q ? p : q;
    s.a = moth_stack_reserve(&s, (int64_t)s.m * (columns > s.n ? columns : s.n), s.size);
    s.tau = moth_stack_reserve(&s, s.k, s.size);
    s.work = moth_stack_reserve(&s, s.lwork, s.size);
    status = moth_stack_run(&s, qr_one, 4 * m * n * s.k, &failed);
  } else if (!status && a->mode == COMPLETE) {
    moth_stack_identity(&s, 0);
  }
  moth_stack_close(&s);
  return status;
}

/* Returns the gradient of X = Q R for a matrix with at least as many rows as columns: (dQ + Q M)
** R^-T, where M is the lower triangle of R dR' - dQ' Q made symmetric. NULL means zero. */
static moth_tensor *qr_back(moth_grad *g, moth_tensor *q, moth_tensor *r, moth_tensor *dq,
                            moth_tensor *dr) {
  moth_tensor *m = dr ? PRODUCT(r, TRANSPOSED(dr)) : NULL;
  moth_tensor *p = dq ? PRODUCT(TRANSPOSED(dq), q) : NULL;
  m = !p ? m : m ? MINUS(m, p) : NEGATED(p);
  m = PRODUCT(q, PLUS(LOWER(m, 0), TRANSPOSED(LOWER(m, -1))));
  if (dq) m = PLUS(dq, m);
  return SOLVED(TRANSPOSED(r), m, false, false);
}

/* A matrix with more columns than rows is A = (X, Y) = Q (U, V). The gradient of V is passed
** to Y directly, and to X through Q. */
static int qr_wide_grad(const linalg_qr_args *a, moth_grad *g, moth_tensor *dq, moth_tensor *dr) {
  const int32_t d = a->A->l.ndim;
  const int64_t m = a->A->l.shape[d - 2], rest = a->A->l.shape[d - 1] - m;
#define COLUMNS(p, from, count) \
  ((p) ? GRAD(g, narrow, .input = p, .dim = -1, .start = from, .length = count) : NULL)
  moth_tensor *q = g->out[0], *r = g->out[1], *dv = COLUMNS(dr, m, rest);
  if (dv) {
    moth_tensor *more = PRODUCT(COLUMNS(a->A, m, rest), TRANSPOSED(dv));
    dq = dq ? PLUS(dq, more) : more;
  }
  moth_tensor *dx = qr_back(g, q, COLUMNS(r, 0, m), dq, COLUMNS(dr, 0, m));
  moth_tensor *dy = dv ? PRODUCT(q, dv) : ZERO_OF(COLUMNS(a->A, m, rest));
#undef COLUMNS
  moth_tensor *parts[] = {dx, dy};
  if (g->status) return g->status;
  return moth_flow(g, a->A, GRAD(g, cat, .tensors = {parts, 2}, .dim = -1));
}

static int linalg_qr_grad(const linalg_qr_args *a, moth_grad *g) {
  moth_tensor *dq = g->dys[0], *dr = g->dys[1];
  const int32_t d = a->A->l.ndim;
  const int64_t m = a->A->l.shape[d - 2], n = a->A->l.shape[d - 1];
  if (!dq && !dr) return g->status;
  if (a->mode == NO_Q)
    return moth_fail(a->ctx, MOTH_E_GRAPH, "mode",
                     "the gradient of R needs Q, which mode 'r' does not compute: use mode "
                     "'reduced'");
  if (a->mode == COMPLETE && m > n)
    return moth_fail(a->ctx, MOTH_E_GRAPH, "mode",
                     "the additional columns of a complete Q are not unique and have no gradient: "
                     "use mode 'reduced'");
  if (m < n) return qr_wide_grad(a, g, dq, dr);
  return moth_flow(g, a->A, qr_back(g, g->out[0], g->out[1], dq, dr));
}

MOTH_LAPACK_OP(linalg_qr, LINALG_QR, .saves = "A Q R", .outputs = "Q, R",
               .doc = "The QR decomposition A = Q R: Q has orthonormal columns, R is upper "
                      "triangular.",
               .examples = "moth.eye(4, 3) * 2  -- domain: matrix\n"
                           "moth.eye(3, 4):expand(2, 3, 4), {mode = 'complete'}  -- domain: matrix")

/* -- eigh -- */

static int linalg_eigh_shape(const linalg_eigh_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, true);
  if (!status) status = copy_shape(a->A, a->A->l.ndim - 1, &y[0]);
  return status ? status : moth_shape_like(a->A, &y[1]);
}

/* The second result, the vectors, is saved for the gradient. Without a gradient only the values are
** computed. */
static int linalg_eigvalsh_shape(const linalg_eigvalsh_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, true);
  if (a->ctx->grad_mode && moth_needs_grad(a->A)) moth_shape_like(a->A, &y[1]);
  else y[1].ndim = MOTH_NO_RESULT;
  return status ? status : copy_shape(a->A, a->A->l.ndim - 1, y);
}

/* Computes the eigenvalues, and the vectors if there is a second result. */
static int eigh_one(const moth_stack *s, int64_t i, char *scratch) {
  const linalg_eigh_args *a = s->args;
  const int64_t n = s->n;
  const bool vectors = s->job;
  char *x = scratch + s->a;
  int info = 0, liwork = vectors ? 3 + 5 * s->n : 1;
  if (!load_triangle(s, i, a->UPLO == 1, x)) return MOTH_NOT_FINITE;
  LAPACK(s, syevd)(vectors ? "V" : "N", a->UPLO == 0 ? "U" : "L", &s->n, x, &s->n,
                   moth_stack_y(s, 0, i), scratch + s->work, &s->lwork,
                   (int *)(void *)(scratch + s->integers), &liwork, &info, 1, 1);
  if (info || !vectors) return info;
  for (int64_t j = 0; j < n; j++)
    if (moth_stack_turns(s, x + j * n * s->size, n, 1))
      moth_stack_negate(s, x + j * n * s->size, n, 1);
  moth_stack_turn(s, x, n, n, moth_stack_y(s, 1, i), n);
  return 0;
}

static int eigh_cpu(const linalg_eigh_args *a, moth_tensor **out, bool vectors) {
  moth_stack s;
  int64_t failed = -1;
  int info, query = -1, integers;
  char most[8];
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double n = s.n;
  if (!status && s.n) {
    LAPACK(&s, syevd)(vectors ? "V" : "N", "U", &s.n, NULL, &s.n, NULL, most, &query, &integers,
                      &query, &info, 1, 1);
    s.lwork = moth_stack_asked(&s, most);
    s.job = vectors;
    s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
    s.integers = moth_stack_reserve(&s, 3 + 5 * (int64_t)s.n, sizeof(int));
    s.work = moth_stack_reserve(&s, s.lwork, s.size);
    status = moth_stack_run(&s, eigh_one, (vectors ? 9 : 2) * n * n * n, &failed);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

static int linalg_eigh_cpu(const linalg_eigh_args *a, moth_tensor **out) {
  return eigh_cpu(a, out, true);
}

static int linalg_eigvalsh_cpu(const linalg_eigvalsh_args *a, moth_tensor **out) {
  const linalg_eigh_args same = {.ctx = a->ctx, .A = a->A, .UPLO = a->UPLO};
  return eigh_cpu(&same, out, out[1] != NULL);
}

moth_tensor *moth_rotation(moth_grad *g, moth_tensor *p, moth_tensor *values) {
  if (g->status) return NULL;
  moth_tensor *e = MINUS(GRAD(g, unsqueeze, .input = values, .dim = -2),
                         GRAD(g, unsqueeze, .input = values, .dim = -1));
  moth_tensor *one = GRAD(g, eye, .n = values->l.shape[values->l.ndim - 1], .m = MOTH_NO_INT,
                          .dtype = values->l.dtype, .device = moth_device_of(values));
  moth_tensor *y = OVER(MINUS(p, TRANSPOSED(p)), PLUS(e, one));
  return PLUS(LOWER(y, -1), UPPER(y, 1));
}

/* V (diag(dL) + the turning of V' dV / 2) V' */
static int linalg_eigh_grad(const linalg_eigh_args *a, moth_grad *g) {
  moth_tensor *dl = g->dys[0], *dv = g->dys[1], *l = g->out[0], *v = g->out[1];
  moth_tensor *inside = dl ? GRAD(g, diag_embed, .input = dl, .dim1 = -2, .dim2 = -1) : NULL;
  if (!dl && !dv) return g->status;
  if (dv) {
    moth_tensor *off = TIMES(moth_rotation(g, PRODUCT(TRANSPOSED(v), dv), l), NUMBER(0.5));
    inside = inside ? PLUS(inside, off) : off;
  }
  return moth_flow(g, a->A, PRODUCT(v, PRODUCT(inside, TRANSPOSED(v))));
}

MOTH_LAPACK_OP(linalg_eigh, LINALG_EIGH, .saves = "eigenvalues eigenvectors",
               .outputs = "eigenvalues, eigenvectors",
               .doc = "The eigenvalues of a symmetric matrix, ascending, and its eigenvectors as "
                      "columns. In each vector the first entry above a tenth of the largest is "
                      "positive. Gradients assume that A is symmetric.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: symmetric\n"
                           "moth.eye(3):expand(2, 3, 3), {UPLO = 'U'}  -- domain: symmetric")

/* Under create_graph the vectors are computed again, because the vectors of the forward pass were
** not recorded. */
static int linalg_eigvalsh_grad(const linalg_eigvalsh_args *a, moth_grad *g) {
  moth_tensor *y[2] = {NULL, NULL}, *v = g->out[1];
  if (g->ctx->grad_mode) {
    g->status = MOTH_CALL(g->ctx, y, linalg_eigh, .A = a->A, .UPLO = a->UPLO);
    moth_tensor_release(y[0]);
    v = y[1] ? moth_grad_own(g, y[1]) : NULL;
  }
  moth_tensor *spread = GRAD(g, mul, .input = v, .other = GRAD(g, unsqueeze, .input = g->dy,
                                                               .dim = -2));
  return moth_flow(g, a->A, PRODUCT(spread, TRANSPOSED(v)));
}

MOTH_LAPACK_OP(linalg_eigvalsh, LINALG_EIGH, .saves = "A vectors",
               .outputs = "y, vectors: hidden",
               .doc = "The eigenvalues of a symmetric matrix, ascending. Gradients assume that A "
                      "is symmetric.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: symmetric\n"
                           "moth.eye(3):expand(2, 3, 3), {UPLO = 'U'}  -- domain: symmetric")

/* -- lu -- */

static int linalg_lu_factor_shape(const linalg_lu_factor_args *a, moth_layout *y) {
  int status = moth_check_matrices(a->ctx, "A", a->A, false);
  if (status) return status;
  const int32_t n = a->A->l.ndim;
  const int64_t rows = a->A->l.shape[n - 2], cols = a->A->l.shape[n - 1];
  moth_shape_like(a->A, &y[0]);
  copy_shape(a->A, n - 1, &y[1]);
  y[1].shape[n - 2] = rows < cols ? rows : cols;
  return MOTH_OK;
}

static int lu_one(const moth_stack *s, int64_t i, char *scratch) {
  char *x = scratch + s->a, *y = moth_stack_y(s, 0, i);
  int64_t *pivots = (int64_t *)(void *)moth_stack_y(s, 1, i);
  int *at = (int *)(void *)(scratch + s->integers);
  const bool finite = moth_stack_factor(s, i, true, x, at) != MOTH_NOT_FINITE;
  for (int j = 0; j < s->k; j++) pivots[j] = finite ? at[j] - 1 : j;
  if (finite) moth_stack_turn(s, x, s->n, s->m, y, s->n);
  else moth_stack_fill(s, y, (int64_t)s->m * s->n, NAN);
  return 0; /* a zero on the diagonal of U is not an error of this op */
}

static void lu_side(const moth_stack *s, int64_t i, char *scratch) {
  const uint32_t bad = moth_side_load(s, 0, i, MOTH_ALL, false, scratch + s->a);
  const int64_t lanes = MOTH_SIDE_BYTES / s->size;
  moth_small_loops(s->wide)->lu(s->n, scratch + s->a, scratch + s->integers, scratch + s->tau,
                                scratch + s->work);
  for (int l = 0; l < moth_side_lanes(s, i); l++) {
    int64_t *pivots = (int64_t *)(void *)moth_stack_y(s, 1, i + l);
    for (int64_t j = 0; j < s->n; j++)
      pivots[j] = bad >> l & 1 ? j : (int)moth_stack_get(s, scratch + s->integers, j * lanes + l);
    s->info[i + l] = 0;
  }
  moth_side_store(s, i, false, scratch + s->a, bad);
}

static int linalg_lu_factor_cpu(const linalg_lu_factor_args *a, moth_tensor **out) {
  moth_stack s;
  int64_t failed = -1;
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double m = s.m, n = s.n;
  if (!status && s.k) {
    if (!moth_side_open(&s, lu_side, 0)) {
      s.a = moth_stack_reserve(&s, (int64_t)s.m * s.n, s.size);
      s.integers = moth_stack_reserve(&s, s.k, sizeof(int));
    }
    status = moth_stack_run(&s, lu_one, m * n * s.k, &failed);
  }
  moth_stack_close(&s);
  return status;
}

#define PART(p, at, from, n) GRAD(g, narrow, .input = p, .dim = at, .start = from, .length = n)

/* m := L^-T m, with L the unit triangle of the square part of LU. `transposed` is the transpose of
** L. */
static moth_tensor *lower_solved(moth_grad *g, moth_tensor *transposed, moth_tensor *m) {
  return GRAD(g, linalg_solve_triangular, .A = transposed, .B = m, .upper = true, .left = true,
              .unitriangular = true);
}

/* The gradient of P' A, where A = P L U. For a square matrix it is L^-T X U^-T, where X = tril(L'
** dL, -1) + triu(dU U'). Columns beyond the square have a part V of U: their gradient is L^-T dV,
** and tril(dV V', -1) is subtracted from X. Rows beyond the square have a part W of L: their
** gradient is dW U^-T, and triu(W' dW) is subtracted from X. */
static moth_tensor *lu_back(moth_grad *g, moth_tensor *lu, moth_tensor *dlu) {
  const int32_t d = lu->l.ndim;
  const int64_t m = lu->l.shape[d - 2], n = lu->l.shape[d - 1], k = m < n ? m : n;
  moth_tensor *square = lu, *dsquare = dlu, *rest = NULL, *drest = NULL;
  const int32_t dim = m < n ? -1 : -2;
  if (m != n) {
    square = PART(lu, dim, 0, k), dsquare = PART(dlu, dim, 0, k);
    rest = PART(lu, dim, k, m + n - 2 * k), drest = PART(dlu, dim, k, m + n - 2 * k);
  }
  moth_tensor *transposed = TRANSPOSED(square), *strict = LOWER(square, -1);
  moth_tensor *p = PRODUCT(TRANSPOSED(strict), LOWER(dsquare, -1)); /* without the unit diagonal */
  p = LOWER(PLUS(p, LOWER(dsquare, -1)), -1);
  moth_tensor *x = PLUS(p, UPPER(PRODUCT(UPPER(dsquare, 0), TRANSPOSED(UPPER(square, 0))), 0));
  if (m < n) x = MINUS(x, LOWER(PRODUCT(drest, TRANSPOSED(rest)), -1));
  if (m > n) x = MINUS(x, UPPER(PRODUCT(TRANSPOSED(rest), drest), 0));
  x = SOLVED(transposed, lower_solved(g, transposed, x), false, false);
  if (m == n) return x;
  drest = m < n ? lower_solved(g, transposed, drest) : SOLVED(transposed, drest, false, false);
  moth_tensor *both[2] = {x, drest};
  return x && drest ? GRAD(g, cat, .tensors = {both, 2}, .dim = dim) : NULL;
}

static int linalg_lu_factor_grad(const linalg_lu_factor_args *a, moth_grad *g) {
  const int32_t d = a->A->l.ndim;
  if (!g->dys[0]) return g->status;
  moth_tensor *m = lu_back(g, g->out[0], g->dys[0]);
  moth_tensor *order = GRAD(g, linalg_lu_order, .pivots = g->out[1],
                            .rows = a->A->l.shape[d - 2], .inverse = true);
  order = GRAD(g, unsqueeze, .input = order, .dim = -1);
  order = GRAD(g, expand, .input = order, .size = {a->A->l.shape, d});
  return moth_flow(g, a->A, GRAD(g, gather, .input = m, .dim = -2, .index = order));
}

MOTH_LAPACK_OP(linalg_lu_factor, LINALG_LU, .saves = "LU pivots",
               .outputs = "LU, pivots: position",
               .doc = "The LU factorization with row swaps: L (without its unit diagonal) and U in "
                      "one matrix, and the row that each row was swapped with, in order.",
               .examples = "moth.tensor{{1, 2}, {3, 4}}  -- domain: matrix\n"
                           "moth.randn(2, 3)  -- domain: matrix\n"
                           "moth.randn(3, 2)  -- domain: matrix")

static int linalg_lu_order_shape(const linalg_lu_order_args *a, moth_layout *y) {
  if (a->pivots->l.ndim < 1 || a->pivots->l.shape[a->pivots->l.ndim - 1] > a->rows)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "pivots", "each row needs at most %lld pivots, got %s",
                     (long long)a->rows, moth_str(a->pivots));
  moth_shape_like(a->pivots, y);
  y->shape[y->ndim - 1] = a->rows;
  return MOTH_OK;
}

static int linalg_lu_order_cpu(const linalg_lu_order_args *a, moth_tensor **out) {
  moth_tensor *p = moth_positions(a->pivots);
  const int64_t n = a->rows, k = a->pivots->l.shape[a->pivots->l.ndim - 1];
  if (!p) return a->ctx->error.code;
  const int64_t *pivot = (const int64_t *)(const void *)moth_at(p);
  int64_t *order = (int64_t *)(void *)moth_at(out[0]), *end = order + out[0]->l.numel;
  int status = MOTH_OK;
  for (; n && order < end && !status; order += n, pivot += k) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t j = 0; j < k && !status; j++) { /* the last swap is undone first */
      const int64_t i = a->inverse ? k - 1 - j : j, other = pivot[i], row = order[i];
      if (other < 0 || other >= n)
        status = moth_fail(a->ctx, MOTH_E_INDEX, "pivots", MOTH_POS " is not one of the %lld rows",
                           (long long)other, (long long)n);
      else order[i] = order[other], order[other] = row;
    }
  }
  moth_tensor_release(p);
  return status;
}

static int linalg_lu_order_there(const void *args, moth_tensor **out) {
  return moth_on_host(&moth_op_linalg_lu_order, args, out);
}

MOTH_OP_CONST(linalg_lu_order, LINALG_LU_ORDER, .device = linalg_lu_order_there,
              .flags = MOTH_OP_HIDDEN, .outputs = "order: position", .dtypes = MOTH_ANY,
              .doc = "The row permutation of the pivots of an LU factorization.",
              .examples = "moth.tensor{2LL, 3LL, 3LL}, 3\n"
                          "moth.tensor{{2LL, 3LL}, {3LL, 3LL}}, 3, {inverse = true}",
              .public_name = "lu")

const moth_op *const moth_factor_ops[] = {
  &moth_op_linalg_cholesky, &moth_op_linalg_cholesky_ex, &moth_op_linalg_qr,
  &moth_op_linalg_eigh, &moth_op_linalg_eigvalsh, &moth_op_linalg_eig, &moth_op_linalg_eigvals,
  &moth_op_linalg_lu_factor, &moth_op_linalg_lu_order, &moth_op_linalg_svd,
  &moth_op_linalg_svdvals, &moth_op_linalg_pinv, &moth_op_linalg_lstsq_solve,
  &moth_op_linalg_cofactor_back, NULL};

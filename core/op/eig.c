/* eig.c -- eigenvalues and eigenvectors of general square matrices, by LAPACK's geev. factor.c
** lists the ops.
**
** Gradients: Giles 2008, with a projection that keeps a vector's length and phase; Boeddeker,
** Hanebrink, Drude, Heymann & Haeb-Umbach 2017 for complex values.
*/
#include "eig.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"

#include <math.h>

#include "call/frame.h"
#include "vendor/lapack.h"
#include "autograd/tape.h"
#include "create.h"
#include "gradient_formula.h"
#include "join.h"
#include "rearrange.h"
#include "reduce.h"
#include "scan.h"
#include "solve.h"

static int values_shape(const moth_tensor *x, moth_layout *y) {
  int status = moth_check_matrices(x->ctx, "A", x, true);
  if (status) return status;
  moth_shape_like(x, y);
  y->shape[y->ndim - 1] = 2;
  return MOTH_OK;
}

static int linalg_eig_shape(const linalg_eig_args *a, moth_layout *y) {
  int status = values_shape(a->A, &y[0]);
  if (status) return status;
  if (a->A->l.ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_LIMIT, "A", "%s leaves no dimension for complex numbers",
                     moth_str(a->A));
  moth_shape_like(a->A, &y[1]);
  y[1].shape[y[1].ndim++] = 2;
  return MOTH_OK;
}

/* The second result, the vectors, is saved for the gradient. Without a gradient only the values are
** computed. */
static int linalg_eigvals_shape(const linalg_eigvals_args *a, moth_layout *y) {
  const linalg_eig_args same = {.ctx = a->ctx, .A = a->A};
  if (a->ctx->grad_mode && moth_needs_grad(a->A)) return linalg_eig_shape(&same, y);
  y[1].ndim = MOTH_NO_RESULT;
  return values_shape(a->A, y);
}

/* Writes a vector to y, with `down` elements between rows; with `im` also its imaginary parts. The
** vector is rotated so that the first entry above a tenth of the largest entry is positive. With
** `im` the conjugate vector follows. The vector has length 1, so squares of entries stay in the
** range of doubles. */
#define PUT_VECTOR(real)                                                                     \
  static void put_##real(int64_t n, const real *re, const real *im, int64_t down, real *y) { \
    double most = 0, size = 0, a = 0, b = 0;                                                 \
    for (int64_t i = 0; i < n; i++) {                                                        \
      a = (double)re[i], b = im ? (double)im[i] : 0;                                         \
      most = fmax(most, a * a + b * b);                                                      \
    }                                                                                        \
    for (int64_t i = 0; i < n && size <= 0.01 * most; i++)                                   \
      a = (double)re[i], b = im ? (double)im[i] : 0, size = a * a + b * b;                   \
    size = sqrt(size);                                                                       \
    for (int64_t i = 0; i < n; i++, y += down) {                                             \
      const double c = (double)re[i], d = im ? (double)im[i] : 0;                            \
      y[0] = (real)((c * a + d * b) / size);                                                 \
      y[1] = (real)((d * a - c * b) / size);                                                 \
      if (im) y[2] = y[0], y[3] = -y[1];                                                     \
    }                                                                                        \
  }
PUT_VECTOR(float)
PUT_VECTOR(double)

/* The j-th vector of the i-th matrix := column j of x; with `pair`, columns j and j + 1 as its real
** and imaginary parts. */
static void put_vector(const moth_stack *s, const char *x, int64_t j, bool pair, int64_t i) {
  const int64_t n = s->n;
  const void *re = x + j * n * s->size, *im = pair ? x + (j + 1) * n * s->size : NULL;
  void *y = moth_stack_y(s, 1, i) + 2 * j * s->size;
  if (s->wide) put_double(n, re, im, 2 * n, y);
  else put_float(n, re, im, 2 * n, y);
}

static int eig_one(const moth_stack *s, int64_t i, char *scratch) {
  const int64_t n = s->n;
  char *x = scratch + s->a, *v = scratch + s->b, *re = scratch + s->tau, *im = re + n * s->size;
  int info = 0;
  if (!moth_stack_turn(s, moth_stack_x(s, 0, i), n, n, x, n)) return MOTH_NOT_FINITE;
  LAPACK(s, geev)("N", s->job ? "V" : "N", &s->n, x, &s->n, re, im, NULL, &s->n, v, &s->n,
                  scratch + s->work, &s->lwork, &info, 1, 1);
  for (int64_t j = 0; j < n && !info; j++) {
    moth_stack_put(s, moth_stack_y(s, 0, i), 2 * j, moth_stack_get(s, re, j));
    moth_stack_put(s, moth_stack_y(s, 0, i), 2 * j + 1, moth_stack_get(s, im, j));
    const double above = moth_stack_get(s, im, j); /* the first value of a conjugate pair */
    if (s->job && above >= 0) put_vector(s, v, j, above > 0, i);
  }
  return info;
}

static int eig_cpu(const linalg_eig_args *a, moth_tensor **out, bool vectors) {
  moth_stack s;
  int64_t failed = -1;
  int info, query = -1;
  char most[8];
  int status = moth_stack_open(&s, a, a->A, NULL, out, 0);
  const double n = s.n;
  if (!status && s.n) {
    LAPACK(&s, geev)("N", vectors ? "V" : "N", &s.n, NULL, &s.n, NULL, NULL, NULL, &s.n, NULL, &s.n,
                     most, &query, &info, 1, 1);
    s.lwork = moth_stack_asked(&s, most);
    s.job = vectors;
    s.a = moth_stack_reserve(&s, (int64_t)s.n * s.n, s.size);
    s.b = moth_stack_reserve(&s, vectors ? (int64_t)s.n * s.n : 0, s.size);
    s.tau = moth_stack_reserve(&s, 2 * (int64_t)s.n, s.size);
    s.work = moth_stack_reserve(&s, s.lwork, s.size);
    status = moth_stack_run(&s, eig_one, (vectors ? 25 : 10) * n * n * n, &failed);
  }
  if (failed >= 0) status = moth_stack_not_converged(&s, failed);
  moth_stack_close(&s);
  return status;
}

static int linalg_eig_cpu(const linalg_eig_args *a, moth_tensor **out) {
  return eig_cpu(a, out, true);
}

static int linalg_eigvals_cpu(const linalg_eigvals_args *a, moth_tensor **out) {
  const linalg_eig_args same = {.ctx = a->ctx, .A = a->A};
  return eig_cpu(&same, out, out[1] != NULL);
}

/* -- gradients: a complex matrix is two real matrices -- */

typedef struct parts {
  moth_tensor *re, *im;
} parts;

static parts parts_of(moth_grad *g, moth_tensor *x) {
  return (parts){GRAD(g, select, .input = x, .dim = -1, .index = 0),
                 GRAD(g, select, .input = x, .dim = -1, .index = 1)};
}

static parts adjoint_times(moth_grad *g, parts x, parts y) { /* x* y */
  moth_tensor *re = TRANSPOSED(x.re), *im = TRANSPOSED(x.im);
  return (parts){PLUS(PRODUCT(re, y.re), PRODUCT(im, y.im)),
                 MINUS(PRODUCT(re, y.im), PRODUCT(im, y.re))};
}

static parts times_adjoint(moth_grad *g, parts x, parts y) { /* x y* */
  moth_tensor *re = TRANSPOSED(y.re), *im = TRANSPOSED(y.im);
  return (parts){PLUS(PRODUCT(x.re, re), PRODUCT(x.im, im)),
                 MINUS(PRODUCT(x.im, re), PRODUCT(x.re, im))};
}

static moth_tensor *column_sum(moth_grad *g, moth_tensor *x) {
  static const int64_t rows[] = {-2};
  return GRAD(g, sum, .input = x, .dim = {rows, 1}, .keepdim = true, .dtype = -1);
}

/* Returns 1 at the entry of each column that was made positive, else 0. */
static moth_tensor *first_large(moth_grad *g, parts v) {
  static const int64_t rows[] = {-2};
  moth_tensor *size = PLUS(OF(square, v.re), OF(square, v.im));
  moth_tensor *most = GRAD(g, amax, .input = size, .dim = {rows, 1}, .keepdim = true);
  moth_tensor *large = ABOVE(size, TIMES(most, NUMBER(0.01)));
  large = GRAD(g, cast, .input = large, .dtype = v.re->l.dtype);
  moth_tensor *so_far = GRAD(g, cumsum, .input = large, .dim = -2, .dtype = -1);
  return TIMES(large, BELOW(so_far, NUMBER(1.5)));
}

/* Returns the gradient dv of the columns v without the components that change the columns' lengths
** and the phases of the first large entries. */
static parts free_part(moth_grad *g, parts v, parts dv) {
  moth_tensor *a = column_sum(g, PLUS(TIMES(dv.re, v.re), TIMES(dv.im, v.im)));
  moth_tensor *b = column_sum(g, MINUS(TIMES(dv.re, v.im), TIMES(dv.im, v.re)));
  moth_tensor *first = first_large(g, v);
  if (g->status) return dv;
  b = TIMES(first, OVER(b, column_sum(g, TIMES(first, v.re))));
  return (parts){MINUS(dv.re, TIMES(v.re, a)), PLUS(MINUS(dv.im, TIMES(v.im, a)), b)};
}

/* Returns the real part of V^-* (diag(dL) + (V* D) / E*) V*, where E(i, j) = L(j) - L(i). */
static moth_tensor *eig_back(moth_grad *g, moth_tensor *l, moth_tensor *vectors, moth_tensor *dl,
                             moth_tensor *dvectors) {
  const parts v = parts_of(g, vectors), w = parts_of(g, l);
  parts m = {NULL, NULL}, d = {NULL, NULL};
  if (g->status) return NULL;
  if (dvectors) {
    m = adjoint_times(g, v, free_part(g, v, parts_of(g, dvectors)));
#define APART(p) \
  MINUS(GRAD(g, unsqueeze, .input = p, .dim = -2), GRAD(g, unsqueeze, .input = p, .dim = -1))
    moth_tensor *re = APART(w.re), *im = APART(w.im);
#undef APART
    moth_tensor *one = GRAD(g, eye, .n = w.re->l.shape[w.re->l.ndim - 1], .m = MOTH_NO_INT,
                            .dtype = w.re->l.dtype, .device = moth_device_of(w.re));
    moth_tensor *size = PLUS(PLUS(OF(square, re), OF(square, im)), one);
    m = (parts){OVER(MINUS(TIMES(m.re, re), TIMES(m.im, im)), size),
                OVER(PLUS(TIMES(m.re, im), TIMES(m.im, re)), size)};
  }
  if (dl) {
    d = parts_of(g, dl);
    d.re = GRAD(g, diag_embed, .input = d.re, .dim1 = -2, .dim2 = -1);
    d.im = GRAD(g, diag_embed, .input = d.im, .dim1 = -2, .dim2 = -1);
    m = m.re ? (parts){PLUS(m.re, d.re), PLUS(m.im, d.im)} : d;
  }
  m = times_adjoint(g, m, v);
  moth_tensor *re = TRANSPOSED(v.re), *im = TRANSPOSED(v.im); /* V* is re - i im */
  moth_tensor *above[] = {re, im}, *below[] = {NEGATED(im), re}, *side[] = {m.re, m.im};
  if (g->status) return NULL;
  moth_tensor *rows[] = {GRAD(g, cat, .tensors = {above, 2}, .dim = -1),
                         GRAD(g, cat, .tensors = {below, 2}, .dim = -1)};
  if (g->status) return NULL;
  moth_tensor *y = GRAD(g, linalg_solve, .A = GRAD(g, cat, .tensors = {rows, 2}, .dim = -2),
                        .B = GRAD(g, cat, .tensors = {side, 2}, .dim = -2), .left = true);
  return GRAD(g, narrow, .input = y, .dim = -2, .length = v.re->l.shape[v.re->l.ndim - 1]);
}

static int linalg_eig_grad(const linalg_eig_args *a, moth_grad *g) {
  if (!g->dys[0] && !g->dys[1]) return g->status;
  return moth_flow(g, a->A, eig_back(g, g->out[0], g->out[1], g->dys[0], g->dys[1]));
}

MOTH_LAPACK_OP(linalg_eig, LINALG_EIG, .saves = "eigenvalues eigenvectors",
               .outputs = "eigenvalues, eigenvectors",
               .doc = "The eigenvalues of a matrix, complex numbers as pairs, (..., N, 2), and its "
                      "eigenvectors of length 1 as columns, (..., N, N, 2). In each vector the "
                      "first entry above a tenth of the largest is real and positive. The gradient "
                      "of the vectors is undefined where eigenvalues are equal.",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3)  -- domain: matrix")

/* Under create_graph the vectors are computed again, because the vectors of the forward pass were
** not recorded. */
static int linalg_eigvals_grad(const linalg_eigvals_args *a, moth_grad *g) {
  moth_tensor *y[2] = {NULL, NULL}, *l = g->out[0], *v = g->out[1];
  if (g->ctx->grad_mode) {
    g->status = MOTH_CALL(g->ctx, y, linalg_eig, .A = a->A);
    l = y[0] ? moth_grad_own(g, y[0]) : NULL;
    v = y[1] ? moth_grad_own(g, y[1]) : NULL;
  }
  return moth_flow(g, a->A, g->status ? NULL : eig_back(g, l, v, g->dy, NULL));
}

MOTH_LAPACK_OP(linalg_eigvals, LINALG_EIG, .saves = "A y vectors",
               .outputs = "y, vectors: hidden",
               .doc = "The eigenvalues of a matrix, complex numbers as pairs, (..., N, 2).",
               .examples = "moth.tensor{{2, 1}, {1, 3}}  -- domain: matrix\n"
                           "moth.eye(3):expand(2, 3, 3)  -- domain: matrix")

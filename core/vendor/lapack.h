/* lapack.h -- what the ops of linear algebra share: LAPACK, found at run time, and the walk over a
** stack of matrices, each of which one thread gives to it.
**
** LAPACK counts elements down the columns, Moth along the rows: what lies here as A is A' there.
** Most ops turn that to account instead of turning matrices.
*/
#ifndef MOTH_LAPACK_H
#define MOTH_LAPACK_H

#include "device/device.h"
#include "kernel/small.h"

/* -- the library -- */

#define IN const int *
#define TEXT const char *
#define LENGTH size_t /* of a text, as Fortran's compilers pass it: behind all arguments */
#define MOTH_LAPACK_LIST(X) \
  X(potrf, (TEXT uplo, IN n, void *a, IN lda, int *info, LENGTH)) \
  X(getrf, (IN m, IN n, void *a, IN lda, int *pivots, int *info)) \
  X(getri, (IN n, void *a, IN lda, IN pivots, void *work, IN lwork, int *info)) \
  X(trsm,  (TEXT side, TEXT uplo, TEXT trans, TEXT diag, IN m, IN n, const void *alpha, \
            const void *a, IN lda, void *b, IN ldb, LENGTH, LENGTH, LENGTH, LENGTH)) \
  X(geqrf, (IN m, IN n, void *a, IN lda, void *tau, void *work, IN lwork, int *info)) \
  X(orgqr, (IN m, IN n, IN k, void *a, IN lda, const void *tau, void *work, IN lwork, int *info)) \
  X(syevd, (TEXT jobz, TEXT uplo, IN n, void *a, IN lda, void *w, void *work, IN lwork, \
            int *iwork, IN liwork, int *info, LENGTH, LENGTH)) \
  X(geev,  (TEXT jobvl, TEXT jobvr, IN n, void *a, IN lda, void *wr, void *wi, void *vl, IN ldvl, \
            void *vr, IN ldvr, void *work, IN lwork, int *info, LENGTH, LENGTH)) \
  X(gesdd, (TEXT jobz, IN m, IN n, void *a, IN lda, void *s, void *u, IN ldu, void *vt, IN ldvt, \
            void *work, IN lwork, int *iwork, int *info, LENGTH)) \
  X(gels,  (TEXT trans, IN m, IN n, IN nrhs, void *a, IN lda, void *b, IN ldb, void *work, \
            IN lwork, int *info, LENGTH)) \
  X(gelsy, (IN m, IN n, IN nrhs, void *a, IN lda, void *b, IN ldb, int *jpvt, const void *rcond, \
            int *rank, void *work, IN lwork, int *info)) \
  X(gelss, (IN m, IN n, IN nrhs, void *a, IN lda, void *b, IN ldb, void *s, const void *rcond, \
            int *rank, void *work, IN lwork, int *info)) \
  X(gelsd, (IN m, IN n, IN nrhs, void *a, IN lda, void *b, IN ldb, void *s, const void *rcond, \
            int *rank, void *work, IN lwork, int *iwork, int *info))

#define MOTH_LAPACK_FIELD(name, arguments) void (*name[2]) arguments; /* of floats, of doubles */
typedef struct moth_lapack { MOTH_LAPACK_LIST(MOTH_LAPACK_FIELD) } moth_lapack;
#undef IN
#undef TEXT
#undef LENGTH

/* -- a stack of matrices -- */

typedef struct moth_stack moth_stack;

/* Works on the i-th matrix; returns LAPACK's info, or MOTH_NOT_FINITE. `scratch` is this lane's. */
typedef int moth_stack_work(const moth_stack *s, int64_t i, char *scratch);

/* Works on as many as lie side by side, from the i-th on; their infos go to s->info. */
typedef void moth_side_work(const moth_stack *s, int64_t i, char *scratch);

#define MOTH_NOT_FINITE INT32_MIN /* it has infinities or NaN, which LAPACK may never return from */

struct moth_stack {
  moth_ctx *ctx;
  const void *args;       /* the op's */
  const moth_lapack *lapack;
  int wide;               /* 0: f32, 1: f64 */
  int64_t size;           /* bytes of an element */
  int m, n, k, nrhs;      /* rows, columns, the smaller of both; right sides */
  moth_layout over;       /* its leading dimensions, `batch` of them, are those of the stack */
  int32_t batch;
  int64_t count;          /* matrices */
  const moth_tensor *x[2]; /* what is read, packed */
  int32_t inner[2];       /* dimensions of a single one: 2, or 1 of a vector */
  moth_tensor **y;        /* results, packed */
  int lwork;              /* elements of LAPACK's own memory */
  int job;                /* which results are wanted, as the op counts them */
  int64_t a, b, tau, integers, work; /* where in the scratch parts begin, in bytes */
  int64_t room;           /* bytes of scratch for each lane */
  moth_stack_work *each;
  moth_side_work *side;   /* instead of it, where matrices are small and many */
  int *info;              /* of each, while it runs */
  int32_t *codes;         /* where they go instead of being failures, or NULL */
  int failure;            /* that of the first which failed */
};

#define LAPACK(s, name) ((s)->lapack->name[(s)->wide])

/* Packs what is read and finds LAPACK; `first` gives m and n. After this, and after errors of it
** too, comes moth_stack_close. */
int moth_stack_open(moth_stack *s, const void *args, const moth_tensor *first,
                    const moth_tensor *second, moth_tensor **out, int32_t vector);
/* Reserves n elements of scratch, or ints; the bytes before them. */
int64_t moth_stack_reserve(moth_stack *s, int64_t n, int64_t size);
/* What LAPACK has answered to the question for its own memory, which floats may round down. */
int moth_stack_asked(const moth_stack *s, const char *answer);
/* Runs `each` over all matrices, of about `flops` operations; *failed is the first of those whose
** info is not 0, or -1. With s->codes none is: there they stand, MOTH_NOT_FINITE as 1. */
int moth_stack_run(moth_stack *s, moth_stack_work *each, double flops, int64_t *failed);
void moth_stack_close(moth_stack *s);

/* -- small ones, side by side, which takes a tenth of LAPACK's time: kernel/small.h -- */

/* Lets `side` do what `each` would, of square matrices and `nrhs` right sides, if that is faster.
** It reserves s->a and s->b for matrices and right sides, and the rest of what `lu` writes. */
bool moth_side_open(moth_stack *s, moth_side_work *side, int nrhs);
int moth_side_lanes(const moth_stack *s, int64_t i); /* of them in use */
enum { MOTH_ALL, MOTH_LOWER, MOTH_UPPER };
/* y := that part of what is read, or turned; bits tell which ones are not finite. */
uint32_t moth_side_load(const moth_stack *s, int which, int64_t i, int part, bool turned, char *y);
/* The first result := x, or turned; NaN where there is an info, or the bit of `bad` is set. */
void moth_side_store(const moth_stack *s, int64_t i, bool turned, const char *x, uint32_t bad);

/* Where the i-th of what is read, or of the results, begins. */
const char *moth_stack_x(const moth_stack *s, int which, int64_t i);
char *moth_stack_y(const moth_stack *s, int which, int64_t i);

/* y := x of rows by cols, and whether all of it is finite; or x turned: y of cols by rows, of which
** `step` elements lead from one to the next. */
bool moth_stack_load(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y);
bool moth_stack_turn(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y,
                     int64_t step);
void moth_stack_fill(const moth_stack *s, char *y, int64_t n, double value);
void moth_stack_identity(const moth_stack *s, int which); /* all of that result */
/* Swaps n elements, `step` apart. */
void moth_stack_swap(const moth_stack *s, char *x, char *y, int64_t n, int64_t step);
/* Whether the first of n elements above a tenth of the largest is negative: vectors that are
** unique up to their sign are given with that one positive. And -y. */
bool moth_stack_turns(const moth_stack *s, const char *x, int64_t n, int64_t step);
void moth_stack_negate(const moth_stack *s, char *y, int64_t n, int64_t step);
/* x := the LU factors of the i-th matrix, of which LAPACK takes rows for columns unless it is
** `turned`, and its pivots; their info, or MOTH_NOT_FINITE. solve.c has it. */
int moth_stack_factor(const moth_stack *s, int64_t i, bool turned, char *x, int *pivots);
/* One element. */
double moth_stack_get(const moth_stack *s, const char *x, int64_t i);
void moth_stack_put(const moth_stack *s, char *y, int64_t i, double value);

/* "matrix 3 of f32 (5, 2, 2)", or "f32 (2, 2)", in the context's own memory. */
const char *moth_stack_name(const moth_stack *s, int64_t i, char text[160]);
/* E_DOMAIN: the i-th matrix has infinities or NaN; or that, or its iteration does not end. */
int moth_stack_not_finite(const moth_stack *s, int64_t i);
int moth_stack_not_converged(const moth_stack *s, int64_t i);

/* -- shape rules -- */

/* Whether x is (..., M, N), or with `square` (..., N, N), of sizes that LAPACK can count. */
int moth_check_matrices(moth_ctx *ctx, const char *arg, const moth_tensor *x, bool square);
/* Whether B is a stack of vectors beside A, by PyTorch's rule. */
bool moth_vectors(const moth_tensor *a, const moth_tensor *b);
/* y := the leading dimensions of both, broadcast; `inner` dimensions of B are its matrix. */
int moth_stack_shape(moth_ctx *ctx, const moth_tensor *a, const moth_tensor *b, int32_t inner,
                     moth_layout *y);

/* -- devices -- */

/* An op's `_cpu` for tensors on a device: on copies, for which it waits. */
int moth_on_host(const moth_op *op, const void *args, moth_tensor **out);

/* MOTH_OP for an op that LAPACK computes, wherever its tensors lie. */
#define MOTH_LAPACK_OP(op, LIST, ...)                                   \
  static int op##_there(const void *args, moth_tensor **out) {          \
    return moth_on_host(&moth_op_##op, args, out);                      \
  }                                                                     \
  MOTH_OP(op, LIST, .device = op##_there, .flags = MOTH_OP_HIDDEN,      \
          .dtypes = MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64), __VA_ARGS__)

#endif

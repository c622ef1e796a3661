/* lapack.h -- shared by the ops of linear algebra: LAPACK, found at run time, and loops over stacks
** of matrices, in which one thread calls LAPACK for each matrix.
**
** LAPACK's matrices are column-major, Moth's are row-major: a matrix A of Moth is A' for LAPACK.
** Most ops use that instead of transposing matrices.
*/
#ifndef MOTH_LAPACK_H
#define MOTH_LAPACK_H

#include "device/device.h"
#include "kernel/small.h"

/* -- the library -- */

#define IN const int *
#define TEXT const char *
#define LENGTH size_t /* of a text; Fortran compilers pass it after all arguments */
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

#define MOTH_LAPACK_FIELD(name, arguments) void (*name[2]) arguments; /* for floats, for doubles */
typedef struct moth_lapack { MOTH_LAPACK_LIST(MOTH_LAPACK_FIELD) } moth_lapack;
#undef IN
#undef TEXT
#undef LENGTH

/* -- a stack of matrices -- */

typedef struct moth_stack moth_stack;

/* Computes matrix i. Returns LAPACK's info, or MOTH_NOT_FINITE. `scratch` belongs to the thread. */
typedef int moth_stack_work(const moth_stack *s, int64_t i, char *scratch);

/* Computes several interleaved matrices, from matrix i on. Sets their s->info. */
typedef void moth_side_work(const moth_stack *s, int64_t i, char *scratch);

#define MOTH_NOT_FINITE INT32_MIN /* infinity or NaN, for which LAPACK may never return */

struct moth_stack {
  moth_ctx *ctx;
  const void *args;       /* the op's arguments */
  const moth_lapack *lapack;
  int wide;               /* 0: f32, 1: f64 */
  int64_t size;           /* bytes of an element */
  int m, n, k, nrhs;      /* rows, columns, min(m, n); right sides */
  moth_layout over;       /* its first `batch` dimensions are those of the stack */
  int32_t batch;
  int64_t count;          /* matrices */
  const moth_tensor *x[2]; /* inputs, packed */
  int32_t inner[2];       /* dimensions of one element of the stack: 2; 1 for a vector */
  moth_tensor **y;        /* results, packed */
  int lwork;              /* elements of LAPACK's work array */
  int job;                /* which results are needed; its meaning depends on the op */
  int64_t a, b, tau, integers, work; /* offsets of the parts of scratch, in bytes */
  int64_t scratch_size;   /* bytes of scratch per thread */
  moth_stack_work *each;
  moth_side_work *side;   /* instead of `each` for many small matrices */
  int *info;              /* per matrix, while it runs */
  int32_t *codes;         /* receives the infos, which are then no errors; or NULL */
  int failure;            /* info of the first matrix that failed */
};

#define LAPACK(s, name) ((s)->lapack->name[(s)->wide])

/* Packs the inputs and finds LAPACK; m and n are those of `first`. moth_stack_close must follow,
** even after an error. */
int moth_stack_open(moth_stack *s, const void *args, const moth_tensor *first,
                    const moth_tensor *second, moth_tensor **out, int32_t vector);
/* Reserves n elements of `size` bytes in scratch. Returns their offset. */
int64_t moth_stack_reserve(moth_stack *s, int64_t n, int64_t size);
/* The size of the work array that LAPACK returned in `answer`. A float may be rounded down. */
int moth_stack_asked(const moth_stack *s, const char *answer);
/* Runs `each` for all matrices; one takes about `flops` operations. *failed is the first matrix
** whose info is not 0, or -1. If s->codes is set, it receives the infos, MOTH_NOT_FINITE as 1, and
** none counts as failed. */
int moth_stack_run(moth_stack *s, moth_stack_work *each, double flops, int64_t *failed);
void moth_stack_close(moth_stack *s);

/* -- many small matrices, interleaved: takes a tenth of LAPACK's time, see kernel/small.h -- */

/* Uses `side` instead of `each` for square matrices and `nrhs` right sides, if that is faster.
** Reserves s->a and s->b for matrices and right sides, and the other parts that `lu` writes. */
bool moth_side_open(moth_stack *s, moth_side_work *side, int nrhs);
int moth_side_lanes(const moth_stack *s, int64_t i); /* how many matrices it has */
enum { MOTH_ALL, MOTH_LOWER, MOTH_UPPER };
/* Interleaves that part of the inputs into y, or its transpose. Sets a bit for each matrix with
** infinity or NaN. */
uint32_t moth_side_load(const moth_stack *s, int which, int64_t i, int part, bool turned, char *y);
/* Writes x, or its transpose, to the first result. A matrix with an info or a bit of `bad` becomes
** NaN. */
void moth_side_store(const moth_stack *s, int64_t i, bool turned, const char *x, uint32_t bad);

/* The address of matrix i of an input, or of a result. */
const char *moth_stack_x(const moth_stack *s, int which, int64_t i);
char *moth_stack_y(const moth_stack *s, int which, int64_t i);

/* y := x of rows by cols. Returns false if an element is infinite or NaN. moth_stack_turn
** transposes: y of cols by rows, with `step` elements between its rows. */
bool moth_stack_load(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y);
bool moth_stack_turn(const moth_stack *s, const char *x, int64_t rows, int64_t cols, char *y,
                     int64_t step);
void moth_stack_fill(const moth_stack *s, char *y, int64_t n, double value);
void moth_stack_identity(const moth_stack *s, int which); /* every matrix of that result */
/* Swaps n elements that are `step` apart. */
void moth_stack_swap(const moth_stack *s, char *x, char *y, int64_t n, int64_t step);
/* Is the first of n elements above a tenth of the largest negative? Vectors that are unique up to
** their sign are returned with that element positive. moth_stack_negate negates a vector. */
bool moth_stack_turns(const moth_stack *s, const char *x, int64_t n, int64_t step);
void moth_stack_negate(const moth_stack *s, char *y, int64_t n, int64_t step);
/* x := the LU factors of matrix i and its pivots, with rows and columns exchanged unless `turned`.
** Returns its info, or MOTH_NOT_FINITE. Defined in solve.c. */
int moth_stack_factor(const moth_stack *s, int64_t i, bool turned, char *x, int *pivots);
/* Reads or writes one element. */
double moth_stack_get(const moth_stack *s, const char *x, int64_t i);
void moth_stack_put(const moth_stack *s, char *y, int64_t i, double value);

/* "matrix 3 of f32 (5, 2, 2)", or "f32 (2, 2)". Uses the context's text buffers. */
const char *moth_stack_name(const moth_stack *s, int64_t i, char text[160]);
/* Fails with E_DOMAIN: matrix i has infinity or NaN; moth_stack_not_converged: that, or LAPACK's
** iteration did not converge. */
int moth_stack_not_finite(const moth_stack *s, int64_t i);
int moth_stack_not_converged(const moth_stack *s, int64_t i);

/* -- shape rules -- */

/* Checks that x is (..., M, N), or with `square` (..., N, N), with sizes that LAPACK can count. */
int moth_check_matrices(moth_ctx *ctx, const char *arg, const moth_tensor *x, bool square);
/* Is B a stack of vectors for A, by PyTorch's rule? */
bool moth_vectors(const moth_tensor *a, const moth_tensor *b);
/* y := the leading dimensions of both, broadcast. The last `inner` dimensions of B are its
** matrix. */
int moth_stack_shape(moth_ctx *ctx, const moth_tensor *a, const moth_tensor *b, int32_t inner,
                     moth_layout *y);

/* -- devices -- */

/* Runs an op's `_cpu` for tensors on a device, on copies. Waits for the device. */
int moth_on_host(const moth_op *op, const void *args, moth_tensor **out);

/* MOTH_OP for an op that LAPACK computes, on any device. */
#define MOTH_LAPACK_OP(op, LIST, ...)                                   \
  static int op##_there(const void *args, moth_tensor **out) {          \
    return moth_on_host(&moth_op_##op, args, out);                      \
  }                                                                     \
  MOTH_OP(op, LIST, .device = op##_there, .flags = MOTH_OP_HIDDEN,      \
          .dtypes = MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64), __VA_ARGS__)

#endif

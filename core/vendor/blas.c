/* blas.c -- finds a BLAS and chooses the code for each matrix product: Moth's own tiles for f32 if
** they are compiled for this processor, otherwise the library, as for f64.
**
** The library is opened once per process, by the first context that needs it. It is the only state
** in this file and does not change afterwards.
*/
#include "blas.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "device/device.h"
#include "kernel/gemm/half_product.h"
#include "kernel/gemm/igemm.h"
#include "kernel/level.h"
#include "kernel/gemm/matrix.h"
#include "base/system.h"
#include "base/threads.h"

#define PAUSE_PRODUCTS (1 << 16) /* multiply-adds of plain loops between two polls of a slice */
#define MIN_BLAS_WORK 1024 /* products up to this m n k are faster without a call */
#define PANEL 128          /* rows or columns per call of a large product */
#define BLAS_PER_NS 30.0   /* multiply-adds per ns of a library, roughly */

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef void sgemm_function(int, int, int, int, int, int, float, const float *, int, const float *,
                            int, float, float *, int);
typedef void dgemm_function(int, int, int, int, int, int, double, const double *, int,
                            const double *, int, double, double *, int);
typedef void sgemv_function(int, int, int, int, float, const float *, int, const float *, int,
                            float, float *, int);
typedef void dgemv_function(int, int, int, int, double, const double *, int, const double *, int,
                            double, double *, int);

static struct {
  bool found;
  void *library;
  sgemm_function *sgemm;
  dgemm_function *dgemm;
  sgemv_function *sgemv;
  dgemv_function *dgemv;
  char name[256];
} blas;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int opened;

/* -- finding the library -- */

static bool symbol(void *library, const char *name, void *function) {
  void *at = moth_library_symbol(library, name);
  memcpy(function, &at, sizeof at);
  return at != NULL;
}

/* OpenBLAS treats a processor newer than itself as a Prescott of 2004, at a seventh of the speed.
** It is then opened again with the kernels of this processor's instruction level. */
static void *open_at_best(const char *path) {
  void *library = moth_library_open_alone(path, NULL);
  const char *better = moth_level() == MOTH_LEVEL_AVX512 ? "SkylakeX"
                       : moth_level() == MOTH_LEVEL_AVX2 ? "Haswell" : NULL;
  char *(*core)(void);
  if (!library || !better || !symbol(library, "openblas_get_corename", &core) ||
      strcmp(core(), "Prescott") != 0)
    return library;
  moth_library_close(library);
  library = moth_library_open_alone(path, better);
  return library ? library : moth_library_open_alone(path, NULL);
}

static bool take(const char *path) {
  void *library = open_at_best(path);
  if (!library) return false;
  bool all = symbol(library, "cblas_sgemm", &blas.sgemm) &&
             symbol(library, "cblas_dgemm", &blas.dgemm) &&
             symbol(library, "cblas_sgemv", &blas.sgemv) &&
             symbol(library, "cblas_dgemv", &blas.dgemv);
  if (!all) {
    moth_library_close(library);
    return false;
  }
  blas.library = library;
  void (*set_threads)(int);
  char *(*config)(void), *(*core)(void);
  if (symbol(library, "openblas_set_num_threads", &set_threads)) set_threads(1);
  bool known = symbol(library, "openblas_get_config", &config) &&
               symbol(library, "openblas_get_corename", &core);
  if (!known) snprintf(blas.name, sizeof blas.name, "%.200s", path);
  else snprintf(blas.name, sizeof blas.name, "%.160s, core %.16s (%.64s)", config(), core(), path);
  return true;
}

static void find(void) {
  static const char *const candidates[] = {MOTH_BLAS_LIBRARIES};
  const char *wanted = getenv("MOTH_BLAS");
  if (wanted && *wanted) {
    blas.found = strcmp(wanted, "builtin") != 0 && take(wanted);
    if (!blas.found && strcmp(wanted, "builtin") != 0)
      snprintf(blas.name, sizeof blas.name, "builtin (%.160s cannot be used)", wanted);
  } else {
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates && !blas.found; i++)
      blas.found = take(candidates[i]);
  }
  if (!blas.name[0]) strcpy(blas.name, "builtin");
  atomic_store_explicit(&opened, 1, memory_order_release);
}

const char *moth_blas_name(void) {
  return atomic_load_explicit(&opened, memory_order_acquire) ? blas.name : "not opened yet";
}

void *moth_blas_library(void) {
  pthread_once(&once, find);
  return blas.library;
}

/* -- operands for BLAS -- */

typedef struct matrix {
  const char *data;
  int order, step; /* PLAIN or TRANSPOSED, and the leading dimension */
  void *block;     /* a packed copy, or NULL */
  int64_t bytes;
} matrix;

static void *pack(moth_ctx *ctx, matrix *x, int from, int to, int64_t rows, int64_t cols,
                  int64_t rs, int64_t cs) {
  int64_t size = moth_dtype_size[from], wide = moth_dtype_size[to], count;
  if (moth_mul_overflow(rows, cols, &count) || moth_mul_overflow(count, wide, &x->bytes)) {
    moth_fail(ctx, MOTH_E_LIMIT, NULL, "a matrix of %lld times %lld is too large to pack",
              (long long)rows, (long long)cols);
    return NULL;
  }
  x->block = moth_alloc(ctx, x->bytes);
  if (!x->block) return NULL;
  for (int64_t i = 0; i < rows; i++)
    moth_convert(cols, from, x->data + i * rs * size, cs * size, to,
                 (char *)x->block + i * cols * wide, wide);
  x->data = x->block;
  return x->block;
}

static bool fits(int64_t n) { return n <= INT_MAX; }

static int describe(moth_ctx *ctx, matrix *x, int dtype, const char *data, int64_t rows,
                    int64_t cols, int64_t rs, int64_t cs) {
  *x = (matrix){.data = data, .order = PLAIN};
  if (rows == 1) rs = cols > 1 ? cols : 1; /* there is no next row */
  if (cols == 1) cs = 1;
  if (cs == 1 && rs >= cols && fits(rs)) {
    x->step = (int)rs;
    return MOTH_OK;
  }
  if (cols == 1) cs = rows; /* there is no next column */
  if ((rows == 1 || rs == 1) && cs >= rows && fits(cs)) {
    x->order = TRANSPOSED;
    x->step = (int)cs;
    return MOTH_OK;
  }
  x->step = (int)(cols > 1 ? cols : 1);
  return pack(ctx, x, dtype, dtype, rows, cols, rs, cs) ? MOTH_OK : ctx->error.code;
}

static void forget(moth_ctx *ctx, matrix *x) {
  if (x->block) moth_dealloc(ctx, x->block, x->bytes);
}

/* -- calls -- */

static int flip(int order) { return order == PLAIN ? TRANSPOSED : PLAIN; }

/* y (rows) := M x, where M has rows by cols elements. */
static void call_gemv(const moth_product *p, const matrix *m, int64_t rows, int64_t cols, int order,
                      const char *x, int64_t x_step, char *y, int64_t y_step) {
  bool stored = order == PLAIN; /* is M stored, or its transpose? */
  int r = (int)(stored ? rows : cols), c = (int)(stored ? cols : rows);
  if (p->dtype == MOTH_F32)
    blas.sgemv(ROW_MAJOR, order, r, c, 1, (const float *)(const void *)m->data, m->step,
               (const float *)(const void *)x, (int)x_step, (float)p->beta, (float *)(void *)y,
               (int)y_step);
  else
    blas.dgemv(ROW_MAJOR, order, r, c, 1, (const double *)(const void *)m->data, m->step,
               (const double *)(const void *)x, (int)x_step, p->beta, (double *)(void *)y,
               (int)y_step);
}

static void call_gemm(const moth_product *p, const matrix *a, const matrix *b) {
  int m = (int)p->m, n = (int)p->n, k = (int)p->k;
  if (p->dtype == MOTH_F32)
    blas.sgemm(ROW_MAJOR, a->order, b->order, m, n, k, 1, (const float *)(const void *)a->data,
               a->step, (const float *)(const void *)b->data, b->step, (float)p->beta,
               (float *)(void *)p->c, (int)p->ldc);
  else
    blas.dgemm(ROW_MAJOR, a->order, b->order, m, n, k, 1, (const double *)(const void *)a->data,
               a->step, (const double *)(const void *)b->data, b->step, p->beta,
               (double *)(void *)p->c, (int)p->ldc);
}

/* A product with one row or one column as matrix times vector. Libraries and loops are several
** times slower if it is a matrix product. */
static int blas_vector(moth_ctx *ctx, const moth_product *p) {
  bool row = p->m == 1;
  matrix m, v = {.data = row ? p->a : p->b};
  int64_t step = row ? p->cs_a : p->rs_b;
  int status = row ? describe(ctx, &m, p->dtype, p->b, p->k, p->n, p->rs_b, p->cs_b)
                   : describe(ctx, &m, p->dtype, p->a, p->m, p->k, p->rs_a, p->cs_a);
  if (!status && (step < 1 || !fits(step))) {
    if (!pack(ctx, &v, p->dtype, p->dtype, p->k, 1, step, 1)) status = ctx->error.code;
    step = 1;
  }
  if (!status && row) /* y = B' a */
    call_gemv(p, &m, p->n, p->k, flip(m.order), v.data, step, p->c, 1);
  else if (!status)
    call_gemv(p, &m, p->m, p->k, m.order, v.data, step, p->c, p->ldc);
  forget(ctx, &m);
  forget(ctx, &v);
  return status;
}

/* A large product is split into blocks that do not depend on the number of threads, since a library
** may sum in another order at the edge of a block. */
typedef struct blocks {
  const moth_product *p;
  const matrix *a, *b;
  bool by_rows;
} blocks;

static void multiply_blocks(int64_t first, int64_t last, int lane, const void *arg) {
  const blocks *w = arg;
  (void)lane;
  int64_t size = moth_dtype_size[w->p->dtype];
  for (int64_t i = first * PANEL; i < last * PANEL; i += PANEL) {
    moth_product part = *w->p;
    matrix a = *w->a, b = *w->b;
    int64_t *side = w->by_rows ? &part.m : &part.n;
    if (i >= *side) return;
    *side = *side - i < PANEL ? *side - i : PANEL;
    if (w->by_rows) a.data += i * (a.order == PLAIN ? a.step : 1) * size;
    else b.data += i * (b.order == PLAIN ? 1 : b.step) * size;
    part.c += i * (w->by_rows ? part.ldc : 1) * size;
    call_gemm(&part, &a, &b);
  }
}

static int blas_matrix(moth_ctx *ctx, const moth_product *p) {
  matrix a, b = {.data = NULL};
  int status = describe(ctx, &a, p->dtype, p->a, p->m, p->k, p->rs_a, p->cs_a);
  if (!status) status = describe(ctx, &b, p->dtype, p->b, p->k, p->n, p->rs_b, p->cs_b);
  blocks w = {p, &a, &b, p->m >= p->n};
  int64_t side = w.by_rows ? p->m : p->n, other = w.by_rows ? p->n : p->m;
  if (!status && side < 2 * PANEL)
    call_gemm(p, &a, &b);
  else if (!status)
    status = moth_parallel(ctx, (side + PANEL - 1) / PANEL, 1,
                           (double)other * (double)p->k * PANEL / BLAS_PER_NS, multiply_blocks, &w);
  forget(ctx, &a);
  forget(ctx, &b);
  return status;
}

/* Plain loops over some rows and columns at a time, with cancel checks between. */
static int plain(moth_ctx *ctx, const moth_product *p) {
  const int64_t size = moth_dtype_size[p->dtype], most = ctx->slice ? PAUSE_PRODUCTS : 1 << 22;
  const int64_t eights = most / 8 / (p->k + 1), columns = eights > 1 ? eights * 8 : 8;
  const int64_t n = p->n < columns ? p->n : columns;
  const int64_t rows = most / (n * p->k + 1) + 1;
  for (int64_t i = 0; i < p->m; i += rows)
    for (int64_t j = 0; j < p->n; j += n) {
      moth_product part = *p;
      part.m = p->m - i < rows ? p->m - i : rows;
      part.n = p->n - j < n ? p->n - j : n;
      part.a += i * p->rs_a * size;
      part.b += j * p->cs_b * size;
      part.c += (i * p->ldc + j) * size;
      moth_gemm_plain(&part);
      if (moth_cancelled(ctx)) return moth_stopped(ctx);
    }
  return MOTH_OK;
}

static int real_product(moth_ctx *ctx, const moth_product *p) {
  pthread_once(&once, find);
  bool sizes = fits(p->m) && fits(p->n) && fits(p->k) && fits(p->ldc);
  if (blas.found && sizes)
    return p->m == 1 || p->n == 1 ? blas_vector(ctx, p) : blas_matrix(ctx, p);
  if (p->m == 1 || p->n == 1) return plain(ctx, p);
  return moth_gemm_tiled(ctx, p);
}

/* Half types: widens operands into blocks, and rounds the result from a block. */
static int half_product(moth_ctx *ctx, const moth_product *p) {
  matrix a = {.data = p->a}, b = {.data = p->b}, c = {.data = p->c};
  bool ready = pack(ctx, &a, p->dtype, MOTH_F32, p->m, p->k, p->rs_a, p->cs_a) &&
               pack(ctx, &b, p->dtype, MOTH_F32, p->k, p->n, p->rs_b, p->cs_b) &&
               pack(ctx, &c, p->dtype, MOTH_F32, p->m, p->n, p->ldc, 1);
  int status = ready ? moth_gemm(ctx, MOTH_F32, p->m, p->n, p->k, a.data, p->k, 1, b.data, p->n, 1,
                                 c.block, p->n, p->beta)
                     : ctx->error.code;
  for (int64_t i = 0; i < p->m && !status; i++)
    moth_convert(p->n, MOTH_F32, c.data + i * p->n * 4, 4, p->dtype, p->c + i * p->ldc * 2, 2);
  forget(ctx, &a);
  forget(ctx, &b);
  forget(ctx, &c);
  return status;
}

static int without_bias(moth_ctx *ctx, const moth_product *p) {
  if (moth_is_half(p->dtype)) return half_product(ctx, p);
  if (!moth_is_float(p->dtype))
    return p->dtype != MOTH_BOOL && moth_igemm_pays(p) ? moth_igemm(ctx, p) : plain(ctx, p);
  if (p->k == 0 || (double)p->m * (double)p->n * (double)p->k <= MIN_BLAS_WORK) {
    moth_gemm_plain(p);
    return MOTH_OK;
  }
  return real_product(ctx, p);
}

static bool own(const moth_product *p) { return p->dtype == MOTH_F32 && moth_matrix_here(); }

bool moth_half_products(int dtype) { return moth_is_half(dtype) && moth_matrix_here(); }

bool moth_multiply_relus(const moth_product *p) {
  return p->device || own(p) || moth_half_products(p->dtype);
}

int moth_multiply(moth_ctx *ctx, const moth_product *p) {
  if (p->m == 0 || p->n == 0) return MOTH_OK;
  if (p->device) return moth_device_multiply(ctx, p, NULL);
  if (moth_half_products(p->dtype)) return moth_half_product(ctx, p);
  if (own(p)) return moth_sgemm(ctx, p);
  if (!p->bias) return without_bias(ctx, p);
  moth_product q = *p;
  int64_t size = moth_dtype_size[p->dtype];
  q.bias = NULL;
  for (int64_t i = 0; i < p->m; i++)
    memcpy(p->c + i * p->ldc * size, p->bias, (size_t)(p->n * size));
  q.beta = 1;
  return without_bias(ctx, &q);
}

/* The operand without a copy, if BLAS can read its layout; else its `order` is 0. */
static matrix seen(const char *data, int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  matrix x = {.data = data};
  if (cs == 1 && rs >= cols && fits(rs)) x.order = PLAIN, x.step = (int)rs;
  else if (rs == 1 && cs >= rows && fits(cs)) x.order = TRANSPOSED, x.step = (int)cs;
  return x;
}

void moth_multiply_inside(const moth_product *p) {
  if (p->m == 0 || p->n == 0) return;
  if (own(p)) {
    moth_sgemm_alone(p, NULL);
    return;
  }
  pthread_once(&once, find);
  matrix a = seen(p->a, p->m, p->k, p->rs_a, p->cs_a), b = seen(p->b, p->k, p->n, p->rs_b, p->cs_b);
  bool worth = (double)p->m * (double)p->n * (double)p->k > MIN_BLAS_WORK;
  bool sizes = fits(p->m) && fits(p->n) && fits(p->k) && fits(p->ldc);
  if (blas.found && worth && sizes && a.order && b.order) call_gemm(p, &a, &b);
  else moth_gemm_plain(p);
}

int moth_multiply_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch) {
  int64_t count = 1;
  for (int d = 0; d < batch->ndim; d++) count *= batch->shape[d];
  if (p->m == 0 || p->n == 0 || count == 0) return MOTH_OK;
  if (p->device) return moth_device_multiply(ctx, p, batch);
  if (own(p)) return moth_sgemm_batch(ctx, p, batch, count);
  if (moth_half_products(p->dtype)) return moth_half_product_batch(ctx, p, batch, count);
  for (int64_t i = 0; i < count; i++) {
    moth_product q = moth_batch_product(p, batch, i);
    int status = moth_multiply(ctx, &q);
    if (!status && moth_cancelled(ctx)) status = moth_stopped(ctx);
    if (status) return status;
  }
  return MOTH_OK;
}

int moth_gemm(moth_ctx *ctx, int dtype, int64_t m, int64_t n, int64_t k, const void *a,
              int64_t rs_a, int64_t cs_a, const void *b, int64_t rs_b, int64_t cs_b, void *c,
              int64_t ldc, int beta) {
  const moth_product p = {.dtype = dtype, .beta = beta, .m = m, .n = n, .k = k, .a = a, .b = b,
                          .rs_a = rs_a, .cs_a = cs_a, .rs_b = rs_b, .cs_b = cs_b, .c = c,
                          .ldc = ldc};
  return moth_multiply(ctx, &p);
}

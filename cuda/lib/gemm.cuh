/* gemm.cuh -- matrix products on the device: one entry for all who need them. */
#ifndef MOTH_CUDA_GEMM_CUH
#define MOTH_CUDA_GEMM_CUH

#include "host/launch.cuh"

/* C := alpha A B + beta C + bias, with A (m, k), B (k, n), C (m, n), all of one dtype but bool;
** relu: what is below 0 then, rounded, becomes 0. rs and cs are steps from row to row and column to
** column in elements, any of them may be 0; the rows of C are n elements in a row, ldc apart. Of a
** batch, step_c says how far its results are apart, and where beta is not 0 too. Half types are
** summed in f32; integers wrap. */
typedef struct moth_gemm {
  int dtype, device;
  int64_t m, n, k;
  const void *a, *b;
  int64_t rs_a, cs_a, rs_b, cs_b;
  void *c;
  int64_t ldc;
  const void *bias; /* n elements, or NULL */
  double alpha, beta;
  bool relu;
  const moth_batch *batch; /* or NULL */
  bool tf32;               /* f32 may be narrowed to it, whatever the context says */
  /* sums: NULL, or m elements where a device may put the sum of each row of A, of one product
  ** without bias and beta; *summed tells whether it has. */
  void *sums;
  bool *summed;
  bool ends_a, ends_b; /* lines end in zeros, up to a multiple of 16 bytes */
} moth_gemm;

MOTH_LOCAL int moth_gemm_run(moth_ctx *ctx, const moth_gemm *g);
MOTH_LOCAL int moth_cuda_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);

/* The same of one large product on tensor cores, where lines do not begin at multiples of 16 bytes:
** by copies that do (gemm_pad.cu). *done: whether it was; if not, nothing has happened. */
MOTH_LOCAL int moth_gemm_padded(moth_ctx *ctx, const moth_queue *q, const moth_gemm *g,
                                bool *done);

/* Would tensor cores do it, if it lay well? */
static inline bool moth_gemm_narrows(moth_ctx *ctx, const moth_gemm *g) {
  return moth_dtype_size[g->dtype] == 2 ? moth_is_float(g->dtype)
         : g->dtype == MOTH_F32 && (g->tf32 || moth_float32_precision(ctx));
}

/* The same by cuBLASLt (blaslt.cu), but for the relu. *done: whether it could; if not, nothing has
** happened. */
MOTH_LOCAL int moth_blaslt_run(moth_ctx *ctx, const moth_queue *q, const moth_gemm *g,
                               bool *done);
MOTH_LOCAL bool moth_blaslt_is_here(const moth_queue *q);

#endif

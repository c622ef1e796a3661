/* gemm.cuh -- matrix products on the device: one function for all callers. */
#ifndef MOTH_CUDA_GEMM_CUH
#define MOTH_CUDA_GEMM_CUH

#include "host/launch.cuh"

/* C := alpha A B + beta C + bias, with A (m, k), B (k, n), C (m, n), all of one dtype except bool;
** relu replaces negative results by 0, after rounding. rs and cs are the row and column strides in
** elements; any may be 0. The rows of C are contiguous and ldc apart. For a batch, step_c is the
** distance of its results, also if beta is not 0. Half types are summed in f32; integers wrap. */
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
  bool tf32;               /* f32 may be rounded to TF32, whatever the context's setting is */
  /* sums: NULL, or m elements for the sum of each row of A; only for one product without bias and
  ** beta, and only if the kernel can. *summed: whether they were written. */
  void *sums;
  bool *summed;
  bool ends_a, ends_b; /* lines are padded with zeros up to a multiple of 16 bytes */
} moth_gemm;

MOTH_LOCAL int moth_gemm_run(moth_ctx *ctx, const moth_gemm *g);
MOTH_LOCAL int moth_cuda_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);

/* For one large product on tensor cores whose lines are not aligned to 16 bytes: copies into
** aligned lines (gemm_pad.cu). *done: whether it ran; if not, nothing has been written. */
MOTH_LOCAL int moth_gemm_padded(moth_ctx *ctx, const moth_queue *q, const moth_gemm *g,
                                bool *done);

/* Tests if tensor cores support the product, apart from alignment. */
static inline bool moth_gemm_narrows(moth_ctx *ctx, const moth_gemm *g) {
  return moth_dtype_size[g->dtype] == 2 ? moth_is_float(g->dtype)
         : g->dtype == MOTH_F32 && (g->tf32 || moth_float32_precision(ctx));
}

/* The same by cuBLASLt (blaslt.cu), except for the relu. *done: whether cuBLASLt could; if not,
** nothing has been written. */
MOTH_LOCAL int moth_blaslt_run(moth_ctx *ctx, const moth_queue *q, const moth_gemm *g,
                               bool *done);
MOTH_LOCAL bool moth_blaslt_is_here(const moth_queue *q);

#endif

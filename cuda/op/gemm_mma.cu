/* gemm_mma.cu -- matrix products of half types on tensor cores, and of f32 as TF32 if the chosen
** precision allows it; for machines without cuBLASLt. */
#include "host/device.cuh"
#include "lib/mma_tile.cuh"
#include "lib/gemm_kernel.cuh"

/* The source of a factor's tiles: rows from `row` on, columns from `k` on and below `last`. ALONG:
** contiguous along its columns, else along its rows. */
template <bool ALONG, class T>
static __device__ inline auto lines_of(const side<T> &s, int64_t row, int64_t k, int64_t last) {
  return [=, &s](int, int line, int along, bool *inside) {
    const int64_t r = row + (ALONG ? line : along), c = k + (ALONG ? along : line);
    *inside = r < s.rows && c < last;
    return *inside ? s.at + (ALONG ? r * s.rs + c : c * s.cs + r) : s.at;
  };
}

/* Stores two neighbouring sums of a row, at an even column. */
template <class T>
static __device__ inline void put_sums(const gemm_args<T> &g, int64_t products,
                                       const one_product<T> &p, int64_t r, int64_t col, bool pairs,
                                       float x, float y) {
  const int64_t n = g.b.rows;
  if (r >= g.a.rows) return;
  T *to = p.c + r * g.ldc + col;
  float *part = g.partial + ((blockIdx.y * products + p.number) * g.a.rows + r) * n + col;
  if (!g.partial && pairs && col + 1 < n) {
    put_pair(to, finished(g, to, col, x), finished(g, to + 1, col + 1, y));
    return;
  }
  for (int i = 0; i < 2 && col + i < n; i++) {
    if (g.partial) part[i] = i ? y : x;
    else finish(g, to + i, col + i, i ? y : x);
  }
}

template <class T, int TILE, bool A, bool B>
static __global__ void __launch_bounds__(MMA_THREADS) multiply_tiles(gemm_args<T> g,
                                                                     int64_t products) {
  typedef mma_shape<T, TILE, TILE, A, B> S;
  const int64_t row = blockIdx.x / g.columns * TILE, col = blockIdx.x % g.columns * TILE;
  const one_product<T> p = enter_batch(g);
  const int64_t from = blockIdx.y * g.share;
  const int64_t to = from + g.share < g.a.cols ? from + g.share : g.a.cols;
  const bool pairs = ((uintptr_t)p.c / sizeof(T) | (uintptr_t)g.ldc) % 2 == 0;
  float c[S::MT][S::NT][4] = {};
  add_products<S>(shared_memory<T>(), from, to,
                  [&](int64_t k) { return lines_of<A>(p.a, row, k, to); },
                  [&](int64_t k) { return lines_of<B>(p.b, col, k, to); }, c);
  for_sums<S>(c, [&](int r) { return row + r; }, [&](int64_t r, int q, float x, float y) {
    put_sums(g, products, p, r, col + q, pairs, x, y);
  });
}

/* -- launching -- */

template <class T, int TILE, bool A, bool B>
static int multiply_laid(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                         const gemm_args<T> &g, int64_t products) {
  const size_t bytes = mma_shape<T, TILE, TILE, A, B>::shared_bytes;
  const auto kernel = multiply_tiles<T, TILE, A, B>;
  return multiply_in_tiles<TILE>(ctx, q, m, g, products,
                                 [&](const gemm_args<T> &now, dim3 grid) {
    return launch_on(ctx, q, kernel, grid, MMA_THREADS, bytes, now, products);
  });
}

template <class T, int TILE>
static int multiply_by_layout(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                              const gemm_args<T> &g, int64_t products) {
  if (g.a.cs == 1 && g.b.cs == 1)
    return multiply_laid<T, TILE, true, true>(ctx, q, m, g, products);
  if (g.a.cs == 1) return multiply_laid<T, TILE, true, false>(ctx, q, m, g, products);
  if (g.b.cs == 1) return multiply_laid<T, TILE, false, true>(ctx, q, m, g, products);
  return multiply_laid<T, TILE, false, false>(ctx, q, m, g, products);
}

/* Tests if a side can be copied 16 bytes at a time. ends: elements past the end of a line may be
** read. */
template <class T>
static bool by_sixteen(const side<T> &s, bool ends, int batches, const int64_t *steps) {
  const int64_t each = 16 / sizeof(T), along = s.cs == 1 ? s.cols : s.rows;
  bool good = (s.cs == 1 || s.rs == 1) && (uintptr_t)s.at % 16 == 0 &&
              (ends || along % each == 0) && (s.cs == 1 ? s.rs : s.cs) % each == 0;
  for (int d = 0; d < batches; d++) good = good && steps[d] % each == 0;
  return good;
}

template <class T>
int multiply_on_tensor_cores(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                             const gemm_args<T> &g, int64_t products, bool *done) {
  *done = false;
  if (!q->tensor_cores || (sizeof(T) == 4 && !moth_float32_precision(ctx)) ||
      mma_shape<T, 128, 128, true, true>::shared_bytes > q->shared ||
      !by_sixteen(g.a, m->ends_a, g.batch.ndim, g.batch.a) ||
      !by_sixteen(g.b, m->ends_b, g.batch.ndim, g.batch.b))
    return MOTH_OK;
  *done = true;
  if (m->m > 64 && m->n > 64 &&
      ((m->m + 127) / 128) * ((m->n + 127) / 128) * products >= q->processors / 2)
    return multiply_by_layout<T, 128>(ctx, q, m, g, products);
  return multiply_by_layout<T, 64>(ctx, q, m, g, products);
}

/* If nothing was compiled for this device, the driver compiles PTX of an older architecture. If
** that is below TENSOR_MAJOR, its code has traps in place of these products. */
cudaError_t moth_check_tensor_cores(int major, bool *run) {
  struct cudaFuncAttributes has = {};
  *run = major >= TENSOR_MAJOR;
  if (!*run) return cudaSuccess;
  const cudaError_t error =
    cudaFuncGetAttributes(&has, MOTH_KERNEL((multiply_tiles<bf16, 64, true, true>)));
  *run = has.ptxVersion >= 10 * TENSOR_MAJOR;
  return error;
}

#define MOTH_MULTIPLIES(T)                                                                    \
  template int multiply_on_tensor_cores<T>(moth_ctx *, const moth_queue *, const moth_gemm *, \
                                           const gemm_args<T> &, int64_t, bool *);
MOTH_MULTIPLIES(bf16)
MOTH_MULTIPLIES(f16)
MOTH_MULTIPLIES(float)

/* gemm_mma.cu -- matrix products of half types on tensor cores, and of f32 as TF32 where the
** precision asked for allows it; for machines without cuBLASLt.
**
** A block's four warps make a tile of TILE by TILE, each a quarter. Factors come to shared memory
** DEPTH elements along the sum at a time, by copies that run STAGES - 1 tiles ahead; they lie there
** as they lie in memory, and ldmatrix turns what has to be turned. Rows there are 16 bytes or 8
** words longer than their elements, so that what is read at a time lies in different banks.
*/
#include "mma.cuh"
#include "product.cuh"

enum { STAGES = 4, MMA_THREADS = 128, LINE = 64 }; /* LINE: bytes along the sum */

/* One factor's tile. ALONG: the dimension that is summed is contiguous. */
template <class T, int TILE, bool ALONG> struct factor {
  enum { EACH = 16 / (int)sizeof(T), DEPTH = LINE / (int)sizeof(T), STEP = 2 * EACH };
  enum { WIDE = ALONG ? DEPTH + EACH : TILE + 8, SIZE = (ALONG ? TILE : DEPTH) * WIDE };

  /* to := rows from `row` on, columns from `col` on and below `last`, zeros beyond */
  static __device__ inline void bring(T *to, const side<T> &s, int64_t row, int64_t col,
                                      int64_t last) {
    enum { ACROSS = (ALONG ? DEPTH : TILE) / EACH };
#pragma unroll
    for (int i = (int)threadIdx.x; i < TILE * DEPTH / EACH; i += MMA_THREADS) {
      const int line = i / ACROSS, at = i % ACROSS * EACH;
      const int64_t r = row + (ALONG ? line : at), c = col + (ALONG ? at : line);
      const bool inside = r < s.rows && c < last;
      copy_later<16>(to + line * WIDE + at,
                     inside ? s.at + (ALONG ? r * s.rs + c : c * s.cs + r) : s.at, inside);
    }
  }

  /* Eight rows by EACH columns four times, second and third in the order of A (BY_ROWS) or of two
  ** B: 16 rows from `row` on, STEP columns from `col` on. */
  template <bool BY_ROWS>
  static __device__ inline void load(uint32_t *to, const T *tile, int row, int col) {
    const int lane = (int)threadIdx.x % WARP;
    const int r = BY_ROWS ? lane / 8 % 2 * 8 : lane / 16 * 8;
    const int c = BY_ROWS ? lane / 16 * EACH : lane / 8 % 2 * EACH;
    if constexpr (ALONG) load_matrices(to, tile + (row + r + lane % 8) * WIDE + col + c);
    else if constexpr (sizeof(T) == 2)
      load_turned(to, tile + (col + c + lane % 8) * WIDE + row + r);
    else
      for (int i = 0; i < 4; i++) {
        const int down = (BY_ROWS ? i % 2 : i / 2) * 8 + lane / 4;
        const int over = (BY_ROWS ? i / 2 : i % 2) * EACH + lane % 4;
        to[i] = __float_as_uint(tile[(col + over) * WIDE + row + down]);
      }
    if constexpr (sizeof(T) == 4)
      for (int i = 0; i < 4; i++) to[i] = tf32_of(__uint_as_float(to[i]));
  }
};

template <class T, int TILE, bool A, bool B> struct mma_shape {
  typedef factor<T, TILE, A> left;
  typedef factor<T, TILE, B> right;
  enum { SLOT = left::SIZE + right::SIZE, MT = TILE / 32, NT = TILE / 16 };
  static constexpr size_t room = STAGES * SLOT * sizeof(T);
};

/* c += the tiles in a slot, for the quarter at (row, col). */
template <class S, class T>
static __device__ inline void add_slot(const T *slot, int row, int col, float (*c)[S::NT][4]) {
  typedef typename S::left L;
  typedef typename S::right R;
#pragma unroll
  for (int k = 0; k < L::DEPTH; k += L::STEP) {
    uint32_t p[S::MT][4], q[4];
#pragma unroll
    for (int m = 0; m < S::MT; m++) L::template load<true>(p[m], slot, row + m * 16, k);
#pragma unroll
    for (int n = 0; n < S::NT; n += 2) {
      R::template load<false>(q, slot + L::SIZE, col + n * 8, k);
#pragma unroll
      for (int m = 0; m < S::MT; m++) {
        multiply_add<T>(c[m][n], p[m], q);
        multiply_add<T>(c[m][n + 1], p[m], q + 2);
      }
    }
  }
}

/* Two neighbouring sums of a row, at an even column. */
template <class T>
static __device__ inline void put_sums(const whole_product<T> &g, int64_t products,
                                       const one_product<T> &p, int64_t r, int64_t col, bool pairs,
                                       const float *sum) {
  const int64_t n = g.b.rows;
  if (r >= g.a.rows) return;
  T *to = p.c + r * g.ldc + col;
  float *part = g.partial + ((blockIdx.y * products + p.number) * g.a.rows + r) * n + col;
  if (!g.partial && pairs && col + 1 < n) {
    const float x = finished(g, to, col, sum[0]), y = finished(g, to + 1, col + 1, sum[1]);
    if constexpr (sizeof(T) == 4) *(lump<float, 2> *)(void *)to = {{x, y}};
    else *(uint32_t *)(void *)to = pair_of<T>(x, y);
    return;
  }
  for (int i = 0; i < 2 && col + i < n; i++) {
    if (g.partial) part[i] = sum[i];
    else finish(g, to + i, col + i, sum[i]);
  }
}

template <class T, int TILE, bool A, bool B>
static __global__ void __launch_bounds__(MMA_THREADS) multiply_tiles(whole_product<T> g,
                                                                     int64_t products) {
  typedef mma_shape<T, TILE, A, B> S;
  enum { DEPTH = S::left::DEPTH };
  T *ring = shared_memory<T>();
  const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
  const int64_t row = blockIdx.x / g.columns * TILE, col = blockIdx.x % g.columns * TILE;
  const one_product<T> p = enter_batch(g);
  const int64_t from = blockIdx.y * g.share;
  const int64_t to = from + g.share < g.a.cols ? from + g.share : g.a.cols;
  const int down = warp / 2 * (TILE / 2), over = warp % 2 * (TILE / 2);
  const bool pairs = ((uintptr_t)p.c / sizeof(T) | (uintptr_t)g.ldc) % 2 == 0;
  float c[S::MT][S::NT][4] = {};
  const auto bring = [&](int slot, int64_t k) {
    if (k < to) {
      S::left::bring(ring + slot * S::SLOT, p.a, row, k, to);
      S::right::bring(ring + slot * S::SLOT + S::left::SIZE, p.b, col, k, to);
    }
    end_copies();
  };
  for (int i = 0; i < STAGES - 1; i++) bring(i, from + i * DEPTH);
  int slot = 0;
  for (int64_t k = from; k < to; k += DEPTH) {
    await_copies<STAGES - 2>();
    __syncthreads();
    bring((slot + STAGES - 1) % STAGES, k + (STAGES - 1) * DEPTH);
    add_slot<S>(ring + slot * S::SLOT, down, over, c);
    slot = (slot + 1) % STAGES;
  }
#pragma unroll
  for (int m = 0; m < S::MT; m++)
#pragma unroll
    for (int n = 0; n < S::NT; n++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        put_sums(g, products, p, row + down + m * 16 + h * 8 + lane / 4,
                 col + over + n * 8 + lane % 4 * 2, pairs, c[m][n] + 2 * h);
}

/* -- launching -- */

template <class T, int TILE, bool A, bool B>
static int multiply_laid(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                         const whole_product<T> &g, int64_t products) {
  const size_t room = mma_shape<T, TILE, A, B>::room;
  const auto kernel = multiply_tiles<T, TILE, A, B>;
  return multiply_in_tiles<TILE>(ctx, q, m, g, products,
                                 [&](const whole_product<T> &now, dim3 grid) {
    return launch_on(ctx, q, kernel, grid, MMA_THREADS, room, now, products);
  });
}

template <class T, int TILE>
static int multiply_by_layout(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                              const whole_product<T> &g, int64_t products) {
  if (g.a.cs == 1 && g.b.cs == 1)
    return multiply_laid<T, TILE, true, true>(ctx, q, m, g, products);
  if (g.a.cs == 1) return multiply_laid<T, TILE, true, false>(ctx, q, m, g, products);
  if (g.b.cs == 1) return multiply_laid<T, TILE, false, true>(ctx, q, m, g, products);
  return multiply_laid<T, TILE, false, false>(ctx, q, m, g, products);
}

/* May a side be copied 16 bytes at a time? */
template <class T> static bool by_sixteen(const side<T> &s, int batches, const int64_t *steps) {
  const int64_t each = 16 / sizeof(T), along = s.cs == 1 ? s.cols : s.rows;
  bool good = (s.cs == 1 || s.rs == 1) && (uintptr_t)s.at % 16 == 0 && along % each == 0 &&
              (s.cs == 1 ? s.rs : s.cs) % each == 0;
  for (int d = 0; d < batches; d++) good = good && steps[d] % each == 0;
  return good;
}

template <class T>
int multiply_on_tensor_cores(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                             const whole_product<T> &g, int64_t products, bool *done) {
  *done = false;
  if (q->major < TENSOR_MAJOR || (sizeof(T) == 4 && !moth_float32_precision(ctx)) ||
      mma_shape<T, 128, true, true>::room > q->shared ||
      !by_sixteen(g.a, g.batch.ndim, g.batch.a) || !by_sixteen(g.b, g.batch.ndim, g.batch.b))
    return MOTH_OK;
  *done = true;
  if (m->m > 64 && m->n > 64 &&
      ((m->m + 127) / 128) * ((m->n + 127) / 128) * products >= q->processors / 2)
    return multiply_by_layout<T, 128>(ctx, q, m, g, products);
  return multiply_by_layout<T, 64>(ctx, q, m, g, products);
}

#define MOTH_MULTIPLIES(T)                                                                   \
  template int multiply_on_tensor_cores<T>(moth_ctx *, const moth_queue *, const moth_gemm *, \
                                           const whole_product<T> &, int64_t, bool *);
MOTH_MULTIPLIES(bf16)
MOTH_MULTIPLIES(f16)
MOTH_MULTIPLIES(float)

/* mma_tile.cuh -- products of tiles on tensor cores, by blocks of four warps; used by matrix
** products (gemm_mma.cu) and convolutions (conv_mma.cu).
**
** The warps compute a tile of M by N, each a quarter of it. Factors are copied to shared memory
** DEPTH elements along the sum at a time, by asynchronous copies STAGES - 1 tiles ahead. They keep
** their order from global memory, and ldmatrix transposes them where needed. Rows in shared memory
** are padded by 16 bytes or 8 words, so that simultaneous reads are in different banks. */
#ifndef MOTH_CUDA_MMA_TILE_CUH
#define MOTH_CUDA_MMA_TILE_CUH

#include "mma.cuh"

enum { STAGES = 4, MMA_THREADS = 128, LINE = 64 }; /* LINE: bytes along the sum */

/* One factor's tile, of SIDE rows. ALONG: the summed dimension is contiguous, and a line of the
** tile is along it; else a line has SIDE elements. */
template <class T, int SIDE, bool ALONG> struct factor {
  enum { EACH = 16 / (int)sizeof(T), DEPTH = LINE / (int)sizeof(T), STEP = 2 * EACH };
  enum { WIDE = ALONG ? DEPTH + EACH : SIDE + 8, SIZE = (ALONG ? SIDE : DEPTH) * WIDE };
  enum { ACROSS = (ALONG ? DEPTH : SIDE) / EACH, COPIES = SIDE * DEPTH / EACH / MMA_THREADS };

  /* The i-th of a thread's COPIES: its line, and its first element in the line. The position along
  ** a line is the same for all copies of a thread. */
  static __device__ inline int line_of(int i) {
    return (int)threadIdx.x / ACROSS + i * (MMA_THREADS / ACROSS);
  }
  static __device__ inline int offset_in_line() { return (int)threadIdx.x % ACROSS * EACH; }

  /* Starts loading lines into `to`: from(i, line, along, &inside) returns the address of the EACH
  ** elements from `along` on; elements that are not inside become 0. */
  template <class F> static __device__ inline void load_later(T *to, F from) {
    static_assert(MMA_THREADS % ACROSS == 0, "line_of");
    const int along = offset_in_line();
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
      bool inside;
      const T *at = from(i, line_of(i), along, &inside);
      copy_later<16>(to + line_of(i) * WIDE + along, at, inside);
    }
  }

  /* Loads eight rows by EACH columns four times, the second and third in the order of A (BY_ROWS)
  ** or of two B: 16 rows from `row` on, STEP columns from `col` on. */
  template <bool BY_ROWS>
  static __device__ inline void load(uint32_t *to, const T *tile, int row, int col) {
    const int lane = (int)threadIdx.x % WARP;
    const int r = BY_ROWS ? lane / 8 % 2 * 8 : lane / 16 * 8;
    const int c = BY_ROWS ? lane / 16 * EACH : lane / 8 % 2 * EACH;
    if constexpr (ALONG) load_matrices(to, tile + (row + r + lane % 8) * WIDE + col + c);
    else if constexpr (sizeof(T) == 2)
      load_transposed(to, tile + (col + c + lane % 8) * WIDE + row + r);
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

/* A tile of M by N. ALONG_A, ALONG_B: whether the factors are contiguous along the sum. A thread
** has sums[MT][NT][4]. */
template <class T, int M, int N, bool ALONG_A, bool ALONG_B> struct mma_shape {
  typedef factor<T, M, ALONG_A> left;
  typedef factor<T, N, ALONG_B> right;
  enum { rows = M, columns = N, depth = left::DEPTH };
  enum { SLOT = left::SIZE + right::SIZE, MT = M / 32, NT = N / 16 };
  static constexpr size_t shared_bytes = STAGES * SLOT * sizeof(T);
};

/* c += the product of the tiles in a slot, for the quarter at (row, col). */
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

/* c += the products over columns `from` to `to` - 1; left(k) and right(k) return the loaders for
** `load_later`, for the tiles from column k on. ring: S::shared_bytes bytes of shared memory. */
template <class S, class T, class Left, class Right>
static __device__ inline void add_products(T *ring, int64_t from, int64_t to, Left left,
                                           Right right, float (*c)[S::NT][4]) {
  const int warp = (int)threadIdx.x / WARP;
  const int row = warp / 2 * (S::rows / 2), col = warp % 2 * (S::columns / 2);
  const auto load_later = [&](int slot, int64_t k) {
    if (k < to) {
      S::left::load_later(ring + slot * S::SLOT, left(k));
      S::right::load_later(ring + slot * S::SLOT + S::left::SIZE, right(k));
    }
    end_copies();
  };
  for (int i = 0; i < STAGES - 1; i++) load_later(i, from + i * S::depth);
  int slot = 0;
  for (int64_t k = from; k < to; k += S::depth) {
    await_copies<STAGES - 2>();
    __syncthreads();
    load_later((slot + STAGES - 1) % STAGES, k + (STAGES - 1) * S::depth);
    add_slot<S>(ring + slot * S::SLOT, row, col, c);
    slot = (slot + 1) % STAGES;
  }
}

/* Calls put(enter(row), column, x, y) for a thread's sums in the tile, by rows: two neighbours, the
** first in an even column. */
template <class S, class Enter, class Put>
static __device__ inline void for_sums(const float (*c)[S::NT][4], Enter enter, Put put) {
  const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
  const int row = warp / 2 * (S::rows / 2) + lane / 4;
  const int col = warp % 2 * (S::columns / 2) + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < S::MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int64_t where = enter(row + m * 16 + h * 8);
#pragma unroll
      for (int n = 0; n < S::NT; n++) put(where, col + n * 8, c[m][n][2 * h], c[m][n][2 * h + 1]);
    }
}

/* Stores two neighbouring elements; the first is aligned to the pair's size. */
template <class T> static __device__ inline void put_pair(T *to, float low, float high) {
  if constexpr (sizeof(T) == 4) *(vec<float, 2> *)(void *)to = {{low, high}};
  else *(uint32_t *)(void *)to = pair_of<T>(low, high);
}

#endif

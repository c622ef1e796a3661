/* gemm_tile.cuh -- products of tiles by one block of 256 threads; used by matrix products and
** attention. A tile of C has TILE rows and columns, PER * PER elements for each thread. A and B
** pass through shared memory DEPTH columns at a time, in two buffers: one is filled while the other
** is read (Volkov and Demmel 2008; Nath, Tomov and Dongarra 2010). */
#ifndef MOTH_CUDA_GEMM_TILE_CUH
#define MOTH_CUDA_GEMM_TILE_CUH

#include "elementwise.cuh"

enum { TILE_THREADS = 256, EACH_TAKES = 4 }; /* elements of A and of B that a thread loads at once
                                             */

template <int TILE> struct tile_of {
  enum {
    depth = TILE_THREADS * EACH_TAKES / TILE, /* so that each thread loads a share */
    per = TILE / 16,
    half = per < 4 ? per : 4, /* adjacent rows of a thread; its others are TILE / 2 away */
    wide = TILE + 4           /* row length in shared memory, where A is transposed */
  };
};

/* A matrix; `cols` is the dimension that is summed over. */
template <class T> struct side {
  const T *at;
  int64_t rows, cols, rs, cs;
  bool packs; /* groups of four along the contiguous dimension are aligned to their size */
};

template <class T>
static inline side<T> side_of(const void *at, int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  side<T> s = {(const T *)at, rows, cols, rs, cs, false};
  const int64_t apart = cs == 1 ? rs : cs;
  s.packs = (cs == 1 || rs == 1) && apart % EACH_TAKES == 0 &&
            (uintptr_t)at % (sizeof(T) * EACH_TAKES) == 0;
  return s;
}

/* Loads a thread's four elements of the tile from (row, col) on; 0 beyond the matrix. */
template <int TILE, class T, class R>
static __device__ inline void take(const side<T> &s, int64_t row, int64_t col, R *to) {
  enum { DEPTH = tile_of<TILE>::depth, K4 = DEPTH / EACH_TAKES, R4 = TILE / EACH_TAKES };
  const int t = (int)threadIdx.x;
  const bool along = s.cs == 1;
  const int64_t r = row + (along ? t / K4 : t % R4 * EACH_TAKES);
  const int64_t c = col + (along ? t % K4 * EACH_TAKES : t / R4);
  const int64_t last = along ? s.cols - c : s.rows - r;
  const bool inside = along ? r < s.rows : c < s.cols;
  const T *from = s.at + r * s.rs + c * s.cs;
  const int64_t step = along ? s.cs : s.rs;
  if (inside && s.packs && last >= EACH_TAKES) {
    const vec<T, EACH_TAKES> four = *(const vec<T, EACH_TAKES> *)(const void *)from;
#pragma unroll
    for (int j = 0; j < EACH_TAKES; j++) to[j] = (R)get(&four.at[j]);
    return;
  }
#pragma unroll
  for (int j = 0; j < EACH_TAKES; j++)
    to[j] = inside && j < last ? (R)get(from + j * step) : (R)0;
}

/* Stores the loaded elements in the order in which the product reads them: buffer[k][row]. */
template <int TILE, class R>
static __device__ inline void lay(R *buffer, bool along, const R *four) {
  enum { DEPTH = tile_of<TILE>::depth, K4 = DEPTH / EACH_TAKES, R4 = TILE / EACH_TAKES };
  enum { WIDE = tile_of<TILE>::wide };
  const int t = (int)threadIdx.x;
  if (along)
#pragma unroll
    for (int j = 0; j < EACH_TAKES; j++)
      buffer[(t % K4 * EACH_TAKES + j) * WIDE + t / K4] = four[j];
  else
#pragma unroll
    for (int j = 0; j < EACH_TAKES; j++)
      buffer[t / R4 * WIDE + t % R4 * EACH_TAKES + j] = four[j];
}

/* Row i of a thread's PER rows in a tile; `line` is the thread's index among 16. */
template <int TILE> static __device__ inline int place(int line, int i) {
  enum { HALF = tile_of<TILE>::half };
  return i / HALF * (TILE / 2) + line * HALF + i % HALF;
}

/* c += a b for tiles in shared memory, `depth` deep, aligned to 32 bytes. */
template <int TILE, class R>
static __device__ inline void add_shared(const R *a, const R *b, int depth,
                                         R (*c)[tile_of<TILE>::per]) {
  enum { PER = tile_of<TILE>::per, HALF = tile_of<TILE>::half, WIDE = tile_of<TILE>::wide };
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  for (int k = 0; k < depth; k++) {
    vec<R, HALF> p[PER / HALF], q[PER / HALF];
#pragma unroll
    for (int i = 0; i < PER / HALF; i++) {
      p[i] = *(const vec<R, HALF> *)(const void *)(a + k * WIDE + place<TILE>(y, i * HALF));
      q[i] = *(const vec<R, HALF> *)(const void *)(b + k * WIDE + place<TILE>(x, i * HALF));
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
#pragma unroll
      for (int j = 0; j < PER; j++)
        c[i][j] += p[i / HALF].at[i % HALF] * q[j / HALF].at[j % HALF];
  }
}

/* Number of elements of shared memory that add_tiles needs. */
template <int TILE> constexpr int tile_buffer_size = 4 * tile_of<TILE>::depth * tile_of<TILE>::wide;

/* c += the rows of a from `row` on times those of b from `col` on, over columns first to last - 1.
** All threads of the block must call it; it ends with a barrier. */
template <int TILE, class T, class R>
static __device__ inline void add_tiles(const side<T> &a, int64_t row, const side<T> &b,
                                        int64_t col, int64_t first, int64_t last, R *buffers,
                                        R (*c)[tile_of<TILE>::per]) {
  enum { DEPTH = tile_of<TILE>::depth, BUFFER = DEPTH * tile_of<TILE>::wide };
  R p[EACH_TAKES], q[EACH_TAKES];
  int turn = 0;
  take<TILE>(a, row, first, p);
  take<TILE>(b, col, first, q);
  for (int64_t k = first; k < last; k += DEPTH, turn ^= 1) {
    R *here = buffers + turn * 2 * BUFFER;
    lay<TILE>(here, a.cs == 1, p);
    lay<TILE>(here + BUFFER, b.cs == 1, q);
    __syncthreads();
    if (k + DEPTH < last) {
      take<TILE>(a, row, k + DEPTH, p);
      take<TILE>(b, col, k + DEPTH, q);
    }
    add_shared<TILE>(here, here + BUFFER, DEPTH, c);
  }
  __syncthreads();
}

#endif

/* flash.cuh -- the parts of attention on tensor cores: loading tiles to shared memory, products of
** a warp, scores and their softmax in registers.
**
** A block's four warps have 16 MT rows each. The scores of a warp are sums of multiply_rows, rows
** of one matrix by rows of another; they stay in registers and are a factor of multiply_weights.
** Rows in shared memory have HEAD elements and 16 bytes of padding: the eight rows that ldmatrix
** reads at once are then in different banks. Elements are half types, or f32, multiplied as TF32 or
** as two TF32 numbers. */
#ifndef MOTH_CUDA_FLASH_CUH
#define MOTH_CUDA_FLASH_CUH

#include "attention.cuh"
#include "lib/mma.cuh"

enum { FLASH_WARPS = 4, FLASH_THREADS = FLASH_WARPS * WARP, MOST_ROWS = 1 << 29 };
template <class T> constexpr int each_of = 16 / (int)sizeof(T); /* elements in 16 bytes */
template <class T, int HEAD> constexpr int wide_of = HEAD + each_of<T>;

/* An f32 that is multiplied as the sum of two TF32 numbers: three products; the product of both low
** parts is left out. */
struct split_f32 {
  float at;
};
HD float get(const split_f32 *x) { return x->at; }
template <class V> HD void put(split_f32 *x, V v) { x->at = (float)v; }

template <class T> constexpr int parts_of = 1; /* number of TF32 parts */
template <> constexpr int parts_of<split_f32> = 2;

static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* A query's data for the gradient besides its row: the log of its sum of exp, in base 2, and the
** dot product of its rows of y and dy. */
struct alignas(8) row_sums {
  float lse, dot;
};

template <class T> struct flash_job {
  attention_job<T, float> of; /* packs: rows can be copied 16 bytes at a time */
  float scale, over_scale;    /* positive scale of scores, which are in base 2; its reciprocal */
  float most_bias;            /* finite biases are limited to this maximum */
  bool negative;              /* the scale that the user passed is negative */
  bool ahead;                 /* the next tile is loaded while the current one is used */
  const row_sums *sums;
  void *to[2];                /* packed gradients */
  bool wide[2];               /* to[]: f32, else T */
};

/* -- tiles -- */

/* Starts copying ROWS rows of `from`, from `row` on, to `to`; zeros beyond the last row. The copies
** are complete after the wait. */
template <int ROWS, int HEAD, class T>
static __device__ inline void load_later(T *to, const side<T> &from, int row) {
  enum { EACH = each_of<T>, WIDE = HEAD + EACH, ACROSS = HEAD / EACH };
  enum { AT_ONCE = FLASH_THREADS / ACROSS };
  const int t = (int)threadIdx.x, cols = (int)from.cols;
  const int left = (int)from.rows - row, rows = left < ROWS ? left : ROWS;
  const T *at = from.at + row * from.rs;
  if (from.packs) {
    int r = t / ACROSS < AT_ONCE ? t / ACROSS : ROWS;
    const int c = t % ACROSS * EACH, own = c < cols ? rows : 0;
    at += r * from.rs + c;
#pragma unroll 1 /* unrolled, the addresses would need the registers of the sums */
    for (; r < ROWS; r += AT_ONCE, at += AT_ONCE * from.rs)
      copy_later<16>(to + r * WIDE + c, r < own ? at : from.at, r < own);
    return;
  }
  for (int i = t; i < ROWS * HEAD; i += FLASH_THREADS) {
    const int r = i / HEAD, c = i % HEAD;
    T zero = {0};
    to[r * WIDE + c] = r < rows && c < cols ? at[r * from.rs + c * from.cs] : zero;
  }
}

/* -- products of a warp -- */

template <class T> static __device__ inline void load_rows(uint32_t (*to)[4], const T *row) {
  if constexpr (sizeof(T) == 2) load_matrices(to[0], row);
  else load_factor<parts_of<T>>(to, (const float *)(const void *)row);
}

/* c += a b; b begins at element `at` */
template <class T>
static __device__ inline void multiply_parts(float *c, const uint32_t (*a)[4],
                                             const uint32_t (*b)[4], int at) {
  if constexpr (sizeof(T) == 2) multiply_add<T>(c, a[0], b[0] + at);
  else gather_factors<parts_of<T>>(c, a, b, at);
}

/* c += the 16 MT rows at `a` by the 8 NT rows at `b`; rows have HEAD elements. */
template <int HEAD, int MT, int NT, class T>
static __device__ inline void multiply_rows(const T *a, const T *b, float (*c)[NT][4]) {
  enum { EACH = each_of<T>, WIDE = HEAD + EACH, PARTS = parts_of<T> };
  const int lane = (int)threadIdx.x % WARP;
  const T *left = a + lane % 16 * WIDE + lane / 16 * EACH;
  const T *right = b + (lane / 16 * 8 + lane % 8) * WIDE + lane / 8 % 2 * EACH;
#pragma unroll parts_of<T> == 2 ? 1 : 2
  for (int k = 0; k < HEAD; k += 2 * EACH) {
    uint32_t p[MT][PARTS][4], q[PARTS][4];
#pragma unroll
    for (int m = 0; m < MT; m++) load_rows<T>(p[m], left + m * 16 * WIDE + k);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      load_rows<T>(q, right + n * 8 * WIDE + k);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply_parts<T>(c[m][n], p[m], q, 0);
        multiply_parts<T>(c[m][n + 1], p[m], q, 2);
      }
    }
  }
}

/* multiply_weights for f32. A tile's columns are used in the order 0, 2, 4, 6, 1, 3, 5, 7, and so
** are the rows of b: each thread then already has the elements of its factor. */
template <int HEAD, int MT, int NT, class T>
static __device__ inline void multiply_f32_weights(const float (*w)[NT][4], const T *b,
                                                   float (*c)[HEAD / 8][4]) {
  enum { WIDE = wide_of<T, HEAD>, PARTS = parts_of<T> };
  const int lane = (int)threadIdx.x % WARP;
  const T *right = b + lane % 4 * 2 * WIDE + lane / 4;
#pragma unroll
  for (int k = 0; k < NT; k++) {
    uint32_t p[MT][PARTS][4], q[PARTS][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) put_factor<PARTS>(p[m], i, w[m][k][i % 2 * 2 + i / 2]);
#pragma unroll
    for (int n = 0; n < HEAD / 8; n++) {
      const T *at = right + k * 8 * WIDE + n * 8;
      for (int i = 0; i < 2; i++) put_factor<PARTS>(q, i, get(at + i * WIDE));
#pragma unroll
      for (int m = 0; m < MT; m++) gather_factors<PARTS>(c[m][n], p[m], q, 0);
    }
  }
}

template <int HEAD, int MT, int NT, class T>
static __device__ inline void multiply_half_weights(const float (*w)[NT][4], const T *b,
                                                    float (*c)[HEAD / 8][4]) {
  enum { WIDE = wide_of<T, HEAD> };
  const int lane = (int)threadIdx.x % WARP;
  const T *right = b + lane % 16 * WIDE + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < NT; k += 2) {
    uint32_t p[MT][4], q[4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        p[m][i] = pair_of<T>(w[m][k + i / 2][i % 2 * 2], w[m][k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < HEAD / 8; n += 2) {
      load_transposed(q, right + k * 8 * WIDE + n * 8);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply_add<T>(c[m][n], p[m], q);
        multiply_add<T>(c[m][n + 1], p[m], q + 2);
      }
    }
  }
}

/* c += w b: w are sums of multiply_rows, rounded to T; b has 8 NT rows of HEAD elements. */
template <int HEAD, int MT, int NT, class T>
static __device__ inline void multiply_weights(const float (*w)[NT][4], const T *b,
                                               float (*c)[HEAD / 8][4]) {
  if constexpr (sizeof(T) == 2) multiply_half_weights<HEAD, MT, NT>(w, b, c);
  else multiply_f32_weights<HEAD, MT, NT>(w, b, c);
}

/* -- scores -- */

/* Row and column of element i of a warp's tile (m, n) of 16 by 8. */
static __device__ inline int row_in(int m, int i) {
  return m * 16 + (int)threadIdx.x % WARP / 4 + i / 2 * 8;
}
static __device__ inline int column_in(int n, int i) {
  return n * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
}

/* A mask of the most negative finite number must stay finite when it is divided by the scale. If it
** hides a whole row, all keys of the row count. */
static __device__ inline float bounded(float bias, float most) {
  return fabsf(bias) < INFINITY ? fminf(fmaxf(bias, -most), most) : bias;
}

/* s := the initial value of the scores: 0, or the bias divided by the scale. Rows are queries from
** `row` on and columns are keys from `col` on, or the other way round. */
template <bool BY_QUERY, int MT, int NT, class T>
static __device__ inline void begin_scores(const flash_job<T> &g, const side<T> &bias, int row,
                                           int col, float (*s)[NT][4]) {
  const int64_t down = BY_QUERY ? bias.rs : bias.cs, over = BY_QUERY ? bias.cs : bias.rs;
  row += row_in(0, 0), col += column_in(0, 0);
  const T *at = bias.at + row * down + col * over;
  const int rows = bias.at ? (int)(BY_QUERY ? g.of.l : g.of.s) - row : 0;
  const int cols = (int)(BY_QUERY ? g.of.s : g.of.l) - col;
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++, at += 8 * down) {
      const T *here = at;
#pragma unroll
      for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const bool inside = m * 16 + h * 8 < rows && n * 8 + i < cols;
          s[m][n][2 * h + i] = inside ? g.over_scale * bounded(get(here), g.most_bias) : 0.0f;
          here += i ? 7 * over : over;
        }
    }
}

/* Finishes scores except for their scale: sets the sign, and -inf for masked keys. */
template <bool BY_QUERY, int MT, int NT, class T>
static __device__ inline void adjust(const flash_job<T> &g, int row, int col, float (*s)[NT][4]) {
  enum { LEAST = BY_QUERY ? 8 * NT - 1 : 16 * MT - 1 }; /* of a tile without masked keys */
  int rows = (int)(BY_QUERY ? g.of.l : g.of.s) - row;
  int cols = (int)(BY_QUERY ? g.of.s : g.of.l) - col;
  int over = BY_QUERY ? col - row : row - col; /* key 0 minus query 0 */
  const bool hides = g.of.causal && over + LEAST > 0;
  if (rows >= 16 * MT && cols >= 8 * NT && !hides && !g.negative) return;
  /* only per-thread values stay in registers; elements are compared with constants */
  const int turn = BY_QUERY ? 1 : -1;
  over = hides ? over + turn * (column_in(0, 0) - row_in(0, 0)) : -MOST_ROWS;
  rows -= row_in(0, 0), cols -= column_in(0, 0);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int r = m * 16 + i / 2 * 8, c = n * 8 + i % 2;
        if (g.negative) s[m][n][i] = -s[m][n][i];
        if (r >= rows || c >= cols || turn * (c - r) > -over) s[m][n][i] = -INFINITY;
      }
}

/* s := 2^((s - the row's maximum) by); o, the earlier sums, is rescaled to the new maximum.
** Subtract before multiplying: a fused multiply-add would keep digits of a large product that the
** rounded maximum does not have. */
template <int MT, int NT, int OT>
static __device__ inline void online_softmax(float by, float (*s)[NT][4], float (*most)[2],
                                             float (*sum)[2], float (*o)[OT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float top = most[m][h];
#pragma unroll
      for (int n = 0; n < NT; n++) top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float less = top == -INFINITY ? 0.0f : top;
      const float old = exp2_approx((most[m][h] - less) * by);
      most[m][h] = top;
      sum[m][h] *= old;
#pragma unroll
      for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; i++) {
          s[m][n][i] = exp2_approx((s[m][n][i] - less) * by);
          sum[m][h] += s[m][n][i];
        }
#pragma unroll
      for (int n = 0; n < OT; n++) o[m][n][2 * h] *= old, o[m][n][2 * h + 1] *= old;
    }
}

/* -- results -- */

/* Stores two neighbours of a row of `cols`, at an even column. */
template <class T>
static __device__ inline void put_two(T *row, int c, int cols, float x, float y) {
  if (c + 1 < cols && cols % 2 == 0) {
    if constexpr (sizeof(T) == 4) *(vec<float, 2> *)(void *)(row + c) = {{x, y}};
    else *(uint32_t *)(void *)(row + c) = pair_of<T>(x, y);
    return;
  }
  if (c < cols) put(row + c, x);
  if (c + 1 < cols) put(row + c + 1, y);
}

/* Rows `row` to `rows` - 1 of a matrix of `cols` columns := a warp's sums, times `by`. If cols is
** even, the row stride rs is even, too. */
template <int MT, int OT, class T>
static __device__ inline void put_rows(T *to, int64_t rs, int row, int rows, int cols, float by,
                                       const float (*o)[OT][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int r = row + row_in(m, 2 * h);
      if (r >= rows) continue;
#pragma unroll
      for (int n = 0; n < OT; n++)
        put_two(to + r * rs, column_in(n, 0), cols, o[m][n][2 * h] * by,
                o[m][n][2 * h + 1] * by);
    }
}

#endif

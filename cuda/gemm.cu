/* gemm.cu -- matrix products by kernels of our own: for integers, and for all where cuBLASLt is
** missing. Tiles of 128 by 128 for large products in f32 and half types, of 64 by 64 for the rest;
** where these are too few for the device, the sum is shared by several blocks, whose parts are
** added in order.
*/
#include "gemm.cuh"
#include "tile.cuh"

/* -- what a product is computed in: integers wrap -- */

template <class T> struct sum_of_ {
  typedef real_of<T> type;
};
#define MOTH_WRAPS(from, to)          \
  template <> struct sum_of_<from> {  \
    typedef to type;                  \
  };
MOTH_WRAPS(uint8_t, uint32_t)
MOTH_WRAPS(int8_t, uint32_t)
MOTH_WRAPS(int16_t, uint32_t)
MOTH_WRAPS(int32_t, uint32_t)
MOTH_WRAPS(int64_t, uint64_t)
template <class T> using sum_of = typename sum_of_<T>::type;

/* -- kernels -- */

struct batch_steps {
  int ndim;
  int64_t shape[MOTH_MAX_BATCH_DIMS], a[MOTH_MAX_BATCH_DIMS], b[MOTH_MAX_BATCH_DIMS], c;
};

template <class T> struct whole_product {
  side<T> a, b; /* b turned: its rows are columns of C */
  T *c;
  int64_t ldc;
  const T *bias;
  sum_of<T> alpha, beta;
  bool adds; /* beta is not 0 */
  int after;
  batch_steps batch;
  int64_t first, columns; /* number of the first product of the launch; tiles in a row of C */
  int64_t parts, share;   /* how many blocks share a sum, and how much of it each has */
  sum_of<T> *partial;     /* where they put it: part, product, row, column */
};

template <class R> static __device__ inline R after_sum(R v, int after) {
  if constexpr ((R)0.5 != (R)0) {
    if (after == GEMM_RELU) return v < 0 ? (R)0 : v;
    if (after == GEMM_GELU)
      return (R)0.5 * v * (1 + tanh((R)0.7978845608028654 * (v + (R)0.044715 * v * v * v)));
  }
  return v;
}

template <class T>
static __device__ inline void finish(const whole_product<T> &g, T *c, int64_t col, sum_of<T> sum) {
  typedef sum_of<T> R;
  R v = g.alpha * sum;
  if (g.adds) v += g.beta * (R)get(c);
  if (g.bias) v += (R)get(g.bias + col);
  put(c, after_sum(v, g.after));
}

template <class T> static __device__ inline int64_t enter_batch(whole_product<T> &g) {
  const int64_t number = g.first + blockIdx.z;
  int64_t rest = number;
  for (int d = g.batch.ndim - 1; d >= 0; d--) {
    const int64_t over = rest / g.batch.shape[d], index = rest - over * g.batch.shape[d];
    g.a.at += index * g.batch.a[d];
    g.b.at += index * g.batch.b[d];
    rest = over;
  }
  g.c += number * g.batch.c;
  return number;
}

template <class T, int TILE>
static __global__ void __launch_bounds__(TILE_THREADS) multiply(whole_product<T> g,
                                                                int64_t products) {
  typedef sum_of<T> R;
  enum { PER = tile_of<TILE>::per };
  __shared__ __align__(32) unsigned char room[tile_room<TILE> * sizeof(R)];
  const int64_t row = blockIdx.x / g.columns * TILE, col = blockIdx.x % g.columns * TILE;
  const int64_t number = enter_batch(g), from = blockIdx.y * g.share;
  const int64_t to = from + g.share < g.a.cols ? from + g.share : g.a.cols;
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  R c[PER][PER];
  for (int i = 0; i < PER; i++)
    for (int j = 0; j < PER; j++) c[i][j] = 0;
  add_tiles<TILE>(g.a, row, g.b, col, from, to, (R *)(void *)room, c);
  for (int i = 0; i < PER; i++) {
    const int64_t r = row + place<TILE>(y, i);
    for (int j = 0; j < PER; j++) {
      const int64_t q = col + place<TILE>(x, j);
      if (r >= g.a.rows || q >= g.b.rows) continue;
      if (g.partial)
        g.partial[((blockIdx.y * products + number) * g.a.rows + r) * g.b.rows + q] = c[i][j];
      else finish(g, g.c + r * g.ldc + q, q, c[i][j]);
    }
  }
}

template <class T> static __global__ void add_parts(whole_product<T> g, int64_t n) {
  const int64_t i = thread_number(), each = g.a.rows * g.b.rows;
  if (i >= n) return;
  sum_of<T> sum = 0;
  for (int64_t p = 0; p < g.parts; p++) sum += g.partial[p * n + i];
  const int64_t r = i % each / g.b.rows, q = i % g.b.rows;
  finish(g, g.c + i / each * g.batch.c + r * g.ldc + q, q, sum);
}

/* -- launching -- */

static const int64_t SHARE = 256, MOST_PARTS = 64, MOST_Z = 65535;

template <class T, int TILE>
static int multiply_tiled(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                          whole_product<T> g, int64_t products) {
  typedef sum_of<T> R;
  g.columns = (m->n + TILE - 1) / TILE;
  const int64_t tiles = g.columns * ((m->m + TILE - 1) / TILE), n = products * m->m * m->n;
  const int64_t idle = 2 * q->processors / (tiles * products < INT32_MAX ? tiles * products : 1);
  int64_t parts = m->k / SHARE < idle ? m->k / SHARE : idle;
  moth_tensor *partial = NULL;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  g.share = m->k;
  g.parts = 1;
  if (parts > 1) {
    moth_layout l = {};
    g.share = (m->k / parts + SHARE - 1) / SHARE * SHARE;
    g.parts = (m->k + g.share - 1) / g.share;
    l.dtype = MOTH_U8;
    l.device = (uint8_t)m->device;
    l.ndim = 1;
    l.shape[0] = l.numel = g.parts * n * (int64_t)sizeof(R);
    l.stride[0] = 1;
    partial = moth_tensor_new(ctx, &l);
    if (!partial) return moth_status(ctx);
    g.partial = data<R>(partial);
  }
  int status = MOTH_OK;
  for (g.first = 0; !status && g.first < products; g.first += MOST_Z) {
    const int64_t now = products - g.first < MOST_Z ? products - g.first : MOST_Z;
    status = launch_on(ctx, q, multiply<T, TILE>,
                       dim3((unsigned)tiles, (unsigned)g.parts, (unsigned)now), TILE_THREADS, 0, g,
                       products);
  }
  if (!status && partial) status = launch_on(ctx, q, add_parts<T>, blocks_for(n), BLOCK, 0, g, n);
  moth_tensor_release(partial);
  return status;
}

template <class T>
static int multiply_typed(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                          int64_t products) {
  whole_product<T> g = {};
  g.a = side_of<T>(m->a, m->m, m->k, m->rs_a, m->cs_a);
  g.b = side_of<T>(m->b, m->n, m->k, m->cs_b, m->rs_b);
  g.c = (T *)m->c;
  g.ldc = m->ldc;
  g.bias = (const T *)m->bias;
  g.alpha = (sum_of<T>)m->alpha;
  g.beta = (sum_of<T>)m->beta;
  g.adds = m->beta != 0;
  g.after = m->after;
  if (m->batch) {
    g.batch.ndim = m->batch->ndim;
    g.batch.c = m->batch->step_c;
    for (int d = 0; d < m->batch->ndim; d++) {
      g.batch.shape[d] = m->batch->shape[d];
      g.batch.a[d] = m->batch->step_a[d];
      g.batch.b[d] = m->batch->step_b[d];
      g.a.packs = g.a.packs && g.batch.a[d] % EACH_TAKES == 0;
      g.b.packs = g.b.packs && g.batch.b[d] % EACH_TAKES == 0;
    }
  }
  if constexpr (sizeof(sum_of<T>) == 4 && is_real<T>)
    if (m->m > 64 && m->n > 64 &&
        ((m->m + 127) / 128) * ((m->n + 127) / 128) * products >= q->processors / 2)
      return multiply_tiled<T, 128>(ctx, q, m, g, products);
  return multiply_tiled<T, 64>(ctx, q, m, g, products);
}

/* What follows a sum that is stored already: g's alpha is 1 and its beta 0. */
template <class T> static __global__ void follow(whole_product<T> g, int64_t n) {
  const int64_t i = thread_number(), each = g.a.rows * g.b.rows;
  if (i >= n) return;
  const int64_t r = i % each / g.b.rows, q = i % g.b.rows;
  T *c = g.c + i / each * g.batch.c + r * g.ldc + q;
  finish(g, c, q, (sum_of<T>)get(c));
}

/* The library, also where it has no kernel with what follows the sum. */
static int multiply_by_library(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                               int64_t products, bool *done) {
  int status = moth_blaslt_run(ctx, q, m, done);
  if (status || *done || (!m->bias && !m->after)) return status;
  moth_gemm plain = *m;
  plain.bias = NULL;
  plain.after = GEMM_PLAIN;
  status = moth_blaslt_run(ctx, q, &plain, done);
  if (status || !*done) return status;
  return with_float(m->dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    whole_product<T> g = {};
    const int64_t n = products * m->m * m->n;
    g.a.rows = m->m, g.b.rows = m->n;
    g.c = (T *)m->c, g.ldc = m->ldc;
    g.bias = (const T *)m->bias;
    g.alpha = 1;
    g.after = m->after;
    g.batch.c = m->batch ? m->batch->step_c : 0;
    return launch_on(ctx, q, follow<T>, blocks_for(n), BLOCK, 0, g, n);
  });
}

int moth_gemm_run(moth_ctx *ctx, const moth_gemm *m) {
  int64_t products = 1;
  bool done = false;
  for (int d = 0; m->batch && d < m->batch->ndim; d++) products *= m->batch->shape[d];
  if (m->m == 0 || m->n == 0 || products == 0) return MOTH_OK;
  const moth_queue *q = moth_queue_of(ctx, m->device);
  if (!q) return moth_status(ctx);
  int status = m->k ? multiply_by_library(ctx, q, m, products, &done) : MOTH_OK;
  if (status || done) return status;
  return with_any(m->dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (is_truth<T>)
      return moth_fail(ctx, MOTH_E_DTYPE, NULL, "bool matrices have no product");
    else return multiply_typed<T>(ctx, q, m, products);
  });
}

int moth_cuda_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch) {
  moth_gemm g = {};
  g.dtype = p->dtype;
  g.device = p->device;
  g.m = p->m, g.n = p->n, g.k = p->k;
  g.a = p->a, g.rs_a = p->rs_a, g.cs_a = p->cs_a;
  g.b = p->b, g.rs_b = p->rs_b, g.cs_b = p->cs_b;
  g.c = p->c, g.ldc = p->ldc;
  g.bias = p->bias;
  g.alpha = 1;
  g.beta = p->beta;
  g.batch = batch;
  return moth_gemm_run(ctx, &g);
}

/* gemm.cu -- matrix products by Moth's own kernels: for integers, for small products, and for all
** products where cuBLASLt is missing. Tiles are 128 by 128 for large products in f32, else 64 by
** 64. Half types use tensor cores if the device has them (gemm_mma.cu). */
#include "lib/gemm_kernel.cuh"
#include "lib/rows.cuh"

template <class T, int TILE>
static __global__ void __launch_bounds__(TILE_THREADS, 2) multiply(gemm_args<T> g,
                                                                   int64_t products) {
  typedef sum_of<T> R;
  enum { PER = tile_of<TILE>::per };
  __shared__ __align__(32) unsigned char memory[tile_buffer_size<TILE> * sizeof(R)];
  const int64_t row = blockIdx.x / g.columns * TILE, col = blockIdx.x % g.columns * TILE;
  const one_product<T> p = enter_batch(g);
  const int64_t from = blockIdx.y * g.share;
  const int64_t to = from + g.share < g.a.cols ? from + g.share : g.a.cols;
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  R c[PER][PER];
#pragma unroll
  for (int i = 0; i < PER; i++)
#pragma unroll
    for (int j = 0; j < PER; j++) c[i][j] = 0;
  add_tiles<TILE>(p.a, row, p.b, col, from, to, (R *)(void *)memory, c);
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int64_t r = row + place<TILE>(y, i);
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int64_t q = col + place<TILE>(x, j);
      if (r >= g.a.rows || q >= g.b.rows) continue;
      if (g.partial)
        g.partial[((blockIdx.y * products + p.number) * g.a.rows + r) * g.b.rows + q] = c[i][j];
      else finish(g, p.c + r * g.ldc + q, q, c[i][j]);
    }
  }
  if constexpr (is_real<T>)
    if (g.sums && col == 0) sum_rows<TILE>(g, row, from, to, (R *)(void *)memory);
}

/* -- launching -- */

template <class T, int TILE>
static int multiply_tiled(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                          const gemm_args<T> &g, int64_t products) {
  return multiply_in_tiles<TILE>(ctx, q, m, g, products,
                                 [&](const gemm_args<T> &now, dim3 grid) {
    return launch_on(ctx, q, multiply<T, TILE>, grid, TILE_THREADS, 0, now, products);
  });
}

/* Rows up to this length are summed inside the product; some blocks read their rows twice for it.
*/
enum { SUMMED_INSIDE = 1024 };

template <class T>
static int multiply_typed(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                          int64_t products) {
  gemm_args<T> g = {};
  g.a = side_of<T>(m->a, m->m, m->k, m->rs_a, m->cs_a);
  g.b = side_of<T>(m->b, m->n, m->k, m->cs_b, m->rs_b);
  g.c = (T *)m->c;
  g.ldc = m->ldc;
  g.bias = (const T *)m->bias;
  g.alpha = (sum_of<T>)m->alpha;
  g.beta = (sum_of<T>)m->beta;
  g.adds = m->beta != 0;
  g.relu = m->relu;
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
  if constexpr (sizeof(sum_of<T>) == 4 && is_real<T>) {
    bool done = false;
    const int status = multiply_on_tensor_cores(ctx, q, m, g, products, &done);
    if (status || done) return status;
  }
  if constexpr (is_real<T>)
    if (m->sums && m->k <= SUMMED_INSIDE) {
      g.sums = (T *)m->sums;
      *m->summed = true;
    }
  if constexpr (sizeof(sum_of<T>) == 4 && is_real<T>) {
    if (m->m > 64 && m->n > 64 &&
        ((m->m + 127) / 128) * ((m->n + 127) / 128) * products >= q->processors / 2)
      return multiply_tiled<T, 128>(ctx, q, m, g, products);
  }
  return multiply_tiled<T, 64>(ctx, q, m, g, products);
}

/* Adds bias and applies relu to sums that are stored already: g's alpha is 1 and its beta 0. A
** thread has EACH elements of a row; a row has `across` threads. */
template <class T, int EACH>
static __global__ void finish_stored(gemm_args<T> g, quotient_by across, quotient_by rows,
                                     int64_t n) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t row = divide(i, across), product = divide(row, rows);
  const int64_t q = (i - row * across.by) * EACH;
  T *c = g.c + product * g.batch.c + (row - product * rows.by) * g.ldc + q;
  vec<T, EACH> many = *(const vec<T, EACH> *)(const void *)c;
  for (int k = 0; k < EACH; k++) finish(g, &many.at[k], q + k, (sum_of<T>)get(&many.at[k]));
  write_vec(c, many);
}

/* Without a bias, contiguous results are one row. */
template <class T>
static int finish_launch(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m, const T *bias,
                         int64_t products) {
  gemm_args<T> g = {};
  g.c = (T *)m->c, g.ldc = m->ldc;
  g.bias = bias;
  g.relu = m->relu;
  g.alpha = 1;
  g.batch.c = m->batch ? m->batch->step_c : 0;
  const bool one = !bias && (m->m == 1 || m->ldc == m->n) &&
                   (products == 1 || g.batch.c == m->m * m->n);
  const int64_t n = one ? products * m->m * m->n : m->n, rows = one ? 1 : products * m->m;
  const bool vecs = on_vec(g.c) && n % VEC<T> == 0 &&
                     (one || (g.ldc % VEC<T> == 0 && g.batch.c % VEC<T> == 0));
  const int64_t across = vecs ? n / VEC<T> : n, all = rows * across;
  return launch_on(ctx, q, vecs ? finish_stored<T, VEC<T>> : finish_stored<T, 1>,
                   blocks_for(all), BLOCK, 0, g, quotients(across, all),
                   quotients(one ? 1 : m->m, all), all);
}

/* Small products always use Moth's kernels, by shape alone: with and without bias, relu and row
** sums they are bit-identical. Small means bound by latency: at most one tile of 64 by 64 for each
** multiprocessor (an A100 has 108, an H200 132), and sums of at most 8 rounds through shared
** memory, each with a latency of about 0.4 us for L2. That is at most 3 us, as for a kernel of the
** library. The library's call costs as much CPU time as two launches, and a relu after it one more
** launch: 3 us or, in a graph, 1 us (expected, not measured). Longer sums are faster when they are
** split among blocks, as the library does. */
enum { SMALL_TILES = 96, SMALL_SUM = 128 };

static bool is_small(const moth_gemm *m, int64_t products) {
  return m->k <= SMALL_SUM && (m->m + 63) / 64 * ((m->n + 63) / 64) * products <= SMALL_TILES;
}

/* Calls the library, also where it has no kernel that adds the bias. Its relu turns NaN into 0, so
** Moth always applies relu itself. */
static int multiply_by_library(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                               int64_t products, bool *done) {
  moth_gemm plain = *m;
  int status = moth_blaslt_run(ctx, q, m, done);
  if (!status && m->sums) *m->summed = *done;
  if (!status && m->sums && !*done) {
    /* Not every product has that epilogue: run without it; the sums follow separately. */
    plain.sums = NULL;
    return moth_blaslt_run(ctx, q, &plain, done);
  }
  if (status || (*done && !m->relu) || (!*done && !m->bias)) return status;
  const void *bias = *done ? NULL : m->bias; /* the bias, unless it has been added */
  plain.bias = NULL;
  if (!*done) status = moth_blaslt_run(ctx, q, &plain, done);
  if (status || !*done) return status;
  return with_float(m->dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return finish_launch(ctx, q, m, (const T *)bias, products);
  });
}

int moth_gemm_run(moth_ctx *ctx, const moth_gemm *m) {
  int64_t products = 1;
  bool done = false;
  for (int d = 0; m->batch && d < m->batch->ndim; d++) products *= m->batch->shape[d];
  if (m->m == 0 || m->n == 0 || products == 0) return MOTH_OK;
  const moth_queue *q = moth_queue_of(ctx, m->device);
  if (!q) return moth_status(ctx);
  int status = MOTH_OK;
  if (products == 1 && q->major >= 8 && moth_gemm_narrows(ctx, m)) /* tensor cores, TF32 too */
    status = moth_gemm_padded(ctx, q, m, &done);
  if (status || done) return status;
  if (m->k && !is_small(m, products)) status = multiply_by_library(ctx, q, m, products, &done);
  if (status || done) return status;
  return with_any(m->dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (is_bool<T>)
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
  g.relu = p->relu;
  g.sums = p->sums;
  g.summed = p->summed;
  g.alpha = 1;
  g.beta = p->beta;
  g.batch = batch;
  return moth_gemm_run(ctx, &g);
}

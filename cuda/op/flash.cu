/* flash.cu -- attention on tensor cores: Dao, "FlashAttention-2: Faster Attention with Better
** Parallelism and Work Partitioning" (2023). Forward, a block has a tile of queries and loops over
** the keys; scores, weights and results stay in the registers of their warp.
**
** Backward, one kernel loops over the queries for a tile of keys and values, another over the keys
** for a tile of queries. Each computes the weights again from the saved log of the sum. That takes
** two products more than one kernel with atomic sums, but every sum has a fixed order. f32 uses the
** same kernels, as TF32 where the chosen precision allows it, else as two TF32 numbers, whose
** products are added outside of the tensor cores, because tensor cores round towards zero (Ootomo
** and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
** theoretical peak performance", 2022). */
#include <type_traits>

#include "flash.cuh"

/* -- kernels -- */

/* A block's tile sizes: the rows of its warps, and the columns of the tiles that it loops over, so
** that sums and scores fit in registers. HELD and SLOT are counts of elements in shared memory. */
template <class T, int HEAD, int MT_> struct forward_shape {
  enum { FITS = sizeof(T) == 2 || HEAD <= 64, MT = FITS ? MT_ : 1, ROWS = FLASH_WARPS * 16 * MT };
  enum { COLS = FITS ? 64 : 32, WIDE = wide_of<T, HEAD> };
  enum { HELD = ROWS * WIDE, SLOT = 2 * COLS * WIDE };
};
template <class T, int HEAD> struct keys_shape {
  enum { HALF = sizeof(T) == 2, MT = HALF && HEAD <= 64 ? 2 : 1, ROWS = FLASH_WARPS * 16 * MT };
  enum { COLS = HEAD <= 64 ? 32 : HALF ? 64 : 16, WIDE = wide_of<T, HEAD> };
  enum { HELD = 2 * ROWS * WIDE };
  enum { SLOT = 2 * COLS * WIDE + COLS * (int)(sizeof(row_sums) / sizeof(T)) };
};
template <class T, int HEAD> struct queries_shape {
  enum { HALF = sizeof(T) == 2, MT = HALF ? 2 : 1, ROWS = FLASH_WARPS * 16 * MT };
  enum { COLS = (HEAD <= 64 ? 32 : 16) * (HALF ? 2 : 1), WIDE = wide_of<T, HEAD> };
  enum { HELD = 2 * ROWS * WIDE, SLOT = 2 * COLS * WIDE };
};

static const float LEAST_LSE = -3e38f; /* finite: infinity marks a row without keys */

template <class T, int HEAD, int MT>
static __global__ void __launch_bounds__(FLASH_THREADS, HEAD <= 32 ? 3 : 2)
flash_forward(flash_job<T> g) {
  typedef forward_shape<T, HEAD, MT> S;
  enum { NT = S::COLS / 8, OT = HEAD / 8 };
  __shared__ attention_parts<T> of;
  const attention_job<T, float> &j = g.of;
  T *held = shared_memory<T>(), *ring = held + S::HELD;
  const int warp = (int)threadIdx.x / WARP * 16 * MT;
  const int first = (int)(gridDim.x - 1 - blockIdx.x) * S::ROWS, row = first + warp;
  const int end = (int)j.s, to = j.causal && first + S::ROWS < end ? first + S::ROWS : end;
  float o[MT][OT][4] = {}, most[MT][2], sum[MT][2];
  for (int m = 0; m < MT; m++)
    for (int h = 0; h < 2; h++) most[m][h] = -INFINITY, sum[m][h] = 0;
  open_parts(j, &of);
  load_later<S::ROWS, HEAD>(held, of.query, first);
  for_tiles(g.ahead, 0, to, S::COLS, [&](int slot, int col) {
    load_later<S::COLS, HEAD>(ring + slot * S::SLOT, of.key, col);
    load_later<S::COLS, HEAD>(ring + slot * S::SLOT + S::COLS * S::WIDE, of.value, col);
  }, [&](int slot, int col) {
    const T *here = ring + slot * S::SLOT;
    float s[MT][NT][4];
    begin_scores<true, MT, NT>(g, of.bias, row, col, s);
    multiply_rows<HEAD, MT, NT>(held + warp * S::WIDE, here, s);
    adjust<true, MT, NT>(g, row, col, s);
    online_softmax<MT, NT, OT>(g.scale, s, most, sum, o);
    multiply_weights<HEAD, MT, NT>(s, here + S::COLS * S::WIDE, o);
  });
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float all = sum[m][h] + __shfl_xor_sync(0xffffffffu, sum[m][h], 1);
      all += __shfl_xor_sync(0xffffffffu, all, 2);
      const float inverse = all == 0 ? 0.0f : 1 / all;
      const int r = row + row_in(m, 2 * h);
      if (threadIdx.x % 4 == 0 && r < j.l)
        j.lse[of.batch * j.l + r] =
          all == 0 ? INFINITY : fmaxf(most[m][h] * g.scale * LN_2, LEAST_LSE) + logf(all);
      for (int n = 0; n < OT; n++) o[m][n][2 * h] *= inverse, o[m][n][2 * h + 1] *= inverse;
    }
  put_rows<MT, OT>((T *)of.y.at, of.y.rs, row, (int)j.l, (int)j.v, 1.0f, o);
}

template <int MT, int OT, class T>
static __device__ inline void put_gradient(const flash_job<T> &g, int i, int64_t batch,
                                           int row, int64_t rows, int64_t cols, float by,
                                           const float (*o)[OT][4]) {
  const int64_t at = batch * rows * cols;
  if (g.wide[i]) put_rows<MT, OT>((float *)g.to[i] + at, cols, row, (int)rows, (int)cols, by, o);
  else put_rows<MT, OT>((T *)g.to[i] + at, cols, row, (int)rows, (int)cols, by, o);
}

/* to[0] and to[1] := the gradients of keys and values. */
template <class T, int HEAD>
static __global__ void __launch_bounds__(FLASH_THREADS, 2) flash_keys(flash_job<T> g) {
  typedef keys_shape<T, HEAD> S;
  enum { MT = S::MT, NT = S::COLS / 8, OT = HEAD / 8 };
  __shared__ attention_parts<T> of;
  const attention_job<T, float> &j = g.of;
  T *held = shared_memory<T>(), *ring = held + S::HELD;
  const int warp = (int)threadIdx.x / WARP * 16 * MT, t = (int)threadIdx.x;
  const int first = (int)blockIdx.x * S::ROWS, row = first + warp;
  float dk[MT][OT][4] = {}, dv[MT][OT][4] = {};
  open_parts(j, &of);
  load_later<S::ROWS, HEAD>(held, of.key, first);
  load_later<S::ROWS, HEAD>(held + S::ROWS * S::WIDE, of.value, first);
  for_tiles(g.ahead, j.causal ? first : 0, (int)j.l, S::COLS, [&](int slot, int col) {
    T *here = ring + slot * S::SLOT;
    load_later<S::COLS, HEAD>(here, of.query, col);
    load_later<S::COLS, HEAD>(here + S::COLS * S::WIDE, of.dy, col);
    const row_sums *sums = g.sums + of.batch * j.l;
    if (t < S::COLS)
      copy_later<8>((row_sums *)(void *)(here + 2 * S::COLS * S::WIDE) + t,
                    col + t < j.l ? sums + col + t : sums, col + t < j.l);
  }, [&](int slot, int col) {
    const T *here = ring + slot * S::SLOT, *other = here + S::COLS * S::WIDE;
    const row_sums *own = (const row_sums *)(const void *)(here + 2 * S::COLS * S::WIDE);
    float w[MT][NT][4], d[MT][NT][4] = {};
    begin_scores<false, MT, NT>(g, of.bias, row, col, w);
    multiply_rows<HEAD, MT, NT>(held + warp * S::WIDE, here, w);
    multiply_rows<HEAD, MT, NT>(held + (S::ROWS + warp) * S::WIDE, other, d);
    adjust<false, MT, NT>(g, row, col, w);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const row_sums a = own[column_in(n, i)];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int h = i; h < 4; h += 2) {
            w[m][n][h] = exp2_approx(w[m][n][h] * g.scale - a.lse);
            d[m][n][h] = w[m][n][h] * (d[m][n][h] - a.dot);
          }
      }
    multiply_weights<HEAD, MT, NT>(w, other, dv);
    multiply_weights<HEAD, MT, NT>(d, here, dk);
  });
  put_gradient<MT, OT>(g, 0, of.batch, row, j.s, j.e, j.scale, dk);
  put_gradient<MT, OT>(g, 1, of.batch, row, j.s, j.v, 1.0f, dv);
}

/* to[0] := the gradient of queries. */
template <class T, int HEAD>
static __global__ void __launch_bounds__(FLASH_THREADS, 2) flash_queries(flash_job<T> g) {
  typedef queries_shape<T, HEAD> S;
  enum { MT = S::MT, NT = S::COLS / 8, OT = HEAD / 8 };
  __shared__ attention_parts<T> of;
  __shared__ row_sums sums[S::ROWS];
  const attention_job<T, float> &j = g.of;
  T *held = shared_memory<T>(), *ring = held + S::HELD;
  const int warp = (int)threadIdx.x / WARP * 16 * MT;
  const int first = (int)(gridDim.x - 1 - blockIdx.x) * S::ROWS, row = first + warp;
  const int end = (int)j.s, to = j.causal && first + S::ROWS < end ? first + S::ROWS : end;
  float dq[MT][OT][4] = {};
  open_parts(j, &of);
  for (int r = (int)threadIdx.x; r < S::ROWS; r += FLASH_THREADS)
    sums[r] = first + r < j.l ? g.sums[of.batch * j.l + first + r] : row_sums{0, 0};
  load_later<S::ROWS, HEAD>(held, of.query, first);
  load_later<S::ROWS, HEAD>(held + S::ROWS * S::WIDE, of.dy, first);
  for_tiles(g.ahead, 0, to, S::COLS, [&](int slot, int col) {
    load_later<S::COLS, HEAD>(ring + slot * S::SLOT, of.key, col);
    load_later<S::COLS, HEAD>(ring + slot * S::SLOT + S::COLS * S::WIDE, of.value, col);
  }, [&](int slot, int col) {
    const T *here = ring + slot * S::SLOT;
    float w[MT][NT][4], d[MT][NT][4] = {};
    begin_scores<true, MT, NT>(g, of.bias, row, col, w);
    multiply_rows<HEAD, MT, NT>(held + warp * S::WIDE, here, w);
    multiply_rows<HEAD, MT, NT>(held + (S::ROWS + warp) * S::WIDE, here + S::COLS * S::WIDE, d);
    adjust<true, MT, NT>(g, row, col, w);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const row_sums own = sums[warp + row_in(m, i)];
          d[m][n][i] = exp2_approx(w[m][n][i] * g.scale - own.lse) * (d[m][n][i] - own.dot);
        }
    multiply_weights<HEAD, MT, NT>(d, here, dq);
  });
  put_gradient<MT, OT>(g, 0, of.batch, row, j.l, j.e, j.scale, dq);
}

/* Above MOST_LSE, 2^(score - lse) has no correct digit, since both are rounded: a row that is fully
** masked by finite numbers gets no gradient. */
static const float MOST_LSE = 1e8f;

/* sums[row] from lse[row] and the dot product of the rows of y and dy; a warp for each row */
template <class T>
static __global__ void sums_of_rows(flash_job<T> g, int64_t rows, row_sums *sums) {
  const attention_job<T, float> &j = g.of;
  const int64_t row = thread_number() / WARP;
  if (row >= rows) return;
  const int64_t batch = row / j.l;
  const side<T> y = part_of(j.y, j.lead, batch, j.l, j.v);
  const side<T> dy = part_of(j.dy, j.lead, batch, j.l, j.v);
  const T *from = y.at + (row - batch * j.l) * y.rs, *at = dy.at + (row - batch * j.l) * dy.rs;
  float sum = 0;
  for (int64_t i = threadIdx.x % WARP; i < j.v; i += WARP)
    sum += get(from + i * y.cs) * get(at + i * dy.cs);
  for (int by = WARP / 2; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  const float lse = fabsf(j.lse[row]) > MOST_LSE ? INFINITY : j.lse[row];
  if (threadIdx.x % WARP == 0) sums[row] = row_sums{lse * LOG2_E, sum};
}

/* -- launching -- */

enum { MOST_HEAD = 128 };
static const int64_t MOST_BATCHES = 65535;
static const double LEAST_SCALE = 1e-6; /* a bias is divided by the scale */

/* Calls f with the smallest head size with a kernel that is at least n. */
template <class F> static int with_head(int64_t n, F f) {
  if (n <= 32) return f(std::integral_constant<int, 32>());
  if (n <= 64) return f(std::integral_constant<int, 64>());
  if (n <= 96) return f(std::integral_constant<int, 96>());
  return f(std::integral_constant<int, 128>());
}

template <class S, class T> static size_t shared_bytes_of(bool ahead) {
  return sizeof(T) * (size_t)(S::HELD + (ahead ? 2 : 1) * S::SLOT);
}
/* Two blocks should fit on a multiprocessor. Its shared memory is 1 KiB larger than a block may
** have; each block also uses RESERVED_SHARED, for the system and for the kernels' static arrays. */
enum { RESERVED_SHARED = 3 << 10 };
template <class S, class T> static int blocks_held(const moth_queue *q, bool ahead) {
  return (int)((q->shared + 1024) / (shared_bytes_of<S, T>(ahead) + RESERVED_SHARED));
}
/* Tests if tiles can be loaded ahead without losing the second block on a multiprocessor. */
template <class S, class T> static bool can_load_ahead(const moth_queue *q) {
  const int with = blocks_held<S, T>(q, true);
  return with >= 2 || (with == 1 && blocks_held<S, T>(q, false) < 2);
}
template <class S, class T> static bool fits_shared(const moth_queue *q) {
  return blocks_held<S, T>(q, can_load_ahead<S, T>(q)) >= 1;
}

template <class S, class T>
static int launch_tiles(moth_ctx *ctx, const moth_queue *q, void (*kernel)(flash_job<T>),
                        flash_job<T> g, int64_t rows, int64_t batches) {
  int status = MOTH_OK;
  g.ahead = can_load_ahead<S, T>(q);
  const size_t bytes = shared_bytes_of<S, T>(g.ahead);
  for (g.of.first = 0; !status && rows && g.of.first < batches; g.of.first += MOST_BATCHES) {
    const int64_t left = batches - g.of.first, now = left < MOST_BATCHES ? left : MOST_BATCHES;
    status = launch_on(ctx, q, kernel, grid_for((rows + S::ROWS - 1) / S::ROWS, 1, now),
                       FLASH_THREADS, bytes, g);
  }
  return status;
}

/* -- arguments -- */

template <class T> static void pack_rows(batched<T> *m, int64_t cols, int ndim) {
  enum { EACH = each_of<T> };
  m->packs = m->cs == 1 && m->rs % EACH == 0 && cols % EACH == 0 && (uintptr_t)m->at % 16 == 0;
  for (int d = 0; d < ndim; d++) m->packs = m->packs && m->step[d] % EACH == 0;
}

template <class T, class A>
static void flash_job_of(flash_job<T> *g, const A *a, const moth_tensor *lse, int64_t *batches) {
  job_of(&g->of, a, lse, batches);
  g->scale = fabsf(g->of.scale) * LOG2_E;
  g->over_scale = 1 / g->of.scale;
  g->most_bias = 1e38f * fminf(fabsf(g->of.scale), 1.0f);
  g->negative = g->of.scale < 0;
  const int ndim = g->of.lead.ndim;
  pack_rows(&g->of.query, g->of.e, ndim);
  pack_rows(&g->of.key, g->of.e, ndim);
  pack_rows(&g->of.value, g->of.v, ndim);
}

/* Calls f with the dtype and a head size if there is a kernel; *done: whether there was one. */
template <class F>
static int with_flash(moth_ctx *ctx, const moth_queue *q, const moth_tensor *query,
                      const moth_tensor *value, double scale, bool *done, F f) {
  const int64_t l = query->l.shape[query->l.ndim - 2], s = value->l.shape[value->l.ndim - 2];
  const int64_t e = query->l.shape[query->l.ndim - 1], v = value->l.shape[value->l.ndim - 1];
  const int dtype = query->l.dtype;
  *done = false;
  if (!q->tensor_cores || e > MOST_HEAD || v > MOST_HEAD || l > MOST_ROWS ||
      s > MOST_ROWS || dtype == MOTH_F64 || !(fabs(scale) >= LEAST_SCALE))
    return MOTH_OK;
  return with_head(e > v ? e : v, [&](auto size) {
    const auto call = [&](auto t) {
      typedef typename decltype(t)::of T;
      enum { HEAD = decltype(size)::value };
      *done = fits_shared<forward_shape<T, HEAD, 2>, T>(q) &&
              fits_shared<keys_shape<T, HEAD>, T>(q) && fits_shared<queries_shape<T, HEAD>, T>(q);
      return *done ? f(t, size) : (int)MOTH_OK;
    };
    return dtype == MOTH_F16 ? call(type<f16>()) : dtype == MOTH_BF16 ? call(type<bf16>())
           : moth_float32_precision(ctx) ? call(type<float>()) : call(type<split_f32>());
  });
}

int moth_flash(const attention_args *a, const moth_queue *q, const moth_tensor *y,
               const moth_tensor *lse, bool *done) {
  return with_flash(a->ctx, q, a->query, a->value, a->scale, done, [&](auto t, auto size) {
    typedef typename decltype(t)::of T;
    enum { HEAD = decltype(size)::value };
    flash_job<T> g = {};
    int64_t batches;
    flash_job_of(&g, a, lse, &batches);
    g.of.y = matrices_of<T>(y, g.of.lead);
    const int64_t l = g.of.l;
    if constexpr (forward_shape<T, HEAD, 2>::MT == 2)
      if (l > 64 && (l + 127) / 128 * batches >= q->processors)
        return launch_tiles<forward_shape<T, HEAD, 2>>(a->ctx, q, flash_forward<T, HEAD, 2>, g, l,
                                                       batches);
    return launch_tiles<forward_shape<T, HEAD, 1>>(a->ctx, q, flash_forward<T, HEAD, 1>, g, l,
                                                   batches);
  });
}

/* Computes the three gradients of the job g. */
template <class T, int HEAD>
static int flash_gradients(const attention_back_args *a, const moth_queue *q, flash_job<T> g,
                           int64_t batches, moth_tensor **out) {
  const attention_job<T, float> &j = g.of;
  const int64_t size[3] = {j.l * j.e, j.s * j.e, j.s * j.v};
  gradient_place to[3];
  int status = MOTH_OK, opened = 0;
  for (; !status && opened < 3; opened++)
    status = gradient_open(a->ctx, &to[opened], out[opened], j.lead, batches * size[opened],
                           MOTH_F32, a->query->l.dtype);
  const auto aim = [&](int i, int at) { g.to[i] = to[at].to, g.wide[i] = to[at].wide; };
  if (!status) {
    aim(0, 0);
    status = launch_tiles<queries_shape<T, HEAD>>(a->ctx, q, flash_queries<T, HEAD>, g, j.l,
                                                  batches);
  }
  if (!status) {
    aim(0, 1), aim(1, 2);
    status = launch_tiles<keys_shape<T, HEAD>>(a->ctx, q, flash_keys<T, HEAD>, g, j.s, batches);
  }
  for (int i = 0; i < opened; i++)
    status = gradient_close(a->ctx, &to[i], j.lead, MOTH_F32, status);
  return status;
}

int moth_flash_back(const attention_back_args *a, const moth_queue *q, moth_tensor **out,
                    bool *done) {
  return with_flash(a->ctx, q, a->query, a->value, a->scale, done, [&](auto t, auto size) {
    typedef typename decltype(t)::of T;
    const int64_t rows = a->lse->l.numel;
    int64_t batches;
    flash_job<T> g = {};
    flash_job_of(&g, a, a->lse, &batches);
    g.of.dy = matrices_of<T>(a->grad, g.of.lead);
    g.of.y = matrices_of<T>(a->output, g.of.lead);
    pack_rows(&g.of.dy, g.of.v, g.of.lead.ndim);
    moth_tensor *sums = attention_scratch(a->ctx, MOTH_F32, out[0]->l.device, 2 * rows);
    if (!sums) return (int)moth_status(a->ctx);
    row_sums *to = (row_sums *)(void *)data<float>(sums);
    int status = MOTH_OK;
    if (rows)
      status = launch_on(a->ctx, q, sums_of_rows<T>, blocks_for(rows * WARP), BLOCK, 0, g, rows,
                         to);
    g.sums = to;
    if (!status)
      status = flash_gradients<T, decltype(size)::value>(a, q, g, batches, out);
    moth_tensor_release(sums);
    return status;
  });
}

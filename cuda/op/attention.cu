/* attention.cu -- attention in blocks, forward and backward. A block computes the scores of TILE
** queries with as many keys at a time, never the whole (L, S) matrix; it updates each row's maximum
** and sum as it goes (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention).
**
** One kernel computes three results. The output and the gradient of the queries loop over the keys;
** the gradients of keys and values, computed together, loop over the queries. Every sum has a fixed
** order. This kernel serves f64, and other dtypes where neither cuDNN (cudnn_attention.cu) nor
** flash.cu has a kernel. */
#include "attention.cuh"

enum { RESULT, DQUERY, DKEYS };

template <class T, class R> struct work {
  attention_job<T, R> of;
  const R *dots; /* for each row: the dot product of y and its gradient */
  R *to[2];      /* packed gradients; for DKEYS: of keys, of values */
};

template <class T> static __device__ inline side<T> transposed(side<T> s) {
  const int64_t rows = s.rows, rs = s.rs;
  s.rows = s.cols, s.cols = rows;
  s.rs = s.cs, s.cs = rs;
  return s;
}

/* The maximum and the sum over the 16 threads that share a row. */
template <class R> static __device__ inline R row_max(R v) {
  for (int by = 8; by; by /= 2) {
    const R other = __shfl_xor_sync(0xffffffffu, v, by);
    v = other > v ? other : v;
  }
  return v;
}
template <class R> static __device__ inline R row_sum(R v) {
  for (int by = 8; by; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
  return v;
}

/* A block's tile of scores. Its rows, from `row` on, are queries and its columns keys, or the
** reverse. */
template <class T, class R, int TILE, int WHICH, int CHUNKS> struct tiles {
  enum { PER = tile_of<TILE>::per, DEPTH = tile_of<TILE>::depth, WIDE = tile_of<TILE>::wide };
  enum { BY_QUERY = WHICH != DKEYS };
  static constexpr int shared_size = tile_buffer_size<TILE> + TILE * WIDE;

  /* w := the scaled scores; -inf where a key is masked */
  static __device__ inline void score(const attention_job<T, R> &g, const side<T> &bias,
                                      int64_t row, int64_t col, R (*w)[PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < PER; i++)
#pragma unroll
      for (int j = 0; j < PER; j++) {
        const int64_t r = row + place<TILE>(y, i), c = col + place<TILE>(x, j);
        const int64_t q = BY_QUERY ? r : c, k = BY_QUERY ? c : r;
        if (q >= g.l || k >= g.s || (g.causal && k > q)) w[i][j] = (R)-INFINITY;
        else {
          w[i][j] *= g.scale;
          if (bias.at) w[i][j] += (R)get(bias.at + q * bias.rs + k * bias.cs);
        }
      }
  }

  /* w := exp(w - the row's maximum); earlier sums are rescaled to the new maximum */
  static __device__ inline void online_softmax(R (*w)[PER], R *most, R *sum, R (*out)[PER][PER]) {
#pragma unroll
    for (int i = 0; i < PER; i++) {
      R top = most[i], all = 0;
#pragma unroll
      for (int j = 0; j < PER; j++) top = w[i][j] > top ? w[i][j] : top;
      top = row_max(top);
      const R old = top == (R)-INFINITY ? (R)1 : (R)exp(most[i] - top);
#pragma unroll
      for (int j = 0; j < PER; j++) {
        w[i][j] = w[i][j] == (R)-INFINITY ? (R)0 : (R)exp(w[i][j] - top);
        all += w[i][j];
      }
      most[i] = top;
      sum[i] = sum[i] * old + row_sum(all);
#pragma unroll
      for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int j = 0; j < PER; j++) out[c][i][j] *= old;
    }
  }

  /* w := exp(w - lse), the weights; dw, which holds dy value^T, becomes the gradient of the scores
  */
  static __device__ inline void weigh(const work<T, R> &g, int64_t batch, int64_t row, int64_t col,
                                      R (*w)[PER], R (*dw)[PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < PER; i++)
#pragma unroll
      for (int j = 0; j < PER; j++) {
        const int64_t q = BY_QUERY ? row + place<TILE>(y, i) : col + place<TILE>(x, j);
        const int64_t at = batch * g.of.l + q;
        if (q >= g.of.l || w[i][j] == (R)-INFINITY) w[i][j] = dw[i][j] = 0;
        else {
          w[i][j] = (R)exp(w[i][j] - g.of.lse[at]);
          dw[i][j] = w[i][j] * (dw[i][j] - g.dots[at]) * g.of.scale;
        }
      }
  }

  /* out += w times the rows of `from`, from column `col` on; w is copied through shared memory. */
  static __device__ inline void gather(const side<T> &from, int64_t col, int64_t column,
                                       R (*w)[PER], R *shared, R (*out)[PER][PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    R *weights = shared + tile_buffer_size<TILE>, four[EACH_TAKES];
    const side<T> by_column = transposed(from);
#pragma unroll
    for (int i = 0; i < PER; i++)
#pragma unroll
      for (int j = 0; j < PER; j++)
        weights[place<TILE>(x, j) * WIDE + place<TILE>(y, i)] = w[i][j];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      for (int k = 0; k < TILE; k += DEPTH) {
        take<TILE>(by_column, column + c * TILE, col + k, four);
        __syncthreads();
        lay<TILE>(shared, by_column.cs == 1, four);
        __syncthreads();
        add_shared<TILE>(weights + k * WIDE, shared, DEPTH, out[c]);
      }
    __syncthreads();
  }
};

template <class T, int TILE, int CHUNKS, class R>
static __device__ inline void store(T *to, int64_t rs, int64_t row, int64_t column, int64_t rows,
                                    int64_t cols,
                                    R (*out)[tile_of<TILE>::per][tile_of<TILE>::per]) {
  enum { PER = tile_of<TILE>::per };
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int64_t r = row + place<TILE>(y, i);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
      for (int j = 0; j < PER; j++) {
        const int64_t q = column + c * TILE + place<TILE>(x, j);
        if (r < rows && q < cols) put(to + r * rs + q, out[c][i][j]);
      }
  }
}

/* Divides the accumulated result by its sum. The block of the first columns also writes the log of
** the sum to lse[]. */
template <class R, int TILE, int CHUNKS>
static __device__ inline void divide_rows(R *lse, int64_t row, int64_t rows, const R *most,
                                          const R *sum,
                                          R (*out)[tile_of<TILE>::per][tile_of<TILE>::per]) {
  enum { PER = tile_of<TILE>::per };
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < PER; i++) {
    const int64_t r = row + place<TILE>(y, i);
    const R by = sum[i] == 0 ? (R)0 : 1 / sum[i];
    if (x == 0 && r < rows && blockIdx.y == 0)
      lse[r] = sum[i] == 0 ? (R)INFINITY : most[i] + (R)log(sum[i]);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
      for (int j = 0; j < PER; j++) out[c][i][j] *= by;
  }
}

template <class T, class R, int TILE, int WHICH, int CHUNKS>
static __global__ void __launch_bounds__(TILE_THREADS, 2) attend(work<T, R> g) {
  typedef tiles<T, R, TILE, WHICH, CHUNKS> here;
  enum { PER = here::PER, BY_QUERY = here::BY_QUERY, PAIR = WHICH == DKEYS };
  __shared__ __align__(32) unsigned char memory[here::shared_size * sizeof(R)];
  __shared__ attention_parts<T> of;
  R *shared = (R *)(void *)memory;
  const attention_job<T, R> &j = g.of;
  const int64_t row = (int64_t)blockIdx.x * TILE;
  const int64_t column = (int64_t)blockIdx.y * TILE * CHUNKS;
  int64_t from = 0, to = BY_QUERY ? j.s : j.l;
  if (j.causal && BY_QUERY && to > row + TILE) to = row + TILE;
  if (j.causal && !BY_QUERY) from = row;
  R out[CHUNKS][PER][PER] = {}, other[PAIR ? CHUNKS : 1][PER][PER] = {}, most[PER], sum[PER];
#pragma unroll
  for (int i = 0; i < PER; i++) most[i] = (R)-INFINITY, sum[i] = 0;
  open_parts(j, &of);
  for (int64_t col = from; col < to; col += TILE) {
    R w[PER][PER] = {}, dw[PER][PER] = {};
    add_tiles<TILE>(BY_QUERY ? of.query : of.key, row, BY_QUERY ? of.key : of.query, col, 0, j.e,
                    shared, w);
    here::score(j, of.bias, row, col, w);
    if (WHICH != RESULT)
      add_tiles<TILE>(BY_QUERY ? of.dy : of.value, row, BY_QUERY ? of.value : of.dy, col, 0, j.v,
                      shared, dw);
    if (WHICH == RESULT) here::online_softmax(w, most, sum, out);
    else here::weigh(g, of.batch, row, col, w, dw);
    if (WHICH == RESULT) here::gather(of.value, col, column, w, shared, out);
    else here::gather(WHICH == DQUERY ? of.key : of.query, col, column, dw, shared, out);
    if (PAIR) here::gather(of.dy, col, column, w, shared, other);
  }
  if (WHICH == RESULT) {
    divide_rows<R, TILE, CHUNKS>(j.lse + of.batch * j.l, row, j.l, most, sum, out);
    store<T, TILE, CHUNKS>((T *)of.y.at, of.y.rs, row, column, j.l, j.v, out);
  } else {
    const int64_t rows = BY_QUERY ? j.l : j.s;
    store<R, TILE, CHUNKS>(g.to[0] + of.batch * rows * j.e, j.e, row, column, rows, j.e, out);
  }
  if (PAIR)
    store<R, TILE, CHUNKS>(g.to[1] + of.batch * j.s * j.v, j.v, row, column, j.s, j.v, other);
}

/* -- launching: all batches, and as many result columns as a block's registers hold -- */

template <class T, class R, int TILE, int WHICH, int CHUNKS>
static int run_chunks(moth_ctx *ctx, const moth_queue *q, work<T, R> g, int64_t batches,
                      int64_t rows, int64_t cols) {
  static const int64_t MOST = 65535;
  const int64_t wide = TILE * CHUNKS, columns = cols ? (cols + wide - 1) / wide : 1;
  int status = MOTH_OK;
  for (g.of.first = 0; !status && g.of.first < batches; g.of.first += MOST) {
    const int64_t now = batches - g.of.first < MOST ? batches - g.of.first : MOST;
    status = launch_on(ctx, q, attend<T, R, TILE, WHICH, CHUNKS>,
                       grid_for((rows + TILE - 1) / TILE, columns, now), TILE_THREADS, 0, g);
  }
  return status;
}

template <class T, class R, int WHICH>
static int run(moth_ctx *ctx, const moth_queue *q, const work<T, R> &g, int64_t batches) {
  enum { TILE = sizeof(R) == 8 ? 32 : 64 };
  const int64_t e = g.of.e, v = g.of.v, rows = WHICH == DKEYS ? g.of.s : g.of.l;
  const int64_t cols = WHICH == RESULT ? v : WHICH == DQUERY || e > v ? e : v;
  if (!batches || !rows) return MOTH_OK;
  if (cols <= TILE) return run_chunks<T, R, TILE, WHICH, 1>(ctx, q, g, batches, rows, cols);
  return run_chunks<T, R, TILE, WHICH, 2>(ctx, q, g, batches, rows, cols);
}

/* x with its head dimension before its rows, as kernels expect it; shares x's memory and is not
** reference-counted. */
static moth_tensor heads_first(const moth_tensor *x) {
  const int rows = x->l.ndim - 3, heads = rows + 1;
  moth_tensor y = *x;
  y.l.shape[rows] = x->l.shape[heads], y.l.stride[rows] = x->l.stride[heads];
  y.l.shape[heads] = x->l.shape[rows], y.l.stride[heads] = x->l.stride[rows];
  return y;
}

MOTH_CUDA(attention) {
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  const moth_tensor y = a->heads_last ? heads_first(out[0]) : *out[0];
  bool done = false;
  if (!q) return moth_status(a->ctx);
  int status = moth_attention_cudnn(a, q, &y, out[1], &done);
  if (!done && !status) status = moth_flash(a, q, &y, out[1], &done);
  if (done || status) return status;
  return with_float(y.l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    int64_t batches;
    work<T, real_of<T>> g = {};
    job_of(&g.of, a, out[1], &batches);
    g.of.y = matrices_of<T>(&y, g.of.lead);
    return run<T, real_of<T>, RESULT>(a->ctx, q, g, batches);
  });
}

/* -- the gradients -- */

/* dots[row] := the dot product of the rows of y and dy; a warp for each row */
template <class T, class R>
static __global__ void row_dots(int64_t rows, int64_t n, const T *y, const T *dy, R *dots) {
  const int64_t row = thread_number() / WARP;
  R sum = 0;
  if (row >= rows) return;
  for (int64_t j = threadIdx.x % WARP; j < n; j += WARP)
    sum += (R)get(y + row * n + j) * (R)get(dy + row * n + j);
  for (int by = WARP / 2; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  if (threadIdx.x % WARP == 0) dots[row] = sum;
}

/* The index of batch number `i` among the batches that share the gradient batch `own`. */
static __device__ inline int64_t batch_number(const batch_sum &f, int64_t own, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = f.lead.ndim - 1; d >= 0; d--) {
    int64_t *rest = f.step[d] ? &own : &i;
    at += *rest % f.lead.shape[d] * step;
    *rest /= f.lead.shape[d];
    step *= f.lead.shape[d];
  }
  return at;
}

template <class R> static __global__ void sum_batches(batch_sum f, const R *from, R *to) {
  const int64_t i = thread_number(), own = i / f.each;
  R sum = 0;
  if (own >= f.own) return;
  for (int64_t k = 0; k < f.repeats; k++)
    sum += from[batch_number(f, own, k) * f.each + i % f.each];
  to[i] = sum;
}

int gradient_open(moth_ctx *ctx, gradient_place *p, moth_tensor *y, const leading &lead, int64_t n,
                  int dtype, int narrow) {
  const bool own = batch_sum_of(y, lead).repeats == 1 && y->l.dtype == narrow;
  *p = gradient_place{y, NULL, NULL, !own || narrow == dtype};
  if (!own) p->all = attention_scratch(ctx, dtype, y->l.device, n);
  if (!own && !p->all) return moth_status(ctx);
  p->to = data<char>(own ? y : p->all);
  return MOTH_OK;
}

int gradient_close(moth_ctx *ctx, gradient_place *p, const leading &lead, int dtype, int status) {
  const batch_sum f = batch_sum_of(p->y, lead);
  const int64_t n = p->y->l.numel;
  moth_layout l = p->y->l;
  if (!p->all) return status;
  l.dtype = (uint8_t)dtype;
  moth_tensor *to = status || p->y->l.dtype == dtype ? p->y : moth_tensor_new(ctx, &l);
  if (!to) status = moth_status(ctx);
  if (!status && n) {
    if (dtype == MOTH_F64)
      status = launch(ctx, p->y, sum_batches<double>, blocks_for(n), BLOCK, 0, f,
                      (const double *)data<double>(p->all), data<double>(to));
    else
      status = launch(ctx, p->y, sum_batches<float>, blocks_for(n), BLOCK, 0, f,
                      (const float *)data<float>(p->all), data<float>(to));
  }
  if (!status && to != p->y) status = moth_copy_into(p->y, to);
  if (to != p->y) moth_tensor_release(to);
  moth_tensor_release(p->all);
  p->all = NULL;
  return status;
}

template <class T>
static int attention_back_typed(const attention_back_args *a, const moth_queue *q, int real,
                                moth_tensor **out) {
  typedef real_of<T> R;
  int64_t batches;
  work<T, R> g = {};
  gradient_place to[3];
  job_of(&g.of, a, a->lse, &batches);
  const attention_job<T, R> &j = g.of;
  g.of.dy = matrices_of<T>(a->grad, j.lead);
  const int64_t size[3] = {j.l * j.e, j.s * j.e, j.s * j.v};
  moth_tensor *dots = attention_scratch(a->ctx, real, out[0]->l.device, batches * j.l);
  int status = dots ? MOTH_OK : moth_status(a->ctx), opened = 0;
  for (; !status && opened < 3; opened++)
    status = gradient_open(a->ctx, &to[opened], out[opened], j.lead, batches * size[opened], real,
                           real);
  if (!status && batches > 0 && j.l > 0)
    status = launch_on(a->ctx, q, row_dots<T, R>, blocks_for(batches * j.l * WARP), BLOCK, 0,
                       batches * j.l, j.v, (const T *)data<T>(a->output),
                       (const T *)data<T>(a->grad), data<R>(dots));
  if (!status) {
    g.dots = data<R>(dots);
    g.to[0] = (R *)to[0].to;
    status = run<T, R, DQUERY>(a->ctx, q, g, batches);
  }
  if (!status) {
    g.to[0] = (R *)to[1].to, g.to[1] = (R *)to[2].to;
    status = run<T, R, DKEYS>(a->ctx, q, g, batches);
  }
  for (int i = 0; i < opened; i++) status = gradient_close(a->ctx, &to[i], j.lead, real, status);
  moth_tensor_release(dots);
  return status;
}

/* Converts all tensors to one type; half types stay only if all have the same. User-supplied dtypes
** may differ. */
MOTH_CUDA(attention_back) {
  attention_back_args c = *a;
  moth_tensor **at[] = {&c.query, &c.key, &c.value, &c.grad, &c.output, &c.bias, &c.lse};
  moth_tensor *own[7] = {NULL}, transposed[2];
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  const int real = a->query->l.dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  int status = q ? MOTH_OK : moth_status(a->ctx), dtype = a->query->l.dtype;
  for (int i = 0; i < 2 && a->heads_last; i++) {
    transposed[i] = heads_first(*at[3 + i]);
    *at[3 + i] = &transposed[i];
  }
  for (int i = 0; i < 6; i++)
    if (*at[i] && (*at[i])->l.dtype != dtype) dtype = real;
  for (int i = 0; i < 7 && !status; i++) {
    const int wanted = i == 6 ? real : dtype;
    if (!*at[i]) continue;
    if ((*at[i])->l.dtype != wanted) own[i] = moth_cast(*at[i], wanted);
    else if (i == 6) own[i] = moth_packed(*at[i]);
    else continue;
    if (!own[i]) status = moth_status(a->ctx);
    *at[i] = own[i];
  }
  bool done = false;
  if (!status) status = moth_attention_back_cudnn(&c, q, out, &done);
  if (!status && !done) status = moth_flash_back(&c, q, out, &done);
  for (int i = 3; !status && !done && i < 5; i++) {
    if (own[i]) continue;
    *at[i] = own[i] = moth_packed(*at[i]);
    if (!own[i]) status = moth_status(a->ctx);
  }
  if (!status && !done)
    status = with_float(dtype, [&](auto t) {
      return attention_back_typed<typename decltype(t)::of>(&c, q, real, out);
    });
  for (int i = 0; i < 7; i++) moth_tensor_release(own[i]);
  return status;
}

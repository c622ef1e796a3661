/* attention.cu -- attention in blocks, forward and backward: scores of TILE queries with as many
** keys at a time, never the whole (L, S) matrix; a row's largest score and its sum run along
** (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention).
**
** One kernel does four things, which differ in what a block's rows are and what they gather: the
** result and the gradient of the queries go through the keys, those of keys and values through the
** queries. Backward, scores are computed again for each; every sum has a fixed order.
*/
#include "../core/op/attention.h"

#include "tile.cuh"

enum { RESULT, DQUERY, DKEY, DVALUE };

struct leading { /* the leading dimensions, all broadcast */
  int ndim;
  int64_t shape[MOTH_MAX_DIMS];
};

template <class T> struct matrices { /* one for each batch */
  const T *at;
  int64_t rs, cs;
  int64_t step[MOTH_MAX_DIMS];
  bool packs;
};

template <class T, class R> struct work {
  leading lead;
  int64_t l, s, e, v; /* queries, keys, their size, size of the values */
  matrices<T> query, key, value, bias, dy;
  bool causal;
  R scale, *lse;
  const R *dots;      /* of each row of y with its gradient */
  void *to;           /* packed: T for the result, else R */
  int64_t first, columns;
};

template <class T>
static __device__ inline side<T> part_of(const matrices<T> &m, const leading &lead, int64_t batch,
                                         int64_t rows, int64_t cols) {
  side<T> s = {m.at, rows, cols, m.rs, m.cs, m.packs};
  for (int d = lead.ndim - 1; d >= 0; d--) {
    const int64_t over = batch / lead.shape[d];
    s.at += (batch - over * lead.shape[d]) * m.step[d];
    batch = over;
  }
  return s;
}

template <class T> static __device__ inline side<T> turned(side<T> s) {
  const int64_t rows = s.rows, rs = s.rs;
  s.rows = s.cols, s.cols = rows;
  s.rs = s.cs, s.cs = rs;
  return s;
}

/* The largest and the sum over the 16 threads that share rows. */
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

/* One block's tile of scores: rows from `row` on, of queries or keys, columns of the others. */
template <class T, class R, int TILE, int WHICH, int CHUNKS> struct tiles {
  enum { PER = tile_of<TILE>::per, DEPTH = tile_of<TILE>::depth, WIDE = tile_of<TILE>::wide };
  enum { BY_QUERY = WHICH == RESULT || WHICH == DQUERY };
  static constexpr int room = tile_room<TILE> + TILE * WIDE;

  /* w := scores, scaled; -inf where a key takes no part */
  static __device__ inline void score(const work<T, R> &g, const side<T> &bias, int64_t row,
                                      int64_t col, R (*w)[PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    for (int i = 0; i < PER; i++)
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

  /* w := exp(w - the row's largest), what was gathered before brought to the same measure */
  static __device__ inline void soften(R (*w)[PER], R *most, R *sum, R (*out)[PER][PER]) {
    for (int i = 0; i < PER; i++) {
      R top = most[i], all = 0;
      for (int j = 0; j < PER; j++) top = w[i][j] > top ? w[i][j] : top;
      top = row_max(top);
      const R old = top == (R)-INFINITY ? (R)1 : (R)exp(most[i] - top);
      for (int j = 0; j < PER; j++) {
        w[i][j] = w[i][j] == (R)-INFINITY ? (R)0 : (R)exp(w[i][j] - top);
        all += w[i][j];
      }
      most[i] = top;
      sum[i] = sum[i] * old + row_sum(all);
      for (int c = 0; c < CHUNKS; c++)
        for (int j = 0; j < PER; j++) out[c][i][j] *= old;
    }
  }

  /* w := exp(w - lse), the weights; times their gradients where `dw` has dy value^T */
  static __device__ inline void weigh(const work<T, R> &g, int64_t batch, int64_t row, int64_t col,
                                      R (*w)[PER], R (*dw)[PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    for (int i = 0; i < PER; i++)
      for (int j = 0; j < PER; j++) {
        const int64_t q = BY_QUERY ? row + place<TILE>(y, i) : col + place<TILE>(x, j);
        const int64_t at = batch * g.l + q;
        if (q >= g.l || w[i][j] == (R)-INFINITY) w[i][j] = 0;
        else {
          const R p = (R)exp(w[i][j] - g.lse[at]);
          w[i][j] = WHICH == DVALUE ? p : p * (dw[i][j] - g.dots[at]) * g.scale;
        }
      }
  }

  /* out += w times the rows of `from`, from `col` on; w goes through shared memory. */
  static __device__ inline void gather(const side<T> &from, int64_t col, int64_t column,
                                       R (*w)[PER], R *shared, R (*out)[PER][PER]) {
    const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    R *weights = shared + tile_room<TILE>, four[EACH_TAKES];
    const side<T> by_column = turned(from);
    for (int i = 0; i < PER; i++)
      for (int j = 0; j < PER; j++)
        weights[place<TILE>(x, j) * WIDE + place<TILE>(y, i)] = w[i][j];
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

template <class T, class R, int TILE, int WHICH, int CHUNKS>
static __device__ inline void store(const work<T, R> &g, int64_t batch, int64_t row, int64_t column,
                                    int64_t rows, int64_t cols, const R *most, const R *sum,
                                    R (*out)[tile_of<TILE>::per][tile_of<TILE>::per]) {
  enum { PER = tile_of<TILE>::per };
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  for (int i = 0; i < PER; i++) {
    const int64_t r = row + place<TILE>(y, i), at = batch * rows + r;
    if (r >= rows) continue;
    const R by = WHICH == RESULT ? (sum[i] == 0 ? (R)0 : 1 / sum[i]) : (R)1;
    if (WHICH == RESULT && x == 0 && column == 0)
      g.lse[at] = sum[i] == 0 ? (R)INFINITY : most[i] + (R)log(sum[i]);
    for (int c = 0; c < CHUNKS; c++)
      for (int j = 0; j < PER; j++) {
        const int64_t q = column + c * TILE + place<TILE>(x, j);
        if (q >= cols) continue;
        if (WHICH == RESULT) put((T *)g.to + at * cols + q, out[c][i][j] * by);
        else ((R *)g.to)[at * cols + q] = out[c][i][j];
      }
  }
}

template <class T, class R, int TILE, int WHICH, int CHUNKS>
static __global__ void __launch_bounds__(TILE_THREADS) attend(work<T, R> g) {
  typedef tiles<T, R, TILE, WHICH, CHUNKS> here;
  enum { PER = here::PER, BY_QUERY = here::BY_QUERY };
  __shared__ __align__(32) unsigned char room[here::room * sizeof(R)];
  R *shared = (R *)(void *)room;
  const int64_t batch = g.first + blockIdx.z, row = (int64_t)blockIdx.x * TILE;
  const int64_t column = (int64_t)blockIdx.y * TILE * CHUNKS;
  const side<T> query = part_of(g.query, g.lead, batch, g.l, g.e);
  const side<T> key = part_of(g.key, g.lead, batch, g.s, g.e);
  const side<T> value = part_of(g.value, g.lead, batch, g.s, g.v);
  const side<T> dy = part_of(g.dy, g.lead, batch, g.l, g.v);
  const side<T> bias = part_of(g.bias, g.lead, batch, g.l, g.s);
  const int64_t cols = WHICH == RESULT || WHICH == DVALUE ? g.v : g.e;
  const int64_t rows = BY_QUERY ? g.l : g.s;
  int64_t from = 0, to = BY_QUERY ? g.s : g.l;
  if (g.causal && BY_QUERY && to > row + TILE) to = row + TILE;
  if (g.causal && !BY_QUERY) from = row / TILE * TILE;
  R out[CHUNKS][PER][PER] = {}, most[PER], sum[PER];
  for (int i = 0; i < PER; i++) most[i] = (R)-INFINITY, sum[i] = 0;
  for (int64_t col = from; col < to; col += TILE) {
    R w[PER][PER] = {}, dw[PER][PER] = {};
    add_tiles<TILE>(BY_QUERY ? query : key, row, BY_QUERY ? key : query, col, 0, g.e, shared, w);
    here::score(g, bias, row, col, w);
    if (WHICH == DQUERY || WHICH == DKEY)
      add_tiles<TILE>(BY_QUERY ? dy : value, row, BY_QUERY ? value : dy, col, 0, g.v, shared, dw);
    if (WHICH == RESULT) here::soften(w, most, sum, out);
    else here::weigh(g, batch, row, col, w, dw);
    here::gather(WHICH == RESULT ? value : WHICH == DQUERY ? key : WHICH == DKEY ? query : dy, col,
                 column, w, shared, out);
  }
  store<T, R, TILE, WHICH, CHUNKS>(g, batch, row, column, rows, cols, most, sum, out);
}

/* -- launching: all batches, and columns of the result as far as a block's registers reach -- */

template <class T, class R, int TILE, int WHICH, int CHUNKS>
static int run_chunks(moth_ctx *ctx, const moth_queue *q, work<T, R> g, int64_t batches,
                      int64_t rows, int64_t cols) {
  static const int64_t MOST = 65535;
  const int64_t wide = TILE * CHUNKS, columns = cols ? (cols + wide - 1) / wide : 1;
  int status = MOTH_OK;
  for (g.first = 0; !status && g.first < batches; g.first += MOST) {
    const int64_t now = batches - g.first < MOST ? batches - g.first : MOST;
    status = launch_on(ctx, q, attend<T, R, TILE, WHICH, CHUNKS>,
                       dim3((unsigned)((rows + TILE - 1) / TILE), (unsigned)columns,
                            (unsigned)now),
                       TILE_THREADS, 0, g);
  }
  return status;
}

template <class T, class R, int WHICH>
static int run(moth_ctx *ctx, const moth_queue *q, const work<T, R> &g, int64_t batches) {
  enum { TILE = sizeof(R) == 8 ? 32 : 64 };
  const int64_t rows = WHICH == RESULT || WHICH == DQUERY ? g.l : g.s;
  const int64_t cols = WHICH == RESULT || WHICH == DVALUE ? g.v : g.e;
  if (!batches || !rows) return MOTH_OK;
  if (cols <= TILE) return run_chunks<T, R, TILE, WHICH, 1>(ctx, q, g, batches, rows, cols);
  return run_chunks<T, R, TILE, WHICH, 2>(ctx, q, g, batches, rows, cols);
}

/* -- arguments -- */

static leading lead_of(const moth_tensor *lse, int64_t *batches) {
  leading to = {};
  to.ndim = lse->l.ndim - 1;
  *batches = 1;
  for (int d = 0; d < to.ndim; d++) *batches *= to.shape[d] = lse->l.shape[d];
  return to;
}

/* x, of which dimensions before the last two may be missing or of size 1. */
template <class T> static matrices<T> matrices_of(const moth_tensor *x, const leading &lead) {
  matrices<T> m = {};
  const int n = x->l.ndim, more = lead.ndim - (n - 2);
  m.at = data<T>(x);
  m.rs = n < 2 || x->l.shape[n - 2] == 1 ? 0 : x->l.stride[n - 2];
  m.cs = n < 1 || x->l.shape[n - 1] == 1 ? 0 : x->l.stride[n - 1];
  if (n && x->l.shape[n - 1] == 1) m.cs = 1; /* as rows that are short; a bias is told below */
  const side<T> s = side_of<T>(m.at, 0, 0, m.rs, m.cs);
  m.packs = s.packs;
  for (int d = 0; d < lead.ndim; d++) {
    m.step[d] = d < more || x->l.shape[d - more] == 1 ? 0 : x->l.stride[d - more];
    m.packs = m.packs && m.step[d] % EACH_TAKES == 0;
  }
  return m;
}

template <class T> static matrices<T> bias_of(const moth_tensor *x, const leading &lead) {
  matrices<T> m = {};
  if (!x) return m;
  m = matrices_of<T>(x, lead);
  if (x->l.ndim < 1 || x->l.shape[x->l.ndim - 1] == 1) m.cs = 0;
  return m;
}

template <class T, class R, class A>
static work<T, R> work_of(const A *a, const moth_tensor *lse, int64_t *batches) {
  work<T, R> g = {};
  g.lead = lead_of(lse, batches);
  g.l = a->query->l.shape[a->query->l.ndim - 2];
  g.s = a->key->l.shape[a->key->l.ndim - 2];
  g.e = a->query->l.shape[a->query->l.ndim - 1];
  g.v = a->value->l.shape[a->value->l.ndim - 1];
  g.query = matrices_of<T>(a->query, g.lead);
  g.key = matrices_of<T>(a->key, g.lead);
  g.value = matrices_of<T>(a->value, g.lead);
  g.bias = bias_of<T>(a->bias, g.lead);
  g.causal = a->is_causal != 0;
  g.scale = (R)a->scale;
  g.lse = data<R>(lse);
  return g;
}

MOTH_CUDA(attention) {
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  if (!q) return moth_status(a->ctx);
  return with_float(out[0]->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    int64_t batches;
    work<T, real_of<T>> g = work_of<T, real_of<T>>(a, out[1], &batches);
    g.to = data<T>(out[0]);
    return run<T, real_of<T>, RESULT>(a->ctx, q, g, batches);
  });
}

/* -- the gradients -- */

/* dots[row] := the row of y times that of dy; a warp a row */
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

struct folding { /* a gradient of all batches onto a tensor that was broadcast to them */
  leading lead;
  int64_t step[MOTH_MAX_DIMS]; /* 0: a dimension that is summed */
  int64_t own, each, repeats;  /* own batches, elements of one, how many are summed for each */
};

/* Batch number `i` among those that share own batch `own`: digits of both in order. */
static __device__ inline int64_t batch_number(const folding &f, int64_t own, int64_t i) {
  int64_t at = 0, step = 1;
  for (int d = f.lead.ndim - 1; d >= 0; d--) {
    int64_t *rest = f.step[d] ? &own : &i;
    at += *rest % f.lead.shape[d] * step;
    *rest /= f.lead.shape[d];
    step *= f.lead.shape[d];
  }
  return at;
}

template <class R> static __global__ void fold(folding f, const R *from, R *to) {
  const int64_t i = thread_number(), own = i / f.each;
  R sum = 0;
  if (own >= f.own) return;
  for (int64_t k = 0; k < f.repeats; k++)
    sum += from[batch_number(f, own, k) * f.each + i % f.each];
  to[i] = sum;
}

static moth_tensor *scratch(moth_ctx *ctx, int dtype, int device, int64_t n) {
  moth_layout l = {};
  l.dtype = (uint8_t)dtype;
  l.device = (uint8_t)device;
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.stride[0] = 1;
  return moth_tensor_new(ctx, &l);
}

/* y := the gradient of all batches, folded and in y's type; takes `all`. */
template <class R>
static int hand_out(moth_ctx *ctx, moth_tensor *y, moth_tensor *all, const leading &lead,
                    int dtype) {
  folding f = {};
  f.lead = lead;
  f.own = f.repeats = 1;
  const int more = lead.ndim - (y->l.ndim - 2);
  for (int d = 0; d < lead.ndim; d++) {
    f.step[d] = d >= more && (y->l.shape[d - more] != 1 || lead.shape[d] == 1);
    *(f.step[d] ? &f.own : &f.repeats) *= lead.shape[d];
  }
  const int64_t n = y->l.numel;
  f.each = n ? n / f.own : 1;
  int status = MOTH_OK;
  moth_layout l = y->l;
  l.dtype = (uint8_t)dtype;
  moth_tensor *to = y->l.dtype == dtype ? y : moth_tensor_new(ctx, &l);
  if (!to) status = moth_status(ctx);
  else if (n)
    status = launch(ctx, y, fold<R>, blocks_for(n), BLOCK, 0, f, (const R *)data<R>(all),
                    data<R>(to));
  if (to && to != y && !status) status = moth_copy_into(y, to);
  if (to != y) moth_tensor_release(to);
  moth_tensor_release(all);
  return status;
}

template <class T, class R, int WHICH>
static int gradient(moth_ctx *ctx, const moth_queue *q, work<T, R> g, int64_t batches, int dtype,
                    moth_tensor *y) {
  const int64_t rows = WHICH == DQUERY ? g.l : g.s, cols = WHICH == DVALUE ? g.v : g.e;
  moth_tensor *all = scratch(ctx, dtype, y->l.device, batches * rows * cols);
  if (!all) return moth_status(ctx);
  g.to = data<R>(all);
  int status = run<T, R, WHICH>(ctx, q, g, batches);
  if (!status) return hand_out<R>(ctx, y, all, g.lead, dtype);
  moth_tensor_release(all);
  return status;
}

template <class T>
static int attention_back_typed(const attention_back_args *a, const moth_queue *q, int real,
                                moth_tensor **out) {
  typedef real_of<T> R;
  int64_t batches;
  work<T, R> g = work_of<T, R>(a, a->lse, &batches);
  g.dy = matrices_of<T>(a->grad, g.lead);
  moth_tensor *dots = scratch(a->ctx, real, out[0]->l.device, batches * g.l);
  if (!dots) return moth_status(a->ctx);
  int status = MOTH_OK;
  if (batches > 0 && g.l > 0)
    status = launch_on(a->ctx, q, row_dots<T, R>, blocks_for(batches * g.l * WARP), BLOCK, 0,
                       batches * g.l, g.v, (const T *)data<T>(a->output),
                       (const T *)data<T>(a->grad), data<R>(dots));
  g.dots = data<R>(dots);
  if (!status) status = gradient<T, R, DQUERY>(a->ctx, q, g, batches, real, out[0]);
  if (!status) status = gradient<T, R, DKEY>(a->ctx, q, g, batches, real, out[1]);
  if (!status) status = gradient<T, R, DVALUE>(a->ctx, q, g, batches, real, out[2]);
  moth_tensor_release(dots);
  return status;
}

/* All in one type, half types only if all are of the same: what comes from the user may differ. */
MOTH_CUDA(attention_back) {
  attention_back_args c = *a;
  moth_tensor **at[] = {&c.query, &c.key, &c.value, &c.grad, &c.output, &c.bias, &c.lse};
  moth_tensor *own[7] = {NULL};
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  const int real = a->query->l.dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  int status = q ? MOTH_OK : moth_status(a->ctx), dtype = a->query->l.dtype;
  for (int i = 0; i < 6; i++)
    if (*at[i] && (*at[i])->l.dtype != dtype) dtype = real;
  for (int i = 0; i < 7 && !status; i++) {
    const int wanted = i == 6 ? real : dtype;
    if (!*at[i]) continue;
    if ((*at[i])->l.dtype != wanted) own[i] = moth_cast(*at[i], wanted);
    else if (i == 3 || i == 4 || i == 6) own[i] = moth_packed(*at[i]);
    else continue;
    if (!own[i]) status = moth_status(a->ctx);
    *at[i] = own[i];
  }
  if (!status)
    status = with_float(dtype, [&](auto t) {
      return attention_back_typed<typename decltype(t)::of>(&c, q, real, out);
    });
  for (int i = 0; i < 7; i++) moth_tensor_release(own[i]);
  return status;
}

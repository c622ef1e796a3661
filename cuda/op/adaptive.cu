/* adaptive.cu -- pooling to a given output size. Output i of an axis covers the input elements from
** floor(i in / out) to ceil((i + 1) in / out). A team of threads computes each result: one thread,
** a warp where windows are large, or a whole block. */
#include "../../core/op/adaptive.h"

#include "lib/window.cuh"

struct shares {
  int64_t n, in[2], out[2]; /* number of results */
  quotient_by by_in[2], by_out[2];
  channels c;
  cells at;
};

static shares shares_of(const moth_layout *image, const moth_layout *seen, const moth_layout *of,
                        bool channels_last) {
  const int high = image->ndim - 2;
  shares s = {of->numel, {0, 0}, {0, 0}, {}, {}, channels_of(of, channels_last), {}};
  for (int i = 0; i < 2; i++) {
    s.in[i] = image->shape[high + i];
    s.out[i] = seen->shape[high + i];
    const int64_t most = s.in[i] * s.out[i] + s.in[i] + s.out[i];
    s.by_in[i] = quotients(s.in[i], most);
    s.by_out[i] = quotients(s.out[i], most);
  }
  s.at = cells_of(planes_of(image, s.c), of->shape[high], of->shape[high + 1]);
  return s;
}

struct share { /* the window of one output: a rectangle of a plane */
  int64_t row, col, wide, n;
};

static __device__ inline share share_of(const shares &s, int oy, int ox) {
  const int64_t r0 = divide(oy * s.in[0], s.by_out[0]), c0 = divide(ox * s.in[1], s.by_out[1]);
  const int64_t r1 = divide((oy + 1) * s.in[0] + s.out[0] - 1, s.by_out[0]);
  const int64_t c1 = divide((ox + 1) * s.in[1] + s.out[1] - 1, s.by_out[1]);
  return share{r0, c0, c1 - c0, (r1 - r0) * (c1 - c0)};
}

/* The window of result i, and the thread's index in a team of TEAM threads. */
template <int TEAM> static __device__ inline int64_t team_result(int *turn) {
  *turn = TEAM == 1 ? 0 : (int)threadIdx.x % TEAM;
  return TEAM == BLOCK ? (int64_t)blockIdx.x : thread_number() / TEAM;
}

template <int TEAM, class F>
static __device__ inline typename F::state joined(const F &f, typename F::state mine) {
  if constexpr (TEAM == BLOCK) return join_block(f, mine);
  else if constexpr (TEAM == WARP) return join_lanes(f, mine);
  else return mine;
}

/* Reduces each window with F, a reduction as in reduce.cuh: take() gets the element's position on
** the plane, end() the number of elements. */
template <class F, class T, int TEAM>
static __global__ void reduce_shares(F f, shares s, const T *x) {
  int turn, oy, ox;
  int64_t i = team_result<TEAM>(&turn), plane, channel;
  const bool mine = i < s.n;
  if (!mine) i = 0; /* no early return: the team's threads reduce together */
  cell_of(s.at, pixel_of(s.c, i, &channel), &plane, &oy, &ox);
  const share h = share_of(s, oy, ox);
  typename F::state r = f.start();
  x += plane * s.in[0] * s.in[1] * s.c.each.by + channel;
  /* Advance by TEAM elements, expressed in rows and columns, to avoid divisions in the loop. */
  const unsigned wide = h.wide > TEAM ? TEAM + 1 : (unsigned)h.wide;
  const unsigned row = (unsigned)turn / wide, rows = (unsigned)TEAM / wide;
  const int64_t columns = TEAM - rows * wide, ahead = rows * s.in[1] + columns;
  int64_t col = turn - row * wide, at = (h.row + row) * s.in[1] + h.col + col;
  for (int64_t k = turn; k < h.n; k += TEAM) {
    f.take(r, get(x + at * s.c.each.by), at);
    at += ahead;
    col += columns;
    if (col < h.wide) continue;
    col -= h.wide;
    at += s.in[1] - h.wide;
  }
  r = joined<TEAM>(f, r);
  if (mine && turn == 0) f.end(r, i, h.n);
}

/* make(type) returns the reduction for the packed x. */
template <class Make>
static int reduce_shares_of(const moth_tensor *input, const moth_tensor *y, Make make) {
  moth_ctx *ctx = input->ctx;
  const bool channels_last = goes_channels_last(input, y);
  const shares s = shares_of(&input->l, &y->l, &y->l, channels_last);
  if (s.n == 0) return MOTH_OK;
  const int64_t each = s.in[0] * s.in[1] / (s.out[0] * s.out[1]);
  moth_tensor *x = moth_packed_as(input, channels_last);
  if (!x) return moth_status(ctx);
  int status = with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const auto f = make(t);
    typedef typename std::remove_const<decltype(f)>::type F;
    /* In channels_last, the threads of neighbouring results read adjacent channels. */
    const int team = each >= 4096 ? (int)BLOCK : each >= 32 && !channels_last ? (int)WARP : 1;
    const dim3 grid = team == BLOCK ? grid_for(s.n) : blocks_for(s.n * team);
    void (*kernel)(F, shares, const T *) = team == BLOCK  ? reduce_shares<F, T, BLOCK>
                                           : team == WARP ? reduce_shares<F, T, WARP>
                                                          : reduce_shares<F, T, 1>;
    return launch(ctx, y, kernel, grid, BLOCK, 0, f, s, (const T *)data<T>(x));
  });
  moth_tensor_release(x);
  return status;
}

/* -- the mean -- */

template <class T> struct mean_share {
  typedef real_of<T> state;
  T *y;
  MEMBER state start() const { return 0; }
  MEMBER void take(state &r, state v, int64_t) const { r += v; }
  MEMBER state join(state a, state b) const { return a + b; }
  MEMBER void end(state r, int64_t i, int64_t n) const { put(y + i, r / (state)n); }
};

MOTH_CUDA(adaptive_avg_pool2d) {
  return reduce_shares_of(a->input, out[0], [&](auto t) {
    typedef typename decltype(t)::of T;
    return mean_share<T>{data<T>(out[0])};
  });
}

template <class T> static __global__ void mean_shares_back(shares s, const T *dy, T *dx) {
  const int64_t i = thread_number();
  int64_t plane, channel, first[2], last[2];
  int at[2];
  if (i >= s.n) return;
  cell_of(s.at, pixel_of(s.c, i, &channel), &plane, &at[0], &at[1]);
  for (int d = 0; d < 2; d++) { /* the outputs whose windows contain this element */
    first[d] = divide(at[d] * s.out[d], s.by_in[d]);
    last[d] = divide((at[d] + 1) * s.out[d] + s.in[d] - 1, s.by_in[d]);
  }
  real_of<T> sum = 0;
  dy += plane * s.out[0] * s.out[1] * s.c.each.by + channel;
  for (int64_t oy = first[0]; oy < last[0]; oy++)
    for (int64_t ox = first[1]; ox < last[1]; ox++)
      sum += get(dy + (oy * s.out[1] + ox) * s.c.each.by) /
             (real_of<T>)share_of(s, (int)oy, (int)ox).n;
  put(dx + i, sum);
}

MOTH_CUDA(adaptive_avg_pool2d_back) {
  const bool channels_last = goes_channels_last(a->input, out[0]);
  const shares s = shares_of(&out[0]->l, &a->input->l, &out[0]->l, channels_last);
  if (s.n == 0) return MOTH_OK;
  moth_tensor *dy = moth_packed_as(a->input, channels_last);
  if (!dy) return moth_status(a->ctx);
  int status = with_float(dy->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], mean_shares_back<T>, blocks_for(s.n), BLOCK, 0, s, data<T>(dy),
                  data<T>(out[0]));
  });
  moth_tensor_release(dy);
  return status;
}

/* -- the maximum: the first of equal values; the last NaN wins over all numbers -- */

template <class T> struct largest_share {
  struct state {
    real_of<T> value;
    int64_t at; /* -1: none yet */
  };
  T *y;
  int64_t *index;
  MEMBER state start() const { return state{0, -1}; }
  MEMBER void take(state &r, real_of<T> v, int64_t at) const { r = join(r, state{v, at}); }
  MEMBER state join(state a, state b) const {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    const bool nan = a.value != a.value, other = b.value != b.value;
    if (nan || other) return nan && (!other || a.at > b.at) ? a : b;
    if (a.value == b.value) return a.at < b.at ? a : b;
    return a.value > b.value ? a : b;
  }
  MEMBER void end(state r, int64_t i, int64_t) const {
    put(y + i, r.value);
    index[i] = r.at;
  }
};

MOTH_CUDA(adaptive_max_pool2d) {
  return reduce_shares_of(a->input, out[0], [&](auto t) {
    typedef typename decltype(t)::of T;
    return largest_share<T>{data<T>(out[0]), data<int64_t>(out[1])};
  });
}

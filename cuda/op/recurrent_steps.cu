/* recurrent_steps.cu -- all steps of a recurrent layer in one kernel. A step is little work, but
** the next step depends on it. So the blocks stay resident, keep their share of the recurrent
** weights in shared memory, and synchronize after each step (Diamos et al. 2016, "Persistent
** RNNs"). A block has all gates of some units, for 16 rows of the batch, or for several groups of
** 16 rows in sequence; it does not wait for blocks of other rows.
**
** Products use tensor cores if the device has them: a warp sums over a share of the columns, f32 as
** one or two TF32 numbers.
**
** If all blocks cannot be resident at once, the same kernel is launched once for each step. */
#include "recurrent.cuh"

#include "host/device.cuh"
#include "lib/mma.cuh"

enum { THREADS = 256, ROWS = 16, CHUNK = 256, EDGE = 4 }; /* EDGE: padding against bank conflicts */
enum { SLOT = ROWS * (CHUNK + EDGE), WARPS = THREADS / WARP };

struct part { /* the part of one launch: steps first to last - 1, in processing order */
  int64_t first, last;
  int units, columns, wide; /* of a block: units, columns of the weights, and their row length in
                            ** shared memory */
  int slots;                /* buffers for states in shared memory */
  unsigned *arrived;        /* counter of the blocks for the same rows; NULL: a single step */
};

/* -- products: `M` rows of weights by ROWS rows of states, 4 by 4 for each thread -- */

/* The threads that share the columns of a product; consecutive threads use adjacent columns. */
template <int M> struct cut {
  enum { tiles = M / 4 * (ROWS / 4), splits = tiles > 16 ? 8 : THREADS / tiles };
};

/* Adds the products of columns `from` to `from + count` - 1 of w, which are columns 0 to count - 1
** of x. */
template <int M>
static __device__ inline void add_columns(const float *w, int wide, const float *x, int from,
                                          int count, float sum[4][4]) {
  enum { SPLITS = cut<M>::splits };
  const int split = (int)threadIdx.x % SPLITS, tile = (int)threadIdx.x / SPLITS;
  if (tile >= cut<M>::tiles) return;
  const float *p = w + tile % (M / 4) * 4 * wide + from;
  const float *q = x + tile / (M / 4) * 4 * (CHUNK + EDGE);
  for (int c = split * 4; c < count; c += SPLITS * 4) {
    float4 a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = *(const float4 *)(const void *)(p + i * wide + c);
#pragma unroll
    for (int i = 0; i < 4; i++) b[i] = *(const float4 *)(const void *)(q + i * (CHUNK + EDGE) + c);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        sum[i][j] += a[i].x * b[j].x + a[i].y * b[j].y + a[i].z * b[j].z + a[i].w * b[j].w;
  }
}

/* to[m * ROWS + r] := the sums of all threads that share them. */
template <int M> static __device__ inline void join(float sum[4][4], float *to) {
  enum { SPLITS = cut<M>::splits };
  const int split = (int)threadIdx.x % SPLITS, tile = (int)threadIdx.x / SPLITS;
#pragma unroll
  for (int e = 0; e < 16; e++) {
    float v = sum[e / 4][e % 4];
#pragma unroll
    for (int by = SPLITS / 2; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    const int m = tile % (M / 4) * 4 + e / 4, r = tile / (M / 4) * 4 + e % 4;
    if (tile < cut<M>::tiles && e % SPLITS == split) to[m * ROWS + r] = v;
  }
}

/* -- rows of states or of gates: (batch, columns), `ld` apart -- */

struct rows_at {
  const float *at;
  int64_t ld;
  int columns, jump; /* columns from `jump` on are `by` elements further on */
  int64_t by;
  bool packs; /* rows can be read four elements at a time */
};

static __device__ inline rows_at rows_of(const float *at, int64_t ld, int columns, int jump,
                                         int64_t by) {
  const bool packs = (((uintptr_t)at / 4) | ld | columns | jump | by) % 4 == 0;
  return {at, ld, columns, jump, by, packs};
}

/* Other blocks write these rows while the kernel runs: they are read from L2, past the L1 cache. */
static __device__ inline void stage(const rows_at &x, int64_t row, int64_t batch, int from,
                                    int count, float *to) {
  for (int c = (int)threadIdx.x; c < count; c += THREADS) {
    const int column = from + c;
    const int64_t at = row * x.ld + column + (column >= x.jump ? x.by : 0);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const bool inside = row + r < batch && column < x.columns;
      to[r * (CHUNK + EDGE) + c] = inside ? __ldcg(x.at + at + r * x.ld) : 0;
    }
  }
}

/* -- the same on tensor cores, for f32 as PARTS TF32 numbers -- */

/* Loads the next columns while the current ones are multiplied. */
static __device__ inline void load_later(const rows_at &x, int64_t row, int64_t batch, int from,
                                         int count, float *to) {
  enum { ACROSS = CHUNK / 4 };
  const int c = (int)threadIdx.x % ACROSS * 4, column = from + c;
  if (!x.packs) return stage(x, row, batch, from, count, to);
  if (c >= count) return;
  for (int r = (int)threadIdx.x / ACROSS; r < ROWS; r += THREADS / ACROSS) {
    const bool inside = row + r < batch && column < x.columns;
    const float *at = x.at + (row + r) * x.ld + column + (column >= x.jump ? x.by : 0);
    copy_later<16>(to + r * (CHUNK + EDGE) + c, inside ? at : x.at, inside);
  }
}

/* Each warp uses every WARPS-th group of eight columns. */
template <int M, int PARTS>
static __device__ inline void add_columns(const float *w, int wide, const float *x, int from,
                                          int count, float (*sum)[4]) {
  const int lane = (int)threadIdx.x % WARP;
  const float *left = w + from + lane / 16 * 4;
  const float *right = x + (lane / 16 * 8 + lane % 8) * (CHUNK + EDGE) + lane / 8 % 2 * 4;
  for (int c = (int)threadIdx.x / WARP * 8; c < count; c += WARPS * 8) {
    uint32_t a[PARTS][4], b[PARTS][4];
    load_factor<PARTS>(b, right + c);
#pragma unroll
    for (int m = 0; m < M; m += 16) {
      const int row = m + lane % 16;
      const float *at = left + c + (row < M ? row : M - 1) * wide;
      if constexpr (PARTS == 1) load_matrices(a[0], at); /* converted already, by weight_of() */
      else load_factor<PARTS>(a, at);
      for (int n = 0; n < 2; n++) multiply_factors<PARTS>(sum[m / 8 + n], a, b, 2 * n);
    }
  }
}

/* Adds the sums of all warps, in order. */
template <int M>
static __device__ inline void join(const float (*sum)[4], float *buffer, float *to) {
  const int lane = (int)threadIdx.x % WARP;
  float *own = buffer + (int)threadIdx.x / WARP * M * ROWS;
  static_assert(WARPS * M * ROWS <= (M > 32 ? 2 : 1) * SLOT, "sums reuse the memory of states");
  __syncthreads();
#pragma unroll
  for (int e = 0; e < (M + 15) / 16 * 8; e++) {
    const int m = e / 8 * 16 + lane / 4 + e % 4 / 2 * 8, r = e / 4 % 2 * 8 + lane % 4 * 2 + e % 2;
    if (m < M) own[m * ROWS + r] = sum[e / 4][e % 4];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < M * ROWS; i += THREADS) {
    float v = 0;
    for (int k = 0; k < WARPS; k++) v += buffer[k * M * ROWS + i];
    to[i] = v;
  }
}

/* -- common to both; PARTS is 0 without tensor cores -- */

template <int PARTS> static __device__ inline float weight_of(float w) {
  if constexpr (PARTS == 1) return float_of(tf32_of(w));
  else return w;
}

/* out := the products of all columns, from `row` on. */
template <int M, int PARTS>
static __device__ inline void multiply(const float *w, const part &p, const rows_at &x,
                                       int64_t row, int64_t batch, float *buffer, float *out) {
  float sum[PARTS ? (M + 15) / 16 * 2 : 4][4] = {};
  const int wide = p.wide, columns = wide - EDGE;
  const auto count = [=](int from) { return columns - from < CHUNK ? columns - from : CHUNK; };
  if constexpr (PARTS == 0) {
    for (int from = 0; from < columns; from += CHUNK) {
      __syncthreads();
      stage(x, row, batch, from, count(from), buffer);
      __syncthreads();
      add_columns<M>(w, wide, buffer, from, count(from), sum);
    }
    join<M>(sum, out);
  } else {
    __syncthreads();
    for_tiles(p.slots == 2, 0, columns, CHUNK, [&](int slot, int from) {
      load_later(x, row, batch, from, count(from), buffer + slot * SLOT);
    }, [&](int slot, int from) {
      add_columns<M, PARTS>(w, wide, buffer + slot * SLOT, from, count(from), sum);
    });
    join<M>(sum, buffer, out);
  }
  __syncthreads();
}

/* -- step by step -- */

/* Waits for the blocks of the same rows, for the n-th time. */
static __device__ inline void meet(unsigned *arrived, unsigned n) {
  unsigned *mine = arrived + blockIdx.y;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(mine, 1u);
    while (*(volatile unsigned *)mine < n * gridDim.x) {
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 700 /* older GPUs cannot sleep */
      __nanosleep(20);
#endif
    }
    __threadfence();
  }
  __syncthreads();
}

static __device__ inline int64_t time_of(const rnn_steps<float> &s, int64_t i) {
  return s.reversed ? s.steps - 1 - i : i;
}

/* The pointers of step i, for its units. */
static __device__ inline step<float> step_of(const rnn_steps<float> &s, int64_t i) {
  const int64_t t = time_of(s, i), past = time_of(s, i - 1) * s.batch;
  const int64_t kept = s.mode == MOTH_LSTM || s.mode == MOTH_GRU ? 4 : 1;
  step<float> at = {};
  at.mode = s.mode;
  at.n = s.n, at.ld = s.ld, at.ld0 = i ? s.ld : s.n;
  at.gates = s.gates + t * s.batch * kept * s.n;
  at.h = s.y + t * s.batch * s.ld;
  at.h0 = i ? s.y + past * s.ld : s.h0;
  if (s.mode == MOTH_LSTM) {
    at.c = s.cells + t * s.batch * s.n;
    at.c0 = i ? s.cells + past * s.n : s.c0;
  }
  if (!s.dgates) return at;
  at.dy = s.dy + t * s.batch * s.ld;
  at.dgates = s.dgates + t * s.batch * kept * s.n;
  at.dh = s.dh, at.dc = s.dc;
  at.begun = i ? NULL : s.begun;
  return at;
}

/* Loads the block's rows of the weights: its units of each gate, gate after gate. */
template <int M, int PARTS>
static __device__ inline void keep_rows(const rnn_steps<float> &s, const part &p, float *w) {
  const int64_t unit = (int64_t)blockIdx.x * p.units;
  for (int i = (int)threadIdx.x; i < M * p.wide; i += THREADS) {
    const int m = i / p.wide, c = i % p.wide;
    const int64_t j = unit + m % p.units;
    w[i] = c < p.columns && j < s.n ? weight_of<PARTS>(s.w[(m / p.units * s.n + j) * s.n + c]) : 0;
  }
}

template <int M, int PARTS>
static __global__ void __launch_bounds__(THREADS, 2) forward_steps(rnn_steps<float> s, part p) {
  float *w = shared_memory<float>(), *buffer = w + M * p.wide;
  float *out = buffer + p.slots * SLOT;
  const int64_t unit = (int64_t)blockIdx.x * p.units;
  keep_rows<M, PARTS>(s, p, w);
  for (int64_t i = p.first; i < p.last; i++) {
    const step<float> at = step_of(s, i);
    const rows_at x = rows_of(at.h0, at.ld0, p.columns, p.columns, 0);
    for (int64_t row = (int64_t)blockIdx.y * ROWS; row < s.batch; row += gridDim.y * ROWS) {
      multiply<M, PARTS>(w, p, x, row, s.batch, buffer, out);
      for (int e = (int)threadIdx.x; e < p.units * ROWS; e += THREADS) {
        const int u = e % p.units, r = e / p.units;
        float more[4];
#pragma unroll /* otherwise they would be in local memory */
        for (int g = 0; g < 4; g++)
          more[g] = g < M / p.units ? out[(g * p.units + u) * ROWS + r] : 0;
        if (row + r < s.batch && unit + u < s.n) unit_forward(at, row + r, unit + u, more);
      }
    }
    if (p.arrived && i + 1 < p.last) meet(p.arrived, (unsigned)(i + 1 - p.first));
  }
}

/* Loads the weights' columns of M units, which multiply the gradients of the gates. */
template <int M, int PARTS>
static __device__ inline void keep_columns(const rnn_steps<float> &s, const part &p, float *w) {
  const int64_t unit = (int64_t)blockIdx.x * M;
  for (int i = (int)threadIdx.x; i < M * p.wide; i += THREADS) {
    const int m = i % M, c = i / M;
    w[m * p.wide + c] =
      c < p.columns && unit + m < s.n ? weight_of<PARTS>(s.w[c * s.n + unit + m]) : 0;
  }
}

/* The backward pass, step by step; the final value is the gradient of the initial state. */
template <int M, int PARTS>
static __global__ void __launch_bounds__(THREADS, 2) back_steps(rnn_steps<float> s, part p) {
  float *w = shared_memory<float>(), *buffer = w + M * p.wide;
  float *out = buffer + p.slots * SLOT;
  const int64_t unit = (int64_t)blockIdx.x * M, n = s.n;
  const bool gru = s.mode == MOTH_GRU;
  keep_columns<M, PARTS>(s, p, w);
  for (int64_t done = p.first; done < p.last; done++) {
    const int64_t i = s.steps - 1 - done; /* the current step; -1: only the initial state is left */
    const step<float> at = step_of(s, i < 0 ? 0 : i), later_one = step_of(s, i + (done != 0));
    const rows_at x = rows_of(later_one.dgates, gru ? 4 * n : p.columns, p.columns,
                              gru ? (int)(2 * n) : p.columns, gru ? n : 0);
    for (int64_t row = (int64_t)blockIdx.y * ROWS; row < s.batch; row += gridDim.y * ROWS) {
      if (done) multiply<M, PARTS>(w, p, x, row, s.batch, buffer, out);
      for (int e = (int)threadIdx.x; e < M * ROWS; e += THREADS) {
        const int64_t k = row + e / M, j = unit + e % M;
        if (k >= s.batch || j >= n) continue;
        float later = done ? out[e % M * ROWS + e / M] : 0;
        if (!done || gru) later += s.dh[k * n + j];
        if (i >= 0) unit_back(at, k, j, later);
        else s.dh[k * n + j] = later;
      }
    }
    if (p.arrived && done + 1 < p.last) meet(p.arrived, (unsigned)(done + 1 - p.first));
  }
}

/* -- launching -- */

/* Flops of a step above which one product for each step is as fast, for each PARTS. Estimated, not
** measured. */
static const double MOST_WORK[3] = {2e8, 8e8, 4e8};

typedef void steps_kernel(rnn_steps<float> s, part p);

static size_t bytes_for(const part &p, int m) {
  return ((size_t)m * (size_t)p.wide + (size_t)p.slots * SLOT + (size_t)m * ROWS) * sizeof(float);
}

/* Tests if all blocks can be resident at once: blocks that wait for each other must be. */
static bool all_fit(const moth_queue *q, steps_kernel *kernel, dim3 grid, size_t bytes) {
  int each = 0;
  if (!q->together) return false;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, bytes)) {
    cudaGetLastError();
    return false;
  }
  return (int64_t)grid.x * grid.y <= (int64_t)each * q->processors;
}

/* Launches all `count` steps. */
static int launch_steps(moth_ctx *ctx, const moth_queue *q, steps_kernel *kernel,
                        const rnn_steps<float> &s, part p, dim3 grid, size_t bytes, int64_t count) {
  void *args[] = {(void *)&s, &p};
  moth_layout l = {};
  int status = bytes > SHARED_UNASKED ? moth_allow_shared(ctx, q, MOTH_KERNEL(kernel)) : MOTH_OK;
  if (status) return status;
  const bool together = all_fit(q, kernel, grid, bytes);
  const moth_kernel_call call = {MOTH_KERNEL(kernel), grid, dim3(THREADS), bytes, args, together};
  if (!together) {
    for (p.first = 0; !status && p.first < count; p.first++) {
      p.last = p.first + 1;
      status = moth_launch(ctx, q, &call);
    }
    return status;
  }
  l.ndim = 1;
  l.dtype = MOTH_I32;
  l.device = (uint8_t)(q->device + 1);
  l.shape[0] = l.numel = grid.y;
  moth_tensor *arrived = moth_tensor_new(ctx, &l);
  if (!arrived) return moth_status(ctx);
  p.last = count;
  p.arrived = data<unsigned>(arrived);
  status = moth_launched(ctx, q, cudaMemsetAsync(p.arrived, 0, grid.y * sizeof(unsigned),
                                                 q->stream));
  if (!status) status = moth_launch(ctx, q, &call);
  moth_tensor_release(arrived);
  return status;
}

static int64_t gates_of(const rnn_steps<float> &s) { return moth_rnn_gates(s.mode); }

/* The partition of the work: a block has m rows of weights. */
struct cutting {
  int parts, m;
  part p;
  dim3 grid;
};

/* Tests if resident blocks can hold m rows of weights each, for `units` units; sets the largest
** possible grid. */
static bool fits(const moth_queue *q, const rnn_steps<float> &s, int m, int units, cutting *c) {
  const int64_t across = (s.n + units - 1) / units, down = (s.batch + ROWS - 1) / ROWS;
  c->m = m;
  c->p.units = units;
  c->p.wide = (c->p.columns + 127) / 128 * 128 + EDGE;
  c->p.slots = c->parts ? 2 : 1;
  if (m <= 32 && bytes_for(c->p, m) > q->shared) c->p.slots = 1;
  const size_t bytes = bytes_for(c->p, m), kib = 1024; /* reserved by the system for each block */
  if (bytes > q->shared) return false;
  const int64_t most = q->processors * (2 * (bytes + kib) <= q->shared + kib ? 2 : 1);
  if (q->together && across > most) return false;
  const int64_t can = q->together ? most / across : down;
  c->grid = grid_for(across, down < can ? down : can > 65535 ? 65535 : can);
  return true;
}

static cutting begin(const moth_queue *q, const rnn_steps<float> &s, int64_t columns) {
  cutting c = {};
  c.parts = !q->tensor_cores ? 0 : s.tf32 ? 1 : 2;
  c.p.columns = (int)columns;
  return c;
}

static bool worth_it(const rnn_steps<float> &s, int parts) {
  const double work = 2.0 * (double)s.batch * (double)gates_of(s) * (double)s.n * (double)s.n;
  return s.steps > 1 && s.batch > 0 && s.n <= 4096 && work <= MOST_WORK[parts];
}

static steps_kernel *forward_kernel(int m, int parts) {
  static steps_kernel *const of[4][3] = {
    {forward_steps<24, 0>, forward_steps<24, 1>, forward_steps<24, 2>},
    {forward_steps<32, 0>, forward_steps<32, 1>, forward_steps<32, 2>},
    {NULL, forward_steps<48, 1>, forward_steps<48, 2>},
    {NULL, forward_steps<64, 1>, forward_steps<64, 2>}};
  return of[m == 24 ? 0 : m == 32 ? 1 : m == 48 ? 2 : 3][parts];
}

int moth_rnn_steps_forward(moth_ctx *ctx, const moth_queue *q, const rnn_steps<float> &s,
                           bool *done) {
  cutting c = begin(q, s, s.n), larger = c;
  const int m = s.mode == MOTH_GRU ? 24 : 32, units = m / (int)gates_of(s);
  *done = worth_it(s, c.parts) && fits(q, s, m, units, &c);
  if (!*done) return MOTH_OK;
  /* where two blocks share a multiprocessor, one block of twice the units reads half the states */
  if (c.parts && (int64_t)c.grid.x * c.grid.y > q->processors &&
      fits(q, s, 2 * m, 2 * units, &larger))
    c = larger;
  return launch_steps(ctx, q, forward_kernel(c.m, c.parts), s, c.p, c.grid,
                      bytes_for(c.p, c.m), s.steps);
}

int moth_rnn_steps_back(moth_ctx *ctx, const moth_queue *q, const rnn_steps<float> &s,
                        bool *done) {
  static steps_kernel *const kernels[2][3] = {
    {back_steps<8, 0>, back_steps<8, 1>, back_steps<8, 2>},
    {back_steps<16, 0>, back_steps<16, 1>, back_steps<16, 2>}};
  cutting c = begin(q, s, gates_of(s) * s.n);
  *done = worth_it(s, c.parts) && (fits(q, s, 16, 16, &c) || fits(q, s, 8, 8, &c));
  if (!*done) return MOTH_OK;
  return launch_steps(ctx, q, kernels[c.m == 16][c.parts], s, c.p, c.grid,
                      bytes_for(c.p, c.m), s.steps + 1);
}

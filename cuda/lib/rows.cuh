/* rows.cuh -- shared by kernels of rows: a tensor seen as (outer, n, inner), and values that the
** threads of a warp or a block compute together. All orders are fixed, so that results repeat. */
#ifndef MOTH_CUDA_ROWS_CUH
#define MOTH_CUDA_ROWS_CUH

#include "reduce.cuh"

struct strips {
  int64_t outer, n, inner;
};

/* x as (outer, n, inner) along dimension `dim`, which may count from the end; a 0-d tensor is one
** element. */
static inline strips strips_of(const moth_layout *x, int64_t dim) {
  strips s = {1, 1, 1};
  if (dim < 0) dim += x->ndim;
  for (int32_t i = 0; i < x->ndim; i++) {
    if (i < dim) s.outer *= x->shape[i];
    else if (i == dim) s.n = x->shape[i];
    else s.inner *= x->shape[i];
  }
  return s;
}

/* Number of elements in a vector. */
template <class T> constexpr int VEC = 16 / (int)sizeof(T);

static inline bool on_vec(const void *at, size_t bytes = 16) {
  return at == NULL || (uintptr_t)at % bytes == 0;
}

/* x as a packed tensor of a dtype; x itself if it is that already. The caller releases it. */
static inline moth_tensor *packed_as(const moth_tensor *x, int dtype) {
  return x->l.dtype == dtype ? moth_packed(x) : moth_cast(x, dtype);
}

/* -- values that the threads of a row compute together -- */

/* One or two sums. */
template <class real> struct sums_of {
  real a, b;
};
template <class real> HD sums_of<real> added(sums_of<real> x, sums_of<real> y) {
  return sums_of<real>{x.a + y.a, x.b + y.b};
}
template <class real> struct add_sums {
  typedef sums_of<real> state;
  MEMBER state join(state x, state y) const { return added(x, y); }
};

enum { ROW_OF_WARP = 1024 }; /* rows up to this length are processed by a warp, or a part of one */

/* log2 of the number of threads of a warp that have work in a row. */
HD int lanes_shift(int64_t n, int each) {
  int shift = 5;
  while (shift > 0 && (int64_t)each << (shift - 1) >= n) shift--;
  return shift;
}
static_assert(WARP == 1 << 5, "lanes_shift");

/* The threads that share a row: threads of a warp, or the block if rows are WIDE. */
struct team {
  int64_t row;    /* beyond the last row: no work, but the thread takes part in shuffles */
  int lane, size; /* index of this thread in the team, size of the team */
};

/* For rows of n elements; a thread reads EACH at a time. */
template <bool WIDE, int EACH> static __device__ inline team team_of(int64_t n) {
  if constexpr (WIDE) return team{(int64_t)blockIdx.x, (int)threadIdx.x, (int)blockDim.x};
  const int shift = lanes_shift(n, EACH), size = 1 << shift;
  return team{thread_number() >> shift, (int)threadIdx.x & (size - 1), size};
}

static __device__ inline team block_team() { return team{0, (int)threadIdx.x, BLOCK}; }

template <bool WIDE, class F>
static __device__ inline typename F::state join_team(const team &me, const F &f,
                                                     typename F::state mine) {
  if constexpr (WIDE) return join_block(f, mine);
  else return join_lanes(f, mine, me.size);
}

/* A team's loop over n elements with any alignment: calls many(i) for EACH aligned elements, and
** one(i) for single elements before and after those. */
template <int EACH, class T, class Many, class One>
static __device__ inline void each_vec(const team &me, const T *from, int64_t n, Many many,
                                       One one) {
  const int64_t off = (int64_t)((uintptr_t)from / sizeof(T) % EACH), before = off ? EACH - off : 0;
  const int64_t first = before < n ? before : n, last = first + (n - first) / EACH * EACH;
#pragma unroll 2
  for (int64_t i = first + (int64_t)me.lane * EACH; i < last; i += (int64_t)me.size * EACH) many(i);
  if (last - first == n) return;
  for (int64_t i = me.lane; i < n - (last - first); i += me.size)
    one(i < first ? i : i + (last - first));
}

/* Tests if two pointers have the same offset from a multiple of 16 bytes. */
static inline bool in_step(const void *a, const void *b) {
  return (uintptr_t)a % 16 == (uintptr_t)b % 16;
}

static inline dim3 teams_for(bool wide, int64_t rows, int64_t n, int each) {
  return wide ? grid_for(rows) : blocks_for(rows << lanes_shift(n, each));
}

/* -- rows with inner dimensions: threads (x, y) of a block; x is along `inner`, the y share the n
** elements of a lane -- */

struct inner_form {
  dim3 grid, block;
};

static inline inner_form inner_form_of(const strips &s) {
  unsigned wide = 1;
  while (wide < WARP && wide < s.inner) wide *= 2;
  const int64_t across = (s.inner + wide - 1) / wide;
  return inner_form{grid_for(s.outer * across), dim3(wide, BLOCK / wide)};
}

/* The first element of this thread's lane; *valid: whether there is one. */
static __device__ inline int64_t inner_start(const strips &s, bool *valid) {
  const int64_t across = (s.inner + blockDim.x - 1) / blockDim.x;
  const int64_t o = blockIdx.x / across, k = blockIdx.x % across * blockDim.x + threadIdx.x;
  *valid = k < s.inner;
  return o * s.n * s.inner + k;
}

/* Joins the states of the threads (x, any y); all of them get the result. */
template <class F>
static __device__ inline typename F::state join_inner(const F &f, typename F::state mine) {
  __shared__ typename F::state kept[BLOCK];
  typename F::state *const at = kept + threadIdx.y * blockDim.x + threadIdx.x;
  __syncthreads(); /* all threads have read the values of an earlier call */
  *at = mine;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) *at = f.join(*at, at[half * blockDim.x]);
  }
  __syncthreads();
  return kept[threadIdx.x];
}

#endif

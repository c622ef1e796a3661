/* reduce.cuh -- reductions: within a warp, a block, and along any dimensions of a tensor.
**
** A reduction is a struct that kernels get by value. T is the storage type of the elements:
**
**   template <class T> struct largest {
**     typedef real_of<T> state;                                  // the state, plain data
**     T *y;
**     MEMBER state start() const;                                // before the first element
**     MEMBER void take(state &r, real_of<T> v, int64_t i) const; // element i of a result
**     MEMBER state join(state a, state b) const;
**     MEMBER void end(state r, int64_t at) const;                   // result number `at`
**   };
**
** The partition depends on shapes alone, and states are joined in a fixed order, so results are the
** same bits every time. */
#ifndef MOTH_CUDA_REDUCE_CUH
#define MOTH_CUDA_REDUCE_CUH

#include <type_traits>

#include "strided.cuh"

#define MEMBER __host__ __device__ inline

/* -- within a warp -- */

/* Shuffles plain data of any size as words. */
template <class A, class F> static __device__ inline A shuffled(A x, F shuffle) {
  uint32_t words[(sizeof(A) + 3) / 4] = {0};
  memcpy(words, &x, sizeof(A));
  for (int i = 0; i < (int)((sizeof(A) + 3) / 4); i++) words[i] = shuffle(words[i]);
  memcpy(&x, words, sizeof(A));
  return x;
}

/* The value of the thread whose index differs by the bits of `by`, and of the thread `by` before.
*/
template <class A> static __device__ inline A from_lane(A mine, int by) {
  return shuffled(mine, [=](uint32_t w) { return __shfl_xor_sync(0xffffffffu, w, by); });
}
template <class A> static __device__ inline A direction_before(A mine, int by) {
  return shuffled(mine, [=](uint32_t w) { return __shfl_up_sync(0xffffffffu, w, by); });
}

/* Joins the states of groups of `lanes` neighbours, a power of two up to WARP; all threads of the
** warp must call it, and all of a group get the result. The state of the lower thread is on the
** left. */
template <class F>
static __device__ inline typename F::state join_lanes(const F &f, typename F::state mine,
                                                      int lanes = WARP) {
  for (int by = 1; by < lanes; by *= 2) {
    const typename F::state theirs = from_lane(mine, by);
    mine = (threadIdx.x & (unsigned)by) ? f.join(theirs, mine) : f.join(mine, theirs);
  }
  return mine;
}

/* The joined states of all threads of a warp up to this one. */
template <class F>
static __device__ inline typename F::state scan_lanes(const F &f, typename F::state mine) {
  for (int by = 1; by < WARP; by *= 2) {
    const typename F::state before = direction_before(mine, by);
    if ((int)threadIdx.x % WARP >= by) mine = f.join(before, mine);
  }
  return mine;
}

/* Joins the states of a block of BLOCK threads; all threads must call it, and get the result. */
template <class F>
static __device__ inline typename F::state join_block(const F &f, typename F::state mine) {
  __shared__ typename F::state kept[BLOCK / WARP];
  mine = join_lanes(f, mine);
  __syncthreads(); /* all threads have read the values of an earlier call */
  if (threadIdx.x % WARP == 0) kept[threadIdx.x / WARP] = mine;
  __syncthreads();
  mine = kept[0];
  for (int i = 1; i < BLOCK / WARP; i++) mine = f.join(mine, kept[i]);
  return mine;
}

/* Simple reductions for other kernels: sums and extremes of numbers, in a block or a warp:
** join_block(adds<float>(), v) */
template <class V> struct adds {
  typedef V state;
  MEMBER V join(V a, V b) const { return a + b; }
};
template <class V> struct largest_of { /* NaN wins */
  typedef V state;
  MEMBER V join(V a, V b) const { return b > a || b != b ? b : a; }
};
template <class V> struct least_of {
  typedef V state;
  MEMBER V join(V a, V b) const { return b < a || b != b ? b : a; }
};

/* A product of real numbers, m 2^e: it does not overflow or underflow on the way. */
template <class real> struct ranged_product {
  real m;
  int32_t e;
};
template <class real> HD ranged_product<real> ranged(real m, int32_t e) {
  int up = 0;
  if (m == 0 || m - m != 0) return ranged_product<real>{m, e}; /* 0, infinity, NaN */
  m = frexp(m, &up);
  return ranged_product<real>{m, e + up};
}
template <class real>
HD ranged_product<real> ranged_times(ranged_product<real> a, ranged_product<real> b) {
  return ranged<real>(a.m * b.m, a.e + b.e);
}
template <class real> HD real ranged_value(ranged_product<real> a) {
  return ldexp(a.m, a.e > 5000 ? 5000 : a.e < -5000 ? -5000 : a.e);
}

/* -- dimensions of a tensor as one index; contiguous dimensions are merged -- */

struct axes {
  int64_t n; /* total number of elements */
  int ndim;
  bool small;
  bool vecs;              /* 16 bytes that begin at an index that is a multiple of their elements
                           ** are contiguous */
  divider size[STRIDED_DIMS]; /* [0] is the innermost */
  int64_t wide[STRIDED_DIMS], step[STRIDED_DIMS]; /* bytes */
};

HD int64_t axes_at(const axes &a, int64_t i) {
  if (a.ndim == 1) return i * a.step[0];
  int64_t at = 0;
  if (a.small) {
    uint32_t rest = (uint32_t)i;
    for (int d = 0; d < a.ndim; d++) {
      const uint32_t over = d + 1 < a.ndim ? divide(rest, a.size[d]) : 0;
      at += (int64_t)(rest - over * a.size[d].by) * a.step[d];
      rest = over;
    }
    return at;
  }
#pragma unroll 1
  for (int d = 0; d < a.ndim; d++) {
    const int64_t over = i / a.wide[d];
    at += (i - over * a.wide[d]) * a.step[d];
    i = over;
  }
  return at;
}

/* The dimensions of x in mask, or the other ones; `sorted`: by stride, in any order. */
static inline void axes_of(axes *a, const moth_tensor *x, uint32_t mask, bool in, bool sorted) {
  int order[STRIDED_DIMS], n = 0;
  const moth_layout *l = &x->l;
  for (int d = l->ndim - 1; d >= 0; d--) {
    if ((mask >> d & 1u) != in) continue;
    int i = n++;
    for (; sorted && i > 0 && l->stride[order[i - 1]] > l->stride[d]; i--) order[i] = order[i - 1];
    order[i] = d;
  }
  a->n = 1;
  a->ndim = 0;
  for (int i = 0; i < n; i++) {
    const int64_t size = l->shape[order[i]];
    const int64_t step = l->stride[order[i]] * moth_dtype_size[l->dtype];
    a->n *= size;
    if (size == 1) continue;
    if (a->ndim && step == a->step[a->ndim - 1] * a->wide[a->ndim - 1]) {
      a->wide[a->ndim - 1] *= size;
    } else {
      a->wide[a->ndim] = size;
      a->step[a->ndim++] = step;
    }
  }
  if (!a->ndim) a->wide[0] = 1, a->step[0] = moth_dtype_size[l->dtype], a->ndim = 1;
  const int64_t each = moth_dtype_size[l->dtype];
  a->vecs = a->step[0] == each && (a->ndim == 1 || a->wide[0] * each % 16 == 0);
  for (int d = 1; d < a->ndim; d++) a->vecs = a->vecs && a->step[d] % 16 == 0;
  a->small = a->n < MOTH_SMALL && a->n > 0;
  for (int d = 0; d < a->ndim; d++) a->size[d] = divider_of(a->small ? (uint32_t)a->wide[d] : 1);
}

/* -- reductions of tensors -- */

/* The work of a launch: results over `kept`, each reduces the elements of `over` in `chunks` chunks
** of `chunk` elements. parts: the memory for their states, [chunk][result]; NULL: there is one
** chunk. */
template <class F> struct reduce_plan {
  axes kept, over;
  int64_t chunk;
  int chunks, lanes; /* for each result: neighbouring threads, up to WARP, or BLOCK */
  typename F::state *parts;
};

template <class F>
static __device__ inline void reduce_put(const F &f, const reduce_plan<F> &p, typename F::state r,
                                         int64_t result, int64_t chunk) {
  if (p.parts) p.parts[chunk * p.kept.n + result] = r;
  else f.end(r, result);
}

/* A thread reduces REDUCE_RUN iterations separately and then joins their state with the earlier
** one: the error of a sum grows with the number and length of these runs, not with the number of
** elements. */
enum { REDUCE_RUN = 16 };

/* Reduces elements first..last of a row; each of `lanes` threads has a share, read 16 bytes at a
** time if aligned. */
template <class F, class T>
static __device__ inline typename F::state take_row(const F &f, const axes &over, const char *row,
                                                    int64_t first, int64_t last, int lane,
                                                    int lanes) {
  enum { EACH = 16 / sizeof(T) };
  const bool packed = over.ndim == 1 && over.step[0] == (int64_t)sizeof(T);
  const T *x = (const T *)(const void *)row;
  typename F::state all = f.start();
  if (over.vecs && (uintptr_t)(x + first) % 16 == 0) { /* first is a multiple of 16 */
    const int64_t step = (int64_t)lanes * EACH, whole = first + (last - first) / EACH * EACH;
    for (int64_t begin = first + (int64_t)lane * EACH; begin < whole; begin += REDUCE_RUN * step) {
      const int64_t stop = begin + REDUCE_RUN * step;
      typename F::state r = f.start();
      for (int64_t i = begin; i < whole && i < stop; i += step) {
        const char *at = row + (packed ? i * (int64_t)sizeof(T) : axes_at(over, i));
        const vec<T, EACH> v = *(const vec<T, EACH> *)(const void *)at;
        for (int j = 0; j < EACH; j++) f.take(r, get(&v.at[j]), i + j);
      }
      all = f.join(all, r);
    }
    first = whole;
  }
  for (int64_t begin = first + lane; begin < last; begin += (int64_t)REDUCE_RUN * lanes) {
    const int64_t stop = begin + (int64_t)REDUCE_RUN * lanes;
    typename F::state r = f.start();
    for (int64_t i = begin; i < last && i < stop; i += lanes)
      f.take(r, get(packed ? x + i : (const T *)(const void *)(row + axes_at(over, i))), i);
    all = f.join(all, r);
  }
  return all;
}

/* For results whose elements are adjacent: some threads for each, or a block. */
template <class F, class T>
static __global__ void reduce_rows(F f, reduce_plan<F> p, const char *x) {
  const int64_t first = (int64_t)blockIdx.y * p.chunk;
  const int64_t last = first + p.chunk < p.over.n ? first + p.chunk : p.over.n;
  const unsigned lanes = (unsigned)p.lanes, own = threadIdx.x / lanes;
  const int64_t result = (int64_t)blockIdx.x * (BLOCK / lanes) + own;
  const int lane = (int)(threadIdx.x % lanes);
  typename F::state r = f.start();
  if (result < p.kept.n)
    r = take_row<F, T>(f, p.over, x + axes_at(p.kept, result), first, last, lane, p.lanes);
  r = p.lanes > WARP ? join_block(f, r) : join_lanes(f, r, p.lanes);
  if (lane == 0 && result < p.kept.n) reduce_put(f, p, r, result, blockIdx.y);
}

/* For adjacent results: a thread for each, and the warps of a block share the elements. */
template <class F, class T>
static __global__ void reduce_columns(F f, reduce_plan<F> p, const char *x) {
  enum { WARPS = BLOCK / WARP };
  __shared__ typename F::state kept[WARPS][WARP];
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t result = (int64_t)blockIdx.x * WARP + lane;
  const int64_t first = (int64_t)blockIdx.y * p.chunk;
  const int64_t last = first + p.chunk < p.over.n ? first + p.chunk : p.over.n;
  typename F::state r = f.start();
  if (result < p.kept.n) {
    const char *column = x + axes_at(p.kept, result);
    for (int64_t begin = first + warp; begin < last; begin += REDUCE_RUN * WARPS) {
      const int64_t stop = begin + REDUCE_RUN * WARPS;
      typename F::state run = f.start();
#pragma unroll 4
      for (int64_t i = begin; i < last && i < stop; i += WARPS)
        f.take(run, get((const T *)(const void *)(column + axes_at(p.over, i))), i);
      r = f.join(r, run);
    }
  }
  kept[warp][lane] = r;
  __syncthreads();
  if (warp != 0 || result >= p.kept.n) return;
  for (int i = 1; i < WARPS; i++) r = f.join(r, kept[i][lane]);
  reduce_put(f, p, r, result, blockIdx.y);
}

/* Joins the partial states of each result, by a warp. */
template <class F>
static __global__ void reduce_parts(F f, const typename F::state *parts, int chunks,
                                    int64_t results) {
  const int64_t result = thread_number() / WARP;
  typename F::state r = f.start();
  if (result < results)
    for (int c = (int)threadIdx.x % WARP; c < chunks; c += WARP)
      r = f.join(r, parts[c * results + result]);
  r = join_lanes(f, r);
  if (threadIdx.x % WARP == 0 && result < results) f.end(r, result);
}

/* -- launching -- */

/* Partitions the work; returns whether columns are reduced. */
template <class F> static inline bool reduce_cut(reduce_plan<F> *p, int size) {
  enum { ENOUGH_BLOCKS = 2048 }; /* blocks that keep a device busy */
  const int64_t n = p->over.n, results = p->kept.n;
  const bool columns = p->over.step[0] != size && p->kept.step[0] == size && p->kept.wide[0] > 4;
  int64_t wanted, most;
  p->lanes = 1;
  if (columns) {
    wanted = n / 64;
    most = ENOUGH_BLOCKS / ((results + WARP - 1) / WARP);
    if (most < n / 16384) most = n / 16384; /* limits the error of long sums */
  } else if (n <= 1024) {
    while (p->lanes < WARP && p->lanes * 4 < n) p->lanes *= 2;
    wanted = most = 1;
  } else {
    p->lanes = BLOCK;
    wanted = n / 8192;
    most = ENOUGH_BLOCKS / 2 / results;
  }
  if (most > 65535) most = 65535; /* the maximal height of a grid */
  if (wanted > most) wanted = most;
  if (wanted < 1) wanted = 1;
  p->chunk = (n + wanted - 1) / wanted;
  p->chunk = (p->chunk + 15) / 16 * 16; /* then the chunks of aligned rows are aligned */
  if (p->chunk < 1) p->chunk = 1;
  p->chunks = (int)((n + p->chunk - 1) / p->chunk);
  if (p->chunks < 1) p->chunks = 1;
  return columns;
}

/* A new packed scratch tensor of n bytes on x's device; NULL: error set. */
static inline moth_tensor *device_scratch(const moth_tensor *x, int64_t n) {
  moth_layout l;
  memset(&l, 0, sizeof l);
  l.ndim = 1;
  l.dtype = MOTH_U8;
  l.device = x->l.device;
  l.numel = l.shape[0] = n;
  l.stride[0] = 1;
  return moth_tensor_new(x->ctx, &l);
}

/* Reduces x, whose elements are T, along the dimensions in mask. ordered: positions count in
** row-major order. */
template <class T, class F>
static int reduce(moth_ctx *ctx, const F &f, const moth_tensor *x, uint32_t mask,
                  bool sorted_list = false) {
  reduce_plan<F> p;
  moth_tensor *scratch = NULL;
  axes_of(&p.kept, x, mask, false, false);
  axes_of(&p.over, x, mask, true, !sorted_list);
  if (p.kept.n == 0) return MOTH_OK;
  const bool columns = reduce_cut(&p, (int)sizeof(T));
  p.parts = NULL;
  if (p.chunks > 1) {
    scratch = device_scratch(x, p.chunks * p.kept.n * (int64_t)sizeof(typename F::state));
    if (!scratch) return moth_status(ctx);
    p.parts = (typename F::state *)(void *)moth_address(scratch);
  }
  const int64_t threads = p.lanes > WARP ? p.kept.n * BLOCK : p.kept.n * p.lanes;
  dim3 grid = columns ? grid_for((p.kept.n + WARP - 1) / WARP) : blocks_for(threads);
  grid.y = (unsigned)p.chunks;
  int status = launch(ctx, x, columns ? reduce_columns<F, T> : reduce_rows<F, T>, grid, BLOCK, 0, f,
                      p, moth_address(x));
  if (!status && p.parts)
    status = launch(ctx, x, reduce_parts<F>, blocks_for(p.kept.n * WARP), BLOCK, 0, f, p.parts,
                    p.chunks, p.kept.n);
  moth_tensor_release(scratch);
  return status;
}

/* -- shared by several reductions of tensors -- */

template <class T> struct total_of_ { /* the type of sums of T: integers wrap in 64 bits */
  typedef int64_t type;
};
template <> struct total_of_<float> {
  typedef float type;
};
template <> struct total_of_<f16> {
  typedef float type;
};
template <> struct total_of_<bf16> {
  typedef float type;
};
template <> struct total_of_<double> {
  typedef double type;
};
template <class T> using total_of = typename total_of_<T>::type;

/* The largest value of T if `above`, else the smallest. */
template <class T> HD real_of<T> last_of(bool above) {
  if constexpr (is_real<T>) return (real_of<T>)(above ? INFINITY : -INFINITY);
  else return above ? integer_range<T>::highest() : integer_range<T>::lowest();
}

/* A result: i64, or a float type that is known only at run time. */
struct results {
  void *y;
  int dtype;
};
HD void put_result(const results &to, int64_t at, int64_t v) { ((int64_t *)to.y)[at] = v; }
HD void put_result(const results &to, int64_t at, double v) { ((double *)to.y)[at] = v; }
HD void put_result(const results &to, int64_t at, float v) {
  if (to.dtype == MOTH_F16) put((f16 *)to.y + at, v);
  else if (to.dtype == MOTH_BF16) put((bf16 *)to.y + at, v);
  else ((float *)to.y)[at] = v;
}

/* bool elements are read as u8. */
template <class F> static inline int with_numbers(int dtype, F f) {
  return with_any(dtype == MOTH_BOOL ? (int)MOTH_U8 : dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (std::is_same<T, bool8>::value) return (int)MOTH_OK;
    else return f(t);
  });
}

/* x converted to the compute type `from`: x itself, or a cast in *owned. NULL: error set. */
static inline const moth_tensor *computed_as(const moth_tensor *x, int from, moth_tensor **owned) {
  *owned = NULL;
  if (moth_compute_dtype(x->l.dtype) == from) return x;
  return *owned = moth_cast(x, from);
}

#endif

/* channel_sums.cuh -- two sums over all elements of each channel of a tensor (n, c, inner), by
** blocks; their partial sums are then added in order. A thread sums a few elements in the compute
** type, and these sums in f64. Neighbouring threads read adjacent vectors of elements: along
** `inner`, or along the channels if inner is 1. */
#ifndef MOTH_CUDA_CHANNEL_SUMS_CUH
#define MOTH_CUDA_CHANNEL_SUMS_CUH

#include "sum_f64.cuh"

struct channel_form {
  int64_t n, c;
  quotient_by inner, pixels; /* pixels: how many of the n are in one sample */
  int parts;                 /* the partial sums of each channel: `parts` rows of c */
};

/* Enough blocks for a large device; the number does not depend on the device. */
static inline channel_form channels_for(int64_t n, int64_t c, int64_t inner, int64_t pixels = 1) {
  if (inner == 0) n = 0; /* `inner` is replaced by 1 below; with no elements nothing is read */
  const int64_t each = n * inner, wanted = each / (BLOCK * 8), most = 1024 / (c ? c : 1);
  const int64_t parts = wanted < most ? wanted : most;
  return channel_form{n, c, quotients(inner, each), quotients(pixels, each),
                      parts < 1 ? 1 : parts > 128 ? 128 : (int)parts};
}

/* A block over columns: `across` neighbouring threads, EACH channels for each, and `down` rows of
** threads. */
struct column_form {
  int across, down, blocks; /* the first two are powers of two */
};

static inline column_form columns_for(int64_t c, int each) {
  const int64_t wanted = (c + each - 1) / each;
  column_form f = {1, BLOCK, 1};
  for (; f.across < WARP && f.across < wanted; f.across *= 2) f.down /= 2;
  f.blocks = (int)((wanted + f.across - 1) / f.across);
  return f;
}

/* How many blocks share n rows; each thread has about 8 rows. */
static inline int column_parts(const column_form &f, int64_t n, int64_t most) {
  const int64_t wanted = n / (f.down * 8);
  return (int)(wanted < 1 ? 1 : wanted > most ? most : wanted);
}

/* j / by and j % by, for a j that grows by a constant step: loops have no division and no branch,
** so that loads of several iterations can overlap. */
struct stepped {
  int64_t over, rest, by, over_step, rest_step;
  __device__ stepped(int64_t j, int64_t step, const quotient_by &q) {
    by = q.by;
    over = divide(j, q);
    over_step = divide(step, q);
    rest = j - over * by;
    rest_step = step - over_step * by;
  }
  __device__ void next() {
    rest += rest_step;
    over += over_step + (rest >= by);
    rest -= rest >= by ? by : 0;
  }
};

template <class real> static __device__ inline sums_of<double> widened(sums_of<real> s) {
  return sums_of<double>{(double)s.a, (double)s.b};
}

/* Job has   typedef ... real   and
**   of(c, at)                       the state of channel c in a thread, whose first
**                                   element is at `at`
**   load<EACH>(known, sample, at)   EACH elements from `at` on; `known` is the state of
**                                   the first element's channel
**   term(known, loaded, k)          the sums_of<real> of the k-th element
**   end(c, known, sums, terms)      its sums_of<double> over that many terms.
*/

/* Every step-th row from `first` on, for EACH channels. `first` exists. */
template <int EACH, class Job>
static __device__ inline void add_rows(const Job &job, const channel_form &f, int64_t c,
                                       int64_t first, int64_t step, sums_of<double> *s) {
  decltype(job.of(c, c)) known[EACH];
  int64_t terms = 0;
  stepped at(first, step, f.pixels);
#pragma unroll
  for (int k = 0; k < EACH; k++) known[k] = job.of(c + k, first * f.c + c + k);
  for (int64_t q = first; q < f.n;) {
    const int64_t stop = q + REDUCE_RUN * step < f.n ? q + REDUCE_RUN * step : f.n;
    sums_of<typename Job::real> run[EACH] = {};
#pragma unroll 4
    for (; q < stop; q += step, at.next(), terms++) {
      const auto loaded = job.template load<EACH>(known[0], at.over, q * f.c + c);
#pragma unroll
      for (int k = 0; k < EACH; k++) run[k] = added(run[k], job.term(known[k], loaded, k));
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) s[k] = added(s[k], widened(run[k]));
  }
#pragma unroll
  for (int k = 0; k < EACH; k++) s[k] = job.end(c + k, known[k], s[k], terms);
}

template <class Job, int EACH>
static __global__ void sum_columns(Job job, channel_form f, column_form b, sums_of<double> *parts) {
  __shared__ sums_of<double> kept[EACH][BLOCK];
  const int t = (int)threadIdx.x, row = t / b.across;
  const int64_t first = (int64_t)blockIdx.y * b.down + row;
  const int64_t c = ((int64_t)blockIdx.x * b.across + t % b.across) * EACH;
  sums_of<double> s[EACH] = {};
  if (c < f.c && first < f.n)
    add_rows<EACH>(job, f, c, first, (int64_t)gridDim.y * b.down, s);
  for (int k = 0; k < EACH; k++) kept[k][t] = s[k];
  for (int half = b.down / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int k = 0; k < EACH && row < half; k++)
      kept[k][t] = added(kept[k][t], kept[k][t + half * b.across]);
  }
  for (int k = 0; k < EACH && row == 0 && c < f.c; k++)
    parts[blockIdx.y * f.c + c + k] = kept[k][t];
}

/* Every step-th run of EACH elements from `first` on, in a channel's planes. `first` exists. */
template <int EACH, class Job>
static __device__ inline sums_of<double> add_planes(const Job &job, const channel_form &f,
                                                    int64_t c, int64_t first, int64_t step) {
  const int64_t each = f.n * f.inner.by;
  sums_of<double> s = {0, 0};
  int64_t terms = 0;
  stepped at(first, step, f.inner);
  const auto place = [&] { return (at.over * f.c + c) * f.inner.by + at.rest; };
  const auto known = job.of(c, place());
  for (int64_t j = first; j < each;) {
    const int64_t stop = j + REDUCE_RUN * step < each ? j + REDUCE_RUN * step : each;
    sums_of<typename Job::real> run = {0, 0};
#pragma unroll 4
    for (; j < stop; j += step, at.next(), terms += EACH) {
      const auto loaded = job.template load<EACH>(known, at.over, place());
#pragma unroll
      for (int k = 0; k < EACH; k++) run = added(run, job.term(known, loaded, k));
    }
    s = added(s, widened(run));
  }
  return job.end(c, known, s, terms);
}

template <class Job, int EACH>
static __global__ void sum_planes(Job job, channel_form f, sums_of<double> *parts) {
  const int64_t c = blockIdx.x, step = (int64_t)gridDim.y * BLOCK * EACH;
  const int64_t first = ((int64_t)blockIdx.y * BLOCK + threadIdx.x) * EACH;
  sums_of<double> s = {0, 0};
  if (first < f.n * f.inner.by) s = add_planes<EACH>(job, f, c, first, step);
  s = join_block(add_sums<double>(), s);
  if (threadIdx.x == 0) parts[blockIdx.y * f.c + c] = s;
}

template <class Job, int EACH>
static int sums_launch(const moth_tensor *near, const channel_form &f, const column_form &b,
                       const Job &job, sums_of<double> *parts) {
  if (f.inner.by == 1)
    return launch(near->ctx, near, sum_columns<Job, EACH>, grid_for(b.blocks, f.parts), BLOCK, 0,
                  job, f, b, parts);
  return launch(near->ctx, near, sum_planes<Job, EACH>, grid_for(f.c, f.parts), BLOCK, 0, job, f,
                parts);
}

/* A new tensor of partial sums, and their number in f; NULL: an error is set. `packs`: data is
** aligned to 16 bytes, and PACK neighbouring channels of a pixel have the same sample and group. */
template <int PACK, class Job>
static moth_tensor *channel_sums(const moth_tensor *near, channel_form *f, const Job &job,
                                 bool packs) {
  const bool columns = f->inner.by == 1;
  const bool many = packs && (columns ? f->c : f->inner.by) % PACK == 0;
  const column_form b = columns_for(f->c, many ? PACK : 1);
  if (columns) f->parts = column_parts(b, f->n, 512);
  moth_tensor *scratch = device_scratch(near, f->c * f->parts * (int64_t)sizeof(sums_of<double>));
  if (!scratch || f->c == 0) return scratch;
  sums_of<double> *parts = data<sums_of<double>>(scratch);
  int status = many ? sums_launch<Job, PACK>(near, *f, b, job, parts)
                    : sums_launch<Job, 1>(near, *f, b, job, parts);
  if (!status) return scratch;
  moth_tensor_release(scratch);
  return NULL;
}

/* Elements that one thread of a sum reads at once: half a vector of a narrow type. */
template <class T> constexpr int HANDFUL = sizeof(T) == 8 ? 2 : 4;

template <class T, int EACH> struct two_vecs {
  vec<T, EACH> x, dy;
};

template <int EACH, class T>
static __device__ inline two_vecs<T, EACH> load_two(const T *x, const T *dy) {
  return two_vecs<T, EACH>{*(const vec<T, EACH> *)(const void *)x,
                            *(const vec<T, EACH> *)(const void *)dy};
}

/* The sum of a warp's channel; all threads of the warp must call it, also without a channel. */
static __device__ inline sums_of<double> sum_of_parts(const channel_form &f, int64_t c,
                                                      const sums_of<double> *parts) {
  sums_of<double> s = {0, 0};
  for (int i = (int)threadIdx.x % WARP; c < f.c && i < f.parts; i += WARP)
    s = added(s, parts[i * f.c + c]);
  return join_lanes(add_sums<double>(), s);
}

/* Numbers of any floating dtype, packed; without a tensor, one value for all. */
struct any_real {
  const void *at;
  int dtype;
  double otherwise;
  __device__ double operator[](int64_t i) const {
    if (!at) return otherwise;
    if (dtype == MOTH_F32) return (double)((const float *)at)[i];
    if (dtype == MOTH_F64) return ((const double *)at)[i];
    if (dtype == MOTH_F16) return (double)get((const f16 *)at + i);
    return (double)get((const bf16 *)at + i);
  }
};

static inline any_real any_of(const moth_tensor *x, double otherwise) {
  if (!x) return any_real{NULL, 0, otherwise};
  return any_real{moth_address(x), x->l.dtype, 0};
}

#endif

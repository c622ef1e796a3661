/* channels.cuh -- two sums over all elements of each channel of a tensor (n, c, inner), in f64: by
** blocks, whose parts are then added in order. Threads that stand side by side read side by side,
** along `inner`, or where that is 1 along the channels, a few of them each.
*/
#ifndef MOTH_CUDA_CHANNELS_CUH
#define MOTH_CUDA_CHANNELS_CUH

#include "total.cuh"

struct channel_form {
  int64_t n, c;
  quotient_by inner;
  int parts; /* sums of each channel: parts rows of c */
};

/* Enough blocks for a large device, the same on all of them. */
static inline channel_form channels_for(int64_t n, int64_t c, int64_t inner) {
  if (inner == 0) n = 0; /* whose `inner` counts as 1 below: nothing is read */
  const int64_t each = n * inner, wanted = each / (BLOCK * 8), room = 1024 / (c ? c : 1);
  const int64_t parts = wanted < room ? wanted : room;
  return channel_form{n, c, quotients(inner, each), parts < 1 ? 1 : parts > 128 ? 128 : (int)parts};
}

/* A block over columns: `across` threads side by side, for EACH channels each, and rows of them. */
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

/* How many blocks share n rows, so that each thread has some 8 of them. */
static inline int column_parts(const column_form &f, int64_t n, int64_t most) {
  const int64_t wanted = n / (f.down * 8);
  return (int)(wanted < 1 ? 1 : wanted > most ? most : wanted);
}

/* Job has   template <int EACH> of EACH elements from `at` on
**   __device__ auto load(int64_t at)                                   what it reads of them
**   __device__ sums_of<double> term(sample, channel, const loaded &, int k)   of the k-th. */
template <class Job, int EACH>
static __global__ void sum_columns(Job job, channel_form f, column_form b, sums_of<double> *parts) {
  __shared__ sums_of<double> kept[EACH][BLOCK];
  const int t = (int)threadIdx.x, row = t / b.across, step = (int)gridDim.y * b.down;
  const int64_t c = ((int64_t)blockIdx.x * b.across + t % b.across) * EACH;
  sums_of<double> s[EACH] = {};
  if (c < f.c)
#pragma unroll 4
    for (int64_t q = (int64_t)blockIdx.y * b.down + row; q < f.n; q += step) {
      const auto loaded = job.template load<EACH>(q * f.c + c);
#pragma unroll
      for (int k = 0; k < EACH; k++) s[k] = added(s[k], job.term(q, c + k, loaded, k));
    }
  for (int k = 0; k < EACH; k++) kept[k][t] = s[k];
  for (int half = b.down / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int k = 0; k < EACH && row < half; k++)
      kept[k][t] = added(kept[k][t], kept[k][t + half * b.across]);
  }
  for (int k = 0; k < EACH && row == 0 && c < f.c; k++)
    parts[blockIdx.y * f.c + c + k] = kept[k][t];
}

template <class Job>
static __global__ void sum_planes(Job job, channel_form f, sums_of<double> *parts) {
  const int64_t c = blockIdx.x, each = f.n * f.inner.by;
  sums_of<double> s = {0, 0};
  for (int64_t j = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; j < each;
       j += (int64_t)gridDim.y * blockDim.x) {
    const int64_t q = divide(j, f.inner);
    s = added(s, job.term(q, c, job.template load<1>((q * f.c + c - q) * f.inner.by + j), 0));
  }
  s = join_block(add_sums<double>(), s);
  if (threadIdx.x == 0) parts[blockIdx.y * f.c + c] = s;
}

template <class Job, int EACH>
static int column_sums(const moth_tensor *near, const channel_form &f, const column_form &b,
                       const Job &job, sums_of<double> *parts) {
  return launch(near->ctx, near, sum_columns<Job, EACH>,
                grid_for(b.blocks, f.parts), BLOCK, 0, job, f, b, parts);
}

/* The parts, in a tensor that is owned, and their number in f; NULL: an error is set. `packs`: what
** is read lies at multiples of 16 bytes. */
template <int PACK, class Job>
static moth_tensor *channel_sums(const moth_tensor *near, channel_form *f, const Job &job,
                                 bool packs) {
  const bool columns = f->inner.by == 1, many = columns && packs && f->c % PACK == 0;
  const column_form b = columns_for(f->c, many ? PACK : 1);
  if (columns) f->parts = column_parts(b, f->n, 512);
  moth_tensor *room = device_room(near, f->c * f->parts * (int64_t)sizeof(sums_of<double>));
  if (!room || f->c == 0) return room;
  sums_of<double> *parts = data<sums_of<double>>(room);
  int status = many      ? column_sums<Job, PACK>(near, *f, b, job, parts)
               : columns ? column_sums<Job, 1>(near, *f, b, job, parts)
                         : launch(near->ctx, near, sum_planes<Job>,
                                  grid_for(f->c, f->parts), BLOCK, 0, job, *f,
                                  parts);
  if (!status) return room;
  moth_tensor_release(room);
  return NULL;
}

/* What one thread of a column sum takes at once: half a lump of a narrow type. */
template <class T> constexpr int HANDFUL = sizeof(T) == 8 ? 2 : 4;

template <class T, int EACH> struct two_lumps {
  lump<T, EACH> x, dy;
};

template <int EACH, class T>
static __device__ inline two_lumps<T, EACH> load_two(const T *x, const T *dy) {
  return two_lumps<T, EACH>{*(const lump<T, EACH> *)(const void *)x,
                            *(const lump<T, EACH> *)(const void *)dy};
}

/* Of a warp's channel; all lanes must come, also where there is none. */
static __device__ inline sums_of<double> sum_of_parts(const channel_form &f, int64_t c,
                                                      const sums_of<double> *parts) {
  sums_of<double> s = {0, 0};
  for (int i = (int)threadIdx.x % WARP; c < f.c && i < f.parts; i += WARP)
    s = added(s, parts[i * f.c + c]);
  return join_lanes(add_sums<double>(), s);
}

/* Numbers of any floating dtype, packed; or the same one for all where there is no tensor. */
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

/* channels.cuh -- two sums over all elements of each channel of a tensor (n, c, inner), in f64: by
** blocks, whose parts are then added in order. Threads that stand side by side read side by side,
** along `inner`, or where that is 1 along the channels.
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
  const int64_t each = n * inner, wanted = each / (BLOCK * 8);
  const int64_t blocks = inner == 1 ? (c + WARP - 1) / WARP : c;
  const int64_t room = 1024 / (blocks ? blocks : 1);
  int64_t parts = wanted < room ? wanted : room;
  if (inner == 1) parts = n / 64 < room ? n / 64 : room;
  if (parts > 128) parts = 128;
  return channel_form{n, c, quotients(inner, each), parts < 1 ? 1 : (int)parts};
}

/* Job has   __device__ sums_of<double> term(int64_t sample, int64_t channel, int64_t at)   of the
** element at `at`. */
template <class Job>
static __global__ void sum_columns(Job job, channel_form f, sums_of<double> *parts) {
  const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  sums_of<double> s = {0, 0};
  for (int64_t q = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; c < f.c && q < f.n;
       q += (int64_t)gridDim.y * blockDim.y)
    s = added(s, job.term(q, c, q * f.c + c));
  s = join_lane(add_sums<double>(), s);
  if (c < f.c && threadIdx.y == 0) parts[blockIdx.y * f.c + c] = s;
}

template <class Job>
static __global__ void sum_planes(Job job, channel_form f, sums_of<double> *parts) {
  const int64_t c = blockIdx.x, each = f.n * f.inner.by;
  sums_of<double> s = {0, 0};
  for (int64_t j = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; j < each;
       j += (int64_t)gridDim.y * blockDim.x) {
    const int64_t q = divide(j, f.inner);
    s = added(s, job.term(q, c, (q * f.c + c - q) * f.inner.by + j));
  }
  s = join_block(add_sums<double>(), s);
  if (threadIdx.x == 0) parts[blockIdx.y * f.c + c] = s;
}

/* The parts, in a tensor that is owned; NULL: an error is set. */
template <class Job>
static moth_tensor *channel_sums(const moth_tensor *near, const channel_form &f, const Job &job) {
  moth_tensor *room = device_room(near, f.c * f.parts * (int64_t)sizeof(sums_of<double>));
  if (!room || f.c == 0) return room;
  sums_of<double> *parts = data<sums_of<double>>(room);
  const unsigned rows = (unsigned)f.parts, columns = (unsigned)((f.c + WARP - 1) / WARP);
  int status = f.inner.by == 1
                 ? launch(near->ctx, near, sum_columns<Job>, dim3(columns, rows),
                          dim3(WARP, BLOCK / WARP), 0, job, f, parts)
                 : launch(near->ctx, near, sum_planes<Job>, dim3((unsigned)f.c, rows), BLOCK, 0,
                          job, f, parts);
  if (!status) return room;
  moth_tensor_release(room);
  return NULL;
}

static __device__ inline sums_of<double> sum_of_parts(const channel_form &f, int64_t c,
                                                      const sums_of<double> *parts) {
  sums_of<double> s = {0, 0};
  for (int i = 0; i < f.parts; i++) s = added(s, parts[i * f.c + c]);
  return s;
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

/* sum_f64.cuh -- sums of many terms in f64, in a fixed order: a sum by each block, and, if there
** are several blocks, the sum of these by one more block.
**
** A sum is a struct with
**   __device__ sums_of<double> term(int64_t i)          the term of element i; may write results
**   __device__ void finish(sums_of<double> total)    called by one thread
*/
#ifndef MOTH_CUDA_SUM_F64_CUH
#define MOTH_CUDA_SUM_F64_CUH

#include "rows.cuh"

enum { MOST_PARTS = 1024 };

/* Sums n terms, or, in one block, n partial sums. */
template <class Job>
static __global__ void total_parts(Job job, int64_t n, const sums_of<double> *sums,
                                   sums_of<double> *parts) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  sums_of<double> s = {0, 0};
  if (sums)
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s = added(s, sums[i]);
  else
    for (int64_t i = thread_number(); i < n; i += step) s = added(s, job.term(i));
  s = join_block(add_sums<double>(), s);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) job.finish(s);
  else parts[blockIdx.x] = s;
}

/* `near`: a tensor on the device. */
template <class Job> static int run_total(const moth_tensor *near, int64_t n, const Job &job) {
  moth_ctx *ctx = near->ctx;
  int64_t blocks = (n + BLOCK * 8 - 1) / (BLOCK * 8);
  if (blocks < 1) blocks = 1;
  if (blocks > MOST_PARTS) blocks = MOST_PARTS;
  sums_of<double> *none = NULL;
  if (blocks == 1)
    return launch(ctx, near, total_parts<Job>, dim3(1), BLOCK, 0, job, n, none, none);
  moth_tensor *scratch = device_scratch(near, blocks * (int64_t)sizeof(sums_of<double>));
  if (!scratch) return moth_status(ctx);
  sums_of<double> *parts = data<sums_of<double>>(scratch);
  int status = launch(ctx, near, total_parts<Job>, grid_for(blocks), BLOCK, 0, job, n, none, parts);
  if (!status)
    status = launch(ctx, near, total_parts<Job>, dim3(1), BLOCK, 0, job, blocks, parts, none);
  moth_tensor_release(scratch);
  return status;
}

#endif

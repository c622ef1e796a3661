/* watched.cpp -- kernels with mistakes that the watch must report (cuda/emulator/watch.cpp), and
** correct kernels: `watched NAME` runs one and prints the report.
*/
#include <stdio.h>
#include <stdlib.h>

#include "../../cuda/emulator/cuda_runtime.h"

enum { N = 64 };

/* Each thread of a block writes a number and reads its neighbour's number. */
template <bool BARRIER> static __global__ void neighbour(int *y) {
  __shared__ int room[N];
  room[threadIdx.x] = (int)threadIdx.x;
  if (BARRIER) __syncthreads();
  y[blockIdx.x * N + threadIdx.x] = room[(threadIdx.x + 32) % N];
}

/* Each thread of a warp does so, with a shuffle or a __syncwarp between. */
template <bool ORDERS> static __global__ void lanes(int *y) {
  __shared__ int room[N];
  room[threadIdx.x] = (int)threadIdx.x;
  if (ORDERS) __syncwarp();
  else __shfl_sync(0xffffffffu, 0, 0);
  y[threadIdx.x] = room[threadIdx.x ^ 1u];
}

/* A tile that is written again while other threads may still read it. */
static __global__ void again(int *y) {
  __shared__ int room[N];
  for (int i = 0; i < 2; i++) {
    room[threadIdx.x] = i;
    __syncthreads();
    y[threadIdx.x] = room[N - 1 - threadIdx.x];
  }
}

/* Two halves of a block that wait at different barriers. */
static __global__ void apart(int *y) {
  if (threadIdx.x < 32) {
    __syncthreads();
    y[threadIdx.x] = 1;
  } else {
    __syncthreads();
    y[threadIdx.x] = 2;
  }
}

static __global__ void beyond(int *y) {
  if (threadIdx.x == N - 1) y[0] = y[2 * N];
}

static __global__ void beyond_shared(int *y) {
  int *room = (int *)moth_emulated_shared();
  room[threadIdx.x] = 1;
  if (threadIdx.x == N - 1) y[0] = room[N];
}

static __global__ void unwritten(int *y, const int *x) { y[threadIdx.x] = x[threadIdx.x]; }

static __global__ void unwritten_shared(int *y) {
  __shared__ int room[N];
  if (threadIdx.x) room[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = room[threadIdx.x];
}

static __global__ void host(int *y, const int *x) { y[threadIdx.x] = x[0]; }

static __global__ void same_value(int *y) { *y = 1; }

static __global__ void volatiles(int *y) { *(volatile int *)y = 1; }

static __global__ void bytes(unsigned char *y) { y[blockIdx.x * N + threadIdx.x] = 1; }

template <bool ATOMIC> static __global__ void tally(int *y) {
  if (ATOMIC) atomicAdd(y + 1, 1);
  else if (threadIdx.x == 5) y[1] = 0;
  else atomicAdd(y + 1, 1);
}

template <bool AWAITED> static __global__ void later(int *y, const int *x) {
  int *room = (int *)moth_emulated_shared();
  moth_copy_later(room + threadIdx.x, x + threadIdx.x, 4);
  moth_copy_later(NULL, NULL, 0);
  if (AWAITED) moth_await_copies(0);
  __syncthreads();
  y[threadIdx.x] = room[N - 1 - threadIdx.x];
  moth_await_copies(0);
}

/* Sums of blocks, which the last block adds. */
template <bool FENCE, bool COUNTS>
static __global__ void last_block(int *y, int *part, int *count) {
  __shared__ bool last;
  part[blockIdx.x * N + threadIdx.x] = (int)blockIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    if (FENCE) __threadfence();
    last = !COUNTS || atomicAdd(count, 1) == (int)gridDim.x - 1;
  }
  __syncthreads();
  if (!last || blockIdx.x + 1 != gridDim.x) return;
  int sum = 0;
  for (unsigned b = 0; b < gridDim.x; b++) sum += part[b * N + threadIdx.x];
  y[threadIdx.x] = sum;
}

static int *y, *x, *part, *count;
static cudaStream_t stream;

static int *room_for(int n) {
  void *at = NULL;
  if (cudaMalloc(&at, sizeof(int) * (size_t)n)) exit(3);
  return (int *)at;
}

template <class... P, class... A>
static void run(void (*kernel)(P...), unsigned blocks, A... args) {
  [&](P... held) {
    void *at[] = {(void *)&held...};
    if (cudaLaunchKernel(moth_emulated_kernel_of(kernel), blocks, N, at, N * sizeof(int), stream))
      exit(4);
  }(args...);
}

int main(int, char **argv) {
  const char *name = argv[1];
  const auto is = [=](const char *which) { return strcmp(name, which) == 0; };
  cudaStreamCreateWithFlags(&stream, 0);
  y = room_for(2 * N);
  x = room_for(N);
  part = room_for(4 * N);
  count = room_for(1);
  cudaMemsetAsync(y, 0, 2 * N * sizeof(int), stream);
  cudaMemsetAsync(count, 0, sizeof(int), stream);
  if (!is("unwritten")) cudaMemsetAsync(x, 0, N * sizeof(int), stream);
  if (is("barrier")) run(neighbour<true>, 2, y);
  if (is("no barrier")) run(neighbour<false>, 1, y);
  if (is("syncwarp")) run(lanes<true>, 1, y);
  if (is("shuffle")) run(lanes<false>, 1, y);
  if (is("written again")) run(again, 1, y);
  if (is("apart")) run(apart, 1, y);
  if (is("beyond")) run(beyond, 1, y);
  if (is("beyond shared")) run(beyond_shared, 1, y);
  if (is("unwritten")) run(unwritten, 1, y, x);
  if (is("unwritten shared")) run(unwritten_shared, 1, y);
  if (is("host")) run(host, 1, y, (int *)malloc(4));
  if (is("same value")) run(same_value, 1, y);
  if (is("volatile")) run(volatiles, 2, y);
  if (is("two blocks")) run(unwritten, 2, y, x);
  if (is("bytes")) run(bytes, 2, (unsigned char *)y);
  if (is("atomics")) run(tally<true>, 3, y);
  if (is("half atomic")) run(tally<false>, 1, y);
  if (is("awaited")) run(later<true>, 1, y, x);
  if (is("not awaited")) run(later<false>, 1, y, x);
  if (is("last block")) run(last_block<true, true>, 4, y, part, count);
  if (is("no fence")) run(last_block<false, true>, 4, y, part, count);
  if (is("no count")) run(last_block<true, false>, 4, y, part, count);
  int back[N];
  cudaMemcpyAsync(back, y, sizeof back, cudaMemcpyDeviceToHost, stream);
  if (cudaStreamSynchronize(stream)) return 5;
  printf("done %d\n", back[1]);
  return 0;
}

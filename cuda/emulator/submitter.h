/* submitter.h -- how a library that replaces one of NVIDIA's (nccl.cpp) submits commands to a
** stream of the emulator: a cudaStream_t points to this. */
#ifndef MOTH_EMULATED_SUBMITTER_H
#define MOTH_EMULATED_SUBMITTER_H

#include <functional>

#include "cuda_runtime.h"

struct moth_emulated_submitter {
  /* `run` is called until it returns something else than cudaErrorNotReady. */
  cudaError_t (*const submit)(cudaStream_t stream, std::function<cudaError_t()> run);
  void (*const copy)(void *to, const void *from, size_t n); /* inside a command: any memory */
  moth_emulated_submitter();
};

#endif

/* jit.cpp -- kernels compiled at run time, on the CPU. Their code is the name of a shared object,
** which a C++ compiler made from their source and cuda/host/preamble.cuh (spec/host/nvrtc.c); or it
** is PTX, if the plugin's kernels run by their PTX, too (ptx.cpp). */
#include "emulated.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

struct moth_emulated_jit {
  moth_emulated_call how;
  void (*body)(const void *args);
};

struct moth_emulated_library {
  void *handle;
  bool is_ptx;
};

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *, void **,
                                unsigned, cudaLibraryOption *, void **, unsigned) {
  CALLED;
  const void *places[] = {&threadIdx, &blockIdx, &blockDim};
  const char *path = (const char *)code;
  if (strstr(path, ".version")) { /* PTX */
    void *handle = moth_ptx_compile(path);
    if (!handle) return moth_emulated_error(cudaErrorInvalidValue);
    *library = new moth_emulated_library{handle, true};
    return cudaSuccess;
  }
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle && !getenv("MOTH_CACHE")) unlink(path); /* a cached object is referred to by name, so
                                                     ** it must stay */
  void *to = handle ? dlsym(handle, "moth_emulated_place") : NULL;
  if (!to) return moth_emulated_error(cudaErrorInvalidValue);
  memcpy(to, places, sizeof places);
  *library = new moth_emulated_library{handle, false};
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  static const moth_emulated_call none = {0, NULL, NULL};
  *kernel = (cudaKernel_t)(library->is_ptx ? moth_ptx_find(library->handle, name)
                                           : dlsym(library->handle, name));
  if (!*kernel) return moth_emulated_error(cudaErrorInvalidValue);
  moth_emulated_know(*kernel, library->is_ptx ? &none : &(*kernel)->how);
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *to, const void *kernel) {
  CALLED;
  pthread_mutex_lock(&moth_emulated_lock);
  const bool there = moth_emulated_null || moth_emulated_knows(kernel);
  pthread_mutex_unlock(&moth_emulated_lock);
  *to = cudaFuncAttributes{32, 0, moth_emulated_card("MOTH_EMULATED_COMPILED", 90)};
  return there ? cudaSuccess : moth_emulated_error(cudaErrorInvalidValue);
}

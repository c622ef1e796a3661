/* ptx.cpp -- runs kernels as nvcc compiled them, on the CPU. MOTH_EMULATED_PTX names a shared
** object that was translated from their PTX (ptx/translate.lua; .ci/ptx builds it and runs specs
** with it). If it is set, all kernels come from there; a launch of a kernel that it does not have
** fails. */
#include "emulated.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <string>

extern "C" {
static int lane(void) { return moth_lane(); }
static void barrier(void) { __syncthreads(); }
static int barrier_count(int value) { return __syncthreads_count(value); }
static void warp_barrier(unsigned mask) { __syncwarp(mask); }
static void nap(void) { __nanosleep(0); }
}

static const moth_ptx_machine machine = {
  (const unsigned(*)[3])(const void *)&threadIdx, (const unsigned(*)[3])(const void *)&blockIdx,
  (const unsigned(*)[3])(const void *)&blockDim,  (const unsigned(*)[3])(const void *)&gridDim,
  lane, barrier, barrier_count, warp_barrier, nap, moth_warp_exchange, moth_together,
  moth_copy_later,
  moth_await_copies, __ballot_sync, moth_counts_instructions(), moth_counts_touch};

/* Both compilers mangle a name alike, except for the mark of static functions; the file name
** distinguishes kernels of the same name. */
static std::string full_name(const std::string &file, const char *name) {
  const std::string text(name);
  return file + ":" + (text.compare(0, 3, "_ZL") ? text : "_Z" + text.substr(3));
}

/* -- shared objects -- */

typedef const moth_ptx_kernel *const *list_function(size_t *count);

static void *open_object(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const auto runs_on = handle ? (const moth_ptx_machine **)dlsym(handle, "ptx") : NULL;
  if (!runs_on || !dlsym(handle, "moth_ptx_kernels")) {
    fprintf(stderr, "emulated CUDA: cannot load the kernels of the PTX: %s\n", dlerror());
    return NULL;
  }
  *runs_on = &machine;
  return handle;
}

static list_function *kernels_of(void *handle) {
  return (list_function *)dlsym(handle, "moth_ptx_kernels");
}

/* -- the plugin's own kernels -- */

typedef std::map<const void *, const moth_ptx_kernel *> kernels;

/* Finds kernels by the address of the emulator's kernel of the same name, from nm. */
static kernels *read_kernels(const char *path) {
  std::map<std::string, const moth_ptx_kernel *> named;
  kernels *found = new kernels;
  char line[8192], name[8000], kind;
  std::string file;
  size_t count = 0, at;
  Dl_info own;
  void *handle = open_object(path);
  if (!handle || !dladdr((void *)(uintptr_t)&read_kernels, &own)) abort();
  const moth_ptx_kernel *const *all = kernels_of(handle)(&count);
  for (size_t i = 0; i < count; i++) named[full_name(all[i]->file, all[i]->name)] = all[i];
  FILE *symbols = popen(("nm -ap '" + std::string(own.dli_fname) + "'").c_str(), "r");
  while (symbols && fgets(line, sizeof line, symbols)) {
    if (sscanf(line, "%zx %c %7999s", &at, &kind, name) != 3) continue;
    if (kind == 'a') file = name; /* the following symbols are of this file */
    const auto kernel = named.find(full_name(file, name));
    if (kernel != named.end()) (*found)[(const char *)own.dli_fbase + at] = kernel->second;
  }
  if (symbols) pclose(symbols);
  return found;
}

static kernels made; /* kernels compiled at run time */

bool moth_ptx_replacement(const void *kernel, const moth_ptx_kernel **is) {
  static const char *const path = getenv("MOTH_EMULATED_PTX");
  static const kernels *const all = path && *path ? read_kernels(path) : NULL;
  *is = NULL;
  if (!all) return true;
  for (const kernels *list : {all, (const kernels *)&made}) {
    const auto at = list->find(kernel);
    if (at != list->end()) *is = at->second;
  }
  if (!*is) fprintf(stderr, "emulated CUDA: no PTX of the kernel at %p\n", kernel);
  return *is != NULL;
}

void moth_ptx_hold(const moth_ptx_kernel *kernel, char *params, void *const *args) {
  for (unsigned i = 0; i < kernel->count; i++)
    memcpy(params + kernel->places[2 * i], args[i], kernel->places[2 * i + 1]);
}

/* -- kernels compiled at run time: the program in MOTH_EMULATED_PTXC makes a shared object -- */

void *moth_ptx_compile(const char *text) {
  const char *compiler = getenv("MOTH_EMULATED_PTXC");
  char path[] = "/tmp/moth-made-XXXXXX";
  const int file = compiler ? mkstemp(path) : -1;
  if (file < 0) return NULL;
  const size_t n = strlen(text);
  const std::string from = path, object = from + ".so";
  const bool written = write(file, text, n) == (ssize_t)n;
  close(file);
  const bool good = written && !system((compiler + (" " + from) + " " + object).c_str());
  void *handle = good ? open_object(object.c_str()) : NULL;
  unlink(path);
  unlink(object.c_str());
  return handle;
}

const void *moth_ptx_find(void *handle, const char *name) {
  size_t count = 0;
  const moth_ptx_kernel *const *all = kernels_of(handle)(&count);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(all[i]->name, name)) return made[all[i]] = all[i], all[i];
  return NULL;
}

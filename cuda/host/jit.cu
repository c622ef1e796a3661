/* jit.cu -- kernels compiled at run time. NVRTC, if it is installed, compiles their source for the
** current device, and the runtime loads the code.
**
** Compiled code is cached on disk (jit_cache.cu). MOTH_NVRTC_LOG names a file that all sources are
** appended to, without the common preamble. */
#include "jit.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "moth_jit_preamble.inc"

static_assert(MOTH_MAX_DIMS == 8, "as preamble.cuh says");

/* -- NVRTC: declared here, because nvrtc.h may be missing at build time -- */

typedef struct nvrtc_program *nvrtcProgram;

static struct nvrtc_functions {
  int (*create)(nvrtcProgram *p, const char *source, const char *name, int headers,
                const char *const *texts, const char *const *names);
  int (*compile)(nvrtcProgram p, int n, const char *const *options);
  int (*destroy)(nvrtcProgram *p);
  int (*log_size)(nvrtcProgram p, size_t *size);
  int (*log)(nvrtcProgram p, char *text);
  int (*cubin_size)(nvrtcProgram p, size_t *size);
  int (*cubin)(nvrtcProgram p, char *code);
  int (*ptx_size)(nvrtcProgram p, size_t *size);
  int (*ptx)(nvrtcProgram p, char *text);
  int (*arch_count)(int *n);
  int (*archs)(int *list);
  int (*version)(int *major, int *minor);
} nvrtc;

static const char *const names[] = {
  "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcDestroyProgram", "nvrtcGetProgramLogSize",
  "nvrtcGetProgramLog", "nvrtcGetCUBINSize", "nvrtcGetCUBIN", "nvrtcGetPTXSize", "nvrtcGetPTX",
  "nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs", "nvrtcVersion"};

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool there;

static void open_nvrtc(void) {
  enum { N = sizeof names / sizeof *names };
  static_assert(sizeof nvrtc == N * sizeof(void *), "a name for each function");
  there = moth_library_functions(LIBRARY_NVRTC, names, N, (void **)&nvrtc);
}

/* -- compiling -- */

/* Compiles for the device, or, if it is newer than this NVRTC, to PTX that the driver compiles.
** false: the device is too old. */
static bool choose_target(int device, char *option, size_t capacity, bool *is_ptx) {
  enum { MOST = 64 };
  int n = 0, list[MOST], best = 0;
  if (nvrtc.arch_count(&n) || n > MOST || nvrtc.archs(list)) return false;
  for (int i = 0; i < n; i++)
    if (list[i] <= device && list[i] > best) best = list[i];
  *is_ptx = best != device;
  snprintf(option, capacity, "--gpu-architecture=%s_%d", *is_ptx ? "compute" : "sm", best);
  return best > 0;
}

/* An error message: what failed, and the start of the library's message. */
typedef struct error_text {
  char *to;
  size_t capacity;
} error_text;

static int cannot(error_text why, const char *what, const char *more) {
  snprintf(why.to, why.capacity, "%s%s%s", what, more && *more ? ": " : "", more ? more : "");
  return MOTH_E_UNSUPPORTED;
}

static int print_log(error_text why, nvrtcProgram p) {
  size_t size = 0;
  char *log = nvrtc.log_size(p, &size) || size == 0 ? NULL : (char *)calloc(1, size + 1);
  if (log && nvrtc.log(p, log)) *log = 0;
  cannot(why, "NVRTC failed to compile the kernel", log);
  free(log);
  return MOTH_E_UNSUPPORTED;
}

typedef struct jit_code {
  char *at; /* the caller calls free() */
  size_t size;
} jit_code;

static int code_of(error_text why, nvrtcProgram p, bool is_ptx, jit_code *code) {
  const int error = is_ptx ? nvrtc.ptx_size(p, &code->size) : nvrtc.cubin_size(p, &code->size);
  if (error || !code->size) return cannot(why, "NVRTC returned no code", NULL);
  code->at = (char *)malloc(code->size);
  if (!code->at) return MOTH_E_MEM;
  if (!(is_ptx ? nvrtc.ptx(p, code->at) : nvrtc.cubin(p, code->at))) return MOTH_OK;
  return cannot(why, "NVRTC did not return its code", NULL);
}

typedef struct target {
  char option[64];
  bool is_ptx;
} target;

static int compile(error_text why, const target *to, const char *source, jit_code *code) {
  const char *options[] = {to->option, "--std=c++17", "-default-device", "-w"};
  nvrtcProgram p = NULL;
  if (nvrtc.create(&p, source, "moth.cu", 0, NULL, NULL))
    return cannot(why, "NVRTC cannot create a program", NULL);
  const int status = nvrtc.compile(p, 4, options) ? print_log(why, p)
                                                  : code_of(why, p, to->is_ptx, code);
  nvrtc.destroy(&p);
  return status;
}

/* -- loading -- */

#if CUDART_VERSION >= 12080
/* Loaded code is never freed. It is sent to the device now: not while a graph is captured. */
static int load(error_text why, const char *code, const char *const *kernels, int n,
                const void **at) {
  cudaLibrary_t library;
  cudaError_t error = cudaLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);
  for (int i = 0; i < n && !error; i++) {
    cudaKernel_t kernel;
    error = cudaLibraryGetKernel(&kernel, library, kernels[i]);
    at[i] = (const void *)kernel;
    if (!error) error = moth_jit_load(at[i]);
  }
  if (!error) return MOTH_OK;
  cudaGetLastError();
  /* Out of memory: a later call may succeed. */
  if (error == cudaErrorMemoryAllocation) return MOTH_E_MEM;
  return cannot(why, "the code of NVRTC cannot be loaded", cudaGetErrorString(error));
}
#else
static int load(error_text why, const char *, const char *const *, int, const void **) {
  return cannot(why, "this build's CUDA toolkit is older than 12.8, which first loads kernels that "
                "are compiled at run time", NULL);
}
#endif

cudaError_t moth_jit_load(const void *kernel) {
  struct cudaFuncAttributes found;
  return cudaFuncGetAttributes(&found, kernel);
}

/* Appends the source to the file that MOTH_NVRTC_LOG names. */
static void note(const char *source) {
  const char *path = getenv("MOTH_NVRTC_LOG");
  FILE *file = path && *path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s\n", source);
  fclose(file);
}

/* Loads the code from the cache on disk if possible; else compiles and stores it there. */
static int load_source(error_text why, const moth_queue *q, const char *source,
                       const char *const *kernels, int n, const void **at) {
  char name[4096];
  int major = 0, minor = 0;
  target to = {};
  jit_code code = {};
  if (!choose_target(10 * q->major + q->minor, to.option, sizeof to.option, &to.is_ptx))
    return cannot(why, "this NVRTC compiles only for newer GPUs", NULL);
  nvrtc.version(&major, &minor);
  const bool keeps = moth_cache_name(to.option, 1000 * major + minor, source, name, sizeof name);
  char *kept = keeps ? moth_cache_read(name) : NULL;
  int status = kept ? load(why, kept, kernels, n, at) : MOTH_E_UNSUPPORTED;
  free(kept);
  if (status != MOTH_E_UNSUPPORTED) return status;
  status = compile(why, &to, source, &code);
  if (!status) status = load(why, code.at, kernels, n, at);
  if (!status && keeps) moth_cache_write(name, code.at, code.size);
  free(code.at);
  return status;
}

int moth_jit_compile(const moth_queue *q, const char *source, const char *const *kernels, int n,
                     const void **at, char *to, size_t capacity) {
  const error_text why = {to, capacity};
  pthread_once(&asked, open_nvrtc);
  if (!there)
    return cannot(why,
                  "its kernel is compiled at run time by NVRTC (libnvrtc.so of CUDA 12 or 13), "
                  "which was not found; single ops work without it",
                  NULL);
  const size_t before = sizeof moth_jit_preamble - 1, own = strlen(source);
  char *whole = (char *)malloc(before + own + 1);
  if (!whole) return MOTH_E_MEM;
  memcpy(whole, moth_jit_preamble, before);
  memcpy(whole + before, source, own + 1);
  note(source);
  const int status = load_source(why, q, whole, kernels, n, at);
  free(whole);
  return status;
}

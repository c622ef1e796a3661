/* library.cu -- opens NVIDIA's libraries at run time if they are installed. Nothing is linked to
** them; without them Moth's own kernels do the work.
**
** MOTH_CUBLASLT, MOTH_CUDNN, MOTH_NVRTC and MOTH_NCCL in the environment name a file to open
** instead, or `none`. The GPU emulator uses none of them unless a file is named. */
#include "device.cuh"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct library {
  const char *name, *variable, *version, *without;
  const char *files[3];
} library;

/* First the library version of the linked runtime: it needs no newer driver. */
#if defined(CUDART_VERSION) && CUDART_VERSION < 13000
#define LT_FILES "libcublasLt.so.12", "libcublasLt.so.13"
#define RTC_FILES "libnvrtc.so.12", "libnvrtc.so.13"
#else
#define LT_FILES "libcublasLt.so.13", "libcublasLt.so.12"
#define RTC_FILES "libnvrtc.so.13", "libnvrtc.so.12"
#endif

static const library known[LIBRARIES] = {
  {"cuBLASLt", "MOTH_CUBLASLT", "cublasLtGetVersion",
   "matrix products by Moth's own kernels, several times slower",
   {LT_FILES, NULL}},
  {"cuDNN", "MOTH_CUDNN", "cudnnGetVersion", "convolutions and attention by Moth's own kernels",
   {"libcudnn.so.9", "libcudnn.so.8", NULL}},
  {"NVRTC", "MOTH_NVRTC", "nvrtcVersion", "elementwise ops run one by one, none are fused",
   {RTC_FILES, NULL}},
  {"NCCL", "MOTH_NCCL", "ncclGetVersion", "processes cannot exchange tensors of GPUs",
   {"libnccl.so.2", NULL}},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened {
  bool tried;
  void *handle;
  const char *file;
} opened[LIBRARIES];

static void open_library(int which) {
  const library *l = &known[which];
  struct opened *o = &opened[which];
  const char *wanted = getenv(l->variable);
  o->tried = true;
  if (wanted) {
    o->file = wanted;
    if (strcmp(wanted, "none") != 0) o->handle = dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    return;
  }
#ifdef __CUDACC__
  for (int i = 0; !o->handle && l->files[i]; i++) {
    o->file = l->files[i];
    o->handle = dlopen(o->file, RTLD_NOW | RTLD_LOCAL);
  }
#endif
}

void *moth_library(int which) {
  pthread_mutex_lock(&lock);
  if (!opened[which].tried) open_library(which);
  void *handle = opened[which].handle;
  pthread_mutex_unlock(&lock);
  return handle;
}

/* Looked up once in a process for each library. */
bool moth_library_functions(int which, const char *const *names, int n, void **at) {
  void *handle = moth_library(which);
  for (int i = 0; handle && i < n; i++)
    if (!(at[i] = dlsym(handle, names[i]))) return false;
  return handle != NULL;
}

/* -- the report of what was found -- */

typedef struct text {
  char *at;
  size_t capacity, used;
} text;

#define SAY(t, ...)                                                                              \
  do {                                                                                           \
    int n_ = snprintf((t)->at + (t)->used, (t)->capacity - (t)->used, __VA_ARGS__);              \
    if (n_ > 0) (t)->used += (size_t)n_ < (t)->capacity - (t)->used ? (size_t)n_                 \
                                                                : (t)->capacity - (t)->used - 1; \
  } while (0)

static void print_version(text *t, const char *name, int version) {
  SAY(t, "%s\t%d.%d\n", name, version / 1000, version % 1000 / 10);
}

static void print_library(text *t, int which) {
  const library *l = &known[which];
  void *handle = moth_library(which);
  int major = 0, minor = 0;
  union {
    void *symbol;
    size_t (*version)(void);
    int (*pair)(int *major, int *minor);
    int (*code)(int *version);
  } ask = {handle ? dlsym(handle, l->version) : NULL};
  if (!handle) SAY(t, "%s\tnot found: %s\n", l->name, l->without);
  else if (!ask.symbol) SAY(t, "%s\t%s\n", l->name, opened[which].file);
  else if (which == LIBRARY_NVRTC && !ask.pair(&major, &minor))
    SAY(t, "%s\t%d.%d (%s)\n", l->name, major, minor, opened[which].file);
  else if (which == LIBRARY_NCCL && !ask.code(&major)) /* 21803: 2.18.3 */
    SAY(t, "%s\t%d.%d.%d (%s)\n", l->name, major / 10000, major / 100 % 100, major % 100,
        opened[which].file);
  else SAY(t, "%s\t%zu (%s)\n", l->name, ask.version(), opened[which].file);
}

void moth_cuda_report(moth_ctx *ctx, char *to, size_t capacity) {
  text t = {to, capacity, 0};
  int driver = 0, runtime = 0;
  Dl_info self;
  (void)ctx;
  if (dladdr((void *)(uintptr_t)&moth_cuda_report, &self) && self.dli_fname)
    SAY(&t, "plugin\t%s\n", self.dli_fname);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    SAY(&t, "driver\tnot found: libcuda.so.1 is missing; tensors stay on the CPU\n");
  else print_version(&t, "driver", driver);
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) print_version(&t, "runtime", runtime);
  cudaGetLastError();
  for (int i = 0; i < LIBRARIES; i++) print_library(&t, i);
}

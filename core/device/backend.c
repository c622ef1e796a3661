/* backend.c -- finds, checks and loads the plugin for devices other than the CPU at the first use
** of a device, and passes it the core's functions. device.c calls the plugin.
*/
#include "device.h"
#include "transfers.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernel/math/maps.h"
#include "base/random.h"
#include "call/registry.h"
#include "base/system.h"
#include "autograd/tape.h"

#define PLUGIN "libmoth_cuda.so"

/* -- the functions for plugins -- */

static void **plugin_state(moth_ctx *ctx) {
  moth_devices *d = moth_devices_of(ctx);
  return d ? &d->state : NULL;
}

static int status_of(const moth_ctx *ctx) { return ctx->error.code; }
static const char *op_under_way(const moth_ctx *ctx) { return ctx->error.op; }
static void *host_alloc(moth_ctx *ctx, int64_t nbytes) { return moth_alloc(ctx, nbytes); }
static void host_dealloc(moth_ctx *ctx, void *block, int64_t nbytes) {
  moth_dealloc(ctx, block, nbytes);
}

static int float32_precision(const moth_ctx *ctx) { return ctx->float32_precision; }
static bool deterministic(const moth_ctx *ctx) { return ctx->deterministic; }
static bool cudnn(const moth_ctx *ctx, int what) {
  return ctx->cudnn >> what & 1u && !(what == MOTH_CUDNN_BENCHMARK && ctx->deterministic);
}

static const char *map_name(int64_t number) {
  const moth_loops *loops = moth_map_at(number);
  return loops ? loops->name : NULL;
}

static const moth_host lent = {
  .version = MOTH_BACKEND_VERSION, .size = sizeof(moth_host),
  .tensor_size = sizeof(moth_tensor), .op_size = sizeof(moth_op),
  .dtype_size = moth_dtype_size, .state = plugin_state, .fail = moth_fail, .status = status_of,
  .op_under_way = op_under_way, .str = moth_str, .dtype_name = moth_dtype_name,
  .tensor_new = moth_tensor_new, .tensor_new_channels_last = moth_tensor_new_channels_last,
  .tensor_release = moth_tensor_release, .packed = moth_packed,
  .packed_channels_last = moth_packed_channels_last, .cast = moth_cast, .copy_into = moth_copy_into,
  .loop_over = moth_loop_over, .layout_contiguous = moth_layout_contiguous,
  .layout_channels_last = moth_layout_channels_last, .convert = moth_convert, .run = moth_run,
  .op_find = moth_op_find, .generator_take = moth_generator_take, .dim_mask = moth_dim_mask,
  .absent = moth_absent, .check_write = moth_check_write, .storage_bump = moth_storage_bump,
  .float32_precision = float32_precision, .deterministic = deterministic,
  .cudnn = cudnn, .alloc = host_alloc, .dealloc = host_dealloc, .map_name = map_name,
  .check_transfers = moth_transfers_check,
};

/* -- loading: once per process; a failure is kept as a message -- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[512];
static bool tried;

static void *open_in(const char *folder, size_t length) {
  char path[MOTH_PATH_SIZE];
  int n = length ? snprintf(path, sizeof path, "%.*s/" PLUGIN, (int)length, folder)
                 : snprintf(path, sizeof path, PLUGIN);
  void *library = n < (int)sizeof path ? moth_library_open(path) : NULL;
  if (library) return library;
  const char *why = moth_library_trouble(path);
  if (why) snprintf(trouble, sizeof trouble, PLUGIN " cannot be loaded: %s", why);
  return NULL;
}

/* Searches the folders of MOTH_BACKEND_PATH, if it is set. Otherwise searches libmoth's folder,
** then the system's. */
static void *open_plugin(void) {
  const char *at = getenv("MOTH_BACKEND_PATH");
  char folder[MOTH_PATH_SIZE];
  void *library = NULL;
  snprintf(trouble, sizeof trouble, PLUGIN " was not found%s%s", at ? " in " : "", at ? at : "");
  while (at && *at && !library) {
    size_t length = strcspn(at, ":");
    if (length) library = open_in(at, length);
    at += length + (at[length] == ':');
  }
  if (library || getenv("MOTH_BACKEND_PATH")) return library;
  if (moth_library_folder((void (*)(void))moth_backend_load, folder))
    library = open_in(folder, strlen(folder));
  return library ? library : open_in("", 0);
}

static void load(void) {
  void *library = open_plugin();
  if (!library) return;
  union {
    void *symbol;
    moth_backend_init_fn init;
  } entry = {.symbol = moth_library_symbol(library, "moth_backend_init")};
  const moth_backend *found = entry.symbol ? entry.init(&lent) : NULL;
  if (!found || found->version != MOTH_BACKEND_VERSION || found->size != sizeof *found) {
    snprintf(trouble, sizeof trouble, PLUGIN " belongs to another version of Moth");
    moth_library_close(library);
    return;
  }
  if (!moth_plugin_adopt(found)) {
    snprintf(trouble, sizeof trouble, "out of memory while " PLUGIN " was loaded");
    moth_library_close(library);
    return;
  }
  for (uint32_t i = 0; i < found->nkernels; i++) {
    const moth_device_kernel *k = found->kernels[i];
    const moth_op *op = k->run ? moth_op_find(k->name) : NULL;
    if (op) ((moth_op *)(uintptr_t)op)->device = k->run;
  }
}

const moth_backend *moth_backend_load(moth_ctx *ctx) {
  pthread_mutex_lock(&lock);
  if (!tried) load();
  tried = true;
  pthread_mutex_unlock(&lock);
  if (!moth_plugin)
    moth_fail(ctx, MOTH_E_DEVICE, "device", "no CUDA device: %s; this build computes on the CPU",
              trouble);
  else if (!moth_devices_of(ctx))
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  else
    return moth_plugin;
  return NULL;
}

int32_t moth_device_count(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  const moth_backend *b = moth_backend_load(ctx);
  return b ? b->count(ctx) : ctx->error.code;
}

int moth_device_check(moth_ctx *ctx, const char *arg, int64_t device) {
  if (device == 0) return MOTH_OK;
  const moth_backend *b = moth_backend_load(ctx);
  int32_t n = b ? b->count(ctx) : ctx->error.code;
  if (n < 0) return n;
  if (device > 0 && device <= n && device <= MOTH_MAX_DEVICES) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DEVICE, arg, "there is no cuda:%lld, this machine has %d",
                   (long long)device - 1, n);
}

moth_tensor *moth_pinned_like(moth_ctx *ctx, const moth_layout *like) {
  moth_layout l = *like;
  l.device = 0;
  l.offset = 0;
  moth_layout_pack(&l);
  void *owner = NULL, *data;
  const int64_t nbytes = l.numel * moth_dtype_size[l.dtype];
  if (!moth_count_data(ctx, nbytes)) return NULL;
  data = moth_plugin->pin(ctx, nbytes, &owner);
  moth_storage *s =
    data ? moth_storage_foreign(ctx, data, nbytes, moth_plugin->unpin, owner) : NULL;
  if (s) s->foreign = false; /* counted as others, but freed by its deleter */
  else ctx->mem.live_bytes -= nbytes;
  if (!s && data) moth_plugin->unpin(owner);
  moth_tensor *x = s ? moth_tensor_like(ctx, &l, s) : NULL;
  moth_storage_release(ctx, s);
  return x;
}

/* -- functions of moth.h and moth_lua.h -- */

int32_t moth_device_report(moth_ctx *ctx, char *text, int64_t size) {
  MOTH_NEED(ctx, (text || !size), MOTH_E_ARG);
  moth_error_clear(ctx);
  if (size > 0) *text = 0;
  const moth_backend *b = moth_backend_load(ctx);
  if (b && size > 0) b->report(ctx, text, (size_t)size);
  return b ? MOTH_OK : ctx->error.code;
}

int32_t moth_device_synchronize(moth_ctx *ctx, int32_t device) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  return status || device == 0 ? status : moth_plugin->synchronize(ctx, device);
}

int32_t moth_device_memory(moth_ctx *ctx, int32_t device, moth_device_info *info) {
  MOTH_NEED(ctx, info, MOTH_E_ARG);
  moth_error_clear(ctx);
  memset(info, 0, sizeof *info);
  int status = moth_device_check(ctx, "device", device);
  if (status || device == 0) return status;
  const moth_device_bytes *c = &ctx->devices->of[device];
  info->live_bytes = c->live;
  info->peak_bytes = c->peak;
  info->limit_bytes = c->limit;
  return moth_plugin->memory(ctx, device, info);
}

int32_t moth_default_device(moth_ctx *ctx, int32_t device) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = ctx->devices ? ctx->devices->fallback : 0;
  moth_error_clear(ctx);
  if (device < 0 || device == old) return old;
  int status = moth_device_check(ctx, "device", device);
  if (status) return status;
  ctx->devices->fallback = device;
  return old;
}

int moth_device_fallback(const moth_ctx *ctx) { return ctx->devices ? ctx->devices->fallback : 0; }

int32_t moth_device_limit(moth_ctx *ctx, int32_t device, int64_t bytes) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) ctx->devices->of[device].limit = bytes;
  return status;
}

int32_t moth_device_reset_peak(moth_ctx *ctx, int32_t device) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) ctx->devices->of[device].peak = ctx->devices->of[device].live;
  return status;
}

int32_t moth_device_empty_cache(moth_ctx *ctx, int32_t device) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) moth_plugin->empty_cache(ctx, device);
  return status;
}

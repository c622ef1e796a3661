/* backend.c -- devices beside the CPU: the plugin that computes on them is found, checked and
** loaded at the first use of one; memory there is counted here.
*/
#include "backend.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernel/maps.h"
#include "random.h"
#include "registry.h"
#include "system.h"
#include "tape.h"

#define PLUGIN "libmoth_cuda.so"
#define DEVICE_FLOOR ((int64_t)256 << 20) /* bytes of garbage there before a collection */

typedef struct device_count { /* of one context on one device */
  int64_t live, peak, limit, goal;
} device_count;

struct moth_devices {
  void *state;  /* the plugin's */
  int fallback; /* where tensors are made that no other has a say in */
  device_count of[MOTH_MAX_DEVICES + 1];
};

/* -- what the engine lends -- */

static moth_devices *devices_of(moth_ctx *ctx) {
  if (ctx->devices || ctx->closed) return ctx->devices;
  ctx->devices = calloc(1, sizeof *ctx->devices);
  for (int i = 0; ctx->devices && i <= MOTH_MAX_DEVICES; i++)
    ctx->devices->of[i].goal = DEVICE_FLOOR;
  return ctx->devices;
}

static void **plugin_state(moth_ctx *ctx) {
  moth_devices *d = devices_of(ctx);
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
  .tensor_new = moth_tensor_new, .tensor_release = moth_tensor_release, .packed = moth_packed,
  .packed_channels_last = moth_packed_channels_last, .cast = moth_cast, .copy_into = moth_copy_into,
  .loop_over = moth_loop_over, .layout_contiguous = moth_layout_contiguous,
  .layout_channels_last = moth_layout_channels_last, .convert = moth_convert, .run = moth_run,
  .op_find = moth_op_find, .generator_take = moth_generator_take, .dim_mask = moth_dim_mask,
  .absent = moth_absent, .check_write = moth_check_write, .storage_bump = moth_storage_bump,
  .float32_precision = float32_precision, .deterministic = deterministic,
  .cudnn = cudnn, .alloc = host_alloc, .dealloc = host_dealloc, .map_name = map_name,
};

/* -- loading: once a process; what went wrong is kept as a message -- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const moth_backend *plugin;
static char trouble[512];
static bool tried;

static void *open_in(const char *folder, size_t length) {
  char path[4096];
  int n = length ? snprintf(path, sizeof path, "%.*s/" PLUGIN, (int)length, folder)
                 : snprintf(path, sizeof path, PLUGIN);
  void *library = n < (int)sizeof path ? moth_library_open(path) : NULL;
  if (library) return library;
  const char *why = moth_library_trouble();
  if (why) snprintf(trouble, sizeof trouble, "%s", why);
  return NULL;
}

/* MOTH_BACKEND_PATH's folders and no others, if it is set; else that of libmoth, then the
** system's. */
static void *open_plugin(void) {
  const char *at = getenv("MOTH_BACKEND_PATH");
  char folder[MOTH_FOLDER];
  void *library = NULL;
  snprintf(trouble, sizeof trouble, PLUGIN " was not found%s%s", at ? " in " : "", at ? at : "");
  while (at && *at && !library) {
    size_t length = strcspn(at, ":");
    if (length) library = open_in(at, length);
    at += length + (at[length] == ':');
  }
  if (library || getenv("MOTH_BACKEND_PATH")) return library;
  if (moth_library_folder((void (*)(void))moth_open, folder))
    library = open_in(folder, strlen(folder));
  return library ? library : open_in("", 0);
}

/* The plugin's kernels by their names: open addressing, at most half full. Ops hold theirs
** themselves, but the rows of a family of elementwise functions lie in read-only memory. A name
** may stand for an op's kernel and a row's. */
static const moth_device_kernel **by_name;
static uint32_t name_mask;

static uint32_t hash_of(const char *name) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash ^ hash >> 15;
}

static bool make_index(const moth_backend *b) {
  uint32_t size = 16;
  while (size < 2 * b->nkernels) size *= 2;
  by_name = calloc(size, sizeof *by_name);
  name_mask = size - 1;
  for (uint32_t i = 0; by_name && i < b->nkernels; i++) {
    uint32_t at = hash_of(b->kernels[i]->name) & name_mask;
    while (by_name[at]) at = (at + 1) & name_mask;
    by_name[at] = b->kernels[i];
  }
  return by_name != NULL;
}

static const moth_device_kernel *kernel_named(const char *name, bool map) {
  for (uint32_t at = hash_of(name) & name_mask; by_name[at]; at = (at + 1) & name_mask)
    if (!by_name[at]->map == !map && !strcmp(by_name[at]->name, name)) return by_name[at];
  return NULL;
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
  if (!make_index(found)) {
    snprintf(trouble, sizeof trouble, "out of memory while " PLUGIN " was loaded");
    moth_library_close(library);
    return;
  }
  for (uint32_t i = 0; i < found->nkernels; i++) {
    const moth_device_kernel *k = found->kernels[i];
    const moth_op *op = k->run ? moth_op_find(k->name) : NULL;
    if (op) ((moth_op *)(uintptr_t)op)->device = k->run;
  }
  __atomic_store_n(&plugin, found, __ATOMIC_RELEASE);
}

const moth_backend *moth_backend_load(moth_ctx *ctx) {
  pthread_mutex_lock(&lock);
  if (!tried) load();
  tried = true;
  pthread_mutex_unlock(&lock);
  if (!plugin)
    moth_fail(ctx, MOTH_E_DEVICE, "device", "no CUDA device: %s; this build computes on the CPU",
              trouble);
  else if (!devices_of(ctx))
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  else
    return plugin;
  return NULL;
}

const char *moth_device_name(int device, char room[24]) {
  if (device == 0) return "cpu";
  snprintf(room, 24, "%s:%d", plugin ? plugin->name : "cuda", device - 1);
  return room;
}

int moth_device_missing(moth_ctx *ctx, int device) {
  char room[24];
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "there is no kernel for it on %s; use :cpu()",
                   moth_device_name(device, room));
}

int32_t moth_device_count(moth_ctx *ctx) {
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

/* -- memory -- */

void *moth_device_alloc(moth_ctx *ctx, int device, int64_t nbytes, void **owner) {
  device_count *c = &ctx->devices->of[device];
  if (c->limit > 0 && (nbytes > c->limit || c->live > c->limit - nbytes)) {
    char room[24];
    moth_fail(ctx, MOTH_E_LIMIT, NULL,
              "memory limit of %lld bytes reached on %s: %lld in use, %lld more asked for",
              (long long)c->limit, moth_device_name(device, room), (long long)c->live,
              (long long)nbytes);
    return NULL;
  }
  if (ctx->fail_after > 0 && --ctx->fail_after == 0) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory (as asked for by a test)");
    return NULL;
  }
  void *block = plugin->alloc(ctx, device, nbytes, owner);
  if (!block) return NULL;
  c->live += nbytes;
  if (c->live > c->peak) c->peak = c->live;
  if (c->live > c->goal) ctx->want = true;
  return block;
}

void moth_device_free(moth_ctx *ctx, int device, void *owner, int64_t nbytes) {
  if (!ctx->devices) return; /* the context has ended, and its memory with it */
  ctx->devices->of[device].live -= nbytes;
  plugin->dealloc(owner);
}

bool moth_is_pinned_storage(const moth_storage *s) {
  const moth_storage *root = s->root ? s->root : s;
  const moth_backend *b = __atomic_load_n(&plugin, __ATOMIC_ACQUIRE); /* of any context */
  return b && root->deleter == b->unpin;
}

bool moth_is_stream_storage(const moth_storage *s) {
  const moth_storage *root = s->root ? s->root : s;
  const moth_backend *b = __atomic_load_n(&plugin, __ATOMIC_ACQUIRE); /* of any context */
  return b && root->deleter &&
         (root->deleter == b->streams->drop || root->deleter == b->streams->drop_event);
}

moth_tensor *moth_pinned_like(moth_ctx *ctx, const moth_layout *like) {
  moth_layout l = *like;
  l.device = 0;
  l.offset = 0;
  moth_layout_pack(&l);
  void *owner = NULL, *data;
  const int64_t nbytes = l.numel * moth_dtype_size[l.dtype];
  if (!moth_count_data(ctx, nbytes)) return NULL;
  data = plugin->pin(ctx, nbytes, &owner);
  moth_storage *s = data ? moth_storage_foreign(ctx, data, nbytes, plugin->unpin, owner) : NULL;
  if (s) s->foreign = false; /* counted as any other, and given back in its own way */
  else ctx->mem.live_bytes -= nbytes;
  if (!s && data) plugin->unpin(owner);
  moth_tensor *x = s ? moth_tensor_like(ctx, &l, s) : NULL;
  moth_storage_release(ctx, s);
  return x;
}

void moth_device_recount(moth_ctx *ctx, int device, int64_t more) {
  device_count *c = &ctx->devices->of[device];
  c->live += more;
  if (c->live > c->peak) c->peak = c->live;
}

int64_t moth_devices_live(const moth_ctx *ctx) {
  int64_t live = 0;
  for (int i = 1; i <= MOTH_MAX_DEVICES; i++) live += ctx->devices->of[i].live;
  return live;
}

void moth_devices_swept(moth_ctx *ctx) {
  for (int i = 1; ctx->devices && i <= MOTH_MAX_DEVICES; i++) {
    device_count *c = &ctx->devices->of[i];
    c->goal = c->live + (c->live / 4 > DEVICE_FLOOR ? c->live / 4 : DEVICE_FLOOR);
  }
}

void moth_devices_close(moth_ctx *ctx) {
  if (!ctx->devices) return;
  if (plugin && ctx->devices->state) plugin->close(ctx);
  free(ctx->devices);
  ctx->devices = NULL;
}

/* -- work -- */

int moth_device_copy(moth_tensor *y, const moth_tensor *x, bool wait) {
  return plugin->copy(y, x, wait);
}

int moth_device_map(moth_ctx *ctx, const char *name, int dtype, int noperands,
                    const moth_tensor *const *operands, const void *arg) {
  const moth_device_kernel *k = kernel_named(name, true);
  if (k) return k->map(ctx, dtype, noperands, operands, arg);
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "%s has no kernel for '%s'", plugin->name, name);
}

int moth_device_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch) {
  return plugin->multiply(ctx, p, batch);
}

int moth_device_call(moth_ctx *ctx, const char *name, const void *args) {
  const moth_device_kernel *k = kernel_named(name, false);
  if (k) return k->run(args, NULL);
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "%s has no kernel for '%s'", plugin->name, name);
}

moth_tensor *moth_to_host(const moth_tensor *x) {
  if (x->l.device == 0) return moth_packed(x);
  moth_layout l = x->l;
  l.device = 0;
  moth_tensor *y = moth_tensor_new(x->ctx, &l);
  if (!y) return NULL;
  if (!moth_device_copy(y, x, true)) return y;
  moth_tensor_release(y);
  return NULL;
}

int moth_bytes_move(moth_ctx *ctx, int to_device, void *to, int from_device, const void *from,
                    int64_t n) {
  if (!to_device && !from_device) {
    memcpy(to, from, (size_t)n);
    return MOTH_OK;
  }
  const moth_layout l = {.ndim = 1, .dtype = MOTH_U8, .numel = n, .shape = {n}, .stride = {1}};
  moth_storage there = {.refs = 1, .data = to, .nbytes = n, .device = (uint8_t)to_device};
  moth_storage here = {.refs = 1, .data = (char *)(uintptr_t)from, .nbytes = n,
                       .device = (uint8_t)from_device};
  moth_tensor y = {.refs = 1, .ctx = ctx, .l = l, .storage = &there};
  moth_tensor x = {.refs = 1, .ctx = ctx, .l = l, .storage = &here};
  y.l.device = (uint8_t)to_device;
  x.l.device = (uint8_t)from_device;
  return moth_device_copy(&y, &x, true);
}

/* -- what hosts ask -- */

int32_t moth_device_report(moth_ctx *ctx, char *text, int64_t room) {
  moth_error_clear(ctx);
  if (room > 0) *text = 0;
  const moth_backend *b = moth_backend_load(ctx);
  if (b && room > 0) b->report(ctx, text, (size_t)room);
  return b ? MOTH_OK : ctx->error.code;
}

int32_t moth_device_synchronize(moth_ctx *ctx, int32_t device) {
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  return status || device == 0 ? status : plugin->synchronize(ctx, device);
}

int32_t moth_device_memory(moth_ctx *ctx, int32_t device, moth_device_info *info) {
  moth_error_clear(ctx);
  memset(info, 0, sizeof *info);
  int status = moth_device_check(ctx, "device", device);
  if (status || device == 0) return status;
  const device_count *c = &ctx->devices->of[device];
  info->live_bytes = c->live;
  info->peak_bytes = c->peak;
  info->limit_bytes = c->limit;
  return plugin->memory(ctx, device, info);
}

int32_t moth_default_device(moth_ctx *ctx, int32_t device) {
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
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) ctx->devices->of[device].limit = bytes;
  return status;
}

int32_t moth_device_reset_peak(moth_ctx *ctx, int32_t device) {
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) ctx->devices->of[device].peak = ctx->devices->of[device].live;
  return status;
}

int32_t moth_device_empty_cache(moth_ctx *ctx, int32_t device) {
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, "device", device);
  if (!status && device) plugin->empty_cache(ctx, device);
  return status;
}

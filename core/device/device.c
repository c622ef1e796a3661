/* device.c -- devices other than the CPU, after backend.c has loaded their plugin: counts their
** memory, finds kernels by name, and calls the plugin.
*/
#include "device.h"
#include "tensor/tensor.h"
#include "base/error.h"

#include <stdlib.h>

#define DEVICE_FLOOR ((int64_t)256 << 20) /* bytes of garbage on a device before a collection */

const moth_backend *moth_plugin;

moth_devices *moth_devices_of(moth_ctx *ctx) {
  if (ctx->devices || ctx->closed) return ctx->devices;
  ctx->devices = calloc(1, sizeof *ctx->devices);
  for (int i = 0; ctx->devices && i <= MOTH_MAX_DEVICES; i++)
    ctx->devices->of[i].goal = DEVICE_FLOOR;
  return ctx->devices;
}

/* -- kernels by name -- */

/* A hash table with open addressing, at most half full. Ops have a pointer to their kernel, but the
** tables of elementwise functions are read-only. An op and a function may have the same name.
*/
static const moth_device_kernel **by_name;
static uint32_t name_mask;

static uint32_t hash_of(const char *name) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash ^ hash >> 15;
}

bool moth_plugin_adopt(const moth_backend *b) {
  uint32_t size = 16;
  while (size < 2 * b->nkernels) size *= 2;
  by_name = calloc(size, sizeof *by_name);
  name_mask = size - 1;
  for (uint32_t i = 0; by_name && i < b->nkernels; i++) {
    uint32_t at = hash_of(b->kernels[i]->name) & name_mask;
    while (by_name[at]) at = (at + 1) & name_mask;
    by_name[at] = b->kernels[i];
  }
  if (by_name) __atomic_store_n(&moth_plugin, b, __ATOMIC_RELEASE);
  return by_name != NULL;
}

static const moth_device_kernel *kernel_named(const char *name, bool map) {
  for (uint32_t at = hash_of(name) & name_mask; by_name[at]; at = (at + 1) & name_mask)
    if (!by_name[at]->map == !map && !strcmp(by_name[at]->name, name)) return by_name[at];
  return NULL;
}

const char *moth_device_name(int device, char name[24]) {
  if (device == 0) return "cpu";
  snprintf(name, 24, "%s:%d", moth_plugin ? moth_plugin->name : "cuda", device - 1);
  return name;
}

int moth_device_missing(moth_ctx *ctx, int device) {
  char name[24];
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "there is no kernel for it on %s; use :cpu()",
                   moth_device_name(device, name));
}

/* -- memory -- */

void *moth_device_alloc(moth_ctx *ctx, int device, int64_t nbytes, void **owner) {
  moth_device_bytes *c = &ctx->devices->of[device];
  if (c->limit > 0 && (nbytes > c->limit || c->live > c->limit - nbytes)) {
    char name[24];
    moth_fail(ctx, MOTH_E_LIMIT, NULL,
              "memory limit of %lld bytes reached on %s: %lld in use, %lld more asked for",
              (long long)c->limit, moth_device_name(device, name), (long long)c->live,
              (long long)nbytes);
    return NULL;
  }
  if (ctx->fail_after > 0 && --ctx->fail_after == 0) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory (as asked for by a test)");
    return NULL;
  }
  void *block = moth_plugin->alloc(ctx, device, nbytes, owner);
  if (!block) return NULL;
  c->live += nbytes;
  if (c->live > c->peak) c->peak = c->live;
  if (c->live > c->goal) ctx->want = true;
  return block;
}

void moth_device_free(moth_ctx *ctx, int device, void *owner, int64_t nbytes) {
  if (!ctx->devices) return; /* the context is closed, and its memory freed */
  ctx->devices->of[device].live -= nbytes;
  moth_plugin->dealloc(owner);
}

bool moth_is_pinned_storage(const moth_storage *s) {
  const moth_storage *root = s->root ? s->root : s;
  const moth_backend *b = __atomic_load_n(&moth_plugin, __ATOMIC_ACQUIRE); /* loaded by any */
  return b && root->deleter == b->unpin;
}

void moth_device_recount(moth_ctx *ctx, int device, int64_t more) {
  moth_device_bytes *c = &ctx->devices->of[device];
  c->live += more;
  if (c->live > c->peak) c->peak = c->live;
}

int64_t moth_devices_live(const moth_ctx *ctx) {
  int64_t live = 0;
  for (int i = 1; i <= MOTH_MAX_DEVICES; i++) live += ctx->devices->of[i].live;
  return live;
}

moth_ones *moth_ones_of(const moth_ctx *ctx) {
  return ctx->devices && !ctx->capture ? &ctx->devices->ones : NULL;
}

moth_tensor *moth_ones_again(const moth_tensor *x, int device, int dtype) {
  const bool holds = x && x->l.device == device && x->l.dtype == dtype &&
                     moth_storage_unique(x->storage) && !moth_storage_version(x->storage);
  return holds ? moth_tensor_like(x->ctx, &x->l, x->storage) : NULL;
}

void moth_ones_forget(moth_ctx *ctx) {
  if (!ctx->devices) return;
  const moth_ones k = ctx->devices->ones;
  ctx->devices->ones = (moth_ones){.one = NULL};
  moth_tensor_release(k.one);
  moth_tensor_release(k.share);
}

void moth_ones_shared(moth_ctx *ctx, const moth_storage *s) {
  const moth_ones *k = &ctx->devices->ones;
  if ((k->one && k->one->storage == s) || (k->share && k->share->storage == s))
    moth_ones_forget(ctx);
}

void moth_devices_swept(moth_ctx *ctx) {
  moth_ones_forget(ctx);
  for (int i = 1; ctx->devices && i <= MOTH_MAX_DEVICES; i++) {
    moth_device_bytes *c = &ctx->devices->of[i];
    c->goal = c->live + (c->live / 4 > DEVICE_FLOOR ? c->live / 4 : DEVICE_FLOOR);
  }
}

void moth_devices_close(moth_ctx *ctx) {
  if (!ctx->devices) return;
  moth_ones_forget(ctx);
  if (moth_plugin && ctx->devices->state) moth_plugin->close(ctx);
  free(ctx->devices);
  ctx->devices = NULL;
}

/* -- work -- */

static int no_kernel(moth_ctx *ctx, const char *name) {
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "%s has no kernel for '%s'", moth_plugin->name,
                   name);
}

int moth_device_copy(moth_tensor *y, const moth_tensor *x, bool wait) {
  return moth_plugin->copy(y, x, wait);
}

int moth_device_map(moth_ctx *ctx, const char *name, int dtype, int noperands,
                    const moth_tensor *const *operands, const void *arg) {
  const moth_device_kernel *k = kernel_named(name, true);
  if (k) return k->map(ctx, dtype, noperands, operands, arg);
  return no_kernel(ctx, name);
}

int moth_device_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch) {
  return moth_plugin->multiply(ctx, p, batch);
}

int moth_device_call(moth_ctx *ctx, const char *name, const void *args) {
  const moth_device_kernel *k = kernel_named(name, false);
  if (k) return k->run(args, NULL);
  return no_kernel(ctx, name);
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

/* device.h -- devices beside the CPU, as the engine uses them. What a plugin sees is backend.h. */
#ifndef MOTH_DEVICE_H
#define MOTH_DEVICE_H

#include "backend.h"

/* -- finding the plugin (backend.c) -- */

/* Opens the plugin, once a process; NULL: E_DEVICE is set and says what is missing. */
const moth_backend *moth_backend_load(moth_ctx *ctx);
/* Whether `device` can be used; blames `arg`. */
int moth_device_check(moth_ctx *ctx, const char *arg, int64_t device);
/* A packed tensor on the CPU in l's shape and dtype, page-locked; NULL: error set. */
moth_tensor *moth_pinned_like(moth_ctx *ctx, const moth_layout *l);
int moth_device_fallback(const moth_ctx *ctx); /* what moth_default_device has set */

/* -- using it (device.c); a device is above 0 and the plugin loaded, unless it says else -- */

typedef struct moth_device_bytes { /* of one context on one device */
  int64_t live, peak, limit, goal;
} moth_device_bytes;

/* What passes make of nothing, kept for the next one: a 1 (backward.c) and the last share of it,
** one of `parts` (gradient.c). They hold while nobody else has their bytes, or wrote to them. */
typedef struct moth_ones {
  moth_tensor *one, *share;
  double parts;
} moth_ones;

struct moth_devices {
  void *state;  /* the plugin's */
  int fallback; /* where tensors are made that no other has a say in */
  moth_ones ones;
  moth_device_bytes of[MOTH_MAX_DEVICES + 1];
};

extern const moth_backend *moth_plugin; /* NULL until it is loaded */
bool moth_plugin_adopt(const moth_backend *b); /* false: out of memory */
moth_devices *moth_devices_of(moth_ctx *ctx); /* made at the first call; NULL: out of memory */
/* Counted; NULL: error set. */
void *moth_device_alloc(moth_ctx *ctx, int device, int64_t nbytes, void **owner);
void moth_device_free(moth_ctx *ctx, int device, void *owner, int64_t nbytes);
/* A block is used again for so many bytes more. */
void moth_device_recount(moth_ctx *ctx, int device, int64_t more);
/* n bytes from one place to another, either of them on the CPU, 0, or a device; what comes to the
** CPU is waited for. */
int moth_bytes_move(moth_ctx *ctx, int to_device, void *to, int from_device, const void *from,
                    int64_t n);
/* Of the context's tensors on all devices; ctx->devices is there. */
int64_t moth_devices_live(const moth_ctx *ctx);
int moth_device_copy(moth_tensor *y, const moth_tensor *x, bool wait); /* as moth_backend.copy */
bool moth_is_pinned_storage(const moth_storage *s);
/* A row of a family of elementwise functions, by its name. */
int moth_device_map(moth_ctx *ctx, const char *name, int dtype, int noperands,
                    const moth_tensor *const *operands, const void *arg);
int moth_device_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);
/* A kernel of the plugin's that is no op's, by its name; `args` is what both agree on. */
int moth_device_call(moth_ctx *ctx, const char *name, const void *args);
void moth_devices_swept(moth_ctx *ctx); /* after a collection: goals again, nothing kept */
moth_ones *moth_ones_of(const moth_ctx *ctx); /* NULL: no device is in use, or a step is captured */
/* Another tensor of the bytes that x keeps; NULL if they do not hold, or with an error. */
moth_tensor *moth_ones_again(const moth_tensor *x, int device, int dtype);
/* Its bytes may be written to from now on without being counted. */
void moth_ones_shared(moth_ctx *ctx, const moth_storage *s);
void moth_ones_forget(moth_ctx *ctx);
void moth_devices_close(moth_ctx *ctx);
int moth_device_missing(moth_ctx *ctx, int device); /* E_UNSUPPORTED: no kernel for an op there */
const char *moth_device_name(int device, char room[24]); /* "cpu", "cuda:0" */

#endif

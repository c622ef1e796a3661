/* device.h -- devices other than the CPU, for the core. backend.h has the functions for plugins. */
#ifndef MOTH_DEVICE_H
#define MOTH_DEVICE_H

#include "backend.h"

/* -- finding the plugin (backend.c) -- */

/* Opens the plugin, once per process. Returns NULL with E_DEVICE, whose message says what is
** missing. */
const moth_backend *moth_backend_load(moth_ctx *ctx);
/* Checks that `device` can be used. Errors name the argument `arg`. */
int moth_device_check(moth_ctx *ctx, const char *arg, int64_t device);
/* A packed, page-locked tensor on the CPU with l's shape and dtype. Returns NULL with the error
** set. */
moth_tensor *moth_pinned_like(moth_ctx *ctx, const moth_layout *l);
int moth_device_fallback(const moth_ctx *ctx); /* the device set by moth_default_device */

/* -- calls to the plugin (device.c): device is above 0 and the plugin is loaded, as a rule -- */

typedef struct moth_device_bytes { /* counts of one context on one device */
  int64_t live, peak, limit, goal;
} moth_device_bytes;

/* Constants of backward passes, kept for the next pass: 1 (backward.c), and the last quotient of it
** by `parts` (node_gradient.c). They are valid while nobody else uses their bytes or has written to
** them. */
typedef struct moth_ones {
  moth_tensor *one, *share;
  double parts;
} moth_ones;

struct moth_devices {
  void *state;  /* of the plugin */
  int fallback; /* the device of new tensors if no argument or tensor decides */
  moth_ones ones;
  moth_device_bytes of[MOTH_MAX_DEVICES + 1];
};

extern const moth_backend *moth_plugin; /* NULL until it is loaded */
bool moth_plugin_adopt(const moth_backend *b); /* returns false if out of memory */
moth_devices *moth_devices_of(moth_ctx *ctx); /* made at the first call; NULL: out of memory */
/* Counts the bytes. Returns NULL with the error set. */
void *moth_device_alloc(moth_ctx *ctx, int device, int64_t nbytes, void **owner);
void moth_device_free(moth_ctx *ctx, int device, void *owner, int64_t nbytes);
/* A block is reused for `more` additional bytes. */
void moth_device_recount(moth_ctx *ctx, int device, int64_t more);
/* Copies n bytes between devices (0 is the CPU), or within a device. Waits for copies to the
** CPU. */
int moth_bytes_move(moth_ctx *ctx, int to_device, void *to, int from_device, const void *from,
                    int64_t n);
/* The bytes of the context's tensors on all devices. ctx->devices must not be NULL. */
int64_t moth_devices_live(const moth_ctx *ctx);
int moth_device_copy(moth_tensor *y, const moth_tensor *x, bool wait); /* as moth_backend.copy */
bool moth_is_pinned_storage(const moth_storage *s);
/* Runs an elementwise function by its name. */
int moth_device_map(moth_ctx *ctx, const char *name, int dtype, int noperands,
                    const moth_tensor *const *operands, const void *arg);
int moth_device_multiply(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);
/* Runs a kernel of the plugin that is not an op's, by its name. It defines the type of `args`. */
int moth_device_call(moth_ctx *ctx, const char *name, const void *args);
void moth_devices_swept(moth_ctx *ctx); /* after a collection: resets goals */
moth_ones *moth_ones_of(const moth_ctx *ctx); /* NULL: no devices, or in a capture */
/* A new tensor over the bytes of x, a kept constant. NULL if they are not valid, or on an error. */
moth_tensor *moth_ones_again(const moth_tensor *x, int device, int dtype);
/* Call before the bytes of s are written without a new version: drops cached constants that use the
** bytes. */
void moth_ones_shared(moth_ctx *ctx, const moth_storage *s);
void moth_ones_forget(moth_ctx *ctx);
void moth_devices_close(moth_ctx *ctx);
int moth_device_missing(moth_ctx *ctx, int device); /* fails: the op has no kernel */
const char *moth_device_name(int device, char name[24]); /* "cpu", "cuda:0" */

#endif

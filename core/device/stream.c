/* stream.c -- handles of streams and events of devices, and page-locked memory. The plugin does the
** work.
**
** A handle, an empty tensor, owns each stream and each event, as a file's handle owns the file. A
** sweep frees it.
*/
#include "device.h"
#include "call/observer.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

/* Returns a handle that calls drop(owner) when it is freed. */
static int keep(moth_ctx *ctx, void *owner, void (*drop)(void *), moth_handle *out) {
  moth_tensor *x = moth_tensor_standing(ctx, owner, drop);
  if (!x) drop(owner);
  return x ? moth_hand_out(ctx, x, out) : ctx->error.code;
}

static const moth_stream_functions *functions(moth_ctx *ctx, int32_t device, int *status) {
  moth_error_clear(ctx);
  const moth_backend *b = moth_backend_load(ctx);
  *status = b ? moth_device_check(ctx, "device", device) : ctx->error.code;
  if (!*status) *status = MOTH_NOTICE(ctx, READ, .what = "a stream or an event is used");
  if (!*status && device == 0)
    *status = moth_fail(ctx, MOTH_E_DEVICE, "device", "the CPU has no streams");
  return *status ? NULL : b->streams;
}

/* -- streams -- */

int32_t moth_stream_take(moth_ctx *ctx, int32_t device, int32_t priority, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  int status;
  void *stream = NULL;
  const moth_stream_functions *f = functions(ctx, device, &status);
  const int number = f ? f->take(ctx, device, priority, &stream) : status;
  if (number < 0) return number;
  status = keep(ctx, stream, f->drop, out);
  return status ? status : number;
}

int32_t moth_stream_use(moth_ctx *ctx, int32_t device, int32_t number) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int status;
  const moth_stream_functions *f = functions(ctx, device, &status);
  if (number >= 0) moth_ones_forget(ctx); /* another stream would not wait for them */
  return f ? f->use(ctx, device, number) : status;
}

int32_t moth_stream_wait(moth_ctx *ctx, int32_t device, int32_t number) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int status;
  const moth_stream_functions *f = functions(ctx, device, &status);
  return f ? f->wait(ctx, device, number) : status;
}

int32_t moth_stream_query(moth_ctx *ctx, int32_t device, int32_t number) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int status;
  const moth_stream_functions *f = functions(ctx, device, &status);
  return f ? f->query(ctx, device, number) : status;
}

int32_t moth_stream_join(moth_ctx *ctx, int32_t device, int32_t number, int32_t other_device,
                         int32_t other) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int status;
  const moth_stream_functions *f = functions(ctx, device, &status);
  if (f) f = functions(ctx, other_device, &status);
  return f ? f->join(ctx, device, number, other_device, other) : status;
}

/* -- events -- */

int32_t moth_event_take(moth_ctx *ctx, int32_t timed, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  int status;
  void *event = NULL;
  const moth_stream_functions *f = functions(ctx, 1, &status);
  if (f) status = f->take_event(ctx, timed != 0, &event);
  return status ? status : keep(ctx, event, f->drop_event, out);
}

/* The owner of an event's handle. A plugin must be loaded, or there are no events. */
static void *event_of(moth_ctx *ctx, const moth_handle *h, const char *arg,
                      const moth_stream_functions **f) {
  int status;
  *f = functions(ctx, 1, &status);
  moth_tensor *x = *f ? moth_resolve(ctx, h, arg) : NULL;
  if (!x) return NULL;
  const moth_storage *s = moth_storage_root(x->storage);
  if (s->deleter == (*f)->drop_event) return s->owner;
  moth_fail(ctx, MOTH_E_TYPE, arg, "an event is needed, got %s", moth_str(x));
  return NULL;
}

int32_t moth_event_record(moth_ctx *ctx, const moth_handle *event, int32_t device,
                          int32_t number) {
  MOTH_NEED(ctx, event, MOTH_E_ARG);
  const moth_stream_functions *f;
  void *e = event_of(ctx, event, "event", &f);
  return e ? f->record(ctx, e, device, number) : ctx->error.code;
}

int32_t moth_event_wait(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number) {
  MOTH_NEED(ctx, event, MOTH_E_ARG);
  const moth_stream_functions *f;
  void *e = event_of(ctx, event, "event", &f);
  return e ? f->wait_event(ctx, e, device, number) : ctx->error.code;
}

int32_t moth_event_query(moth_ctx *ctx, const moth_handle *event) {
  MOTH_NEED(ctx, event, MOTH_E_ARG);
  const moth_stream_functions *f;
  void *e = event_of(ctx, event, "event", &f);
  return e ? f->query_event(ctx, e) : ctx->error.code;
}

int32_t moth_event_elapsed(moth_ctx *ctx, const moth_handle *start, const moth_handle *end,
                           double *ms) {
  MOTH_NEED(ctx, start && end && ms, MOTH_E_ARG);
  const moth_stream_functions *f;
  *ms = 0;
  void *a = event_of(ctx, start, "event", &f), *b = a ? event_of(ctx, end, "end_event", &f) : NULL;
  return b ? f->elapsed(ctx, a, b, ms) : ctx->error.code;
}

/* -- page-locked memory -- */

int32_t moth_is_pinned(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  moth_error_clear(ctx);
  const moth_tensor *x = moth_resolve(ctx, h, NULL);
  return x ? moth_is_pinned_storage(x->storage) : ctx->error.code;
}

int32_t moth_pin_memory(moth_ctx *ctx, const moth_handle *h, moth_handle *out) {
  MOTH_NEED(ctx, h && out, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_error_clear(ctx);
  moth_tensor *x = moth_resolve(ctx, h, NULL), *y;
  if (!x || MOTH_NOTICE(ctx, READ, .what = "memory is page-locked")) return ctx->error.code;
  if (x->l.device) {
    char name[24];
    return moth_fail(ctx, MOTH_E_DEVICE, NULL, "memory of the CPU can be page-locked, but %s is "
                     "on %s", moth_str(x), moth_device_name(x->l.device, name));
  }
  int status = moth_device_check(ctx, NULL, 1);
  if (status) return status;
  if (moth_is_pinned_storage(x->storage))
    return moth_hand_out(ctx, moth_tensor_retain(x), out);
  y = moth_pinned_like(ctx, &x->l);
  if (!y) return ctx->error.code;
  status = moth_copy_into(y, x);
  if (!status) return moth_hand_out(ctx, y, out);
  moth_tensor_release(y);
  return status;
}

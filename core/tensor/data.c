/* data.c -- copies bytes into and out of tensors, and describes tensors (moth_inspect).
**
** Lua reads numbers only through moth_read. A NaN read through LuaJIT's FFI could be a forged Lua
** value, so a test on bits replaces each NaN by the quiet NaN.
*/
#include "device/device.h"
#include "loop.h"
#include "call/observer.h"
#include "autograd/tape.h"
#include "shape.h"
#include "base/error.h"
#include "handles.h"
#include "collect.h"
#include "tensor.h"

int32_t moth_inspect(moth_ctx *ctx, const moth_handle *h, moth_tensor_info *info) {
  MOTH_NEED(ctx, h && info, MOTH_E_ARG);
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  if (!x) return ctx->error.code;
  moth_edge edge;
  int status = moth_edge_of(x, &edge);
  if (status) return status;
  info->dtype = x->l.dtype;
  info->device = x->l.device;
  info->ndim = x->l.ndim;
  info->numel = x->l.numel;
  info->itemsize = moth_dtype_size[x->l.dtype];
  info->offset = x->l.offset;
  info->version = moth_storage_version(x->storage);
  memcpy(info->shape, x->l.shape, sizeof(int64_t) * (size_t)x->l.ndim);
  memcpy(info->stride, x->l.stride, sizeof(int64_t) * (size_t)x->l.ndim);
  info->storage = x->storage->id;
  info->node = x->node ? x->node->id : 0;
  info->output = x->output;
  info->flags = (moth_contiguous(x) ? MOTH_IS_CONTIGUOUS : 0) |
                (moth_layout_channels_last(&x->l) ? MOTH_IS_CHANNELS_LAST : 0) |
                (x->node ? 0 : MOTH_IS_LEAF) |
                (edge.node ? MOTH_IS_GRAD : 0) | (moth_base(x) ? MOTH_IS_VIEW : 0) |
                (x->node && x->leaf ? MOTH_IS_RETAIN : 0) |
                (x->flags & MOTH_T_SPARSE ? MOTH_IS_SPARSE : 0) |
                (x->flags & MOTH_T_COALESCED ? MOTH_IS_COALESCED : 0) |
                (x->flags & MOTH_T_SHAPELESS ? MOTH_IS_SHAPELESS : 0);
  return MOTH_OK;
}

/* Makes a packed layout from the caller's shape. */
int moth_layout_given(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                      moth_layout *l) {
  if (ndim < 0 || (ndim > 0 && !shape))
    return moth_fail(ctx, MOTH_E_SHAPE, "shape", "no shape of %d dimensions was given", ndim);
  if (dtype < 0 || dtype >= MOTH_DTYPES)
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %d", dtype);
  *l = (moth_layout){.dtype = (uint8_t)dtype};
  return moth_shape_of(ctx, "shape", (moth_ints){shape, ndim}, l);
}

int32_t moth_from_slots(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const moth_slot *values, int64_t count, int32_t type, moth_handle *out) {
  MOTH_NEED(ctx, (shape || !ndim) && (values || !count) && out, MOTH_E_ARG);
  moth_layout l;
  moth_error_clear(ctx);
  int status = moth_layout_given(ctx, dtype, shape, ndim, &l);
  if (status) return status;
  if (count != l.numel)
    return moth_fail(ctx, MOTH_E_SHAPE, "data", "%lld values for shape %s", (long long)count,
                     moth_str_shape(ctx, ndim, shape));
  int from = type == 0 ? MOTH_F64 : MOTH_I64;
  for (int64_t i = 0; i < count; i++)
    if (!moth_value_fits(from, &values[i], dtype)) {
      if (type == 0)
        return moth_fail(ctx, MOTH_E_DTYPE, "data", "%.17g does not fit %s", values[i].number,
                         moth_dtype_name(dtype));
      return moth_fail(ctx, MOTH_E_DTYPE, "data", "%lld does not fit %s",
                       (long long)values[i].integer, moth_dtype_name(dtype));
    }
  moth_tensor *x = moth_tensor_new(ctx, &l);
  if (!x) return ctx->error.code;
  int64_t size = moth_dtype_size[dtype];
  moth_convert(count, from, (const char *)values, 8, dtype, moth_at(x), size);
  MOTH_NOTICE(ctx, DATA, .x = x);
  status = moth_hand_out(ctx, x, out);
  return status ? status : moth_due(ctx);
}

int32_t moth_from_bytes(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const void *bytes, size_t size, moth_handle *out) {
  MOTH_NEED(ctx, (shape || !ndim) && (bytes || !size) && out, MOTH_E_ARG);
  moth_layout l;
  moth_error_clear(ctx);
  int status = moth_layout_given(ctx, dtype, shape, ndim, &l);
  if (status) return status;
  int64_t wanted = l.numel * moth_dtype_size[dtype];
  if ((uint64_t)wanted != size)
    return moth_fail(ctx, MOTH_E_SHAPE, "buffer", "%lld bytes are needed, got %lld",
                     (long long)wanted, (long long)size);
  moth_tensor *x = moth_tensor_new(ctx, &l);
  if (!x) return ctx->error.code;
  if (size) memcpy(moth_at(x), bytes, size);
  if (dtype == MOTH_BOOL) /* kernels need 0 or 1 */
    for (int64_t i = 0; i < wanted; i++) moth_at(x)[i] = moth_at(x)[i] != 0;
  MOTH_NOTICE(ctx, DATA, .x = x);
  status = moth_hand_out(ctx, x, out);
  return status ? status : moth_due(ctx);
}

int32_t moth_from_memory(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                         void *data, size_t size, void (*deleter)(void *), void *owner,
                         moth_handle *out) {
  MOTH_NEED(ctx, (shape || !ndim) && (data || !size) && out, MOTH_E_ARG);
  moth_layout l;
  moth_error_clear(ctx);
  int status = moth_layout_given(ctx, dtype, shape, ndim, &l);
  if (status) return status;
  if ((uint64_t)l.numel * moth_dtype_size[dtype] > size)
    return moth_fail(ctx, MOTH_E_SHAPE, "data", "%s needs more than the %lld bytes given",
                     moth_str_shape(ctx, ndim, shape), (long long)size);
  if ((uintptr_t)data % moth_dtype_size[dtype])
    return moth_fail(ctx, MOTH_E_ALIAS, "data", "not aligned for %s", moth_dtype_name(dtype));
  moth_storage *s = moth_storage_foreign(ctx, data, (int64_t)size, deleter, owner);
  if (!s) return ctx->error.code;
  moth_tensor *x = moth_tensor_like(ctx, &l, s);
  status = x ? moth_hand_out(ctx, x, out) : ctx->error.code;
  if (status) s->deleter = NULL; /* the caller still owns the memory */
  moth_storage_release(ctx, s);
  return status;
}

/* -- reading -- */

static void canonicalise(int64_t n, moth_slot *values) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &values[i], 8);
    if ((bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u) bits = 0x7ff8000000000000u;
    memcpy(&values[i], &bits, 8);
  }
}

static int read_values(moth_ctx *ctx, const moth_tensor *x, int64_t first, int64_t count,
                       moth_slot *values) {
  if (first < 0 || count < 0 || count > x->l.numel ||
      first > x->l.numel - count)
    return moth_fail(ctx, MOTH_E_INDEX, NULL, "%lld elements from %lld on, of %s",
                     (long long)count, (long long)first, moth_str(x));
  int to = moth_is_float(x->l.dtype) ? MOTH_F64 : MOTH_I64;
  int64_t size = moth_dtype_size[x->l.dtype];
  if (moth_contiguous(x)) {
    moth_convert(count, x->l.dtype, moth_at(x) + first * size, size, to, (char *)values, 8);
  } else {
    for (int64_t i = 0; i < count; i++) {
      int64_t rest = first + i, at = 0;
      for (int d = x->l.ndim - 1; d >= 0; d--) {
        at += rest % x->l.shape[d] * x->l.stride[d];
        rest /= x->l.shape[d];
      }
      moth_convert(1, x->l.dtype, moth_at(x) + at * size, size, to, (char *)&values[i], 8);
    }
  }
  if (to == MOTH_F64) canonicalise(count, values);
  return MOTH_OK;
}

/* Copies all elements from the device first. */
static int read_device(moth_ctx *ctx, const moth_tensor *x, int64_t first, int64_t count,
                       moth_slot *values) {
  moth_tensor *here = moth_to_host(x);
  int status = here ? read_values(ctx, here, first, count, values) : ctx->error.code;
  moth_tensor_release(here);
  return status;
}

int32_t moth_read(moth_ctx *ctx, const moth_handle *h, int64_t first, int64_t count,
                  moth_slot *values) {
  MOTH_NEED(ctx, h && (values || !count), MOTH_E_ARG);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x || MOTH_NOTICE(ctx, READ, .x = x, .what = "values are read")) return ctx->error.code;
  if (x->l.device) return read_device(ctx, x, first, count, values);
  return read_values(ctx, x, first, count, values);
}

void *moth_data(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, NULL);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x || MOTH_NOTICE(ctx, READ, .x = x, .what = "values are read")) return NULL;
  if (!moth_contiguous(x)) {
    moth_fail(ctx, MOTH_E_SHAPE, NULL, "%s is not contiguous", moth_str(x));
    return NULL;
  }
  return moth_at(x);
}

int32_t moth_bytes(moth_ctx *ctx, const moth_handle *h, void *to, size_t size) {
  MOTH_NEED(ctx, h && (to || !size), MOTH_E_ARG);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x || MOTH_NOTICE(ctx, READ, .x = x, .what = "values are read")) return ctx->error.code;
  uint64_t wanted = (uint64_t)x->l.numel * moth_dtype_size[x->l.dtype];
  if (size != wanted)
    return moth_fail(ctx, MOTH_E_ARG, NULL, "%lld bytes are needed, the buffer has %lld",
                     (long long)wanted, (long long)size);
  moth_tensor *packed = moth_to_host(x);
  if (!packed) return ctx->error.code;
  if (size) memcpy(to, moth_at(packed), size);
  moth_tensor_release(packed);
  return MOTH_OK;
}

/* -- does a number fit? -- */

static bool int_fits(int64_t v, int to) {
  switch (to) {
    case MOTH_U8: return v >= 0 && v <= UINT8_MAX;
    case MOTH_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case MOTH_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case MOTH_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case MOTH_F16: return v >= -65504 && v <= 65504;
    default: return true;
  }
}

bool moth_value_fits(int from, const void *value, int to) {
  if (to == MOTH_BOOL || from == MOTH_BOOL) return true;
  if (from == MOTH_I64) {
    int64_t v;
    memcpy(&v, value, 8);
    return int_fits(v, to);
  }
  double v;
  memcpy(&v, value, 8);
  if (moth_is_int(to)) {
    if (!(v >= -9223372036854775808.0 && v < 9223372036854775808.0)) return false;
    return v == (double)(int64_t)v && int_fits((int64_t)v, to);
  }
  double size = v < 0 ? -v : v; /* infinity and NaN fit every float dtype */
  if (!(size <= 1.7976931348623157e308)) return true;
  return to == MOTH_F64 || size <= (to == MOTH_F16 ? 65519.99 : 3.4028235677973366e38);
}

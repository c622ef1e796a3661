/* promote.c -- selects the dtype of a call and casts the inputs. PyTorch's rule: tensors with dims
** decide; 0-d tensors, and then numbers, only raise the category.
*/
#include "device/device.h"
#include "frame.h"
#include "tensor/loop.h"
#include "registry.h"
#include "autograd/tape.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "op/copy.h"
#include "op/position.h"

typedef struct dtype_votes {
  int dims, zero, number; /* the dtypes by rank: tensors with dims, 0-d tensors, numbers */
  bool plain;             /* one of the numbers is Lua's, which may be 2 or 2.0 */
} dtype_votes;

static int lift(int higher, int lower) {
  if (higher == MOTH_NO_DTYPE) return lower;
  if (lower == MOTH_NO_DTYPE || moth_is_float(higher)) return higher;
  if (higher == MOTH_BOOL || moth_is_float(lower)) return moth_promote(higher, lower);
  return higher;
}

static int join_votes(int a, int b) { return a == MOTH_NO_DTYPE ? b : moth_promote(a, b); }

static void vote(dtype_votes *v, const moth_tensor *x) {
  int dtype = x->l.dtype;
  if (x->flags & MOTH_T_NUMBER) {
    v->plain |= dtype == MOTH_F64;
    if (dtype == MOTH_F64) dtype = (x->flags & MOTH_T_WHOLE) ? MOTH_I64 : x->ctx->default_dtype;
    v->number = join_votes(v->number, dtype);
  } else if (x->l.ndim == 0) {
    v->zero = join_votes(v->zero, dtype);
  } else {
    v->dims = join_votes(v->dims, dtype);
  }
}

static int refuse_bool(moth_ctx *ctx, const char *arg) {
  return moth_fail(ctx, MOTH_E_DTYPE, arg,
                   "bool is not supported here; use logical_xor or logical_not, or convert it with "
                   ":to()");
}

static int check_dtype(const moth_op *op, moth_ctx *ctx, int dtype, const char *arg) {
  char set[64];
  if (dtype == MOTH_NO_DTYPE || (op->dtypes >> dtype & 1u)) return MOTH_OK;
  if (dtype == MOTH_BOOL && (op->dtypes & MOTH_NO_BOOL)) return refuse_bool(ctx, arg);
  bool whole = dtype < MOTH_F16 && !(op->dtypes & ~(uint32_t)MOTH_FLOATS & MOTH_ANY);
  return moth_fail(ctx, MOTH_E_DTYPE, arg, "%s is not supported here, wanted %s%s",
                   moth_dtype_name(dtype), moth_dtypes_str(op->dtypes & MOTH_ANY, set),
                   whole ? "; convert with :float()" : "");
}

/* Replaces *at by its cast to dtype. The cast of a tensor is recorded. A number above the range of
** a float dtype becomes infinite. */
static int cast_input(moth_call_frame *f, const char *arg, moth_tensor **at, int dtype) {
  moth_tensor *x = *at, *y = NULL;
  if (x->l.dtype == dtype && !(x->flags & MOTH_T_NUMBER)) return MOTH_OK;
  if (x->flags & MOTH_T_NUMBER) {
    if (!moth_is_float(dtype) && !moth_value_fits(x->l.dtype, moth_at(x), dtype)) {
      moth_slot v;
      memcpy(&v, moth_at(x), 8);
      if (x->l.dtype == MOTH_F64)
        return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "%.17g does not fit %s", v.number,
                         moth_dtype_name(dtype));
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "%lld does not fit %s", (long long)v.integer,
                       moth_dtype_name(dtype));
    }
    moth_layout l = {.numel = 1, .dtype = (uint8_t)dtype};
    y = moth_tensor_new(x->ctx, &l);
    if (y) moth_convert(1, x->l.dtype, moth_at(x), 8, dtype, moth_at(y), 8);
  } else {
    int status = MOTH_CALL(x->ctx, &y, cast, .input = x, .dtype = dtype);
    if (status) return status;
  }
  *at = moth_frame_keep(f, y);
  return *at ? MOTH_OK : x->ctx->error.code;
}

/* Without promotion all tensors must have the dtype of the first. */
static int same_dtypes(const moth_op *op, moth_cursor c, int *dtype) {
  const moth_tensor *first = NULL;
  const char *its_name = NULL;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x || !c.value) continue;
    int status = check_dtype(op, x->ctx, x->l.dtype, op->rows[c.from].name);
    if (status) return status;
    if (!first) first = x, its_name = op->rows[c.from].name;
    if (x->l.dtype != first->l.dtype && !(op->flags & MOTH_OP_MIXED))
      return moth_fail(x->ctx, MOTH_E_DTYPE, op->rows[c.from].name,
                       "%s does not match '%s', %s; convert one of them with :to()", moth_str(x),
                       its_name, moth_str(first));
  }
  *dtype = first ? first->l.dtype : MOTH_NO_DTYPE;
  return MOTH_OK;
}

/* The dtype to which an operand is cast: the common dtype, with two exceptions. Some kernels take a
** 0-d operand in their compute dtype, so it need not be rounded to a half type or fit it. Plugins'
** kernels of ops with mixed dtypes read half types together with f32. */
static int operand_dtype(const moth_call_frame *f, const moth_op *op, const moth_tensor *x,
                         int dtype) {
  if (op->flags & MOTH_OP_MIXED && f->device > 0 && dtype == MOTH_F32 && x->l.device > 0 &&
      moth_is_half(x->l.dtype))
    return x->l.dtype;
  const bool wide = op->flags & MOTH_OP_WIDE_NUMBERS && x->l.ndim == 0 && x->l.device == 0;
  return wide && x->l.dtype != dtype ? moth_compute_dtype(dtype) : dtype;
}

/* Finds the common dtype and casts the inputs to it. */
static int promote(moth_call_frame *f, const moth_op *op, int *dtype) {
  moth_ctx *ctx = f->temps.ctx;
  dtype_votes v = {MOTH_NO_DTYPE, MOTH_NO_DTYPE, MOTH_NO_DTYPE, false};
  moth_cursor start = {.op = op, .args = &f->args}, c = start;
  bool numbers_only = true;
  while (moth_next_input(&c))
    if (*c.at && moth_kind_is_value(op->kinds[c.from])) {
      if ((op->dtypes & MOTH_NO_BOOL) && (*c.at)->l.dtype == MOTH_BOOL)
        return refuse_bool(ctx, op->rows[c.from].name);
      vote(&v, *c.at);
      numbers_only &= ((*c.at)->flags & MOTH_T_NUMBER) != 0;
    } else if (*c.at) {
      numbers_only = false; /* where(mask, 1, 0) */
    }
  if (v.plain && v.dims == MOTH_NO_DTYPE && v.zero == MOTH_NO_DTYPE)
    v.number = ctx->default_dtype; /* where(mask, 1, 0), as tensor{1, 0} */
  *dtype = lift(v.dims, lift(v.zero, v.number));
  if (*dtype == MOTH_NO_DTYPE) return MOTH_OK;
  if (numbers_only)
    return moth_fail(ctx, MOTH_E_TYPE, NULL, "at least one tensor is needed, got numbers only");
  if ((op->dtypes & MOTH_TO_FLOAT) && !moth_is_float(*dtype) &&
      (!op->to_float || op->to_float(&f->args)))
    *dtype = ctx->default_dtype;
  int status = check_dtype(op, ctx, *dtype, op->rows[0].name);
  for (c = start; !status && moth_next_input(&c);)
    if (*c.at && moth_kind_is_value(op->kinds[c.from]))
      status = cast_input(f, op->rows[c.from].name, c.at, operand_dtype(f, op, *c.at, *dtype));
  return status;
}

/* Converts positions that count from 1 to those that the op reads. */
static int count_from_zero(moth_call_frame *f, const moth_op *op, const moth_cursor *c) {
  moth_tensor *y = NULL;
  const bool there = (*c->at)->l.device != 0, goes = !there && f->device > 0;
  const uint32_t takes = MOTH_OP_FROM_ONE | (there ? MOTH_OP_FROM_ONE_THERE : 0);
  if (!goes && op->flags & takes) return MOTH_OK;
  int status = MOTH_CALL(f->temps.ctx, &y, to_index, .input = *c->at);
  if (status) {
    moth_error_state *e = &f->temps.ctx->error;
    snprintf(e->arg, sizeof e->arg, "%s", op->rows[c->from].name);
    return status;
  }
  *c->at = moth_frame_keep(f, y);
  return *c->at ? MOTH_OK : f->temps.ctx->error.code;
}

/* Tensors of other kinds have one dtype each. */
static int check_kinds(moth_call_frame *f, const moth_op *op) {
  moth_cursor c = {.op = op, .args = &f->args};
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    int kind = op->kinds[c.from];
    const char *arg = op->rows[c.from].name;
    if (!x) continue;
    if (kind == MOTH_KIND_mask && x->l.dtype != MOTH_BOOL)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "a mask is a bool tensor, got %s", moth_str(x));
    if ((kind == MOTH_KIND_index || kind == MOTH_KIND_maybe_index) && x->l.dtype != MOTH_I64)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg,
                       "integers are needed as positions, got %s; convert with :long()",
                       moth_str(x));
    if (kind == MOTH_KIND_indices && x->l.dtype != MOTH_I64 && x->l.dtype != MOTH_BOOL)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg,
                       "an index is an int64 or bool tensor, got %s; convert with :long() "
                       "or :bool()",
                       moth_str(x));
    if (kind == MOTH_KIND_generator &&
        (x->l.dtype != MOTH_I64 || x->l.numel != 2 || !moth_contiguous(x)))
      return moth_fail(x->ctx, MOTH_E_TYPE, arg, "not a generator: %s", moth_str(x));
    const int status = x->l.index_base ? count_from_zero(f, op, &c) : MOTH_OK;
    if (status) return status;
  }
  return MOTH_OK;
}

/* Returns the dtype of all inputs if they agree and the op accepts it: then no input is cast. */
static int common(const moth_op *op, moth_cursor c) {
  int dtype = MOTH_NO_DTYPE;
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    if (!x || !c.value) continue;
    if (x->flags & MOTH_T_NUMBER || (dtype != MOTH_NO_DTYPE && dtype != x->l.dtype))
      return MOTH_NO_DTYPE;
    dtype = x->l.dtype;
  }
  return dtype != MOTH_NO_DTYPE && moth_is_float(dtype) && op->dtypes >> dtype & 1u ? dtype
                                                                                   : MOTH_NO_DTYPE;
}

/* -- devices. Numbers, 0-d tensors and positions of the CPU may be used with tensors of any. -- */

static bool any_device(const moth_op *op, const moth_cursor *c) {
  const moth_tensor *x = *c->at;
  const int kind = op->kinds[c->from];
  const bool positions = kind == MOTH_KIND_index || kind == MOTH_KIND_maybe_index ||
                         kind == MOTH_KIND_indices;
  return kind == MOTH_KIND_generator ||
         (x->l.device == 0 && (positions || (x->l.ndim == 0 && moth_kind_is_value(kind))));
}

#define MOTH_NOWHERE (-1) /* no tensor has a device */

/* Fails because the input at c is on another device than `y`, an earlier input. The message names
** tensors of a list by number. */
static int wrong_device(const moth_op *op, const moth_cursor *c, const moth_tensor *y) {
  const moth_tensor *x = *c->at;
  moth_cursor first = {.op = op, .args = c->args};
  char here[24], there[24], which[40] = "it", other[80];
  while (moth_next_input(&first) && *first.at != y) continue;
  if (c->item) snprintf(which, sizeof which, "number %lld", (long long)c->item);
  if (c->item && c->from == first.from)
    snprintf(other, sizeof other, "number %lld", (long long)first.item);
  else
    snprintf(other, sizeof other, "'%s'", op->rows[first.from].name);
  return moth_fail(x->ctx, MOTH_E_DEVICE, op->rows[c->from].name,
                   "%s is on %s, but %s on %s; move one of them with :to()", which,
                   moth_device_name(x->l.device, here), other,
                   moth_device_name(y->l.device, there));
}

static int check_devices(moth_call_frame *f, const moth_op *op) {
  moth_cursor c = {.op = op, .args = &f->args};
  const moth_tensor *first = NULL;
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    if (!x || any_device(op, &c)) continue;
    if (first && x->l.device != first->l.device && !(op->flags & MOTH_OP_ACROSS))
      return wrong_device(op, &c, first);
    if (!first || x->l.device) first = x;
  }
  f->device = first ? first->l.device : MOTH_NOWHERE;
  return MOTH_OK;
}

/* Sets the device of the results: the argument `device`; without it the device of the tensors;
** without tensors the default. */
static void read_device(moth_call_frame *f, const moth_op *op) {
  bool asked = false;
  for (uint32_t i = 0; i < op->nrows; i++) {
    if (op->kinds[i] != MOTH_KIND_device) continue;
    int64_t given = f->args.slot[op->rows[i].slot].integer;
    if (given) f->device = (int)given - 1;
    asked = true;
  }
  if (f->device == MOTH_NOWHERE) f->device = asked ? moth_device_fallback(f->temps.ctx) : 0;
}

/* Copies numbers, 0-d tensors and positions to the device, for kernels that use addresses. An op
** with mixed dtypes casts numbers itself. */
static int copy_scalars(moth_call_frame *f, const moth_op *op) {
  moth_cursor c = {.op = op, .args = &f->args};
  const bool whole = op->flags & MOTH_OP_WHOLE; /* may write its tensors: only positions */
  if (op->flags & (MOTH_OP_PORTABLE | MOTH_OP_ACROSS) || (op->compose && !whole) || op->list ||
      op->view)
    return MOTH_OK;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at, *y = NULL;
    if (whole && op->kinds[c.from] != MOTH_KIND_index) continue;
    if (!x || x->l.device || op->kinds[c.from] == MOTH_KIND_generator) continue;
    if (x->flags & MOTH_T_NUMBER && op->flags & MOTH_OP_MIXED) continue;
    int status = MOTH_CALL(x->ctx, &y, to_device, .input = x, .device = f->device + 1);
    if (status) return status;
    *c.at = moth_frame_keep(f, y);
    if (!*c.at) return x->ctx->error.code;
  }
  return MOTH_OK;
}

/* Checks that the device has a kernel, before a shape rule reads values. */
static int check_kernel(const moth_call_frame *f, const moth_op *op) {
  const bool made_of_ops = op->view || op->list || (op->compose && !(op->flags & MOTH_OP_WHOLE));
  if (made_of_ops || op->device || op->flags & MOTH_OP_PORTABLE) return MOTH_OK;
  return moth_device_missing(f->temps.ctx, f->device);
}

static int prepare_dtypes(moth_call_frame *f, const moth_op *op, int *dtype);

int moth_prepare(moth_call_frame *f, const moth_op *op, int *dtype) {
  if (!f->temps.ctx->devices) return prepare_dtypes(f, op, dtype);
  int status = check_devices(f, op);
  if (!status) status = prepare_dtypes(f, op, dtype);
  if (!status && f->device > 0) status = copy_scalars(f, op);
  if (!status) read_device(f, op);
  if (!status && f->device) status = check_kernel(f, op);
  if (!status && f->device) status = moth_index_prepare(f, op);
  return status;
}

static int prepare_dtypes(moth_call_frame *f, const moth_op *op, int *dtype) {
  moth_cursor c = {.op = op, .args = &f->args};
  int status = op->others ? check_kinds(f, op) : MOTH_OK;
  if (!status && f->temps.ctx->autocast != MOTH_NO_DTYPE) status = moth_autocast_inputs(f, op);
  if (status) return status;
  *dtype = common(op, c);
  if (*dtype != MOTH_NO_DTYPE) return MOTH_OK;
  if (op->compose || op->list) { /* the ops that it calls check their inputs */
    *dtype = MOTH_NO_DTYPE;
    return same_dtypes(op, c, dtype);
  }
  if (op->dtypes & (MOTH_PROMOTE | MOTH_TO_FLOAT)) return promote(f, op, dtype);
  return same_dtypes(op, c, dtype);
}

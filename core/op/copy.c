/* copy.c -- ops that copy, convert and fill. */
#include "copy.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include "autograd/backward_parts.h"
#include "device/device.h"
#include "kernel/math/elementwise.h"
#include "kernel/scalar.h"
#include "call/observer.h"
#include "arith.h"
#include "reduce.h"

/* A copy between a device and page-locked memory may still run when this returns. An observer of
** functions sees copies of all kinds. */
static int copy_values(moth_tensor *y, const moth_tensor *x, bool non_blocking) {
  if (non_blocking && (y->l.device | x->l.device) && !moth_observes_functions(y->ctx))
    return moth_device_copy(y, x, false);
  return moth_copy_into(y, x);
}

/* -- copy_: values of one tensor into another -- */

static int copy__shape(const copy__args *a, moth_layout *y) {
  moth_shape_like(a->input, y);
  y->dtype = a->input->l.dtype;
  if (moth_layout_broadcast(y, &a->source->l) && moth_shape_same(y, &a->input->l)) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "source", "%s cannot be broadcast to %s",
                   moth_str(a->source), moth_str(a->input));
}

static int copy__cpu(const copy__args *a, moth_tensor **out) {
  return copy_values(out[0], a->source, a->non_blocking);
}

/* the gradient of the old values is 0 */
static int copy__grad(const copy__args *a, moth_grad *g) {
  return moth_wants(g, a->source) ? moth_flow(g, a->source, g->dy) : g->status;
}

MOTH_OP(copy_, COPY_, .doc = "Copies the values of another tensor into this one.",
        .examples = "moth.randn(2, 3), moth.randn(3)\n"
                    "moth.randn(2, 3), moth.randn(3), {non_blocking = true}",
        .dtypes = MOTH_ANY,
        .flags = MOTH_OP_MUTATES | MOTH_OP_STRIDED | MOTH_OP_MIXED | MOTH_OP_METHOD |
                 MOTH_OP_PORTABLE | MOTH_OP_ACROSS)

/* -- clone, contiguous, cast -- */

static int clone_shape(const clone_args *a, moth_layout *y) {
  moth_shape_like(a->input, y);
  return MOTH_OK;
}

static int clone_cpu(const clone_args *a, moth_tensor **out) {
  return moth_copy_into(out[0], a->input);
}

static int clone_grad(const clone_args *a, moth_grad *g) { return moth_flow(g, a->input, g->dy); }

MOTH_OP(clone, CLONE,
        .doc = "A copy with its own dense storage. The dimensions keep their order in memory "
               "unless memory_format is given.",
        .examples = "moth.randn(2, 3)\n"
                    "moth.randn(2, 3, 2, 2), {memory_format = moth.channels_last}",
        .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_STRIDED | MOTH_OP_PORTABLE)

static int contiguous_compose(const contiguous_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l;
  const bool packed = a->memory_format == PACK_CONTIGUOUS ? moth_layout_contiguous(l)
                      : l->ndim == (a->memory_format == PACK_CHANNELS_LAST ? 4 : 5) &&
                        moth_layout_channels_last(l);
  if (!packed)
    return MOTH_CALL(a->ctx, out, clone, .input = a->input,
                     .memory_format = a->memory_format - PACK_CONTIGUOUS + MOTH_CONTIGUOUS_FORMAT);
  out[0] = moth_tensor_retain(a->input);
  return MOTH_OK;
}

MOTH_OP_COMPOSES(contiguous, CONTIGUOUS,
                 .doc = "The tensor itself if its elements are stored in the memory_format "
                        "(row-major by default), else a copy in that format.",
                 .examples = "moth.randn(2, 3)\nmoth.randn(2, 3):t()\n"
                             "moth.randn(2, 3, 2, 2), {memory_format = moth.channels_last}",
                 .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD)

static int cast_shape(const cast_args *a, moth_layout *y) {
  moth_shape_like(a->input, y);
  if (a->dtype < 0 || a->dtype >= MOTH_DTYPES)
    return moth_fail(a->ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %lld", (long long)a->dtype);
  y->dtype = (uint8_t)a->dtype;
  return MOTH_OK;
}

static int cast_cpu(const cast_args *a, moth_tensor **out) {
  return moth_copy_into(out[0], a->input);
}

static int cast_grad(const cast_args *a, moth_grad *g) {
  return moth_flow_uncast(g, a->input, g->dy);
}

MOTH_OP(cast, CAST,
        .doc = "A copy with another element type. Floats converted to integers are rounded towards "
               "0 and saturate; NaN becomes 0.",
        .examples = "moth.randn(2, 3), moth.float64", .dtypes = MOTH_ANY,
        .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, .public_name = "to")

/* -- to_device: the same values elsewhere -- */

static int to_device_shape(const to_device_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int to_device_cpu(const to_device_args *a, moth_tensor **out) {
  return copy_values(out[0], a->input, a->non_blocking);
}

static int to_device_grad(const to_device_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, to_device, .input = g->dy, .device = a->input->l.device + 1));
}

MOTH_OP(to_device, TO_DEVICE, .doc = "A copy on another device.",
        .examples = "moth.randn(2, 3), \"cpu\"\nmoth.randn(2, 3), \"cpu\", true",
        .dtypes = MOTH_ANY,
        .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE | MOTH_OP_ACROSS,
        .public_name = "to")

/* -- fills -- */

static int fill__shape(const fill__args *a, moth_layout *y) {
  uint64_t element;
  moth_shape_like(a->input, y);
  return moth_scalar_to(a->ctx, "value", a->value, a->input->l.dtype, &element);
}

static int fill__cpu(const fill__args *a, moth_tensor **out) {
  moth_operand value;
  int status = moth_scalar_to(a->ctx, "value", a->value, out[0]->l.dtype, &value.element);
  if (status) return status;
  return moth_copy_into(out[0], moth_operand_of(&value, a->ctx, out[0]->l.dtype));
}

static int fill__grad(const fill__args *a, moth_grad *g) {
  (void)a; /* the result does not depend on the input: no gradient */
  return g->status;
}

MOTH_OP(fill_, FILL_, .doc = "Sets every element to one value.",
        .examples = "moth.randn(2, 3), 0.5", .dtypes = MOTH_ANY,
        .flags = MOTH_OP_MUTATES | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

static int zero__shape(const zero__args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int zero__cpu(const zero__args *a, moth_tensor **out) {
  moth_operand zero = {.element = 0}; /* all dtypes write 0 as zero bits */
  return moth_copy_into(out[0], moth_operand_of(&zero, a->ctx, out[0]->l.dtype));
}

static int zero__grad(const zero__args *a, moth_grad *g) {
  (void)a;
  return g->status;
}

MOTH_OP(zero_, ZERO_, .doc = "Sets every element to 0.", .examples = "moth.randn(2, 3)",
        .dtypes = MOTH_ANY,
        .flags = MOTH_OP_MUTATES | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

/* -- masked_fill: writes a value where a mask is true -- */

static int masked_fill_shape(const masked_fill_args *a, moth_layout *y) {
  uint64_t element;
  int status = moth_scalar_to(a->ctx, "value", a->value, a->input->l.dtype, &element);
  return status ? status : moth_broadcast(a->ctx, "mask", y, a->input, a->mask);
}

static int masked_fill_cpu(const masked_fill_args *a, moth_tensor **out) {
  moth_operand value;
  int dtype = out[0]->l.dtype;
  int status = moth_scalar_to(a->ctx, "value", a->value, dtype, &value.element);
  if (status) return status;
  const moth_tensor *operands[] = {out[0], a->mask, moth_operand_of(&value, a->ctx, dtype),
                                   a->input};
  return moth_map_where(a->ctx, operands);
}

static int masked_fill_grad(const masked_fill_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, masked_fill, .input = g->dy, .mask = a->mask,
                        .value = {.as.number = 0}));
}

MOTH_OP(masked_fill, MASKED_FILL, .doc = "The input with `value` where the mask is true.",
        .examples = "moth.randn(2, 3), moth.randn(2, 3):gt(0), 0.5", .dtypes = MOTH_ANY,
        .saves = "mask",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD |
                 MOTH_OP_PORTABLE)

/* -- spread: broadcasts a reduced tensor to the shape before the reduction, as a view -- */

static int spread_view(const spread_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l;
  uint32_t mask;
  int32_t n = (int32_t)a->size.n, from = 0;
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (!status) status = moth_dim_mask(a->ctx, "dim", a->dim, n, &mask);
  if (status) return status;
  y->offset = x->offset;
  for (int d = 0; d < n; d++) {
    bool reduced = mask >> d & 1u;
    y->stride[d] = 0;
    if (reduced && !a->keepdim) continue;
    if (from < x->ndim && x->shape[from] == (reduced ? 1 : y->shape[d])) {
      if (!reduced) y->stride[d] = x->stride[from];
      from++;
      continue;
    }
    from = -1;
    break;
  }
  if (from == x->ndim) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s cannot be broadcast to %s",
                                                  moth_str(a->input),
                   moth_str_ints(a->ctx, a->size.n, a->size.at));
}

static int spread_grad(const spread_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, sum, .input = g->dy, .dim = a->dim, .keepdim = a->keepdim,
                        .dtype = -1));
}

MOTH_OP_VIEWS(spread, SPREAD, .doc = "Broadcasts the result of a reduction to the shape before the "
                                     "reduction.",
              .examples = "moth.randn(2), {2, 3}, {dim = 2}\n"
                          "moth.randn(2, 1), {2, 3}, {dim = 2, keepdim = true}\n"
                          "moth.randn(1)[1], {2, 3}",
              .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN, .public_name = "expand")

const moth_op *const moth_copy_ops[] = {
  &moth_op_copy_, &moth_op_clone, &moth_op_contiguous, &moth_op_cast, &moth_op_to_device,
  &moth_op_fill_,
  &moth_op_zero_, &moth_op_masked_fill, &moth_op_spread, NULL,
};

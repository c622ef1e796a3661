/* strided.c -- reads, writes and sums through the layout of a view: the gradients of views, and the
** ops that autograd records for a write through a view.
**
** All three ops work on an image of the base: a block with every element of L and V. If the base is
** dense in row-major order, its elements are the image; else the base is copied into a scratch
** block.
*/
#include "strided.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include "device/device.h"
#include "kernel/math/elementwise.h"
#include "kernel/scalar.h"
#include "create.h"
#include "index.h"
#include "view.h"

typedef struct geometry {
  moth_layout base, view; /* offsets are relative to the first element of the image */
  int64_t image;          /* number of elements of the image */
  bool direct;            /* the packed base is used as the image */
} geometry;

/* -- layouts from arguments -- */

static int layout_from(moth_ctx *ctx, const char *arg, moth_ints size, moth_ints stride,
                       int64_t offset, int dtype, moth_layout *l) {
  if (size.n != stride.n || size.n > MOTH_MAX_DIMS)
    return moth_fail(ctx, MOTH_E_ARG, arg, "%lld sizes with %lld strides", (long long)size.n,
                     (long long)stride.n);
  memset(l, 0, sizeof *l);
  l->dtype = (uint8_t)dtype;
  int status = moth_shape_of(ctx, arg, size, l);
  if (status) return status;
  if (!moth_layout_pack(l)) return moth_fail(ctx, MOTH_E_SHAPE, arg, "too many elements");
  int64_t reach = offset;
  if (offset < 0) return moth_fail(ctx, MOTH_E_ARG, arg, "negative offset");
  for (int32_t d = 0; d < l->ndim; d++) {
    int64_t far;
    if (stride.at[d] < 0) return moth_fail(ctx, MOTH_E_ARG, arg, "negative stride");
    if (moth_mul_overflow(stride.at[d], l->shape[d] > 0 ? l->shape[d] - 1 : 0, &far) ||
        moth_add_overflow(reach, far, &reach))
      return moth_fail(ctx, MOTH_E_SHAPE, arg, "reaches too far");
    l->stride[d] = stride.at[d];
  }
  l->offset = offset;
  return MOTH_OK;
}

static int geometry_of(moth_ctx *ctx, int dtype, moth_ints base_size, moth_ints base_stride,
                       int64_t base_offset, moth_ints size, moth_ints stride, int64_t offset,
                       geometry *g) {
  int status = layout_from(ctx, "base_size", base_size, base_stride, base_offset, dtype, &g->base);
  if (status) return status;
  status = layout_from(ctx, "size", size, stride, offset, dtype, &g->view);
  if (status) return status;
  int64_t base_lo, base_hi, lo, hi;
  moth_layout_span(&g->base, &base_lo, &base_hi);
  moth_layout_span(&g->view, &lo, &hi);
  if (!g->view.numel) lo = base_lo, hi = base_lo;
  if (!g->base.numel) base_lo = lo, base_hi = g->view.numel ? hi : lo;
  g->direct = moth_layout_contiguous(&g->base) && base_lo <= lo && hi <= base_hi && g->base.numel;
  int64_t first = g->direct || base_lo < lo ? base_lo : lo;
  g->image = (base_hi > hi ? base_hi : hi) - first;
  g->base.offset = g->base.numel ? g->base.offset - first : 0;
  g->view.offset = g->view.numel ? g->view.offset - first : 0;
  return MOTH_OK;
}

#define GEOMETRY(a, dtype, g)                                                                 \
  geometry_of((a)->ctx, dtype, (a)->base_size, (a)->base_stride, (a)->base_offset, (a)->size, \
              (a)->stride, (a)->offset, g)

/* Checks that x has the sizes of the layout. */
static int check_shape(moth_ctx *ctx, const char *arg, const moth_tensor *x, const moth_layout *l) {
  if (moth_shape_same(&x->l, l)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is needed, got %s",
                   moth_str_shape(ctx, l->ndim, l->shape), moth_str(x));
}

static void take_shape(moth_layout *y, const moth_layout *from) {
  y->ndim = from->ndim;
  memcpy(y->shape, from->shape, sizeof y->shape);
}

/* -- images -- */

static moth_tensor *image_new(const moth_tensor *like, int64_t n, int dtype) {
  moth_layout l = {.ndim = 1, .dtype = (uint8_t)dtype, .device = like->l.device, .shape = {n}};
  moth_tensor *image = moth_tensor_new(like->ctx, &l); /* fails if the size cannot be addressed */
  if (!image || !moth_zero(image)) return image;
  moth_tensor_release(image);
  return NULL;
}

/* Views the image through l. The image may have another dtype than l. */
static moth_tensor *image_view(const moth_tensor *image, const moth_layout *l) {
  moth_layout v = *l;
  v.dtype = image->l.dtype;
  v.device = image->l.device;
  v.offset += image->l.offset;
  return moth_tensor_like(image->ctx, &v, image->storage);
}

static int image_write(const moth_tensor *image, const moth_layout *l, const moth_tensor *x) {
  moth_tensor *view = image_view(image, l);
  int status = view ? moth_copy_into(view, x) : image->ctx->error.code;
  moth_tensor_release(view);
  return status;
}

static int image_read(moth_tensor *y, const moth_tensor *image, const moth_layout *l) {
  moth_tensor *view = image_view(image, l);
  int status = view ? moth_copy_into(y, view) : image->ctx->error.code;
  moth_tensor_release(view);
  return status;
}

/* -- adding through a view that contains an element more than once -- */

#define ADD_RUN(name, type, wide)                                                            \
  static void add_##name(int64_t n, char *const *at, const int64_t *step, const void *arg) { \
    (void)arg;                                                                               \
    char *to = at[0], *from = at[1];                                                         \
    for (int64_t i = 0; i < n; i++, to += step[0], from += step[1])                          \
      *(type *)to = (type)((wide) * (type *)to + (wide) * (type *)from);                     \
  }
ADD_RUN(u8, uint8_t, unsigned)
ADD_RUN(i8, int8_t, int)
ADD_RUN(i16, int16_t, int)
ADD_RUN(i32, int32_t, int64_t)
ADD_RUN(i64, int64_t, uint64_t)
ADD_RUN(f32, float, float)
ADD_RUN(f64, double, double)

static void add_bool(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  (void)arg;
  for (int64_t i = 0; i < n; i++) {
    char *to = at[0] + i * step[0];
    *to = (char)(*to || at[1][i * step[1]]);
  }
}

static const moth_inner add_runs[MOTH_DTYPES] = {
  [MOTH_BOOL] = add_bool, [MOTH_U8] = add_u8,   [MOTH_I8] = add_i8,   [MOTH_I16] = add_i16,
  [MOTH_I32] = add_i32,   [MOTH_I64] = add_i64, [MOTH_F32] = add_f32, [MOTH_F64] = add_f64,
};

/* On a device: views the positions of a packed image through l too, to get the target of each
** element. */
static int image_add_there(moth_tensor *image, const moth_layout *l, moth_tensor *x) {
  static const int64_t flat = -1;
  moth_ctx *ctx = image->ctx;
  moth_tensor *places = NULL, *view = NULL, *list = NULL, *values = NULL, *vector = NULL;
  const moth_scalar zero = {.type = 1}, one = {.type = 1, .as.integer = 1};
  moth_scalar n = {.type = 1, .as.integer = image->l.numel};
  moth_layout line = {.ndim = 1, .dtype = image->l.dtype, .device = image->l.device,
                      .shape = {image->l.numel}, .stride = {1}, .numel = image->l.numel,
                      .offset = image->l.offset};
  int status = MOTH_CALL(ctx, &places, arange, .start = zero, .stop = n, .step = one,
                         .dtype = MOTH_I64, .device = moth_device_of(image));
  if (!status && !(view = image_view(places, l))) status = ctx->error.code;
  if (!status) status = MOTH_CALL(ctx, &list, reshape, .input = view, .shape = {&flat, 1});
  if (!status) status = MOTH_CALL(ctx, &values, reshape, .input = x, .shape = {&flat, 1});
  if (!status && !(vector = moth_tensor_like(ctx, &line, image->storage))) status = ctx->error.code;
  if (!status)
    status = moth_run_into(&moth_op_index_add, &(index_add_args){.ctx = ctx, .input = vector,
                                                                 .index = list, .source = values,
                                                                 .alpha = one}, vector);
  moth_tensor_release(vector);
  moth_tensor_release(values);
  moth_tensor_release(list);
  moth_tensor_release(view);
  moth_tensor_release(places);
  return status;
}

static int image_add(const moth_tensor *image, const moth_layout *l, const moth_tensor *x) {
  moth_tensor *from = moth_cast(x, image->l.dtype);
  moth_tensor *to = from ? image_view(image, l) : NULL;
  int status = image->ctx->error.code;
  if (to && to->l.device) {
    const bool mode = image->ctx->grad_mode;
    image->ctx->grad_mode = false;
    status = image_add_there((moth_tensor *)(uintptr_t)image, l, from);
    image->ctx->grad_mode = mode;
  } else if (to) {
    moth_loop loop;
    moth_loop_over(&loop, image->ctx, &to->l, 2, (const moth_tensor *const[]){to, from});
    status = moth_loop_run(&loop, add_runs[image->l.dtype], NULL);
  }
  moth_tensor_release(to);
  moth_tensor_release(from);
  return status;
}

/* Returns a mask in the base's shape, on the CPU: true for the first position of each element,
** since several positions may share an element. */
static moth_tensor *first_places(moth_ctx *ctx, const moth_layout *base, int64_t image) {
  moth_layout l = *base, all = {.ndim = 1, .dtype = MOTH_BOOL, .shape = {image}};
  l.dtype = MOTH_BOOL;
  l.device = 0;
  moth_tensor *first = moth_tensor_new(ctx, &l), *seen = first ? moth_tensor_new(ctx, &all) : NULL;
  if (!seen || moth_zero(seen)) {
    moth_tensor_release(first);
    moth_tensor_release(seen);
    return NULL;
  }
  char *to = moth_at(first), *met = moth_at(seen) + base->offset;
  int64_t at[MOTH_MAX_DIMS] = {0}, place = 0;
  for (int64_t i = 0; i < base->numel; i++) {
    to[i] = !met[place];
    met[place] = 1;
    for (int32_t d = base->ndim - 1; d >= 0; d--) {
      place += base->stride[d];
      if (++at[d] < base->shape[d]) break;
      place -= base->stride[d] * base->shape[d];
      at[d] = 0;
    }
  }
  moth_tensor_release(seen);
  return first;
}

/* image_deal on a device. Only the mask is computed on the CPU. */
static int deal_there(moth_tensor *y, const moth_tensor *image, const moth_layout *base) {
  moth_ctx *ctx = y->ctx;
  moth_operand zero = {.element = 0};
  moth_layout l = y->l, bools = y->l;
  l.dtype = image->l.dtype;
  bools.dtype = MOTH_BOOL;
  moth_tensor *here = first_places(ctx, base, image->l.numel), *part = NULL, *view = NULL;
  moth_tensor *first = here ? moth_tensor_new(ctx, &bools) : NULL;
  int status = first ? moth_copy_into(first, here) : ctx->error.code;
  if (!status && (!(part = moth_tensor_new(ctx, &l)) || !(view = image_view(image, base))))
    status = ctx->error.code;
  if (!status) {
    const moth_tensor *operands[] = {part, first, view, moth_operand_of(&zero, ctx, l.dtype)};
    status = moth_map_where(ctx, operands);
  }
  if (!status) status = moth_copy_into(y, part);
  moth_tensor_release(view);
  moth_tensor_release(part);
  moth_tensor_release(first);
  moth_tensor_release(here);
  return status;
}

/* y := the image, read through the layout of the base. If several positions of the base share an
** element, only the first one gets it; the others are 0. */
static int image_deal(moth_tensor *y, const moth_tensor *image, const moth_layout *base) {
  if (!moth_layout_overlaps(base)) return image_read(y, image, base);
  if (y->l.device) return deal_there(y, image, base);
  moth_layout l = y->l;
  l.dtype = image->l.dtype;
  moth_tensor *part = moth_tensor_new(y->ctx, &l);
  if (!part) return y->ctx->error.code;
  size_t size = moth_dtype_size[image->l.dtype];
  char *to = moth_at(part), *from = moth_at(image) + base->offset * (int64_t)size;
  int64_t at[MOTH_MAX_DIMS] = {0}, place = 0;
  for (int64_t i = 0; i < base->numel; i++, to += size) {
    memcpy(to, from + place * (int64_t)size, size);
    memset(from + place * (int64_t)size, 0, size);
    for (int32_t d = base->ndim - 1; d >= 0; d--) {
      place += base->stride[d];
      if (++at[d] < base->shape[d]) break;
      place -= base->stride[d] * base->shape[d];
      at[d] = 0;
    }
  }
  int status = moth_copy_into(y, part);
  moth_tensor_release(part);
  return status;
}

/* -- strided_get -- */

static int strided_get_shape(const strided_get_args *a, moth_layout *y) {
  geometry g;
  int status = GEOMETRY(a, a->input->l.dtype, &g);
  if (status) return status;
  take_shape(y, &g.view);
  return check_shape(a->ctx, "input", a->input, &g.base);
}

static int strided_get_cpu(const strided_get_args *a, moth_tensor **out) {
  geometry g;
  int status = GEOMETRY(a, a->input->l.dtype, &g);
  if (status) return status;
  moth_tensor *image = g.direct ? moth_packed(a->input)
                                : image_new(a->input, g.image, a->input->l.dtype);
  if (!image) return a->ctx->error.code;
  if (!g.direct) status = image_write(image, &g.base, a->input);
  if (!status) status = image_read(out[0], image, &g.view);
  moth_tensor_release(image);
  return status;
}

#define SAME_GEOMETRY(a)                                                                        \
  .base_size = (a)->base_size, .base_stride = (a)->base_stride, .base_offset = (a)->base_offset, \
  .size = (a)->size, .stride = (a)->stride, .offset = (a)->offset

static int strided_get_grad(const strided_get_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, strided_sum, .input = g->dy, SAME_GEOMETRY(a)));
}

MOTH_OP(strided_get, STRIDED_GET, .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE, .dtypes = MOTH_ANY,
        .doc = "Reads the elements of a base that are in a view of the given layout.",
        .examples = "moth.randn(3, 4), {3, 4}, {4, 1}, 0, {2, 3}, {4, 1}, 5\n"
                    "moth.randn(3, 4), {3, 4}, {1, 3}, 2, {2, 2, 2}, {3, 1, 3}, 3",
        .public_name = "as_strided")

/* -- strided_sum -- */

static int strided_sum_shape(const strided_sum_args *a, moth_layout *y) {
  geometry g;
  int status = GEOMETRY(a, a->input->l.dtype, &g);
  if (status) return status;
  take_shape(y, &g.base);
  return check_shape(a->ctx, "input", a->input, &g.view);
}

static int strided_sum_cpu(const strided_sum_args *a, moth_tensor **out) {
  geometry g;
  int dtype = a->input->l.dtype, status = GEOMETRY(a, dtype, &g);
  if (status) return status;
  bool adds = moth_layout_overlaps(&g.view);
  if (adds) dtype = moth_compute_dtype(dtype); /* sums are kept in f32 or f64 */
  bool own = g.direct && dtype == a->input->l.dtype;
  moth_tensor *image = own ? moth_tensor_retain(out[0]) : image_new(a->input, g.image, dtype);
  if (!image) return a->ctx->error.code;
  status = own ? moth_zero(image) : MOTH_OK;
  if (!status) status = (adds ? image_add : image_write)(image, &g.view, a->input);
  if (!status && !own) status = image_deal(out[0], image, &g.base);
  moth_tensor_release(image);
  return status;
}

static int strided_sum_grad(const strided_sum_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, strided_get, .input = g->dy, SAME_GEOMETRY(a)));
}

MOTH_OP(strided_sum, STRIDED_SUM, .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE, .dtypes = MOTH_ANY,
        .doc = "A base of zeros with the elements of a view of the given layout added.",
        .examples = "moth.randn(2, 3), {3, 4}, {4, 1}, 0, {2, 3}, {4, 1}, 5\n"
                    "moth.randn(2, 2, 2), {3, 4}, {1, 3}, 2, {2, 2, 2}, {3, 1, 3}, 3",
        .public_name = "as_strided")

/* -- strided_put -- */

static int strided_put_shape(const strided_put_args *a, moth_layout *y) {
  geometry g;
  int status = GEOMETRY(a, a->input->l.dtype, &g);
  if (status) return status;
  take_shape(y, &g.base);
  status = check_shape(a->ctx, "input", a->input, &g.base);
  return status ? status : check_shape(a->ctx, "source", a->source, &g.view);
}

static int strided_put_cpu(const strided_put_args *a, moth_tensor **out) {
  geometry g;
  int status = GEOMETRY(a, a->input->l.dtype, &g);
  if (status) return status;
  moth_tensor *image = g.direct ? moth_tensor_retain(out[0])
                                : image_new(a->input, g.image, a->input->l.dtype);
  if (!image) return a->ctx->error.code;
  status = g.direct ? moth_copy_into(image, a->input) : image_write(image, &g.base, a->input);
  if (!status) status = image_write(image, &g.view, a->source);
  if (!status && !g.direct) status = image_read(out[0], image, &g.base);
  moth_tensor_release(image);
  return status;
}

static int strided_put_grad(const strided_put_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) {
    moth_tensor *none = GRAD(g, zeros, .size = a->size, .dtype = a->input->l.dtype,
                              .device = moth_device_of(a->input));
    moth_flow(g, a->input,
              GRAD(g, strided_put, .input = g->dy, .source = none, SAME_GEOMETRY(a)));
  }
  if (moth_wants(g, a->source))
    moth_flow(g, a->source, GRAD(g, strided_get, .input = g->dy, SAME_GEOMETRY(a)));
  return g->status;
}

MOTH_OP(strided_put, STRIDED_PUT, .flags = MOTH_OP_HIDDEN | MOTH_OP_PORTABLE, .dtypes = MOTH_ANY,
        .doc = "A base with the elements in a view of the given layout replaced.",
        .examples = "moth.randn(3, 4), moth.randn(2, 3), {3, 4}, {4, 1}, 0, {2, 3}, {4, 1}, 5\n"
                    "moth.randn(3, 4), moth.randn(2, 2), {3, 4}, {1, 3}, 2, {2, 2}, {3, 1}, 3",
        .public_name = "as_strided")

const moth_op *const moth_strided_ops[] = {&moth_op_strided_get, &moth_op_strided_sum,
                                           &moth_op_strided_put, NULL};

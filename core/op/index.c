/* index.c -- advanced indexing: a list of index tensors and masks for the leading dimensions, as in
** NumPy and PyTorch. Negative positions count from the end. Indexing along one dimension is in
** gather.c.
**
** The index tensors are broadcast together. If the dimensions that they replace are adjacent, the
** broadcast shape replaces them; else it comes first.
*/
#include "index.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include "capture/capture.h"
#include "device/device.h"
#include "kernel/gather.h"
#include "kernel/real.h"
#include "reduce.h"
#include "view.h"

/* -- the plan of an indexing: dimensions, shapes, selected elements -- */

#define POLL_AFTER (1 << 15) /* elements between two polls of nonzero */

typedef struct selector { /* an index tensor, or one mask */
  moth_tensor *tensor; /* owned */
  int32_t dim, ndims; /* the dimensions that the selector replaces */
  int64_t count;      /* true elements of a mask */
} selector;

typedef struct plan {
  selector at[MOTH_MAX_DIMS];
  int32_t n;
  moth_layout index_shape; /* broadcast shape of the index tensors */
  int32_t kept[MOTH_MAX_DIMS], nkept, before;
} plan;

static void count_run(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  int64_t *count = (int64_t *)(uintptr_t)arg, found = 0;
  int64_t i = 0;
  if (step[0] == 1) /* counts in bytes as long as a byte can hold them */
    for (; i + 128 <= n; i += 128) {
      uint8_t part = 0;
      for (int k = 0; k < 128; k++) part = (uint8_t)(part + (at[0][i + k] != 0));
      found += part;
    }
  for (; i < n; i++) found += at[0][i * step[0]] != 0;
  *count += found;
}

static int count_true(const moth_tensor *mask, int64_t *count) {
  moth_loop loop;
  *count = 0;
  moth_loop_over(&loop, mask->ctx, &mask->l, 1, (const moth_tensor *const[]){mask});
  return moth_loop_run(&loop, count_run, count);
}

/* Adds x, an index tensor or a mask, for the tensor's dimensions from `dim` on. */
static int plan_add(plan *p, moth_tensor *x, int32_t dim, const moth_tensor *of, int32_t ndim,
                    const int64_t *shape) {
  moth_ctx *ctx = x->ctx;
  bool mask = x->l.dtype == MOTH_BOOL;
  selector s = {.tensor = x, .dim = dim, .ndims = mask ? x->l.ndim : 1};
  if (mask && moth_mask_fits(x, dim, of, ndim, shape)) return ctx->error.code;
  if (dim + s.ndims > ndim)
    return moth_fail(ctx, MOTH_E_INDEX, "indices", "too many indices for the %d dimensions of %s",
                     ndim, moth_str(of));
  moth_layout shown = {.ndim = 1};
  if (mask) {
    int status = count_true(x, &s.count);
    if (status) return status;
    shown.shape[0] = s.count;
  }
  if (!moth_layout_broadcast(&p->index_shape, mask ? &shown : &x->l))
    return moth_fail(ctx, MOTH_E_SHAPE, "indices",
                     "the index tensors cannot be broadcast together: %s with the shape of the "
                     "earlier ones, %s",
                     mask ? moth_str_shape(ctx, 1, shown.shape) : moth_str(x),
                     moth_str_shape(ctx, p->index_shape.ndim, p->index_shape.shape));
  moth_tensor_retain(x);
  p->at[p->n++] = s;
  return MOTH_OK;
}

static void plan_free(plan *p) {
  while (p->n) moth_tensor_release(p->at[--p->n].tensor);
}

/* `of` is the tensor that errors name. The caller must free the plan, also after an error. With
** `own` the plan also reads the positions, not only their shapes. */
static int plan_make(plan *p, moth_ctx *ctx, moth_tensors indices, const moth_tensor *of,
                     int32_t ndim, const int64_t *shape, bool own) {
  int32_t dim = 0, first = ndim, last = -1;
  bool replaced[MOTH_MAX_DIMS] = {false};
  memset(p, 0, sizeof *p);
  for (int64_t i = 0; i < indices.n; i++) {
    moth_tensor *x = indices.at[i];
    if (!x && dim < ndim) {
      dim++;
      continue;
    }
    if (!x)
      return moth_fail(ctx, MOTH_E_INDEX, "indices", "too many indices for the %d dimensions of %s",
                       ndim, moth_str(of));
    x = own ? moth_positions(x) : moth_tensor_retain(x);
    int status = x ? plan_add(p, x, dim, of, ndim, shape) : ctx->error.code;
    moth_tensor_release(x);
    if (status) return status;
    for (int32_t end = dim + p->at[p->n - 1].ndims; dim < end; dim++) {
      replaced[dim] = true;
      if (first > dim) first = dim;
      last = dim;
    }
  }
  for (int32_t d = 0; d < ndim; d++)
    if (!replaced[d]) p->kept[p->nkept++] = d;
  bool neighbours = last - first + 1 == ndim - p->nkept;
  p->before = neighbours ? (first < ndim ? first : 0) : 0;
  if (p->index_shape.ndim + p->nkept > MOTH_MAX_DIMS)
    return moth_fail(ctx, MOTH_E_SHAPE, "indices",
                     "the result would have %d dimensions, at most %d are possible",
                     p->index_shape.ndim + p->nkept, MOTH_MAX_DIMS);
  return moth_layout_pack(&p->index_shape)
             ? MOTH_OK
             : moth_fail(ctx, MOTH_E_SHAPE, "indices", "the result has too many elements");
}

/* y := the shape of the elements that the plan selects from a tensor of this shape. */
static void plan_shape(const plan *p, const int64_t *shape, moth_layout *y) {
  int32_t n = 0;
  for (int32_t d = 0; d < p->before; d++) y->shape[n++] = shape[p->kept[d]];
  for (int32_t d = 0; d < p->index_shape.ndim; d++) y->shape[n++] = p->index_shape.shape[d];
  for (int32_t d = p->before; d < p->nkept; d++) y->shape[n++] = shape[p->kept[d]];
  y->ndim = n;
}

/* -- offsets -- */

/* Returns the offsets of the true elements of a mask in the base, as a 1-d tensor. */
static moth_tensor *mask_offsets(const selector *s, const moth_layout *base) {
  moth_layout l = {.ndim = 1, .dtype = MOTH_I64, .shape = {s->count}};
  const moth_tensor *mask = s->tensor;
  moth_tensor *y = moth_tensor_new(mask->ctx, &l);
  if (!y) return NULL;
  const char *row = moth_at(mask);
  int64_t *to = (int64_t *)(void *)moth_at(y), at[MOTH_MAX_DIMS] = {0}, offset = 0, n = 0;
  int64_t width = mask->l.shape[s->ndims - 1], last = base->stride[s->dim + s->ndims - 1];
  for (; n < s->count; row += width) {
    for (int64_t i = 0; i < width && n < s->count; i++) { /* without branches */
      to[n] = offset + i * last;
      n += row[i] != 0;
    }
    for (int32_t d = s->ndims - 2; d >= 0; d--) {
      int64_t step = base->stride[s->dim + d];
      offset += step;
      if (++at[d] < mask->l.shape[d]) break;
      offset -= step * mask->l.shape[d];
      at[d] = 0;
    }
  }
  return y;
}

/* offset[i] += step * at[i]; with `first`, = instead of +=. Negative positions count from the end,
** n. Returns the index of a position that is out of range, or -1. */
static int64_t step_to(int64_t count, const int64_t *at, int64_t n, int64_t step, bool first,
                       int64_t *offset) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t position = at[i] + (at[i] < 0 ? n : 0);
    if ((uint64_t)position >= (uint64_t)n) return i;
    offset[i] = position * step + (first ? 0 : offset[i]);
  }
  return -1;
}

/* Adds the byte offsets of one selector to the offsets of all elements. The first selector sets
** them. */
static int add_offsets(const plan *p, const selector *s, const moth_tensor *of,
                       const moth_layout *base, bool first, int64_t *offset) {
  moth_ctx *ctx = s->tensor->ctx;
  bool mask = s->tensor->l.dtype == MOTH_BOOL;
  moth_layout l = p->index_shape;
  l.dtype = MOTH_I64;
  moth_tensor *own = mask ? mask_offsets(s, base) : moth_tensor_retain(s->tensor), *all = own;
  if (own && !moth_shape_same(&own->l, &l)) {
    all = moth_tensor_new(ctx, &l);
    if (all && moth_copy_into(all, own)) {
      moth_tensor_release(all);
      all = NULL;
    }
    moth_tensor_release(own);
  }
  if (!all) return ctx->error.code;
  int status = MOTH_OK;
  const int64_t *at = (const int64_t *)(const void *)moth_at(all);
  const int64_t n = base->shape[s->dim], bytes = moth_dtype_size[base->dtype];
  if (mask) {
    for (int64_t i = 0; i < l.numel; i++) offset[i] = at[i] * bytes + (first ? 0 : offset[i]);
  } else {
    const int64_t bad = step_to(l.numel, at, n, base->stride[s->dim] * bytes, first, offset);
    if (bad >= 0)
      status = moth_fail(ctx, MOTH_E_INDEX, "indices",
                         "position " MOTH_POS " is out of range for dim " MOTH_POS
                         " of %s, which has size %lld",
                         (long long)at[bad], (long long)s->dim, moth_str(of), (long long)n);
  }
  moth_tensor_release(all);
  return status;
}

/* Copies elements between base and values. `values` has the shape of the selected elements, or one
** element. */
static int plan_run(const plan *p, int mode, const moth_tensor *of, moth_tensor *base,
                    const int64_t *offset, const moth_tensor *values) {
  int64_t size = moth_dtype_size[base->l.dtype], unit = values->l.numel == 1 ? 0 : size;
  moth_gather_plan job = {.nwhole = p->nkept, .before = p->before, .count = p->index_shape.numel,
                    .offset = offset};
  int64_t step = unit;
  for (int32_t d = p->nkept - 1; d >= 0; d--) {
    if (d + 1 == p->before) {
      job.step = step;
      step *= p->index_shape.numel;
    }
    job.size[d] = base->l.shape[p->kept[d]];
    job.base_step[d] = base->l.stride[p->kept[d]] * size;
    job.value_step[d] = step;
    step *= job.size[d];
  }
  if (p->before == 0) job.step = step;
  return moth_gather_run(of->ctx, &job, mode, base->l.dtype, moth_at(base), moth_at(values));
}

/* Computes the byte offsets of all selected elements in a base of this layout. The caller frees
** them with moth_dealloc. */
static int plan_offsets(const plan *p, const moth_tensor *of, const moth_layout *base,
                        int64_t **offset) {
  int64_t n = p->index_shape.numel, bytes = (n ? n : 1) * 8;
  *offset = moth_alloc(of->ctx, bytes);
  if (!*offset) return of->ctx->error.code;
  if (p->n == 0) memset(*offset, 0, (size_t)bytes);
  int status = MOTH_OK;
  for (int32_t i = 0; i < p->n && !status; i++)
    status = add_offsets(p, &p->at[i], of, base, i == 0, *offset);
  if (!status) return MOTH_OK;
  moth_dealloc(of->ctx, *offset, bytes);
  *offset = NULL;
  return status;
}

static void offsets_free(const plan *p, moth_ctx *ctx, int64_t *offset) {
  if (offset) moth_dealloc(ctx, offset, (p->index_shape.numel ? p->index_shape.numel : 1) * 8);
}

/* Returns true if the plan is one mask over all of a packed tensor. */
static bool plan_is_mask(const plan *p, const moth_layout *base) {
  moth_layout l = *base;
  return p->n == 1 && p->nkept == 0 && p->at[0].tensor->l.dtype == MOTH_BOOL &&
         moth_layout_pack(&l) && moth_layout_same(&l, base);
}

static int mask_run(const plan *p, int mode, moth_tensor *base, const moth_tensor *values) {
  return moth_gather_masked(base->ctx, mode, base->l.dtype, p->at[0].tensor, p->at[0].count,
                          moth_at(base), moth_at(values),
                          values->l.numel == 1 && mode != MOTH_GATHER_GET);
}

/* Checks that values can be broadcast to the elements that the plan selects from a tensor of this
** shape. */
static int plan_fits(const plan *p, const int64_t *shape, const moth_tensor *values) {
  moth_layout wanted = {.ndim = 0};
  plan_shape(p, shape, &wanted);
  moth_layout wide = wanted;
  if (moth_layout_broadcast(&wide, &values->l) && moth_shape_same(&wide, &wanted)) return MOTH_OK;
  return moth_fail(values->ctx, MOTH_E_SHAPE, "values", "%s cannot be broadcast to the indexed %s",
                   moth_str(values), moth_str_shape(values->ctx, wanted.ndim, wanted.shape));
}

/* Returns values as dtype, broadcast to the shape that the plan selects unless it has one element.
** The memory is not shared with the target. Owned. */
static moth_tensor *plan_values(const plan *p, const moth_tensor *target, int dtype,
                                const moth_tensor *values) {
  moth_layout l = {.dtype = (uint8_t)dtype};
  plan_shape(p, target->l.shape, &l);
  if (plan_fits(p, target->l.shape, values)) return NULL;
  moth_tensor *from = moth_gather_values("values", values, dtype);
  if (!from || from->l.numel == 1 || moth_shape_same(&from->l, &l)) return from;
  moth_tensor *wide = moth_tensor_new(from->ctx, &l);
  if (wide && moth_copy_into(wide, from)) {
    moth_tensor_release(wide);
    wide = NULL;
  }
  moth_tensor_release(from);
  return wide;
}

/* target := of, with values written or added at the selected elements. All errors are found before
** the first write. Half-precision values are summed in f32. */
static int plan_write(const plan *p, int mode, const moth_tensor *of, moth_tensor *target,
                      const moth_tensor *values) {
  moth_ctx *ctx = of->ctx;
  moth_layout l = target->l;
  bool wide = moth_is_half(l.dtype) && mode == MOTH_GATHER_ADD;
  bool here = target->storage->data == of->storage->data && moth_layout_same(&l, &of->l);
  int64_t *offset = NULL;
  if (wide) {
    l.dtype = MOTH_F32;
    moth_layout_pack(&l); /* its size does not overflow, since the tensor exists */
  }
  moth_tensor *base = NULL, *from = plan_values(p, target, l.dtype, values);
  const bool mask = plan_is_mask(p, &l);
  int status = !from ? ctx->error.code : mask ? MOTH_OK : plan_offsets(p, of, &l, &offset);
  if (!status && !here) status = moth_copy_into(target, of);
  if (!status) {
    base = wide ? moth_cast(target, MOTH_F32) : moth_tensor_retain(target);
    if (!base) status = ctx->error.code;
    else if (mask) status = mask_run(p, mode, base, from);
    else status = plan_run(p, mode, of, base, offset, from);
  }
  if (!status && wide) status = moth_copy_into(target, base);
  offsets_free(p, ctx, offset);
  moth_tensor_release(from);
  moth_tensor_release(base);
  return status;
}

/* y := the elements that the plan selects from x. The shape of y was computed earlier. If another
** thread has changed a mask since then, extra elements are left out and missing ones are 0. */
static int plan_read(const plan *p, moth_tensor *x, const int64_t *offset, moth_tensor *y) {
  moth_layout l = {.dtype = x->l.dtype};
  plan_shape(p, x->l.shape, &l);
  if (moth_shape_same(&l, &y->l)) return plan_run(p, MOTH_GATHER_GET, x, x, offset, y);
  moth_tensor *all = moth_tensor_new(x->ctx, &l), from, to = *y;
  if (!all) return x->ctx->error.code;
  int status = plan_run(p, MOTH_GATHER_GET, x, x, offset, all);
  if (y->l.numel) memset(moth_at(y), 0, (size_t)y->l.numel * moth_dtype_size[y->l.dtype]);
  from = *all; /* on the stack: each size is the smaller one of `all` and y */
  from.l.numel = 1;
  for (int32_t d = 0; d < l.ndim; d++) {
    int64_t capacity = y->l.shape[d];
    to.l.shape[d] = from.l.shape[d] = l.shape[d] < capacity ? l.shape[d] : capacity;
    from.l.numel *= to.l.shape[d];
  }
  to.l.numel = from.l.numel;
  if (!status) status = moth_copy_into(&to, &from);
  moth_tensor_release(all);
  return status;
}

/* -- index -- */

static int index_shape(const index_args *a, moth_layout *y) {
  plan p;
  const moth_tensor *x = a->input;
  for (int64_t i = 0; i < a->indices.n; i++)
    if (a->indices.at[i] && a->indices.at[i]->l.dtype == MOTH_BOOL &&
        moth_capture_refuse_shape(a->ctx, "indexing with a mask"))
      return a->ctx->error.code;
  int status = plan_make(&p, a->ctx, a->indices, x, x->l.ndim, x->l.shape, false);
  if (!status) plan_shape(&p, x->l.shape, y);
  plan_free(&p);
  return status;
}

static int index_cpu(const index_args *a, moth_tensor **out) {
  plan p;
  moth_tensor *x = a->input;
  int64_t *offset = NULL;
  int status = plan_make(&p, a->ctx, a->indices, x, x->l.ndim, x->l.shape, true);
  if (!status && p.index_shape.numel == out[0]->l.numel && plan_is_mask(&p, &x->l)) {
    status = mask_run(&p, MOTH_GATHER_GET, x, out[0]);
  } else {
    if (!status) status = plan_offsets(&p, x, &x->l, &offset);
    if (!status) status = plan_read(&p, x, offset, out[0]);
  }
  offsets_free(&p, a->ctx, offset);
  plan_free(&p);
  return status;
}

static int index_grad(const index_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, index_sum, .input = g->dy, .indices = a->indices,
                                     .size = {a->input->l.shape, a->input->l.ndim}));
}

MOTH_OP(index, INDEX, .dtypes = MOTH_ANY, .flags = MOTH_OP_OUT | MOTH_OP_FROM_ONE_THERE,
        .saves = "indices:input",
        .doc = "The elements at the positions in index tensors, or where masks are true.",
        .examples = "moth.randn(4, 5), {moth.tensor{1LL, 4LL, -1LL}, moth.tensor{2LL, 3LL, 2LL}}\n"
                    "moth.randn(3, 2), {moth.tensor{true, false, true}}")

/* -- index_put -- */

static int index_put_shape(const index_put_args *a, moth_layout *y) {
  plan p = {.n = 0};
  const moth_tensor *x = a->input;
  int status = moth_gather_check("values", a->values, x->l.dtype);
  y->ndim = x->l.ndim;
  y->dtype = x->l.dtype;
  memcpy(y->shape, x->l.shape, sizeof y->shape);
  if (!status && x->l.device && moth_index_fills(a))
    return moth_mask_fits(a->indices.at[0], 0, x, x->l.ndim, x->l.shape);
  if (!status) status = plan_make(&p, a->ctx, a->indices, x, x->l.ndim, x->l.shape, false);
  if (!status) status = plan_fits(&p, x->l.shape, a->values);
  plan_free(&p);
  return status;
}

static int index_put_cpu(const index_put_args *a, moth_tensor **out) {
  plan p;
  moth_tensor *x = a->input;
  int mode = a->accumulate ? MOTH_GATHER_ADD : MOTH_GATHER_PUT;
  int status = plan_make(&p, a->ctx, a->indices, x, x->l.ndim, x->l.shape, true);
  if (!status) status = plan_write(&p, mode, x, out[0], a->values);
  plan_free(&p);
  return status;
}

static int index_put_grad(const index_put_args *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              a->accumulate ? g->dy
                            : GRAD(g, index_put, .input = g->dy, .indices = a->indices,
                                   .values = moth_grad_number(g, 0), .accumulate = 0));
  if (moth_wants(g, a->values))
    moth_flow(g, a->values, GRAD(g, index, .input = g->dy, .indices = a->indices));
  return g->status;
}

MOTH_OP(index_put, INDEX_PUT, .dtypes = MOTH_ANY, .saves = "indices",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_MIXED |
                 MOTH_OP_NUMBERS | MOTH_OP_FROM_ONE_THERE,
        .doc = "The input with new values at the positions in index tensors, or where masks are "
               "true. If a position occurs more than once, the last value is kept; with accumulate "
               "all are added.",
        .examples =
            "moth.randn(4, 5), {moth.tensor{1LL, 4LL}, moth.tensor{2LL, -1LL}}, moth.randn(2)\n"
            "moth.randn(3, 2), {moth.tensor{1LL, 1LL}}, moth.randn(2), {accumulate = true}\n"
            "moth.randn(3, 2), {moth.tensor{true, false, true}}, 0")

/* -- index_sum: the gradient of index -- */

static int index_sum_shape(const index_sum_args *a, moth_layout *y) {
  plan p;
  moth_layout wanted = {.ndim = 0};
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (status) return status;
  status = plan_make(&p, a->ctx, a->indices, a->input, y->ndim, y->shape, false);
  if (!status) plan_shape(&p, y->shape, &wanted);
  plan_free(&p);
  if (status || moth_shape_same(&wanted, &a->input->l)) return status;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s is needed, got %s",
                   moth_str_shape(a->ctx, wanted.ndim, wanted.shape), moth_str(a->input));
}

static int index_sum_cpu(const index_sum_args *a, moth_tensor **out) {
  plan p;
  moth_tensor *y = out[0];
  int status = plan_make(&p, a->ctx, a->indices, a->input, y->l.ndim, y->l.shape, true);
  if (!status) status = moth_real_clear(y);
  if (!status) status = plan_write(&p, MOTH_GATHER_ADD, y, y, a->input);
  plan_free(&p);
  return status;
}

static int index_sum_grad(const index_sum_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, index, .input = g->dy, .indices = a->indices));
}

MOTH_OP(index_sum, INDEX_SUM, .dtypes = MOTH_ANY, .saves = "indices",
        .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE_THERE,
        .doc = "Zeros with values added at the positions in index tensors.",
        .examples = "moth.randn(3), {moth.tensor{1LL, 1LL, 2LL}, moth.tensor{2LL, 2LL, 3LL}}, "
                    "{2, 3}", .public_name = "index_add")

/* -- masked_select -- */

static int masked_select_compose(const masked_select_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *mask = NULL;
  moth_layout l = {.ndim = 0};
  int status = moth_broadcast(a->ctx, "mask", &l, a->input, a->mask);
  if (l.ndim == 0) l.ndim = 1, l.shape[0] = 1;
  moth_ints size = {l.shape, l.ndim};
  if (!status) status = MOTH_CALL(a->ctx, &x, expand, .input = a->input, .size = size);
  if (!status) status = MOTH_CALL(a->ctx, &mask, expand, .input = a->mask, .size = size);
  if (!status)
    status = MOTH_CALL(a->ctx, out, index, .input = x, .indices = {&mask, 1});
  moth_tensor_release(mask);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(masked_select, MASKED_SELECT, .dtypes = MOTH_ANY,
                 .doc = "The elements where the mask is true, in row-major order, as one "
                        "dimension.",
                 .examples = "moth.randn(2, 3), "
                             "moth.tensor{{true, false, true}, {false, true, true}}\n"
                             "moth.randn(2, 1), moth.tensor{true, false}")

/* -- nonzero -- */

/* Counts on the input's device. */
static int count_there(moth_tensor *x, int64_t *count) {
  moth_tensor *sum = NULL, *here = NULL;
  int status = MOTH_CALL(x->ctx, &sum, count_nonzero, .input = x);
  if (!status) here = moth_to_host(sum);
  if (here) *count = *(const int64_t *)(const void *)moth_at(here);
  else if (!status) status = x->ctx->error.code;
  moth_tensor_release(sum);
  moth_tensor_release(here);
  return status;
}

static int nonzero_shape(const nonzero_args *a, moth_layout *y) {
  if (moth_capture_refuse_shape(a->ctx, "nonzero")) return a->ctx->error.code;
  const bool there = a->input->l.device != 0;
  moth_tensor *mask = there ? NULL : moth_cast(a->input, MOTH_BOOL);
  int status = there  ? count_there(a->input, &y->shape[0])
               : mask ? count_true(mask, &y->shape[0])
                      : a->ctx->error.code;
  moth_tensor_release(mask);
  y->shape[1] = a->input->l.ndim;
  y->ndim = 2;
  return status;
}

/* Another thread may have changed the input since its shape was computed. y has a fixed number of
** rows: extra positions are left out and missing ones are 0. */
static int nonzero_cpu(const nonzero_args *a, moth_tensor **out) {
  moth_tensor *mask = moth_cast(a->input, MOTH_BOOL);
  if (!mask) return a->ctx->error.code;
  const char *at_mask = moth_at(mask);
  int32_t ndim = mask->l.ndim;
  int64_t *to = (int64_t *)(void *)moth_at(out[0]), at[MOTH_MAX_DIMS] = {0};
  int64_t capacity = out[0]->l.shape[0], unpolled = 0;
  const int64_t width = ndim ? mask->l.shape[ndim - 1] : 1;
  int status = MOTH_OK;
  for (int64_t i = 0; i < mask->l.numel && capacity && !status; i += width) {
    for (int64_t k = 0; k < width && capacity; k++) { /* no branch depends on the mask */
      if (++unpolled % POLL_AFTER == 0 && (status = moth_poll(a->ctx))) break;
      for (int32_t d = 0; d < ndim - 1; d++) to[d] = at[d];
      if (ndim) to[ndim - 1] = k;
      to += at_mask[i + k] ? ndim : 0;
      capacity -= at_mask[i + k] != 0;
    }
    for (int32_t d = ndim - 2; d >= 0 && ++at[d] == mask->l.shape[d]; d--) at[d] = 0;
  }
  for (capacity *= ndim; capacity && !status; capacity--) *to++ = 0;
  moth_tensor_release(mask);
  return status;
}

MOTH_OP_CONST(nonzero, NONZERO, .dtypes = MOTH_ANY, .outputs = "positions: position",
              .doc = "The positions of all elements that are not zero, one row each.",
              .examples = "moth.tensor{{0, 1}, {2, 0}}")

const moth_op *const moth_index_ops[] = {
  &moth_op_index,        &moth_op_index_put, &moth_op_index_sum, &moth_op_masked_select,
  &moth_op_nonzero,      &moth_op_index_select, &moth_op_index_add, &moth_op_gather,
  &moth_op_gather_back,
  &moth_op_scatter,      &moth_op_scatter_add, &moth_op_scatter_reduce,
  &moth_op_one_hot, &moth_op_index_copy,
  &moth_op_index_fill,   &moth_op_take, &moth_op_take_along_dim, &moth_op_argwhere,
  &moth_op_masked_scatter, NULL,
};

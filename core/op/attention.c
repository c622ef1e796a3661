/* attention.c -- scaled_dot_product_attention. With dropout it is composed of ops. Without dropout
** it runs the op `attention`, which never stores the whole matrix of scores and has a fused
** gradient. The gradient is composed of ops under create_graph, and if the bias needs a gradient.
*/
#include "attention.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/attention.h"
#include "kernel/real.h"
#include "create.h"
#include "dropout.h"
#include "gradient_formula.h"
#include "reduce.h"
#include "softmax.h"

/* -- shapes -- */

typedef struct form {
  moth_layout lead; /* leading dimensions, all broadcast */
  int64_t l, s, e, v;
} form;

static moth_layout leading(const moth_tensor *x) {
  moth_layout y = x->l;
  y.ndim -= 2;
  return y;
}

static int join(form *f, const char *arg, const moth_tensor *x) {
  moth_layout own = leading(x);
  if (moth_layout_broadcast(&f->lead, &own)) return MOTH_OK;
  return moth_fail(x->ctx, MOTH_E_SHAPE, arg,
                   "the leading dimensions of %s cannot be broadcast with those of the other "
                   "arguments", moth_str(x));
}

static int form_of(const moth_tensor *q, const moth_tensor *k, const moth_tensor *v,
                   const moth_tensor *bias, form *f) {
  const moth_tensor *all[4] = {q, k, v, bias};
  const char *name[4] = {"query", "key", "value", "attn_mask"};
  for (int i = 0; i < 3; i++)
    if (all[i]->l.ndim < 2)
      return moth_fail(q->ctx, MOTH_E_SHAPE, name[i], "at least two dimensions are needed, got %s",
                       moth_str(all[i]));
  const int64_t *qs = q->l.shape + q->l.ndim, *ks = k->l.shape + k->l.ndim;
  const int64_t *vs = v->l.shape + v->l.ndim;
  *f = (form){.lead = leading(q), .l = qs[-2], .s = ks[-2], .e = qs[-1], .v = vs[-1]};
  if (ks[-1] != f->e)
    return moth_fail(q->ctx, MOTH_E_SHAPE, "key",
                     "the last dimension of %s differs from that of the query, %s",
                     moth_str(k), moth_str(q));
  if (vs[-2] != f->s)
    return moth_fail(q->ctx, MOTH_E_SHAPE, "value", "%s needs as many rows as the key, %s",
                     moth_str(v), moth_str(k));
  int status = join(f, "key", k);
  if (!status) status = join(f, "value", v);
  if (status || !bias) return status;
  moth_layout scores = {.ndim = 2, .shape = {f->l, f->s}}, wide;
  moth_layout last = {.ndim = bias->l.ndim < 2 ? bias->l.ndim : 2};
  for (int32_t i = 0; i < last.ndim; i++)
    last.shape[i] = bias->l.shape[bias->l.ndim - last.ndim + i];
  wide = scores;
  if (!moth_layout_broadcast(&wide, &last) || !moth_shape_same(&wide, &scores))
    return moth_fail(q->ctx, MOTH_E_SHAPE, "attn_mask", "%s cannot be broadcast to scores of %s",
                     moth_str(bias), moth_str_shape(q->ctx, 2, scores.shape));
  return bias->l.ndim > 2 ? join(f, "attn_mask", bias) : MOTH_OK;
}

static void lead_shape(const form *f, moth_layout *y) {
  y->ndim = f->lead.ndim;
  memcpy(y->shape, f->lead.shape, sizeof y->shape);
}

/* -- batches for the kernels -- */

typedef struct plan {
  moth_attention p;
  moth_tensor *own[6];
  int n;
  int64_t *at, bytes, batches;
} plan;

static int plan_open(plan *w, moth_ctx *ctx, const form *f) {
  *w = (plan){.batches = 1};
  bool over = false;
  for (int32_t i = 0; i < f->lead.ndim; i++)
    over |= moth_mul_overflow(w->batches, f->lead.shape[i], &w->batches);
  if (over || moth_mul_overflow(w->batches, 8 * (int64_t)sizeof *w->at, &w->bytes))
    return moth_fail(ctx, MOTH_E_LIMIT, "query", "too many batches");
  w->at = moth_alloc(ctx, w->bytes);
  w->p = (moth_attention){.batches = w->batches, .l = f->l, .s = f->s, .e = f->e, .v = f->v};
  return w->at ? MOTH_OK : ctx->error.code;
}

static void plan_close(plan *w, moth_ctx *ctx) {
  while (w->n) moth_tensor_release(w->own[--w->n]);
  if (w->at) moth_dealloc(ctx, w->at, w->bytes);
}

/* The position in x at which each batch's matrix begins, in elements. x is broadcast to the leading
** dimensions. */
static void offsets(const form *f, const moth_layout *x, int64_t batches, int64_t *at) {
  int64_t index[MOTH_MAX_DIMS] = {0}, here = 0;
  int32_t more = f->lead.ndim - (x->ndim - 2);
  for (int64_t b = 0; b < batches; b++) {
    at[b] = here;
    for (int32_t d = f->lead.ndim - 1; d >= 0; d--) {
      int64_t step = d < more || x->shape[d - more] == 1 ? 0 : x->stride[d - more];
      here += step;
      if (++index[d] < f->lead.shape[d]) break;
      here -= step * f->lead.shape[d];
      index[d] = 0;
    }
  }
}

/* Returns x as one matrix for each batch. Half types are converted to f32; `w` owns the copy. */
static int matrices(plan *w, const form *f, const moth_tensor *x, int which, moth_matrices *m) {
  int dtype = moth_compute_dtype(x->l.dtype);
  moth_tensor *y = dtype == x->l.dtype ? moth_tensor_like(x->ctx, &x->l, x->storage)
                                       : moth_cast(x, dtype);
  if (!y) return x->ctx->error.code;
  w->own[w->n++] = y;
  w->p.dtype = dtype;
  moth_layout l = y->l;
  while (l.ndim < 2) { /* the bias has no dimension for queries or keys */
    memmove(l.shape + 1, l.shape, sizeof *l.shape * (MOTH_MAX_DIMS - 1));
    memmove(l.stride + 1, l.stride, sizeof *l.stride * (MOTH_MAX_DIMS - 1));
    l.shape[0] = 1;
    l.ndim++;
  }
  m->data = moth_at(y);
  m->at = w->at + which * w->batches;
  m->rs = l.shape[l.ndim - 2] == 1 ? 0 : l.stride[l.ndim - 2];
  m->cs = l.shape[l.ndim - 1] == 1 ? 0 : l.stride[l.ndim - 1];
  if (l.numel) offsets(f, &l, w->batches, w->at + which * w->batches);
  else memset(w->at + which * w->batches, 0, (size_t)w->batches * sizeof *w->at);
  return MOTH_OK;
}

static int inputs_of(plan *w, const form *f, const moth_tensor *q, const moth_tensor *k,
                     const moth_tensor *v, const moth_tensor *bias) {
  int status = matrices(w, f, q, 0, &w->p.query);
  if (!status) status = matrices(w, f, k, 1, &w->p.key);
  if (!status) status = matrices(w, f, v, 2, &w->p.value);
  if (!status && bias) status = matrices(w, f, bias, 3, &w->p.bias);
  return status;
}

/* The position in the result at which each batch's rows begin. */
static void result_of(plan *w, const form *f, bool heads_last) {
  int64_t *at = w->at + 7 * w->batches;
  const int64_t heads = heads_last ? f->lead.shape[f->lead.ndim - 1] : 1;
  for (int64_t b = 0; b < w->batches; b++)
    at[b] = (b / heads * heads * f->l + b % heads) * f->v;
  w->p.y_at = at;
  w->p.y_rs = heads * f->v;
}

/* -- attention -- */

/* The shape of the result and of its gradient. */
static int result_shape(moth_ctx *ctx, const form *f, bool heads_last, moth_layout *y) {
  if (f->lead.ndim + 2 > MOTH_MAX_DIMS)
    return moth_fail(ctx, MOTH_E_SHAPE, "query", "too many dimensions");
  if (heads_last && f->lead.ndim == 0)
    return moth_fail(ctx, MOTH_E_SHAPE, "query", "heads_last needs a dimension of heads");
  lead_shape(f, y);
  if (heads_last) y->shape[y->ndim] = y->shape[y->ndim - 1];
  y->shape[y->ndim++ - heads_last] = f->l;
  y->shape[y->ndim++] = f->v;
  return MOTH_OK;
}

static int attention_shape(const attention_args *a, moth_layout *y) {
  form f;
  int status = form_of(a->query, a->key, a->value, a->bias, &f);
  if (!status) status = result_shape(a->ctx, &f, a->heads_last, &y[0]);
  if (status) return status;
  lead_shape(&f, &y[1]);
  y[1].shape[y[1].ndim++] = f.l;
  y[1].dtype = (uint8_t)moth_compute_dtype(a->query->l.dtype);
  return MOTH_OK;
}

static int attention_cpu(const attention_args *a, moth_tensor **out) {
  form f;
  plan w;
  int status = form_of(a->query, a->key, a->value, a->bias, &f);
  if (!status) status = plan_open(&w, a->ctx, &f);
  if (status) return status;
  moth_tensor *y = moth_real_out(out[0]);
  if (!y) status = a->ctx->error.code;
  if (!status) status = inputs_of(&w, &f, a->query, a->key, a->value, a->bias);
  if (!status) {
    w.p.causal = a->is_causal;
    w.p.scale = a->scale;
    result_of(&w, &f, a->heads_last);
    w.p.y = moth_at(y);
    w.p.lse = moth_at(out[1]);
    status = moth_attention_run(a->ctx, &w.p);
  }
  plan_close(&w, a->ctx);
  return moth_real_done(y, out[0], status);
}

#define LAST_SUM(p) GRAD(g, sum, .input = p, .dim = {&last, 1}, .keepdim = true, .dtype = -1)

static const int64_t last = -1;

/* The attention weights, composed of ops: softmax of the scores. Rows without a visible key are
** 0. */
static moth_tensor *weights_with_ops(const attention_args *a, moth_grad *g, const form *f) {
  int64_t size[2] = {f->l, f->s};
  moth_tensor *s = TIMES(PRODUCT(a->query, TRANSPOSED(a->key)), moth_grad_number(g, a->scale));
  if (a->bias) s = PLUS(s, a->bias);
  if (a->is_causal) {
    moth_tensor *behind = GRAD(g, ones, .size = {size, 2}, .dtype = MOTH_BOOL,
                               .device = moth_device_of(a->query));
    s = FILLED(s, GRAD(g, triu, .input = behind, .diagonal = 1), -INFINITY);
  }
  if (!a->bias || f->s == 0) return GRAD(g, softmax, .input = s, .dim = -1, .dtype = -1);
  moth_tensor *least = moth_grad_number(g, -INFINITY);
  moth_tensor *blind = GRAD(g, all, .input = GRAD(g, eq, .input = s, .other = least),
                            .dim = {&last, 1}, .keepdim = true);
  return FILLED(GRAD(g, softmax, .input = FILLED(s, blind, 0), .dim = -1, .dtype = -1), blind, 0);
}

static int with_ops(const attention_args *a, moth_grad *g, const form *f) {
  attention_args real = *a;
  real.query = moth_grad_real(g, a->query);
  real.key = moth_grad_real(g, a->key);
  real.value = moth_grad_real(g, a->value);
  real.bias = moth_grad_real(g, a->bias);
  moth_tensor *dy = moth_grad_real(g, g->dy), *scale = moth_grad_number(g, a->scale);
  if (g->status) return g->status;
  moth_tensor *weights = weights_with_ops(&real, g, f);
  if (a->heads_last) dy = GRAD(g, transpose, .input = dy, .dim0 = -3, .dim1 = -2);
  if (moth_wants(g, a->value)) moth_flow(g, a->value, PRODUCT(TRANSPOSED(weights), dy));
  moth_tensor *d = PRODUCT(dy, TRANSPOSED(real.value));
  d = MINUS(d, LAST_SUM(TIMES(d, weights)));
  d = TIMES(d, weights);
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, d);
  d = TIMES(d, scale);
  if (moth_wants(g, a->query)) moth_flow(g, a->query, PRODUCT(d, real.key));
  if (moth_wants(g, a->key)) moth_flow(g, a->key, PRODUCT(TRANSPOSED(d), real.query));
  return g->status;
}

static int attention_grad(const attention_args *a, moth_grad *g) {
  form f;
  moth_tensor *d[MOTH_MAX_OUTPUTS] = {NULL};
  g->status = form_of(a->query, a->key, a->value, a->bias, &f);
  if (g->status) return g->status;
  if (g->ctx->grad_mode || moth_wants(g, a->bias)) return with_ops(a, g, &f);
  g->status = MOTH_CALL(g->ctx, d, attention_back, .grad = g->dy, .query = a->query,
                        .key = a->key, .value = a->value, .output = g->out[0], .lse = g->out[1],
                        .bias = a->bias, .is_causal = a->is_causal, .scale = a->scale,
                        .heads_last = a->heads_last);
  if (g->status) return g->status;
  for (int i = 0; i < 3; i++) moth_grad_own(g, d[i]);
  moth_flow(g, a->query, d[0]);
  moth_flow(g, a->key, d[1]);
  return moth_flow(g, a->value, d[2]);
}

MOTH_OP(attention, ATTENTION,
  .doc = "softmax(query key^T scale + bias) value; rows without a visible key are 0.",
  .examples =
    "moth.randn(2, 3, 4), moth.randn(2, 5, 4), moth.randn(2, 5, 3)\n"
    "moth.randn(2, 3, 4), moth.randn(5, 4), moth.randn(1, 5, 2), moth.randn(3, 5)\n"
    "moth.randn(4, 2), moth.randn(3, 2), moth.randn(3, 2), {is_causal = true, scale = 0.5}\n"
    "moth.randn(2, 3, 4, 2), moth.randn(3, 5, 2), moth.randn(3, 5, 2), {heads_last = true}",
  .outputs = "y, lse: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "query key value bias y lse",
  .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_HALF,
  .public_name = "scaled_dot_product_attention")

/* -- its gradient -- */

static int attention_back_shape(const attention_back_args *a, moth_layout *y) {
  form f;
  const moth_tensor *of[] = {a->query, a->key, a->value, a->grad, a->output, a->lse, a->bias};
  int status = form_of(a->query, a->key, a->value, a->bias, &f);
  for (int i = 1; !status && i < 7; i++) status = moth_real_alike("grad", of[i], a->query);
  if (status) return status;
  moth_layout wanted;
  lead_shape(&f, &wanted);
  wanted.shape[wanted.ndim++] = f.l;
  bool fits = moth_shape_same(&wanted, &a->lse->l);
  status = result_shape(a->ctx, &f, a->heads_last, &wanted);
  if (status) return status;
  fits = fits && moth_shape_same(&wanted, &a->grad->l) && moth_shape_same(&wanted, &a->output->l);
  if (!fits)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad",
                     "%s cannot be the gradient of a result for the query %s",
                     moth_str(a->grad), moth_str(a->query));
  for (int i = 0; i < 3; i++) {
    y[i].ndim = of[i]->l.ndim;
    memcpy(y[i].shape, of[i]->l.shape, sizeof y[i].shape);
  }
  return MOTH_OK;
}

static void clear(moth_tensor *y) {
  if (y->l.numel) memset(moth_at(y), 0, (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]));
}

static int run_back(const attention_back_args *a, plan *w, const form *f, moth_tensor **work,
                    moth_tensor *const *tools) {
  const int64_t **at[3] = {&w->p.dquery_at, &w->p.dkey_at, &w->p.dvalue_at};
  int status = inputs_of(w, f, a->query, a->key, a->value, a->bias);
  if (status) return status;
  for (int i = 0; i < 3; i++) {
    int64_t *to = w->at + (4 + i) * w->batches;
    clear(work[i]);
    if (work[i]->l.numel) offsets(f, &work[i]->l, w->batches, to);
    else memset(to, 0, (size_t)w->batches * sizeof *to);
    *at[i] = to;
  }
  result_of(w, f, a->heads_last);
  w->p.causal = a->is_causal;
  w->p.scale = a->scale;
  w->p.dy = moth_at(tools[0]);
  w->p.y = moth_at(tools[1]);
  w->p.lse = moth_at(tools[2]);
  w->p.dquery = moth_at(work[0]);
  w->p.dkey = moth_at(work[1]);
  w->p.dvalue = moth_at(work[2]);
  return moth_attention_back(a->ctx, &w->p);
}

static int attention_back_cpu(const attention_back_args *a, moth_tensor **out) {
  form f;
  plan w;
  int status = form_of(a->query, a->key, a->value, a->bias, &f);
  if (!status) status = plan_open(&w, a->ctx, &f);
  if (status) return status;
  moth_tensor *work[3], *tools[3] = {moth_real(a->grad), moth_real(a->output), moth_real(a->lse)};
  for (int i = 0; i < 3; i++) {
    work[i] = moth_real_out(out[i]);
    if (!work[i] || !tools[i]) status = a->ctx->error.code;
  }
  if (!status) status = run_back(a, &w, &f, work, tools);
  for (int i = 0; i < 3; i++) {
    status = moth_real_done(work[i], out[i], status);
    moth_tensor_release(tools[i]);
  }
  plan_close(&w, a->ctx);
  return status;
}

MOTH_OP_CONST(attention_back, ATTENTION_BACK,
  .doc = "The gradients of attention.",
  .examples =
    "moth.randn(2, 3), moth.randn(2, 4), moth.randn(5, 4), moth.randn(5, 3), moth.randn(2, 3),"
    " moth.randn(2)\n"
    "moth.randn(2, 3), moth.randn(2, 4), moth.randn(5, 4), moth.randn(5, 3), moth.randn(2, 3),"
    " moth.randn(2), {bias = moth.randn(2, 5), is_causal = true, scale = 0.5}\n"
    "moth.randn(2, 4, 3, 2), moth.randn(2, 3, 4, 2), moth.randn(3, 5, 2), moth.randn(3, 5, 2),"
    " moth.randn(2, 4, 3, 2), moth.randn(2, 3, 4), {heads_last = true}",
  .outputs = "dquery, dkey, dvalue",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED, .public_name = "scaled_dot_product_attention")

/* -- scaled_dot_product_attention -- */

typedef struct steps { /* tensors that the ops below return, and the first error */
  moth_ctx *ctx;
  moth_tensor *at[24];
  int n, status;
} steps;

/* Keeps a tensor until the steps end. Returns it as a borrowed reference, or NULL after an
** error. */
static moth_tensor *keep(steps *t, moth_tensor *take) {
  if (take) return t->at[t->n++] = take;
  if (!t->status) t->status = t->ctx->error.code;
  return NULL;
}

static moth_tensor *step(steps *t, const moth_op *op, const void *args) {
  moth_tensor *out[MOTH_MAX_OUTPUTS] = {NULL};
  if (t->status) return NULL;
  t->status = moth_run(op, args, out);
  for (int i = 1; i < MOTH_MAX_OUTPUTS; i++) moth_tensor_release(out[i]);
  return t->status ? NULL : keep(t, out[0]);
}
#define DO(op, ...) step(t, &moth_op_##op, &(op##_args){.ctx = t->ctx, __VA_ARGS__})

static moth_tensor *number(steps *t, double value) {
  moth_layout l = {.dtype = MOTH_F64, .numel = 1};
  moth_tensor *x = t->status ? NULL : moth_tensor_new(t->ctx, &l);
  if (x) {
    memcpy(moth_at(x), &value, sizeof value);
    x->flags = MOTH_T_NUMBER;
  }
  return keep(t, x);
}

static int64_t heads(const moth_tensor *x) { return x->l.ndim < 3 ? 1 : x->l.shape[x->l.ndim - 3]; }

/* Returns the mask as numbers to add to the scores. A bool mask becomes 0 and -inf. */
static moth_tensor *bias_of(steps *t, moth_tensor *mask, int dtype) {
  if (!mask || mask->l.dtype == dtype) return mask;
  if (mask->l.dtype != MOTH_BOOL) return DO(cast, .input = mask, .dtype = dtype);
  moth_tensor *zero = DO(zeros, .size = {mask->l.shape, mask->l.ndim}, .dtype = dtype,
                         .device = moth_device_of(mask));
  return DO(masked_fill, .input = zero, .mask = DO(logical_not, .input = mask),
            .value = {.as.number = -INFINITY});
}

/* Computes attention with dropout of the weights. */
static moth_tensor *with_dropout(steps *t, const attention_args *a, double p) {
  moth_tensor *transposed = DO(transpose, .input = a->key, .dim0 = -2, .dim1 = -1);
  moth_tensor *s = DO(matmul, .input = a->query, .other = transposed);
  s = DO(mul, .input = s, .other = number(t, a->scale));
  if (a->bias) s = DO(add, .input = s, .other = a->bias, .alpha = {.as.number = 1});
  if (a->is_causal && !t->status) {
    int64_t size[2] = {s->l.shape[s->l.ndim - 2], s->l.shape[s->l.ndim - 1]};
    moth_tensor *behind = DO(ones, .size = {size, 2}, .dtype = MOTH_BOOL,
                             .device = moth_device_of(a->query));
    s = DO(masked_fill, .input = s, .mask = DO(triu, .input = behind, .diagonal = 1),
           .value = {.as.number = -INFINITY});
  }
  moth_tensor *blind = NULL;
  if (a->bias) {
    blind = DO(eq, .input = s, .other = number(t, -INFINITY));
    blind = DO(all, .input = blind, .dim = {&last, 1}, .keepdim = true);
    s = DO(masked_fill, .input = s, .mask = blind, .value = {.as.number = 0});
  }
  moth_tensor *w = DO(softmax, .input = s, .dim = -1, .dtype = -1);
  if (blind) w = DO(masked_fill, .input = w, .mask = blind, .value = {.as.number = 0});
  w = DO(dropout, .input = w, .p = p, .training = true);
  return DO(matmul, .input = w, .other = a->value);
}

typedef scaled_dot_product_attention_args sdpa_args;

static int sdpa_check(const sdpa_args *a) {
  moth_ctx *ctx = a->ctx;
  const moth_tensor *all[3] = {a->query, a->key, a->value};
  const char *name[3] = {"query", "key", "value"};
  int dtype = a->query->l.dtype;
  for (int i = 0; i < 3; i++)
    if (all[i]->l.dtype != dtype || !moth_is_float(dtype))
      return moth_fail(ctx, MOTH_E_DTYPE, name[i], "the query's floating dtype is needed, got %s",
                       moth_str(all[i]));
  int mask = a->attn_mask ? a->attn_mask->l.dtype : dtype;
  if (mask != dtype && mask != MOTH_BOOL && mask != MOTH_F32)
    return moth_fail(ctx, MOTH_E_DTYPE, "attn_mask",
                     "bool or the query's floating dtype is needed, got %s",
                     moth_str(a->attn_mask));
  if (a->attn_mask && a->is_causal)
    return moth_fail(ctx, MOTH_E_ARG, "is_causal", "cannot be set together with attn_mask");
  if (!(a->dropout_p >= 0 && a->dropout_p <= 1))
    return moth_fail(ctx, MOTH_E_DOMAIN, "dropout_p",
                     "a probability between 0 and 1 is needed, got %g",
                     a->dropout_p);
  return MOTH_OK;
}

/* Splits the query heads into one set for each key head, (..., H, R, L, E). Key, value and bias get
** a new dimension after their heads, to be broadcast over a set. */
static void group_heads(steps *t, attention_args *c, int64_t sets) {
  int64_t split[2] = {sets, sets ? heads(c->query) / sets : 0};
  c->query = DO(unflatten, .input = c->query, .dim = -3, .sizes = {split, 2});
  c->key = DO(unsqueeze, .input = c->key, .dim = -3);
  c->value = DO(unsqueeze, .input = c->value, .dim = -3);
  if (!c->bias || c->bias->l.ndim < 3) return;
  if (heads(c->bias) == 1) c->bias = DO(unsqueeze, .input = c->bias, .dim = -3);
  else c->bias = DO(unflatten, .input = c->bias, .dim = -3, .sizes = {split, 2});
}

/* Returns true if the query's heads are inside its rows in memory, as after splitting a row into
** heads. If the result has the same order, its heads can be joined again without a copy. */
static bool heads_inside(const moth_tensor *q) {
  const int32_t n = q->l.ndim;
  return n >= 3 && q->l.shape[n - 3] > 1 && q->l.shape[n - 2] > 1 &&
         q->l.stride[n - 3] < q->l.stride[n - 2];
}

static int check_heads(const sdpa_args *a, bool *grouped) {
  int64_t h = heads(a->query), sets = heads(a->key);
  *grouped = a->enable_gqa && a->query->l.ndim >= 3 && a->key->l.ndim >= 3 &&
             a->value->l.ndim >= 3 && h != sets;
  if (!*grouped) return MOTH_OK;
  if (sets < 1 || h % sets || heads(a->value) != sets)
    return moth_fail(a->ctx, MOTH_E_SHAPE, heads(a->value) != sets ? "value" : "key",
                     "the %lld heads of the query are no multiple of the heads of %s", (long long)h,
                     moth_str(heads(a->value) != sets ? a->value : a->key));
  if (a->query->l.ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "query", "too many dimensions");
  return MOTH_OK;
}

static int scaled_dot_product_attention_compose(const sdpa_args *a, moth_tensor **out) {
  form f;
  bool grouped = false;
  steps all = {.ctx = a->ctx}, *t = &all;
  int status = sdpa_check(a);
  if (!status) status = check_heads(a, &grouped);
  if (!status && !grouped) status = form_of(a->query, a->key, a->value, a->attn_mask, &f);
  if (status) return status;
  int64_t e = a->query->l.shape[a->query->l.ndim - 1];
  attention_args c = {.ctx = a->ctx, .query = a->query, .key = a->key, .value = a->value,
                      .bias = bias_of(t, a->attn_mask, a->query->l.dtype),
                      .is_causal = a->is_causal,
                      .scale = moth_absent(a->scale) ? 1 / sqrt((double)(e ? e : 1)) : a->scale};
  if (grouped) group_heads(t, &c, heads(a->key));
  moth_tensor *y = NULL;
  c.heads_last = !grouped && !(a->dropout_p > 0) && heads_inside(a->query);
  if (a->dropout_p > 0) y = with_dropout(t, &c, a->dropout_p);
  else y = step(t, &moth_op_attention, &c);
  if (c.heads_last) y = DO(transpose, .input = y, .dim0 = -3, .dim1 = -2);
  if (c.heads_last && y && !a->ctx->grad_mode) y = keep(t, moth_tensor_alias(y)); /* not a view */
  if (grouped) y = DO(flatten, .input = y, .start_dim = -4, .end_dim = -3);
  if (!t->status) out[0] = moth_tensor_retain(y);
  while (t->n) moth_tensor_release(t->at[--t->n]);
  return t->status;
}

MOTH_OP_COMPOSES(scaled_dot_product_attention, SCALED_DOT_PRODUCT_ATTENTION,
  .doc = "softmax(query key^T scale) value: a weighted mean of the values for each query (Vaswani "
         "et al. 2017). The result is 0 for a query whose keys are all masked.",
  .examples =
    "moth.randn(2, 3, 4), moth.randn(2, 5, 4), moth.randn(2, 5, 3)\n"
    "moth.randn(2, 4, 3, 4), moth.randn(2, 2, 3, 4), moth.randn(2, 2, 3, 4),"
    " {is_causal = true, scale = 0.5, enable_gqa = true}\n"
    "moth.randn(3, 4), moth.randn(5, 4), moth.randn(5, 3), moth.randn(3, 5)\n"
    "moth.randn(2, 3, 2, 4):transpose(2, 3), moth.randn(2, 5, 4), moth.randn(2, 2, 5, 3)\n"
    "moth.randn(3, 4), moth.randn(5, 4), moth.randn(5, 3), moth.randn(3, 5):gt(0),"
    " {dropout_p = 0.5}",
  .dtypes = MOTH_FLOATS | MOTH_BIT(MOTH_BOOL),
  .flags = MOTH_OP_MIXED | MOTH_OP_RANDOM, .autocast = MOTH_AUTOCAST_HALF)

const moth_op *const moth_attention_ops[] = {
  &moth_op_scaled_dot_product_attention, &moth_op_attention, &moth_op_attention_back, NULL,
};

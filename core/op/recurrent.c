/* recurrent.c -- recurrent networks over sequences: shapes, the call of the kernels, and the fused
** gradient. The cells are in recurrent_cell.c, second derivatives in recurrent_gradient.c.
*/
#include "recurrent.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include "capture/capture.h"
#include "device/device.h"
#include "kernel/real.h"
#include "base/random.h"
#include "recurrent_call.h"

/* -- checks of shapes -- */

static bool param_fits(const moth_tensor *x, int64_t rows, int64_t cols) {
  if (x->l.ndim != (cols ? 2 : 1) || x->l.shape[0] != rows) return false;
  return !cols || x->l.shape[1] == cols;
}

int moth_recurrent_param(moth_ctx *ctx, const char *arg, const char *what, const moth_tensor *x,
                         int64_t rows, int64_t cols) {
  int64_t want[] = {rows, cols};
  int32_t ndim = cols ? 2 : 1;
  if (param_fits(x, rows, cols)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is %s, but %s is needed", what, moth_str(x),
                   moth_str_shape(ctx, ndim, want));
}

int moth_recurrent_features(const recurrent_call *c, const moth_rnn *r) {
  const moth_tensor *w = c->params.n > 0 ? c->params.at[0] : NULL;
  if (!w || w->l.ndim != 2 || w->l.shape[0] != moth_rnn_gates(r->mode) * r->hidden ||
      w->l.shape[1] == r->input)
    return MOTH_OK;
  return moth_fail(c->ctx, MOTH_E_SHAPE, "input", "%lld features are needed, got %lld: %s",
                   (long long)w->l.shape[1], (long long)r->input, moth_str(c->input));
}

static int check_params(const recurrent_call *c, const moth_rnn *r) {
  static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
  int64_t each = r->biased ? 4 : 2, lanes = r->layers * r->directions;
  int64_t wide = moth_rnn_gates(r->mode) * r->hidden;
  if (c->params.n != each * lanes)
    return moth_fail(c->ctx, MOTH_E_ARG, "params",
                     "%lld tensors are needed, %lld for each of %lld layer(s) in %lld "
                     "direction(s), got %lld", (long long)(each * lanes), (long long)each,
                     (long long)r->layers, (long long)r->directions, (long long)c->params.n);
  int status = moth_recurrent_features(c, r);
  if (status) return status;
  for (int64_t i = 0; i < c->params.n; i++) {
    int64_t kind = i % each, lane = i / each, layer = lane / r->directions;
    int64_t cols = kind == 0 ? moth_rnn_inputs(r, layer) : kind == 1 ? r->hidden : 0;
    char what[64];
    if (param_fits(c->params.at[i], wide, cols)) continue;
    snprintf(what, sizeof what, "%s%s of layer %lld", names[kind],
             lane % r->directions ? " (reverse)" : "", (long long)layer + 1);
    status = moth_recurrent_param(c->ctx, "params", what, c->params.at[i], wide, cols);
    if (status) return status;
  }
  return MOTH_OK;
}

static int check_state(const recurrent_call *c, const moth_rnn *r, const moth_tensor *x) {
  int64_t want[] = {r->layers * r->directions, r->batch, r->hidden};
  bool fits = x->l.ndim == 3;
  for (int d = 0; fits && d < 3; d++) fits = x->l.shape[d] == want[d];
  if (fits) return MOTH_OK;
  return moth_fail(c->ctx, MOTH_E_SHAPE, "hx", "%s is needed for %s, got %s",
                   moth_str_shape(c->ctx, 3, want), moth_str(c->input), moth_str(x));
}

static int check_sizes(const recurrent_call *c, moth_rnn *r) {
  r->sizes = c->sizes.at;
  if (!r->sizes) return MOTH_OK;
  bool good = c->sizes.n == r->steps && r->sizes[0] == r->batch;
  for (int64_t t = 0; good && t < r->steps; t++)
    good = r->sizes[t] >= (r->batch > 0) && (t == 0 || r->sizes[t] <= r->sizes[t - 1]);
  if (good) return MOTH_OK;
  return moth_fail(c->ctx, MOTH_E_ARG, "batch_sizes",
                   "%lld descending numbers from %lld on are needed, got %s", (long long)r->steps,
                   (long long)r->batch, moth_str_ints(c->ctx, c->sizes.n, c->sizes.at));
}

/* Returns the hidden size, from the state's weight if it is valid. Then an error about the size
** names the state. */
static int64_t hidden_of(const recurrent_call *c, int64_t otherwise) {
  const moth_tensor *w = c->params.n > 1 ? c->params.at[1] : NULL;
  bool fits = w && w->l.ndim == 2 && w->l.shape[0] == moth_rnn_gates(c->mode) * w->l.shape[1];
  return fits ? w->l.shape[1] : otherwise;
}

static int measure(const recurrent_call *c, moth_rnn *r) {
  const moth_tensor *x = c->input, *h = c->h0;
  int32_t dims = c->cell ? 2 : 3;
  *r = (moth_rnn){.mode = c->mode, .dtype = moth_compute_dtype(x->l.dtype),
                  .device = x->l.device, .layers = c->layers,
                  .directions = c->bidirectional ? 2 : 1, .biased = c->biased,
                  .masked = c->masked, .given = x->l.dtype};
  if (x->l.ndim != dims)
    return moth_fail(c->ctx, MOTH_E_SHAPE, "input", "%s is needed, got %s",
                     c->cell ? "(N, I)" : c->batch_first ? "(N, L, I)" : "(L, N, I)", moth_str(x));
  if (h->l.ndim != dims)
    return moth_fail(c->ctx, MOTH_E_SHAPE, "hx", "%s is needed, got %s",
                     c->cell ? "(N, H)" : "(layers * directions, N, H)", moth_str(h));
  r->steps = c->cell ? 1 : x->l.shape[c->batch_first ? 1 : 0];
  r->batch = x->l.shape[c->cell || c->batch_first ? 0 : 1];
  r->input = x->l.shape[dims - 1];
  r->hidden = hidden_of(c, h->l.shape[dims - 1]);
  if (r->steps < 1)
    return moth_fail(c->ctx, MOTH_E_SHAPE, "input", "at least one step is needed, got %s",
                     moth_str(x));
  if (r->hidden < 1)
    return moth_fail(c->ctx, MOTH_E_SHAPE, "hx", "at least one unit is needed, got %s",
                     moth_str(h));
  if (r->input < 1)
    return moth_fail(c->ctx, MOTH_E_SHAPE, "input", "at least one feature is needed, got %s",
                     moth_str(x));
  if (r->layers < 1 || r->layers > c->params.n)
    return moth_fail(c->ctx, MOTH_E_DOMAIN, "num_layers",
                     "a number from 1 to the layers of params is needed, got %lld",
                     (long long)r->layers);
  return MOTH_OK;
}

int moth_recurrent_fit(const recurrent_call *c, moth_rnn *r) {
  int64_t size, masks;
  int status = measure(c, r);
  if (!status && !c->cell) status = check_params(c, r);
  if (!status && !c->cell) status = check_state(c, r, c->h0);
  if (!status && !c->cell && c->c0) status = check_state(c, r, c->c0);
  if (!status) status = check_sizes(c, r);
  if (!status && !moth_rnn_reserve_size(r, &size, &masks))
    status = moth_fail(c->ctx, MOTH_E_SHAPE, "input", "%s has too many steps",
                       moth_str(c->input));
  return status;
}

/* -- shapes -- */

static void shape_of(moth_layout *l, int32_t ndim, int64_t a, int64_t b, int64_t c) {
  l->ndim = ndim;
  l->shape[0] = a;
  l->shape[1] = b;
  l->shape[2] = c;
}

int moth_recurrent_shape(const recurrent_call *c, moth_layout *y) {
  moth_rnn r;
  int64_t size = 0, masks;
  int status = moth_recurrent_fit(c, &r);
  if (status) return status;
  moth_rnn_reserve_size(&r, &size, &masks);
  int64_t lanes = r.layers * r.directions, wide = r.directions * r.hidden;
  if (!c->cell) shape_of(y++, 3, c->batch_first ? r.batch : r.steps,
                         c->batch_first ? r.steps : r.batch, wide);
  for (int i = 0; i < (c->c0 ? 2 : 1); i++, y++) {
    if (c->cell) shape_of(y, 2, r.batch, r.hidden, 0);
    else shape_of(y, 3, lanes, r.batch, r.hidden);
  }
  y->dtype = (uint8_t)r.dtype;
  shape_of(y, 1, size, 0, 0);
  return MOTH_OK;
}

/* -- operands -- */

/* x viewed as (b, a, ...) instead of (a, b, ...), if `swapped`. */
static moth_tensor *viewed(const moth_tensor *x, bool swapped) {
  moth_layout l = x->l;
  if (swapped) {
    l.shape[0] = x->l.shape[1], l.shape[1] = x->l.shape[0];
    l.stride[0] = x->l.stride[1], l.stride[1] = x->l.stride[0];
  }
  return moth_tensor_like(x->ctx, &l, x->storage);
}

int moth_recurrent_open(const recurrent_call *c, moth_rnn *r, recurrent_operands *o) {
  moth_ctx *ctx = c->ctx;
  *o = (recurrent_operands){.ctx = ctx, .bytes = c->params.n * 2 * (int64_t)sizeof(void *)};
  moth_tensor *x = viewed(c->input, c->batch_first && !c->cell);
  if (x) o->x = moth_real(x);
  moth_tensor_release(x);
  if (o->x) o->h0 = moth_real(c->h0);
  if (o->h0 && c->c0) o->c0 = moth_real(c->c0);
  if (o->h0 && (o->c0 || !c->c0)) o->params = moth_alloc(ctx, o->bytes);
  if (!o->params) return ctx->error.code;
  r->params = (const void **)(o->params + c->params.n);
  for (; o->n < c->params.n; o->n++) {
    moth_tensor *p = moth_real(c->params.at[o->n]);
    if (!p) return ctx->error.code;
    o->params[o->n] = p;
    r->params[o->n] = moth_at(p);
  }
  return MOTH_OK;
}

void moth_recurrent_close(recurrent_operands *o) {
  moth_tensor_release(o->x);
  moth_tensor_release(o->h0);
  moth_tensor_release(o->c0);
  while (o->n) moth_tensor_release(o->params[--o->n]);
  if (o->params) moth_dealloc(o->ctx, o->params, o->bytes);
}

static const void *at_or_null(const moth_tensor *x) { return x ? moth_at(x) : NULL; }

/* -- forward -- */

#define WORDS 1024 /* number of random words drawn at once */

/* A dropout factor is 0 where a random word is below least_of(p), else scale_of(p). */
static uint64_t least_of(double p) { return (uint64_t)(p * 4294967296.0); }
static double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/* Draws n dropout factors. */
static int draw(moth_ctx *ctx, moth_tensor *generator, double p, int dtype, int64_t n, char *to) {
  uint64_t seed, block, least = least_of(p);
  uint32_t word[WORDS];
  double scale = scale_of(p);
  int status = moth_generator_take(ctx, generator, (uint64_t)(n + 3) / 4, &seed, &block);
  for (int64_t i = 0; !status && i < n; i += WORDS, block += WORDS / 4) {
    int64_t k = n - i < WORDS ? n - i : WORDS;
    moth_philox_fill(seed, block, k, word);
    for (int64_t j = 0; j < k; j++) {
      double v = word[j] >= least ? scale : 0;
      if (dtype == MOTH_F32) ((float *)(void *)to)[i + j] = (float)v;
      else ((double *)(void *)to)[i + j] = v;
    }
    status = moth_poll(ctx);
  }
  return status;
}

/* Draws the masks of dropout into the end of the reserve, from element `first` on. */
static int draw_masks(const recurrent_call *c, const moth_rnn *r, double p,
                      moth_tensor *generator, moth_tensor *reserve, int64_t first) {
  const int64_t n = reserve->l.numel - first;
  char *to = moth_at(reserve) + first * moth_dtype_size[r->dtype];
  if (!r->device) return draw(c->ctx, generator, p, r->dtype, n, to);
  moth_rnn_masks masks = {.ctx = c->ctx, .r = r, .least = least_of(p), .scale = scale_of(p),
                          .n = n, .to = to};
  int status = moth_generator_take(c->ctx, generator, (uint64_t)(n + 3) / 4, &masks.seed,
                                   &masks.block);
  return status || n == 0 ? status : moth_device_call(c->ctx, "rnn_masks", &masks);
}

/* y := the output of the last layer, which is stored in the reserve. */
static int copy_output(const recurrent_call *c, const moth_rnn *r, const moth_tensor *reserve,
                       const void *from, moth_tensor *y) {
  moth_layout l = {.dtype = (uint8_t)r->dtype, .device = (uint8_t)r->device};
  shape_of(&l, 3, r->steps, r->batch, r->directions * r->hidden);
  moth_layout_pack(&l);
  l.offset = ((const char *)from - reserve->storage->data) / moth_dtype_size[r->dtype];
  moth_tensor *stored = moth_tensor_like(c->ctx, &l, reserve->storage);
  moth_tensor *x = stored ? viewed(stored, c->batch_first) : NULL;
  int status = x ? moth_copy_into(y, x) : c->ctx->error.code;
  moth_tensor_release(stored);
  moth_tensor_release(x);
  return status;
}

int moth_recurrent_run(const recurrent_call *c, double p, moth_tensor *generator,
                       moth_tensor **out) {
  moth_rnn r;
  recurrent_operands o = {0};
  int64_t size, masks = 0;
  int status = moth_recurrent_fit(c, &r);
  if (status) return status;
  moth_rnn_reserve_size(&r, &size, &masks);
  moth_tensor *y = c->cell ? NULL : *out++, *reserve = out[c->c0 ? 2 : 1];
  if (r.masked) {
    status = draw_masks(c, &r, p, generator, reserve, masks);
    if (!status && r.device) status = moth_capture_settles(c->ctx);
    if (status) return status < 0 ? status : MOTH_OK;
  }
  status = moth_recurrent_open(c, &r, &o);
  moth_tensor *h = status ? NULL : moth_real_out(out[0]);
  moth_tensor *cell = h && c->c0 ? moth_real_out(out[1]) : NULL;
  if (!status && (!h || (c->c0 && !cell))) status = c->ctx->error.code;
  char *kept = moth_at(reserve);
  const void *last = NULL;
  if (!status)
    status = moth_rnn_forward(c->ctx, &r, moth_at(o.x), moth_at(o.h0), at_or_null(o.c0), kept,
                              moth_at(h), cell ? moth_at(cell) : NULL, &last);
  if (!status && y) status = copy_output(c, &r, reserve, last, y);
  moth_recurrent_close(&o);
  status = moth_real_done(h, out[0], status);
  return c->c0 ? moth_real_done(cell, out[1], status) : status;
}

/* -- backward -- */

static recurrent_call back_call(const recurrent_back_args *a) {
  return (recurrent_call){
    .ctx = a->ctx, .mode = (int)a->mode, .input = a->input, .params = a->params,
    .h0 = a->hx.n > 0 ? a->hx.at[0] : a->input, .c0 = a->hx.n > 1 ? a->hx.at[1] : NULL,
    .biased = a->has_biases, .bidirectional = a->bidirectional, .batch_first = a->batch_first,
    .masked = a->masked, .layers = a->num_layers, .sizes = a->batch_sizes};
}

static int back_fit(const recurrent_back_args *a, recurrent_call *c, moth_rnn *r) {
  int64_t size, masks;
  *c = back_call(a);
  if (a->hx.n != (a->mode == MOTH_LSTM ? 2 : 1))
    return moth_fail(a->ctx, MOTH_E_ARG, "hx", "%d tensor(s) are needed, got %lld",
                     a->mode == MOTH_LSTM ? 2 : 1, (long long)a->hx.n);
  int status = moth_recurrent_fit(c, r);
  if (!status) status = moth_real_alike("reserve", a->reserve, a->input);
  for (int64_t i = 0; !status && i < a->hx.n; i++)
    status = moth_real_alike("hx", a->hx.at[i], a->input);
  for (int64_t i = 0; !status && i < a->params.n; i++)
    status = moth_real_alike("params", a->params.at[i], a->input);
  if (status) return status;
  moth_rnn_reserve_size(r, &size, &masks);
  if (a->reserve->l.ndim != 1 || a->reserve->l.shape[0] != size)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "reserve", "(%lld,) is needed, got %s",
                     (long long)size, moth_str(a->reserve));
  moth_layout y[3] = {{0}};
  shape_of(&y[0], 3, a->batch_first ? r->batch : r->steps, a->batch_first ? r->steps : r->batch,
           r->directions * r->hidden);
  y[1] = y[2] = c->h0->l;
  const moth_tensor *dys[] = {a->dy, a->dh, a->dc};
  static const char *const names[] = {"dy", "dh", "dc"};
  for (int i = 0; i < 3; i++)
    if (dys[i] && !moth_shape_same(&dys[i]->l, &y[i]))
      return moth_fail(a->ctx, MOTH_E_SHAPE, names[i], "%s is needed, got %s",
                       moth_str_shape(a->ctx, 3, y[i].shape), moth_str(dys[i]));
  return MOTH_OK;
}

static int recurrent_back_shape(const recurrent_back_args *a, moth_layout *y) {
  recurrent_call c;
  moth_rnn r;
  int status = back_fit(a, &c, &r);
  if (status) return status;
  const moth_layout *x = &a->input->l, *h = &c.h0->l;
  shape_of(&y[0], 3, a->input_wanted ? x->shape[0] : 0, x->shape[1], x->shape[2]);
  shape_of(&y[1], 3, h->shape[0], h->shape[1], h->shape[2]);
  shape_of(&y[2], 3, c.c0 ? h->shape[0] : 0, h->shape[1], h->shape[2]);
  shape_of(&y[3], 1, moth_rnn_weights(&r), 0, 0);
  return MOTH_OK;
}

/* y := x, or 0 if x is NULL. */
static int take(moth_tensor *y, const moth_tensor *x, bool swapped) {
  if (!x) return moth_real_clear(y);
  moth_tensor *from = viewed(x, swapped);
  int status = from ? moth_copy_into(y, from) : y->ctx->error.code;
  moth_tensor_release(from);
  return status;
}

static moth_tensor *new_buffer(moth_ctx *ctx, const moth_rnn *r, int64_t wide) {
  moth_layout l = {.dtype = (uint8_t)r->dtype, .device = (uint8_t)r->device};
  shape_of(&l, 3, r->steps, r->batch, wide);
  if (moth_layout_pack(&l)) return moth_tensor_new(ctx, &l);
  moth_fail(ctx, MOTH_E_MEM, NULL, "the gradient is too large");
  return NULL;
}

static int recurrent_back_cpu(const recurrent_back_args *a, moth_tensor **out) {
  recurrent_call c;
  moth_rnn r;
  recurrent_operands o = {0};
  moth_ctx *ctx = a->ctx;
  int status = back_fit(a, &c, &r);
  if (!status) status = moth_recurrent_open(&c, &r, &o);
  moth_tensor *reserve = status ? NULL : moth_real(a->reserve);
  moth_tensor *dy = reserve ? new_buffer(ctx, &r, r.directions * r.hidden) : NULL;
  moth_tensor *dx = dy && a->input_wanted ? new_buffer(ctx, &r, r.input) : NULL;
  moth_tensor *dh = dy ? moth_real_out(out[1]) : NULL, *dc = dh ? moth_real_out(out[2]) : NULL;
  moth_tensor *dw = dc ? moth_real_out(out[3]) : NULL;
  if (!status && (!dw || (a->input_wanted && !dx))) status = ctx->error.code;
  if (!status) status = take(dy, a->dy, a->batch_first);
  if (!status) status = take(dh, a->dh, false);
  if (!status && c.c0) status = take(dc, a->dc, false);
  if (!status && r.device && !r.batch) status = moth_real_clear(dw);
  if (!status)
    status = moth_rnn_backward(ctx, &r, moth_at(o.x), moth_at(o.h0), at_or_null(o.c0),
                               moth_at(reserve), moth_at(dy), moth_at(dh), moth_at(dc),
                               dx ? moth_at(dx) : NULL, moth_at(dw));
  if (!status && dx) status = take(out[0], dx, a->batch_first);
  moth_recurrent_close(&o);
  moth_tensor_release(reserve);
  moth_tensor_release(dy);
  moth_tensor_release(dx);
  status = moth_real_done(dh, out[1], status);
  status = moth_real_done(dc, out[2], status);
  return moth_real_done(dw, out[3], status);
}

MOTH_OP_CONST(recurrent_back, RECURRENT_BACK,
  .doc = "The gradients of a recurrent network: for the input, the first states and cells, and all "
         "parameters, concatenated.",
  .examples =
    "moth.randn(2, 3, 2), {moth.rand(1, 3, 4), moth.rand(1, 3, 4)}, "
    "{moth.randn(16, 2), moth.randn(16, 4), moth.randn(16), moth.randn(16)}, moth.rand(144), "
    "{dy = moth.randn(2, 3, 4), dh = moth.randn(1, 3, 4), dc = moth.randn(1, 3, 4), "
    "mode = 'lstm'}\n"
    "moth.randn(3, 2, 2), {moth.rand(4, 3, 2)}, "
    "{moth.randn(6, 2), moth.randn(6, 2), moth.randn(6, 2), moth.randn(6, 2), moth.randn(6, 4), "
    "moth.randn(6, 2), moth.randn(6, 4), moth.randn(6, 2)}, moth.rand(264), "
    "{dy = moth.randn(3, 2, 4), mode = 'gru', has_biases = false, num_layers = 2, masked = true, "
    "bidirectional = true, batch_first = true, batch_sizes = {3, 1}, input_wanted = false}",
  .outputs = "dinput, dhx, dcx, dparams",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_PORTABLE)

/* -- ops on sequences -- */

#define CALL(a, kind)                                                                            \
  (recurrent_call) {                                                                             \
    .ctx = (a)->ctx, .mode = kind, .input = (a)->input, .params = (a)->params,                   \
    .biased = (a)->has_biases, .bidirectional = (a)->bidirectional,                              \
    .batch_first = (a)->batch_first,                                                             \
    .masked = (a)->train && (a)->dropout > 0 && (a)->num_layers > 1, .layers = (a)->num_layers,  \
    .sizes = (a)->batch_sizes                                                                    \
  }

static int check_dropout(moth_ctx *ctx, double p) {
  if (p >= 0 && p <= 1) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DOMAIN, "dropout", "a probability between 0 and 1 is needed, got %g",
                                                  p);
}

#define STATE_EXAMPLES(gates)                                                                    \
  .examples =                                                                                    \
    "moth.randn(3, 2, 4), moth.randn(1, 2, 3), {moth.randn(" gates ", 4), moth.randn(" gates     \
    ", 3), moth.randn(" gates "), moth.randn(" gates ")}\n"                                      \
    "moth.randn(2, 3, 2), moth.randn(4, 2, 3), {moth.randn(" gates ", 2), moth.randn(" gates     \
    ", 3), moth.randn(" gates ", 2), moth.randn(" gates ", 3), moth.randn(" gates ", 6), "       \
    "moth.randn(" gates ", 3), moth.randn(" gates ", 6), moth.randn(" gates ", 3)}, "            \
    "{has_biases = false, num_layers = 2, dropout = 0.3, train = true, bidirectional = true, "   \
    "batch_first = true, batch_sizes = {2, 2, 1}, generator = moth.Generator()}"

#define SEQUENCE(op, kind, text, gates)                                                          \
  static recurrent_call op##_call(const op##_args *a) {                                          \
    recurrent_call c = CALL(a, kind);                                                            \
    c.h0 = a->hx;                                                                                \
    return c;                                                                                    \
  }                                                                                              \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                    \
    recurrent_call c = op##_call(a);                                                             \
    int status = check_dropout(a->ctx, a->dropout);                                              \
    return status ? status : moth_recurrent_shape(&c, y);                                        \
  }                                                                                              \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                   \
    recurrent_call c = op##_call(a);                                                             \
    return moth_recurrent_run(&c, a->dropout, a->generator, out);                                \
  }                                                                                              \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                       \
    recurrent_call c = op##_call(a);                                                             \
    return moth_recurrent_grad(&c, g);                                                           \
  }                                                                                              \
  MOTH_OP(op, RECURRENT, .doc = text, STATE_EXAMPLES(gates),                                     \
          .outputs = "output, h_n, reserve: hidden", .dtypes = MOTH_FLOATS,                      \
          .saves = "input hx params reserve", .flags = MOTH_OP_RANDOM | MOTH_OP_PORTABLE)

SEQUENCE(rnn_tanh, MOTH_RNN_TANH,
         "A recurrent network: h = tanh(W_ih x + b_ih + W_hh h + b_hh) for each step.", "3")
SEQUENCE(rnn_relu, MOTH_RNN_RELU,
         "A recurrent network: h = relu(W_ih x + b_ih + W_hh h + b_hh) for each step.", "3")
SEQUENCE(gru, MOTH_GRU,
         "Gated recurrent units (Cho et al. 2014): gates r, z, n for each step.", "9")

static int lstm_call(const lstm_args *a, recurrent_call *c) {
  *c = CALL(a, MOTH_LSTM);
  if (a->hx.n != 2)
    return moth_fail(a->ctx, MOTH_E_ARG, "hx",
                     "a state and a cell, {h, c}, are needed, got %lld tensor(s)",
                     (long long)a->hx.n);
  c->h0 = a->hx.at[0];
  c->c0 = a->hx.at[1];
  return check_dropout(a->ctx, a->dropout);
}

static int lstm_shape(const lstm_args *a, moth_layout *y) {
  recurrent_call c;
  int status = lstm_call(a, &c);
  return status ? status : moth_recurrent_shape(&c, y);
}

static int lstm_cpu(const lstm_args *a, moth_tensor **out) {
  recurrent_call c;
  int status = lstm_call(a, &c);
  return status ? status : moth_recurrent_run(&c, a->dropout, a->generator, out);
}

static int lstm_grad(const lstm_args *a, moth_grad *g) {
  recurrent_call c;
  int status = lstm_call(a, &c);
  return status ? status : moth_recurrent_grad(&c, g);
}

MOTH_OP(lstm, LSTM_LAYERS,
  .doc = "Long short-term memory (Hochreiter & Schmidhuber 1997): for each step, with the gates i, "
         "f, g, o: c = f c + i g, h = o tanh(c).",
  .examples =
    "moth.randn(3, 2, 4), {moth.randn(1, 2, 3), moth.randn(1, 2, 3)}, {moth.randn(12, 4), "
    "moth.randn(12, 3), moth.randn(12), moth.randn(12)}\n"
    "moth.randn(2, 3, 2), {moth.randn(4, 2, 3), moth.randn(4, 2, 3)}, {moth.randn(12, 2), "
    "moth.randn(12, 3), moth.randn(12, 2), moth.randn(12, 3), moth.randn(12, 6), "
    "moth.randn(12, 3), moth.randn(12, 6), moth.randn(12, 3)}, "
    "{has_biases = false, num_layers = 2, dropout = 0.3, train = true, bidirectional = true, "
    "batch_first = true, batch_sizes = {2, 2, 1}, generator = moth.Generator()}",
  .outputs = "output, h_n, c_n, reserve: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input hx params reserve",
  .flags = MOTH_OP_RANDOM | MOTH_OP_PORTABLE)

const moth_op *const moth_recurrent_ops[] = {
  &moth_op_rnn_tanh, &moth_op_rnn_relu, &moth_op_lstm, &moth_op_gru, &moth_op_recurrent_back,
  &moth_op_rnn_tanh_cell, &moth_op_rnn_relu_cell, &moth_op_lstm_cell, &moth_op_gru_cell,
  &moth_op_cell_back, NULL,
};

/* cudnn_attention.cu -- attention of half types by cuDNN's fused kernels (dnn.cuh), forward and
** backward. cuDNN recognizes them by a graph of single operations: products, a scale, a causal
** mask, the steps of a softmax. All versions support this graph. The single attention operation is
** newer, and supports causal masks only in late versions.
**
** The forward pass saves the same tensor as Moth's kernels, the natural logarithm of the sum of
** each row, so the two implementations can be combined. The gradient of the queries is summed by
** blocks in no fixed order: if results must repeat, Moth's kernels compute it.
**
** A shape uses Moth's kernels until it has been used often enough to be worth a plan, so the last
** bits of a result may change between calls; if results must repeat, they do not. */
#include <math.h>

#include "op/attention.cuh"
#include "dnn.cuh"

enum { /* descriptors */
  DNN_MATRICES = 18, DNN_MATRICES_OPERATION = 19, DNN_REDUCTION = 21,
  DNN_REDUCTION_OPERATION = 22, DNN_RESHAPE_OPERATION = 31
};
enum { /* attributes */
  MATRICES_TYPE = 1500, MATRICES_A = 1520, MATRICES_B, MATRICES_C, MATRICES_HOW,
  REDUCTION_MODE = 1600, REDUCTION_TYPE, REDUCTION_X = 1610, REDUCTION_Y, REDUCTION_HOW,
  RESHAPE_X = 2200, RESHAPE_Y
};
enum { REDUCE_ADD = 0, REDUCE_MAX = 3 };

/* Gradients of older versions have errors: before 9.15.1 they read beyond keys that are no multiple
** of 128, before 9.18 they use uninitialized scratch memory on Hopper. */
static const size_t OLDEST = 91800;

enum { /* ids of tensors: of half types, of f32, of scalars; other ids are virtual tensors */
  QUERY, KEY, VALUE, OUTPUT, GRAD, DQUERY, DKEY, DVALUE, HALVES,
  LSE = HALVES, DOTS, SUMS, IN_MEMORY, SCALE = IN_MEMORY, LEAST, ONE, NAMES
};
enum { FUSED_FORWARD = 16, FUSED_BACKWARD }; /* not values of the convolution kinds */

typedef struct fused_key {
  int64_t what, type, causal;
  int64_t b, h, hk, l, s, e, v; /* batches; heads of queries, heads of keys; number of queries, of
                                ** keys; their sizes */
  int64_t steps[HALVES][3];     /* strides of batch, head, row */
} fused_key;

typedef struct fused_call {
  moth_ctx *ctx;
  const moth_queue *q;
  const moth_tensor *x[IN_MEMORY]; /* NULL: not needed */
  bool causal;
  double scale;
} fused_call;

/* -- descriptors -- */

typedef struct fused {
  dnn_plan *p;
  const fused_key *k;
  int64_t next; /* id of the next virtual tensor */
} fused;

/* A half-type tensor (b, heads, rows, cols); transposed: each matrix is transposed to (b, heads,
** cols, rows). */
static void *describe_half(const fused *f, int name, int64_t heads, int64_t rows, int64_t cols,
                           bool transposed) {
  const int64_t *step = f->k->steps[name];
  const dnn_tensor t = {name, 16, (int)f->k->type, DNN_IN_MEMORY,
                        {f->k->b, heads, transposed ? cols : rows, transposed ? rows : cols},
                        {step[0], step[1], transposed ? 1 : step[2], transposed ? step[2] : 1}};
  return dnn_describe(f->p, &t);
}

/* A packed tensor (b, h, rows, cols). */
static void *describe_packed(fused *f, int64_t name, int type, int64_t rows, int64_t cols) {
  const int64_t h = f->k->h;
  const dnn_tensor t = {name < 0 ? f->next++ : name, 16, type,
                        name < 0 ? DNN_VIRTUAL : DNN_IN_MEMORY, {f->k->b, h, rows, cols},
                        {h * rows * cols, rows * cols, cols, 1}};
  return dnn_describe(f->p, &t);
}
static void *scores(fused *f, int type) {
  return describe_packed(f, -1, type, f->k->l, f->k->s);
}
static void *of_rows(fused *f, int name) {
  return describe_packed(f, name, DNN_FLOAT, f->k->l, 1);
}

static void *describe_number(const fused *f, int name) {
  const dnn_tensor t = {name, 16, DNN_FLOAT, DNN_BY_VALUE, {1, 1, 1, 1}, {1, 1, 1, 1}};
  return dnn_describe(f->p, &t);
}

static void put_step(fused *f, int mode, void *x, void *b, void *y) {
  const dnn_step step = {mode, DNN_FLOAT, x, b, y, NULL, 0};
  dnn_pointwise(f->p, &step);
}

/* Adds a step whose result has the shape of the scores. */
static void *then(fused *f, int mode, void *x, void *b) {
  void *y = scores(f, DNN_FLOAT);
  put_step(f, mode, x, b, y);
  return y;
}

static void put_product(fused *f, void *a, void *b, void *c) {
  const int type = DNN_FLOAT;
  void *how = dnn_begin(f->p, DNN_MATRICES);
  dnn_set(f->p, how, MATRICES_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  dnn_finish(f->p, how);
  void *d = dnn_operation(f->p, DNN_MATRICES_OPERATION), *all[4] = {a, b, c, how};
  for (int i = 0; i < 4; i++) dnn_set(f->p, d, MATRICES_A + i, DNN_IS_DESCRIPTOR, 1, &all[i]);
  dnn_finish(f->p, d);
}

static void put_reduction(fused *f, int mode, void *x, void *y) {
  const int type = DNN_FLOAT;
  void *how = dnn_begin(f->p, DNN_REDUCTION);
  dnn_set(f->p, how, REDUCTION_MODE, DNN_IS_REDUCTION, 1, &mode);
  dnn_set(f->p, how, REDUCTION_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  dnn_finish(f->p, how);
  void *d = dnn_operation(f->p, DNN_REDUCTION_OPERATION), *all[3] = {x, y, how};
  for (int i = 0; i < 3; i++) dnn_set(f->p, d, REDUCTION_X + i, DNN_IS_DESCRIPTOR, 1, &all[i]);
  dnn_finish(f->p, d);
}

static void *reshaped(fused *f, void *x, const dnn_tensor *as) {
  void *y = dnn_describe(f->p, as), *d = dnn_operation(f->p, DNN_RESHAPE_OPERATION);
  dnn_set(f->p, d, RESHAPE_X, DNN_IS_DESCRIPTOR, 1, &x);
  dnn_set(f->p, d, RESHAPE_Y, DNN_IS_DESCRIPTOR, 1, &y);
  dnn_finish(f->p, d);
  return y;
}

/* The scores x, transposed to (keys, queries), in the half type. */
static void *transposed_scores(fused *f, void *x) {
  const fused_key *k = f->k;
  const dnn_tensor t = {f->next++, 16, (int)k->type, DNN_VIRTUAL, {k->b, k->h, k->s, k->l},
                        {k->h * k->s * k->l, k->s * k->l, 1, k->s}};
  return reshaped(f, x, &t);
}

/* x where the row's position is at least the column's, else -inf. */
static void *masked(fused *f, void *x) {
  if (!f->k->causal) return x;
  void *least = describe_number(f, LEAST), *row = scores(f, DNN_INT32);
  void *col = scores(f, DNN_INT32), *seen = scores(f, DNN_BOOLEAN), *y = scores(f, DNN_FLOAT);
  const dnn_step steps[4] = {{DNN_POSITION, DNN_FLOAT, x, NULL, row, NULL, 2},
                             {DNN_POSITION, DNN_FLOAT, x, NULL, col, NULL, 3},
                             {DNN_GE, DNN_BOOLEAN, row, col, seen, NULL, 0},
                             {DNN_SELECT, DNN_FLOAT, x, least, y, seen, 0}};
  for (int i = 0; i < 4; i++) dnn_pointwise(f->p, &steps[i]);
  return y;
}

static void *scaled_scores(fused *f, void *query, void *transposed_key, void *scale) {
  void *product = scores(f, DNN_FLOAT);
  put_product(f, query, transposed_key, product);
  return masked(f, then(f, DNN_MUL, product, scale));
}

static void describe_forward(fused *f) {
  const fused_key *k = f->k;
  void *query = describe_half(f, QUERY, k->h, k->l, k->e, false);
  void *key = describe_half(f, KEY, k->hk, k->s, k->e, true);
  void *value = describe_half(f, VALUE, k->hk, k->s, k->v, false);
  void *output = describe_half(f, OUTPUT, k->h, k->l, k->v, false);
  void *s = scaled_scores(f, query, key, describe_number(f, SCALE));
  void *most = of_rows(f, -1), *sum = of_rows(f, -1), *log = of_rows(f, -1);
  put_reduction(f, REDUCE_MAX, s, most);
  void *power = then(f, DNN_EXP, then(f, DNN_SUB, s, most), NULL);
  put_reduction(f, REDUCE_ADD, power, sum);
  put_step(f, DNN_LOG, sum, NULL, log);
  put_step(f, DNN_ADD, most, log, of_rows(f, LSE));
  void *weights = scores(f, (int)k->type);
  put_step(f, DNN_DIV, power, sum, weights);
  put_product(f, weights, value, output);
}

/* to := scores^T x for each head; heads that share keys are summed. */
static void gather(fused *f, void *transposed, void *x, int to, int64_t cols) {
  const fused_key *k = f->k;
  void *y = describe_half(f, to, k->hk, k->s, cols, false);
  if (k->h == k->hk) return put_product(f, transposed, x, y);
  void *each = describe_packed(f, -1, (int)k->type, k->s, cols);
  put_product(f, transposed, x, each);
  put_reduction(f, REDUCE_ADD, each, y);
}

/* DOTS: for each row, the dot product of the result and its gradient. */
static void *describe_dots(fused *f, void *output, void *grad) {
  const fused_key *k = f->k;
  const dnn_tensor t = {f->next++, 16, DNN_FLOAT, DNN_VIRTUAL, {k->b, k->h, k->l, k->v},
                        {k->h * k->l * k->v, k->l * k->v, k->v, 1}};
  void *product = dnn_describe(f->p, &t), *sum = of_rows(f, -1), *dots = of_rows(f, DOTS);
  put_step(f, DNN_MUL, grad, output, product);
  put_reduction(f, REDUCE_ADD, product, sum);
  put_step(f, DNN_MUL, sum, describe_number(f, ONE), dots);
  return dots;
}

static void describe_backward(fused *f) {
  const fused_key *k = f->k;
  void *query = describe_half(f, QUERY, k->h, k->l, k->e, false);
  void *key = describe_half(f, KEY, k->hk, k->s, k->e, true);
  void *value = describe_half(f, VALUE, k->hk, k->s, k->v, true);
  void *output = describe_half(f, OUTPUT, k->h, k->l, k->v, false);
  void *grad = describe_half(f, GRAD, k->h, k->l, k->v, false);
  void *scale = describe_number(f, SCALE), *dots = describe_dots(f, output, grad);
  void *s = scaled_scores(f, query, key, scale);
  void *weights = then(f, DNN_EXP, then(f, DNN_SUB, s, of_rows(f, LSE)), NULL);
  gather(f, transposed_scores(f, weights), grad, DVALUE, k->v);
  void *d = scores(f, DNN_FLOAT);
  put_product(f, grad, value, d);
  d = then(f, DNN_MUL, then(f, DNN_SUB, d, dots), weights);
  d = then(f, DNN_MUL, d, scale);
  gather(f, transposed_scores(f, d), query, DKEY, k->e);
  const int64_t *step = k->steps[KEY];
  const dnn_tensor rows = {f->next++, 16, (int)k->type, DNN_VIRTUAL, {k->b, k->hk, k->s, k->e},
                           {step[0], step[1], step[2], 1}};
  void *sums = describe_packed(f, SUMS, DNN_FLOAT, k->l, k->e);
  put_product(f, d, reshaped(f, key, &rows), sums);
  put_step(f, DNN_IDENTITY, sums, NULL, describe_half(f, DQUERY, k->h, k->l, k->e, false));
}

/* -- the key of a plan -- */

enum { MOST_BATCH = 65535 };

/* Merges dimensions from..to of x, before its last two: their size, and their stride. Broadcast
** dimensions are allowed only if all are, or for the last one if `shares`. */
static bool merge(const moth_tensor *x, const leading &lead, int from, int to, bool shares,
                  int64_t *size, int64_t *step) {
  const int more = lead.ndim - (x->l.ndim - 2);
  *size = 1, *step = 0;
  for (int d = to - 1; d >= from; d--) {
    const int64_t n = d < more ? 1 : x->l.shape[d - more];
    if (n == 1 && (lead.shape[d] == 1 || shares)) continue;
    if (n != lead.shape[d]) return false;
    if (*size > 1 && x->l.stride[d - more] != *step * *size) return false;
    if (*size == 1) *step = x->l.stride[d - more];
    *size *= n;
  }
  return true;
}

/* Tests if x can be read 16 bytes at a time; step[]: its batch, head and row strides. */
static bool steps_of(const moth_tensor *x, const leading &lead, int heads, bool shares,
                     int64_t *b, int64_t *h, int64_t *step) {
  const int64_t rows = x->l.shape[x->l.ndim - 2], cols = x->l.shape[x->l.ndim - 1];
  if (!merge(x, lead, 0, heads, false, b, &step[0]) ||
      !merge(x, lead, heads, lead.ndim, shares, h, &step[1]))
    return false;
  step[2] = x->l.stride[x->l.ndim - 2];
  if (*h == 1) step[1] = rows * step[2];
  if (*b == 1) step[0] = *h * step[1];
  for (int i = 0; i < 3; i++)
    if (step[i] <= 0 || step[i] % 8) return false;
  return x->l.stride[x->l.ndim - 1] == 1 && cols % 8 == 0 &&
         (uintptr_t)moth_address(x) % 16 == 0 && *b * step[0] < INT32_MAX &&
         *h * step[1] < INT32_MAX && rows * step[2] < INT32_MAX;
}

/* The dimension at which heads begin, after the batch dimensions. If keys are shared along the last
** dimension, it is the dimension of the groups of heads, if there is one besides a batch. */
static int first_of_heads(const moth_tensor *key, const leading &lead, bool *shares) {
  const int last = lead.ndim - 1, at = last - (lead.ndim - (key->l.ndim - 2));
  *shares = last >= 0 && lead.shape[last] > 1 && (at < 0 || key->l.shape[at] == 1);
  return last - (*shares && last >= 2) > 0 ? last - (*shares && last >= 2) : 0;
}

/* Tests if gradients on Hopper are wrong where all scores of a row are below about -89. Keys are
** processed 128 at a time, but those beyond the end are masked 64 at a time. A last half then
** counts as 64 keys with scores of 0, whose weights overflow. The same happens with queries beyond
** the end, if no key requires masking. Observed in versions up to 9.30. */
static bool errs_at_ends(const fused_key *k) {
  const bool masked = k->causal && k->l <= k->s; /* this masks everything beyond the keys */
  return (k->s % 128 == 64 && !masked) || (k->l % 64 != 0 && k->s % 64 == 0);
}

/* Tests if keys and values have the same batch dimensions: if only one of them is broadcast, a key
** head and a value head are not shared by the same queries. */
static bool same_heads(const moth_tensor *key, const moth_tensor *value) {
  const int n = key->l.ndim - 2;
  return value->l.ndim - 2 == n &&
         memcmp(key->l.shape, value->l.shape, (size_t)n * sizeof *key->l.shape) == 0;
}

static bool key_of(fused_key *k, const fused_call *c) {
  const moth_tensor *query = c->x[QUERY], *key = c->x[KEY], *value = c->x[VALUE];
  const int dtype = query->l.dtype;
  const int64_t most = c->q->major == 9 ? 256 : 128; /* size of a head; there are no gradients for
                                                     ** larger heads */
  int64_t batches;
  bool shares;
  const leading lead = lead_of(c->x[LSE], &batches);
  const int heads = first_of_heads(key, lead, &shares);
  memset(k, 0, sizeof *k);
  k->what = c->x[GRAD] ? FUSED_BACKWARD : FUSED_FORWARD;
  k->type = dtype == MOTH_F16 ? DNN_HALF : DNN_BFLOAT16;
  k->causal = c->causal;
  k->l = query->l.shape[query->l.ndim - 2];
  k->s = key->l.shape[key->l.ndim - 2];
  k->e = query->l.shape[query->l.ndim - 1];
  k->v = value->l.shape[value->l.ndim - 1];
  if ((dtype != MOTH_F16 && dtype != MOTH_BF16) || c->q->major < 8 || k->l < 2 || k->s < 2 ||
      k->e > most || k->v > most || !batches || !(c->scale > 0) || !same_heads(key, value) ||
      (uintptr_t)moth_address(c->x[LSE]) % 16)
    return false;
  for (int i = 0; i < HALVES; i++) {
    const bool of_keys = i == KEY || i == VALUE || i == DKEY || i == DVALUE;
    int64_t b = 0, h = 0;
    if (!c->x[i]) continue;
    if (c->x[i]->l.dtype != dtype ||
        !steps_of(c->x[i], lead, heads, of_keys && shares, &b, &h, k->steps[i]))
      return false;
    if (i == QUERY) k->b = b, k->h = h;
    if (i == KEY) k->hk = h;
    if (b != k->b || h != (of_keys ? k->hk : k->h)) return false;
  }
  return k->b <= MOST_BATCH && k->h <= MOST_BATCH &&
         !(c->q->major == 9 && k->what == FUSED_BACKWARD && errs_at_ends(k));
}

/* -- a call -- */

/* The number of multiplications and additions. */
static double work_of(const fused_key *k) {
  const double once = 2.0 * (double)(k->b * k->h) * (double)k->l * (double)k->s;
  return once * (double)(k->e + k->v) * (k->what == FUSED_FORWARD ? 1 : 2.5) /
         (k->causal ? 2 : 1);
}

static int run_plan(const fused_call *c, const dnn_state *s, dnn_plan *p, bool *done) {
  const float numbers[3] = {(float)c->scale, -INFINITY, 1};
  int64_t names[NAMES];
  void *at[NAMES];
  int n = 0;
  for (int i = 0; i < NAMES; i++) {
    const bool is_number = i >= SCALE;
    if (is_number ? (i == LEAST && !c->causal) || (i == ONE && !c->x[GRAD]) : !c->x[i]) continue;
    names[n] = i;
    at[n++] = is_number ? (void *)&numbers[i - SCALE] : (void *)moth_address(c->x[i]);
  }
  const dnn_call call = {c->ctx, c->q, c->x[QUERY]->l.device, n, names, at};
  return dnn_run(s, p, &call, done);
}

static int run_fused(fused_call *c, bool *done) {
  /* A captured call will be replayed many times. A user who enables timing of plans says the same
  ** of all shapes. */
  enum { REPLAYED = 64 };
  const bool repeated = moth_cudnn_is(c->ctx, MOTH_CUDNN_BENCHMARK);
  dnn_state *s = dnn_state_of(c->q);
  fused_key k;
  bool is_new;
  if (!s || dnn_version(s) < OLDEST || !key_of(&k, c)) return MOTH_OK;
  const dnn_key key = dnn_key_of(k);
  const double work = work_of(&k) * (dnn_is_captured(c->q) ? REPLAYED : 1);
  dnn_plan *p = dnn_plan_of(s, &key, repeated ? INFINITY : work, &is_new);
  if (p && is_new) {
    fused f = {p, &k, NAMES};
    p->max_workspace = (int64_t)1 << 30;
    if (c->x[GRAD]) describe_backward(&f);
    else describe_forward(&f);
    dnn_close_graph(p, s);
    dnn_choose(p, s);
  }
  if (!p || !p->plan) return MOTH_OK;
  moth_tensor *own[2] = {NULL, NULL};
  bool fits = true;
  for (int i = 0; i < 2 && c->x[GRAD] && fits; i++) {
    c->x[DOTS + i] = own[i] = attention_scratch(c->ctx, MOTH_F32, c->x[QUERY]->l.device,
                                             k.b * k.h * k.l * (i ? k.e : 1));
    fits = own[i] != NULL;
  }
  if (!fits) forget_failure(c->ctx);
  const int status = fits ? run_plan(c, s, p, done) : MOTH_OK;
  for (int i = 0; i < 2; i++) moth_tensor_release(own[i]);
  return status;
}

static bool is_wanted(moth_ctx *ctx, const moth_tensor *bias) {
  return !bias && moth_cudnn_is(ctx, MOTH_CUDNN_ENABLED) && moth_cudnn_is(ctx, MOTH_CUDNN_SDP) &&
         !moth_is_deterministic(ctx);
}

int moth_attention_cudnn(const attention_args *a, const moth_queue *q, const moth_tensor *y,
                         const moth_tensor *lse, bool *done) {
  fused_call c = {a->ctx, q, {a->query, a->key, a->value, y}, a->is_causal != 0, a->scale};
  c.x[LSE] = lse;
  *done = false;
  return is_wanted(a->ctx, a->bias) ? run_fused(&c, done) : MOTH_OK;
}

int moth_attention_back_cudnn(const attention_back_args *a, const moth_queue *q,
                              moth_tensor *const *out, bool *done) {
  fused_call c = {a->ctx, q, {a->query, a->key, a->value, a->output, a->grad, out[0], out[1],
                              out[2]}, a->is_causal != 0, a->scale};
  c.x[LSE] = a->lse;
  *done = false;
  return is_wanted(a->ctx, a->bias) ? run_fused(&c, done) : MOTH_OK;
}

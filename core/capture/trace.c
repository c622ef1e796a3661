/* trace.c -- traces a function of elements for moth.kernel: the host's code runs once on small
** tensors in place of its arguments, and each elementwise function becomes a step. moth.kernel
** makes programs of the steps, for the op `fused`.
**
** A value is identified by its storage and the last write to it. A tensor that is made during the
** trace without an op holds a number of the host's code. It is a constant, and so are all results
** of constants.
*/
#include <math.h>

#include "capture.h"
#include "base/coroutine.h"
#include "call/frame.h"
#include "call/observer.h"
#include "call/registry.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include "kernel/math/arith.h"
#include "kernel/math/maps.h"
#include "op/fused.h"
#include "op/reduce.h"

typedef struct trace_value {
  uint64_t id;           /* id of its storage */
  moth_tensor *constant; /* counted, 0-d; NULL: depends on the inputs */
  moth_layout l;
} trace_value;

typedef struct moth_trace {
  moth_observer observer;
  uint64_t began;        /* the kernel's own storages have greater ids; 0: none runs */
  moth_ctx *ctx;
  moth_capture *capture; /* the suspended capture, or NULL */
  uint64_t first;        /* storages made during the trace have greater ids */
  bool open, reads, backward; /* reads: the inputs are known, and the trace observes */
  uint32_t notes;        /* functions that the current op has run, */
  bool changing;         /* ... at least one of them on values that depend on the inputs */
  uint32_t values_before, steps_before; /* counts at the begin of the op */
  int status;            /* error of a step that could not be added: its op fails */
  const char *why;
  trace_value *values;
  uint32_t nvalues, value_capacity;
  moth_traced *steps;
  uint32_t nsteps, step_capacity;
} moth_trace;

/* -- values -- */

/* 0: a number operand, whose storage has no lasting value. */
static uint64_t id_of(const moth_tensor *x) {
  return x->flags & MOTH_T_NUMBER ? 0 : moth_storage_root(x->storage)->id;
}

/* The value in the storage of x; -1: unknown. */
static int find(const moth_trace *t, const moth_tensor *x) {
  const uint64_t id = id_of(x);
  for (uint32_t i = id ? t->nvalues : 0; i-- > 0;)
    if (t->values[i].id == id) return (int)i;
  return -1;
}

/* The storage of x was changed without a step. Its new value is found when it is read. */
static void forget(moth_trace *t, const moth_tensor *x) {
  for (uint32_t i = 0; i < t->nvalues; i++)
    if (t->values[i].id == id_of(x)) t->values[i].id = 0;
}

/* Adds x as a value. Returns its number, or a status. */
static int add(moth_trace *t, const moth_tensor *x, moth_tensor *constant) {
  const int status =
    moth_grow(t->ctx, &t->values, t->nvalues, &t->value_capacity, sizeof *t->values);
  if (status) return status;
  trace_value *v = &t->values[t->nvalues];
  v->id = id_of(x);
  v->constant = constant ? moth_tensor_retain(constant) : NULL;
  moth_layout_copy(&v->l, &x->l);
  return (int)t->nvalues++;
}

/* Copies one element: the tensor may change, or be temporary. */
static moth_tensor *single(const moth_tensor *x) {
  const moth_layout l = {.numel = 1, .dtype = x->l.dtype};
  moth_tensor *y = moth_tensor_new(x->ctx, &l);
  if (y) memcpy(moth_at(y), moth_at(x), moth_dtype_size[x->l.dtype]);
  return y;
}

static int add_constant(moth_trace *t, const moth_tensor *x) {
  moth_tensor *one = single(x);
  const int v = one ? add(t, x, one) : t->ctx->error.code;
  moth_tensor_release(one);
  return v;
}

static bool all_one(const moth_tensor *x) { /* every index has the same element */
  for (int d = 0; d < x->l.ndim; d++)
    if (x->l.shape[d] != 1 && x->l.stride[d] != 0) return false;
  return x->l.numel > 0;
}

static bool all_same(const moth_tensor *x) { /* every index has the same bits */
  const int64_t size = moth_dtype_size[x->l.dtype];
  if (all_one(x)) return true;
  if (!x->l.numel || !moth_dense(x)) return false;
  for (int64_t i = 1; i < x->l.numel; i++)
    if (memcmp(moth_at(x), moth_at(x) + i * size, (size_t)size) != 0) return false;
  return true;
}

static int refused(moth_trace *t, const char *why) {
  t->why = why;
  return MOTH_E_UNSUPPORTED;
}

/* The number of the value x, an operand of a function, or a status. */
static int value_of(moth_trace *t, const moth_tensor *x) {
  const int v = find(t, x);
  if (v < 0) {
    if ((id_of(x) && id_of(x) <= t->first) || x->l.device)
      return refused(t, "it reads a tensor that is no argument of the kernel: pass it as one");
    const bool own = t->began && id_of(x) > t->began;
    if (own || !all_same(x))
      return refused(t, "it reads a tensor that does not depend on the arguments");
    return add_constant(t, x);
  }
  const trace_value *at = &t->values[v];
  const bool whole = x->l.offset == at->l.offset && moth_layout_same(&x->l, &at->l);
  if (whole || (at->l.numel == 1 && all_one(x))) return v;
  return refused(t, "it reads a part of a tensor, or in another order; only whole tensors are the "
                    "same for each element");
}

/* -- steps -- */

/* Functions whose results depend on more than the elements: integer division reads values first,
** and so does pow for a single exponent. */
static const char *refusal(const moth_trace *t, const moth_loops *loops, int dtype,
                          const moth_tensor *const *operands) {
  const bool whole = !moth_is_float(dtype);
  if (whole && (loops == moth_arith.div_trunc || loops == moth_arith.div_floor ||
                loops == moth_arith.remainder || loops == moth_arith.fmod))
    return "integers are divided, which reads values first";
  if (loops != moth_arith.pow) return NULL;
  if (whole) return "integers are raised to a power, which reads values first";
  const int v = find(t, operands[2]);
  if (operands[2]->l.ndim == 0 && operands[1]->l.ndim > 0 && v >= 0 && !t->values[v].constant)
    return "a single tensor as exponent selects the function; pass it as a number";
  return NULL;
}

static int read_numbers(moth_traced *s, const void *arg) {
  const int real = moth_compute_dtype(s->dtype);
  s->told = arg != NULL;
  memset(s->numbers, 0, sizeof s->numbers);
  if (arg) moth_convert(3, real, arg, moth_dtype_size[real], MOTH_F64, (char *)s->numbers, 8);
  for (int i = 0; real == MOTH_I64 && arg && i < 3; i++)
    if (fabs(s->numbers[i]) > 0x1p53) return MOTH_E_UNSUPPORTED;
  return MOTH_OK;
}

static int write_step(moth_trace *t, moth_traced *s, const moth_loops *loops, int n,
                      const moth_tensor *const *operands, const void *arg) {
  bool constant = true;
  const int64_t number = loops ? moth_map_number(loops) : FUSED_CONVERT;
  if (loops && number < 0) return refused(t, "it has no number for `fused`");
  s->name = loops ? loops->name : "convert";
  s->function = (int32_t)number;
  s->nvalues = n;
  if (read_numbers(s, arg)) return refused(t, "a number is above 2^53");
  for (int k = n - 1; k >= 0; k--) {
    s->dtypes[k] = operands[k]->l.dtype;
    if (k == 0) break;
    s->value[k] = value_of(t, operands[k]);
    if (s->value[k] < 0) return s->value[k];
    constant = constant && t->values[s->value[k]].constant;
  }
  if (id_of(operands[0]) <= t->first)
    return refused(t, "it writes an argument of the kernel, or another tensor from before");
  if (operands[0]->l.offset || !moth_dense(operands[0]))
    return refused(t, "it writes a part of a tensor");
  if (constant) {
    forget(t, operands[0]);
    return MOTH_OK;
  }
  t->changing = true;
  s->value[0] = add(t, operands[0], NULL);
  if (s->value[0] < 0) return s->value[0];
  t->nsteps++;
  return MOTH_OK;
}

static bool note(moth_observer *o, const struct moth_loops *loops, int dtype, int n,
                 const moth_tensor *const *operands, const void *arg) {
  moth_trace *t = (moth_trace *)o;
  const char *why = loops ? refusal(t, loops, dtype, operands) : NULL;
  t->notes++;
  if (t->status) return false;
  if (why) t->status = refused(t, why);
  else if (n > FUSED_VALUES) t->status = refused(t, "it takes too many operands");
  else t->status = moth_grow(t->ctx, &t->steps, t->nsteps, &t->step_capacity, sizeof *t->steps);
  if (t->status) return false;
  moth_traced *s = &t->steps[t->nsteps];
  s->dtype = dtype;
  t->status = write_step(t, s, loops, n, operands, arg);
  return false;
}

/* -- ops -- */

/* An input with one dimension less gets the sum of its gradient. The sum is deferred to the end,
** since a backward pass is linear in its gradients. */
static int put_off(moth_trace *t, const void *args, const moth_tensor *y) {
  const int v = value_of(t, ((const sum_args *)args)->input);
  if (v < 0 || t->values[v].constant) return refused(t, "it sums");
  const int status = moth_grow(t->ctx, &t->steps, t->nsteps, &t->step_capacity, sizeof *t->steps);
  if (status) return status;
  moth_traced *s = &t->steps[t->nsteps];
  *s = (moth_traced){.name = "convert", .function = FUSED_CONVERT, .nvalues = 2};
  s->dtype = y->l.dtype;
  s->dtypes[0] = y->l.dtype;
  s->dtypes[1] = ((const sum_args *)args)->input->l.dtype;
  s->value[1] = v;
  s->value[0] = add(t, y, NULL);
  if (s->value[0] < 0) return s->value[0];
  t->nsteps++;
  return MOTH_OK;
}

/* Does the op make a constant? An op without steps does not read the inputs' elements; its result
** is read when it is used. */
static bool fills(const moth_trace *t, const moth_op *op, const void *args) {
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  if (op->flags & MOTH_OP_RANDOM) return false;
  if (op->flags & MOTH_OP_CREATES) return true;
  while (moth_next_input(&c)) {
    const int v = *c.at ? find(t, *c.at) : -1;
    const bool old = *c.at && v < 0 && id_of(*c.at) && id_of(*c.at) <= t->first;
    if (old || (v >= 0 && !t->values[v].constant)) return false;
  }
  return true;
}

/* Are all results of an op written by its last steps, or made only of constants? */
static bool known(const moth_trace *t, moth_tensor **out, uint32_t nout) {
  for (uint32_t i = 0; i < nout && t->changing; i++)
    if (out[i] && find(t, out[i]) < (int)t->values_before) return false;
  return t->notes > 0;
}

/* Called after an op has run. */
static int ran(moth_trace *t, const moth_op *op, const void *args, moth_tensor **out,
               uint32_t nout) {
  int status = t->status;
  if (t->backward && op == &moth_op_sum && out[0]->l.numel == 1) {
    t->nsteps = t->steps_before;
    status = put_off(t, args, out[0]);
  } else if (!status && !known(t, out, nout)) {
    if (t->notes == 0 && fills(t, op, args)) forget(t, out[0]);
    else if (op->flags & MOTH_OP_RANDOM)
      status = refused(t, "it draws random numbers; pass them as an argument");
    else
      status = refused(t, "it has its own kernel, or an element of its result depends on more than "
                          "the elements at its position");
  }
  t->status = MOTH_OK;
  t->notes = 0;
  t->changing = false;
  t->values_before = t->nvalues;
  t->steps_before = t->nsteps;
  if (!status || status != MOTH_E_UNSUPPORTED) return status;
  return moth_fail(t->ctx, MOTH_E_UNSUPPORTED, NULL, "moth.kernel cannot run '%s' here: %s",
                   op->name, t->why);
}

static int run_kernel(moth_observer *o, const moth_observed *run) {
  moth_trace *t = (moth_trace *)o;
  const uint64_t around = t->began;
  t->began = t->ctx->ids;
  const int status = run->kernel(run->args, run->out);
  t->began = around;
  return status ? status
                : ran(t, run->op, run->args, run->out, run->nout ? run->nout : run->op->nout);
}

static int notice(moth_observer *o, const moth_notice *n) {
  if (n->kind != MOTH_NOTICE_READ) return MOTH_OK;
  return moth_fail(((moth_trace *)o)->ctx, MOTH_E_UNSUPPORTED, NULL,
                   "%s inside a moth.kernel, which is traced once for all values; use "
                   "moth.where", n->what);
}

static bool constant(moth_observer *o, const moth_tensor *x) {
  const moth_trace *t = (const moth_trace *)o;
  const int v = find(t, x);
  return v < 0 ? !id_of(x) || id_of(x) > t->first : t->values[v].constant != NULL;
}

/* -- functions of moth_lua.h -- */

bool moth_traces(const moth_ctx *ctx) { return ctx->trace && ctx->trace->reads; }

void moth_trace_end(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_trace *t = ctx->trace;
  if (!t || !t->open) return;
  t->open = t->reads = false;
  moth_observer_remove(ctx, &t->observer);
}

void moth_trace_free(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_trace *t = ctx->trace;
  if (!t) return;
  moth_trace_end(ctx);
  moth_capture_take_up(ctx, t->capture);
  while (t->nvalues) moth_tensor_release(t->values[--t->nvalues].constant);
  moth_dealloc(ctx, t->values, (int64_t)(t->value_capacity * sizeof *t->values));
  moth_dealloc(ctx, t->steps, (int64_t)(t->step_capacity * sizeof *t->steps));
  moth_dealloc(ctx, t, sizeof *t);
  ctx->trace = NULL;
}

int32_t moth_trace_begin(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (ctx->trace)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a function is being traced already");
  moth_trace *t = moth_alloc(ctx, sizeof *t);
  if (!t) return ctx->error.code;
  memset(t, 0, sizeof *t);
  t->ctx = ctx;
  t->open = true;
  t->observer = (moth_observer){.rank = MOTH_TRACES, .run = {[MOTH_RUN_KERNEL] = run_kernel},
                                .function = note, .constant = constant, .notice = notice};
  t->capture = moth_capture_put_aside(ctx); /* tensors in place of arguments are not recorded */
  ctx->trace = t;
  return MOTH_OK;
}

static moth_trace *under_way(moth_ctx *ctx) {
  moth_error_clear(ctx);
  if (!ctx->trace) moth_fail(ctx, MOTH_E_STATE, NULL, "no function was traced");
  return ctx->trace;
}

int32_t moth_trace_inputs(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs) {
  MOTH_NEED(ctx, (inputs || !ninputs), MOTH_E_ARG);
  moth_trace *t = under_way(ctx);
  if (!t) return ctx->error.code;
  for (uint32_t i = 0; i < ninputs; i++) {
    const moth_tensor *x = moth_resolve(ctx, &inputs[i], NULL);
    if (!x || add(t, x, NULL) < 0) return ctx->error.code;
  }
  t->first = ctx->ids;
  t->values_before = t->nvalues;
  if (t->open && !t->reads) moth_observer_add(ctx, &t->observer);
  t->reads = t->open;
  return MOTH_OK;
}

void moth_trace_backward(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  if (ctx->trace) ctx->trace->backward = true;
}

int32_t moth_trace_value(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  moth_trace *t = under_way(ctx);
  const moth_tensor *x = t ? moth_resolve(ctx, h, NULL) : NULL;
  if (!x) return ctx->error.code;
  const int v = value_of(t, x);
  if (v != MOTH_E_UNSUPPORTED) return v;
  return moth_fail(ctx, v, NULL, "moth.kernel cannot return a result: %s", t->why);
}

int32_t moth_trace_step(moth_ctx *ctx, uint32_t i, moth_traced *step) {
  MOTH_NEED(ctx, step, MOTH_E_ARG);
  const moth_trace *t = under_way(ctx);
  if (!t) return ctx->error.code;
  if (i >= t->nsteps) return 0;
  *step = t->steps[i];
  return 1;
}

int32_t moth_trace_constant(moth_ctx *ctx, int32_t value, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  const moth_trace *t = under_way(ctx);
  if (!t) return ctx->error.code;
  *out = (moth_handle){0, 0};
  if (value < 0 || (uint32_t)value >= t->nvalues || !t->values[value].constant) return MOTH_OK;
  return moth_hand_out(ctx, moth_tensor_retain(t->values[value].constant), out);
}

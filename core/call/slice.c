/* slice.c -- work in slices of time (slice.h). */
#include "slice.h"

#include "base/alloc.h"
#include "base/coroutine.h"
#include "base/error.h"
#include "base/system.h"
#include "base/threads.h"
#include "frame.h"
#include "registry.h"
#include "tensor/handles.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#define STACK_BYTES ((size_t)1 << 20) /* of a fiber, as of a thread of the pool */
#define SHORT_ELEMENTS 4096 /* an elementwise op up to this size runs without the fiber */
#define SHORT_SECONDS 5e-5  /* if at least so much time is left */
#define VIEWS 16            /* views are so short that the time is checked once for this many */

typedef struct call_state { /* a context's state of one call */
  moth_error_state error;
  moth_results results;
  uint32_t numbers;
  int lanes; /* scratch of a call is sized by it */
  moth_tensor *number[MOTH_NUMBER_SLOTS];
} call_state;

struct moth_slice {
  moth_ctx *ctx;
  moth_slice *next, *outer; /* in the context's list; the slice that was current before */
  moth_fiber *fiber;
  void (*job)(moth_slice *s);
  bool inside;    /* the fiber runs */
  bool plain;     /* a call runs outside of the fiber, which does not pause */
  bool of_host;   /* made by moth_run_for */
  bool busy;      /* the job has begun and not ended */
  bool abandoned; /* polls stop the job */
  double deadline;
  unsigned views; /* that ran without the fiber */
  bool entered;
  moth_modes modes, host_modes;     /* of the work, while it is not entered; of the host */
  moth_main_state base, host_base;
  int32_t status;   /* of the job */
  call_state saved;
  /* arguments and results of the job */
  const moth_op *op;
  uint64_t given, node;
  uint32_t id, n, nout, ngiven, nwanted;
  moth_slot slots[MOTH_MAX_SLOTS];
  moth_handle out[MOTH_MAX_OUTPUTS];
  void *lists; /* copies of lists among the arguments */
  int64_t list_bytes;
  moth_work_function work; /* of moth_run_for */
  void *data;
};

/* -- pausing -- */

/* Moves the state of the current call out of the context. */
static void save_state(moth_ctx *ctx, call_state *c) {
  c->error = ctx->error;
  c->results = ctx->results;
  c->numbers = ctx->numbers;
  c->lanes = ctx->lanes;
  for (int k = 0; k < MOTH_NUMBER_SLOTS; k++) {
    c->number[k] = ctx->slots[k + 1].tensor;
    ctx->slots[k + 1].tensor = NULL;
  }
  moth_error_clear(ctx);
  ctx->results = (moth_results){.ctx = ctx};
  ctx->numbers = 0;
}

/* Moves it back, in the place of another call's. */
static void restore_state(moth_ctx *ctx, const call_state *c) {
  moth_results_clear(&ctx->results);
  moth_dealloc(ctx, ctx->results.at, (int64_t)(ctx->results.capacity * sizeof(moth_tensor *)));
  for (int k = 0; k < MOTH_NUMBER_SLOTS; k++) {
    moth_tensor *x = ctx->slots[k + 1].tensor;
    if (x) x->slot = 0;
    moth_tensor_release(x);
    ctx->slots[k + 1].tensor = c->number[k];
  }
  ctx->error = c->error;
  ctx->results = c->results;
  ctx->numbers = c->numbers;
  ctx->lanes = c->lanes;
}

bool moth_slice_inside(const moth_ctx *ctx) { return ctx->slice && ctx->slice->inside; }

bool moth_slice_pending(const moth_ctx *ctx) { return !ctx->slice->inside && !ctx->slice->plain; }

/* Is the time over? A recording in progress, a profile or a shape rule is not interrupted. */
static bool over(const moth_slice *s) {
  return !s->ctx->quiet && !s->ctx->observer && moth_seconds() >= s->deadline;
}

/* Pauses if the time is over. Returns true if the slice is to end. */
static bool poll(moth_ctx *ctx) {
  moth_slice *s = ctx->slice;
  if (!s || !s->inside) return false;
  if (!s->abandoned && over(s)) {
    save_state(ctx, &s->saved);
    moth_fiber_leave(s->fiber);
    restore_state(ctx, &s->saved);
  }
  return s->abandoned;
}

/* Polls check the time of the current slice, if there is a slice. */
static void watch(moth_ctx *ctx) {
  ctx->slice_poll = ctx->slice ? poll : NULL;
  if (ctx->slice) atomic_fetch_or(&ctx->cancel, MOTH_WATCHED);
  else atomic_fetch_and(&ctx->cancel, ~MOTH_WATCHED);
}

static void fiber_main(void *arg) {
  moth_slice *s = arg;
  for (;;) {
    s->job(s);
    s->busy = false;
    moth_fiber_leave(s->fiber);
  }
}

static int paused(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_PAUSED, NULL, "the time of this slice is over: repeat the call");
}

static int another(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_STATE, NULL, "another call is paused in this slice");
}

/* Runs the fiber until the job ends or pauses. */
static int go_on(moth_slice *s) {
  moth_slice *before = s->ctx->slice;
  if (s != before) s->ctx->slice = s, watch(s->ctx);
  s->inside = true;
  const uintptr_t thread = moth_enter(s->ctx);
  moth_ctx *outer = moth_pause_for(s->ctx);
  moth_fiber_enter(s->fiber);
  moth_pause_for(outer);
  moth_leave(s->ctx, thread);
  s->inside = false;
  if (s != before) s->ctx->slice = before, watch(s->ctx);
  if (s->busy) return paused(s->ctx);
  moth_dealloc(s->ctx, s->lists, s->list_bytes);
  s->lists = NULL;
  return s->status;
}

static void begin(moth_slice *s, void (*job)(moth_slice *s)) {
  s->job = job;
  s->busy = true;
}

/* Copies n values of 8 bytes to the block of the job's lists, and moves on. */
static const void *copy_list(const void *from, int64_t n, char **to) {
  const void *copy = *to;
  memcpy(*to, from, (size_t)n * 8);
  *to += n * 8;
  return copy;
}

/* -- the entry points -- */

static void job_call(moth_slice *s) {
  s->status = moth_call(s->ctx, s->op, s->slots, s->n, s->given, s->out, s->nout);
}

static bool has_list(const moth_slice *s, uint32_t i) {
  const moth_arg *row = &s->op->rows[i];
  const int kind = s->op->kinds[i];
  if (!(s->given >> i & 1) || row->slot + 2 > s->n) return false;
  if (!moth_kind_is_list(kind) && !moth_kind_is_ints(kind)) return false;
  const moth_slot *at = &s->slots[row->slot];
  return at[0].pointer && at[1].integer > 0 && at[1].integer < INT32_MAX;
}

static int copy_lists(moth_slice *s) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < s->op->nrows; i++)
    if (has_list(s, i)) bytes += s->slots[s->op->rows[i].slot + 1].integer * 8;
  if (!bytes) return MOTH_OK;
  char *to = s->lists = moth_alloc(s->ctx, s->list_bytes = bytes);
  if (!to) return s->ctx->error.code;
  for (uint32_t i = 0; i < s->op->nrows; i++) {
    moth_slot *at = &s->slots[s->op->rows[i].slot];
    if (has_list(s, i)) at[0].pointer = copy_list(at[0].pointer, at[1].integer, &to);
  }
  return MOTH_OK;
}

/* Is this an elementwise op of few elements? The inputs have one shape, or are numbers: a broadcast
** may be large. */
static bool few_elements(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                         uint64_t given) {
  const moth_tensor *first = NULL, *x = NULL;
  if (!(op->flags & MOTH_OP_STRIDED) || op->lists) return false;
  for (uint32_t i = 0; i < op->ninputs; i++) {
    const moth_input *in = &op->inputs[i];
    if (!(given >> in->row & 1) || in->slot >= nslots) continue;
    x = moth_lookup(ctx, &slots[in->slot].handle);
    if (!x || x->l.numel > SHORT_ELEMENTS) return false;
    if (x->l.ndim && first && !moth_shape_same(&x->l, &first->l)) return false;
    if (x->l.ndim) first = x;
  }
  return x != NULL;
}

/* Does the call end soon, and before the slice does? A fiber takes longer than such a call. */
static bool is_short(moth_slice *s, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                     uint64_t given) {
  const bool view = op->view && !op->origin;
  if (view && ++s->views % VIEWS) return true;
  return (view || few_elements(s->ctx, op, slots, nslots, given)) &&
         moth_seconds() + SHORT_SECONDS < s->deadline;
}

int32_t moth_call_sliced(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                         uint64_t given, moth_handle *out, uint32_t nout) {
  moth_slice *s = ctx->slice;
  if (s->busy && (s->job != job_call || s->op != op)) return another(ctx);
  if (!s->busy) {
    const bool wrong = !op || nslots > MOTH_MAX_SLOTS; /* moth_call explains what */
    if (wrong || is_short(s, op, slots, nslots, given)) {
      s->plain = true;
      int32_t status = moth_call(ctx, op, slots, nslots, given, out, nout);
      s->plain = false;
      return status;
    }
    s->op = op;
    s->n = nslots;
    s->given = given;
    s->nout = nout < MOTH_MAX_OUTPUTS ? nout : MOTH_MAX_OUTPUTS;
    memset(s->out, 0, sizeof s->out);
    if (nslots) memcpy(s->slots, slots, nslots * sizeof *slots);
    int status = copy_lists(s);
    if (status) return status;
    begin(s, job_call);
  }
  int32_t status = go_on(s);
  if (status >= 0 && nout)
    memcpy(out, s->out, (nout < s->nout ? nout : s->nout) * sizeof *out);
  return status;
}

static void job_replay(moth_slice *s) {
  s->status = moth_capture_replay(s->ctx, s->id, s->lists, s->n);
}

int32_t moth_replay_sliced(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                           uint32_t ninputs) {
  moth_slice *s = ctx->slice;
  if (!s->busy) {
    s->op = NULL;
    s->id = capture;
    s->n = ninputs;
    if (ninputs) {
      char *to = s->lists = moth_alloc(ctx, s->list_bytes = (int64_t)ninputs * 8);
      if (!to) return ctx->error.code;
      copy_list(inputs, ninputs, &to);
    }
    begin(s, job_replay);
  } else if (s->job != job_replay || s->id != capture) {
    return another(ctx);
  }
  return go_on(s);
}

static void job_step(moth_slice *s) {
  s->status = moth_task_step(s->ctx, s->id, &s->node, &s->ngiven, &s->nwanted);
}

int32_t moth_step_sliced(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                         uint32_t *nwanted) {
  moth_slice *s = ctx->slice;
  if (!s->busy) {
    s->op = NULL;
    s->id = task;
    begin(s, job_step);
  } else if (s->job != job_step || s->id != task) {
    return another(ctx);
  }
  int32_t status = go_on(s);
  if (status > 0) {
    *node = s->node;
    *ngiven = s->ngiven;
    *nwanted = s->nwanted;
  }
  return status;
}

/* -- slices -- */

moth_slice *moth_slice_new(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, NULL);
  if (ctx->closed) {
    moth_fail_closed(ctx);
    return NULL;
  }
  moth_slice *s = moth_alloc(ctx, (int64_t)sizeof *s);
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  s->ctx = ctx;
  s->fiber = moth_fiber_new(fiber_main, s, STACK_BYTES);
  if (!s->fiber) {
    moth_dealloc(ctx, s, (int64_t)sizeof *s);
    moth_fail(ctx, MOTH_E_MEM, NULL, "there is no memory for the stack of a slice");
    return NULL;
  }
  s->next = ctx->slices;
  ctx->slices = s;
  return s;
}

int32_t moth_slice_enter(moth_ctx *ctx, moth_slice *slice, double seconds, int32_t fresh) {
  MOTH_NEED(ctx, slice, MOTH_E_ARG);
  if (slice->entered) return moth_fail(ctx, MOTH_E_STATE, NULL, "this slice runs already");
  slice->entered = true;
  slice->outer = ctx->slice;
  slice->deadline = moth_seconds() + seconds;
  slice->host_base = ctx->base;
  slice->host_modes = ctx->modes;
  if (fresh) {
    ctx->base.scope = 0; /* the work's tensors do not end with a scope of the host */
  } else {
    ctx->base = slice->base;
    ctx->modes = slice->modes;
  }
  ctx->slice = slice;
  watch(ctx);
  return MOTH_OK;
}

void moth_slice_extend(moth_ctx *ctx, double seconds) {
  MOTH_NEED(ctx, true, );
  if (ctx->slice) ctx->slice->deadline = moth_seconds() + seconds;
}

int32_t moth_slice_hold(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_slice *s = ctx->slice;
  if (!s || s->inside) return 0;
  const bool old = s->plain;
  s->plain = on != 0;
  return old;
}

void moth_slice_leave(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_slice *s = ctx->slice;
  if (!s || s->inside) return;
  s->base = ctx->base;
  s->modes = ctx->modes;
  ctx->base = s->host_base;
  ctx->modes = s->host_modes;
  s->plain = s->entered = false;
  ctx->slice = s->outer;
  s->outer = NULL;
  watch(ctx);
}

/* Ends the job of a slice: its polls fail. What the host has in the context stays. */
static void abandon(moth_slice *s) {
  moth_ctx *ctx = s->ctx;
  call_state host;
  const int interrupts = ctx->interrupts, cancel = atomic_load(&ctx->cancel) & 1;
  const moth_modes modes = ctx->modes;
  const moth_main_state base = ctx->base;
  s->abandoned = true;
  save_state(ctx, &host);
  ctx->modes = s->modes;
  ctx->base = s->base;
  go_on(s);
  ctx->modes = modes;
  ctx->base = base;
  if (s->job == job_call && s->status >= 0 && !(s->op->flags & MOTH_OP_MUTATES))
    for (uint32_t i = 0; i < s->nout; i++) moth_free(ctx, &s->out[i]);
  restore_state(ctx, &host);
  ctx->interrupts = interrupts;
  if (cancel) atomic_fetch_or(&ctx->cancel, 1);
}

static void free_slice(moth_slice *s) {
  moth_slice **at = &s->ctx->slices;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  if (s->busy) abandon(s);
  moth_scope_abandon(s->ctx, s->base.scope);
  moth_fiber_free(s->fiber);
  moth_dealloc(s->ctx, s, (int64_t)sizeof *s);
}

void moth_slice_free(moth_ctx *ctx, moth_slice *slice) {
  if (!ctx || !slice) return;
  for (moth_slice *s = ctx->slices; s; s = s->next) {
    if (s != slice) continue;
    if (!s->entered) free_slice(s);
    return;
  }
}

bool moth_slices_inside(const moth_ctx *ctx) {
  for (const moth_slice *s = ctx->slices; s; s = s->next)
    if (s->inside) return true;
  return false;
}

void moth_slices_free(moth_ctx *ctx) {
  ctx->slice = NULL;
  watch(ctx);
  while (ctx->slices) free_slice(ctx->slices);
}

/* -- a host's function in slices -- */

static void job_work(moth_slice *s) {
  s->work(s->ctx, s->data);
  s->status = MOTH_OK;
}

int32_t moth_run_for(moth_ctx *ctx, moth_work_function work, void *data, double seconds) {
  MOTH_NEED(ctx, work, MOTH_E_ARG);
  moth_slice *s = NULL, *idle = NULL; /* an idle one is used again: it has its stack */
  for (moth_slice *i = ctx->slices; i; i = i->next) {
    if (!i->of_host) continue;
    if (!i->busy) idle = i;
    else if (i->work == work && i->data == data) s = i;
  }
  if (!s) s = idle ? idle : moth_slice_new(ctx);
  if (!s) return ctx->error.code;
  s->of_host = true;
  s->work = work;
  s->data = data;
  int32_t status = moth_slice_enter(ctx, s, seconds, !s->busy);
  if (status) return status;
  if (!s->busy) begin(s, job_work);
  status = go_on(s);
  moth_slice_leave(ctx);
  if (status != MOTH_E_PAUSED) return status;
  moth_error_clear(ctx);
  return 1;
}

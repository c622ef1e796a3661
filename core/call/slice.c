/* slice.c -- work in slices of time (slice.h). */
#include "slice.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/system.h"
#include "base/threads.h"
#include "frame.h"
#include "registry.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#define STACK_BYTES ((size_t)1 << 20) /* of a fiber, as of a thread of the pool */

typedef struct call_state { /* what a context keeps for the call under way */
  moth_error_state error;
  moth_results results;
  moth_modes modes;
  uint32_t numbers;
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
  moth_modes modes; /* of the host when the job began */
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

static void save_state(moth_slice *s) {
  moth_ctx *ctx = s->ctx;
  call_state *c = &s->saved;
  c->error = ctx->error;
  c->results = ctx->results;
  c->modes = ctx->modes;
  c->numbers = ctx->numbers;
  for (int k = 0; k < MOTH_NUMBER_SLOTS; k++) {
    c->number[k] = ctx->slots[k + 1].tensor;
    ctx->slots[k + 1].tensor = NULL;
  }
  moth_error_clear(ctx);
  ctx->results = (moth_results){.ctx = ctx};
  ctx->numbers = 0;
  ctx->modes = s->modes;
}

static void restore_state(moth_slice *s) {
  moth_ctx *ctx = s->ctx;
  call_state *c = &s->saved;
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
  ctx->modes = c->modes;
  ctx->numbers = c->numbers;
}

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
    save_state(s);
    moth_fiber_leave(s->fiber);
    restore_state(s);
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

/* Runs the fiber until the job ends or pauses. */
static int go_on(moth_slice *s) {
  moth_slice *before = s->ctx->slice;
  s->ctx->slice = s;
  watch(s->ctx);
  s->inside = true;
  moth_fiber_enter(s->fiber);
  s->inside = false;
  s->ctx->slice = before;
  watch(s->ctx);
  if (s->busy) return paused(s->ctx);
  moth_dealloc(s->ctx, s->lists, s->list_bytes);
  s->lists = NULL;
  return s->status;
}

static void begin(moth_slice *s, void (*job)(moth_slice *s)) {
  s->job = job;
  s->busy = true;
  s->modes = s->ctx->modes;
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

int32_t moth_call_sliced(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                         uint64_t given, moth_handle *out, uint32_t nout) {
  moth_slice *s = ctx->slice;
  /* Whoever repeats a call computes its arguments again, by other ops; a wrong call fails. */
  if (s->busy ? s->op != op : !op || nslots > MOTH_MAX_SLOTS) {
    s->plain = true;
    int32_t status = moth_call(ctx, op, slots, nslots, given, out, nout);
    s->plain = false;
    return status;
  }
  if (over(s)) return paused(ctx);
  if (!s->busy) {
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
  if (over(s)) return paused(ctx);
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
    return moth_fail(ctx, MOTH_E_STATE, NULL, "another call is paused in this slice");
  }
  return go_on(s);
}

static void job_step(moth_slice *s) {
  s->status = moth_task_step(s->ctx, s->id, &s->node, &s->ngiven, &s->nwanted);
}

int32_t moth_step_sliced(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                         uint32_t *nwanted) {
  moth_slice *s = ctx->slice;
  if (over(s)) return paused(ctx);
  if (!s->busy) {
    s->op = NULL;
    s->id = task;
    begin(s, job_step);
  } else if (s->job != job_step || s->id != task) {
    return moth_fail(ctx, MOTH_E_STATE, NULL, "another call is paused in this slice");
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

int32_t moth_slice_enter(moth_ctx *ctx, moth_slice *slice, double seconds) {
  MOTH_NEED(ctx, slice, MOTH_E_ARG);
  if (slice->outer || ctx->slice == slice)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "this slice runs already");
  slice->outer = ctx->slice;
  slice->deadline = moth_seconds() + seconds;
  ctx->slice = slice;
  watch(ctx);
  return MOTH_OK;
}

void moth_slice_extend(moth_ctx *ctx, double seconds) {
  MOTH_NEED(ctx, true, );
  if (ctx->slice) ctx->slice->deadline = moth_seconds() + seconds;
}

void moth_slice_leave(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_slice *s = ctx->slice;
  if (!s || s->inside) return;
  ctx->slice = s->outer;
  s->outer = NULL;
  watch(ctx);
}

void moth_slice_free(moth_ctx *ctx, moth_slice *slice) {
  if (!ctx || !slice) return;
  moth_slice **at = &ctx->slices;
  while (*at && *at != slice) at = &(*at)->next;
  if (!*at || slice->inside) return;
  *at = slice->next;
  if (slice->busy) { /* its polls fail, so the job ends */
    slice->abandoned = true;
    moth_error_state error = ctx->error;
    go_on(slice);
    if (job_call == slice->job && slice->status >= 0)
      for (uint32_t i = 0; i < slice->nout; i++) moth_free(ctx, &slice->out[i]);
    ctx->error = error;
  }
  moth_fiber_free(slice->fiber);
  moth_dealloc(ctx, slice, (int64_t)sizeof *slice);
}

void moth_slices_free(moth_ctx *ctx) {
  while (ctx->slices) {
    moth_slice *s = ctx->slices;
    moth_slice_free(ctx, s);
    if (ctx->slices == s) return; /* it runs */
  }
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
  int32_t status = moth_slice_enter(ctx, s, seconds);
  if (status) return status;
  if (!s->busy) begin(s, job_work);
  status = go_on(s);
  moth_slice_leave(ctx);
  if (status != MOTH_E_PAUSED) return status;
  moth_error_clear(ctx);
  return 1;
}

/* capture_run.c -- functions of moth_lua.h for captured steps: begin, end, replay, compare, free
** (capture.h).
*/
#include <stdatomic.h>

#include "call_log.h"
#include "capture_parts.h"
#include "base/coroutine.h"
#include "tensor/loop.h"
#include "profile.h"
#include "base/random.h"
#include "call/registry.h"
#include "host/processes.h"
#include "tensor/sparse.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "base/threads.h"
#include "call/autocast.h"
#include "call/slice.h"
#include "tensor/handles.h"
#include "tensor/collect.h"
#include "tensor/tensor.h"

/* -- freeing -- */

static void release_stores(moth_capture *c) {
  moth_ctx *ctx = c->ctx;
  for (uint32_t i = 0; i < c->nstores; i++) {
    moth_storage *s = c->stores[i].s;
    if (c->stores[i].how == MOTH_HELD_COUNTED) {
      moth_storage_release(ctx, s);
    } else if (c->stores[i].how == MOTH_HELD_BURIED) {
      /* the block belongs to the pool, to an alias's root, or to s */
      bool own = !s->root && !(s->held & MOTH_C_POOLED);
      s->root = NULL;
      if (own) {
        moth_storage_release(ctx, s);
      } else {
        ctx->mem.live_storages--;
        moth_dealloc(ctx, s, sizeof *s);
      }
    }
  }
  for (uint32_t i = 0; i < c->npool; i++) moth_capture_free_block(ctx, &c->pool[i]);
}

static void free_lists(moth_capture *c) {
  moth_ctx *ctx = c->ctx;
#define FREE_LIST(list, n) moth_dealloc(ctx, c->list, (int64_t)(c->n * sizeof *c->list))
  FREE_LIST(code, code_capacity);
  FREE_LIST(segments, segment_capacity);
  FREE_LIST(stores, store_capacity);
  FREE_LIST(pool, pool_capacity);
  FREE_LIST(watched, watch_capacity);
  FREE_LIST(leaves, leaf_capacity);
  FREE_LIST(written, written_capacity);
  FREE_LIST(inputs, input_capacity);
#undef FREE_LIST
  while (c->chunks) {
    moth_chunk *chunk = c->chunks;
    c->chunks = chunk->next;
    moth_dealloc(ctx, chunk, chunk->bytes);
  }
}

static void drop_kept(moth_capture *c) {
  moth_ctx *ctx = c->ctx;
  while (c->kept) {
    moth_kept *kept = c->kept;
    c->kept = kept->next;
    moth_dealloc(ctx, kept, (int64_t)sizeof *kept + kept->nbytes);
  }
  for (uint32_t i = 0; i < c->nleaves; i++) {
    moth_tensor_release(c->leaves[i].kept);
    c->leaves[i].kept = NULL;
  }
}

/* Frees c, which is in no list. */
static void destroy(moth_capture *c) {
  moth_ctx *ctx = c->ctx;
  moth_capture_drop_graphs(c);
  drop_kept(c);
  for (uint32_t i = 0; i < c->nleaves; i++) {
    moth_tensor_release(c->leaves[i].before);
    moth_tensor_release(c->leaves[i].after);
    moth_node_release(c->leaves[i].leaf);
  }
  for (uint32_t i = 0; i < c->nwatched; i++) moth_tensor_release(c->watched[i].tensor);
  for (uint32_t i = 0; i < c->ninputs; i++) moth_tensor_release(c->inputs[i]);
  for (moth_initial *first = c->initial; first; first = first->next)
    moth_capture_free_block(ctx, &(moth_spare){first->bytes, first->owner, first->s->nbytes,
                                               first->s->device});
  release_stores(c);
  free_lists(c);
  moth_dealloc(ctx, c, sizeof *c);
}

/* At the end: retains the storages that were not freed during the capture (`hold`), and marks the
** others. */
static void settle(moth_capture *c, bool hold) {
  for (uint32_t i = 0; i < c->nstores; i++) {
    moth_held *at = &c->stores[i];
    if (at->how == MOTH_HELD_COUNTED) continue;
    if (at->s->held & MOTH_C_BURIED) {
      at->how = MOTH_HELD_BURIED;
    } else if (hold) {
      at->how = MOTH_HELD_COUNTED;
      moth_storage_retain(at->s);
    }
  }
}

void moth_capture_abort(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_capture *c = ctx->capture;
  if (!c) return;
  moth_capture_detach(c);
  settle(c, false);
  destroy(c);
}

static moth_capture *find(moth_ctx *ctx, uint32_t id) {
  for (moth_capture *c = ctx->captures; c; c = c->next)
    if (c->id == id) return c;
  moth_fail(ctx, MOTH_E_STATE, NULL, "this recording is gone");
  return NULL;
}

void moth_capture_free(moth_ctx *ctx, uint32_t capture) {
  MOTH_NEED(ctx, true, );
  for (moth_capture **at = &ctx->captures; *at; at = &(*at)->next) {
    moth_capture *c = *at;
    if (c->id != capture) continue;
    if (c->replaying) { /* a paused replay uses it, and frees it at its end */
      c->doomed = true;
      return;
    }
    *at = c->next;
    destroy(c);
    return;
  }
}

void moth_captures_free(moth_ctx *ctx) {
  moth_capture_abort(ctx);
  while (ctx->captures) moth_capture_free(ctx, ctx->captures->id);
}

/* -- recording -- */

static int add_input(moth_capture *c, moth_tensor *x) {
  if (!x) return c->ctx->error.code;
  int status = moth_grow(c->ctx, &c->inputs, c->ninputs, &c->input_capacity, sizeof x);
  if (!status) c->inputs[c->ninputs++] = moth_tensor_retain(x);
  return status;
}

int32_t moth_capture_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                           uint32_t *capture) {
  MOTH_NEED(ctx, (inputs || !ninputs) && capture, MOTH_E_ARG);
  static atomic_uint ids; /* of the process: storages may move between contexts */
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (ctx->capture)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "moth.capture is recording a step already");
  if (moth_call_log_refuse(ctx, "a captured step cannot be exported")) return ctx->error.code;
  if (ctx->anomaly)
    return moth_fail(ctx, MOTH_E_STATE, NULL,
                     "anomaly mode reads values, so a step cannot be captured in it");
  moth_capture *c = moth_alloc(ctx, sizeof *c);
  if (!c) return ctx->error.code;
  memset(c, 0, sizeof *c);
  c->ctx = ctx;
  c->grad_mode = ctx->grad_mode;
  c->default_dtype = ctx->default_dtype;
  c->autocast = ctx->autocast;
  c->float32_precision = ctx->float32_precision;
  c->cudnn = ctx->cudnn;
  c->deterministic = ctx->deterministic;
  moth_autocast_forget(ctx); /* kept casts: replays must make their own */
  c->first = ctx->ids;
  while (c->id == 0) c->id = atomic_fetch_add(&ids, 1) + 1;
  int status = MOTH_OK;
  for (uint32_t i = 0; !status && i < ninputs; i++)
    status = add_input(c, moth_resolve(ctx, &inputs[i], NULL));
  if (status) {
    destroy(c);
    return status;
  }
  *capture = c->id;
  moth_capture_attach(c);
  return MOTH_OK;
}

/* Removes skipped instructions, and lists the storages whose versions replays increment. */
static int finish_code(moth_capture *c) {
  uint32_t n = 0;
  moth_guard *guard = NULL; /* the last guard */
  moth_capture_guard_end(c->ctx);
  for (uint32_t i = 0; i < c->ncode; i++) {
    const moth_instruction *in = &c->code[i];
    if (guard && guard->past == i) guard->past = n;
    if (moth_guard_of(in)) guard = moth_guard_of(in);
    if (moth_capture_left_out(in)) continue;
    c->code[n++] = *in;
  }
  if (guard && guard->past == c->ncode) guard->past = n;
  c->ncode = n;
  for (uint32_t i = 0; i < c->nstores; i++) {
    moth_storage *s = c->stores[i].s;
    if (!(s->held & MOTH_C_WRITTEN) || (s->held & MOTH_C_BURIED)) continue;
    int status = moth_grow(c->ctx, &c->written, c->nwritten, &c->written_capacity, sizeof s);
    if (status) return status;
    c->written[c->nwritten++] = s;
  }
  return MOTH_OK;
}

/* Replaces the results by tensors without history, which replays do not extend. */
static int plain_results(moth_ctx *ctx, moth_handle *results, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    moth_tensor *x = moth_resolve(ctx, &results[i], NULL);
    if (!x || moth_capture_initial(ctx->capture, moth_storage_root(x->storage)))
      return ctx->error.code;
    if (!x->node && !moth_base(x)) continue;
    moth_tensor *y = moth_tensor_alias(x);
    int status = y ? moth_hand_out(ctx, y, &results[i]) : ctx->error.code;
    if (status) return status;
  }
  return MOTH_OK;
}

/* An argument that counts steps is a constant too, unless the host called moth_capture_slots. A
** bool argument that is false counts nothing. */
static int check_counts(const moth_capture *c) {
  for (uint32_t i = 0; i < c->ncode; i++) {
    const moth_op *op = c->code[i].op;
    uint32_t row = 0;
    if (!op->counts || c->code[i].facts & MOTH_I_VARIES) continue;
    while (strcmp(op->rows[row].name, op->counts) != 0) row++;
    if (op->kinds[row] == MOTH_KIND_bool && !moth_arg_at(op, c->code[i].args, row)->integer)
      continue;
    moth_error_blame(c->ctx, op->name);
    return moth_fail(c->ctx, MOTH_E_UNSUPPORTED, op->counts,
                     "every replay would use the recorded value; call moth_capture_slots after "
                     "the op and write the next value to the slots that it returns");
  }
  return MOTH_OK;
}

int32_t moth_capture_end(moth_ctx *ctx, moth_handle *results, uint32_t nresults) {
  MOTH_NEED(ctx, (results || !nresults), MOTH_E_ARG);
  moth_capture *c = ctx->capture;
  moth_error_clear(ctx);
  if (!c) return moth_fail(ctx, MOTH_E_STATE, NULL, "nothing is being recorded");
  moth_autocast_forget(ctx); /* casts that replays overwrite */
  int status = c->empty ? MOTH_OK : check_counts(c);
  if (!status) status = moth_processes_check_capture(ctx);
  if (!status) moth_capture_fuse(c);
  if (!status) status = moth_capture_join(c);
  if (!status) status = finish_code(c);
  if (!status && ctx->devices) status = moth_capture_segments(c);
  ctx->quiet++; /* new tensors over old storages are not recorded */
  if (!status) status = plain_results(ctx, results, nresults);
  ctx->quiet--;
  for (uint32_t i = 0; i < c->nwatched; i++) /* x.data was set by the step */
    if (c->watched[i].tensor->storage != c->watched[i].storage) c->empty = true;
  if (status || c->empty) {
    moth_capture_abort(ctx);
    return status ? status : MOTH_CAPTURE_STALE;
  }
  for (uint32_t i = 0; i < c->nleaves; i++) {
    moth_tensor *grad = c->leaves[i].leaf->grad;
    if (grad) c->leaves[i].after = moth_tensor_retain(grad);
  }
  moth_capture_note_streams(c);
  settle(c, true);
  moth_capture_detach(c);
  c->next = ctx->captures;
  ctx->captures = c;
  return MOTH_OK;
}

/* -- replay -- */

static bool fits(const moth_tensor *to, const moth_tensor *x) {
  return x->l.dtype == to->l.dtype && x->l.device == to->l.device && moth_shape_same(&x->l, &to->l);
}

/* The name of a setting that has changed since the capture, or NULL. */
static const char *other_setting(const moth_capture *c) {
  const moth_ctx *ctx = c->ctx;
  if (ctx->grad_mode != c->grad_mode) return "the grad mode";
  if (ctx->default_dtype != c->default_dtype) return "the default dtype";
  if (ctx->autocast != c->autocast) return "autocast";
  if (ctx->float32_precision != c->float32_precision) return "the precision of float32 products";
  if (ctx->cudnn != c->cudnn) return "a setting of cuDNN";
  if (ctx->deterministic != c->deterministic) return "the setting for deterministic algorithms";
  return ctx->anomaly ? "anomaly mode" : NULL;
}

/* Would the step take another path now, because of its inputs, modes, parameters or gradients? Then
** c->stale says which. */
static bool is_stale(moth_capture *c, moth_tensor *const *x) {
  const moth_ctx *ctx = c->ctx;
  const char *why = other_setting(c);
  const moth_tensor *blamed = NULL;
  for (uint32_t i = 0; !why && i < c->ninputs; i++)
    if (!fits(c->inputs[i], x[i]) || (ctx->grad_mode && moth_needs_grad(x[i])))
      why = "an input";
  for (uint32_t i = 0; !why && i < c->nwatched; i++) {
    const moth_watched *at = &c->watched[i];
    const bool moved = at->tensor->storage != at->storage;
    if (!moved && (at->tensor->flags & MOTH_T_REQUIRES) == at->requires) continue;
    why = moved ? "the storage" : "requires_grad";
    blamed = at->tensor;
  }
  for (uint32_t i = 0; !why && i < c->nleaves; i++) {
    const moth_leaf_state *at = &c->leaves[i];
    const bool hooked = at->leaf->flags & MOTH_N_HOOKED;
    const bool read = at->asked && at->leaf->grad != at->before;
    if (!read && hooked == at->hooked) continue;
    why = read ? "the gradient, which it reads before its backward pass," : "the list of hooks";
    for (uint32_t k = 0; k < c->nwatched; k++)
      if (c->watched[k].tensor->leaf == at->leaf) blamed = c->watched[k].tensor;
  }
  c->stale = why;
  c->blamed = blamed;
  return why != NULL;
}

const char *moth_capture_why(moth_ctx *ctx, uint32_t capture, moth_handle *of) {
  MOTH_NEED(ctx, of, NULL);
  const moth_capture *c = find(ctx, capture);
  *of = (moth_handle){0, 0};
  if (!c || !c->stale) return NULL;
  if (c->blamed && c->blamed->slot)
    *of = (moth_handle){c->blamed->slot, ctx->slots[c->blamed->slot].gen};
  return c->stale;
}

static bool same_bytes_of(const moth_tensor *x, const moth_tensor *y) {
  return moth_storage_root(x->storage) == moth_storage_root(y->storage);
}

/* An input that is a result of the last replay may share memory with the capture's own inputs.
** Such an input is copied before the capture's inputs are filled. */
static int set_aside(const moth_capture *c, moth_tensor **x, moth_tensor **aside) {
  for (uint32_t i = 0; i < c->ninputs; i++) {
    bool overwritten = false;
    for (uint32_t k = 0; k <= i && !overwritten; k++)
      overwritten = same_bytes_of(x[i], c->inputs[k]) &&
                    (k < i || !moth_layout_same(&x[i]->l, &c->inputs[i]->l));
    if (!overwritten) continue;
    x[i] = aside[i] = moth_cast(x[i], x[i]->l.dtype);
    if (!x[i]) return c->ctx->error.code;
  }
  return MOTH_OK;
}

#define MAX_REPLAY_INPUTS 64

static int copy_inputs(const moth_capture *c, moth_tensor **x) {
  moth_tensor *aside[MAX_REPLAY_INPUTS];
  for (uint32_t i = 0; i < c->ninputs; i++) aside[i] = NULL;
  int status = set_aside(c, x, aside);
  for (uint32_t i = 0; !status && i < c->ninputs; i++) {
    moth_tensor *to = c->inputs[i];
    if (same_bytes_of(x[i], to)) continue;
    moth_storage_bump(to->storage);
    size_t bytes = (size_t)(to->l.numel * moth_dtype_size[to->l.dtype]);
    if (to->l.device || !moth_contiguous(x[i]) || !moth_contiguous(to))
      status = moth_copy_into(to, x[i]);
    else if (bytes) memcpy(moth_at(to), moth_at(x[i]), bytes);
  }
  for (uint32_t i = 0; i < c->ninputs; i++) moth_tensor_release(aside[i]);
  return status;
}

/* In a slice of time the host may free the inputs, or replace their data, during the copy. */
static int copy_pinned(const moth_capture *c, moth_tensor **x) {
  moth_storage *s[MAX_REPLAY_INPUTS];
  for (uint32_t i = 0; i < c->ninputs; i++) {
    moth_tensor_retain(x[i]);
    s[i] = moth_storage_retain(x[i]->storage);
  }
  const int status = copy_inputs(c, x);
  for (uint32_t i = 0; i < c->ninputs; i++) {
    moth_storage_release(c->ctx, s[i]);
    moth_tensor_release(x[i]);
  }
  return status;
}

static int run_code(moth_capture *c) {
  int status = MOTH_OK;
  for (moth_initial *first = c->initial; first && !status; first = first->next)
    status = moth_bytes_move(c->ctx, first->s->device, first->s->data, first->s->device,
                             first->bytes, first->s->nbytes);
  if (status) return status;
  c->resume = 0;
  return c->nsegments ? moth_capture_run_segments(c) : moth_capture_run_each(c, 0, c->ncode);
}

/* Increments the versions of written storages, and sets the gradients that the step leaves. */
static void show(moth_capture *c, bool done) {
  for (uint32_t i = 0; i < c->nwritten; i++) moth_storage_bump(c->written[i]);
  for (uint32_t i = 0; done && i < c->nleaves; i++) {
    const moth_leaf_state *at = &c->leaves[i];
    if (at->leaf->grad != at->after)
      moth_leaf_set(at->leaf, at->after ? moth_tensor_retain(at->after) : NULL);
  }
}

/* Finds the captured step and resolves the inputs. CAPTURE_STALE if they do not fit. */
static int begin_replay(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                        uint32_t ninputs, moth_capture **found, moth_tensor **x) {
  moth_error_clear(ctx);
  moth_settle_lanes(ctx);
  moth_settle_modes(ctx);
  moth_capture *c = *found = find(ctx, capture);
  if (!c) return ctx->error.code;
  if (c->replaying)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a replay of this step is paused in a slice");
  if (ctx->capture)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a replay cannot be part of a recording");
  if (moth_call_log_refuse(ctx, "a captured step cannot be exported")) return ctx->error.code;
  if (ninputs > MAX_REPLAY_INPUTS || ninputs != c->ninputs) return MOTH_CAPTURE_STALE;
  for (uint32_t i = 0; i < ninputs; i++) {
    x[i] = moth_resolve(ctx, &inputs[i], NULL);
    if (!x[i]) return ctx->error.code;
  }
  return is_stale(c, x) ? MOTH_CAPTURE_STALE : MOTH_OK;
}

int32_t moth_capture_fits(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                          uint32_t ninputs) {
  MOTH_NEED(ctx, (inputs || !ninputs), MOTH_E_ARG);
  moth_tensor *x[MAX_REPLAY_INPUTS];
  moth_capture *c;
  return begin_replay(ctx, capture, inputs, ninputs, &c, x);
}

int32_t moth_capture_replay(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                            uint32_t ninputs) {
  MOTH_NEED(ctx, (inputs || !ninputs), MOTH_E_ARG);
  if (moth_sliced(ctx)) return moth_replay_sliced(ctx, capture, inputs, ninputs);
  moth_tensor *x[MAX_REPLAY_INPUTS];
  moth_capture *c;
  int status = begin_replay(ctx, capture, inputs, ninputs, &c, x);
  if (status) return status;
  const uint64_t event =
    ctx->profile ? moth_profile_enter(ctx, MOTH_EVENT_WHOLE, "replay", true) : 0;
  bool mode = ctx->grad_mode;
  ctx->grad_mode = false;
  status = moth_capture_follow_last(c);
  const int device = event && ninputs ? c->inputs[0]->l.device : 0;
  const uint32_t span = device ? moth_profile_device_begin(ctx, device) : 0;
  c->replaying = true;
  if (!status) status = ctx->slice ? copy_pinned(c, x) : copy_inputs(c, x);
  if (span) moth_profile_device_end(ctx, span);
  const uintptr_t before = moth_enter(ctx);
  if (!status) status = run_code(c);
  moth_leave(ctx, before);
  c->replaying = false;
  ctx->grad_mode = mode;
  show(c, status == MOTH_OK);
  if (event) moth_profile_leave(ctx, event, status);
  if (c->doomed) moth_capture_free(ctx, capture);
  return status ? status : moth_due(ctx);
}

int32_t moth_capture_guarded(moth_ctx *ctx, uint32_t capture, uint32_t number) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  const moth_capture *c = find(ctx, capture);
  if (!c) return ctx->error.code;
  for (const moth_guard *guard = c->guards; guard; guard = guard->next)
    if (guard->number == number) return guard->skipped;
  return moth_fail(ctx, MOTH_E_STATE, NULL, "this recording has no such guard");
}

/* -- comparing a replay with the step itself -- */

static int keep_bytes(moth_capture *c, moth_storage *s, bool inside) {
  if (s->root || s->nbytes == 0) return MOTH_OK;
  for (uint32_t i = 0; i < c->ninputs; i++)
    if (c->inputs[i]->storage == s) return MOTH_OK; /* each replay fills them */
  moth_kept *kept = moth_alloc(c->ctx, (int64_t)sizeof *kept + s->nbytes);
  if (!kept) return c->ctx->error.code;
  *kept = (moth_kept){c->kept, s, s->nbytes, inside};
  c->kept = kept;
  return moth_bytes_move(c->ctx, 0, kept + 1, s->device, s->data, s->nbytes);
}

bool moth_capture_comparing(const moth_ctx *ctx) {
  for (const moth_capture *c = ctx->captures; c; c = c->next)
    if (c->comparing) return true;
  return false;
}

int32_t moth_capture_keep(moth_ctx *ctx, uint32_t capture) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_capture *c = find(ctx, capture);
  if (!c) return ctx->error.code;
  drop_kept(c);
  int status = keep_bytes(c, moth_generator_own(ctx)->storage, false);
  for (uint32_t i = 0; !status && i < c->nstores; i++)
    if (c->stores[i].how == MOTH_HELD_COUNTED && c->stores[i].s != ctx->generator->storage)
      status = keep_bytes(c, c->stores[i].s, c->stores[i].inside);
  for (uint32_t i = 0; !status && i < c->nleaves; i++) {
    moth_tensor *grad = c->leaves[i].leaf->grad;
    c->leaves[i].kept = grad ? moth_tensor_retain(grad) : NULL;
  }
  c->comparing = status == MOTH_OK;
  return status;
}

/* Exchanges the kept bytes and the current bytes. */
static int swap_bytes(moth_ctx *ctx, moth_kept *kept) {
  moth_storage *s = kept->s;
  void *now = moth_alloc(ctx, s->nbytes);
  if (!now) return ctx->error.code;
  int status = moth_bytes_move(ctx, 0, now, s->device, s->data, s->nbytes);
  if (!status) status = moth_bytes_move(ctx, s->device, s->data, 0, kept + 1, s->nbytes);
  if (!status) memcpy(kept + 1, now, (size_t)s->nbytes);
  moth_dealloc(ctx, now, s->nbytes);
  moth_storage_bump(s);
  return status;
}

int32_t moth_capture_swap(moth_ctx *ctx, uint32_t capture) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_capture *c = find(ctx, capture);
  int status = c ? MOTH_OK : ctx->error.code;
  if (c) c->comparing = false;
  for (moth_kept *kept = c ? c->kept : NULL; kept && !status; kept = kept->next)
    status = swap_bytes(ctx, kept);
  for (uint32_t i = 0; !status && i < c->nleaves; i++) {
    moth_leaf_state *at = &c->leaves[i];
    moth_tensor *now = at->leaf->grad ? moth_tensor_retain(at->leaf->grad) : NULL;
    moth_leaf_set(at->leaf, at->kept); /* takes the reference */
    at->kept = now;
  }
  return status;
}

/* Returns 1, 0, or a status. */
static int same_bytes(moth_tensor *x, moth_tensor *y) {
  if (!x || !y) return x == y;
  if (moth_sparse(x) != moth_sparse(y)) return 0;
  if (moth_sparse(x)) {
    moth_tensor *v = moth_sparse_values(x), *w = v ? moth_sparse_values(y) : NULL;
    int same = w ? same_bytes(v, w) : x->ctx->error.code;
    moth_tensor_release(v);
    moth_tensor_release(w);
    return same > 0 ? same_bytes(x->rows, y->rows) : same;
  }
  if (x->l.dtype != y->l.dtype || !moth_shape_same(&x->l, &y->l)) return 0;
  moth_tensor *a = moth_to_host(x), *b = a ? moth_to_host(y) : NULL;
  int same = b ? !memcmp(moth_at(a), moth_at(b),
                         (size_t)(x->l.numel * moth_dtype_size[x->l.dtype]))
               : x->ctx->error.code;
  moth_tensor_release(a);
  moth_tensor_release(b);
  return same;
}

/* The same for a storage and its kept bytes. */
static int as_kept(moth_ctx *ctx, const moth_kept *kept) {
  const moth_storage *s = kept->s;
  if (!s->device) return !memcmp(s->data, kept + 1, (size_t)kept->nbytes);
  void *now = moth_alloc(ctx, kept->nbytes);
  int status = now ? moth_bytes_move(ctx, 0, now, s->device, s->data, kept->nbytes)
                   : ctx->error.code;
  int same = status ? status : !memcmp(now, kept + 1, (size_t)kept->nbytes);
  moth_dealloc(ctx, now, kept->nbytes);
  return same;
}

int32_t moth_capture_differs(moth_ctx *ctx, uint32_t capture) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_capture *c = find(ctx, capture);
  if (!c) return ctx->error.code;
  int32_t found = 0, same = 1;
  for (uint32_t i = 0; i < c->nleaves && same > 0; i++) {
    same = same_bytes(c->leaves[i].leaf->grad, c->leaves[i].kept);
    if (same == 0) found = MOTH_CAPTURE_GRADIENT;
  }
  for (moth_kept *kept = c->kept; kept && same > 0; kept = kept->next) {
    if (!kept->inside) same = as_kept(ctx, kept);
    if (same == 0)
      found = kept->s == ctx->generator->storage ? MOTH_CAPTURE_RANDOM : MOTH_CAPTURE_VALUE;
  }
  drop_kept(c);
  return same < 0 ? same : found;
}

int32_t moth_capture_graphs(moth_ctx *ctx, uint32_t capture, int32_t *there, int32_t *here) {
  MOTH_NEED(ctx, there && here, MOTH_E_ARG);
  const moth_capture *c = find(ctx, capture);
  const moth_segment whole = {.last = c ? c->ncode : 0};
  int32_t graphs = 0;
  *there = *here = 0;
  if (!c) return ctx->error.code;
  for (uint32_t i = 0; i < c->nsegments || i == 0; i++) {
    const moth_segment *at = c->nsegments ? &c->segments[i] : &whole;
    if (at->device && !at->failed) {
      graphs++;
      continue;
    }
    for (uint32_t k = at->first; k < at->last; k++) ++*(c->code[k].device ? there : here);
  }
  return graphs;
}

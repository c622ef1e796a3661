/* checkpoint.c -- activation checkpoints: parts of the graph whose nodes save nothing (Chen et al.
** 2016, "Training deep nets with sublinear memory cost").
**
** A checkpoint is a node that no pass walks. It saves the inputs of the call and lists the nodes
** made during the call, its members, in order. When it ends, the members drop the tensors that they
** saved. A backward pass stops at the first member that it reaches. The host then runs the call
** again in a second checkpoint, whose members are counted, and the k-th member of the first run
** gets the saved tensors of the k-th of the second. So the graph is the same as without
** checkpoints, for every walk and every order of differentiation.
**
** Members of the first run are listed but not counted. They remove themselves from the list when
** they are freed, and until then they retain the checkpoint. A nested checkpoint is emptied as
** other nodes are: its inputs are restored when the outer one runs again.
*/
#include "backward_parts.h"
#include "base/coroutine.h"
#include "call/observer.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "call/autocast.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

static moth_checkpoint *checkpoint_of(const moth_node *n) { return n->args; }

moth_node *moth_checkpoint_needed(const moth_node *n) {
  moth_node *at = n->checkpoint;
  while (at->flags & MOTH_N_EMPTIED) at = at->checkpoint;
  return at;
}

/* -- saved tensors -- */

static uint32_t saved_count(const moth_node *n) { return n->nin + n->nsaved + n->nout; }

static void empty(moth_node *n) {
  const uint32_t count = saved_count(n);
  bool any = false;
  for (uint32_t k = 0; k < count; k++) {
    moth_saved *s = moth_node_saved(n, k);
    if (!s->storage) continue;
    moth_storage_release(n->ctx, s->storage);
    s->storage = NULL;
    any = true;
  }
  if (any) n->flags |= MOTH_N_EMPTIED;
  else moth_checkpoint_leave(n);
}

static bool same_shape(const moth_saved *a, const moth_saved *b) {
  return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

static const char *name_of(const moth_node *n) { return n->op ? n->op->name : n->name; }

/* Checks that `again` is the same op as n and has saved tensors of the same shapes and versions. */
static int check_same(const moth_node *n, const moth_node *again) {
  moth_ctx *ctx = n->ctx;
  const uint32_t count = saved_count(n);
  if (!again || again->op != n->op || saved_count(again) != count || again->nin != n->nin ||
      (!n->op && strcmp(n->name, again->name) != 0))
    return moth_fail(ctx, MOTH_E_STATE, NULL,
                     "run again for its gradient, the function called '%s' where it had called "
                     "'%s'", again ? name_of(again) : "nothing", name_of(n));
  for (uint32_t k = 0; k < count; k++) {
    const moth_saved *old = moth_node_saved(n, k), *now = moth_node_saved(again, k);
    if (old->present != 2) continue;
    if (now->present != 2 || !now->storage || now->dtype != old->dtype || !same_shape(now, old))
      return moth_fail(ctx, MOTH_E_STATE, NULL,
                       "run again for its gradient, the function had %s %s at '%s' where it had "
                       "had %s %s", moth_dtype_name(now->dtype),
                       moth_str_shape(ctx, now->ndim, now->dims), name_of(n),
                       moth_dtype_name(old->dtype),
                       moth_str_shape(ctx, old->ndim, old->dims));
    if (now->version != old->version)
      return moth_fail(ctx, MOTH_E_VERSION, NULL,
                       "%s %s, which '%s' needs for its gradient, was changed in place after the "
                       "function ran first", moth_dtype_name(old->dtype),
                       moth_str_shape(ctx, old->ndim, old->dims), name_of(n));
  }
  return MOTH_OK;
}

static void move(moth_node *n, moth_node *again) {
  const uint32_t count = saved_count(n);
  for (uint32_t k = 0; k < count; k++) {
    moth_saved *to = moth_node_saved(n, k), *from = moth_node_saved(again, k);
    if (to->present != 2) continue;
    to->storage = from->storage;
    moth_layout l;
    moth_saved_layout(from, &l);
    moth_saved_set(to, &l);
    from->storage = NULL;
  }
  n->flags &= ~(uint32_t)MOTH_N_EMPTIED;
  moth_checkpoint_leave(n);
}

/* Moves the saved tensors of one checkpoint's members to the members of another checkpoint. */
static int give(const moth_checkpoint *from, const moth_checkpoint *to) {
  const uint32_t n = to->n;
  for (uint32_t i = 0; i < n; i++) {
    if (!to->members[i]) continue;
    int status = check_same(to->members[i], i < from->n ? from->members[i] : NULL);
    if (status) return status;
  }
  for (uint32_t i = 0; i < n; i++)
    if (to->members[i]) move(to->members[i], from->members[i]);
  return MOTH_OK;
}

/* -- begin and end -- */

#define MAX_INPUTS 64

int32_t moth_checkpoint_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                              int32_t kind, uint64_t *id) {
  MOTH_NEED(ctx, (inputs || !ninputs) && id, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x[MAX_INPUTS];
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (ninputs > MAX_INPUTS)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a checkpoint of more than %d tensors",
                     MAX_INPUTS);
  for (uint32_t i = 0; i < ninputs; i++) {
    x[i] = moth_resolve(ctx, &inputs[i], NULL);
    if (!x[i]) return ctx->error.code;
  }
  moth_node *n;
  int status = moth_node_function(ctx, "checkpoint", x, ninputs, x, ninputs, 0,
                                  (int64_t)sizeof(moth_checkpoint), &n);
  if (!n) return status;
  *checkpoint_of(n) = (moth_checkpoint){
      .outer = ctx->checkpoint, .again = kind == MOTH_CHECKPOINT_AGAIN,
      .packs = kind == MOTH_CHECKPOINT_PACKS};
  n->flags |= MOTH_N_CHECKPOINT;
  if (status) {
    moth_node_release(n);
    return status;
  }
  moth_autocast_forget(ctx); /* both runs must make their own casts */
  ctx->checkpoint = n;
  *id = n->id;
  return MOTH_OK;
}

/* Ends the innermost checkpoint. */
static int end(moth_ctx *ctx, int how, moth_task *t) {
  moth_node *n = ctx->checkpoint;
  moth_checkpoint *r = checkpoint_of(n);
  int status = MOTH_OK;
  moth_autocast_forget(ctx);
  ctx->checkpoint = r->outer;
  if (how == MOTH_CHECKPOINT_GIVE) {
    moth_node *to = moth_node_retain(moth_checkpoint_needed(t->current.node));
    status = give(r, checkpoint_of(to));
    moth_node_release(to);
  }
  for (uint32_t i = r->packs ? 0 : r->n; i-- > 0;) { /* packed members stay in the list */
    if (!r->members[i]) continue;
    if (how == MOTH_CHECKPOINT_EMPTY) empty(r->members[i]);
    else moth_checkpoint_leave(r->members[i]);
  }
  moth_node_release(n);
  return status;
}

int32_t moth_checkpoint_end(moth_ctx *ctx, uint64_t id, int32_t how, uint32_t task) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_node *n = ctx->checkpoint;
  moth_task *t = NULL;
  int status = MOTH_OK;
  if (how != MOTH_CHECKPOINT_DROP) moth_error_clear(ctx);
  moth_error_blame(ctx, "checkpoint");
  while (n && n->id != id && (id || checkpoint_of(n)->outer)) n = checkpoint_of(n)->outer;
  if (!n) return moth_fail(ctx, MOTH_E_STATE, NULL, "this checkpoint has ended");
  if (how == MOTH_CHECKPOINT_GIVE) {
    t = moth_task_find(ctx, task);
    if (t && !(t->stopped && t->current.node->flags & MOTH_N_EMPTIED)) t = NULL;
    if (!t)
      status = moth_fail(ctx, MOTH_E_STATE, NULL, "no backward pass waits for this checkpoint");
  }
  while (ctx->checkpoint != n) end(ctx, MOTH_CHECKPOINT_DROP, NULL);
  int ended = end(ctx, status ? MOTH_CHECKPOINT_DROP : how, t);
  return status ? status : ended;
}

/* -- packed tensors: the host stores the saved tensors of a checkpoint's members in its own form.
** No call runs again: a pass stops at such a member, and the host puts the tensors back. -- */

/* Takes the next saved tensor, from *slot on, out of member n. Returns NULL if there is none. */
static moth_tensor *take_saved(moth_node *n, uint32_t *slot) {
  const uint32_t count = saved_count(n);
  for (; *slot < count; ++*slot) {
    moth_saved *s = moth_node_saved(n, *slot);
    if (!s->storage) continue;
    moth_tensor *x = moth_saved_open(n, s, "saved_tensors_hooks");
    if (!x) return NULL;
    moth_storage_release(n->ctx, s->storage);
    s->storage = NULL;
    n->flags |= MOTH_N_EMPTIED | MOTH_N_PACKED | MOTH_N_KNOWN;
    return x;
  }
  return NULL;
}

int32_t moth_checkpoint_pack(moth_ctx *ctx, uint64_t id, uint64_t *node, uint32_t *slot,
                             moth_handle *x) {
  MOTH_NEED(ctx, node && slot && x, MOTH_E_ARG);
  moth_error_clear(ctx);
  *x = (moth_handle){0, 0};
  moth_node *at = ctx->checkpoint;
  while (at && at->id != id) at = checkpoint_of(at)->outer;
  if (!at) return MOTH_OK;
  moth_checkpoint *r = checkpoint_of(at);
  for (; r->packed < r->n; r->packed++, r->slot = 0) {
    moth_node *n = r->members[r->packed];
    if (!n) continue;
    moth_tensor *y = take_saved(n, &r->slot);
    if (y) {
      *node = n->id;
      *slot = r->slot++;
      return moth_hand_out(ctx, y, x);
    }
    if (ctx->error.code) return ctx->error.code;
    if (!(n->flags & MOTH_N_EMPTIED)) moth_checkpoint_leave(n);
  }
  return MOTH_OK;
}

/* The node whose packed tensors a pass needs: the current node, or its outer checkpoint. */
static moth_node *packed_node(moth_ctx *ctx, uint32_t task) {
  moth_task *t = moth_task_find(ctx, task);
  moth_node *n = t && t->stopped ? t->current.node : NULL;
  if (n && !(n->flags & MOTH_N_EMPTIED)) n = NULL;
  while (n && n->checkpoint->flags & MOTH_N_EMPTIED) n = n->checkpoint;
  if (!n || !checkpoint_of(n->checkpoint)->packs) {
    moth_fail(ctx, MOTH_E_STATE, NULL, "no backward pass waits for saved tensors");
    return NULL;
  }
  return n;
}

int32_t moth_task_packed(moth_ctx *ctx, uint32_t task, uint64_t *node) {
  MOTH_NEED(ctx, node, MOTH_E_ARG);
  moth_error_clear(ctx);
  const moth_node *n = packed_node(ctx, task);
  if (!n) return ctx->error.code;
  *node = n->id;
  return MOTH_OK;
}

int32_t moth_task_unpack(moth_ctx *ctx, uint32_t task, uint32_t slot, const moth_handle *x) {
  MOTH_NEED(ctx, x, MOTH_E_ARG);
  moth_error_clear(ctx);
  moth_node *n = packed_node(ctx, task);
  moth_tensor *y = n ? moth_resolve(ctx, x, NULL) : NULL;
  if (!y) return ctx->error.code;
  moth_saved *s = slot < saved_count(n) ? moth_node_saved(n, slot) : NULL;
  if (!s || s->present != 2 || s->storage)
    return moth_fail(ctx, MOTH_E_ARG, NULL, "no packed tensor %u", slot);
  moth_layout l;
  moth_saved_layout(s, &l);
  if (y->l.dtype != l.dtype || y->l.device != l.device || !moth_shape_same(&y->l, &l))
    return moth_fail(ctx, MOTH_E_SHAPE, NULL, "the unpack hook returned %s where %s %s was saved",
                     moth_str(y), moth_dtype_name(l.dtype), moth_str_shape(ctx, l.ndim, l.shape));
  const int16_t from = s->from; /* keeps the source of its history */
  moth_save(s, y, true);
  s->from = from;
  for (uint32_t k = 0; k < saved_count(n); k++)
    if (moth_node_saved(n, k)->present == 2 && !moth_node_saved(n, k)->storage) return MOTH_OK;
  n->flags &= ~(uint32_t)MOTH_N_EMPTIED;
  return MOTH_OK;
}

void moth_checkpoint_repack(moth_node *n) {
  for (uint32_t k = 0; k < saved_count(n); k++) {
    moth_saved *s = moth_node_saved(n, k);
    if (s->present != 2) continue;
    moth_storage_release(n->ctx, s->storage);
    s->storage = NULL;
  }
  n->flags |= MOTH_N_EMPTIED;
}

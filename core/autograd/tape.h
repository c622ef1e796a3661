/* tape.h -- the graph that a backward pass walks.
**
** A node is what one recorded op leaves behind: its arguments as (storage, layout, version), the
** edges to what made them, and the op whose gradient runs. An output owns its node, a node its
** saved bytes and edges; there is no global tape. Ids grow, and a node's edges lead to smaller
** ids, so walking by falling id is a topological order.
**
** Writing in place. A tensor's history is (node, output). In place on a tensor that is no view,
** the new node takes the old history as its input and becomes the tensor's history. Through a
** view v of base b, two nodes are made: the op's on v, and `strided_put` which puts v's new value
** into b's; b's epoch grows, and v and every other view of b whose base_epoch is behind gets a
** fresh `strided_get` of b when its history is next asked for (moth_edge_of).
*/
#ifndef MOTH_TAPE_H
#define MOTH_TAPE_H

#include "base/context.h"
#include "call/op.h"

typedef struct moth_task moth_task;

typedef struct moth_edge {
  moth_node *node; /* counted; NULL: no gradient goes this way */
  uint32_t output;
} moth_edge;

/* A tensor that a node saved. Its layout takes no more than its dimensions need: recorded ops are
** slower the more memory their nodes fill. */
typedef struct moth_saved {
  moth_storage *storage; /* counted; NULL: only the layout was saved, or no tensor was given */
  uint32_t version;
  uint8_t present; /* 0: no tensor was given; 1: its layout; 2: its bytes too */
  int16_t from;    /* what a Function saved: its input from - 1, its output -from - 1, 0 neither */
  int32_t ndim;
  uint8_t dtype, device, index_base;
  int64_t numel, offset;
  int64_t dims[]; /* the sizes, then the strides */
} moth_saved;

enum { MOTH_N_LEAF = 1, MOTH_N_LUA = 2, MOTH_N_HOOKED = 4, MOTH_N_KNOWN = 8, MOTH_N_RELEASED = 16,
       MOTH_N_YOUNG = 32, /* of a tensor that was made in the recording that made this leaf */
       MOTH_N_CHECKPOINT = 64, /* represents a checkpoint; no pass walks it */
       MOTH_N_EMPTIED = 128, /* what it saved comes back when its checkpoint is run again */
       MOTH_N_SEEN = 256, MOTH_N_USEFUL = 512, /* while requested_inputs.c looks */
       MOTH_N_PACKED = 1024, /* the host has what it saved, in a form of its own (checkpoint.c) */
       MOTH_N_AFTER = 2048 /* a pass stops once its gradients are known: hooks of the host */ };

struct moth_node {
  uint32_t refs, flags;
  uint64_t id;
  moth_ctx *ctx;
  const moth_op *op;      /* NULL for leaves and Lua's Functions */
  char *name;             /* a Function's, owned */
  void *args;             /* the op's arguments; tensor fields are not used, lists are owned */
  uint32_t nin, nout, nsaved;
  uint32_t room;          /* bytes of each moth_saved */
  moth_edge *edges;       /* nin */
  char *saved;            /* nin + nsaved + nout of moth_saved, see moth_node_in */
  moth_node **retains;    /* nout leaves that gather .grad of results, or NULL */
  moth_tensor *grad;      /* of a leaf */
  moth_node *next_dead;
  union {
    struct {
      moth_node *next, *prev; /* of the context's leaves, while this one has a grad */
    };
    struct { /* not of leaves: */
      moth_node *checkpoint;      /* counted; the one it was made in, see checkpoint.c, or NULL */
      uint64_t place;         /* how many were made before it there */
    };
  };
  uint32_t task, entry;   /* where the last task that met it keeps its gradients */
  int64_t bytes;          /* of this block */
};

/* -- nodes (node.c) -- */

/* What a node saved: its inputs, then a Function's nsaved more; its results. Of a leaf the result
** says what its gradient must look like. */
static inline moth_saved *moth_node_saved(const moth_node *n, uint32_t k) {
  return (moth_saved *)(void *)(n->saved + (size_t)k * n->room);
}
static inline moth_saved *moth_node_in(const moth_node *n, uint32_t i) {
  return moth_node_saved(n, i);
}
static inline moth_saved *moth_node_out(const moth_node *n, uint32_t i) {
  return moth_node_saved(n, n->nin + n->nsaved + i);
}

/* Tied to nothing; nargs bytes of args are not filled. What it saves has `ndim` dimensions at most.
** NULL: error set. */
moth_node *moth_node_new(moth_ctx *ctx, uint32_t nin, uint32_t nsaved, uint32_t nout, int32_t ndim,
                         int64_t nargs);
static inline moth_node *moth_node_retain(moth_node *n) {
  n->refs++;
  return n;
}
void moth_node_end(moth_node *n); /* which nobody refers to any more */
static inline void moth_node_release(moth_node *n) { /* iterative: a chain of any length */
  if (n && --n->refs == 0) moth_node_end(n);
}
/* Frees what a node saved; a second backward through it is then an error. */
void moth_node_forget(moth_node *n);

/* The history of x as an edge (borrowed node); made again first if x is a view that fell behind.
** The node is NULL if x needs no gradient. */
int moth_edge_of(moth_tensor *x, moth_edge *edge);
/* x is output `output` of the node `take` (counted) from now on. */
void moth_history_set(moth_tensor *x, moth_node *take, uint32_t output);
/* A view that fell behind goes by its base, which is no view. */
static inline bool moth_needs_grad(const moth_tensor *x) {
  const moth_tensor *base = moth_base(x);
  if (base && x->base_epoch != base->epoch) x = base;
  return x->node || (x->flags & MOTH_T_REQUIRES);
}
moth_node *moth_leaf_of(moth_tensor *x); /* where its .grad gathers; borrowed */
void moth_leaf_set(moth_node *leaf, moth_tensor *take); /* its .grad; NULL clears it */

/* Records op(args) = out if grad mode is on and an input needs it. */
int moth_record(const moth_op *op, const void *args, moth_tensor **out);

/* An in-place write under way. Its nodes are made before the kernel runs, so that nothing can fail
** once bytes have changed: plan, run, then done or drop. */
typedef struct moth_write {
  moth_node *node; /* the op's, owned; NULL: nothing is recorded */
  moth_node *put;  /* for a view: what puts its value into the base, owned */
  uint32_t output; /* which result of node the target becomes */
  bool keeps;      /* the gradient reads the result */
} moth_write;
/* Plans to make `output` of node (taken) the value of target. */
int moth_write_plan(moth_tensor *target, moth_node *take, uint32_t output, moth_write *w);
/* The same for op(args) written into its first input; `before` is the target's value from before
** if the gradient reads that, else NULL. */
int moth_record_write(const moth_op *op, const void *args, moth_tensor *target,
                      moth_tensor *before, moth_write *w);
void moth_write_done(moth_tensor *target, moth_write *w); /* rewrites the histories */
void moth_write_drop(moth_write *w);
/* The node of a Function of Lua's, with room for nargs bytes: in *made also after an error. */
int moth_node_function(moth_ctx *ctx, const char *name, moth_tensor **in, uint32_t nin,
                       moth_tensor **saved, uint32_t nsaved, uint32_t nout, int64_t nargs,
                       moth_node **made);
/* Without edges; what it saves has `ndim` dimensions at most, or as many as an argument. NULL: an
** error is set. */
moth_node *moth_node_for(const moth_op *op, const void *args, int32_t ndim);
/* A node for op(args) with these edges, when nothing ran: for histories that are rewritten. */
moth_node *moth_node_of(const moth_op *op, const void *args, const moth_edge *edges,
                        const moth_layout *out);
/* Whether op(args) would be recorded. */
bool moth_records(const moth_op *op, const void *args);
/* Before an in-place write: is it allowed? */
int moth_check_write(moth_tensor *target, const char *arg, bool recorded);
/* Whether x may become a view of itself, `t_` and the like; with other elements of its storage if
** `other`. Brings its history up to date. */
int moth_check_become(moth_tensor *x, const char *arg, bool other);
/* x takes the layout and the history of y, a view of it. */
void moth_become_view(moth_tensor *x, moth_tensor *y);

/* Visits the tensor arguments of an args struct in order, lists element by element: inputs. The
** cursor starts as {op, args}; next returns false at the end. */
typedef struct moth_cursor {
  const moth_op *op;
  void *args;
  uint32_t next;     /* of op->inputs: where to look next */
  int64_t item;
  uint32_t count;    /* inputs seen */
  moth_tensor **at;  /* the input: where its pointer lies, */
  uint32_t arg;      /* its number among the inputs, */
  uint32_t from;     /* the row it belongs to, */
  bool value;        /* and whether the record governs its dtype */
} moth_cursor;

static inline bool moth_next_input(moth_cursor *c) {
  for (; c->next < c->op->ninputs; c->next++, c->item = 0) {
    const moth_input in = c->op->inputs[c->next];
    void *slot = (char *)c->args + sizeof(moth_ctx *) + in.slot * sizeof(moth_slot);
    c->at = slot;
    c->from = in.row;
    c->value = in.value;
    if (in.list) {
      const moth_tensors *list = slot;
      if (c->item >= list->n) continue;
      c->at = &list->at[c->item++];
    } else {
      c->next++;
    }
    c->arg = c->count++;
    return true;
  }
  return false;
}

/* -- checkpoints: node.c keeps the lists, checkpoint.c says what they are for -- */

typedef struct moth_checkpoint { /* args of a node with MOTH_N_CHECKPOINT */
  moth_node *outer;    /* under way around it, counted; matters until it ends */
  moth_node **members; /* NULL: gone, or has all it saved */
  uint32_t n, room;
  bool again;          /* run again: members are counted */
  bool packs;          /* the host packs what members save, one after the other: */
  uint32_t packed, slot; /* the member and the saved tensor that come next */
} moth_checkpoint;
void moth_checkpoint_repack(moth_node *n); /* n has run; its tensors stay packed for a next pass */
void moth_checkpoint_leave(moth_node *n); /* it needs nothing of its checkpoint any more */

/* The checkpoint that is to run again so that an emptied node, or one around it, has what it saved;
** borrowed. */
moth_node *moth_checkpoint_needed(const moth_node *n);

/* -- gradients (gradient.c) and passes within the graph (backward.c) -- */

/* Runs the gradient of n in a backward pass. dys are the gradients of its results; dxs (nin,
** zeroed) receives owned tensors where an edge leads on. Recorded if grad mode is on. */
int moth_node_run(moth_node *n, moth_task *task, moth_tensor **dys, moth_tensor **dxs);
/* Runs an op of a backward pass. */
int moth_run_gradient(const moth_op *op, const void *args, moth_tensor **out);
/* The gradients of roots, which arrived as dys (NULL: none), towards inputs, all in the graph and
** recorded. What made the inputs is left out, so ends of a graph must be made before the rest of it
** and after all else. dxs (ninputs) receives owned tensors, NULL where none arrived. */
int moth_gradients(moth_ctx *ctx, moth_tensor *const *roots, moth_tensor *const *dys,
                   uint32_t nroots, moth_tensor *const *inputs, uint32_t ninputs,
                   moth_tensor **dxs);

/* -- what a node saves (node.c) -- */

void moth_save(moth_saved *s, const moth_tensor *x, bool bytes); /* or the layout alone */
void moth_saved_set(moth_saved *s, const moth_layout *l);
void moth_saved_layout(const moth_saved *s, moth_layout *l);
/* A tensor over saved bytes, after the version check; what names it in the error. */
moth_tensor *moth_saved_open(moth_node *n, const moth_saved *s, const char *what);
/* Gives an opened tensor its history again: a leaf, or a node's output. */
void moth_saved_tie(moth_tensor *x, moth_node *history, uint32_t output);

void moth_tasks_free(moth_ctx *ctx); /* every backward pass under way */

#endif

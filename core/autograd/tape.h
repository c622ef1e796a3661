/* tape.h -- the graph for backward passes.
**
** A node records one op: its arguments as (storage, layout, version), edges to the nodes that made
** them, and the op, whose gradient a pass runs. A result owns its node, and a node owns its saved
** bytes and its edges; there is no global tape. Ids ascend, and the edges of a node lead to smaller
** ids, so descending ids are a topological order.
**
** In-place writes. The history of a tensor is (node, output). For a tensor that is not a view, the
** new node has the old history as its input and becomes the tensor's history. A write through a
** view v of a base b makes two nodes: the op's node on v, and a `strided_put` that puts v's new
** value into b's. b's epoch is incremented. v and every other view of b with an older base_epoch is
** outdated: it gets a new `strided_get` of b when its history is next read (moth_edge_of).
*/
#ifndef MOTH_TAPE_H
#define MOTH_TAPE_H

#include "base/context.h"
#include "call/op.h"

typedef struct moth_task moth_task;

typedef struct moth_edge {
  moth_node *node; /* one reference; NULL: no gradient needed */
  uint32_t output;
} moth_edge;

/* A tensor that a node saved. The struct has only as many sizes and strides as the tensor, because
** recorded ops are slower if nodes take more memory. */
typedef struct moth_saved {
  moth_storage *storage; /* one reference; NULL: layout only, or absent tensor */
  uint32_t version;
  uint8_t present; /* 0: absent; 1: layout saved; 2: bytes saved too */
  int16_t from;    /* in a Function: its input from - 1, its output -from - 1; 0: neither */
  int32_t ndim;
  uint8_t dtype, device, index_base;
  int64_t numel, offset;
  int64_t dims[]; /* the sizes, then the strides */
} moth_saved;

enum { MOTH_N_LEAF = 1, MOTH_N_LUA = 2, MOTH_N_HOOKED = 4, MOTH_N_KNOWN = 8, MOTH_N_RELEASED = 16,
       MOTH_N_YOUNG = 32, /* leaf of a tensor made in the running capture */
       MOTH_N_CHECKPOINT = 64, /* represents a checkpoint; no pass walks it */
       MOTH_N_EMPTIED = 128, /* its saved tensors are restored when its checkpoint runs again */
       MOTH_N_SEEN = 256, MOTH_N_USEFUL = 512, /* used in reached_nodes.c */
       MOTH_N_PACKED = 1024, /* the host stores its saved tensors in its own form (checkpoint.c) */
       MOTH_N_AFTER = 2048 /* a pass stops after its gradients: hooks of the host */ };

struct moth_node {
  uint32_t refs, flags;
  uint64_t id;
  moth_ctx *ctx;
  const moth_op *op;      /* NULL for leaves and Functions of Lua */
  char *name;             /* a Function's, owned */
  void *args;             /* the op's arguments; tensor fields are unused, lists owned */
  uint32_t nin, nout, nsaved;
  uint32_t saved_size;    /* bytes of each moth_saved */
  moth_edge *edges;       /* nin edges */
  char *saved;            /* nin + nsaved + nout structs moth_saved, see moth_node_in */
  moth_node **retains;    /* nout leaves with the .grad of results, or NULL */
  moth_tensor *grad;      /* for a leaf */
  moth_node *next_dead;
  union {
    struct {
      moth_node *next, *prev; /* the context's leaves that have a grad */
    };
    struct { /* for other nodes: */
      moth_node *checkpoint;      /* whose call made the node, or NULL; one reference */
      uint64_t place;         /* its index among the members */
    };
  };
  uint32_t task, entry;   /* the last task that reached the node, and its entry there */
  int64_t bytes;          /* of this memory block */
};

/* -- nodes (node.c) -- */

/* The saved tensors of a node: its inputs, the nsaved others of a Function, its results. The result
** of a leaf is the layout of its gradient. */
static inline moth_saved *moth_node_saved(const moth_node *n, uint32_t k) {
  return (moth_saved *)(void *)(n->saved + (size_t)k * n->saved_size);
}
static inline moth_saved *moth_node_in(const moth_node *n, uint32_t i) {
  return moth_node_saved(n, i);
}
static inline moth_saved *moth_node_out(const moth_node *n, uint32_t i) {
  return moth_node_saved(n, n->nin + n->nsaved + i);
}

/* Makes a node without edges, with nargs uninitialized bytes of args. Its saved tensors have at
** most `ndim` dimensions. Returns NULL with the error set. */
moth_node *moth_node_new(moth_ctx *ctx, uint32_t nin, uint32_t nsaved, uint32_t nout, int32_t ndim,
                         int64_t nargs);
static inline moth_node *moth_node_retain(moth_node *n) {
  n->refs++;
  return n;
}
void moth_node_end(moth_node *n); /* frees a node without references */
static inline void moth_node_release(moth_node *n) { /* without recursion: for long chains */
  if (n && --n->refs == 0) moth_node_end(n);
}
/* Frees the saved tensors of a node. A second backward through it is then an error. */
void moth_node_forget(moth_node *n);

/* The history of x as an edge; the node is borrowed. Updates it first if x is an outdated view. The
** node is NULL if x needs no gradient. */
int moth_edge_of(moth_tensor *x, moth_edge *edge);
/* Sets the history of x: result `output` of the node `take` (counted). */
void moth_history_set(moth_tensor *x, moth_node *take, uint32_t output);
/* For an outdated view checks its base, which is not a view. */
static inline bool moth_needs_grad(const moth_tensor *x) {
  const moth_tensor *base = moth_base(x);
  if (base && x->base_epoch != base->epoch) x = base;
  return x->node || (x->flags & MOTH_T_REQUIRES);
}
moth_node *moth_leaf_of(moth_tensor *x); /* the node that holds its .grad; borrowed */
void moth_leaf_set(moth_node *leaf, moth_tensor *take); /* sets its .grad; NULL clears it */

/* Records op(args) = out if grad mode is on and an input needs it. */
int moth_record(const moth_op *op, const void *args, moth_tensor **out);

/* A running in-place write. Its nodes are made before the kernel runs, so that nothing can fail
** after bytes have changed. Call plan, run the kernel, then call done or drop. */
typedef struct moth_write {
  moth_node *node; /* the op's node, owned; NULL: the write is not recorded */
  moth_node *put;  /* for a view: the node that puts its value into the base, owned */
  uint32_t output; /* the number of the target among the results of node */
  bool keeps;      /* the gradient reads the result */
} moth_write;
/* Plans the write whose value is `output` of node `take`, which it takes. */
int moth_write_plan(moth_tensor *target, moth_node *take, uint32_t output, moth_write *w);
/* Plans the write of op(args) into its first input. `before`: the old value of the target if the
** gradient reads it, else NULL. */
int moth_record_write(const moth_op *op, const void *args, moth_tensor *target,
                      moth_tensor *before, moth_write *w);
void moth_write_done(moth_tensor *target, moth_write *w); /* changes the histories */
void moth_write_drop(moth_write *w);
/* Makes the node of a Function of Lua with nargs bytes of args. *made is set even after an
** error. */
int moth_node_function(moth_ctx *ctx, const char *name, moth_tensor **in, uint32_t nin,
                       moth_tensor **saved, uint32_t nsaved, uint32_t nout, int64_t nargs,
                       moth_node **made);
/* Makes a node without edges. Its saved tensors have at most `ndim` dimensions, or those of an
** argument. Returns NULL with the error set. */
moth_node *moth_node_for(const moth_op *op, const void *args, int32_t ndim);
/* Makes a node for op(args) with these edges without running the op, for changed histories. */
moth_node *moth_node_of(const moth_op *op, const void *args, const moth_edge *edges,
                        const moth_layout *out);
/* Would op(args) be recorded? */
bool moth_records(const moth_op *op, const void *args);
/* Checks that an in-place write is allowed. */
int moth_check_write(moth_tensor *target, const char *arg, bool recorded);
/* Checks that x may become a view of itself, as in `t_`; `other`: with other elements of its
** storage. Updates its history. */
int moth_check_become(moth_tensor *x, const char *arg, bool other);
/* Gives x the layout and the history of y, a view of it. */
void moth_become_view(moth_tensor *x, moth_tensor *y);

/* Visits the tensor arguments of an args struct, including the elements of lists, in order. These
** are the inputs. The cursor starts as {op, args}. next returns false at the end. */
typedef struct moth_cursor {
  const moth_op *op;
  void *args;
  uint32_t next;     /* index in op->inputs of the next */
  int64_t item;
  uint32_t count;    /* inputs visited */
  moth_tensor **at;  /* address of the input's pointer */
  uint32_t arg;      /* its number among the inputs */
  uint32_t from;     /* its row */
  bool value;        /* does the record's `dtypes` apply to it? */
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

/* -- checkpoints: node.c updates the lists, checkpoint.c explains them -- */

typedef struct moth_checkpoint { /* args of a node with MOTH_N_CHECKPOINT */
  moth_node *outer;    /* the enclosing checkpoint, one reference; set until this checkpoint ends */
  moth_node **members; /* NULL: freed, or not emptied */
  uint32_t n, capacity;
  bool again;          /* the second run: members are counted */
  bool packs;          /* the host packs the saved tensors in order: */
  uint32_t packed, slot; /* the next member and its next saved tensor */
} moth_checkpoint;
void moth_checkpoint_repack(moth_node *n); /* keeps n's tensors packed after it ran */
void moth_checkpoint_leave(moth_node *n); /* n no longer needs its checkpoint */

/* The checkpoint that must run again to restore an emptied node: the innermost one that is not
** itself emptied. Borrowed. */
moth_node *moth_checkpoint_needed(const moth_node *n);

/* -- gradients (node_gradient.c) and passes within the graph (backward.c) -- */

/* Runs the gradient of n in a backward pass. dys are the gradients of its results. Fills dxs (nin,
** zeroed) with owned tensors for inputs with an edge. Recorded if grad mode is on. */
int moth_node_run(moth_node *n, moth_task *task, moth_tensor **dys, moth_tensor **dxs);
/* Runs an op of a backward pass. */
int moth_run_gradient(const moth_op *op, const void *args, moth_tensor **out);
/* Computes the gradients of inputs from the gradients dys of the roots (NULL: none), all within
** the graph and recorded. The walk does not go past the inputs, so inputs must be made before
** the other nodes of that part of the graph. dxs (ninputs) receives owned tensors, NULL where
** none arrived. */
int moth_gradients(moth_ctx *ctx, moth_tensor *const *roots, moth_tensor *const *dys,
                   uint32_t nroots, moth_tensor *const *inputs, uint32_t ninputs,
                   moth_tensor **dxs);

/* -- saved tensors (node.c) -- */

void moth_save(moth_saved *s, const moth_tensor *x, bool bytes); /* false: layout only */
void moth_saved_set(moth_saved *s, const moth_layout *l);
void moth_saved_layout(const moth_saved *s, moth_layout *l);
/* Makes a tensor over saved bytes after the version check. `what` names it in the error. */
moth_tensor *moth_saved_open(moth_node *n, const moth_saved *s, const char *what);
/* Restores the history of an opened tensor: a leaf, or a result of a node. */
void moth_saved_tie(moth_tensor *x, moth_node *history, uint32_t output);

void moth_tasks_free(moth_ctx *ctx); /* frees every backward pass of the context */

#endif

/* types.h -- what a tensor is: a layout (shape, strides, dtype) over a refcounted storage.
**
** A view shares its source's storage and remembers the one tensor (its base) whose history a write
** through it must rewrite; tape.h says how.
*/
#ifndef MOTH_TYPES_H
#define MOTH_TYPES_H

#include "dtype.h"

#define MOTH_MAX_DIMS 8

typedef struct moth_node moth_node;
typedef struct moth_tensor moth_tensor;
typedef struct moth_storage moth_storage;
typedef struct moth_devices moth_devices;

typedef struct moth_ints { /* a borrowed list of integers; at == NULL when it was not given */
  const int64_t *at;
  int64_t n;
} moth_ints;

typedef struct moth_floats { /* the same of numbers */
  const double *at;
  int64_t n;
} moth_floats;

typedef struct moth_tensors { /* a borrowed list of tensors */
  moth_tensor **at;
  int64_t n;
} moth_tensors;

typedef struct moth_layout {
  int32_t ndim;
  uint8_t dtype, device;
  uint8_t index_base; /* of positions: what the first is called, 0, or 1 (position.c) */
  int64_t numel;
  int64_t offset; /* in elements, like the strides */
  int64_t shape[MOTH_MAX_DIMS];
  int64_t stride[MOTH_MAX_DIMS];
} moth_layout;

/* What holds of ndim dimensions; a few more where that makes the sizes known. Of a tensor these few
** are in the first three lines of the cache. */
static inline void moth_layout_copy(moth_layout *to, const moth_layout *from) {
  enum { FEW = 3 };
  memcpy(to, from, offsetof(moth_layout, shape));
  memcpy(to->shape, from->shape, FEW * sizeof(int64_t));
  memcpy(to->stride, from->stride, FEW * sizeof(int64_t));
  if (from->ndim <= FEW) return;
  memcpy(to->shape + FEW, from->shape + FEW, (MOTH_MAX_DIMS - FEW) * sizeof(int64_t));
  memcpy(to->stride + FEW, from->stride + FEW, (MOTH_MAX_DIMS - FEW) * sizeof(int64_t));
}

/* Bytes, counted. An alias is a storage with a version of its own over another one's bytes: that
** is what `.data` gives. Once shared (a token was made), refs and version are atomic. */
struct moth_storage {
  uint32_t refs;
  uint32_t version;
  bool shared;       /* counted atomically */
  bool foreign : 1;  /* bytes belong to `deleter`, if there is one, and are not counted */
  bool received : 1; /* another context allocated its block */
  bool stands : 1;   /* without bytes, for `owner`: a stream, an event or workers of one context */
  uint8_t device;    /* whose address `data` is */
  uint8_t held;      /* what the recording `capture` knows of it: capture_parts.h */
  uint32_t capture;  /* the last recording that met it; 0: none */
  char *data;
  int64_t nbytes;
  moth_storage *root; /* whose bytes these are; NULL: its own */
  void (*deleter)(void *);
  void *owner; /* what the deleter gets, or the plugin that the bytes are from */
  uint64_t id;
};

enum {                     /* moth_tensor.flags */
  MOTH_T_REQUIRES = 1,     /* a leaf that needs a gradient */
  MOTH_T_NUMBER = 2,       /* a Lua number as operand: never decides a dtype within its category */
  MOTH_T_WHOLE = 4,        /* ... and it has no fraction */
  MOTH_T_NO_GRAD_VIEW = 8, /* a view made under no_grad */
  MOTH_T_MULTI_VIEW = 16,  /* from an op with several views: unbind, split, chunk */
  MOTH_T_FUNCTION = 32,    /* an output of a Lua Function */
  MOTH_T_IS_GRAD = 64,     /* some leaf's .grad: outlives scopes */
  MOTH_T_SPARSE = 128,     /* holds some of its rows: see sparse.h */
  MOTH_T_COALESCED = 256,  /* ... each of them once, in order */
  MOTH_T_SHAPELESS = 512,  /* waits for its shape and values: nothing but moth_become takes it */
  MOTH_T_LINES = 1024      /* a user's sequences, as images of height one: texts leave that out */
};

struct moth_tensor { /* what every call reads stands first: two or three lines of the cache */
  uint32_t refs;
  uint32_t slot; /* its handle's, 0: none */
  uint32_t flags;
  uint32_t arg;  /* while a gradient runs: which input of the node it stands for */
  moth_ctx *ctx;
  moth_storage *storage; /* NULL while a gradient runs, if only the layout was saved */
  moth_node *node;       /* what made it (counted), NULL for leaves */
  moth_node *leaf;       /* where its .grad gathers (counted); NULL until needed */
  moth_tensor *base;     /* for views: the tensor it is a view of (counted) */
  uint32_t output;       /* which of the node's outputs it is */
  uint32_t epoch;        /* grows when an in-place write rewrites its history */
  uint32_t base_epoch;   /* the base's epoch when this view's node was made */
  uint32_t capture;      /* the recording that it was made in, 0: none */
  moth_tensor *rows;     /* of a sparse tensor (counted): which its storage holds */
  moth_layout l;
};

/* The tensor that x is a view of, or NULL. Where either was given other data since (`x.data = v`),
** they share no bytes any more and x stands for itself. */
static inline moth_tensor *moth_base(const moth_tensor *x) {
  return x->base && x->base->storage == x->storage ? x->base : NULL;
}

static inline uint32_t moth_storage_version(const moth_storage *s) {
  return s->shared ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : s->version;
}
/* After a write in place. */
static inline void moth_storage_bump(moth_storage *s) {
  if (s->shared) __atomic_add_fetch(&s->version, 1, __ATOMIC_ACQ_REL);
  else s->version++;
}

/* A growing list of owned tensors, for ops whose number of results depends on the arguments. */
typedef struct moth_results {
  moth_ctx *ctx;
  moth_tensor **at;
  uint32_t n, room;
} moth_results;

#endif

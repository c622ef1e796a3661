/* types.h -- a tensor: a layout (shape, strides, dtype) over a storage with a reference count.
**
** A view shares the storage of its source. It refers to one tensor, its base, whose history must
** change when the view is written (tape.h).
*/
#ifndef MOTH_TYPES_H
#define MOTH_TYPES_H

#include "dtype.h"

#define MOTH_MAX_DIMS 8

typedef struct moth_node moth_node;
typedef struct moth_tensor moth_tensor;
typedef struct moth_storage moth_storage;
typedef struct moth_devices moth_devices;

typedef struct moth_ints { /* a borrowed list of integers; at == NULL: absent */
  const int64_t *at;
  int64_t n;
} moth_ints;

typedef struct moth_floats { /* a borrowed list of numbers */
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
  uint8_t index_base; /* for positions: 0 or 1 is the first (position.c) */
  int64_t numel;
  int64_t offset; /* in elements, as the strides */
  int64_t shape[MOTH_MAX_DIMS];
  int64_t stride[MOTH_MAX_DIMS];
} moth_layout;

/* Copies the parts for ndim dimensions, and a few more if the compiler then knows the sizes. In a
** tensor these parts are in the first three cache lines. */
static inline void moth_layout_copy(moth_layout *to, const moth_layout *from) {
  enum { FEW = 3 };
  memcpy(to, from, offsetof(moth_layout, shape));
  memcpy(to->shape, from->shape, FEW * sizeof(int64_t));
  memcpy(to->stride, from->stride, FEW * sizeof(int64_t));
  if (from->ndim <= FEW) return;
  memcpy(to->shape + FEW, from->shape + FEW, (MOTH_MAX_DIMS - FEW) * sizeof(int64_t));
  memcpy(to->stride + FEW, from->stride + FEW, (MOTH_MAX_DIMS - FEW) * sizeof(int64_t));
}

/* Bytes with a reference count. An alias (from `.data`) is a storage with its own version over the
** bytes of another. After a token was made (shared), refs and version are atomic. */
struct moth_storage {
  uint32_t refs;
  uint32_t version;
  bool shared;       /* its counts are atomic */
  bool foreign : 1;  /* bytes belong to `deleter` or the caller, and are not counted */
  bool received : 1; /* another context allocated its block */
  bool symbolic : 1; /* no bytes; represents `owner`: a stream, an event, workers */
  uint8_t device;    /* the device of `data` */
  uint8_t held;      /* state in the captured step `capture`: capture_parts.h */
  uint32_t capture;  /* id of the last captured step that used it; 0: none */
  char *data;
  int64_t nbytes;
  moth_storage *root; /* the storage that owns the bytes; NULL: this one */
  void (*deleter)(void *);
  void *owner; /* argument of the deleter, or the plugin that allocated */
  uint64_t id;
};

enum {                     /* moth_tensor.flags */
  MOTH_T_REQUIRES = 1,     /* a leaf that needs a gradient */
  MOTH_T_NUMBER = 2,       /* a Lua number as operand: does not change a dtype of its category */
  MOTH_T_WHOLE = 4,        /* ... an integer */
  MOTH_T_NO_GRAD_VIEW = 8, /* a view made in no_grad mode */
  MOTH_T_MULTI_VIEW = 16,  /* from an op with several views: unbind, split, chunk */
  MOTH_T_FUNCTION = 32,    /* a result of a Lua Function */
  MOTH_T_IS_GRAD = 64,     /* the .grad of a leaf: outlives scopes */
  MOTH_T_SPARSE = 128,     /* has only some of its rows: see sparse.h */
  MOTH_T_COALESCED = 256,  /* ... each row once, in order */
  MOTH_T_SHAPELESS = 512,  /* no shape or values yet: only moth_become accepts it */
  MOTH_T_LINES = 1024      /* sequences, as images of height 1: messages omit the 1 */
};

struct moth_tensor { /* the fields that every call reads come first: 2 or 3 cache lines */
  uint32_t refs;
  uint32_t slot; /* slot of its handle; 0: none */
  uint32_t flags;
  uint32_t arg;  /* in a gradient function: its input number of the node */
  moth_ctx *ctx;
  moth_storage *storage; /* NULL in a gradient function if only the layout was saved */
  moth_node *node;       /* the node that made it (counted); NULL: a leaf */
  moth_node *leaf;       /* holds its .grad (counted); NULL until needed */
  moth_tensor *base;     /* of a view: its base, with one reference */
  uint32_t output;       /* its result number of the node */
  uint32_t epoch;        /* incremented when an in-place write changes its history */
  uint32_t base_epoch;   /* the base's epoch when this view's node was made */
  uint32_t capture;      /* the captured step that made it; 0: none */
  moth_tensor *rows;     /* of a sparse tensor (counted): the indices of its rows */
  moth_layout l;
};

/* The tensor that x is a view of, or NULL. Also NULL if `x.data = v` has given one of them other
** memory. */
static inline moth_tensor *moth_base(const moth_tensor *x) {
  return x->base && x->base->storage == x->storage ? x->base : NULL;
}

static inline uint32_t moth_storage_version(const moth_storage *s) {
  return s->shared ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : s->version;
}
/* Called after a write in place. */
static inline void moth_storage_bump(moth_storage *s) {
  if (s->shared) __atomic_add_fetch(&s->version, 1, __ATOMIC_ACQ_REL);
  else s->version++;
}

/* A growing list of owned tensors, for ops with any number of results. */
typedef struct moth_results {
  moth_ctx *ctx;
  moth_tensor **at;
  uint32_t n, capacity;
} moth_results;

#endif

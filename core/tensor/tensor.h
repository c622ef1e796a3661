/* tensor.h -- what a tensor is: a layout (shape, strides, dtype) over a refcounted storage.
**
** Tensors belong to one context and count references plainly; `retain` and `release` are the only
** verbs. A view shares its source's storage and remembers the one tensor (its base) whose history
** a write through it must rewrite; tape.h says how.
*/
#ifndef MOTH_TENSOR_H
#define MOTH_TENSOR_H

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

/* -- layouts and shapes (shape.c) -- */

bool moth_mul_overflow(int64_t a, int64_t b, int64_t *y);
bool moth_add_overflow(int64_t a, int64_t b, int64_t *y);

/* Row-major strides and numel for the shape in l; false when the size overflows. */
bool moth_layout_pack(moth_layout *l);
bool moth_layout_contiguous(const moth_layout *l);
/* The same for channels_last, which is a layout of (N, C, H, W) in memory: images, their rows,
** pixels, and the channels of a pixel side by side; and of (N, C, D, H, W), whose users call it
** channels_last_3d. Where the order of sizes of 1 is all that differs, a layout is both. */
bool moth_layout_pack_channels_last(moth_layout *l);
bool moth_layout_channels_last(const moth_layout *l);
/* Of layouts of one shape; the strides of dimensions of 1 do not matter. */
static inline bool moth_same_strides(const moth_layout *a, const moth_layout *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->stride[d] != b->stride[d] && a->shape[d] != 1) return false;
  return true;
}
/* Gives y, whose strides are replaced, the order of dimensions that the inputs have in memory; they
** broadcast to its shape. The first input that steps along both of two dimensions, and further
** along one, decides which is the inner one; where none does, the last is. */
void moth_layout_follow(moth_layout *y, int n, const moth_layout *const *inputs);
bool moth_layout_overlaps(const moth_layout *l); /* two indices reach one element */
bool moth_layout_dense(const moth_layout *l); /* any order, no gaps, each element once */
bool moth_layout_same(const moth_layout *a, const moth_layout *b); /* all of it but the dtype */
bool moth_shape_same(const moth_layout *a, const moth_layout *b);
/* A packed one as a host gives it, which may be none: then an error is set. */
int moth_layout_given(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                      moth_layout *l);
/* First and one-past-last element reached, relative to the storage. */
void moth_layout_span(const moth_layout *l, int64_t *lo, int64_t *hi);
/* Broadcasts y with x in place; false when they do not fit. y->dtype is not touched. */
bool moth_layout_broadcast(moth_layout *y, const moth_layout *x);

/* -- tensors -- */

/* NULL: error is set */
moth_storage *moth_storage_new(moth_ctx *ctx, int device, int64_t nbytes);
moth_storage *moth_storage_alias(moth_ctx *ctx, moth_storage *of);
moth_storage *moth_storage_foreign(moth_ctx *ctx, void *data, int64_t nbytes,
                                   void (*deleter)(void *), void *owner);
static inline moth_storage *moth_storage_retain(moth_storage *s) {
  if (s->shared) __atomic_add_fetch(&s->refs, 1, __ATOMIC_ACQ_REL);
  else s->refs++;
  return s;
}
void moth_storage_release(moth_ctx *ctx, moth_storage *s);
void moth_storage_share(moth_ctx *ctx, moth_storage *s); /* from now on counted atomically */
uint32_t moth_storage_version(const moth_storage *s);
void moth_storage_bump(moth_storage *s);
bool moth_storage_unique(const moth_storage *s); /* one reference and its own bytes */
int64_t moth_shared_bytes(void); /* of storages that tokens were made for */
void moth_storage_discard(moth_storage *s); /* releases a shared one, in no context */
/* Takes a reference to a shared storage. Where it is the last one, the bytes move to a storage of
** this context, which is returned; else it is s itself. NULL: an error, and s is as before. */
moth_storage *moth_storage_receive(moth_ctx *ctx, moth_storage *s);
static inline moth_storage *moth_storage_root(moth_storage *s) { return s->root ? s->root : s; }

/* Constructors return an owned tensor, or NULL with the context's error set. */
moth_tensor *moth_tensor_new(moth_ctx *ctx, const moth_layout *l); /* packed, uninitialised */
moth_tensor *moth_tensor_new_channels_last(moth_ctx *ctx, const moth_layout *l); /* channels_last */
moth_tensor *moth_tensor_like(moth_ctx *ctx, const moth_layout *l, moth_storage *s); /* retains s */
bool moth_tensor_unshared(const moth_tensor *x); /* nobody else would see what is written into it */
/* An empty tensor that stands for `owner`, which `drop` is given when the tensor goes; not if NULL
** is returned. */
moth_tensor *moth_tensor_standing(moth_ctx *ctx, void *owner, void (*drop)(void *));
moth_tensor *moth_tensor_bare(moth_ctx *ctx, const moth_layout *l); /* no storage */
moth_tensor *moth_tensor_alias(moth_tensor *x); /* same storage, no history */
static inline moth_tensor *moth_tensor_retain(moth_tensor *x) {
  x->refs++;
  return x;
}
void moth_tensor_end(moth_tensor *x); /* which nobody refers to any more */
static inline void moth_tensor_release(moth_tensor *x) { /* NULL is fine */
  if (x && --x->refs == 0) moth_tensor_end(x);
}

static inline char *moth_at(const moth_tensor *x) {
  return x->storage->data + x->l.offset * moth_dtype_size[x->l.dtype];
}
static inline bool moth_contiguous(const moth_tensor *x) { return moth_layout_contiguous(&x->l); }
/* channels_last, and not in row-major order as well. */
static inline bool moth_channels_last(const moth_tensor *x) {
  return moth_layout_channels_last(&x->l) && !moth_layout_contiguous(&x->l);
}
static inline bool moth_dense(const moth_tensor *x) { return moth_layout_dense(&x->l); }

/* -- text for messages: "f32 (2, 3)", "(2, 3)"; from a ring of buffers in the context -- */

const char *moth_str(const moth_tensor *x);
const char *moth_str_shape(moth_ctx *ctx, int32_t ndim, const int64_t *shape);
const char *moth_str_ints(moth_ctx *ctx, int64_t n, const int64_t *at); /* "{9, 9}" */
/* The same of dims and other positions, which the reader's base is added to: see MOTH_POS. */
const char *moth_str_dims(moth_ctx *ctx, int64_t n, const int64_t *at);
/* The same, one for each of the last n dimensions of x. */
const char *moth_str_axes(const moth_tensor *x, int64_t n, const int64_t *at);

#endif

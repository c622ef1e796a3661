/* op.h -- what an op is: the record, the kinds of argument, and the macros that tie an op's
** argument list, its functions and its documentation together. The only clever macros of Moth.
**
** An op's argument list is in core/op/<family>.c, or, when other families call it, in <family>.h:
**
**   #define MAX_POOL2D(ARG) \
**     ARG(tensor, input,                  , "images, (N, C, H, W)") \
**     ARG(int2,   kernel_size,            , "window height and width") \
**     ARG(int2,   stride,      kernel_size, "step between windows")
**   MOTH_ARGS(max_pool2d, MAX_POOL2D)        declares max_pool2d_args and moth_op_max_pool2d
**
** core/op/<family>.c has the functions max_pool2d_shape, _cpu and _grad, then
** MOTH_OP(max_pool2d, MAX_POOL2D, .doc = ..., .examples = ..., .dtypes = MOTH_FLOATS). The record
** says all that other files need to know about the op: they do not list ops by name.
** The family's rows end in one list, `const moth_op *const moth_pool_ops[]`, named in registry.c.
**
** The third column of ARG is the default: empty when the argument is required, `none` when it may
** be absent, a literal, an earlier argument's name, or for an enum its choices, a|b|c, the first
** being the default (with a leading `=` the enum is required); intN_or_enum: 0|valid|same.
*/
#ifndef MOTH_OP_H
#define MOTH_OP_H

#include "moth_lua.h"
#include "tensor/types.h"

/* -- kinds of argument: X(name in ARG, name shown, slots, C field) -- */

#define MOTH_NUMBERS_OR(N) /* a number or N of them, or a name: padding = "same" */ \
  typedef struct moth_int##N##_or_enum {                                            \
    int64_t choice; /* 0: the numbers, else which name, from 1 */                    \
    int64_t at[N];                                                                  \
  } moth_int##N##_or_enum;
MOTH_NUMBERS_OR(1)
MOTH_NUMBERS_OR(2)
MOTH_NUMBERS_OR(3)

typedef struct moth_scalar { /* a number, an int64 or a boolean */
  int64_t type;              /* 0, 1, 2 */
  union {
    double number;
    int64_t integer;
  } as;
} moth_scalar;

#define MOTH_KIND_LIST(X) \
  X(tensor,       "tensor",   1, moth_tensor *, )    /* in ops that say NUMBERS also a number */ \
  X(maybe_tensor, "tensor?",  1, moth_tensor *, )    /* NULL when absent */                      \
  X(tensors,      "tensors",  2, moth_tensors, )                                                 \
  X(mask,         "mask",     1, moth_tensor *, )    /* a bool tensor */                         \
  X(index,        "index",    1, moth_tensor *, )    /* i64 positions, 0-based here */           \
  X(maybe_index,  "index?",   1, moth_tensor *, )                                                \
  X(indices,      "indices",  2, moth_tensors, )     /* indices and masks; NULL: whole dim */      \
  X(scalar,       "scalar",   2, moth_scalar, )                                                  \
  X(element,      "element",  2, moth_scalar, )      /* hosts also take a 0-d tensor */          \
  X(int,          "int",      1, int64_t, )                                                      \
  X(maybe_int,    "int?",     1, int64_t, )          /* MOTH_NO_INT when absent */               \
  X(int1,         "int1",     1, int64_t, [1])                                                   \
  X(int2,         "int2",     2, int64_t, [2])                                                   \
  X(int3,         "int3",     3, int64_t, [3])                                                   \
  X(maybe_int2,   "int2?",    2, int64_t, [2])       /* each may be MOTH_NO_INT */               \
  X(maybe_int3,   "int3?",    3, int64_t, [3])                                                   \
  X(int1_or_enum, "int1-or-enum", 2, moth_int1_or_enum, )                                        \
  X(int2_or_enum, "int2-or-enum", 3, moth_int2_or_enum, )                                        \
  X(int3_or_enum, "int3-or-enum", 4, moth_int3_or_enum, )                                        \
  X(floats,       "floats",   2, moth_floats, )      /* .at == NULL when absent */               \
  X(ints,         "ints",     2, moth_ints, )                                                    \
  X(shape,        "shape",    2, moth_ints, )                                                    \
  X(dim,          "dim",      1, int64_t, )          /* may be negative; see moth_dim */         \
  X(maybe_dim,    "dim?",     1, int64_t, )          /* MOTH_NO_INT when absent */               \
  X(dims,         "dims",     2, moth_ints, )        /* .at == NULL when absent */               \
  X(position,     "position", 1, int64_t, )          /* 0-based here; may be negative */         \
  X(maybe_position, "position?", 1, int64_t, )       /* MOTH_NO_INT when absent */               \
  X(ignored,      "ignored",  1, int64_t, )          /* a class that counts for nothing */       \
  X(float,        "float",    1, double, )                                                       \
  X(maybe_float,  "float?",   1, double, )           /* moth_absent() when absent */             \
  X(bool,         "bool",     1, int64_t, )                                                      \
  X(enum,         "enum",     1, int64_t, )          /* which choice, from 0 */                  \
  X(dtype,        "dtype",    1, int64_t, )          /* -1 when absent */                        \
  X(device,       "device",   1, int64_t, )          /* 1 + device; 0: as the tensors */ \
  X(generator,    "generator",1, moth_tensor *, )    /* i64 {seed, offset}; the default's if none */

#define MOTH_NO_INT INT64_MIN
bool moth_absent(double value); /* one reserved NaN means "not given" */
double moth_absent_value(void);

#define MOTH_KIND_ENUM(name, shown, slots, type, array) MOTH_KIND_##name,
enum { MOTH_KIND_LIST(MOTH_KIND_ENUM) MOTH_KINDS };

#define MOTH_TYPE_(name, shown, slots, type, array) typedef type moth_kind_##name array;
MOTH_KIND_LIST(MOTH_TYPE_)

/* -- the argument struct: the context, then a run of slots -- */

#define MOTH_FIELD(kind, name, fallback, doc) moth_kind_##kind name;
#define MOTH_ROW(kind, name, fallback, doc) {#name, #kind, #fallback, doc, 0, 0},
#define MOTH_ARGS(op, LIST)                                   \
  typedef struct op##_args { moth_ctx *ctx; LIST(MOTH_FIELD) } op##_args; \
  extern moth_op moth_op_##op;

/* -- the record -- */

typedef struct moth_grad moth_grad;
typedef struct moth_fusion moth_fusion;

typedef struct moth_input { /* an argument that is a tensor, or a list of them */
  uint8_t row, slot;
  bool list;
  bool value; /* its dtype is governed by the record's `dtypes` */
} moth_input;

#define MOTH_MAX_OUTPUTS 4
#define MOTH_MAX_ARGS 24
#define MOTH_MAX_SLOTS 64

struct moth_op {
  /* columns that a record writes */
  const char *name, *doc;
  const char *public_name; /* of a hidden op: the function of users that runs it, for messages;
                           ** NULL: its own name, without _back or _slope */
  const char *examples; /* calls, one a line: "moth.randn(2, 3), {dim = 1}"; a line may end in
                        ** "  -- domain: positive" and be drawn from there for gradient checks */
  /* default "y"; "values, indices: position"; `: hidden` makes no handle; `: name of a bool` has
  ** positions and is handed out where that argument is true */
  const char *outputs;
  uint32_t dtypes;      /* set of dtypes of the tensor arguments, and the bits below */
  uint32_t flags;       /* MOTH_OP_INPLACE and so on, and the bits below */
  const char *counts;   /* an argument that is another in the next step: see moth_capture_slots */
  uint8_t autocast;     /* MOTH_AUTOCAST_... */
  const moth_op *tensors; /* the op that takes tensors in the place of this op's numbers */
  const char *chooses;  /* an argument: which function the op is depends on its value */
  const moth_fusion *fuses_with; /* ends with a row of zeros: see capture_fuse.h */
  const char *saves;    /* what gradients read: "input other"; "input:other": other's reads it */
  /* functions; results are owned, arguments borrowed. Either compute (shape + cpu), or view, or
  ** compose (written with other ops, which record themselves), or list. */
  int (*shape)(const void *args, moth_layout *y);  /* y[0].dtype is set; fill shape (and dtype) */
  int (*cpu)(const void *args, moth_tensor **out); /* out is allocated, contiguous if not STRIDED */
  int (*device)(const void *args, moth_tensor **out); /* the same of a plugin: backend.h */
  int (*view)(const void *args, moth_layout *y);   /* y is the first tensor's layout to change */
  int (*compose)(const void *args, moth_tensor **out);
  int (*list)(const void *args, moth_results *out);
  int (*grad)(const void *args, moth_grad *g);
  bool (*to_float)(const void *args); /* with MOTH_TO_FLOAT: whether this call does; NULL: all do */
  moth_arg *rows;
  uint32_t nrows, size; /* bytes of the args struct */
  const char *file;
  /* what registry.c works out from them */
  moth_op_info info;
  const moth_op *origin; /* of `add_`: add */
  uint8_t kinds[MOTH_MAX_ARGS];
  const struct moth_default *defaults; /* nrows */
  moth_input inputs[MOTH_MAX_ARGS];
  uint32_t ninputs;
  bool lists, ints;   /* are there lists of tensors, of numbers? */
  bool others;        /* tensors whose dtype `dtypes` does not govern: masks, positions */
  uint32_t nout;      /* results with a handle */
  uint32_t nhidden;   /* further results without one */
  uint32_t position;  /* bit k: result k holds positions */
  uint32_t asked;     /* 1 + the argument that says whether the last result is handed out, or 0 */
  uint32_t format;    /* 1 + the argument `memory_format`, or 0 */
  uint32_t chooser;   /* 1 + the argument that `chooses` names, or 0 */
  uint64_t save_in[MOTH_MAX_ARGS]; /* of argument i: the arguments whose gradient reads it */
  uint64_t save_out[MOTH_MAX_OUTPUTS];
};

#define MOTH_PROMOTE (1u << 31)  /* dtypes: tensor arguments are promoted to a common dtype */
#define MOTH_TO_FLOAT (1u << 30) /* ... integers and bool first become the default float dtype */

#define MOTH_NO_BOOL (1u << 29)  /* ... none may be bool, be the common dtype another */

/* flags, beside the public ones of moth.h */
#define MOTH_OP_MIXED 0x20000   /* tensor arguments may differ in dtype; the op sees to it */
#define MOTH_OP_TAKES_INPLACE 0x40000 /* a last argument `inplace`: true makes it `name_` */
#define MOTH_OP_WHOLE 0x80000 /* its `compose` moves bytes itself: one instruction of a recording */

#define MOTH_OP_PORTABLE 0x100000 /* its `_cpu` never follows an address: any device will do */
#define MOTH_OP_ACROSS 0x200000   /* its tensors may lie on different devices */
/* Plugins' kernels know channels_last: results lie so if any input does. */
#define MOTH_OP_CHANNELS_LAST 0x800000
#define MOTH_OP_WIDE_NUMBERS 0x1000000 /* beside half types 0-d operands of the CPU stay f32 */
#define MOTH_OP_HALF_COPY 0x2000000 /* the last, hidden result: the first in autocast's half type */
#define MOTH_OP_HALF_GRADIENT 0x4000000 /* takes the gradient of an f32 result in a half type */
#define MOTH_OP_PASSES_GRADIENT 0x10000000 /* to operands of its result's shape, unchanged */

/* What autocast casts the float tensors of an op to. */
enum {
  MOTH_AUTOCAST_WIDEST, /* the widest dtype among them, if the op does not promote them itself */
  MOTH_AUTOCAST_HALF,   /* autocast's dtype: products, where half types are fast */
  MOTH_AUTOCAST_F32,    /* ops that rounding hurts, or that leave the range of f16 */
  MOTH_AUTOCAST_OFF     /* nothing: half-precision images may meet f32 weights */
};

/* The argument `memory_format`, which says how a fresh result lies; its choices are in tensor.h. */
#define MOTH_FORMAT_ROW(ARG, doc)                                                             \
  ARG(enum, memory_format, preserve_format|contiguous_format|channels_last|channels_last_3d, doc)
#define MOTH_OP_RECORD_(op, LIST)                                                          \
  .name = #op, .rows = op##_rows, .nrows = sizeof(op##_rows) / sizeof(moth_arg), \
  .size = sizeof(op##_args), .file = __FILE__
#define MOTH_ROWS_(op, LIST)                                                               \
  static moth_arg op##_rows[] = {LIST(MOTH_ROW)};                                          \
  _Static_assert(sizeof op##_rows <= MOTH_MAX_ARGS * sizeof(moth_arg) &&                   \
                   sizeof(op##_args) <= sizeof(moth_ctx *) + MOTH_MAX_SLOTS * sizeof(moth_slot), \
                 #op " has more arguments than a call has room for");
#define MOTH_THUNK_(op, part, T) \
  static int op##_##part##_(const void *a, T *y) { return op##_##part((const op##_args *)a, y); }

/* A differentiable op: <op>_shape, <op>_cpu and <op>_grad stand above. */
#define MOTH_OP(op, LIST, ...)                                                                \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, shape, moth_layout) MOTH_THUNK_(op, cpu, moth_tensor *)                     \
  MOTH_THUNK_(op, grad, moth_grad)                                                            \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .shape = op##_shape_, .cpu = op##_cpu_,  \
                          .grad = op##_grad_, __VA_ARGS__};
/* One without a gradient. */
#define MOTH_OP_CONST(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, shape, moth_layout) MOTH_THUNK_(op, cpu, moth_tensor *)                     \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .shape = op##_shape_, .cpu = op##_cpu_,  \
                          __VA_ARGS__};
/* One whose result shares its first tensor's storage: <op>_view and <op>_grad. */
#define MOTH_OP_VIEWS(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, view, moth_layout) MOTH_THUNK_(op, grad, moth_grad)                         \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .view = op##_view_, .grad = op##_grad_,  \
                          __VA_ARGS__};
/* One made of other ops: <op>_compose. */
#define MOTH_OP_COMPOSES(op, LIST, ...)                                                       \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, compose, moth_tensor *)                                                     \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .compose = op##_compose_, __VA_ARGS__};
/* One made of other ops, with a list of results: <op>_list. */
#define MOTH_OP_LISTS(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, list, moth_results)                                                         \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .list = op##_list_, __VA_ARGS__};

/* -- running an op from C: recorded when grad mode is on and an input needs it -- */

int moth_run(const moth_op *op, const void *args, moth_tensor **out);
/* The same into a tensor that exists: in place when it is the op's first tensor, else as `out`. */
int moth_run_into(const moth_op *op, const void *args, moth_tensor *target);

/* What an argument `device` holds for "where x lies". */
static inline int64_t moth_device_of(const moth_tensor *x) { return x->l.device + 1; }

/* MOTH_CALL(ctx, &y, mul, .input = a, .other = b): name every argument, defaults are not filled. */
#define MOTH_CALL(context, out, op, ...) \
  moth_run(&moth_op_##op, &(op##_args){.ctx = (context), __VA_ARGS__}, (out))

#endif

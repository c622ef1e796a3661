/* op.h -- the record of an op, the kinds of arguments, and the macros that make an op's record from
** its argument list, functions and documentation. No other file of Moth has such macros.
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
** MOTH_OP(max_pool2d, MAX_POOL2D, .doc = ..., .examples = ..., .dtypes = MOTH_FLOATS). Other files
** learn about the op only from its record: they do not list ops by name. The ops of a family are in
** one list at the end of its file, `const moth_op *const moth_pool_ops[]`, named in registry.c.
**
** The third column of ARG is the default: empty for a required argument, `none` for one that may be
** absent, a literal, or an earlier argument's name. For an enum it is the choices, a|b|c: the first
** one is the default, but an enum with a leading `=` is required. For intN_or_enum: 0|valid|same.
*/
#ifndef MOTH_OP_H
#define MOTH_OP_H

#include "moth_lua.h"
#include "tensor/types.h"

/* -- kinds of argument: X(name in ARG, name shown, slots, C field) -- */

#define MOTH_NUMBERS_OR(N) /* a number, N numbers, or a name: padding = "same" */   \
  typedef struct moth_int##N##_or_enum {                                            \
    int64_t choice; /* 0: numbers; else the choice, from 1 */                        \
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
  X(tensor,       "tensor",   1, moth_tensor *, )    /* also a number in ops with NUMBERS */     \
  X(maybe_tensor, "tensor?",  1, moth_tensor *, )    /* NULL when absent */                      \
  X(tensors,      "tensors",  2, moth_tensors, )                                                 \
  X(mask,         "mask",     1, moth_tensor *, )    /* a bool tensor */                         \
  X(index,        "index",    1, moth_tensor *, )    /* i64 positions, 0-based here */           \
  X(maybe_index,  "index?",   1, moth_tensor *, )                                                \
  X(indices,      "indices",  2, moth_tensors, )     /* indices and masks; NULL: whole dim */      \
  X(scalar,       "scalar",   2, moth_scalar, )                                                  \
  X(element,      "element",  2, moth_scalar, )      /* hosts may pass a 0-d tensor */           \
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
  X(ignored,      "ignored",  1, int64_t, )          /* a class index without effect */          \
  X(float,        "float",    1, double, )                                                       \
  X(maybe_float,  "float?",   1, double, )           /* moth_absent() when absent */             \
  X(bool,         "bool",     1, int64_t, )                                                      \
  X(enum,         "enum",     1, int64_t, )          /* the choice, from 0 */                    \
  X(dtype,        "dtype",    1, int64_t, )          /* -1 when absent */                        \
  X(device,       "device",   1, int64_t, )          /* 1 + device; 0: the tensors' device */\
  X(generator,    "generator",1, moth_tensor *, )    /* i64 {seed, offset}; else the default */

#define MOTH_NO_INT INT64_MIN
bool moth_absent(double value); /* one reserved NaN means "not given" */
double moth_absent_value(void);

#define MOTH_KIND_ENUM(name, shown, slots, type, array) MOTH_KIND_##name,
enum { MOTH_KIND_LIST(MOTH_KIND_ENUM) MOTH_KINDS };

#define MOTH_TYPE_(name, shown, slots, type, array) typedef type moth_kind_##name array;
MOTH_KIND_LIST(MOTH_TYPE_)

/* -- the argument struct: the context, then slots in a row -- */

#define MOTH_FIELD(kind, name, fallback, doc) moth_kind_##kind name;
#define MOTH_ROW(kind, name, fallback, doc) {#name, #kind, #fallback, doc, 0, 0},
#define MOTH_ARGS(op, LIST)                                   \
  typedef struct op##_args { moth_ctx *ctx; LIST(MOTH_FIELD) } op##_args; \
  extern moth_op moth_op_##op;

/* -- the record -- */

typedef struct moth_grad moth_grad;
typedef struct moth_fusion moth_fusion;

typedef struct moth_input { /* an argument that is a tensor or a list of tensors */
  uint8_t row, slot;
  bool list;
  bool value; /* the record's `dtypes` applies to it */
} moth_input;

#define MOTH_MAX_OUTPUTS 4
#define MOTH_MAX_ARGS 24
#define MOTH_MAX_SLOTS 64

struct moth_op {
  /* fields that a record sets */
  const char *name, *doc;
  const char *public_name; /* of a hidden op: the public function that runs it, for messages. NULL:
                           ** its own name without _back or _slope */
  const char *examples; /* calls, one per line: "moth.randn(2, 3), {dim = 1}". "  -- domain:
                        ** positive" at the end sets the domain of random inputs for gradient
                        ** checks */
  /* Default "y". "values, indices: position": the second has positions. `: hidden`: no handle. `:
  ** name` of a bool argument: has positions, and is returned only if that argument is true. */
  const char *outputs;
  uint32_t dtypes;      /* dtypes of the tensor arguments, and the bits below */
  uint32_t flags;       /* MOTH_OP_INPLACE and other bits */
  const char *counts;   /* an argument that changes each step: see moth_capture_slots */
  uint8_t autocast;     /* MOTH_AUTOCAST_... */
  const moth_op *tensors; /* the op that takes tensors in place of this op's numbers */
  const char *chooses;  /* an argument whose value selects the function */
  const moth_fusion *fuses_with; /* ends with a zero row: see capture_fuse_pairs.h */
  const char *saves;    /* tensors that gradients read; "x:y": x, for the gradient of y */
  /* Functions. Results are owned, arguments borrowed. An op has either shape and cpu, or view, or
  ** compose (it calls other ops, which are recorded), or list. */
  int (*shape)(const void *args, moth_layout *y);  /* y[0].dtype is set; sets shape (and dtype) */
  int (*cpu)(const void *args, moth_tensor **out); /* out is allocated; contiguous unless STRIDED */
  int (*device)(const void *args, moth_tensor **out); /* in plugins: backend.h */
  int (*view)(const void *args, moth_layout *y);   /* y: the first tensor's layout, to change */
  int (*compose)(const void *args, moth_tensor **out);
  int (*list)(const void *args, moth_results *out);
  int (*grad)(const void *args, moth_grad *g);
  bool (*to_float)(const void *args); /* with MOTH_TO_FLOAT: does this call convert? NULL: always */
  moth_arg *rows;
  uint32_t nrows, size; /* bytes of the args struct */
  const char *file;
  /* derived by registry.c */
  moth_op_info info;
  const moth_op *origin; /* for `add_`: add */
  uint8_t kinds[MOTH_MAX_ARGS];
  const struct moth_default *defaults; /* nrows */
  moth_input inputs[MOTH_MAX_ARGS];
  uint32_t ninputs;
  bool lists, ints;   /* has it lists of tensors, of numbers? */
  bool others;        /* has it tensors without `dtypes`: masks, positions? */
  uint32_t nout;      /* results with a handle */
  uint32_t nhidden;   /* more results, without one */
  uint32_t position;  /* bit k: result k has positions */
  uint32_t asked;     /* 1 + the argument that requests the last result, or 0 */
  uint32_t format;    /* 1 + the argument `memory_format`, or 0 */
  uint32_t chooser;   /* 1 + the argument that `chooses` names, or 0 */
  uint64_t save_in[MOTH_MAX_ARGS]; /* for argument i: the arguments whose gradients read it */
  uint64_t save_out[MOTH_MAX_OUTPUTS];
};

#define MOTH_PROMOTE (1u << 31)  /* dtypes: tensor arguments are promoted to a common dtype */
#define MOTH_TO_FLOAT (1u << 30) /* ... integers and bool first become the default float dtype */

#define MOTH_NO_BOOL (1u << 29)  /* ... an error for bool, unless the common dtype is another */

/* flags, in addition to the public flags in moth.h */
#define MOTH_OP_MIXED 0x20000   /* tensor arguments may have different dtypes */
#define MOTH_OP_TAKES_INPLACE 0x40000 /* has a last argument `inplace`: true runs `name_` */
#define MOTH_OP_WHOLE 0x80000 /* `compose` copies bytes: one instruction of a captured step */

#define MOTH_OP_PORTABLE 0x100000 /* `_cpu` never uses an address: it runs for any device */
#define MOTH_OP_ACROSS 0x200000   /* its tensors may be on different devices */
/* Kernels of plugins support channels_last: results have it if any input has. */
#define MOTH_OP_CHANNELS_LAST 0x800000
#define MOTH_OP_WIDE_NUMBERS 0x1000000 /* with half types, 0-d CPU operands stay f32 */
#define MOTH_OP_HALF_COPY 0x2000000 /* last, hidden result: the half-precision copy of the first */
#define MOTH_OP_HALF_GRADIENT 0x4000000 /* accepts a half-precision gradient of an f32 result */
#define MOTH_OP_PASSES_GRADIENT 0x10000000 /* unchanged, to operands of its result's shape */

/* The dtype to which autocast casts the float tensors of an op. */
enum {
  MOTH_AUTOCAST_WIDEST, /* the widest of them, if the op does not promote them itself */
  MOTH_AUTOCAST_HALF,   /* autocast's dtype: products, which are fast in half types */
  MOTH_AUTOCAST_F32,    /* ops that lose digits, or that leave the range of f16 */
  MOTH_AUTOCAST_OFF     /* no cast: half-precision images may be used with f32 weights */
};

/* The argument `memory_format`: the memory order of a new result. Its choices are in tensor.h. */
#define MOTH_FORMAT_ROW(ARG, doc)                                                             \
  ARG(enum, memory_format, preserve_format|contiguous_format|channels_last|channels_last_3d, doc)
#define MOTH_OP_RECORD_(op, LIST)                                                          \
  .name = #op, .rows = op##_rows, .nrows = sizeof(op##_rows) / sizeof(moth_arg), \
  .size = sizeof(op##_args), .file = __FILE__
#define MOTH_ROWS_(op, LIST)                                                               \
  static moth_arg op##_rows[] = {LIST(MOTH_ROW)};                                          \
  _Static_assert(sizeof op##_rows <= MOTH_MAX_ARGS * sizeof(moth_arg) &&                   \
                   sizeof(op##_args) <= sizeof(moth_ctx *) + MOTH_MAX_SLOTS * sizeof(moth_slot), \
                 #op " has more arguments than a call can hold");
#define MOTH_THUNK_(op, part, T) \
  static int op##_##part##_(const void *a, T *y) { return op##_##part((const op##_args *)a, y); }

/* A differentiable op: <op>_shape, <op>_cpu and <op>_grad are defined above. */
#define MOTH_OP(op, LIST, ...)                                                                \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, shape, moth_layout) MOTH_THUNK_(op, cpu, moth_tensor *)                     \
  MOTH_THUNK_(op, grad, moth_grad)                                                            \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .shape = op##_shape_, .cpu = op##_cpu_,  \
                          .grad = op##_grad_, __VA_ARGS__};
/* An op without a gradient. */
#define MOTH_OP_CONST(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, shape, moth_layout) MOTH_THUNK_(op, cpu, moth_tensor *)                     \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .shape = op##_shape_, .cpu = op##_cpu_,  \
                          __VA_ARGS__};
/* An op whose result shares its first tensor's storage: <op>_view and <op>_grad. */
#define MOTH_OP_VIEWS(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, view, moth_layout) MOTH_THUNK_(op, grad, moth_grad)                         \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .view = op##_view_, .grad = op##_grad_,  \
                          __VA_ARGS__};
/* An op that calls other ops: <op>_compose. */
#define MOTH_OP_COMPOSES(op, LIST, ...)                                                       \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, compose, moth_tensor *)                                                     \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .compose = op##_compose_, __VA_ARGS__};
/* An op that calls other ops and returns a list of results: <op>_list. */
#define MOTH_OP_LISTS(op, LIST, ...)                                                          \
  MOTH_ROWS_(op, LIST)                                                                        \
  MOTH_THUNK_(op, list, moth_results)                                                         \
  moth_op moth_op_##op = {MOTH_OP_RECORD_(op, LIST), .list = op##_list_, __VA_ARGS__};

/* -- running an op from C; it is recorded if grad mode is on and an input needs a gradient -- */

int moth_run(const moth_op *op, const void *args, moth_tensor **out);
/* The same with an existing tensor as target: in place if it is the op's first tensor, else as
** `out`. */
int moth_run_into(const moth_op *op, const void *args, moth_tensor *target);

/* The value of an argument `device` for "the device of x". */
static inline int64_t moth_device_of(const moth_tensor *x) { return x->l.device + 1; }

/* MOTH_CALL(ctx, &y, mul, .input = a, .other = b). Name every argument: there are no defaults. */
#define MOTH_CALL(context, out, op, ...) \
  moth_run(&moth_op_##op, &(op##_args){.ctx = (context), __VA_ARGS__}, (out))

#endif

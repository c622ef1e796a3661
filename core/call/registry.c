/* registry.c -- the table of all ops, by family, and the fields derived from their records.
**
** A new family is one row of FAMILIES. At first use each record is read once: slots are counted,
** `saves` and `outputs` are parsed, and the forms `name_` are derived.
*/
#include "registry.h"
#include "op.h"
#include "base/system.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The contents of each family. Files named after a colon belong to the same family. */
#define FAMILIES(F) \
  F(copy)       /* copies, conversions, fills */ \
  F(create)     /* tensors from a shape; triangles of matrices */ \
  F(random)     /* random numbers; further distributions: sampling.c, rejection.c */ \
  F(view)       /* the same elements in another shape; slices: part.c */\
  F(strided)    /* reads and writes by the strides of a view */          \
  F(position)   /* positions that count from 1, converted */ \
  F(arith)      /* + - * / and related functions */    \
  F(unary)      /* functions of one tensor, element by element */ \
  F(special)    /* functions of probability: lgamma, erfinv, i0, igamma */               \
  F(binary)     /* more functions of two or three tensors */     \
  F(compare)    /* comparisons and logic */ \
  F(fused)      /* several functions of these families in one pass */ \
  F(reduce)     /* sum, mean, all, max: reduce.c; var, norms: rows.c; counts: histogram.c */ \
  F(scan)       /* running sums, products and extremes; differences */ \
  F(sort)       /* sort.c; unique values and searches: unique.c */  \
  F(matmul)     /* matrix products */ \
  F(outer)      /* weight gradients that many steps share */     \
  F(product)    /* matrix products with a sum; inner, kron */ \
  F(factor)     /* factorizations: factor.c; by singular values: singular.c */ \
  F(solve)      /* linear equations, inverses, determinants */ \
  F(index)      /* index tensors: index.c; along a dimension: gather.c, place.c */ \
  F(join)       /* cat and stack */ \
  F(distance)   /* distances between all pairs of rows */\
  F(rearrange)  /* flips, rolls, repeats; grids, stacks, diagonals: rearrange_composed.c */ \
  F(fft)        /* Fourier transforms */ \
  F(clip)       /* the norm of many tensors, for optimizers */ \
  F(activation) /* activation functions */       \
  F(softmax)    /* softmax, log_softmax */ \
  F(dropout)    /* dropout, of elements and of channels */ \
  F(conv)       /* convolutions and their transposes */ \
  F(conv3d)     /* convolutions of volumes */ \
  F(columns)    /* windows as columns: unfold, fold */ \
  F(pool)       /* pooling by windows */ \
  F(adaptive)   /* pooling to a given size */ \
  F(pool3d)     /* both pools for volumes */\
  F(grid)       /* grid_sample: images sampled at the points of a grid */\
  F(pad)        /* borders */ \
  F(resize)     /* interpolate, pixel_shuffle */ \
  F(norm)       /* layer_norm, rms_norm and group_norm; batch_norm.c */ \
  F(embedding)  /* rows of a table */ \
  F(bag)        /* sums of such rows */\
  F(attention)  /* scaled_dot_product_attention */ \
  F(recurrent)  /* RNN, LSTM, GRU: recurrent.c, recurrent_cell.c, recurrent_gradient.c */ \
  F(loss)       /* losses of class scores */\
  F(ctc)        /* ctc_loss: sequences without an alignment */ \
  F(pointloss)  /* elementwise losses of numbers and probabilities */             \
  F(detect)     /* non-maximum suppression of boxes */\
  F(picture)    /* pictures for moth.transforms */ \
  F(optim)      /* steps of the optimizers */

#define DECLARE(family) extern const moth_op *const moth_##family##_ops[];
FAMILIES(DECLARE)
extern const moth_op *const moth_transfer_ops[]; /* only C runs these: host/transfer_ops.c */

#define ROW(family) {#family, moth_##family##_ops},
static const struct {
  const char *name;
  const moth_op *const *ops;
} families[] = {FAMILIES(ROW)};

#define KIND(name, shown, slots, type, array) {shown, slots},
static const struct {
  const char *name;
  uint32_t slots;
} kinds[] = {MOTH_KIND_LIST(KIND)};

#define KIND_TEXT(name, shown, slots, type, array) #name,
static const char *const kind_texts[MOTH_KINDS] = {MOTH_KIND_LIST(KIND_TEXT)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const moth_op **table; /* by name */
static uint32_t count;

/* -- reading a record -- */

static int kind_of(const char *text) {
  for (int k = 0; k < MOTH_KINDS; k++)
    if (!strcmp(text, kind_texts[k])) return k;
  return -1;
}

/* Takes the next word, up to a space or one of `stops`, from *text. Returns its length; 0 at the
** end. */
static size_t word(const char **text, const char **start, const char *stops) {
  *start = *text + strspn(*text, " ,");
  size_t n = strcspn(*start, stops);
  *text = *start + n;
  return n;
}

static bool same(const char *name, const char *text, size_t n) {
  return strlen(name) == n && !memcmp(name, text, n);
}

static int row_named(const moth_op *op, const char *text, size_t n) {
  for (uint32_t i = 0; i < op->nrows; i++)
    if (same(op->rows[i].name, text, n)) return (int)i;
  return -1;
}

/* Parses "values, indices: position" and "y, indices: return_indices": counts results, and finds
** the results with positions and the one that is returned only if a bool argument is true. */
static void read_outputs(moth_op *op) {
  const char *text = op->outputs ? op->outputs : "y", *name;
  while (word(&text, &name, ":,")) {
    bool hidden = false;
    if (*text == ':') {
      const char *note;
      text++;
      size_t n = word(&text, &note, ",");
      hidden = same("hidden", note, n);
      int row = row_named(op, note, n);
      if (row >= 0) op->asked = 1 + (uint32_t)row;
      if (row >= 0 || same("position", note, n)) op->position |= 1u << op->nout;
    }
    if (hidden) op->nhidden++;
    else op->nout++;
  }
}

/* The index of a result by its name, or -1. */
static int output_named(const moth_op *op, const char *text, size_t n) {
  const char *rest = op->outputs ? op->outputs : "y", *name;
  for (int i = 0;; i++) {
    size_t length = word(&rest, &name, ":,");
    if (!length) return -1;
    if (length == n && !memcmp(name, text, n)) return i;
    if (*rest == ':') word(&rest, &name, ",");
  }
}

/* Parses `saves`. "input:other y": the gradient of `other` reads input, all gradients read the
** result y. "y:mode" for an enum: all gradients read y unless `mode` is the first choice. */
static void read_saves(moth_op *op) {
  const char *text = op->saves ? op->saves : "", *name;
  for (size_t n; (n = word(&text, &name, " :")) > 0;) {
    uint64_t readers = ~(uint64_t)0;
    if (*text == ':') {
      const char *reader;
      text++;
      size_t length = word(&text, &reader, " ");
      int row = row_named(op, reader, length);
      if (row >= 0) readers = (uint64_t)1 << row;
    }
    int row = row_named(op, name, n), out = output_named(op, name, n);
    if (row >= 0) op->save_in[row] |= readers;
    else if (out >= 0) op->save_out[out] |= readers;
  }
}

static void read_rows(moth_op *op) {
  uint32_t slot = 0;
  for (uint32_t i = 0; i < op->nrows; i++) {
    int kind = kind_of(op->rows[i].kind);
    op->kinds[i] = (uint8_t)kind;
    op->rows[i].slot = slot;
    op->rows[i].nslots = kinds[kind].slots;
    op->rows[i].kind = kinds[kind].name;
    bool list = moth_kind_is_list(kind), value = moth_kind_is_value(kind);
    if (list || moth_kind_is_tensor(kind))
      op->inputs[op->ninputs++] = (moth_input){(uint8_t)i, (uint8_t)slot, list, value};
    op->lists |= list;
    op->ints |= moth_kind_is_ints(kind);
    op->others |= (list || moth_kind_is_tensor(kind)) && !value;
    slot += kinds[kind].slots;
  }
  op->info.nslots = slot;
}

/* -- defaults -- */

static moth_slot literal(int kind, const char *text) {
  moth_slot v = {.integer = 0};
  bool none = !strcmp(text, "none");
  if (kind == MOTH_KIND_float) v.number = moth_text_number(text);
  else if (kind == MOTH_KIND_maybe_float)
    v.number = none ? moth_absent_value() : moth_text_number(text);
  else if (kind == MOTH_KIND_maybe_int || kind == MOTH_KIND_maybe_dim ||
           kind == MOTH_KIND_maybe_position || kind == MOTH_KIND_maybe_int2 ||
           kind == MOTH_KIND_maybe_int3)
    v.integer = none ? MOTH_NO_INT : strtoll(text, NULL, 10);
  else if (kind == MOTH_KIND_dtype) v.integer = -1;
  else if (kind == MOTH_KIND_bool) v.integer = !strcmp(text, "true");
  else if (kind != MOTH_KIND_enum && !none) v.integer = strtoll(text, NULL, 10);
  return v;
}

static void default_of(const moth_op *op, uint32_t row, moth_default *d) {
  const char *text = op->rows[row].fallback;
  int kind = op->kinds[row], earlier = row_named(op, text, strlen(text));
  memset(d, 0, sizeof *d);
  d->choices = 1;
  for (const char *at = text; *at; at++) d->choices += *at == '|';
  if (!*text || *text == '=') {
    d->type = MOTH_REQUIRED;
  } else if (earlier >= 0) {
    d->type = MOTH_EARLIER;
    d->earlier = (uint32_t)earlier;
  } else if (moth_kind_is_scalar(kind)) {
    d->type = MOTH_LITERAL; /* {type 0, value} */
    d->value[1].number = moth_text_number(text);
  } else if (moth_kind_is_choice(kind) && kind != MOTH_KIND_enum) {
    d->type = MOTH_LITERAL; /* {choice 0, the numbers} */
    for (uint32_t i = 1; i < 4; i++) d->value[i] = literal(kind, text);
  } else {
    d->type = MOTH_LITERAL; /* lists and tensors: all zero is "absent" */
    for (uint32_t i = 0; i < 4; i++) d->value[i] = literal(kind, text);
    if (moth_kind_is_ints(kind) || moth_kind_is_list(kind)) memset(d->value, 0, sizeof d->value);
  }
}

static void read_defaults(moth_op *op) {
  moth_default *d = calloc(op->nrows + 1, sizeof *d);
  for (uint32_t i = 0; d && i < op->nrows; i++) default_of(op, i, &d[i]);
  op->defaults = d;
}

/* -- the description for callers -- */

static const char *short_path(const char *file) {
  const char *at = strstr(file, "core/op/");
  for (const char *next = at; next; next = strstr(next + 1, "core/op/")) at = next;
  return at ? at : file;
}

static uint32_t public_flags(const moth_op *op) {
  uint32_t flags = op->flags;
  if (op->view) flags |= MOTH_OP_VIEW;
  if (op->list) flags |= MOTH_OP_LIST;
  if (op->grad || ((op->compose || op->list) && op->nout)) flags |= MOTH_OP_GRAD;
  return flags;
}

/* The rows for callers: with `out` or `inplace` at the end if the op has them. */
static moth_arg *public_rows(moth_op *op) {
  static const moth_arg out = {"out", "out?", "none", "tensor that receives the result", 0, 1};
  static const moth_arg inplace = {"inplace", "bool", "false", "write the input itself", 0, 1};
  if (!(op->flags & (MOTH_OP_OUT | MOTH_OP_TAKES_INPLACE))) return op->rows;
  moth_arg *rows = calloc(op->nrows + 1, sizeof *rows);
  if (!rows) return op->rows;
  memcpy(rows, op->rows, op->nrows * sizeof *rows);
  rows[op->nrows] = op->flags & MOTH_OP_OUT ? out : inplace;
  rows[op->nrows].slot = op->info.nslots;
  op->info.nargs++;
  op->info.nslots++;
  return rows;
}

static void read_record(moth_op *op, const char *family) {
  read_rows(op);
  read_defaults(op);
  read_outputs(op);
  op->format = 1 + (uint32_t)row_named(op, "memory_format", strlen("memory_format"));
  if (op->chooses) op->chooser = 1 + (uint32_t)row_named(op, op->chooses, strlen(op->chooses));
  read_saves(op);
  op->info.nargs = op->nrows;
  op->info.args = public_rows(op);
  op->info.name = op->name;
  op->info.family = family;
  op->info.file = short_path(op->file);
  op->info.doc = op->doc ? op->doc : "";
  op->info.examples = op->examples ? op->examples : "";
  op->info.outputs = op->outputs ? op->outputs : "y";
  op->info.dtypes = op->dtypes & MOTH_ANY;
  op->info.tensors = op->tensors ? op->tensors->name : "";
  op->info.public_name = op->public_name ? op->public_name : "";
  op->info.flags = public_flags(op);
}

static char *name_in_place(const char *name) {
  char *y = malloc(strlen(name) + 2);
  if (y) sprintf(y, "%s_", name);
  return y;
}

/* Derives `add_` from `add`. */
static moth_op *derive_in_place(const moth_op *op) {
  moth_op *y = malloc(sizeof *y);
  char *name = name_in_place(op->name);
  char *tensors = op->tensors ? name_in_place(op->tensors->name) : NULL;
  char *public_name = op->public_name ? name_in_place(op->public_name) : NULL;
  if (!y || !name || (op->tensors && !tensors) || (op->public_name && !public_name)) return NULL;
  *y = *op;
  y->name = y->info.name = name;
  if (tensors) y->info.tensors = tensors;
  if (public_name) y->info.public_name = public_name;
  y->origin = op;
  y->flags &= ~(uint32_t)(MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_TAKES_INPLACE);
  y->flags |= MOTH_OP_MUTATES;
  y->autocast = MOTH_AUTOCAST_WIDEST; /* its result has the dtype of the written tensor */
  y->info.flags = public_flags(y);
  y->info.args = y->rows;
  y->info.nargs = y->nrows;
  if (op->info.nargs > op->nrows) y->info.nslots--;
  return y;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const moth_op *const *)a)->name, (*(const moth_op *const *)b)->name);
}

static void read_all(void) {
  uint32_t capacity = 0;
  for (size_t f = 0; f < sizeof families / sizeof *families; f++)
    for (const moth_op *const *op = families[f].ops; *op; op++) capacity += 2;
  table = calloc(capacity, sizeof *table);
  if (!table) return;
  for (size_t f = 0; f < sizeof families / sizeof *families; f++)
    for (const moth_op *const *at = families[f].ops; *at; at++) {
      moth_op *op = (moth_op *)(uintptr_t)*at; /* the records are writable until here */
      read_record(op, families[f].name);
      table[count++] = op;
      if (!(op->flags & MOTH_OP_INPLACE)) continue;
      moth_op *derived = derive_in_place(op);
      if (derived) table[count++] = derived;
    }
  for (const moth_op *const *at = moth_transfer_ops; *at; at++)
    read_record((moth_op *)(uintptr_t)*at, "");
  qsort(table, count, sizeof *table, by_name);
}

/* -- lookup -- */

uint32_t moth_op_count(void) {
  pthread_once(&once, read_all);
  return count;
}

const moth_op *moth_op_at(uint32_t i) { return i < moth_op_count() ? table[i] : NULL; }

const moth_op *moth_op_find(const char *name) {
  uint32_t lo = 0, hi = name ? moth_op_count() : 0;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    int order = strcmp(name, table[mid]->name);
    if (order == 0) return table[mid];
    if (order < 0) hi = mid;
    else lo = mid + 1;
  }
  return NULL;
}

const moth_op_info *moth_op_describe(const moth_op *op) { return op ? &op->info : NULL; }

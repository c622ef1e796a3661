/* unique.c -- unique elements and their counts; searches in sorted tensors. sort.h declares the
** arguments. The list of the ops of both files is at the end.
*/
#include "capture/capture.h"
#include "device/device.h"
#include "kernel/sort.h"
#include "call/observer.h"
#include "autograd/tape.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "create.h"
#include "index.h"
#include "join.h"
#include "scan.h"
#include "sort.h"
#include "view.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

/* -- unique -- */

enum { BLOCK = 1 << 14 }; /* elements between two polls */

static int poll_at(moth_ctx *ctx, int64_t i) {
  return i % BLOCK == BLOCK - 1 ? moth_poll(ctx) : MOTH_OK;
}

typedef struct groups {
  int64_t n, width;      /* number of slices; keys per slice */
  uint64_t *keys;
  moth_keyed *x, *spare; /* the slices in sorted order; NULL: in the input's order */
  void *memory;
  int64_t bytes;
} groups;

static int groups_open(groups *g, const moth_tensor *input, const moth_rows *r, bool sorts) {
  g->n = r->count;
  g->width = g->n ? r->length : 0; /* without slices the length is not used */
  int64_t each = (g->width ? g->width : 1) * 8 + (sorts ? 2 * (int64_t)sizeof(moth_keyed) : 0);
  if (moth_mul_overflow(g->n ? g->n : 1, each, &g->bytes)) g->bytes = INT64_MAX;
  g->memory = moth_alloc(input->ctx, g->bytes);
  if (!g->memory) return input->ctx->error.code;
  g->keys = g->memory;
  const int64_t n = g->n * g->width, size = moth_dtype_size[r->dtype];
  int status = MOTH_OK;
  for (int64_t i = 0; i < n && !status; i += BLOCK) {
    moth_keys_of(n - i < BLOCK ? n - i : BLOCK, r->x + i * size, r->dtype, false, g->keys + i);
    status = moth_poll(input->ctx);
  }
  if (!sorts) return status;
  g->x = (moth_keyed *)(void *)((char *)g->memory + g->bytes) - 2 * g->n;
  g->spare = g->x + g->n;
  for (int64_t i = 0; i < g->n && !status; i++) {
    g->x[i].at = g->spare[i].at = i; /* the sort would touch all pages of `spare` at once */
    status = poll_at(input->ctx, i);
  }
  return status;
}

/* Sorts by each key, the last one first. The sort is stable, so the first key decides. */
static int groups_sort(groups *g, moth_ctx *ctx) {
  for (int64_t c = g->width - 1; c >= 0; c--) {
    for (int64_t i = 0; i < g->n; i++) {
      g->x[i].key = g->keys[g->x[i].at * g->width + c];
      if (poll_at(ctx, i)) return ctx->error.code;
    }
    if (!moth_keyed_sort(ctx, g->n, g->x, g->spare) || moth_cancelled(ctx))
      return moth_stopped(ctx);
  }
  return MOTH_OK;
}

/* Returns true if slice i differs from slice i - 1. */
static bool differs(const groups *g, int64_t i, bool floats) {
  const uint64_t *a = g->keys + (g->x ? g->x[i - 1].at : i - 1) * g->width;
  const uint64_t *b = g->keys + (g->x ? g->x[i].at : i) * g->width;
  for (int64_t c = 0; c < g->width; c++)
    if (a[c] != b[c] || (floats && a[c] == MOTH_KEY_NAN)) return true;
  return false;
}

/* Replaces the key of each sorted slice with its group number: the number of different slices
** before it. A key is overwritten after its last comparison. */
static int groups_number(groups *g, moth_ctx *ctx, bool floats) {
  uint64_t key = 0;
  int status = MOTH_OK;
  for (int64_t i = 0; i < g->n && !status; i++) {
    const bool next = i + 1 < g->n && differs(g, i + 1, floats);
    *(g->x ? &g->x[i].key : &g->keys[i]) = key;
    key += next;
    status = poll_at(ctx, i);
  }
  return status;
}

static moth_tensor *new_list(moth_ctx *ctx, int64_t n) {
  moth_layout l = {.ndim = 1, .dtype = MOTH_I64, .shape = {n}};
  return moth_layout_pack(&l) ? moth_tensor_new(ctx, &l) : NULL;
}

static int64_t *numbers(moth_tensor *x) { return (int64_t *)(void *)moth_at(x); }

/* Returns true if a key differs from the key `step` words before it. NaN differs from
** everything. */
static inline bool begins(const uint64_t *key, int64_t step, bool floats) {
  return (*key != key[-step]) | (floats & (*key == MOTH_KEY_NAN));
}

/* Fills `inverse` if it is requested, and new lists with the first element and the size of each
** group. Equal elements are in the order of their positions. Goes from the end to the start, so
** that the first element of a group is written last, without a branch. */
static int groups_read(groups *g, bool floats, moth_tensor *inverse, moth_tensor **first,
                       moth_tensor **counts) {
  moth_ctx *ctx = inverse->ctx;
  const bool all_wanted = inverse->l.numel == g->n;
  if (g->width != 1 && groups_number(g, ctx, floats)) return ctx->error.code;
  const uint64_t *key = g->x ? &g->x->key : g->keys;
  const int64_t all = g->n, step = g->x ? sizeof *g->x / sizeof *key : 1;
  int64_t n = all > 0, *group = numbers(inverse);
  for (int64_t i = 1; i < all; i++) {
    n += begins(key + i * step, step, floats);
    if (poll_at(ctx, i)) return ctx->error.code;
  }
  *first = new_list(ctx, n);
  *counts = *first ? new_list(ctx, n) : NULL;
  if (!*counts) return ctx->error.code;
  int64_t *f = numbers(*first), *c = numbers(*counts), to = n - 1;
  for (int64_t i = all - 1; i >= 0; i--) {
    const int64_t at = g->x ? g->x[i].at : i;
    f[to] = at;
    c[to] = i;
    if (all_wanted) group[at] = to;
    if (i > 0) to -= begins(key + i * step, step, floats);
    if (poll_at(ctx, i)) return ctx->error.code;
  }
  for (int64_t i = 0; i < n; i++) {
    c[i] = (i + 1 < n ? c[i + 1] : all) - c[i];
    if (poll_at(ctx, i)) return ctx->error.code;
  }
  return MOTH_OK;
}

/* Returns true if values may be copied without an op, because nothing is recorded. */
static bool copies_values(const moth_tensor *x, const moth_rows *r) {
  const moth_ctx *ctx = x->ctx;
  return x->l.dtype == r->dtype && !moth_observes_functions(ctx) &&
         !(ctx->grad_mode && moth_needs_grad(x));
}

/* Like groups_read, for single elements in runs. If values may be copied, writes the values to *y
** too. */
static int runs_read(const moth_rows *r, moth_tensor *inverse, moth_tensor **first,
                     moth_tensor **counts, moth_tensor **y) {
  moth_ctx *ctx = inverse->ctx;
  const int64_t all = r->count * r->length, n = moth_runs_of(all, r->x, r->dtype, NULL, NULL);
  const bool values_only = inverse->l.numel < all;
  moth_layout l = {.ndim = 1, .dtype = (uint8_t)r->dtype, .shape = {n}};
  *counts = new_list(ctx, values_only ? 0 : n);
  if (!values_only || !y) *first = new_list(ctx, n);
  if (y && moth_layout_pack(&l)) *y = moth_tensor_new(ctx, &l);
  if (!*counts || (y ? !*y : !*first) || (!values_only && !*first)) return ctx->error.code;
  int64_t *f = *first ? numbers(*first) : NULL, *group = numbers(inverse);
  moth_runs_of(all, r->x, r->dtype, f, y ? moth_at(*y) : NULL);
  for (int64_t i = 0; i < n && !values_only; i++) {
    const int64_t stop = i + 1 < n ? f[i + 1] : all;
    numbers(*counts)[i] = stop - f[i];
    for (int64_t at = f[i]; at < stop; at++) group[at] = i;
  }
  return MOTH_OK;
}

/* Describes the rows that are compared: elements, or slices along a dimension. */
static int unique_rows(const unique_all_args *a, int32_t *dim, moth_rows *r, moth_layout *inverse) {
  const moth_tensor *x = a->input;
  uint32_t mask = 0;
  *dim = -1;
  *inverse = x->l;
  if (a->dim != MOTH_NO_INT) {
    if (x->l.ndim == 0)
      return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                       "a tensor with dimensions is needed, got %s", moth_str(x));
    int status = moth_dim(a->ctx, "dim", a->dim, x->l.ndim, dim);
    if (status) return status;
    mask = ((1u << x->l.ndim) - 1u) & ~(1u << *dim);
    inverse->ndim = 1;
    inverse->shape[0] = x->l.shape[*dim];
  }
  inverse->dtype = MOTH_I64;
  moth_layout_pack(inverse); /* at most the input's size */
  return moth_rows_of(r, x, mask, moth_compute_dtype(x->l.dtype));
}

static int pick_first(const unique_all_args *a, int32_t dim, moth_tensor *first, moth_tensor **y) {
  static const int64_t all = -1;
  if (dim >= 0)
    return MOTH_CALL(a->ctx, y, index_select, .input = a->input, .dim = dim, .index = first);
  moth_tensor *flat = NULL;
  int status = MOTH_CALL(a->ctx, &flat, reshape, .input = a->input, .shape = {&all, 1});
  if (!status)
    status = MOTH_CALL(a->ctx, y, index_select, .input = flat, .dim = 0, .index = first);
  moth_tensor_release(flat);
  return status;
}

/* For slices, and for tensors that are too small for kernels of a device. */
static int unique_through_cpu(const unique_all_args *a, moth_tensor **out) {
  moth_tensor *here = moth_to_host(a->input), *y[3] = {NULL, NULL, NULL};
  int status = !here ? a->ctx->error.code
                     : MOTH_CALL(a->ctx, y, unique_all, .input = here, .dim = a->dim,
                                 .consecutive = a->consecutive, .values_only = a->values_only);
  for (int i = 0; i < 3; i++) {
    if (!status)
      status = MOTH_CALL(a->ctx, &out[i], to_device, .input = y[i],
                         .device = moth_device_of(a->input));
    moth_tensor_release(y[i]);
  }
  moth_tensor_release(here);
  return status;
}

/* -- elements on a device, with ops of the device; only the number of groups is read back -- */

enum { FLAT, SORTED, ORDER, LEFT, RIGHT, DIFFER, ZERO, STEPS, GROUP, EACH, FIRST, BEHIND, ALL };

/* t := the elements in sorted order, and the group number of each. */
static int groups_there(const unique_all_args *a, moth_tensor **t) {
  static const int64_t all = -1, one = 1;
  moth_ctx *ctx = a->ctx;
  const int64_t n = a->input->l.numel;
  moth_tensor *joined[2], *sorted[2] = {NULL};
  int status = MOTH_CALL(ctx, &t[FLAT], reshape, .input = a->input, .shape = {&all, 1});
  if (status) return status;
  if (!a->consecutive) status = MOTH_CALL(ctx, sorted, sort, .input = t[FLAT]);
  t[SORTED] = sorted[0] ? sorted[0] : moth_tensor_retain(t[FLAT]);
  t[ORDER] = sorted[1];
  if (!status)
    status = MOTH_CALL(ctx, &t[LEFT], narrow, .input = t[SORTED], .start = 0, .length = n - 1);
  if (!status)
    status = MOTH_CALL(ctx, &t[RIGHT], narrow, .input = t[SORTED], .start = 1, .length = n - 1);
  if (!status) status = MOTH_CALL(ctx, &t[DIFFER], ne, .input = t[LEFT], .other = t[RIGHT]);
  if (!status)
    status = MOTH_CALL(ctx, &t[STEPS], cumsum, .input = t[DIFFER], .dtype = MOTH_I64);
  if (!status)
    status = MOTH_CALL(ctx, &t[ZERO], zeros, .size = {&one, 1}, .dtype = MOTH_I64,
                       .device = moth_device_of(a->input));
  joined[0] = t[ZERO], joined[1] = t[STEPS];
  return status ? status : MOTH_CALL(ctx, &t[GROUP], cat, .tensors = {joined, 2});
}

/* t := the start and the end of each group in sorted order. */
static int bounds_there(const unique_all_args *a, moth_tensor **t) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *last = NULL, *here = NULL;
  int status = MOTH_CALL(ctx, &last, narrow, .input = t[GROUP], .start = a->input->l.numel - 1,
                         .length = 1);
  if (!status && !(here = moth_to_host(last))) status = ctx->error.code;
  const double n = status ? 0 : (double)*numbers(here) + 1;
  moth_tensor_release(last);
  moth_tensor_release(here);
  if (!status)
    status = MOTH_CALL(ctx, &t[EACH], arange, .start = {.as.number = 0}, .stop = {.as.number = n},
                       .step = {.as.number = 1}, .dtype = MOTH_I64,
                       .device = moth_device_of(a->input));
  if (!status)
    status = MOTH_CALL(ctx, &t[FIRST], searchsorted, .sorted_sequence = t[GROUP], .input = t[EACH]);
  if (status) return status;
  return MOTH_CALL(ctx, &t[BEHIND], searchsorted, .sorted_sequence = t[GROUP], .input = t[EACH],
                   .right = true);
}

static int inverse_there(const unique_all_args *a, moth_tensor **t, moth_tensor **y) {
  moth_ctx *ctx = a->ctx;
  const moth_layout *x = &a->input->l;
  moth_tensor *flat = t[ORDER] ? NULL : moth_tensor_retain(t[GROUP]);
  int status = MOTH_OK;
  if (!flat)
    status = MOTH_CALL(ctx, &flat, scatter, .input = t[GROUP], .index = t[ORDER], .src = t[GROUP]);
  if (!status)
    status = MOTH_CALL(ctx, y, reshape, .input = flat, .shape = {x->shape, x->ndim});
  moth_tensor_release(flat);
  return status;
}

/* y := an empty tensor on the input's device, for a result that is not requested. */
static int no_positions(const unique_all_args *a, moth_tensor **y) {
  return MOTH_CALL(a->ctx, y, arange, .start = {.as.number = 0}, .stop = {.as.number = 0},
                   .step = {.as.number = 1}, .dtype = MOTH_I64,
                   .device = moth_device_of(a->input));
}

static int unique_there(const unique_all_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *t[ALL] = {NULL}, *from = NULL;
  const bool mode = ctx->grad_mode;
  ctx->grad_mode = false;
  int status = groups_there(a, t);
  if (!status) status = bounds_there(a, t);
  if (!status) status = a->values_only ? no_positions(a, &out[1]) : inverse_there(a, t, &out[1]);
  if (!status && a->values_only && a->consecutive)
    status = no_positions(a, &out[2]);
  else if (!status)
    status = MOTH_CALL(ctx, &out[2], sub, .input = t[BEHIND], .other = t[FIRST],
                       .alpha = {.as.number = 1});
  if (!status && t[ORDER])
    status = MOTH_CALL(ctx, &from, index_select, .input = t[ORDER], .index = t[FIRST]);
  ctx->grad_mode = mode;
  if (!status) status = pick_first(a, -1, from ? from : t[FIRST], &out[0]);
  moth_tensor_release(from);
  for (int i = 0; i < ALL; i++) moth_tensor_release(t[i]);
  for (int i = 0; status && i < 3; i++) {
    moth_tensor_release(out[i]);
    out[i] = NULL;
  }
  return status;
}

static int unique_all_compose(const unique_all_args *a, moth_tensor **out) {
  if (moth_capture_refuse_shape(a->ctx, "unique")) return a->ctx->error.code;
  if (a->input->l.device && a->dim == MOTH_NO_INT && a->input->l.numel > 1 &&
      a->input->l.dtype != MOTH_BOOL)
    return unique_there(a, out);
  if (a->input->l.device) return unique_through_cpu(a, out);
  moth_rows r;
  groups g = {.memory = NULL};
  int32_t dim;
  moth_layout l;
  moth_tensor *inverse = NULL, *first = NULL, *counts = NULL, *y = NULL;
  int status = unique_rows(a, &dim, &r, &l);
  if (status) return status;
  if (a->values_only) l = (moth_layout){.ndim = 1, .dtype = MOTH_I64, .shape = {0}};
  inverse = moth_layout_pack(&l) ? moth_tensor_new(a->ctx, &l) : NULL;
  const bool runs = a->consecutive && a->dim == MOTH_NO_INT;
  status = !inverse ? a->ctx->error.code
         : runs     ? runs_read(&r, inverse, &first, &counts,
                                copies_values(a->input, &r) ? &y : NULL)
                    : groups_open(&g, a->input, &r, !a->consecutive);
  if (!status && !a->consecutive) status = groups_sort(&g, a->ctx);
  if (!status && !runs)
    status = groups_read(&g, moth_is_float(r.dtype), inverse, &first, &counts);
  if (!status && !y) status = pick_first(a, dim, first, &y);
  if (g.memory) moth_dealloc(a->ctx, g.memory, g.bytes);
  moth_tensor_release(r.owner);
  moth_tensor_release(first);
  if (status) {
    moth_tensor_release(inverse);
    moth_tensor_release(counts);
    moth_tensor_release(y);
    return status;
  }
  out[0] = y;
  out[1] = inverse;
  out[2] = counts;
  return MOTH_OK;
}

MOTH_OP_COMPOSES(unique_all, UNIQUE_ALL, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN,
                 .outputs = "values, inverse: position, counts",
                 .doc = "The unique elements or slices, sorted; for each input element its "
                        "position among them; and their counts.",
                 .examples = "moth.tensor{3LL, 1LL, 3LL}\n"
                             "moth.tensor{{3LL, 1LL}, {3LL, 1LL}}, {dim = 1, consecutive = true}\n"
                             "moth.tensor{3LL, 1LL, 3LL}, {values_only = true}",
                 .public_name = "unique")

/* -- searchsorted, bucketize, isin -- */

/* Returns packed keys of x as i64 tensors, since there is no u64 dtype; owned. */
static moth_tensor *keys_of(const moth_tensor *x) {
  moth_tensor *from = moth_cast(x, moth_compute_dtype(x->l.dtype)), *y = NULL;
  moth_layout l = x->l;
  l.dtype = MOTH_I64;
  if (from) y = moth_tensor_new(x->ctx, &l);
  if (y)
    moth_keys_of(l.numel, moth_at(from), from->l.dtype, false, (uint64_t *)(void *)moth_at(y));
  moth_tensor_release(from);
  return y;
}

/* values that are searched at once, since each step of a search waits for the previous one */
enum { TOGETHER = 32 };

/* y := for each of `count` values, the number of sorted keys that are below it. No branch depends
** on a key, since half of the branches would be mispredicted. */
static void ranks_of(const uint64_t *keys, int64_t n, int count, const uint64_t *v, int64_t *y) {
  int64_t at[TOGETHER] = {0};
  for (int64_t left = n, half = n / 2; left > 1; left -= half, half = left / 2)
    for (int j = 0; j < count; j++)
      at[j] += half & -(int64_t)(keys[at[j] + half - 1] < v[j]);
  for (int j = 0; j < count; j++) y[j] = at[j] + (n > 0 && keys[at[j]] < v[j]);
}

/* Values x are searched in sorted keys. searchsorted has rows of n keys, each with its own number
** of values. */
typedef struct search {
  const uint64_t *keys, *x;
  int64_t n, each;
  bool right, floats, invert;
  void *y;
} search;

static void find_places(int64_t i, int64_t end, int lane, const void *arg) {
  const search *s = arg;
  int64_t *y = s->y;
  (void)lane;
  while (i < end) {
    const int64_t row = s->each ? i / s->each : 0;
    const int64_t stop = (row + 1) * s->each < end ? (row + 1) * s->each : end;
    /* with `right`, insert after equal keys: search for the next key */
    for (int count; i < stop; i += count) {
      uint64_t next[TOGETHER];
      count = stop - i < TOGETHER ? (int)(stop - i) : TOGETHER;
      for (int j = 0; j < count; j++) next[j] = s->x[i + j] + s->right;
      ranks_of(s->keys + row * s->n, s->n, count, next, y + i);
      for (int j = 0; j < count; j++)
        if (next[j] < s->x[i + j]) y[i + j] = s->n;
    }
  }
}

static void find_same(int64_t i, int64_t end, int lane, const void *arg) {
  const search *s = arg;
  (void)lane;
  for (int count; i < end; i += count) {
    int64_t rank[TOGETHER];
    count = end - i < TOGETHER ? (int)(end - i) : TOGETHER;
    ranks_of(s->keys, s->n, count, s->x + i, rank);
    for (int j = 0; j < count; j++) {
      const uint64_t v = s->x[i + j];
      const bool found = rank[j] < s->n && s->keys[rank[j]] == v;
      ((uint8_t *)s->y)[i + j] = (found && !(s->floats && v == MOTH_KEY_NAN)) != s->invert;
    }
  }
}

/* Runs `work` for every element of input. */
static int look_up(search *s, const moth_tensor *keys, const moth_tensor *input, moth_work *work) {
  moth_tensor *x = keys_of(input);
  if (!x) return input->ctx->error.code;
  s->keys = (const uint64_t *)(const void *)moth_at(keys);
  s->x = (const uint64_t *)(const void *)moth_at(x);
  int status = moth_parallel(input->ctx, input->l.numel, 64, 10, work, s);
  moth_tensor_release(x);
  return status;
}

static int searchsorted_shape(const searchsorted_args *a, moth_layout *y) {
  const moth_layout *s = &a->sorted_sequence->l, *x = &a->input->l;
  bool fits = s->ndim == 1 || s->ndim == x->ndim;
  for (int32_t d = 0; d + 1 < s->ndim && fits; d++) fits = s->shape[d] == x->shape[d];
  if (s->ndim == 0 || !fits)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "sorted_sequence",
                     "one dimension, or the same rows as the input %s, are needed, got %s",
                     moth_str(a->input), moth_str(a->sorted_sequence));
  y->ndim = x->ndim;
  y->dtype = MOTH_I64;
  memcpy(y->shape, x->shape, sizeof y->shape);
  return MOTH_OK;
}

static int searchsorted_cpu(const searchsorted_args *a, moth_tensor **out) {
  const moth_layout *l = &a->sorted_sequence->l;
  const int64_t n = l->shape[l->ndim - 1], rows = n ? l->numel / n : 1;
  search s = {.n = n, .each = rows ? a->input->l.numel / rows : 0,
              .right = a->right || a->side == 1, .y = moth_at(out[0])};
  moth_tensor *keys = keys_of(a->sorted_sequence);
  int status = keys ? look_up(&s, keys, a->input, find_places) : a->ctx->error.code;
  moth_tensor_release(keys);
  return status;
}

MOTH_OP_CONST(searchsorted, SEARCHSORTED, .dtypes = MOTH_ANY | MOTH_PROMOTE,
              .flags = MOTH_OP_NUMBERS, .outputs = "positions: position",
              .doc = "The positions at which values can be inserted into a sorted row so that it "
                     "stays sorted, from 1 (before all n elements) to n + 1 (after them).",
              .examples = "moth.tensor{1, 3, 5}, moth.tensor{{0, 3}, {4, 9}}\n"
                          "moth.tensor{1, 3, 5}, 3, {right = true, side = \"right\"}")

static int bucketize_compose(const bucketize_args *a, moth_tensor **out) {
  if (a->boundaries->l.ndim != 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "boundaries", "one dimension is needed, got %s",
                     moth_str(a->boundaries));
  return MOTH_CALL(a->ctx, out, searchsorted, .sorted_sequence = a->boundaries,
                   .input = a->input, .right = a->right);
}

MOTH_OP_COMPOSES(bucketize, BUCKETIZE, .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_METHOD | MOTH_OP_MIXED | MOTH_OP_NUMBERS,
                 .outputs = "positions: position",
                 .doc = "The bucket of each value between sorted boundaries, from 1 (below the "
                        "first of n boundaries) to n + 1 (above the last).",
                 .examples = "moth.tensor{{0LL, 3LL}, {4LL, 9LL}}, moth.tensor{1LL, 3LL, 5LL}\n"
                             "moth.tensor{3LL}, moth.tensor{1LL, 3LL}, {right = true}")

static int isin_shape(const isin_args *a, moth_layout *y) {
  y->ndim = a->elements->l.ndim;
  y->dtype = MOTH_BOOL;
  memcpy(y->shape, a->elements->l.shape, sizeof y->shape);
  return MOTH_OK;
}

static int isin_cpu(const isin_args *a, moth_tensor **out) {
  moth_rows r;
  const moth_tensor *test = a->test_elements;
  const uint32_t mask = (1u << test->l.ndim) - 1u;
  int status = moth_rows_of(&r, test, mask, moth_compute_dtype(test->l.dtype));
  if (status) return status;
  moth_layout l = {.ndim = 1, .dtype = (uint8_t)r.dtype, .shape = {test->l.numel}};
  moth_tensor *at = new_list(a->ctx, test->l.numel), *values = NULL, *keys = NULL;
  if (at && moth_layout_pack(&l)) values = moth_tensor_new(a->ctx, &l);
  status = values ? MOTH_OK : a->ctx->error.code;
  if (!status && r.length)
    status = moth_rows_sort(&r, r.length, false, moth_at(values), numbers(at));
  if (!status && !(keys = keys_of(values))) status = a->ctx->error.code;
  search s = {.n = test->l.numel, .floats = moth_is_float(r.dtype), .invert = a->invert,
              .y = moth_at(out[0])};
  if (!status) status = look_up(&s, keys, a->elements, find_same);
  moth_tensor_release(keys);
  moth_tensor_release(values);
  moth_tensor_release(at);
  moth_tensor_release(r.owner);
  return status;
}

MOTH_OP_CONST(isin, ISIN, .dtypes = MOTH_ANY | MOTH_PROMOTE, .flags = MOTH_OP_NUMBERS,
              .doc = "True for the elements that are among test_elements.",
              .examples = "moth.tensor{{1, 2}, {3, 4}}, moth.tensor{2, 3}\n"
                          "moth.tensor{1, 2}, moth.tensor{2}, "
                          "{assume_unique = true, invert = true}")

const moth_op *const moth_sort_ops[] = {
  &moth_op_sort,       &moth_op_argsort,    &moth_op_msort,      &moth_op_topk,
  &moth_op_kthvalue,   &moth_op_median_all, &moth_op_median_dim, &moth_op_quantile_of,
  &moth_op_unique_all,
  &moth_op_searchsorted, &moth_op_bucketize, &moth_op_isin, NULL,
};

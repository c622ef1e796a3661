/* create.c -- tensors created from a shape: constants, ranges, identity matrices; and the triangles
** of matrices.
*/
#include "create.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/copy.h"
#include "kernel/scalar.h"
#include "tensor/loop.h"
#include "call/observer.h"

#define POLL_ELEMENTS (1 << 16) /* elements that are filled between two polls */

/* -- filling a dense result -- */

/* Returns the dtype that a scalar is held in: bool, i64 or f64. */
static int scalar_dtype(moth_scalar s) {
  return s.type == 1 ? MOTH_I64 : s.type == 2 ? MOTH_BOOL : MOTH_F64;
}

static int fill(moth_tensor *y, moth_scalar s) {
  uint8_t byte = s.as.integer != 0;
  const char *value = s.type == 2 ? (const char *)&byte : (const char *)&s.as;
  moth_operand element;
  if (y->l.numel == 0) return MOTH_OK;
  moth_convert(1, scalar_dtype(s), value, 8, y->l.dtype, (char *)&element.element, 8);
  if (y->l.device || moth_observes_functions(y->ctx))
    return moth_copy_into(y, moth_operand_of(&element, y->ctx, y->l.dtype));
  const int size = moth_dtype_size[y->l.dtype];
  int status = MOTH_OK;
  for (int64_t i = 0; i < y->l.numel && !status; i += POLL_ELEMENTS) {
    const int64_t left = y->l.numel - i;
    moth_fill(size, left < POLL_ELEMENTS ? left : POLL_ELEMENTS, moth_at(y) + i * size,
              &element.element);
    status = moth_poll(y->ctx);
  }
  return status;
}

static int fill_number(moth_tensor *y, double value) {
  return fill(y, (moth_scalar){.type = 0, .as.number = value});
}

/* Fails if the dtype cannot represent the value. */
static int check_fits(moth_ctx *ctx, const char *arg, moth_scalar s, int dtype) {
  uint8_t byte = s.as.integer != 0;
  const void *value = s.type == 2 ? (const void *)&byte : (const void *)&s.as;
  if (moth_value_fits(scalar_dtype(s), value, dtype)) return MOTH_OK;
  if (s.type == 1)
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "%lld does not fit %s", (long long)s.as.integer,
                     moth_dtype_name(dtype));
  if (isnan(s.as.number))
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "nan does not fit %s", moth_dtype_name(dtype));
  return moth_fail(ctx, MOTH_E_DTYPE, arg, "%.17g does not fit %s", s.as.number,
                   moth_dtype_name(dtype));
}

static void set_dtype(moth_ctx *ctx, int64_t dtype, moth_layout *y) {
  y->dtype = (uint8_t)(dtype < 0 ? ctx->default_dtype : dtype);
}

/* y := the layout of a result with the shape of `input`. */
static int like(const moth_tensor *input, int64_t dtype, moth_layout *y) {
  moth_shape_like(input, y);
  y->dtype = (uint8_t)(dtype < 0 ? input->l.dtype : dtype);
  return MOTH_OK;
}

/* -- zeros, ones, empty, full -- */

static int zeros_shape(const zeros_args *a, moth_layout *y) {
  set_dtype(a->ctx, a->dtype, y);
  return moth_shape_of(a->ctx, "size", a->size, y);
}
static int zeros_cpu(const zeros_args *a, moth_tensor **out) {
  (void)a;
  return fill_number(out[0], 0);
}
MOTH_OP_CONST(zeros, ZEROS, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_PORTABLE,
              .doc = "A tensor of zeros.",
              .examples = "{2, 3}\n"
                          "{2}, {dtype = moth.int64, device = \"cpu\"}")

static int ones_shape(const ones_args *a, moth_layout *y) {
  set_dtype(a->ctx, a->dtype, y);
  return moth_shape_of(a->ctx, "size", a->size, y);
}
static int ones_cpu(const ones_args *a, moth_tensor **out) {
  (void)a;
  return fill_number(out[0], 1);
}
MOTH_OP_CONST(ones, ONES, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_PORTABLE,
              .doc = "A tensor of ones.",
              .examples = "{2, 3}\n"
                          "{2}, {dtype = moth.bool, device = \"cpu\"}")

static int empty_shape(const empty_args *a, moth_layout *y) {
  set_dtype(a->ctx, a->dtype, y);
  return moth_shape_of(a->ctx, "size", a->size, y);
}
static int empty_cpu(const empty_args *a, moth_tensor **out) {
  (void)a;
  /* a byte other than 0 and 1 is not a valid bool */
  if (out[0]->l.dtype == MOTH_BOOL) return fill_number(out[0], 0);
  return MOTH_OK;
}
MOTH_OP_CONST(empty, EMPTY, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_PORTABLE,
              .doc = "A tensor with uninitialized values.",
              .examples = "{2, 3}\n"
                          "{2}, {dtype = moth.float64, device = \"cpu\"}")

static int full_shape(const full_args *a, moth_layout *y) {
  static const uint8_t own[] = {0, MOTH_I64, MOTH_BOOL};
  set_dtype(a->ctx, a->dtype, y);
  if (a->dtype < 0 && a->fill_value.type > 0) y->dtype = own[a->fill_value.type == 1 ? 1 : 2];
  int status = check_fits(a->ctx, "fill_value", a->fill_value, y->dtype);
  return status ? status : moth_shape_of(a->ctx, "size", a->size, y);
}
static int full_cpu(const full_args *a, moth_tensor **out) { return fill(out[0], a->fill_value); }
MOTH_OP_CONST(full, FULL, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_PORTABLE,
              .doc = "A tensor filled with one value.",
              .examples = "{2, 3}, 7\n"
                          "{2}, 7, {dtype = moth.int32, device = \"cpu\"}")

/* -- the same with the shape of another tensor -- */

static int zeros_like_shape(const zeros_like_args *a, moth_layout *y) {
  return like(a->input, a->dtype, y);
}
static int zeros_like_cpu(const zeros_like_args *a, moth_tensor **out) {
  (void)a;
  return fill_number(out[0], 0);
}
MOTH_OP_CONST(zeros_like, ZEROS_LIKE, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
              .doc = "A tensor of zeros with the input's shape.",
              .examples = "moth.randn(2, 3)\n"
                          "moth.randn(2, 3), {dtype = moth.int64, device = \"cpu\"}\n"
                          "moth.randn(2, 3, 2, 2), {memory_format = moth.channels_last}")

static int ones_like_shape(const ones_like_args *a, moth_layout *y) {
  return like(a->input, a->dtype, y);
}
static int ones_like_cpu(const ones_like_args *a, moth_tensor **out) {
  (void)a;
  return fill_number(out[0], 1);
}
MOTH_OP_CONST(ones_like, ONES_LIKE, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
              .doc = "A tensor of ones with the input's shape.",
              .examples = "moth.randn(2, 3)\n"
                          "moth.randn(2, 3), {dtype = moth.int64, device = \"cpu\"}\n"
                          "moth.randn(2, 3, 2, 2), {memory_format = moth.channels_last}")

static int empty_like_shape(const empty_like_args *a, moth_layout *y) {
  return like(a->input, a->dtype, y);
}
static int empty_like_cpu(const empty_like_args *a, moth_tensor **out) {
  (void)a;
  return out[0]->l.dtype == MOTH_BOOL ? fill_number(out[0], 0) : MOTH_OK;
}
MOTH_OP_CONST(empty_like, EMPTY_LIKE, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
              .doc = "A tensor of uninitialized values with the input's shape.",
              .examples = "moth.randn(2, 3)\n"
                          "moth.randn(2, 3), {dtype = moth.int64, device = \"cpu\"}\n"
                          "moth.randn(2, 3, 2, 2), {memory_format = moth.channels_last}")

static int full_like_shape(const full_like_args *a, moth_layout *y) {
  like(a->input, a->dtype, y);
  return check_fits(a->ctx, "fill_value", a->fill_value, y->dtype);
}
static int full_like_cpu(const full_like_args *a, moth_tensor **out) {
  return fill(out[0], a->fill_value);
}
MOTH_OP_CONST(full_like, FULL_LIKE, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_CREATES | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
              .doc = "A tensor filled with one value, with the input's shape.",
              .examples = "moth.randn(2, 3), 7\n"
                          "moth.randn(2, 3), 7, {dtype = moth.int64, device = \"cpu\"}\n"
                          "moth.randn(2, 3, 2, 2), 7, {memory_format = moth.channels_last}")

/* -- arange, linspace: blocks of a constant size, which the compiler vectorises -- */

enum { BLOCK = 256 };

static double scalar_number(moth_scalar s) {
  return s.type == 0 ? s.as.number : (double)s.as.integer;
}
static bool is_integer(moth_scalar s, int64_t *value) {
  if (s.type != 0) {
    *value = s.as.integer;
    return true;
  }
  double x = s.as.number;
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) return false;
  *value = (int64_t)x;
  return (double)*value == x;
}

/* at := start, stop and step as integers. Returns false if one of them is not an integer. */
static bool arange_integers(const arange_args *a, int64_t at[3]) {
  return is_integer(a->start, &at[0]) && is_integer(a->stop, &at[1]) &&
         is_integer(a->step, &at[2]);
}

/* The number of full steps before stop: exact for all int64. */
static uint64_t count_integers(const int64_t at[3]) {
  uint64_t way, step;
  if (at[2] > 0) {
    way = (uint64_t)at[1] - (uint64_t)at[0];
    step = (uint64_t)at[2];
  } else {
    way = (uint64_t)at[0] - (uint64_t)at[1];
    step = 0 - (uint64_t)at[2];
  }
  return way / step + (way % step != 0);
}

static int arange_shape(const arange_args *a, moth_layout *y) {
  double start = scalar_number(a->start), stop = scalar_number(a->stop);
  double step = scalar_number(a->step), n = ceil((stop - start) / step);
  int64_t at[3] = {0};
  bool integers = arange_integers(a, at);
  set_dtype(a->ctx, a->dtype, y);
  if (a->dtype < 0 && integers) y->dtype = MOTH_I64;
  if (step == 0) return moth_fail(a->ctx, MOTH_E_ARG, "step", "cannot be 0");
  if (!isfinite(start) || !isfinite(stop) || !isfinite(step))
    return moth_fail(a->ctx, MOTH_E_ARG,
                     !isfinite(start) ? "start" : !isfinite(stop) ? "stop" : "step",
                     "a finite number is needed");
  bool wrong = integers ? (at[2] > 0 ? at[1] < at[0] : at[1] > at[0])
                        : (step > 0 ? stop < start : stop > start);
  if (wrong)
    return moth_fail(a->ctx, MOTH_E_ARG, "step",
                     "a step of %.17g does not lead from %.17g to %.17g", step,
                     start, stop);
  if (integers) {
    uint64_t exact = count_integers(at);
    n = exact > INT64_MAX ? 1e300 : (double)exact;
    y->shape[0] = (int64_t)exact;
  } else if (n < 9e18) {
    y->shape[0] = (int64_t)n;
  }
  y->ndim = 1;
  if (!(n < 9e18))
    return moth_fail(a->ctx, MOTH_E_SHAPE, NULL,
                     "the range from %.17g to %.17g by %.17g has too many values",
                     start, stop, step);
  return moth_shape_of(a->ctx, "stop", (moth_ints){&y->shape[0], 1}, y);
}

static int arange_cpu(const arange_args *a, moth_tensor **out) {
  int dtype = out[0]->l.dtype;
  int64_t at[3] = {0}, n = out[0]->l.numel, size = moth_dtype_size[dtype];
  double start = scalar_number(a->start), step = scalar_number(a->step);
  /* f64 is faster to convert to floats, and exact up to 2^53 */
  bool exact = fabs(start) + fabs(step) + fabs(scalar_number(a->stop)) < 0x1p53;
  bool integers = arange_integers(a, at) && !(exact && moth_is_float(dtype));
  char *y = moth_at(out[0]);
  for (int64_t i = 0; i < n;) {
    union {
      double number[BLOCK];
      int64_t integer[BLOCK];
    } block;
    const int64_t m = n - i < BLOCK ? n - i : BLOCK;
    uint64_t v = (uint64_t)at[0] + (uint64_t)i * (uint64_t)at[2];
    const double from = (double)i;
    if (integers)
      for (int j = 0; j < BLOCK; j++, v += (uint64_t)at[2]) block.integer[j] = (int64_t)v;
    else
      for (int j = 0; j < BLOCK; j++) block.number[j] = start + (from + j) * step;
    moth_convert(m, integers ? MOTH_I64 : MOTH_F64, (const char *)&block, 8, dtype, y + i * size,
                 size);
    i += m;
  }
  return MOTH_OK;
}

MOTH_OP_CONST(arange, ARANGE, .dtypes = MOTH_ANY, .flags = MOTH_OP_CREATES,
              .doc = "The numbers from start up to, but not including, stop, in steps of `step`.",
              .examples = "0, 5\n"
                          "5, 1, -1.5, {dtype = moth.float64, device = \"cpu\"}")

static int linspace_shape(const linspace_args *a, moth_layout *y) {
  set_dtype(a->ctx, a->dtype, y);
  if (a->steps < 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "steps", "a number from 0 on is needed, got %lld",
                     (long long)a->steps);
  return moth_shape_of(a->ctx, "steps", (moth_ints){&a->steps, 1}, y);
}

/* Returns (start (last - i) + stop i) / last with one rounding. Each part of the numerator has its
** rounding error in `rest`, so that zeros, integers and both bounds are exact. */
static double between(double start, double stop, double last, double i) {
  const double p = start * (last - i), q = stop * i, sum = p + q, part = sum - p, y = sum / last;
  const double rest = fma(start, last - i, -p) + fma(stop, i, -q)
                      + ((p - (sum - part)) + (q - part));
  return y + (fma(-y, last, sum) + rest) / last;
}

static int linspace_cpu(const linspace_args *a, moth_tensor **out) {
  const int dtype = out[0]->l.dtype;
  const int64_t n = a->steps, size = moth_dtype_size[dtype];
  const double last = n > 1 ? (double)(n - 1) : 1;
  const double unit = fmax(fabs(a->start), fabs(a->stop)) > 0x1p900 ? 0x1p100 : 1; /* no overflow */
  const double start = a->start / unit, stop = a->stop / unit;
  const bool rounds = moth_is_float(dtype) && dtype != MOTH_F64; /* to fewer bits than f64 has */
  char *y = moth_at(out[0]);
  for (int64_t i = 0; i < n; i += BLOCK) {
    double block[BLOCK];
    const double from = (double)i;
    if (rounds)
      for (int j = 0; j < BLOCK; j++)
        block[j] = (start * (last - (from + j)) + stop * (from + j)) / last * unit;
    else
      for (int j = 0; j < BLOCK; j++) block[j] = between(start, stop, last, from + j) * unit;
    moth_convert(n - i < BLOCK ? n - i : BLOCK, MOTH_F64, (const char *)block, 8, dtype,
                 y + i * size, size);
  }
  return MOTH_OK;
}

MOTH_OP_CONST(linspace, LINSPACE, .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_CREATES,
              .doc = "`steps` evenly spaced numbers from start to stop, both included.",
              .examples = "0, 1, 5\n"
                          "1, -1, 4, {dtype = moth.float64, device = \"cpu\"}")

/* -- eye -- */

static int eye_shape(const eye_args *a, moth_layout *y) {
  int64_t size[2] = {a->n, a->m == MOTH_NO_INT ? a->n : a->m};
  set_dtype(a->ctx, a->dtype, y);
  return moth_shape_of(a->ctx, a->n < 0 ? "n" : "m", (moth_ints){size, 2}, y);
}

static int eye_cpu(const eye_args *a, moth_tensor **out) {
  moth_tensor *y = out[0];
  int64_t rows = y->l.shape[0], columns = y->l.shape[1];
  int64_t size = moth_dtype_size[y->l.dtype];
  double one = 1;
  (void)a;
  fill_number(y, 0);
  for (int64_t i = 0; i < rows && i < columns; i++)
    moth_convert(1, MOTH_F64, (const char *)&one, 8, y->l.dtype,
                 moth_at(y) + i * (columns + 1) * size, size);
  return MOTH_OK;
}

MOTH_OP_CONST(eye, EYE, .dtypes = MOTH_ANY, .flags = MOTH_OP_CREATES,
              .doc = "A matrix with ones on the diagonal and zeros elsewhere.",
              .examples = "3\n"
                          "2, {m = 3, dtype = moth.float64, device = \"cpu\"}")

/* -- positions of a triangle -- */

#define MOST_ROWS ((int64_t)1 << 31) /* limit of rows: the matrix's elements are counted in i64 */

/* The diagonal that ends the lower triangle. */
static int64_t bound_of(const triangle_indices_args *a) {
  const int64_t most = 2 * MOST_ROWS, offset = a->offset - (a->upper && a->offset > -most);
  return offset > most ? most : offset < -most ? -most : offset;
}

/* The number of elements of the triangle. Rows of the lower triangle grow by one element until they
** are full. */
static int64_t triangle_size(const triangle_indices_args *a) {
  const int64_t bound = bound_of(a), first = bound < 0 ? (-bound < a->row ? -bound : a->row) : 0;
  int64_t full = a->col - bound - 1;
  full = full < first ? first : full > a->row ? a->row : full;
  const int64_t n = full - first, lower = n * (first + bound + 1) + n * (n - 1) / 2 +
                                          (a->row - full) * a->col;
  return a->upper ? a->row * a->col - lower : lower;
}

static int triangle_indices_shape(const triangle_indices_args *a, moth_layout *y) {
  int64_t size[2] = {2, 0};
  y->dtype = (uint8_t)(a->dtype < 0 ? MOTH_I64 : a->dtype);
  const bool rows = a->row < 0 || (a->col >= 0 && a->row > MOST_ROWS);
  const int64_t wrong = rows ? a->row : a->col;
  if (wrong < 0)
    return moth_fail(a->ctx, MOTH_E_ARG, rows ? "row" : "col", "a size >= 0 is needed, got %lld",
                     (long long)wrong);
  if (wrong > MOST_ROWS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, rows ? "row" : "col", "%lld is too large",
                     (long long)wrong);
  size[1] = triangle_size(a);
  return moth_shape_of(a->ctx, "row", (moth_ints){size, 2}, y);
}

static void write_triangle(const triangle_indices_args *a, int64_t left, int64_t *row,
                           int64_t *column) {
  const int64_t bound = bound_of(a);
  for (int64_t r = bound < 0 && !a->upper ? -bound : 0; left > 0; r++) {
    int64_t edge = r + bound + 1;
    edge = edge < 0 ? 0 : edge > a->col ? a->col : edge;
    const int64_t first = a->upper ? edge : 0, n = a->upper ? a->col - edge : edge;
    for (int64_t i = 0; i < n; i++) row[i] = r + 1;
    for (int64_t i = 0; i < n; i++) column[i] = first + i + 1;
    row += n;
    column += n;
    left -= n;
  }
}

static int triangle_indices_cpu(const triangle_indices_args *a, moth_tensor **out) {
  moth_tensor *y = out[0], *work = y;
  moth_layout l = y->l;
  if (l.numel == 0) return MOTH_OK;
  l.dtype = MOTH_I64;
  if (y->l.dtype != MOTH_I64) work = moth_tensor_new(y->ctx, &l);
  if (!work) return y->ctx->error.code;
  int64_t *at = (int64_t *)(void *)moth_at(work);
  write_triangle(a, l.numel / 2, at, at + l.numel / 2);
  int status = work == y ? MOTH_OK : moth_copy_into(y, work);
  if (work != y) moth_tensor_release(work);
  return status;
}

MOTH_OP_CONST(triangle_indices, TRIANGLE_INDICES, .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN,
              .doc = "The row and column positions of a triangle of a matrix, counted from 1.",
              .examples = "3, 3\n2, 4, 1, {upper = true, dtype = moth.int32, device = \"cpu\"}",
              .public_name = "tril_indices")

/* -- tril, triu -- */

/* Copies packed matrices. Each row keeps one side of the diagonal; the other side becomes zero. */
static int triangle(const moth_tensor *input, int64_t diagonal, bool upper, moth_tensor *y) {
  int64_t rows = y->l.shape[y->l.ndim - 2], columns = y->l.shape[y->l.ndim - 1];
  int64_t size = moth_dtype_size[y->l.dtype];
  int status = moth_copy_into(y, input);
  if (status || y->l.numel == 0) return status;
  /* beyond these bounds all elements are kept or none */
  if (diagonal > columns) diagonal = columns;
  if (diagonal < -rows) diagonal = -rows;
  int64_t all = y->l.numel / columns;
  char *row = moth_at(y);
  for (int64_t r = 0; r < all; r++, row += columns * size) {
    int64_t edge = r % rows + diagonal + (upper ? 0 : 1); /* first column of the other side */
    edge = edge < 0 ? 0 : edge > columns ? columns : edge;
    if (upper) memset(row, 0, (size_t)(edge * size));
    else memset(row + edge * size, 0, (size_t)((columns - edge) * size));
  }
  return MOTH_OK;
}

static int matrices(const moth_tensor *input, moth_layout *y) {
  if (input->l.ndim < 2)
    return moth_fail(input->ctx, MOTH_E_SHAPE, "input", "matrices (..., N, M) are needed, got %s",
                     moth_str(input));
  return like(input, -1, y);
}

static int tril_shape(const tril_args *a, moth_layout *y) { return matrices(a->input, y); }
static int tril_cpu(const tril_args *a, moth_tensor **out) {
  return triangle(a->input, a->diagonal, false, out[0]);
}
static int tril_grad(const tril_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, tril, .input = g->dy, .diagonal = a->diagonal));
}
MOTH_OP(tril, TRIL, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE | MOTH_OP_OUT,
        .doc = "The lower triangle of matrices; the other elements are 0.",
        .examples = "moth.randn(3, 3)\n"
                    "moth.randn(2, 3, 4), {diagonal = 1}")

static int triu_shape(const triu_args *a, moth_layout *y) { return matrices(a->input, y); }
static int triu_cpu(const triu_args *a, moth_tensor **out) {
  return triangle(a->input, a->diagonal, true, out[0]);
}
static int triu_grad(const triu_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, triu, .input = g->dy, .diagonal = a->diagonal));
}
MOTH_OP(triu, TRIU, .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE | MOTH_OP_OUT,
        .doc = "The upper triangle of matrices; the other elements are 0.",
        .examples = "moth.randn(3, 3)\n"
                    "moth.randn(2, 3, 4), {diagonal = -1}")

const moth_op *const moth_create_ops[] = {
  &moth_op_zeros,     &moth_op_ones,      &moth_op_empty,      &moth_op_full,
  &moth_op_zeros_like, &moth_op_ones_like, &moth_op_empty_like, &moth_op_full_like,
  &moth_op_arange,    &moth_op_linspace,  &moth_op_eye,        &moth_op_tril,
  &moth_op_triu,      &moth_op_triangle_indices, NULL,
};

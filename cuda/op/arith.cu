/* arith.cu -- elementwise arithmetic (the list is in core/op/arith.h), including f32 combined with
** half types, and where(). */
#include "../../core/op/arith.h"

#include "lib/elementwise.cuh"

/* Integer division checks for zero divisors first; the error is reported at the next
** synchronization. */
template <class T> static __global__ void find_zero(strided<2> w, moth_kernel_error *kernel_error) {
  const int64_t i = thread_number();
  int64_t at[2];
  if (i >= w.n) return;
  offsets(w, i, at);
  if (*element<T>(w.of[1], at[1]) == 0) report(kernel_error, KERNEL_ERROR_DIVISION, 0, 0);
}

static int check_divisor(moth_ctx *ctx, int dtype, const moth_tensor *const *operands) {
  const moth_tensor *pair[2] = {operands[0], operands[2]};
  const moth_queue *q = moth_queue_of(ctx, operands[0]->l.device);
  strided<2> w;
  if (!moth_is_int(dtype) || operands[0]->l.numel == 0) return MOTH_OK;
  strided_over<2>(&w, ctx, pair);
  return with_size(dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(ctx, q, find_zero<T>, blocks_for(w.n), BLOCK, 0, w,
                     q ? q->kernel_error : NULL);
  });
}

/* -- f32 combined with half types: each operand is read in its own dtype, without a cast before --
*/

template <class Row> constexpr bool mixes = false;
template <class Row> constexpr bool divides = false;
#define MIXES(op) struct op##_form; template <> constexpr bool mixes<op##_form> = true;
#define DIVIDES(op) struct op##_form; template <> constexpr bool divides<op##_form> = true;
MIXES(add) MIXES(more) MIXES(sub) MIXES(less) MIXES(mul)
DIVIDES(div_trunc) DIVIDES(div_floor) DIVIDES(remainder) DIVIDES(fmod)

struct two_types {
  int of[2]; /* dtypes of the operands */
};

static __device__ inline float mixed_at(const operand &o, int dtype, int64_t bytes) {
  if (dtype == MOTH_BF16) return get(element<bf16>(o, bytes));
  return dtype == MOTH_F16 ? get(element<f16>(o, bytes)) : *element<float>(o, bytes);
}

template <class T, int EACH> static __device__ inline void read_floats(const char *at, float *v) {
  const vec<T, EACH> many = *(const vec<T, EACH> *)(const void *)at;
  for (int j = 0; j < EACH; j++) v[j] = get(&many.at[j]);
}

/* EACH elements, `at` bytes from the start; `left` elements remain. A scalar operand is repeated.
*/
template <int EACH>
static __device__ inline void mixed_run(const operand &o, int dtype, bool one, int64_t at,
                                        int64_t left, float *v) {
  const int size = dtype == MOTH_F32 ? 4 : 2;
  if (one) {
    const float lone = mixed_at(o, dtype, at);
    for (int j = 0; j < EACH; j++) v[j] = lone;
  } else if (left < EACH) {
    for (int j = 0; j < EACH; j++) v[j] = j < left ? mixed_at(o, dtype, at + j * size) : 0;
  } else if (dtype == MOTH_F32) {
    read_floats<float, EACH>(o.at + at, v);
  } else if (dtype == MOTH_BF16) {
    read_floats<bf16, EACH>(o.at + at, v);
  } else {
    read_floats<f16, EACH>(o.at + at, v);
  }
}

template <class Row, int EACH>
static __global__ void mix_runs(strided<3> w, two_types t, three_numbers<float> numbers) {
  const int64_t first = thread_number() * EACH;
  if (first >= w.n) return;
  float x[EACH], y[EACH];
  int64_t at[3];
  vec<float, EACH> result;
  offsets(w, first, at);
  const int64_t left = w.n - first;
  mixed_run<EACH>(w.of[1], t.of[0], w.of[1].is_held || w.step[0][1] == 0, at[1], left, x);
  mixed_run<EACH>(w.of[2], t.of[1], w.of[2].is_held || w.step[0][2] == 0, at[2], left, y);
  for (int j = 0; j < EACH; j++)
    result.at[j] = value_of<Row, float>(x[j], y[j], x[j], numbers.at);
  write_run(w, 0, at[0], left, result);
}

template <class Row>
static __global__ void mix_any(strided<3> w, two_types t, three_numbers<float> numbers) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  const float x = mixed_at(w.of[1], t.of[0], at[1]), y = mixed_at(w.of[2], t.of[1], at[2]);
  *(float *)(void *)(w.of[0].at + at[0]) = value_of<Row, float>(x, y, x, numbers.at);
}

template <class Row>
static int mix(moth_ctx *ctx, const moth_tensor *const *operands, const void *arg) {
  enum { EACH = 4 };
  const two_types t = {{operands[1]->l.dtype, operands[2]->l.dtype}};
  three_numbers<float> numbers = {};
  strided<3> w;
  int sizes[3];
  if (operands[0]->l.numel == 0) return MOTH_OK;
  if (arg) memcpy(&numbers, arg, sizeof numbers);
  strided_over<3>(&w, ctx, operands);
  for (int k = 0; k < 3; k++) sizes[k] = moth_dtype_size[operands[k]->l.dtype];
  if (strided_packs(w, sizes, 1, EACH))
    return launch(ctx, operands[0], mix_runs<Row, EACH>, blocks_for(w.n, EACH), BLOCK, 0, w, t,
                  numbers);
  return launch(ctx, operands[0], mix_any<Row>, blocks_for(w.n), BLOCK, 0, w, t, numbers);
}

/* -- the op family: elementwise.cuh, and special cases of some functions -- */

template <class Row>
static int arith_row(moth_ctx *ctx, int dtype, const moth_tensor *const *operands,
                     const void *arg) {
  if constexpr (mixes<Row>)
    if (dtype == MOTH_F32 &&
        (operands[1]->l.dtype != MOTH_F32 || operands[2]->l.dtype != MOTH_F32))
      return mix<Row>(ctx, operands, arg);
  if constexpr (divides<Row>) {
    const int status = check_divisor(ctx, dtype, operands);
    if (status) return status;
  }
  return map_row<Row, 2>(ctx, dtype, operands, arg);
}

#define ARITH_ENTRY(kind, op, ...)                                                \
  struct op##_form { MOTH_FORM_##kind(__VA_ARGS__) };                             \
  static int op##_map(moth_ctx *ctx, int dtype, int noperands,                    \
                      const moth_tensor *const *operands, const void *arg) {      \
    (void)noperands;                                                              \
    return arith_row<op##_form>(ctx, dtype, operands, arg);                       \
  }                                                                               \
  MOTH_ENTRY(op##_maps, {#op, NULL, op##_map})                                    \
  MOTH_FORM_TEXT(op, #kind "(" #__VA_ARGS__ ")")
ARITH_FUNCTIONS(ARITH_ENTRY)

/* -- where -- */

/* result := condition ? x : y; elements are copied, not computed with */
template <class T> static __global__ void choose(strided<4> w) {
  const int64_t i = thread_number();
  int64_t at[4];
  if (i >= w.n) return;
  offsets(w, i, at);
  const T *from = *element<uint8_t>(w.of[1], at[1]) ? element<T>(w.of[2], at[2])
                                                    : element<T>(w.of[3], at[3]);
  *(T *)(void *)(w.of[0].at + at[0]) = *from;
}

template <class T> static __global__ void choose_runs(strided<4> w) {
  enum { EACH = 16 / sizeof(T) };
  const int64_t first = thread_number() * EACH, left = w.n - first;
  int64_t at[4];
  if (left <= 0) return;
  offsets(w, first, at);
  const vec<uint8_t, EACH> condition = read_run<uint8_t, EACH>(w, 1, at[1], left);
  const vec<T, EACH> x = read_run<T, EACH>(w, 2, at[2], left);
  const vec<T, EACH> y = read_run<T, EACH>(w, 3, at[3], left);
  vec<T, EACH> result;
  for (int j = 0; j < EACH; j++) result.at[j] = condition.at[j] ? x.at[j] : y.at[j];
  write_run(w, 0, at[0], left, result);
}

static int where_map(moth_ctx *ctx, int dtype, int noperands, const moth_tensor *const *operands,
                     const void *arg) {
  (void)noperands, (void)arg;
  if (operands[0]->l.numel == 0) return MOTH_OK;
  strided<4> w;
  strided_over<4>(&w, ctx, operands);
  const int size = moth_dtype_size[dtype], sizes[4] = {size, 1, size, size};
  const bool packs = strided_packs(w, sizes, 1, 16 / size);
  return with_size(dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(ctx, operands[0], packs ? choose_runs<T> : choose<T>,
                  blocks_for(w.n, packs ? 16 / size : 1), BLOCK, 0, w);
  });
}
MOTH_ENTRY(where_maps, {"where", NULL, where_map})

/* elementwise.cuh -- kernels for the lists of elementwise functions in the headers of core/op/.
** core/kernel/math/elementwise.h explains the columns of a line F(kind, name, expression ...).
**
**   #define LISTS(ONE, TWO, THREE) UNARY_FUNCTIONS(ONE) UNARY_BACKS(TWO)
**   MOTH_CUDA_FAMILY(LISTS)
**
** Each function becomes a struct with its expressions, and two kernels for each element type: one
** whose threads read and write 16 bytes at a time, and one for any strides. */
#ifndef MOTH_CUDA_ELEMENTWISE_CUH
#define MOTH_CUDA_ELEMENTWISE_CUH

#include "expressions.cuh"
#include "strided.cuh"

template <class T> struct three_numbers { /* numeric arguments of a call, passed by value */
  real_of<T> at[3];
};

/* -- kernels; R is the type of the result -- */

/* A scalar operand is held in the compute type: f32 for half types. */
template <class T> HD real_of<T> value_at(const operand &o, int64_t bytes) {
  if (o.is_held) return *(const real_of<T> *)(const void *)&o.held;
  return get((const T *)(const void *)(o.at + bytes));
}

template <class T> static inline void widen_held(operand *o, int dtype) {
  if constexpr (sizeof(real_of<T>) > sizeof(T)) {
    if (!o->is_held || dtype == MOTH_F32) return;
    const float wide = get((const T *)(const void *)&o->held);
    memcpy(&o->held, &wide, sizeof wide);
  }
}

/* EACH elements for each thread; strided_packs has checked that it is possible. All EACH are
** computed, from zeros beyond the end: with a constant loop bound the elements stay in registers.
*/
template <class Row, class T, class R, int N, int EACH>
static __global__ void map_runs(strided<N + 1> w, three_numbers<T> numbers) {
  const int64_t first = thread_number() * EACH;
  if (first >= w.n) return;
  vec<T, EACH> in[3];
  real_of<T> lone[3];
  bool one[3];
  int64_t at[N + 1];
  offsets(w, first, at);
  for (int k = 0; k < N; k++) {
    const operand &o = w.of[k + 1];
    one[k] = o.is_held || w.step[0][k + 1] == 0;
    if (one[k]) {
      lone[k] = value_at<T>(o, at[k + 1]);
    } else if (first + EACH <= w.n) {
      in[k] = *element<vec<T, EACH>>(o, at[k + 1]);
    } else {
      for (int j = 0; j < EACH; j++)
        in[k].at[j] = first + j < w.n ? *element<T>(o, at[k + 1] + j * (int)sizeof(T)) : T{};
    }
  }
  vec<R, EACH> result;
  for (int j = 0; j < EACH; j++) {
    const real_of<T> x = one[0] ? lone[0] : get(&in[0].at[j]);
    const real_of<T> y = N < 2 ? x : one[1] ? lone[1] : get(&in[1].at[j]);
    const real_of<T> z = N < 3 ? x : one[2] ? lone[2] : get(&in[2].at[j]);
    put(&result.at[j], value_of<Row, T>(x, y, z, numbers.at));
  }
  write_run(w, 0, at[0], w.n - first, result);
}

template <class Row, class T, class R, int N>
static __global__ void map_any(strided<N + 1> w, three_numbers<T> numbers) {
  const int64_t i = thread_number();
  int64_t at[N + 1];
  if (i >= w.n) return;
  offsets(w, i, at);
  const real_of<T> x = value_at<T>(w.of[1], at[1]);
  const real_of<T> y = N > 1 ? value_at<T>(w.of[N > 1 ? 2 : 1], at[N > 1 ? 2 : 1]) : x;
  const real_of<T> z = N > 2 ? value_at<T>(w.of[N > 2 ? 3 : 1], at[N > 2 ? 3 : 1]) : x;
  put((R *)(void *)(w.of[0].at + at[0]), value_of<Row, T>(x, y, z, numbers.at));
}

/* -- launching -- */

template <class Row, class T, class R, int N>
static int map_typed(moth_ctx *ctx, const moth_tensor *const *operands, const void *arg) {
  enum { EACH = 16 / (sizeof(T) > sizeof(R) ? sizeof(T) : sizeof(R)) };
  strided<N + 1> w;
  three_numbers<T> numbers = {};
  int sizes[N + 1];
  if (operands[0]->l.numel == 0) return MOTH_OK;
  if (arg) memcpy(&numbers, arg, sizeof numbers);
  strided_over<N + 1>(&w, ctx, operands);
  for (int k = 1; k <= N; k++) widen_held<T>(&w.of[k], operands[k]->l.dtype);
  for (int k = 0; k <= N; k++) sizes[k] = k ? (int)sizeof(T) : (int)sizeof(R);
  if constexpr (is_real<T>)
    if (strided_packs(w, sizes, 1, EACH))
      return launch(ctx, operands[0], map_runs<Row, T, R, N, EACH>, blocks_for(w.n, EACH), BLOCK,
                    0, w, numbers);
  return launch(ctx, operands[0], map_any<Row, T, R, N>, blocks_for(w.n), BLOCK, 0, w, numbers);
}

/* Set to false for functions that never run with some of the types that their line allows. */
template <class Row> constexpr bool of_halves = true;
template <class Row> constexpr bool of_integers = true; /* including bool */

template <class Row, int N>
static int map_row(moth_ctx *ctx, int dtype, const moth_tensor *const *operands, const void *arg) {
  return with_any(dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    constexpr int takes = Row::takes;
    constexpr bool narrowed = is_real<T> ? sizeof(T) == 2 && !of_halves<Row> : !of_integers<Row>;
    constexpr bool fits = narrowed ? false : is_real<T> ? (takes & OF_REALS) != 0
                          : is_bool<T> ? (takes & OF_BOOLS) != 0 : (takes & OF_INTEGERS) != 0;
    if constexpr (fits) {
      if constexpr ((takes & ASKS) != 0) return map_typed<Row, T, bool8, N>(ctx, operands, arg);
      else return map_typed<Row, T, T, N>(ctx, operands, arg);
    } else {
      return moth_fail(ctx, MOTH_E_DTYPE, NULL, "%s is not supported here",
                       moth_dtype_name(dtype));
    }
  });
}

/* -- one list: its structs, the entries under which moth_map finds them, and their text -- */

#define MOTH_MAP_ENTRY(N, kind, op, text, ...)                                                 \
  struct op##_form { MOTH_FORM_##kind(__VA_ARGS__) };                                          \
  static int op##_map(moth_ctx *ctx, int dtype, int noperands,                                 \
                      const moth_tensor *const *operands, const void *arg) {                   \
    (void)noperands;                                                                           \
    return map_row<op##_form, N>(ctx, dtype, operands, arg);                                   \
  }                                                                                            \
  MOTH_ENTRY(op##_maps, {#op, NULL, op##_map})                                                 \
  MOTH_FORM_TEXT(op, text)
#define MOTH_MAP_ENTRY1(kind, op, ...) \
  MOTH_MAP_ENTRY(1, kind, op, #kind "(" #__VA_ARGS__ ")", __VA_ARGS__)
#define MOTH_MAP_ENTRY2(kind, op, ...) \
  MOTH_MAP_ENTRY(2, kind, op, #kind "(" #__VA_ARGS__ ")", __VA_ARGS__)
#define MOTH_MAP_ENTRY3(kind, op, ...) \
  MOTH_MAP_ENTRY(3, kind, op, #kind "(" #__VA_ARGS__ ")", __VA_ARGS__)
#define MOTH_CUDA_FAMILY(LISTS) LISTS(MOTH_MAP_ENTRY1, MOTH_MAP_ENTRY2, MOTH_MAP_ENTRY3)

#endif

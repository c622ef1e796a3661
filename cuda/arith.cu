/* arith.cu -- elementwise arithmetic, as core/op/arith.h lists it, and choosing by a mask. */
#include "../core/op/arith.h"

#include "elementwise.cuh"

/* The functions that divide integers look for zeros first, and tell of them later. */
template <class T> static __global__ void find_zero(walk<2> w, moth_trouble *trouble) {
  const int64_t i = thread_number();
  int64_t at[2];
  if (i >= w.n) return;
  offsets(w, i, at);
  if (get(element<T>(w.of[1], at[1])) == 0) report(trouble, TROUBLE_DIVISION, 0, 0);
}

static int check_divisor(moth_ctx *ctx, int dtype, const moth_tensor *const *operands) {
  const moth_tensor *pair[2] = {operands[0], operands[2]};
  const moth_queue *q = moth_queue_of(ctx, operands[0]->l.device);
  walk<2> w;
  if (!moth_is_int(dtype) || operands[0]->l.numel == 0) return MOTH_OK;
  walk_over<2>(&w, ctx, pair);
  return with_any(dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(ctx, q, find_zero<T>, blocks_for(w.n), BLOCK, 0, w, q ? q->trouble : NULL);
  });
}

#define LISTS(ONE, TWO, THREE) ARITH_FUNCTIONS(TWO)
MOTH_CUDA_FAMILY(LISTS)

/* moth_map's entry for a function that divides; the list has written op_map itself. */
#define WITHOUT_ZERO(op, name)                                                                 \
  static int op##_checked(moth_ctx *ctx, int dtype, int noperands,                             \
                          const moth_tensor *const *operands, const void *arg) {               \
    int status = check_divisor(ctx, dtype, operands);                                          \
    return status ? status : op##_map(ctx, dtype, noperands, operands, arg);                   \
  }                                                                                            \
  MOTH_ENTRY(op##_checks, {name, NULL, op##_checked})
WITHOUT_ZERO(div_trunc, "div_trunc")
WITHOUT_ZERO(div_floor, "div_floor")
WITHOUT_ZERO(remainder, "remainder")
WITHOUT_ZERO(fmod, "fmod")

/* result := condition ? x : y, of elements that are only moved */
template <class T> static __global__ void choose(walk<4> w) {
  const int64_t i = thread_number();
  int64_t at[4];
  if (i >= w.n) return;
  offsets(w, i, at);
  const T *from = *element<uint8_t>(w.of[1], at[1]) ? element<T>(w.of[2], at[2])
                                                    : element<T>(w.of[3], at[3]);
  *(T *)(void *)(w.of[0].at + at[0]) = *from;
}

static int where_map(moth_ctx *ctx, int dtype, int noperands, const moth_tensor *const *operands,
                     const void *arg) {
  (void)noperands, (void)arg;
  if (operands[0]->l.numel == 0) return MOTH_OK;
  walk<4> w;
  walk_over<4>(&w, ctx, operands);
  return with_size(dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(ctx, operands[0], choose<T>, blocks_for(w.n), BLOCK, 0, w);
  });
}
MOTH_ENTRY(where_maps, {"where", NULL, where_map})

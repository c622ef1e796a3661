/* elementwise.c -- runs an inner loop over its operands; half types in blocks through f32. */
#include "elementwise.h"

typedef struct half_call {
  moth_inner inner; /* the f32 loop */
  const void *arg;
  int noperands;
  int dtype[MOTH_LOOP_OPERANDS];
} half_call;

#define HALF_BLOCK 256

MOTH_INNER(run_half) {
  const half_call *call = arg;
  float room[MOTH_LOOP_OPERANDS][HALF_BLOCK];
  for (int64_t i = 0; i < n; i += HALF_BLOCK) {
    int64_t m = n - i < HALF_BLOCK ? n - i : HALF_BLOCK;
    char *block[MOTH_LOOP_OPERANDS];
    int64_t width[MOTH_LOOP_OPERANDS];
    for (int k = 0; k < call->noperands; k++) {
      block[k] = at[k] + i * step[k];
      width[k] = step[k];
      if (moth_compute_dtype(call->dtype[k]) == call->dtype[k]) continue;
      if (k > 0)
        moth_convert(step[k] ? m : 1, call->dtype[k], block[k], step[k], MOTH_F32,
                     (char *)room[k], sizeof(float));
      block[k] = (char *)room[k];
      width[k] = step[k] ? (int64_t)sizeof(float) : 0;
    }
    call->inner(m, block, width, call->arg);
    if (block[0] == (char *)room[0])
      moth_convert(m, MOTH_F32, block[0], sizeof(float), call->dtype[0], at[0] + i * step[0],
                   step[0]);
  }
}

int moth_map(moth_ctx *ctx, const moth_inner *loops, int dtype, int noperands,
             const moth_tensor *const *operands, const void *arg) {
  moth_loop loop;
  moth_loop_over(&loop, ctx, &operands[0]->l, noperands, operands);
  if (moth_compute_dtype(dtype) == dtype) return moth_loop_run(&loop, loops[dtype], arg);
  half_call call = {.inner = loops[MOTH_F32], .arg = arg, .noperands = noperands};
  for (int k = 0; k < noperands; k++) call.dtype[k] = operands[k]->l.dtype;
  return moth_loop_run(&loop, run_half, &call);
}

void moth_numbers(int dtype, uint64_t arg[3], double a, double b, double c) {
  double numbers[3] = {a, b, c};
  int real = moth_compute_dtype(dtype);
  moth_convert(3, MOTH_F64, (const char *)numbers, 8, real, (char *)arg, moth_dtype_size[real]);
}

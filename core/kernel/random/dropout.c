/* dropout.c -- dropout masks: draws and applies them, for every level of instructions. */
#include "dropout.h"

#define LOOPS "kernel/random/dropout_real.h"
#include "kernel/each_level.h"

void moth_drop_f32(int64_t n, const uint32_t *word, uint32_t least, uint8_t *mask, const float *x,
                   float by, float *y) {
  MOTH_BEST(drop)(n, word, least, mask, x, by, y);
}

void moth_drop_f64(int64_t n, const uint32_t *word, uint32_t least, uint8_t *mask,
                   const double *x, double by, double *y) {
  drop_f64(n, word, least, mask, x, by, y);
}

void moth_apply_mask_f32(int64_t n, int64_t run, const uint8_t *mask, const float *x, float by,
                         float *y) {
  if (run == 1) MOTH_BEST(apply)(n, mask, x, by, y);
  else MOTH_BEST(apply_runs)(n, run, mask, x, by, y);
}

void moth_apply_mask_f64(int64_t n, int64_t run, const uint8_t *mask, const double *x, double by,
                         double *y) {
  if (run == 1) apply_f64(n, mask, x, by, y);
  else apply_runs_f64(n, run, mask, x, by, y);
}

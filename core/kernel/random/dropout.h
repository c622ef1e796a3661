/* dropout.h -- dropout masks: draws and applies them. */
#ifndef MOTH_KERNEL_DROPOUT_H
#define MOTH_KERNEL_DROPOUT_H

#include <stdint.h>

/* mask[i] := word[i] >= least, and y := x * by where the mask is set, else 0. */
void moth_drop_f32(int64_t n, const uint32_t *word, uint32_t least, uint8_t *mask, const float *x,
                   float by, float *y);
void moth_drop_f64(int64_t n, const uint32_t *word, uint32_t least, uint8_t *mask,
                   const double *x, double by, double *y);
/* y := x * by where the mask is set, else 0: a dropped inf or NaN becomes 0, too. Each of the n
** bytes of the mask is for `run` contiguous elements. */
void moth_apply_mask_f32(int64_t n, int64_t run, const uint8_t *mask, const float *x, float by,
                         float *y);
void moth_apply_mask_f64(int64_t n, int64_t run, const uint8_t *mask, const double *x, double by,
                         double *y);

#endif

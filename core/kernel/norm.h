/* norm.h -- kernels of normalization of packed f32 or f64. layer_norm, group_norm and rms_norm
** normalize rows of (channels, inner) elements; batch_norm normalizes channels of (n, c, inner)
** over n and inner. Weights are optional, one for each channel.
*/
#ifndef MOTH_KERNEL_NORM_H
#define MOTH_KERNEL_NORM_H

#include "base/context.h"

typedef struct moth_row_norm {
  int dtype;
  /* rows of channels * inner elements; row r uses group r % groups of the weights */
  int64_t rows, groups, channels, inner;
  bool centred; /* the mean is subtracted */
  double eps;
  const void *x, *dy, *weight, *bias;
  /* mean and 1 / sqrt(var + eps) of each row; the mean is unused if not centred */
  void *y, *mean, *rstd;
  void *dx;
  double *dweight, *dbias; /* groups * channels elements each, initially 0; or both NULL */
  void *part; /* scratch of 2 * groups * channels elements, if dweight and dbias are not NULL */
} moth_row_norm;

/* Both functions poll and return a status. */
int moth_row_norm_run(moth_ctx *ctx, const moth_row_norm *p);
int moth_row_norm_back(moth_ctx *ctx, const moth_row_norm *p); /* reads mean and rstd */

/* The mask of a fused relu: dy counts as 0 where the value that moth_channel_apply computed from x,
** with these numbers, is at most `least`. */
typedef struct moth_channel_mask {
  const double *mean, *scale, *shift; /* NULL: no relu */
  double least;
} moth_channel_mask;

typedef struct moth_channel_norm {
  int dtype;
  int64_t n, c, inner;
  const void *x, *dy;
  const void *sum; /* NULL, or a term added to the result of moth_channel_apply if dy is NULL */
  bool relu;       /* negative results become 0 */
  moth_channel_mask mask;
} moth_channel_norm;

/* sum[c] := the sum of x, or of (x - mean)^2 if mean is not NULL. */
int moth_channel_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean, double *sum);
/* dysum[c] := the sum of masked dy; dyxsum[c] := the sum of masked dy (x - mean). */
int moth_channel_back_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                           double *dysum, double *dyxsum);
/* y := (x - mean) scale + shift. If dy is not NULL, y := dy by + (x - mean) scale + shift. */
int moth_channel_apply(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                       const double *by, const double *scale, const double *shift, void *y);

#endif

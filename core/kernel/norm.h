/* norm.h -- kernels of normalization. Rows of (channels, inner) elements are normalized one by one:
** layer_norm, group_norm, rms_norm. Channels of (n, c, inner) are normalized over n and inner:
** batch_norm. Packed f32 or f64; weights are optional, one for each channel.
*/
#ifndef MOTH_KERNEL_NORM_H
#define MOTH_KERNEL_NORM_H

#include "base/context.h"

typedef struct moth_row_norm {
  int dtype;
  /* rows of channels * inner elements; row r belongs to group r % groups of the weights */
  int64_t rows, groups, channels, inner;
  bool centred; /* the mean is subtracted */
  double eps;
  const void *x, *dy, *weight, *bias;
  void *y, *mean, *rstd; /* mean and 1 / sqrt(var + eps) of each row; mean unused if not centred */
  void *dx;
  double *dweight, *dbias; /* groups * channels each, zeroed, or both NULL */
  void *part;              /* scratch of twice as many elements, if dweight and dbias are given */
} moth_row_norm;

/* Each polls and returns a status. */
int moth_row_norm_run(moth_ctx *ctx, const moth_row_norm *p);
int moth_row_norm_back(moth_ctx *ctx, const moth_row_norm *p); /* mean and rstd are read */

/* The mask of a fused relu: where the value that moth_channel_apply computed from x with these
** numbers is not above `least`, dy counts as 0. */
typedef struct moth_channel_mask {
  const double *mean, *scale, *shift; /* NULL: no relu */
  double least;
} moth_channel_mask;

typedef struct moth_channel_norm {
  int dtype;
  int64_t n, c, inner;
  const void *x, *dy;
  const void *sum; /* NULL, or added to the result of moth_channel_apply without dy */
  bool relu;       /* negative results become 0 */
  moth_channel_mask mask;
} moth_channel_norm;

/* sum[c] := of x, or with `mean` of (x - mean)^2. */
int moth_channel_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean, double *sum);
/* dysum[c] := of dy, masked; dyxsum[c] := of dy (x - mean). */
int moth_channel_back_sums(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                           double *dysum, double *dyxsum);
/* y := (x - mean) scale + shift, and with dy: y := dy by + (x - mean) scale + shift. */
int moth_channel_apply(moth_ctx *ctx, const moth_channel_norm *p, const double *mean,
                       const double *by, const double *scale, const double *shift, void *y);

#endif

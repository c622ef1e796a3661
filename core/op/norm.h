/* norm.h -- arguments of normalisation: values are shifted and scaled to mean 0 and variance 1 over
** the dimensions of the op, then multiplied by a weight and shifted by a bias.
*/
#ifndef MOTH_OP_NORM_H
#define MOTH_OP_NORM_H

#include "call/op.h"

/* -- every row with its own statistics -- */

#define LAYER_NORM(ARG) \
  ARG(tensor,       input,           , "(..., normalized_shape)") \
  ARG(ints,         normalized_shape,, "sizes of the last dimensions, over which the input is " \
                                       "normalised") \
  ARG(maybe_tensor, weight,      none, "factors, of shape normalized_shape") \
  ARG(maybe_tensor, bias,        none, "summands, of shape normalized_shape") \
  ARG(float,        eps,         1e-5, "added to the variance")
MOTH_ARGS(layer_norm, LAYER_NORM)

#define RMS_NORM(ARG) \
  ARG(tensor,       input,           , "(..., normalized_shape)") \
  ARG(ints,         normalized_shape,, "sizes of the last dimensions, over which the input is " \
                                       "normalised") \
  ARG(maybe_tensor, weight,      none, "factors, of shape normalized_shape") \
  ARG(maybe_float,  eps,         none, "added to the mean square; when absent the machine " \
                                       "epsilon of the dtype, of f32 for half-precision types")
MOTH_ARGS(rms_norm, RMS_NORM)

#define GROUP_NORM(ARG) \
  ARG(tensor,       input,           , "(N, C, ...)") \
  ARG(int,          num_groups,      , "number of groups of channels") \
  ARG(maybe_tensor, weight,      none, "factors, (C)") \
  ARG(maybe_tensor, bias,        none, "added, (C)") \
  ARG(float,        eps,         1e-5, "added to the variance")
MOTH_ARGS(group_norm, GROUP_NORM)

/* The gradients of the three ops. The number of rows is the number of elements of rstd. */
#define ROW_NORM_BACK(ARG) \
  ARG(tensor,       grad,            , "gradient of the result") \
  ARG(tensor,       input,           , "input of the normalisation") \
  ARG(maybe_tensor, weight,      none, "factors, (groups * channels)") \
  ARG(maybe_tensor, mean,        none, "mean of each row; absent if it was not subtracted") \
  ARG(tensor,       rstd,            , "1 / standard deviation of each row") \
  ARG(int,          groups,          , "number of consecutive rows with separate weights") \
  ARG(int,          channels,        , "weights per row") \
  ARG(bool,         affine,      true, "also compute the gradients of weight and bias") \
  ARG(maybe_tensor, sum,         none, "added to the gradient of the input") \
  ARG(dtype,        half,        none, "on a GPU, also return the gradient of the input in this " \
                                       "dtype")
MOTH_ARGS(row_norm_back, ROW_NORM_BACK)

/* -- every channel with statistics over the batch -- */

#define BATCH_NORM(ARG) \
  ARG(tensor,       input,           , "(N, C, ...)") \
  ARG(maybe_tensor, running_mean, none, "(C); updated in training, used otherwise") \
  ARG(maybe_tensor, running_var, none, "(C); updated in training, used otherwise") \
  ARG(maybe_tensor, weight,      none, "factors, (C)") \
  ARG(maybe_tensor, bias,        none, "added, (C)") \
  ARG(bool,         training,   false, "normalise by the statistics of the batch") \
  ARG(float,        momentum,     0.1, "weight of the batch in the running statistics") \
  ARG(float,        eps,         1e-5, "added to the variance") \
  ARG(enum,         activation, none|relu, "relu: apply relu in the same pass") \
  ARG(maybe_tensor, residual,    none, "added in the same pass, before the relu; of the input's " \
                                       "shape")
MOTH_ARGS(batch_norm, BATCH_NORM)
enum { NORM_PLAIN, NORM_RELU };

#define MOVE_RUNNING_(ARG) \
  ARG(tensor, mean,                    , "running mean of each channel, written") \
  ARG(tensor, batch_mean,              , "mean of each channel of the batch") \
  ARG(tensor, var,                     , "running variance of each channel, written") \
  ARG(tensor, batch_var,               , "variance of each channel of the batch") \
  ARG(float,  momentum,             0.1, "weight of the batch") \
  ARG(float,  factor,                 1, "factor of the batch's variance")
MOTH_ARGS(move_running_, MOVE_RUNNING_)

#define INSTANCE_NORM(ARG) \
  ARG(tensor,       input,           , "(N, C, ...)") \
  ARG(maybe_tensor, running_mean, none, "(C); updated with the input's statistics, or used") \
  ARG(maybe_tensor, running_var, none, "(C); updated with the input's statistics, or used") \
  ARG(maybe_tensor, weight,      none, "factors, (C)") \
  ARG(maybe_tensor, bias,        none, "added, (C)") \
  ARG(bool,         use_input_stats, true, "normalise by the input's own statistics") \
  ARG(float,        momentum,     0.1, "weight of the input in the running statistics") \
  ARG(float,        eps,         1e-5, "added to the variance")
MOTH_ARGS(instance_norm, INSTANCE_NORM)

/* batch_norm without running statistics */
#define CHANNEL_NORM(ARG) \
  ARG(tensor,       input,           , "(N, C, ...)") \
  ARG(maybe_tensor, weight,      none, "factors, (C)") \
  ARG(maybe_tensor, bias,        none, "added, (C)") \
  ARG(maybe_tensor, mean,        none, "(C); the input's mean when absent; the same for var") \
  ARG(maybe_tensor, var,         none, "(C)") \
  ARG(float,        eps,         1e-5, "added to the variance") \
  ARG(enum,         activation, none|relu, "relu: apply relu in the same pass") \
  ARG(maybe_tensor, residual,    none, "added in the same pass, before the relu; of the input's " \
                                       "shape")
MOTH_ARGS(channel_norm, CHANNEL_NORM)

#define CHANNEL_NORM_BACK(ARG) \
  ARG(tensor,       grad,            , "gradient of the result") \
  ARG(tensor,       input,           , "input of the normalisation") \
  ARG(maybe_tensor, weight,      none, "factors, (C)") \
  ARG(tensor,       mean,            , "(C)") \
  ARG(tensor,       var,             , "(C)") \
  ARG(float,        eps,         1e-5, "added to the variance") \
  ARG(bool,         training,    true, "mean and var are functions of the input") \
  ARG(enum,         activation, none|relu, "relu: relu was applied to the result") \
  ARG(maybe_tensor, map,         none, "(C, 4): mean, factor and summand of each channel before " \
                                       "the relu, and 0")
MOTH_ARGS(channel_norm_back, CHANNEL_NORM_BACK)


#define NORMALIZE(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(float,  p,         2, "order of the norm") \
  ARG(dim,    dim,       1, "dimension of the vectors") \
  ARG(float,  eps,   1e-12, "smallest divisor")
MOTH_ARGS(normalize, NORMALIZE)

/* Fails unless an argument has the shape `shape`. Shared by the files of normalisation. */
int moth_norm_fits(moth_ctx *ctx, const char *arg, const moth_tensor *x, int32_t ndim,
                   const int64_t *shape);

/* Fails unless eps >= 0; NaN fails too. */
int moth_norm_eps(moth_ctx *ctx, double eps);

extern moth_op moth_op_batch_norm, moth_op_instance_norm, moth_op_channel_norm,
    moth_op_channel_norm_back;

#endif

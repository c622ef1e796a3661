/* pointloss.h -- elementwise losses: formulas and arguments.
**
** `reduction` says how the losses of the elements are reduced: to their mean, to their sum, or not
** at all.
*/
#ifndef MOTH_OP_POINTLOSS_H
#define MOTH_OP_POINTLOSS_H

#include "call/op.h"

/* x is the gradient of a loss, y its input, z its target, a and b are arguments.
** kernel/math/elementwise.h explains the columns. */
#define PAIR_SLOPES(F)                                                                          \
  F(REAL, square_slope, x * (2 * (y - z)))                                                      \
  F(REAL, distance_slope, y > z ? x : y < z ? -x : x * (y - z))                                 \
  F(REAL, bounded_slope, x * (b * (y - z > a ? a : y - z < -a ? -a : y - z)))                   \
  F(REAL, chance_slope,                                                                         \
    x * ((y - z) / (y * (1 - y) < (real)1e-12 ? (real)1e-12 : y * (1 - y))))                    \
  F(CURVE, logit_slope, x * (FOR_REAL(moth_sigmoid)(y) - z))

#define PAIR_LOSS(ARG) \
  ARG(tensor, input,  , "any shape") \
  ARG(tensor, target, , "tensor of the input's shape") \
  ARG(enum,   reduction, mean|sum|none, "how the losses are reduced")
MOTH_ARGS(mse_loss, PAIR_LOSS)
MOTH_ARGS(l1_loss, PAIR_LOSS)

#define SMOOTH_L1_LOSS(ARG) \
  ARG(tensor, input,  , "any shape") \
  ARG(tensor, target, , "tensor of the input's shape") \
  ARG(enum,   reduction, mean|sum|none, "how the losses are reduced") \
  ARG(float,  beta, 1.0, "difference below which the loss is quadratic")
MOTH_ARGS(smooth_l1_loss, SMOOTH_L1_LOSS)

#define HUBER_LOSS(ARG) \
  ARG(tensor, input,  , "any shape") \
  ARG(tensor, target, , "tensor of the input's shape") \
  ARG(enum,   reduction, mean|sum|none, "how the losses are reduced") \
  ARG(float,  delta, 1.0, "difference below which the loss is quadratic")
MOTH_ARGS(huber_loss, HUBER_LOSS)

#define BCE(ARG) \
  ARG(tensor,       input,      , "probabilities from 0 to 1, any shape") \
  ARG(tensor,       target,     , "probabilities from 0 to 1, of the input's shape") \
  ARG(maybe_tensor, weight, none, "factor of each loss, broadcast to the input's shape") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced")
MOTH_ARGS(binary_cross_entropy, BCE)

#define BCE_WITH_LOGITS(ARG) \
  ARG(tensor,       input,          , "logits, any shape") \
  ARG(tensor,       target,         , "probabilities from 0 to 1, of the input's shape") \
  ARG(maybe_tensor, weight,     none, "factor of each loss, broadcast to the input's shape") \
  ARG(enum,         reduction, mean|sum|none, "how the losses are reduced") \
  ARG(maybe_tensor, pos_weight, none, "factor of the losses of positive targets, broadcast to " \
                                      "the input's shape")
MOTH_ARGS(binary_cross_entropy_with_logits, BCE_WITH_LOGITS)

/* the losses of probabilities without weights, in one pass */
MOTH_ARGS(chance_loss, PAIR_LOSS)
MOTH_ARGS(logit_loss, PAIR_LOSS)

#define KL_DIV(ARG) \
  ARG(tensor, input,  , "logarithms of probabilities, any shape") \
  ARG(tensor, target, , "probabilities, of the input's shape") \
  ARG(enum,   reduction, mean|sum|none|batchmean, "how the losses are reduced; batchmean: their " \
                                                  "sum divided by the size of the first " \
                                                  "dimension") \
  ARG(bool,   log_target, false, "true if the target is a logarithm too")
MOTH_ARGS(kl_div, KL_DIV)

/* -- gradients for the input, in one pass -- */

#define PAIR_SLOPE(ARG) \
  ARG(tensor, grad,   , "gradient of each loss, or of their sum") \
  ARG(tensor, input,  , "any shape") \
  ARG(tensor, target, , "tensor of the input's shape") \
  ARG(float,  a,     0, "first parameter of the function") \
  ARG(float,  b,     0, "second parameter of the function")
#define PAIR_SLOPE_FACE(kind, op, ...) MOTH_ARGS(op, PAIR_SLOPE)
PAIR_SLOPES(PAIR_SLOPE_FACE)

#endif

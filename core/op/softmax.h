/* softmax.h -- arguments of softmax and log_softmax. */
#ifndef MOTH_OP_SOFTMAX_H
#define MOTH_OP_SOFTMAX_H

#include "call/op.h"

#define SOFTMAX(ARG) \
  ARG(tensor, input, , "any shape") \
  ARG(dim,    dim,   , "dimension whose elements become probabilities that sum to 1") \
  ARG(dtype,  dtype, none, "dtype to which the input is converted first")
MOTH_ARGS(softmax, SOFTMAX)

#define LOG_SOFTMAX(ARG) \
  ARG(tensor, input, , "any shape") \
  ARG(dim,    dim,   , "dimension whose elements become logarithms of probabilities") \
  ARG(dtype,  dtype, none, "dtype to which the input is converted first")
MOTH_ARGS(log_softmax, LOG_SOFTMAX)

/* The gradients of softmax and log_softmax: y (dy - sum(dy y)) and dy - exp(y) sum(dy). */
#define SOFTMAX_BACK(ARG) \
  ARG(tensor, input,  , "gradient of the result, dy") \
  ARG(tensor, output, , "the result, y") \
  ARG(dim,    dim,    , "dimension along which y sums to 1")
MOTH_ARGS(softmax_back, SOFTMAX_BACK)

#define LOG_SOFTMAX_BACK(ARG) \
  ARG(tensor, input,  , "gradient of the result, dy") \
  ARG(tensor, output, , "the result, y") \
  ARG(dim,    dim,    , "dimension along which exp(y) sums to 1")
MOTH_ARGS(log_softmax_back, LOG_SOFTMAX_BACK)

#endif

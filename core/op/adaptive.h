/* adaptive.h -- arguments of adaptive pooling. */
#ifndef MOTH_OP_ADAPTIVE_H
#define MOTH_OP_ADAPTIVE_H

#include "call/op.h"

#define ADAPTIVE_AVG_POOL2D(ARG) \
  ARG(tensor,     input,       , "images, (N, C, H, W) or (C, H, W)") \
  ARG(maybe_int2, output_size, , "height and width of the result; none keeps the input's size")
MOTH_ARGS(adaptive_avg_pool2d, ADAPTIVE_AVG_POOL2D)

#define ADAPTIVE_AVG_POOL2D_BACK(ARG) \
  ARG(tensor, input, , "gradient of the result, (..., OH, OW)") \
  ARG(int2,   size,  , "height and width of the input's planes") \
  MOTH_FORMAT_ROW(ARG, "memory format of dx on a GPU")
MOTH_ARGS(adaptive_avg_pool2d_back, ADAPTIVE_AVG_POOL2D_BACK)

#define ADAPTIVE_MAX_POOL2D(ARG) \
  ADAPTIVE_AVG_POOL2D(ARG) \
  ARG(bool,       return_indices, false, "also return the flat position of each maximum in its " \
                                         "plane")
MOTH_ARGS(adaptive_max_pool2d, ADAPTIVE_MAX_POOL2D)

#define ADAPTIVE_AVG_POOL1D(ARG) \
  ARG(tensor, input,       , "sequences, (N, C, L) or (C, L)") \
  ARG(int1,   output_size, , "length of the result")
MOTH_ARGS(adaptive_avg_pool1d, ADAPTIVE_AVG_POOL1D)

#define ADAPTIVE_MAX_POOL1D(ARG) \
  ADAPTIVE_AVG_POOL1D(ARG) \
  ARG(bool,   return_indices, false, "also return the position of each maximum in its sequence")
MOTH_ARGS(adaptive_max_pool1d, ADAPTIVE_MAX_POOL1D)

#endif

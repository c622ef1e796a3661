/* pool.h -- arguments of pooling: the maximum or the mean of each window of an image. */
#ifndef MOTH_OP_POOL_H
#define MOTH_OP_POOL_H

#include "call/op.h"

#define MAX_POOL2D(ARG) \
  ARG(tensor, input,                  , "images, (N, C, H, W) or (C, H, W)") \
  ARG(int2,   kernel_size,            , "window height and width") \
  ARG(int2,   stride,      kernel_size, "step between windows") \
  ARG(int2,   padding,     0          , "border of -inf on each side, at most half the window") \
  ARG(int2,   dilation,    1          , "step between the elements of a window") \
  ARG(bool,   ceil_mode,   false      , "include windows that extend past the end") \
  ARG(bool,   return_indices, false   , "also return the flat position of each maximum in its " \
                                        "plane")
MOTH_ARGS(max_pool2d, MAX_POOL2D)

#define MAX_POOL1D(ARG) \
  ARG(tensor, input,                  , "sequences, (N, C, L) or (C, L)") \
  ARG(int1,   kernel_size,            , "window length") \
  ARG(int1,   stride,      kernel_size, "step between windows") \
  ARG(int1,   padding,     0          , "border of -inf on each side, at most half the window") \
  ARG(int1,   dilation,    1          , "step between the elements of a window") \
  ARG(bool,   ceil_mode,   false      , "include windows that extend past the end") \
  ARG(bool,   return_indices, false   , "also return the position of each maximum in its sequence")
MOTH_ARGS(max_pool1d, MAX_POOL1D)

/* the gradient of max_pool2d: adds each value at its position in the plane */
#define MAX_POOL2D_BACK(ARG) \
  ARG(tensor, input,   , "gradient of the result, (..., OH, OW)") \
  ARG(index,  indices, , "flat position in the plane of each value, (..., OH, OW)") \
  ARG(int2,   size,    , "height and width of the input's planes") \
  MOTH_FORMAT_ROW(ARG, "memory format of dx on a GPU") \
  ARG(int2,   reach,   0, "rows and columns that a window spans; 0: indices may be any positions") \
  ARG(int2,   stride,  1, "step between windows") \
  ARG(int2,   padding, 0, "border on each side")
MOTH_ARGS(max_pool2d_back, MAX_POOL2D_BACK)

/* the gradient of max_pool2d_back: reads the values at the positions */
#define MAX_POOL2D_PICK(ARG) \
  ARG(tensor, input,   , "planes, (..., H, W)") \
  ARG(index,  indices, , "flat position in the plane for each result, (..., OH, OW)")
MOTH_ARGS(max_pool2d_pick, MAX_POOL2D_PICK)

#define AVG_POOL2D(ARG) \
  ARG(tensor, input,                        , "images, (N, C, H, W) or (C, H, W)") \
  ARG(int2,   kernel_size,                  , "window height and width") \
  ARG(int2,   stride,            kernel_size, "step between windows") \
  ARG(int2,   padding,           0          , "border of zeros, at most half the window") \
  ARG(bool,   ceil_mode,         false      , "include windows that extend past the end") \
  ARG(bool,   count_include_pad, true       , "include the zeros of the padding in the divisor") \
  ARG(maybe_int, divisor_override, none     , "divisor to use instead of the window's size")
MOTH_ARGS(avg_pool2d, AVG_POOL2D)

#define AVG_POOL1D(ARG) \
  ARG(tensor, input,                        , "sequences, (N, C, L) or (C, L)") \
  ARG(int1,   kernel_size,                  , "window length") \
  ARG(int1,   stride,            kernel_size, "step between windows") \
  ARG(int1,   padding,           0          , "border of zeros, at most half the window") \
  ARG(bool,   ceil_mode,         false      , "include windows that extend past the end") \
  ARG(bool,   count_include_pad, true       , "include the zeros of the padding in the divisor")
MOTH_ARGS(avg_pool1d, AVG_POOL1D)

#define AVG_POOL2D_BACK(ARG) \
  ARG(tensor, input,             , "gradient of the result, (..., OH, OW)") \
  ARG(int2,   size,              , "height and width of the input's planes") \
  ARG(int2,   kernel_size,       , "window height and width") \
  ARG(int2,   stride,            , "step between windows") \
  ARG(int2,   padding,           , "zeros added on each side") \
  ARG(bool,   ceil_mode,         , "include windows that extend past the end") \
  ARG(bool,   count_include_pad, , "include the zeros of the padding in the divisor") \
  ARG(maybe_int, divisor_override, none, "divisor to use instead of the window's size") \
  MOTH_FORMAT_ROW(ARG, "memory format of dx on a GPU")
MOTH_ARGS(avg_pool2d_back, AVG_POOL2D_BACK)

#endif

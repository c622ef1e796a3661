/* pool3d.h -- arguments of pooling of volumes: with windows, and to a given size. */
#ifndef MOTH_OP_POOL3D_H
#define MOTH_OP_POOL3D_H

#include "call/op.h"

#define MAX_POOL3D(ARG) \
  ARG(tensor, input,                  , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(int3,   kernel_size,            , "window depth, height and width") \
  ARG(int3,   stride,      kernel_size, "step between windows") \
  ARG(int3,   padding,     0          , "border of -inf on each side, at most half the window") \
  ARG(int3,   dilation,    1          , "step between the elements of a window") \
  ARG(bool,   ceil_mode,   false      , "include windows that extend past the end") \
  ARG(bool,   return_indices, false   , "also return the flat position of each maximum in its " \
                                        "volume")
MOTH_ARGS(max_pool3d, MAX_POOL3D)

#define AVG_POOL3D(ARG) \
  ARG(tensor, input,                        , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(int3,   kernel_size,                  , "window depth, height and width") \
  ARG(int3,   stride,            kernel_size, "step between windows") \
  ARG(int3,   padding,           0          , "border of zeros, at most half the window") \
  ARG(bool,   ceil_mode,         false      , "include windows that extend past the end") \
  ARG(bool,   count_include_pad, true       , "include the zeros of the padding in the divisor") \
  ARG(maybe_int, divisor_override, none     , "divisor to use instead of the window's size")
MOTH_ARGS(avg_pool3d, AVG_POOL3D)

#define ADAPTIVE_AVG_POOL3D(ARG) \
  ARG(tensor,     input,       , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(maybe_int3, output_size, , "depth, height and width of the result; none keeps the input's " \
                                 "size")
MOTH_ARGS(adaptive_avg_pool3d, ADAPTIVE_AVG_POOL3D)

#define ADAPTIVE_MAX_POOL3D(ARG) \
  ADAPTIVE_AVG_POOL3D(ARG) \
  ARG(bool,       return_indices, false, "also return the flat position of each maximum in its " \
                                         "volume")
MOTH_ARGS(adaptive_max_pool3d, ADAPTIVE_MAX_POOL3D)

#endif

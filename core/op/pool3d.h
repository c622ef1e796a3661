/* pool3d.h -- the faces of pooling volumes: by windows, and to a given size. */
#ifndef MOTH_OP_POOL3D_H
#define MOTH_OP_POOL3D_H

#include "call/op.h"

#define MAX_POOL3D(ARG) \
  ARG(tensor, input,                  , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(int3,   kernel_size,            , "window depth, height and width") \
  ARG(int3,   stride,      kernel_size, "step between windows") \
  ARG(int3,   padding,     0          , "border of -inf on each side, at most half the window") \
  ARG(int3,   dilation,    1          , "step between the elements of a window") \
  ARG(bool,   ceil_mode,   false      , "count windows that hang over the far edge") \
  ARG(bool,   return_indices, false   , "also give the flat position of each in its volume")
MOTH_ARGS(max_pool3d, MAX_POOL3D)

#define AVG_POOL3D(ARG) \
  ARG(tensor, input,                        , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(int3,   kernel_size,                  , "window depth, height and width") \
  ARG(int3,   stride,            kernel_size, "step between windows") \
  ARG(int3,   padding,           0          , "border of zeros, at most half the window") \
  ARG(bool,   ceil_mode,         false      , "count windows that hang over the far edge") \
  ARG(bool,   count_include_pad, true       , "divide by the window's size, border included") \
  ARG(maybe_int, divisor_override, none     , "divide by this instead")
MOTH_ARGS(avg_pool3d, AVG_POOL3D)

#define ADAPTIVE_AVG_POOL3D(ARG) \
  ARG(tensor,     input,       , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(maybe_int3, output_size, , "depth, height and width of the result; a side that is none stays")
MOTH_ARGS(adaptive_avg_pool3d, ADAPTIVE_AVG_POOL3D)

#define ADAPTIVE_MAX_POOL3D(ARG) \
  ADAPTIVE_AVG_POOL3D(ARG) \
  ARG(bool,       return_indices, false, "also give the flat position of each in its volume")
MOTH_ARGS(adaptive_max_pool3d, ADAPTIVE_MAX_POOL3D)

#endif

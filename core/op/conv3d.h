/* conv3d.h -- arguments of convolution of volumes. */
#ifndef MOTH_OP_CONV3D_H
#define MOTH_OP_CONV3D_H

#include "call/op.h"

#define CONV3D_STEPS(ARG) \
  ARG(int3,         stride,      1, "step between windows") \
  ARG(int3_or_enum, padding, 0|valid|same, "zeros added on each side; valid: none; same: as many " \
                                           "as keep the input's size") \
  ARG(int3,         dilation,    1, "step between the elements of a window") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved separately")

#define CONV3D(ARG) \
  ARG(tensor,       input,        , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(tensor,       weight,       , "filters, (O, C / groups, KD, KH, KW)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  CONV3D_STEPS(ARG)
MOTH_ARGS(conv3d, CONV3D)

/* gradients for the volumes, of size (D, H, W), and for the filters */
#define CONV3D_INPUT(ARG) \
  ARG(tensor,       input,        , "gradient of the result, (N, O, OD, OH, OW) or " \
                                    "(O, OD, OH, OW)") \
  ARG(tensor,       weight,       , "filters, (O, C / groups, KD, KH, KW)") \
  ARG(int3,         size,         , "depth, height and width of the volumes") \
  CONV3D_STEPS(ARG)
MOTH_ARGS(conv3d_input, CONV3D_INPUT)

#define CONV3D_WEIGHT(ARG) \
  ARG(tensor,       input,        , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(tensor,       output,       , "gradient of the result, (N, O, OD, OH, OW) or " \
                                    "(O, OD, OH, OW)") \
  ARG(int3,         kernel_size,  , "depth, height and width of the filters") \
  CONV3D_STEPS(ARG)
MOTH_ARGS(conv3d_weight, CONV3D_WEIGHT)

#define CONV_TRANSPOSE3D(ARG) \
  ARG(tensor,       input,        , "volumes, (N, C, D, H, W) or (C, D, H, W)") \
  ARG(tensor,       weight,       , "filters, (C, O / groups, KD, KH, KW)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  ARG(int3,         stride,      1, "step between windows of the result") \
  ARG(int3,         padding,     0, "elements cut off on each side of the result") \
  ARG(int3,         output_padding, 0, "size added to one side of the result, less than stride " \
                                       "or dilation") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved " \
                                    "separately") \
  ARG(int3,         dilation,    1, "step between the elements of a window")
MOTH_ARGS(conv_transpose3d, CONV_TRANSPOSE3D)

#endif

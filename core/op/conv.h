/* conv.h -- arguments of convolution. */
#ifndef MOTH_OP_CONV_H
#define MOTH_OP_CONV_H

#include "call/op.h"

#define CONV_STEPS(ARG) \
  ARG(int2,         stride,      1, "step between windows") \
  ARG(int2_or_enum, padding, 0|valid|same, "zeros added on each side; valid: none; same: as many " \
                                           "as keep the input's size") \
  ARG(int2,         dilation,    1, "step between the elements of a window") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved separately")

#define CONV2D(ARG) \
  ARG(tensor,       input,        , "images, (N, C, H, W) or (C, H, W)") \
  ARG(tensor,       weight,       , "filters, (O, C / groups, KH, KW)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  CONV_STEPS(ARG)
MOTH_ARGS(conv2d, CONV2D)

/* gradients for the images, of size (H, W), and for the filters */
#define CONV2D_INPUT(ARG) \
  ARG(tensor,       input,        , "gradient of the result, (N, O, OH, OW) or (O, OH, OW)") \
  ARG(tensor,       weight,       , "filters, (O, C / groups, KH, KW)") \
  ARG(int2,         size,         , "height and width of the images") \
  CONV_STEPS(ARG)
MOTH_ARGS(conv2d_input, CONV2D_INPUT)

#define CONV2D_WEIGHT(ARG) \
  ARG(tensor,       input,        , "images, (N, C, H, W) or (C, H, W)") \
  ARG(tensor,       output,       , "gradient of the result, (N, O, OH, OW) or (O, OH, OW)") \
  ARG(int2,         kernel_size,  , "height and width of the filters") \
  CONV_STEPS(ARG)
MOTH_ARGS(conv2d_weight, CONV2D_WEIGHT)

#define CONV_TRANSPOSE2D(ARG) \
  ARG(tensor,       input,        , "images, (N, C, H, W) or (C, H, W)") \
  ARG(tensor,       weight,       , "filters, (C, O / groups, KH, KW)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  ARG(int2,         stride,      1, "step between windows of the result") \
  ARG(int2,         padding,     0, "elements cut off on each side of the result") \
  ARG(int2,         output_padding, 0, "size added to one side of the result, less than stride " \
                                       "or dilation") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved " \
                                    "separately") \
  ARG(int2,         dilation,    1, "step between the elements of a window")
MOTH_ARGS(conv_transpose2d, CONV_TRANSPOSE2D)

#define CONV1D(ARG) \
  ARG(tensor,       input,        , "sequences, (N, C, L) or (C, L)") \
  ARG(tensor,       weight,       , "filters, (O, C / groups, K)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  ARG(int1,         stride,      1, "step between windows") \
  ARG(int1_or_enum, padding, 0|valid|same, "zeros added on each side; valid: none; same: as many " \
                                           "as keep the input's size") \
  ARG(int1,         dilation,    1, "step between the elements of a window") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved separately")
MOTH_ARGS(conv1d, CONV1D)

#define CONV_TRANSPOSE1D(ARG) \
  ARG(tensor,       input,        , "sequences, (N, C, L) or (C, L)") \
  ARG(tensor,       weight,       , "filters, (C, O / groups, K)") \
  ARG(maybe_tensor, bias,     none, "added to each channel, (O)") \
  ARG(int1,         stride,      1, "step between windows of the result") \
  ARG(int1,         padding,     0, "elements cut off on each side of the result") \
  ARG(int1,         output_padding, 0, "size added to one side of the result, less than stride " \
                                       "or dilation") \
  ARG(int,          groups,      1, "number of groups of channels that are convolved " \
                                    "separately") \
  ARG(int1,         dilation,    1, "step between the elements of a window")
MOTH_ARGS(conv_transpose1d, CONV_TRANSPOSE1D)

#endif

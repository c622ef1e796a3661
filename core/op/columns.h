/* columns.h -- arguments of im2col (F.unfold) and fold. */
#ifndef MOTH_OP_COLUMNS_H
#define MOTH_OP_COLUMNS_H

#include "call/op.h"

#define COLUMN_STEPS(ARG) \
  ARG(int2,   kernel_size, , "window height and width") \
  ARG(int2,   dilation,   1, "step between the elements of a window") \
  ARG(int2,   padding,    0, "zeros added on each side") \
  ARG(int2,   stride,     1, "step between windows")

#define IM2COL(ARG) \
  ARG(tensor, input,       , "images, (N, C, H, W) or (C, H, W)") \
  COLUMN_STEPS(ARG)
MOTH_ARGS(im2col, IM2COL)

#define FOLD(ARG) \
  ARG(tensor, input,       , "columns, (N, C KH KW, L) or (C KH KW, L)") \
  ARG(int2,   output_size, , "height and width of the images") \
  COLUMN_STEPS(ARG)
MOTH_ARGS(fold, FOLD)

#endif

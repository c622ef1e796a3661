/* picture.h -- arguments of the ops of moth.transforms. */
#ifndef MOTH_OP_PICTURE_H
#define MOTH_OP_PICTURE_H

#include "call/op.h"

#define PICTURE_RESIZE(ARG) \
  ARG(tensor, input,  , "pictures, (N, C, H, W)") \
  ARG(int2,   size,   , "height and width of the result") \
  ARG(enum,   mode, bilinear|bicubic, "interpolation between pixels") \
  ARG(bool,   antialias, true, "average over all pixels where the result is smaller")
MOTH_ARGS(picture_resize, PICTURE_RESIZE)

#define PICTURE_NORMALIZE(ARG) \
  ARG(tensor, input,  , "pictures in bytes, (N, C, H, W)") \
  ARG(floats, mean,   , "of each channel, of values from 0 to 1") \
  ARG(floats, std,    , "standard deviation of each channel")
MOTH_ARGS(picture_normalize, PICTURE_NORMALIZE)

#endif

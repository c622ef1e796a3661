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

#define PICTURE_WARP(ARG) \
  ARG(tensor, input, , "pictures, (N, C, H, W)") \
  ARG(floats, map,   , "9 numbers: pixel (x, y) of the result reads the position (a x + b y + c, " \
                       "d x + e y + f) / (g x + h y + i)") \
  ARG(int2,   size,  , "height and width of the result") \
  ARG(enum,   mode, nearest|bilinear, "interpolation between pixels") \
  ARG(floats, fill, none, "value outside: one number, or one for each channel")
MOTH_ARGS(picture_warp, PICTURE_WARP)

#define PICTURE_ADJUST(ARG) \
  ARG(tensor, input,  , "pictures in bytes, (N, C, H, W), with 1 or 3 channels") \
  ARG(enum,   what, =brightness|contrast|saturation, "what is changed") \
  ARG(float,  factor, , "0: black or grey; 1: no change")
MOTH_ARGS(picture_adjust, PICTURE_ADJUST)

#define PICTURE_NORMALIZE(ARG) \
  ARG(tensor, input,  , "pictures in bytes, (N, C, H, W)") \
  ARG(floats, mean,   , "of each channel, of values from 0 to 1") \
  ARG(floats, std,    , "standard deviation of each channel")
MOTH_ARGS(picture_normalize, PICTURE_NORMALIZE)

#endif

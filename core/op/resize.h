/* resize.h -- arguments of resampling: interpolate, pixel_shuffle, pixel_unshuffle. */
#ifndef MOTH_OP_RESIZE_H
#define MOTH_OP_RESIZE_H

#include "call/op.h"

#define INTERPOLATE(ARG) \
  ARG(tensor, input,            , "sequences, (N, C, L), images, (N, C, H, W), or " \
                                   "volumes, (N, C, D, H, W)") \
  ARG(ints,   size,         none, "sizes of the result: one for all sides, or one per side") \
  ARG(floats, scale_factor, none, "factor of the size, one for all sides or one per side; used " \
                                  "instead of `size`") \
  ARG(enum,   mode, nearest|linear|bilinear|bicubic|area|nearest-exact|trilinear, "interpolation " \
                                                                                  "between " \
                                                                                  "elements; " \
                                                                                  "linear for " \
                                                                                  "sequences, " \
                                                                                  "bilinear and " \
                                                                                  "bicubic for " \
                                                                                  "images, " \
                                                                                  "trilinear for " \
                                                                                  "volumes") \
  ARG(bool,   align_corners, false, "align the centres of the corner elements instead of their " \
                                    "outer edges; for linear, bilinear, bicubic, trilinear") \
  ARG(bool,   recompute_scale_factor, false, "compute the coordinates from the sizes instead of " \
                                             "scale_factor")
MOTH_ARGS(interpolate, INTERPOLATE)

#define RESIZE_HOW(ARG) \
  ARG(enum,   mode, nearest|nearest_exact|linear|cubic, "interpolation between elements") \
  ARG(bool,   align_corners, false, "align the centres of the corner elements") \
  ARG(float,  scale_h, 0, "factor of the height; 0: the ratio of the heights") \
  ARG(float,  scale_w, 0, "factor of the width; 0: the ratio of the widths")

#define RESIZE(ARG) \
  ARG(tensor, input, , "images, (N, C, H, W)") \
  ARG(int2,   size,  , "height and width of the result") \
  RESIZE_HOW(ARG)
MOTH_ARGS(resize, RESIZE)

#define RESIZE_BACK(ARG) \
  ARG(tensor, input, , "gradient of the result, (N, C, OH, OW)") \
  ARG(int2,   size,  , "height and width of the images") \
  RESIZE_HOW(ARG)
MOTH_ARGS(resize_back, RESIZE_BACK)

#define PIXEL_SHUFFLE(ARG) \
  ARG(tensor, input,          , "images, (..., C r r, H, W)") \
  ARG(int,    upscale_factor, , "r, the factor of the size of the result, (..., C, H r, W r)")
MOTH_ARGS(pixel_shuffle, PIXEL_SHUFFLE)

#define PIXEL_UNSHUFFLE(ARG) \
  ARG(tensor, input,            , "images, (..., C, H r, W r)") \
  ARG(int,    downscale_factor, , "r, the divisor of the size of the result, (..., C r r, H, W)")
MOTH_ARGS(pixel_unshuffle, PIXEL_UNSHUFFLE)

#endif

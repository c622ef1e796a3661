/* resize.h -- the faces of resampling: interpolate, pixel_shuffle, pixel_unshuffle. */
#ifndef MOTH_OP_RESIZE_H
#define MOTH_OP_RESIZE_H

#include "call/op.h"

#define INTERPOLATE(ARG) \
  ARG(tensor, input,            , "sequences, (N, C, L), images, (N, C, H, W), or " \
                                   "volumes, (N, C, D, H, W)") \
  ARG(ints,   size,         none, "sizes of the result: one for all sides, or one for each") \
  ARG(floats, scale_factor, none, "how much larger it is, for all sides or for each; or `size`") \
  ARG(enum,   mode, nearest|linear|bilinear|bicubic|area|nearest-exact|trilinear, "how values " \
                                   "between the elements are found; linear for sequences, " \
                                   "bilinear and bicubic for images, trilinear for volumes") \
  ARG(bool,   align_corners, false, "corner elements stand on corner elements, else corners on " \
                                   "corners; for linear, bilinear, bicubic, trilinear") \
  ARG(bool,   recompute_scale_factor, false, "elements are placed by the sizes, not by the " \
                                   "factors that gave them")
MOTH_ARGS(interpolate, INTERPOLATE)

#define RESIZE_HOW(ARG) \
  ARG(enum,   mode, nearest|nearest_exact|linear|cubic, "how values between elements are found") \
  ARG(bool,   align_corners, false, "corner elements stand on corner elements") \
  ARG(float,  scale_h, 0, "how much higher; 0: as the sizes say") \
  ARG(float,  scale_w, 0, "how much wider; 0: as the sizes say")

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
  ARG(int,    upscale_factor, , "r: how much larger the result is, (..., C, H r, W r)")
MOTH_ARGS(pixel_shuffle, PIXEL_SHUFFLE)

#define PIXEL_UNSHUFFLE(ARG) \
  ARG(tensor, input,            , "images, (..., C, H r, W r)") \
  ARG(int,    downscale_factor, , "r: how much smaller the result is, (..., C r r, H, W)")
MOTH_ARGS(pixel_unshuffle, PIXEL_UNSHUFFLE)

#endif

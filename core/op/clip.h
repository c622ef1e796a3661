/* clip.h -- arguments of ops on many gradients at once: their total norm, clipping, and unscaling
** for mixed precision.
*/
#ifndef MOTH_OP_CLIP_H
#define MOTH_OP_CLIP_H

#include "call/op.h"

#define TOTAL_NORM(ARG) \
  ARG(tensors, tensors,            , "tensors, concatenated to one vector") \
  ARG(float,   norm_type,         2, "order p of the norm; math.huge: the largest absolute " \
                                     "value") \
  ARG(bool,    error_if_nonfinite, false, "raise an error if the norm is infinite or NaN")
MOTH_ARGS(total_norm, TOTAL_NORM)

#define CLIP_NORM_(ARG) \
  ARG(tensors, tensors,            , "tensors to scale, changed in place") \
  ARG(tensor,  total_norm,         , "norm of the tensors, one element") \
  ARG(float,   max_norm,           , "largest norm allowed")
MOTH_ARGS(clip_norm_, CLIP_NORM_)

#define UNSCALE_(ARG) \
  ARG(tensors, tensors, , "tensors to multiply, changed in place") \
  ARG(tensor,  found,   , "one element: set to 1 if an element was infinite or NaN") \
  ARG(float,   factor,  , "1 / the scale of the loss")
MOTH_ARGS(unscale_, UNSCALE_)

#endif

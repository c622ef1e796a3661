/* clip.h -- the faces of ops over many gradients at once: their common norm, clipping by it, and
** taking back the factor that a loss was scaled by. */
#ifndef MOTH_OP_CLIP_H
#define MOTH_OP_CLIP_H

#include "call/op.h"

#define TOTAL_NORM(ARG) \
  ARG(tensors, tensors,            , "taken together as one long vector") \
  ARG(float,   norm_type,         2, "order p of the norm; math.huge for the largest size") \
  ARG(bool,    error_if_nonfinite, false, "refuse an infinite norm and NaN?")
MOTH_ARGS(total_norm, TOTAL_NORM)

#define CLIP_NORM_(ARG) \
  ARG(tensors, tensors,            , "made shorter") \
  ARG(tensor,  total_norm,         , "their norm, one element") \
  ARG(float,   max_norm,           , "the longest that they may be")
MOTH_ARGS(clip_norm_, CLIP_NORM_)

#define UNSCALE_(ARG) \
  ARG(tensors, tensors, , "multiplied by the factor") \
  ARG(tensor,  found,   , "one element: set to 1 if some number was infinite or NaN before") \
  ARG(float,   factor,  , "1 over what the loss was multiplied by")
MOTH_ARGS(unscale_, UNSCALE_)

#endif

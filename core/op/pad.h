/* pad.h -- the face of padding. */
#ifndef MOTH_OP_PAD_H
#define MOTH_OP_PAD_H

#include "call/op.h"

#define PAD(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(ints,   pad,      , "how much to add before and after, in pairs from the last dimension " \
                          "backwards: {left, right, top, bottom}; negative cuts off") \
  ARG(enum,   mode, constant|reflect|replicate|circular, "where the border comes from: `value`, " \
                          "mirrored without the edge, the edge repeated, or the other side") \
  ARG(scalar, value,   0, "fills the border in the mode constant")
MOTH_ARGS(pad, PAD)

#define PAD_BACK(ARG) \
  ARG(tensor, input,    , "gradient of the padded tensor") \
  ARG(ints,   size,     , "sizes of the tensor that was padded") \
  ARG(ints,   pad,      , "how much was added before and after, from the last dimension on") \
  ARG(enum,   mode, constant|reflect|replicate|circular, "where the border came from")
MOTH_ARGS(pad_back, PAD_BACK)

#endif

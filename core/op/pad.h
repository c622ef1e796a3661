/* pad.h -- arguments of padding. */
#ifndef MOTH_OP_PAD_H
#define MOTH_OP_PAD_H

#include "call/op.h"

#define PAD(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(ints,   pad,      , "elements added before and after, in pairs from the last dimension " \
                          "backwards: {left, right, top, bottom}; negative numbers remove " \
                          "elements") \
  ARG(enum,   mode, constant|reflect|replicate|circular, "border: constant: `value`; reflect: " \
                                                         "mirrored without the edge; replicate: " \
                                                         "the edge repeated; circular: from the " \
                                                         "other side") \
  ARG(scalar, value,   0, "value of the border in mode constant")
MOTH_ARGS(pad, PAD)

#define PAD_BACK(ARG) \
  ARG(tensor, input,    , "gradient of the padded tensor") \
  ARG(ints,   size,     , "sizes of the tensor that was padded") \
  ARG(ints,   pad,      , "elements added before and after, from the last dimension backwards") \
  ARG(enum,   mode, constant|reflect|replicate|circular, "mode of the padding")
MOTH_ARGS(pad_back, PAD_BACK)

#endif

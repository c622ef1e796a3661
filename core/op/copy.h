/* copy.h -- arguments of the ops that copy, convert and fill. */
#ifndef MOTH_OP_COPY_H
#define MOTH_OP_COPY_H

#include "call/op.h"

#define COPY_(ARG) \
  ARG(tensor, input,     , "tensor to write") \
  ARG(tensor, source,    , "values, broadcast to the input and converted to its dtype") \
  ARG(bool,   non_blocking, false, "return before a copy between a GPU and pinned memory ends")
MOTH_ARGS(copy_, COPY_)

#define CLONE(ARG) \
  ARG(tensor, input,     , "tensor to copy") \
  MOTH_FORMAT_ROW(ARG, "order of the dimensions in memory: the input's when absent")
MOTH_ARGS(clone, CLONE)

/* Choices of memory_format, one less than in op.h: preserve_format is left out, since it would
** change nothing. */
enum { PACK_CONTIGUOUS, PACK_CHANNELS_LAST, PACK_CHANNELS_LAST_3D };

#define CONTIGUOUS(ARG) \
  ARG(tensor, input,     , "tensor to convert") \
  ARG(enum,   memory_format, contiguous_format|channels_last|channels_last_3d, \
      "memory format of the result")
MOTH_ARGS(contiguous, CONTIGUOUS)

#define CAST(ARG) \
  ARG(tensor, input,     , "tensor to convert") \
  ARG(dtype,  dtype,     , "element type of the result")
MOTH_ARGS(cast, CAST)

#define TO_DEVICE(ARG) \
  ARG(tensor, input,     , "tensor to copy") \
  ARG(device, device,    , "device of the result") \
  ARG(bool,   non_blocking, false, "return before a copy from pinned memory ends")
MOTH_ARGS(to_device, TO_DEVICE)

#define FILL_(ARG) \
  ARG(tensor, input,     , "tensor to write") \
  ARG(element, value,    , "value of every element")
MOTH_ARGS(fill_, FILL_)

#define ZERO_(ARG) \
  ARG(tensor, input,     , "tensor to write")
MOTH_ARGS(zero_, ZERO_)

#define MASKED_FILL(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(mask,   mask,      , "true for the elements to change, broadcast to the input") \
  ARG(element, value,    , "new value of these elements")
MOTH_ARGS(masked_fill, MASKED_FILL)

#define SPREAD(ARG) \
  ARG(tensor, input,     , "result of a reduction") \
  ARG(shape,  size,      , "sizes before the reduction") \
  ARG(dims,   dim,   none, "dimensions that were reduced; all of them when absent") \
  ARG(bool,   keepdim, false, "true if the reduction kept the dimensions with size 1")
MOTH_ARGS(spread, SPREAD)

#endif

/* scan.h -- the faces of products, running results and norms. */
#ifndef MOTH_OP_SCAN_H
#define MOTH_OP_SCAN_H

#include "../op.h"

#define PROD(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent") \
  ARG(bool,   keepdim, false, "keep them as dimensions of size 1") \
  ARG(dtype,  dtype,  none, "converts the input first")
MOTH_ARGS(prod, PROD)

#define NORM_P(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(float,  p,         2, "the power; may be infinite, and 0 counts what is not 0") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent") \
  ARG(bool,   keepdim, false, "keep them as dimensions of size 1") \
  ARG(dtype,  dtype,  none, "converts the input first")
MOTH_ARGS(norm_p, NORM_P)

#define CUMPROD(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to multiply along") \
  ARG(dtype,  dtype,  none, "converts the input first")
MOTH_ARGS(cumprod, CUMPROD)

#define CUM_EXTREME(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search along")
MOTH_ARGS(cummax, CUM_EXTREME)
MOTH_ARGS(cummin, CUM_EXTREME)

#define RECUR(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(tensor, factor,     , "of the same shape") \
  ARG(dim,    dim,        , "dimension to go along") \
  ARG(bool,   from_end, false, "go from its end")
MOTH_ARGS(recur, RECUR)

#endif

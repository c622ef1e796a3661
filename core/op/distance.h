/* distance.h -- the faces of the distances of all pairs of rows. */
#ifndef MOTH_OP_DISTANCE_H
#define MOTH_OP_DISTANCE_H

#include "call/op.h"

#define DISTANCES(ARG) \
  ARG(tensor,       x1,     , "rows, (P, M) or (B, P, M)") \
  ARG(maybe_tensor, x2, none, "rows, (R, M) or (B, R, M); without them pairs of rows of (P, M)") \
  ARG(float,        p,     2, "the power of the norm, 1 or 2")
MOTH_ARGS(distances, DISTANCES)

#define DISTANCES_BACK(ARG) \
  ARG(tensor,       grad,     , "of the distances") \
  ARG(tensor,       output,   , "the distances") \
  ARG(tensor,       x1,       , "rows whose gradient is wanted") \
  ARG(maybe_tensor, x2,   none, "the other rows") \
  ARG(float,        p,       2, "the power of the norm, 1 or 2")
MOTH_ARGS(distances_back, DISTANCES_BACK)

#endif

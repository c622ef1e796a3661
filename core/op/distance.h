/* distance.h -- arguments of the distances of all pairs of rows. */
#ifndef MOTH_OP_DISTANCE_H
#define MOTH_OP_DISTANCE_H

#include "call/op.h"

#define DISTANCES(ARG) \
  ARG(tensor,       x1,     , "rows, (P, M) or (B, P, M)") \
  ARG(maybe_tensor, x2, none, "rows, (R, M) or (B, R, M); when absent, the pairs of rows of x1, " \
                              "(P, M)") \
  ARG(float,        p,     2, "order of the norm, 1 or 2")
MOTH_ARGS(distances, DISTANCES)

#define DISTANCES_BACK(ARG) \
  ARG(tensor,       grad,     , "gradient of the distances") \
  ARG(tensor,       output,   , "the distances") \
  ARG(tensor,       x1,       , "rows whose gradient is computed") \
  ARG(maybe_tensor, x2,   none, "the other rows") \
  ARG(float,        p,       2, "order of the norm, 1 or 2")
MOTH_ARGS(distances_back, DISTANCES_BACK)

#endif

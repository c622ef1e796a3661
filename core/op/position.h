/* position.h -- arguments of the ops that convert positions that count from 1 to positions that
** count from 0, and back.
*/
#ifndef MOTH_OP_POSITION_H
#define MOTH_OP_POSITION_H

#include "call/op.h"

#define TO_INDEX(ARG) \
  ARG(tensor, input, , "integer positions that count from 1")
MOTH_ARGS(to_index, TO_INDEX)

#define COUNT_FROM_ONE(ARG) \
  ARG(tensor, input, , "integer positions that count from 1")
MOTH_ARGS(count_from_one, COUNT_FROM_ONE)
MOTH_ARGS(positions, COUNT_FROM_ONE)
MOTH_ARGS(positions_there, COUNT_FROM_ONE)

#define FROM_INDEX(ARG) \
  ARG(tensor, input, , "positions that count from 0")
MOTH_ARGS(from_index, FROM_INDEX)

#endif

/* rearrange.h -- arguments of the ops that reorder or repeat a tensor's elements. */
#ifndef MOTH_OP_REARRANGE_H
#define MOTH_OP_REARRANGE_H

#include "call/op.h"

/* -- reversed and rolled -- */

#define FLIP(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(dims,   dims,     , "dimensions to reverse")
MOTH_ARGS(flip, FLIP)

#define FLIP_ONE(ARG) \
  ARG(tensor, input,    , "tensor with that dimension")
MOTH_ARGS(fliplr, FLIP_ONE)
MOTH_ARGS(flipud, FLIP_ONE)

#define ROT90(ARG) \
  ARG(tensor, input,    , "tensor of at least 2 dimensions") \
  ARG(int,    k,       1, "number of rotations by 90 degrees, from the first dim towards the " \
                          "second") \
  ARG(dims,   dims, none, "the two dimensions of the plane; the first two when absent")
MOTH_ARGS(rot90, ROT90)

#define ROLL(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(ints,   shifts,   , "number of places to shift") \
  ARG(dims,   dims, none, "a dimension for each shift; when absent the flattened tensor is rolled")
MOTH_ARGS(roll, ROLL)

/* -- repeated -- */

#define TILE(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(shape,  dims,     , "repeats of each dimension; fewer numbers apply to the last dimensions")
MOTH_ARGS(tile, TILE)

#define REPEAT(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(shape,  repeats,  , "repeats of each dimension; additional numbers add dimensions in front")
MOTH_ARGS(repeat, REPEAT)

#define REPEAT_INTERLEAVE(ARG) \
  ARG(tensor, input,    , "tensor of any shape") \
  ARG(tensor, repeats,  , "repeats of each element: a number, or an integer tensor with one " \
                          "count for each") \
  ARG(maybe_dim, dim, none, "dimension to repeat along; the input is flattened when absent") \
  ARG(maybe_int, output_size, none, "size of the result along `dim`; must be the sum of the " \
                                    "counts")
MOTH_ARGS(repeat_interleave, REPEAT_INTERLEAVE)

/* -- diagonals -- */

#define DIAG_EMBED(ARG) \
  ARG(tensor, input,    , "diagonals, as its last dimension") \
  ARG(int,    offset,  0, "diagonal; positive: above the main diagonal") \
  ARG(dim,    dim1,   -2, "position of the row dimension in the result") \
  ARG(dim,    dim2,   -1, "position of the column dimension in the result")
MOTH_ARGS(diag_embed, DIAG_EMBED)

#define DIAG(ARG) \
  ARG(tensor, input,    , "a vector, or a matrix") \
  ARG(int,    diagonal, 0, "diagonal; positive: above the main diagonal")
MOTH_ARGS(diag, DIAG)

#define TRACE(ARG) \
  ARG(tensor, input,    , "a matrix")
MOTH_ARGS(trace, TRACE)

/* -- aliases, broadcasts and grids -- */

#define SWAPAXES(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    axis0,    , "first dimension") \
  ARG(dim,    axis1,    , "dimension to swap it with")
MOTH_ARGS(swapaxes, SWAPAXES)

#define SWAPDIMS(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dim0,     , "first dimension") \
  ARG(dim,    dim1,     , "dimension to swap it with")
MOTH_ARGS(swapdims, SWAPDIMS)

#define MOVEAXIS(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dims,   source,   , "dimensions to move") \
  ARG(dims,   destination, , "their positions in the result")
MOTH_ARGS(moveaxis, MOVEAXIS)

#define RAVEL(ARG) \
  ARG(tensor, input,    , "tensor of any shape")
MOTH_ARGS(ravel, RAVEL)

#define BROADCAST_TO(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(shape,  size,     , "sizes of the result: dimensions of size 1 are repeated, -1 keeps a " \
                          "size")
MOTH_ARGS(broadcast_to, BROADCAST_TO)

#define BROADCAST_TENSORS(ARG) \
  ARG(tensors, tensors, , "tensors whose shapes can be broadcast")
MOTH_ARGS(broadcast_tensors, BROADCAST_TENSORS)

#define MESHGRID(ARG) \
  ARG(tensors, tensors, , "vectors or numbers, the coordinates along each dimension") \
  ARG(enum,    indexing, ij|xy, "xy: swap the first two dimensions of the results")
MOTH_ARGS(meshgrid, MESHGRID)

/* -- stacks -- */

#define STACK_OF(ARG) \
  ARG(tensors, tensors, , "tensors with equal sizes in the other dimensions")
MOTH_ARGS(hstack, STACK_OF)
MOTH_ARGS(vstack, STACK_OF)
MOTH_ARGS(dstack, STACK_OF)

#endif

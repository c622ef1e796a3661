/* view.h -- arguments of the ops that view a tensor's elements in another shape or order. The
** results share its storage if possible.
*/
#ifndef MOTH_OP_VIEW_H
#define MOTH_OP_VIEW_H

#include "call/op.h"

/* -- the same elements in row-major order, in another shape -- */

#define VIEW(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(shape,  shape,    , "new sizes; one may be -1 and is computed")
MOTH_ARGS(view, VIEW)

#define VIEW_AS(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(tensor, other,    , "tensor with the new shape")
MOTH_ARGS(view_as, VIEW_AS)

#define RESHAPE(ARG) \
  ARG(tensor, input,    , "tensor to reshape") \
  ARG(shape,  shape,    , "new sizes; one may be -1 and is computed")
MOTH_ARGS(reshape, RESHAPE)

#define RESHAPE_AS(ARG) \
  ARG(tensor, input,    , "tensor to reshape") \
  ARG(tensor, other,    , "tensor with the new shape")
MOTH_ARGS(reshape_as, RESHAPE_AS)

#define FLATTEN(ARG) \
  ARG(tensor, input,    , "tensor to flatten") \
  ARG(dim,    start_dim, 0, "first dimension to flatten") \
  ARG(dim,    end_dim, -1, "last dimension to flatten")
MOTH_ARGS(flatten, FLATTEN)

#define UNFLATTEN(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dim,      , "dimension to split") \
  ARG(shape,  sizes,    , "sizes of the new dimensions; one may be -1 and is computed")
MOTH_ARGS(unflatten, UNFLATTEN)

#define SQUEEZE(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dims,   dim,  none, "dimensions to remove if their size is 1; all when absent")
MOTH_ARGS(squeeze, SQUEEZE)

#define UNSQUEEZE(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dim,      , "position of the new dimension in the result")
MOTH_ARGS(unsqueeze, UNSQUEEZE)

/* -- the dimensions in another order -- */

#define PERMUTE(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dims,   dims,     , "the dimensions in their new order")
MOTH_ARGS(permute, PERMUTE)

#define TRANSPOSE(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dim0,     , "first dimension") \
  ARG(dim,    dim1,     , "dimension to swap it with")
MOTH_ARGS(transpose, TRANSPOSE)

#define T_(ARG) \
  ARG(tensor, input,    , "matrix, vector or scalar")
MOTH_ARGS(t, T_)

#define MOVEDIM(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(dims,   source,   , "dimensions to move") \
  ARG(dims,   destination, , "their positions in the result")
MOTH_ARGS(movedim, MOVEDIM)

/* -- fewer or more elements -- */

#define EXPAND(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(shape,  size,     , "sizes of the result: dimensions of size 1 are repeated, -1 keeps a " \
                          "size")
MOTH_ARGS(expand, EXPAND)

#define EXPAND_AS(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(tensor, other,    , "tensor with the shape of the result")
MOTH_ARGS(expand_as, EXPAND_AS)

#define NARROW(ARG) \
  ARG(tensor,   input,  , "input tensor") \
  ARG(dim,      dim,    , "dimension to shorten") \
  ARG(position, start,  , "first position to keep") \
  ARG(int,      length, , "number of positions to keep")
MOTH_ARGS(narrow, NARROW)

#define SELECT(ARG) \
  ARG(tensor,   input,  , "input tensor") \
  ARG(dim,      dim,    , "dimension to remove") \
  ARG(position, index,  , "position to keep")
MOTH_ARGS(select, SELECT)

#define SLICE(ARG) /* 0-based and half-open also for Lua: Lua's indexing converts positions */ \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dim,      , "dimension to slice") \
  ARG(int,    start,    , "first position, from 0") \
  ARG(int,    stop,     , "end position, not included") \
  ARG(int,    step,    1, "step between the positions kept")
MOTH_ARGS(slice, SLICE)

#define DIAGONAL(ARG) \
  ARG(tensor, input,    , "input tensor") \
  ARG(int,    offset,  0, "diagonal; positive: above the main diagonal") \
  ARG(dim,    dim1,    0, "dimension of the rows") \
  ARG(dim,    dim2,    1, "dimension of the columns")
MOTH_ARGS(diagonal, DIAGONAL)

#define AS_STRIDED(ARG) \
  ARG(tensor,    input, , "tensor whose storage is viewed") \
  ARG(ints,      size,  , "sizes of the result") \
  ARG(ints,      stride, , "stride of each dimension, in elements") \
  ARG(maybe_int, storage_offset, none, "offset of the first element in the storage; the input's " \
                                       "when absent")
MOTH_ARGS(as_strided, AS_STRIDED)

#define UNFOLD_DIM(ARG) /* x:unfold(...); F.unfold is im2col */ \
  ARG(tensor, input,    , "input tensor") \
  ARG(dim,    dimension, , "dimension of the windows") \
  ARG(int,    size,     , "length of a window") \
  ARG(int,    step,     , "step between windows")
MOTH_ARGS(unfold_dim, UNFOLD_DIM)

/* -- several views at once -- */

#define UNBIND(ARG) \
  ARG(tensor, input,    , "tensor to split") \
  ARG(dim,    dim,     0, "dimension to remove")
MOTH_ARGS(unbind, UNBIND)

#define SPLIT(ARG) \
  ARG(tensor, input,    , "tensor to split") \
  ARG(ints,   split_size, , "size of each piece, the last may be smaller; or a list of sizes") \
  ARG(dim,    dim,     0, "dimension to split")
MOTH_ARGS(split, SPLIT)

#define CHUNK(ARG) \
  ARG(tensor, input,    , "tensor to split") \
  ARG(int,    chunks,   , "maximum number of pieces") \
  ARG(dim,    dim,     0, "dimension to split")
MOTH_ARGS(chunk, CHUNK)

/* Moves dimension `dim` and the following ones n positions back, to insert dimensions. If n is
** negative, removes dimensions. */
void moth_shift_dims(moth_layout *y, int32_t dim, int32_t n);

/* Adds x to the history of *y, although the value of *y does not depend on x: a backward pass then
** gives zeros for x instead of an error. Does nothing if no gradient is needed. */
int moth_attach(moth_tensor **y, moth_tensor *x);

#endif

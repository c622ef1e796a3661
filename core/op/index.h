/* index.h -- arguments of the ops that read and write elements at positions held by tensors. */
#ifndef MOTH_OP_INDEX_H
#define MOTH_OP_INDEX_H

#include "call/op.h"

/* -- by lists of index tensors and masks, as in NumPy's advanced indexing -- */

#define INDEX(ARG) \
  ARG(tensor,  input,    , "tensor to read") \
  ARG(indices, indices,  , "for each leading dimension an integer tensor, a mask, or none for " \
                           "all positions")
MOTH_ARGS(index, INDEX)

#define INDEX_PUT(ARG) \
  ARG(tensor,  input,    , "tensor to change") \
  ARG(indices, indices,  , "for each leading dimension an integer tensor, a mask, or none for " \
                           "all positions") \
  ARG(tensor,  values,   , "new values, broadcast to the shape of the indexed elements") \
  ARG(bool,    accumulate, false, "add instead of replacing; repeated positions are added each " \
                                  "time")
MOTH_ARGS(index_put, INDEX_PUT)

#define INDEX_SUM(ARG) \
  ARG(tensor,  input,    , "values, of the shape of the indexed elements") \
  ARG(indices, indices,  , "as in index") \
  ARG(ints,    size,     , "sizes of the result")
MOTH_ARGS(index_sum, INDEX_SUM)

#define MASKED_SELECT(ARG) \
  ARG(tensor, input,     , "tensor to read") \
  ARG(mask,   mask,      , "true for the elements selected, broadcast with the input")
MOTH_ARGS(masked_select, MASKED_SELECT)

#define NONZERO(ARG) \
  ARG(tensor, input,     , "tensor to search")
MOTH_ARGS(nonzero, NONZERO)

/* -- along one dimension -- */

#define INDEX_SELECT(ARG) \
  ARG(tensor, input,     , "tensor to read") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions, 1-d")
MOTH_ARGS(index_select, INDEX_SELECT)

#define INDEX_ADD(ARG) \
  ARG(tensor, input,     , "tensor to add to") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions, 1-d") \
  ARG(tensor, source,    , "values to add: the input's shape, with the length of `index` in " \
                           "`dim`") \
  ARG(scalar, alpha,    1, "factor of `source`")
MOTH_ARGS(index_add, INDEX_ADD)

#define INDEX_COPY(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions, 1-d") \
  ARG(tensor, source,    , "new values: the input's shape, with the length of `index` in `dim`")
MOTH_ARGS(index_copy, INDEX_COPY)

#define INDEX_FILL(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions, 1-d") \
  ARG(element, value,    , "new value of all elements at these positions")
MOTH_ARGS(index_fill, INDEX_FILL)

#define GATHER(ARG) \
  ARG(tensor, input,     , "tensor to read") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions; the result has its shape")
MOTH_ARGS(gather, GATHER)

#define GATHER_BACK(ARG) \
  ARG(tensor, input,     , "gradient of the elements gathered") \
  ARG(dim,    dim,       , "as in gather") \
  ARG(index,  index,     , "as in gather") \
  ARG(ints,   size,      , "sizes of the result")
MOTH_ARGS(gather_back, GATHER_BACK)

#define SCATTER(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions") \
  ARG(tensor, src,       , "values, at least as large as `index`; or a number")
MOTH_ARGS(scatter, SCATTER)

#define SCATTER_ADD(ARG) \
  ARG(tensor, input,     , "tensor to add to") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions") \
  ARG(tensor, src,       , "values to add, at least as large as `index`")
MOTH_ARGS(scatter_add, SCATTER_ADD)

#define SCATTER_REDUCE(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(dim,    dim,       , "dimension that is indexed") \
  ARG(index,  index,     , "positions") \
  ARG(tensor, src,       , "values, at least as large as `index`") \
  ARG(enum,   reduce, =sum|prod|mean|amax|amin, "how the values for one position are combined") \
  ARG(bool,   include_self, true, "also combine them with the element of the input")
MOTH_ARGS(scatter_reduce, SCATTER_REDUCE)

#define TAKE(ARG) \
  ARG(tensor, input,     , "tensor to read, as if it had one dimension") \
  ARG(index,  index,     , "positions, in row-major order; the result has their shape")
MOTH_ARGS(take, TAKE)

#define TAKE_ALONG_DIM(ARG) \
  ARG(tensor, input,     , "tensor to read") \
  ARG(index,  indices,   , "positions, broadcast with the input in the other dimensions") \
  ARG(maybe_dim, dim, none, "dimension that is indexed; when absent both tensors are flattened")
MOTH_ARGS(take_along_dim, TAKE_ALONG_DIM)

#define ARGWHERE(ARG) \
  ARG(tensor, input,     , "tensor to search")
MOTH_ARGS(argwhere, ARGWHERE)

#define MASKED_SCATTER(ARG) \
  ARG(tensor, input,     , "tensor to change") \
  ARG(mask,   mask,      , "true for the elements selected, broadcast with the input") \
  ARG(tensor, source,    , "the new values, in row-major order; extra values are ignored")
MOTH_ARGS(masked_scatter, MASKED_SCATTER)

#define ONE_HOT(ARG) \
  ARG(index,  input,     , "positions, any shape") \
  ARG(maybe_int, num_classes, none, "size of the new last dimension; the largest position when " \
                                    "absent or -1")
MOTH_ARGS(one_hot, ONE_HOT)

/* Writes or adds values[...] to base[... index[...] in dim ...]; `mode` is a mode of the gather
** kernels. `of` has base's shape; errors name it. All positions are checked before the first
** write. */
int moth_scatter(int mode, const moth_tensor *of, moth_tensor *base, int32_t dim,
                 const moth_tensor *index, const moth_tensor *values);
/* Returns true if the sizes of a mask are those of the tensor `of` from dimension `dim` on. */
int moth_mask_fits(const moth_tensor *mask, int32_t dim, const moth_tensor *of, int32_t ndim,
                   const int64_t *shape);
/* Returns true for one mask over the leading dimensions and one value: then no positions are
** needed. */
bool moth_index_fills(const index_put_args *a);

#endif

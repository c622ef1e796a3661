/* sort.h -- the faces of the ops that put elements into order, or look for them in one. */
#ifndef MOTH_OP_SORT_H
#define MOTH_OP_SORT_H

#include "call/op.h"

#define SORT(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,      -1, "dimension to sort along") \
  ARG(bool,   descending, false, "the largest first") \
  ARG(bool,   stable, false, "equals keep their order: they always do")
MOTH_ARGS(sort, SORT)
MOTH_ARGS(argsort, SORT)

#define MSORT(ARG) \
  ARG(tensor, input,      , "tensor of any shape")
MOTH_ARGS(msort, MSORT)

#define TOPK(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(int,    k,          , "how many") \
  ARG(dim,    dim,      -1, "dimension to search") \
  ARG(bool,   largest, true, "the largest, not the smallest") \
  ARG(bool,   sorted, true, "in order: they always are")
MOTH_ARGS(topk, TOPK)

#define KTHVALUE(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(int,    k,          , "which in order, from 1: the smallest") \
  ARG(dim,    dim,      -1, "dimension to search") \
  ARG(bool,   keepdim, false, "keep it as a dimension of size 1")
MOTH_ARGS(kthvalue, KTHVALUE)

#define MEDIAN_ALL(ARG) \
  ARG(tensor, input,      , "tensor of any shape")
MOTH_ARGS(median_all, MEDIAN_ALL)

#define MEDIAN_DIM(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search") \
  ARG(bool,   keepdim, false, "keep it as a dimension of size 1")
MOTH_ARGS(median_dim, MEDIAN_DIM)

#define QUANTILE_OF(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search") \
  ARG(bool,   keepdim, false, "keep it as a dimension of size 1") \
  ARG(float,  share,   0.5, "of the elements along it, from 0 to 1") \
  ARG(bool,   above, false, "the upper of two neighbours") \
  ARG(bool,   skip_nan, false, "leave NaN out; otherwise it wins")
MOTH_ARGS(quantile_of, QUANTILE_OF)

/* -- equals -- */

#define UNIQUE_ALL(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(maybe_dim, dim, none, "compare the slices along it; when absent the elements") \
  ARG(bool,   consecutive, false, "only equals that stand behind each other count as such") \
  ARG(bool,   values_only, false, "leave the other results empty")
MOTH_ARGS(unique_all, UNIQUE_ALL)

/* -- looking for values -- */

#define SEARCHSORTED(ARG) \
  ARG(tensor, sorted_sequence, , "(n), or (..., n): sorted along the last dimension") \
  ARG(tensor, input,      , "values, any shape; for (..., n) of as many rows: (..., m)") \
  ARG(bool,   right, false, "behind equals instead of before them") \
  ARG(enum,   side, left|right, "the same in another word")
MOTH_ARGS(searchsorted, SEARCHSORTED)

#define BUCKETIZE(ARG) \
  ARG(tensor, input,      , "values, any shape") \
  ARG(tensor, boundaries, , "sorted values, (n)") \
  ARG(bool,   right, false, "a value at a boundary belongs to what is above it")
MOTH_ARGS(bucketize, BUCKETIZE)

#define ISIN(ARG) \
  ARG(tensor, elements,   , "tensor of any shape") \
  ARG(tensor, test_elements, , "what to look for, any shape") \
  ARG(bool,   assume_unique, false, "nothing comes twice: not needed to be fast") \
  ARG(bool,   invert, false, "true where it is not found")
MOTH_ARGS(isin, ISIN)

#endif

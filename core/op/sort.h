/* sort.h -- arguments of the ops that sort elements or search in sorted tensors. */
#ifndef MOTH_OP_SORT_H
#define MOTH_OP_SORT_H

#include "call/op.h"

#define SORT(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,      -1, "dimension to sort along") \
  ARG(bool,   descending, false, "sort the largest element first") \
  ARG(bool,   stable, false, "keep the order of equal elements; the order is always kept")
MOTH_ARGS(sort, SORT)
MOTH_ARGS(argsort, SORT)

#define MSORT(ARG) \
  ARG(tensor, input,      , "tensor of any shape")
MOTH_ARGS(msort, MSORT)

#define TOPK(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(int,    k,          , "number of elements") \
  ARG(dim,    dim,      -1, "dimension to search") \
  ARG(bool,   largest, true, "the largest elements instead of the smallest") \
  ARG(bool,   sorted, true, "sort the result; the result is always sorted")
MOTH_ARGS(topk, TOPK)

#define KTHVALUE(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(int,    k,          , "rank of the element, from 1 for the smallest") \
  ARG(dim,    dim,      -1, "dimension to search") \
  ARG(bool,   keepdim, false, "keep the dimension with size 1")
MOTH_ARGS(kthvalue, KTHVALUE)

#define MEDIAN_ALL(ARG) \
  ARG(tensor, input,      , "tensor of any shape")
MOTH_ARGS(median_all, MEDIAN_ALL)

#define MEDIAN_DIM(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search") \
  ARG(bool,   keepdim, false, "keep the dimension with size 1")
MOTH_ARGS(median_dim, MEDIAN_DIM)

#define QUANTILE_OF(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search") \
  ARG(bool,   keepdim, false, "keep the dimension with size 1") \
  ARG(float,  share,   0.5, "fraction of the elements along `dim`, from 0 to 1") \
  ARG(bool,   above, false, "use the upper of the two elements around the fraction") \
  ARG(bool,   skip_nan, false, "ignore NaN; otherwise NaN wins")
MOTH_ARGS(quantile_of, QUANTILE_OF)

/* -- unique elements -- */

#define UNIQUE_ALL(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(maybe_dim, dim, none, "compare the slices along `dim`; compare elements when absent") \
  ARG(bool,   consecutive, false, "only merge equal consecutive elements") \
  ARG(bool,   values_only, false, "do not compute the other results")
MOTH_ARGS(unique_all, UNIQUE_ALL)

/* -- searches -- */

#define SEARCHSORTED(ARG) \
  ARG(tensor, sorted_sequence, , "(n), or (..., n): sorted along the last dimension") \
  ARG(tensor, input,      , "values, any shape; for rows (..., n) the same number of rows, (..., " \
                            "m)") \
  ARG(bool,   right, false, "insert after equal elements instead of before") \
  ARG(enum,   side, left|right, "left or right: another form of `right`")
MOTH_ARGS(searchsorted, SEARCHSORTED)

#define BUCKETIZE(ARG) \
  ARG(tensor, input,      , "values, any shape") \
  ARG(tensor, boundaries, , "sorted values, (n)") \
  ARG(bool,   right, false, "a value equal to a boundary belongs to the interval above it")
MOTH_ARGS(bucketize, BUCKETIZE)

#define ISIN(ARG) \
  ARG(tensor, elements,   , "tensor of any shape") \
  ARG(tensor, test_elements, , "elements to search for, any shape") \
  ARG(bool,   assume_unique, false, "accepted as in PyTorch, without effect") \
  ARG(bool,   invert, false, "invert the result: true where an element is not found")
MOTH_ARGS(isin, ISIN)

#endif

/* reduce.h -- arguments of reductions along some dimensions or all. */
#ifndef MOTH_OP_REDUCE_H
#define MOTH_OP_REDUCE_H

#include "call/op.h"

/* Sets the dtype of y: the requested dtype, else the input's. An integer dtype is an error, since
** `what`, the result, is not an integer. */
int moth_mean_dtype(const moth_tensor *input, int64_t dtype, const char *what, moth_layout *y);

/* -- along any dimensions -- */

#define REDUCE(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent") \
  ARG(bool,   keepdim, false, "keep the reduced dimensions with size 1")
#define REDUCE_DTYPE(ARG) \
  REDUCE(ARG) \
  ARG(dtype,  dtype,  none, "dtype to which the input is converted first")

MOTH_ARGS(sum, REDUCE_DTYPE)
MOTH_ARGS(mean, REDUCE_DTYPE)
MOTH_ARGS(prod, REDUCE_DTYPE)
MOTH_ARGS(nansum, REDUCE_DTYPE)
MOTH_ARGS(nanmean, REDUCE_DTYPE)
MOTH_ARGS(amax, REDUCE)
MOTH_ARGS(amin, REDUCE)
MOTH_ARGS(all, REDUCE)
MOTH_ARGS(any, REDUCE)
MOTH_ARGS(logsumexp, REDUCE)

#define COUNT_NONZERO(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent")
MOTH_ARGS(count_nonzero, COUNT_NONZERO)

#define SPREAD_OF(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent") \
  ARG(float,  correction, 1, "the sum of squares is divided by the count minus the correction") \
  ARG(bool,   keepdim, false, "keep the reduced dimensions with size 1") \
  ARG(bool,   unbiased, true, "false sets the correction to 0")
MOTH_ARGS(var, SPREAD_OF)
MOTH_ARGS(std, SPREAD_OF)
MOTH_ARGS(var_mean, SPREAD_OF)
MOTH_ARGS(std_mean, SPREAD_OF)

#define AMINMAX(ARG) \
  ARG(tensor,    input,      , "tensor of any shape") \
  ARG(maybe_dim, dim,    none, "dimension to reduce; all of them when absent") \
  ARG(bool,      keepdim, false, "keep the reduced dimension with size 1")
MOTH_ARGS(aminmax, AMINMAX)

#define NORM_P(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(float,  p,         2, "order of the norm; may be infinite; 0: the number of elements that " \
                            "are not 0") \
  ARG(dims,   dim,    none, "dimensions to reduce; all of them when absent") \
  ARG(bool,   keepdim, false, "keep the reduced dimensions with size 1") \
  ARG(dtype,  dtype,  none, "dtype to which the input is converted first")
MOTH_ARGS(norm_p, NORM_P)

#define DIST(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(tensor, other,      , "tensor, broadcast with the input") \
  ARG(float,  p,         2, "order of the norm")
MOTH_ARGS(dist, DIST)

/* The gradient of a product along the last dimension. */
#define PROD_BACK(ARG) \
  ARG(tensor, grad,       , "gradient of each row's product, (..., 1)") \
  ARG(tensor, input,      , "the factors, (..., N)")
MOTH_ARGS(prod_back, PROD_BACK)

/* -- along one dimension -- */

#define ARG_EXTREME(ARG) \
  ARG(tensor,    input,      , "tensor of any shape") \
  ARG(maybe_dim, dim,    none, "dimension to search; when absent, all elements, with a position " \
                               "in row-major order") \
  ARG(bool,      keepdim, false, "keep the reduced dimension with size 1")
MOTH_ARGS(argmax, ARG_EXTREME)
MOTH_ARGS(argmin, ARG_EXTREME)

#define DIM_EXTREME(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search") \
  ARG(bool,   keepdim, false, "keep the reduced dimension with size 1")
MOTH_ARGS(max_dim, DIM_EXTREME)
MOTH_ARGS(min_dim, DIM_EXTREME)

#define ALL_EXTREME(ARG) \
  ARG(tensor, input,      , "tensor of any shape")
MOTH_ARGS(max_all, ALL_EXTREME)
MOTH_ARGS(min_all, ALL_EXTREME)

/* -- histogram.c -- */

#define HISTC(ARG) \
  ARG(tensor, input,      , "numbers, any shape") \
  ARG(int,    bins,    100, "number of bins") \
  ARG(float,  min,       0, "lower end of the first bin") \
  ARG(float,  max,       0, "upper end of the last bin; if equal to min, both are the extremes " \
                            "of the input")
MOTH_ARGS(histc, HISTC)

#define BINCOUNT(ARG) \
  ARG(tensor, input,      , "integers from 0 on, (n)") \
  ARG(maybe_tensor, weights, none, "weight of each integer, (n); 1 when absent") \
  ARG(int,    minlength, 0, "smallest size of the result")
MOTH_ARGS(bincount, BINCOUNT)

/* -- for the gradient of max_dim: reads or writes one element of each row -- */

#define ROW_PICK(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(index,  index,      , "a position in `dim` for each row") \
  ARG(dim,    dim,        , "dimension that is indexed") \
  ARG(bool,   keepdim, false, "true if `index` has it as a dimension of size 1")
MOTH_ARGS(row_pick, ROW_PICK)

#define ROW_PLACE(ARG) \
  ARG(tensor, input,      , "a value for each row") \
  ARG(index,  index,      , "its position in `dim`; the other elements are 0") \
  ARG(dim,    dim,        , "dimension of the rows") \
  ARG(bool,   keepdim, false, "true if `input` and `index` have it as a dimension of size 1") \
  ARG(shape,  size,       , "sizes of the result")
MOTH_ARGS(row_place, ROW_PLACE)

#endif

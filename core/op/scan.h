/* scan.h -- arguments of cumulative ops. */
#ifndef MOTH_OP_SCAN_H
#define MOTH_OP_SCAN_H

#include "call/op.h"

int moth_check_dtype(moth_ctx *ctx, int64_t dtype); /* checks an argument `dtype`; -1 means none */
/* the dtype of a sum: i64 for integers and bool */
int moth_sum_dtype(int dtype);
/* x shifted by one position forward along dim, with `number` as the first element; or with `back`,
** backward. */
moth_tensor *moth_shifted(moth_grad *g, moth_tensor *x, int64_t dim, double number, bool back);

/* For gradients of products. moth_grad_wide: x in f64, itself or a copy. moth_exponents: the
** exponents of the cumulative products of |x| without zeros, as constants. moth_steps: the
** differences of such exponents. moth_times_two_to: x 2^e. */
moth_tensor *moth_grad_wide(moth_grad *g, moth_tensor *x);
moth_tensor *moth_exponents(moth_grad *g, moth_tensor *x, int64_t dim);
moth_tensor *moth_steps(moth_grad *g, moth_tensor *sums, int64_t dim);
moth_tensor *moth_times_two_to(moth_grad *g, moth_tensor *x, moth_tensor *e);
/* Returns true if all |x| are finite, at most 2^bound and at least 2^-bound, or 0 if `zeros`.
** Returns false if values cannot be read: on a device or in a captured step. */
bool moth_exponents_within(const moth_tensor *x, int64_t bound, bool zeros);

#define CUMSUM(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to sum along") \
  ARG(dtype,  dtype,  none, "dtype to which the input is converted first")
MOTH_ARGS(cumsum, CUMSUM)

#define CUMSUM_BACK(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to sum along, from its end")
MOTH_ARGS(cumsum_back, CUMSUM_BACK)

#define CUMPROD(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to multiply along") \
  ARG(dtype,  dtype,  none, "dtype to which the input is converted first")
MOTH_ARGS(cumprod, CUMPROD)

#define CUMPROD_BACK(ARG) \
  ARG(tensor, grad,       , "gradient of the cumulative product") \
  ARG(tensor, input,      , "the factors, of the shape of `grad`") \
  ARG(dim,    dim,        , "dimension to multiply along")
MOTH_ARGS(cumprod_back, CUMPROD_BACK)

#define CUM_EXTREME(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(dim,    dim,        , "dimension to search along")
MOTH_ARGS(cummax, CUM_EXTREME)
MOTH_ARGS(cummin, CUM_EXTREME)

#define RECUR(ARG) \
  ARG(tensor, input,      , "tensor of any shape") \
  ARG(tensor, factor,     , "tensor of the input's shape") \
  ARG(dim,    dim,        , "dimension of the recurrence") \
  ARG(bool,   from_end, false, "start at the end of the dimension")
MOTH_ARGS(recur, RECUR)

#define DIFF(ARG) \
  ARG(tensor, input,      , "tensor with dimensions") \
  ARG(int,    n,         1, "order of the differences") \
  ARG(dim,    dim,      -1, "dimension of the differences") \
  ARG(maybe_tensor, prepend, none, "values prepended to the input along `dim`") \
  ARG(maybe_tensor, append, none, "values appended to the input along `dim`")
MOTH_ARGS(diff, DIFF)

#endif

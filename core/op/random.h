/* random.h -- arguments of the ops that draw random numbers. They read and advance a generator, an
** i64 tensor {seed, offset}; when it is absent, the context's generator.
*/
#ifndef MOTH_OP_RANDOM_H
#define MOTH_OP_RANDOM_H

#include "call/op.h"

#define RANDOM_FROM(ARG) \
  ARG(generator, generator, none, "random number generator; the default one when absent")
#define RANDOM_WHERE(ARG) \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; the default dtype when absent") \
  ARG(device, device, cpu, "device of the result")
#define RANDOM_LIKE(ARG) \
  ARG(tensor, input,     , "tensor with the shape") \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; the input's when absent") \
  ARG(device, device, cpu, "device of the result")

#define RAND(ARG) ARG(shape, size, , "sizes") RANDOM_WHERE(ARG)
MOTH_ARGS(rand, RAND)
#define RANDN(ARG) ARG(shape, size, , "sizes") RANDOM_WHERE(ARG)
MOTH_ARGS(randn, RANDN)
#define RAND_LIKE(ARG) RANDOM_LIKE(ARG)
MOTH_ARGS(rand_like, RAND_LIKE)
#define RANDN_LIKE(ARG) RANDOM_LIKE(ARG)
MOTH_ARGS(randn_like, RANDN_LIKE)

#define RANDINT(ARG) \
  ARG(int,    low,       , "smallest value") \
  ARG(int,    high,      , "end, not included") \
  ARG(shape,  size,      , "sizes") \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; i64 when absent") \
  ARG(device, device, cpu, "device of the result")
MOTH_ARGS(randint, RANDINT)

#define RANDPERM(ARG) \
  ARG(int,    n,         , "number of positions") \
  RANDOM_FROM(ARG)
MOTH_ARGS(randperm, RANDPERM)

#define UNIFORM_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  from,     0, "lower bound") \
  ARG(float,  to,       1, "upper bound; excluded, except for rounding") \
  RANDOM_FROM(ARG)
MOTH_ARGS(uniform_, UNIFORM_)

#define NORMAL_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  mean,     0, "mean") \
  ARG(float,  std,      1, "standard deviation") \
  RANDOM_FROM(ARG)
MOTH_ARGS(normal_, NORMAL_)

#define BERNOULLI(ARG) \
  ARG(tensor, input,     , "probabilities of a 1, each from 0 to 1") \
  RANDOM_FROM(ARG)
MOTH_ARGS(bernoulli, BERNOULLI)

#define BERNOULLI_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  p,      0.5, "probability of a 1") \
  RANDOM_FROM(ARG)
MOTH_ARGS(bernoulli_, BERNOULLI_)

/* -- sampling.c -- */

#define RANDINT_LIKE(ARG) \
  ARG(tensor, input,     , "tensor with the shape") \
  ARG(int,    low,       , "smallest value; if `high` is absent, the end, and the smallest value " \
                           "is 0") \
  ARG(maybe_int, high, none, "end, not included") \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; the input's when absent")
MOTH_ARGS(randint_like, RANDINT_LIKE)

#define RANDOM_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(maybe_int, from, none, "smallest value, 0 when absent; if `to` is absent, the end") \
  ARG(maybe_int, to,   none, "end, not included; when both are absent, all values of the dtype") \
  RANDOM_FROM(ARG)
MOTH_ARGS(random_, RANDOM_)

#define EXPONENTIAL_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  lambd,    1, "rate: the mean is 1 / lambd") \
  RANDOM_FROM(ARG)
MOTH_ARGS(exponential_, EXPONENTIAL_)

#define GEOMETRIC_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  p,         , "probability of success of each Bernoulli trial") \
  RANDOM_FROM(ARG)
MOTH_ARGS(geometric_, GEOMETRIC_)

/* -- rejection.c -- */

#define STANDARD_GAMMA(ARG) \
  ARG(tensor, input,     , "shape parameters of the distributions, above 0") \
  RANDOM_FROM(ARG)
MOTH_ARGS(standard_gamma, STANDARD_GAMMA)

#define POISSON(ARG) \
  ARG(tensor, input,     , "rates, from 0 on") \
  RANDOM_FROM(ARG)
MOTH_ARGS(poisson, POISSON)

#define BINOMIAL_OF(ARG) \
  ARG(tensor, count,     , "number of Bernoulli trials, from 0 on") \
  ARG(tensor, prob,      , "probability of success of each trial, of the shape of `count`") \
  RANDOM_FROM(ARG)
MOTH_ARGS(binomial_of, BINOMIAL_OF)

/* -- sampling.c: multinomial -- */

#define MULTINOMIAL(ARG) \
  ARG(tensor, input,     , "weights from 0 on, not all 0, (n) or (rows, n)") \
  ARG(int,    num_samples, , "number of positions to draw in each row") \
  ARG(bool,   replacement, false, "draw with replacement") \
  RANDOM_FROM(ARG)
MOTH_ARGS(multinomial, MULTINOMIAL)

#endif

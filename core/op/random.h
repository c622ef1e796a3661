/* random.h -- the faces of the ops that draw random numbers. All of them read and advance a
** generator, an i64 tensor {seed, offset}: the context's own when none is given.
*/
#ifndef MOTH_OP_RANDOM_H
#define MOTH_OP_RANDOM_H

#include "../op.h"

#define RANDOM_FROM(ARG) \
  ARG(generator, generator, none, "source of the numbers; the default one when absent")
#define RANDOM_WHERE(ARG) \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; the default one when absent") \
  ARG(device, device, cpu, "where the elements live")
#define RANDOM_LIKE(ARG) \
  ARG(tensor, input,     , "tensor with the shape") \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; that of the input when absent")

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
  ARG(int,    high,      , "bound above all values") \
  ARG(shape,  size,      , "sizes") \
  RANDOM_FROM(ARG) \
  ARG(dtype,  dtype, none, "element type; i64 when absent") \
  ARG(device, device, cpu, "where the elements live")
MOTH_ARGS(randint, RANDINT)

#define RANDPERM(ARG) \
  ARG(int,    n,         , "how many positions") \
  RANDOM_FROM(ARG)
MOTH_ARGS(randperm, RANDPERM)

#define UNIFORM_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  from,     0, "lower bound") \
  ARG(float,  to,       1, "upper bound, not reached but by rounding") \
  RANDOM_FROM(ARG)
MOTH_ARGS(uniform_, UNIFORM_)

#define NORMAL_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  mean,     0, "mean") \
  ARG(float,  std,      1, "standard deviation") \
  RANDOM_FROM(ARG)
MOTH_ARGS(normal_, NORMAL_)

#define BERNOULLI(ARG) \
  ARG(tensor, input,     , "probabilities of a 1, each in 0..1") \
  RANDOM_FROM(ARG)
MOTH_ARGS(bernoulli, BERNOULLI)

#define BERNOULLI_(ARG) \
  ARG(tensor, input,     , "tensor to fill") \
  ARG(float,  p,      0.5, "probability of a 1") \
  RANDOM_FROM(ARG)
MOTH_ARGS(bernoulli_, BERNOULLI_)

#endif

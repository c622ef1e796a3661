/* optim.h -- arguments of optimizer steps: one call updates a group of parameters. The ops have no
** results; element i of all lists belongs to parameter i.
*/
#ifndef MOTH_OP_OPTIM_H
#define MOTH_OP_OPTIM_H

#include "call/op.h"

#define STEP_PARAMS(ARG) \
  ARG(tensors, params,               , "parameters to update") \
  ARG(tensors, grads,                , "gradient of each parameter")

#define STEP_DECAY(ARG) \
  ARG(float,   weight_decay,        0, "fraction of the parameter that is added to its gradient") \
  ARG(bool,    maximize,        false, "maximize instead of minimize")

#define SGD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, momentum_buffers,     , "running gradient of each parameter; empty without " \
                                       "momentum") \
  ARG(float,   lr,                   , "learning rate") \
  ARG(float,   momentum,            0, "momentum factor") \
  ARG(float,   dampening,           0, "fraction of the new gradient that is not added") \
  ARG(bool,    nesterov,        false, "use Nesterov momentum") \
  ARG(bool,    first,           false, "the buffers are new: they are set to the gradients") \
  STEP_DECAY(ARG)
MOTH_ARGS(sgd_step_, SGD_STEP_)

#define STEP_MEANS(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, exp_avgs,             , "running mean of each gradient") \
  ARG(tensors, exp_avg_sqs,          , "running mean of each squared gradient")

#define STEP_BETAS(ARG) \
  ARG(float,   step,                 , "number of this step, counted from 1") \
  ARG(float,   lr,              0.001, "learning rate") \
  ARG(float,   beta1,             0.9, "decay rate of the running mean") \
  ARG(float,   beta2,           0.999, "decay rate of the running mean of squares") \
  ARG(float,   eps,              1e-8, "added to the divisor")

#define STEP_DECOUPLED(ARG) \
  ARG(bool,    decoupled,       false, "apply weight decay to the parameter instead of the " \
                                       "gradient")

#define ADAM_STEP_(ARG) \
  STEP_MEANS(ARG) \
  ARG(tensors, max_exp_avg_sqs,      , "running maximum of the mean of squares; empty without " \
                                       "AMSGrad") \
  STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG)
MOTH_ARGS(adam_step_, ADAM_STEP_)

#define NADAM_STEP_(ARG) \
  STEP_MEANS(ARG) STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG) \
  ARG(float,   lr_grad,             0, "factor of the new gradient")
MOTH_ARGS(nadam_step_, NADAM_STEP_)

#define RADAM_STEP_(ARG) STEP_MEANS(ARG) STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG)
MOTH_ARGS(radam_step_, RADAM_STEP_)

#define ADAMAX_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, exp_avgs,             , "running mean of each gradient") \
  ARG(tensors, exp_infs,             , "running maximum of each gradient's absolute value") \
  STEP_BETAS(ARG) STEP_DECAY(ARG)
MOTH_ARGS(adamax_step_, ADAMAX_STEP_)

#define RMSPROP_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, square_avgs,          , "running mean of each squared gradient") \
  ARG(tensors, grad_avgs,            , "running mean of each gradient; empty unless centered") \
  ARG(tensors, momentum_buffers,     , "running step of each parameter; empty without momentum") \
  ARG(float,   lr,               0.01, "learning rate") \
  ARG(float,   alpha,            0.99, "decay rate of the running means") \
  ARG(float,   eps,              1e-8, "added to the divisor") \
  ARG(float,   momentum,            0, "momentum factor") \
  STEP_DECAY(ARG)
MOTH_ARGS(rmsprop_step_, RMSPROP_STEP_)

#define ADAGRAD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, sums,                 , "sum of each squared gradient") \
  ARG(float,   step,                 , "number of this step, counted from 1") \
  ARG(float,   lr,               0.01, "learning rate") \
  ARG(float,   lr_decay,            0, "decay of the learning rate: the rate is lr / (1 + (step " \
                                       "- 1) lr_decay)") \
  ARG(float,   eps,             1e-10, "added to the divisor") \
  STEP_DECAY(ARG)
MOTH_ARGS(adagrad_step_, ADAGRAD_STEP_)

#define ADADELTA_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, square_avgs,          , "running mean of each squared gradient") \
  ARG(tensors, acc_deltas,           , "running mean of each squared step") \
  ARG(float,   lr,                  1, "learning rate") \
  ARG(float,   rho,               0.9, "decay rate of the running means") \
  ARG(float,   eps,              1e-6, "added to the divisor") \
  STEP_DECAY(ARG)
MOTH_ARGS(adadelta_step_, ADADELTA_STEP_)

#define RPROP_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, prevs,                , "gradients of the previous step") \
  ARG(tensors, step_sizes,           , "step size of each element") \
  ARG(float,   etaminus,          0.5, "factor of the step size where the gradient's sign " \
                                       "changed") \
  ARG(float,   etaplus,           1.2, "factor of the step size where it did not change") \
  ARG(float,   step_size_min,    1e-6, "smallest step size") \
  ARG(float,   step_size_max,      50, "largest step size") \
  ARG(bool,    maximize,        false, "maximize instead of minimize")
MOTH_ARGS(rprop_step_, RPROP_STEP_)

#define ASGD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, axs,                  , "mean of each parameter") \
  ARG(float,   eta,                  , "learning rate of this step") \
  ARG(float,   mu,                  1, "weight of the parameter in the mean; 1: the mean is set " \
                                       "to the parameter") \
  ARG(float,   lambd,            1e-4, "decay of the parameter, times eta") \
  STEP_DECAY(ARG)
MOTH_ARGS(asgd_step_, ASGD_STEP_)

#endif

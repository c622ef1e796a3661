/* optim.h -- the faces of optimizer steps: one call updates a whole group of parameters. They have
** no results; the lists belong together element by element.
*/
#ifndef MOTH_OP_OPTIM_H
#define MOTH_OP_OPTIM_H

#include "call/op.h"

#define STEP_PARAMS(ARG) \
  ARG(tensors, params,               , "what is learned") \
  ARG(tensors, grads,                , "gradient of each")

#define STEP_DECAY(ARG) \
  ARG(float,   weight_decay,        0, "share of the parameter added to its gradient") \
  ARG(bool,    maximize,        false, "climb instead of descend")

#define SGD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, momentum_buffers,     , "running gradient of each; empty without momentum") \
  ARG(float,   lr,                   , "learning rate") \
  ARG(float,   momentum,            0, "share of the running gradient that is kept") \
  ARG(float,   dampening,           0, "share of the new gradient that is left out of it") \
  ARG(bool,    nesterov,        false, "look ahead along the running gradient") \
  ARG(bool,    first,           false, "the buffers are new: they start as the gradients") \
  STEP_DECAY(ARG)
MOTH_ARGS(sgd_step_, SGD_STEP_)

#define STEP_MEANS(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, exp_avgs,             , "running mean of each gradient") \
  ARG(tensors, exp_avg_sqs,          , "running mean of each squared gradient")

#define STEP_BETAS(ARG) \
  ARG(float,   step,                 , "number of this step, from 1") \
  ARG(float,   lr,              0.001, "learning rate") \
  ARG(float,   beta1,             0.9, "share of the running mean that is kept") \
  ARG(float,   beta2,           0.999, "share of the running mean of squares that is kept") \
  ARG(float,   eps,              1e-8, "keeps the division from 0")

#define STEP_DECOUPLED(ARG) \
  ARG(bool,    decoupled,       false, "the decay shrinks the parameter itself")

#define ADAM_STEP_(ARG) \
  STEP_MEANS(ARG) \
  ARG(tensors, max_exp_avg_sqs,      , "greatest running mean of squares; empty without AMSGrad") \
  STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG)
MOTH_ARGS(adam_step_, ADAM_STEP_)

#define NADAM_STEP_(ARG) \
  STEP_MEANS(ARG) STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG) \
  ARG(float,   lr_grad,             0, "factor of the new gradient's own share")
MOTH_ARGS(nadam_step_, NADAM_STEP_)

#define RADAM_STEP_(ARG) STEP_MEANS(ARG) STEP_BETAS(ARG) STEP_DECAY(ARG) STEP_DECOUPLED(ARG)
MOTH_ARGS(radam_step_, RADAM_STEP_)

#define ADAMAX_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, exp_avgs,             , "running mean of each gradient") \
  ARG(tensors, exp_infs,             , "running maximum of each gradient's size") \
  STEP_BETAS(ARG) STEP_DECAY(ARG)
MOTH_ARGS(adamax_step_, ADAMAX_STEP_)

#define RMSPROP_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, square_avgs,          , "running mean of each squared gradient") \
  ARG(tensors, grad_avgs,            , "running mean of each gradient; empty unless centered") \
  ARG(tensors, momentum_buffers,     , "running step of each; empty without momentum") \
  ARG(float,   lr,               0.01, "learning rate") \
  ARG(float,   alpha,            0.99, "share of the running means that is kept") \
  ARG(float,   eps,              1e-8, "keeps the division from 0") \
  ARG(float,   momentum,            0, "share of the running step that is kept") \
  STEP_DECAY(ARG)
MOTH_ARGS(rmsprop_step_, RMSPROP_STEP_)

#define ADAGRAD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, sums,                 , "sum of each squared gradient") \
  ARG(float,   step,                 , "number of this step, from 1") \
  ARG(float,   lr,               0.01, "learning rate") \
  ARG(float,   lr_decay,            0, "lowers the rate: lr / (1 + (step - 1) lr_decay)") \
  ARG(float,   eps,             1e-10, "keeps the division from 0") \
  STEP_DECAY(ARG)
MOTH_ARGS(adagrad_step_, ADAGRAD_STEP_)

#define ADADELTA_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, square_avgs,          , "running mean of each squared gradient") \
  ARG(tensors, acc_deltas,           , "running mean of each squared step") \
  ARG(float,   lr,                  1, "learning rate") \
  ARG(float,   rho,               0.9, "share of the running means that is kept") \
  ARG(float,   eps,              1e-6, "keeps the division from 0") \
  STEP_DECAY(ARG)
MOTH_ARGS(adadelta_step_, ADADELTA_STEP_)

#define RPROP_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, prevs,                , "gradient of each at the step before") \
  ARG(tensors, step_sizes,           , "size of each step") \
  ARG(float,   etaminus,          0.5, "factor of the size where the gradient turned") \
  ARG(float,   etaplus,           1.2, "factor of the size where it did not") \
  ARG(float,   step_size_min,    1e-6, "smallest size") \
  ARG(float,   step_size_max,      50, "largest size") \
  ARG(bool,    maximize,        false, "climb instead of descend")
MOTH_ARGS(rprop_step_, RPROP_STEP_)

#define ASGD_STEP_(ARG) \
  STEP_PARAMS(ARG) \
  ARG(tensors, axs,                  , "mean of each parameter") \
  ARG(float,   eta,                  , "learning rate of this step") \
  ARG(float,   mu,                  1, "share that the mean moves; 1: it is the parameter") \
  ARG(float,   lambd,            1e-4, "share by which the parameter shrinks, times eta") \
  STEP_DECAY(ARG)
MOTH_ARGS(asgd_step_, ASGD_STEP_)

#endif

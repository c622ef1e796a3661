/* optim.h -- the faces of optimizer steps: one call updates a whole group of parameters. They have
** no results; the lists belong together element by element.
*/
#ifndef MOTH_OP_OPTIM_H
#define MOTH_OP_OPTIM_H

#include "../op.h"

#define SGD_STEP_(ARG) \
  ARG(tensors, params,               , "what is learned") \
  ARG(tensors, grads,                , "gradient of each") \
  ARG(tensors, momentum_buffers,     , "running gradient of each; empty without momentum") \
  ARG(float,   lr,                   , "learning rate") \
  ARG(float,   momentum,            0, "share of the running gradient that is kept") \
  ARG(float,   dampening,           0, "share of the new gradient that is left out of it") \
  ARG(float,   weight_decay,        0, "share of the parameter added to its gradient") \
  ARG(bool,    nesterov,        false, "look ahead along the running gradient") \
  ARG(bool,    maximize,        false, "climb instead of descend") \
  ARG(bool,    first,           false, "the buffers are new: they start as the gradients")
MOTH_ARGS(sgd_step_, SGD_STEP_)

#define ADAM_STEP_(ARG) \
  ARG(tensors, params,               , "what is learned") \
  ARG(tensors, grads,                , "gradient of each") \
  ARG(tensors, exp_avgs,             , "running mean of each gradient") \
  ARG(tensors, exp_avg_sqs,          , "running mean of each squared gradient") \
  ARG(float,   step,                 , "number of this step, from 1") \
  ARG(float,   lr,              0.001, "learning rate") \
  ARG(float,   beta1,             0.9, "share of the running mean that is kept") \
  ARG(float,   beta2,           0.999, "share of the running mean of squares that is kept") \
  ARG(float,   eps,              1e-8, "keeps the division from 0") \
  ARG(float,   weight_decay,        0, "share of the parameter added to its gradient") \
  ARG(bool,    decoupled,       false, "AdamW: the decay shrinks the parameter itself") \
  ARG(bool,    maximize,        false, "climb instead of descend")
MOTH_ARGS(adam_step_, ADAM_STEP_)

#endif

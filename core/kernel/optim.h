/* optim.h -- one step of an optimizer on one parameter, everything fused into one loop. */
#ifndef MOTH_KERNEL_OPTIM_H
#define MOTH_KERNEL_OPTIM_H

#include "../loop.h"

typedef struct moth_sgd {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first, buffered;
} moth_sgd;

typedef struct moth_adam {
  double step_size, root_correction; /* lr / (1 - beta1^t), sqrt(1 - beta2^t) */
  double beta1, beta2, eps, weight_decay, shrink; /* shrink: 1 - lr weight_decay if decoupled */
  bool maximize;
} moth_adam;

/* Operands of one floating dtype and one shape, in any layout; half types through f32. buffer is
** NULL unless s->buffered. */
int moth_sgd_step(const moth_sgd *s, moth_tensor *param, moth_tensor *grad, moth_tensor *buffer);
int moth_adam_step(const moth_adam *s, moth_tensor *param, moth_tensor *grad, moth_tensor *mean,
                   moth_tensor *square);

#endif

/* optim.h -- one step of an optimizer for one parameter, fused into one loop. */
#ifndef MOTH_KERNEL_OPTIM_H
#define MOTH_KERNEL_OPTIM_H

#include "tensor/loop.h"

/* X(rule, its function in optim_rules.h, fewest and most operands). The comments name the operands
** after parameter and gradient. Each rule uses some of the fields of moth_step. */
#define MOTH_RULE_LIST(X)                                                                 \
  X(MOTH_SGD,      sgd,      2, 3) /* [buffer] */                                         \
  X(MOTH_ADAM,     adam,     4, 5) /* mean, square, [greatest square] */                  \
  X(MOTH_NADAM,    nadam,    4, 4) /* mean, square */                                     \
  X(MOTH_RADAM,    radam,    4, 4) /* mean, square */                                     \
  X(MOTH_ADAMAX,   adamax,   4, 4) /* mean, greatest */                                   \
  X(MOTH_RMSPROP,  rmsprop,  3, 5) /* square, [mean if centered], [buffer if momentum] */ \
  X(MOTH_ADAGRAD,  adagrad,  3, 3) /* sum of squares */                                   \
  X(MOTH_ADADELTA, adadelta, 4, 4) /* square, square of the steps */                      \
  X(MOTH_RPROP,    rprop,    4, 4) /* previous gradient, size of the step */              \
  X(MOTH_ASGD,     asgd,     3, 3) /* mean of the parameter */

#define MOTH_RULE_ENUM(rule, function, fewest, most) rule,
typedef enum moth_rule { MOTH_RULE_LIST(MOTH_RULE_ENUM) MOTH_RULES } moth_rule;

typedef struct moth_step {
  moth_rule rule;
  double lr;           /* factor of the step, corrections included */
  double lr_grad;      /* NAdam: factor of the gradient */
  double less, more;   /* Rprop: step factors if the gradient's sign changed, or not */
  double least, most;  /* Rprop: bounds of the step size */
  double beta1, beta2; /* decay of the running means */
  double root;         /* Adam: sqrt(1 - beta2^t); RAdam: factor of the adaptive step, or 0 */
  double eps, weight_decay;
  double shrink; /* first factor of the parameter: 1 - lr weight_decay if decoupled, else 1 */
  double momentum, dampening; /* ASGD: momentum is the weight of the new parameter in the mean */
  bool maximize, nesterov, first, centered;
} moth_step;

#define MOTH_STEP_OPERANDS 5

/* x: n operands of one shape, in any layout. The first is the parameter, the second its gradient,
** of one floating dtype; half types are computed in f32. The other operands have one dtype, which
** may be f32 with half-precision parameters. All operands except the gradient are written. */
int moth_step_run(const moth_step *s, moth_tensor *const *x, int n);

/* The arguments of a device's "optimizer_step": n operands of each parameter, one parameter after
** another, as operands of moth_device_map. */
typedef struct moth_steps {
  const moth_step *how;
  int n;
} moth_steps;

#endif

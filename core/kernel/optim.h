/* optim.h -- one step of an optimizer on one parameter, everything fused into one loop. */
#ifndef MOTH_KERNEL_OPTIM_H
#define MOTH_KERNEL_OPTIM_H

#include "../loop.h"

/* The rule decides what else of the struct counts, and which tensors follow the gradient. */
typedef enum moth_rule {
  MOTH_SGD,      /* [buffer] */
  MOTH_ADAM,     /* mean, square, [greatest square] */
  MOTH_NADAM,    /* mean, square */
  MOTH_RADAM,    /* mean, square */
  MOTH_ADAMAX,   /* mean, greatest */
  MOTH_RMSPROP,  /* square, [mean if centered], [buffer if momentum] */
  MOTH_ADAGRAD,  /* sum of squares */
  MOTH_ADADELTA, /* square, square of the steps */
  MOTH_RPROP,    /* gradient of the step before, size of the step */
  MOTH_ASGD,     /* mean of the parameter */
  MOTH_RULES
} moth_rule;

typedef struct moth_step {
  moth_rule rule;
  double lr;           /* factor of the step, corrections included */
  double lr_grad;      /* NAdam: factor of the gradient's own share */
  double less, more;   /* Rprop: factors of a step's size where the gradient turned, or did not */
  double least, most;  /* Rprop: bounds of that size */
  double beta1, beta2; /* shares of the running means that are kept */
  double root;         /* Adam: sqrt(1 - beta2^t); RAdam: factor of the adaptive step, or 0 */
  double eps, weight_decay;
  double shrink; /* the parameter's factor before all else: 1 - lr weight_decay if decoupled */
  double momentum, dampening; /* ASGD: momentum is the share that the mean moves */
  bool maximize, nesterov, first, centered;
} moth_step;

#define MOTH_STEP_OPERANDS 5

/* x: n operands, the parameter first, its gradient second, of one floating dtype and one shape, in
** any layout; half types go through f32. All but the gradient are written. */
int moth_step_run(const moth_step *s, moth_tensor *const *x, int n);

/* What a device beside the CPU is given for "optimizer_step": n operands of every parameter, one
** parameter after another, as operands of moth_device_map. */
typedef struct moth_steps {
  const moth_step *how;
  int n;
} moth_steps;

#endif

/* optim_rules.h -- the update rules of the optimizers for one element, with PyTorch's terms in
** PyTorch's order. optim_real.h includes it for each type and level, cuda/op/optim.cu as templates.
** The includer defines REAL, TEMPLATE, RULE (the attributes of functions), NAME(f) (their names),
** NUMBERS (the struct), and MATH(f), a function of REALs.
**
** x[0] is the parameter, x[1] its gradient, which is not written back. The state of the rule
** follows, in the order of MOTH_RULE_LIST.
*/

TEMPLATE struct NAME(numbers) {
  REAL lr, lr_grad, beta2, rest1, rest2, by, root, eps, decay, sign, shrink, momentum, add;
  REAL less, more, least, most;
  bool nesterov, first, centered, all;
  bool extra; /* the optional last operand is present */
};

/* The numbers of a step for a rule and n operands. */
TEMPLATE RULE NUMBERS NAME(numbers_of)(const moth_step *s, moth_rule rule, int n) {
  NUMBERS v;
  v.lr = (REAL)s->lr;
  v.lr_grad = (REAL)s->lr_grad;
  v.beta2 = (REAL)s->beta2;
  v.rest1 = (REAL)(1 - s->beta1);
  v.rest2 = (REAL)(1 - s->beta2);
  v.by = (REAL)(1 / s->root); /* a product instead of a division per element */
  v.root = (REAL)s->root;
  v.eps = (REAL)s->eps;
  v.decay = (REAL)s->weight_decay;
  v.sign = s->maximize ? -1 : 1;
  v.shrink = (REAL)s->shrink;
  v.momentum = (REAL)s->momentum;
  v.add = s->first ? 1 : (REAL)(1 - s->dampening);
  v.less = (REAL)s->less;
  v.more = (REAL)s->more;
  v.least = (REAL)s->least;
  v.most = (REAL)s->most;
  v.nesterov = s->nesterov;
  v.first = s->first;
  v.centered = n == 5 || (n == 4 && s->centered);
  v.all = s->momentum == 1;
  v.extra = n > (rule == MOTH_SGD ? 2 : rule == MOTH_RMSPROP ? 3 + v.centered : 4);
  return v;
}

TEMPLATE RULE void NAME(sgd)(REAL *x, const NUMBERS *s) {
  const REAL g = s->sign * x[1] + s->decay * x[0];
  if (!s->extra) {
    x[0] -= s->lr * g;
    return;
  }
  x[2] = (s->first ? 0 : s->momentum * x[2]) + s->add * g;
  x[0] -= s->lr * (s->nesterov ? g + s->momentum * x[2] : x[2]);
}

/* -- Adam and its variants: update the running means, return the decayed parameter -- */

TEMPLATE RULE REAL NAME(move_means)(REAL *x, REAL *g, const NUMBERS *s) {
  const REAL at = x[0] * s->shrink;
  *g = s->sign * x[1] + s->decay * at;
  x[2] = x[2] + s->rest1 * (*g - x[2]);
  x[3] = s->beta2 * x[3] + s->rest2 * *g * *g;
  return at;
}

/* Keeps NaN. */
TEMPLATE RULE REAL NAME(greatest)(REAL old, REAL now) {
  return old >= now || old != old ? old : now;
}

TEMPLATE RULE void NAME(adam)(REAL *x, const NUMBERS *s) {
  REAL g, at = NAME(move_means)(x, &g, s), v = x[3];
  if (s->extra) v = x[4] = NAME(greatest)(x[4], v);
  x[0] = at - s->lr * x[2] / (MATH(sqrt)(v) * s->by + s->eps);
}

TEMPLATE RULE void NAME(nadam)(REAL *x, const NUMBERS *s) {
  REAL g, at = NAME(move_means)(x, &g, s), under = MATH(sqrt)(x[3]) * s->by + s->eps;
  x[0] = at - s->lr_grad * g / under - s->lr * x[2] / under;
}

TEMPLATE RULE void NAME(radam)(REAL *x, const NUMBERS *s) {
  REAL g, at = NAME(move_means)(x, &g, s);
  x[0] = s->root > 0 ? at - s->lr * x[2] * s->root / (MATH(sqrt)(x[3]) + s->eps)
                     : at - s->lr * x[2];
}

TEMPLATE RULE void NAME(adamax)(REAL *x, const NUMBERS *s) {
  const REAL at = x[0] * s->shrink, g = s->sign * x[1] + s->decay * at;
  x[2] = x[2] + s->rest1 * (g - x[2]);
  x[3] = NAME(greatest)(s->beta2 * x[3], MATH(abs)(g) + s->eps);
  x[0] = at - s->lr * x[2] / x[3];
}

/* -- RMSprop, Adagrad, Adadelta, Rprop, ASGD -- */

TEMPLATE RULE void NAME(rmsprop)(REAL *x, const NUMBERS *s) {
  const REAL g = s->sign * x[1] + s->decay * x[0];
  REAL v = x[2] = s->beta2 * x[2] + s->rest2 * g * g;
  if (s->centered) {
    x[3] += s->rest2 * (g - x[3]);
    v -= x[3] * x[3];
  }
  REAL step = g / (MATH(sqrt)(v) + s->eps);
  if (s->extra && s->centered) step = x[4] = s->momentum * x[4] + step;
  else if (s->extra) step = x[3] = s->momentum * x[3] + step;
  x[0] -= s->lr * step;
}

TEMPLATE RULE void NAME(adagrad)(REAL *x, const NUMBERS *s) {
  const REAL g = s->sign * x[1] + s->decay * x[0];
  x[2] += g * g;
  x[0] -= s->lr * g / (MATH(sqrt)(x[2]) + s->eps);
}

TEMPLATE RULE void NAME(adadelta)(REAL *x, const NUMBERS *s) {
  const REAL g = s->sign * x[1] + s->decay * x[0];
  x[2] = s->beta2 * x[2] + s->rest2 * g * g;
  const REAL step = MATH(sqrt)(x[3] + s->eps) / MATH(sqrt)(x[2] + s->eps) * g;
  x[3] = s->beta2 * x[3] + s->rest2 * step * step;
  x[0] -= s->lr * step;
}

/* One choice per statement: nested choices become branches on the CPU, five times slower. */
TEMPLATE RULE void NAME(rprop)(REAL *x, const NUMBERS *s) {
  REAL g = s->sign * x[1], turn = g * x[2], factor = 1;
  factor = turn > 0 ? s->more : factor;
  factor = turn < 0 ? s->less : factor;
  factor = turn == turn ? factor : turn;
  REAL by = x[3] * factor;
  by = by < s->least ? s->least : by;
  by = by > s->most ? s->most : by;
  g = turn < 0 ? 0 : g;
  x[2] = g;
  x[3] = by;
  REAL step = g > 0 ? by : g;
  step = g < 0 ? -by : step;
  x[0] -= step;
}

TEMPLATE RULE void NAME(asgd)(REAL *x, const NUMBERS *s) {
  const REAL g = s->sign * x[1] + s->decay * x[0];
  x[0] = x[0] * s->shrink - s->lr * g;
  x[2] = s->all ? x[0] : x[2] + s->momentum * (x[0] - x[2]);
}

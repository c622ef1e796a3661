/* optim_real.h -- the loops of optim.c for one type and level (each_level.h), over elements in a
** row: PyTorch's rules, term by term. x[0] is the parameter, x[1] its gradient; x[k] is NULL from
** the last operand on.
*/

#define COMMON \
  REAL *restrict p = x[0]; \
  const REAL *restrict grad = x[1]; \
  const REAL decay = (REAL)s->weight_decay, sign = s->maximize ? -1 : 1; \
  const REAL lr = (REAL)s->lr, eps = (REAL)s->eps; \
  (void)eps

TARGET static void NAME(sgd)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict buffer = x[2];
  const REAL momentum = (REAL)s->momentum, keep = s->first ? 0 : momentum;
  const REAL add = s->first ? 1 : (REAL)(1 - s->dampening);
  const bool first = s->first;
  if (!buffer)
    for (int64_t i = 0; i < n; i++) p[i] -= lr * (sign * grad[i] + decay * p[i]);
  else if (s->nesterov)
    for (int64_t i = 0; i < n; i++) {
      REAL g = sign * grad[i] + decay * p[i];
      REAL b = (first ? 0 : keep * buffer[i]) + add * g;
      buffer[i] = b;
      p[i] -= lr * (g + momentum * b);
    }
  else
    for (int64_t i = 0; i < n; i++) {
      REAL g = sign * grad[i] + decay * p[i];
      REAL b = (first ? 0 : keep * buffer[i]) + add * g;
      buffer[i] = b;
      p[i] -= lr * b;
    }
}

#define MEANS \
  REAL *restrict mean = x[2]; \
  REAL *restrict square = x[3]; \
  const REAL beta2 = (REAL)s->beta2, rest1 = (REAL)(1 - s->beta1), rest2 = (REAL)(1 - s->beta2); \
  const REAL shrink = (REAL)s->shrink; \
  (void)beta2; (void)rest2

/* The running means of element i, and the parameter before its step. */
#define MOVE_MEANS \
  REAL at = p[i] * shrink; \
  REAL g = sign * grad[i] + decay * at; \
  REAL m = mean[i] + rest1 * (g - mean[i]); \
  REAL v = beta2 * square[i] + rest2 * g * g; \
  mean[i] = m; \
  square[i] = v

TARGET static void NAME(adam)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  MEANS;
  REAL *restrict greatest = x[4];
  const REAL by = (REAL)(1 / s->root); /* a division less */
  if (!greatest)
    for (int64_t i = 0; i < n; i++) {
      MOVE_MEANS;
      p[i] = at - lr * m / (MATH(sqrt)(v) * by + eps);
    }
  else
    for (int64_t i = 0; i < n; i++) {
      MOVE_MEANS;
      REAL most = greatest[i] >= v || greatest[i] != greatest[i] ? greatest[i] : v;
      greatest[i] = most;
      p[i] = at - lr * m / (MATH(sqrt)(most) * by + eps);
    }
}

TARGET static void NAME(nadam)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  MEANS;
  const REAL by = (REAL)(1 / s->root), lr_grad = (REAL)s->lr_grad;
  for (int64_t i = 0; i < n; i++) {
    MOVE_MEANS;
    REAL under = MATH(sqrt)(v) * by + eps;
    p[i] = at - lr_grad * g / under - lr * m / under;
  }
}

TARGET static void NAME(radam)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  MEANS;
  const REAL root = (REAL)s->root;
  for (int64_t i = 0; i < n; i++) {
    MOVE_MEANS;
    p[i] = root > 0 ? at - lr * m * root / (MATH(sqrt)(v) + eps) : at - lr * m;
  }
}

TARGET static void NAME(adamax)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  MEANS;
  for (int64_t i = 0; i < n; i++) {
    REAL at = p[i] * shrink, g = sign * grad[i] + decay * at;
    REAL m = mean[i] + rest1 * (g - mean[i]);
    REAL old = beta2 * square[i], size = MATH(abs)(g) + eps;
    REAL most = old >= size || old != old ? old : size;
    mean[i] = m;
    square[i] = most;
    p[i] = at - lr * m / most;
  }
}

TARGET static void NAME(rmsprop)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict square = x[2];
  REAL *restrict mean = s->centered ? x[3] : NULL;
  REAL *restrict buffer = x[s->centered ? 4 : 3];
  const REAL alpha = (REAL)s->beta2, rest = (REAL)(1 - s->beta2), momentum = (REAL)s->momentum;
  for (int64_t i = 0; i < n; i++) {
    REAL g = sign * grad[i] + decay * p[i];
    REAL v = alpha * square[i] + rest * g * g;
    square[i] = v;
    if (mean) {
      mean[i] += rest * (g - mean[i]);
      v -= mean[i] * mean[i];
    }
    REAL step = g / (MATH(sqrt)(v) + eps);
    if (buffer) step = buffer[i] = momentum * buffer[i] + step;
    p[i] -= lr * step;
  }
}

TARGET static void NAME(adagrad)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict sum = x[2];
  for (int64_t i = 0; i < n; i++) {
    REAL g = sign * grad[i] + decay * p[i];
    sum[i] += g * g;
    p[i] -= lr * g / (MATH(sqrt)(sum[i]) + eps);
  }
}

TARGET static void NAME(adadelta)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict square = x[2];
  REAL *restrict steps = x[3];
  const REAL rho = (REAL)s->beta2, rest = (REAL)(1 - s->beta2);
  for (int64_t i = 0; i < n; i++) {
    REAL g = sign * grad[i] + decay * p[i];
    square[i] = rho * square[i] + rest * g * g;
    REAL step = MATH(sqrt)(steps[i] + eps) / MATH(sqrt)(square[i] + eps) * g;
    steps[i] = rho * steps[i] + rest * step * step;
    p[i] -= lr * step;
  }
}

TARGET static void NAME(rprop)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict before = x[2];
  REAL *restrict size = x[3];
  const REAL less = (REAL)s->less, more = (REAL)s->more;
  const REAL least = (REAL)s->least, most = (REAL)s->most;
  (void)decay, (void)lr;
  for (int64_t i = 0; i < n; i++) { /* one choice a line: nested ones are branches, 5 x slower */
    REAL g = sign * grad[i], turn = g * before[i], factor = 1;
    factor = turn > 0 ? more : factor;
    factor = turn < 0 ? less : factor;
    factor = turn == turn ? factor : turn;
    REAL by = size[i] * factor;
    by = by < least ? least : by;
    by = by > most ? most : by;
    g = turn < 0 ? 0 : g;
    size[i] = by;
    before[i] = g;
    REAL step = g > 0 ? by : g;
    step = g < 0 ? -by : step;
    p[i] -= step;
  }
}

TARGET static void NAME(asgd)(int64_t n, REAL *const *x, const moth_step *s) {
  COMMON;
  REAL *restrict mean = x[2];
  const REAL shrink = (REAL)s->shrink, share = (REAL)s->momentum;
  const bool all = s->momentum == 1;
  for (int64_t i = 0; i < n; i++) {
    REAL g = sign * grad[i] + decay * p[i], now = p[i] * shrink - lr * g;
    p[i] = now;
    mean[i] = all ? now : mean[i] + share * (now - mean[i]);
  }
}

static void (*const NAME(rules)[MOTH_RULES])(int64_t, REAL *const *, const moth_step *) = {
  [MOTH_SGD] = NAME(sgd),         [MOTH_ADAM] = NAME(adam),       [MOTH_NADAM] = NAME(nadam),
  [MOTH_RADAM] = NAME(radam),     [MOTH_ADAMAX] = NAME(adamax),   [MOTH_RMSPROP] = NAME(rmsprop),
  [MOTH_ADAGRAD] = NAME(adagrad), [MOTH_ADADELTA] = NAME(adadelta),
  [MOTH_RPROP] = NAME(rprop),     [MOTH_ASGD] = NAME(asgd),
};

#undef COMMON
#undef MEANS
#undef MOVE_MEANS

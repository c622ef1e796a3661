/* optim_real.h -- the loops of optim.c for one REAL, over elements in a row. */

static void NAME(sgd)(int64_t n, REAL *restrict p, const REAL *restrict grad, REAL *restrict buffer,
                      const moth_sgd *s) {
  const REAL lr = (REAL)s->lr, decay = (REAL)s->weight_decay, sign = s->maximize ? -1 : 1;
  const REAL keep = s->first ? 0 : (REAL)s->momentum;
  const REAL add = s->first ? 1 : (REAL)(1 - s->dampening);
  if (!s->buffered)
    for (int64_t i = 0; i < n; i++) p[i] -= lr * (sign * grad[i] + decay * p[i]);
  else if (s->nesterov)
    for (int64_t i = 0; i < n; i++) {
      REAL g = sign * grad[i] + decay * p[i];
      REAL b = (s->first ? 0 : keep * buffer[i]) + add * g;
      buffer[i] = b;
      p[i] -= lr * (g + (REAL)s->momentum * b);
    }
  else
    for (int64_t i = 0; i < n; i++) {
      REAL g = sign * grad[i] + decay * p[i];
      REAL b = (s->first ? 0 : keep * buffer[i]) + add * g;
      buffer[i] = b;
      p[i] -= lr * b;
    }
}

static void NAME(adam)(int64_t n, REAL *restrict p, const REAL *restrict grad,
                       REAL *restrict mean, REAL *restrict square, const moth_adam *s) {
  const REAL decay = (REAL)s->weight_decay, shrink = (REAL)s->shrink, sign = s->maximize ? -1 : 1;
  const REAL beta2 = (REAL)s->beta2, rest1 = (REAL)(1 - s->beta1), rest2 = (REAL)(1 - s->beta2);
  const REAL root = (REAL)s->root_correction, eps = (REAL)s->eps, size = (REAL)s->step_size;
  for (int64_t i = 0; i < n; i++) {
    REAL x = p[i] * shrink;
    REAL g = sign * grad[i] + decay * x;
    REAL m = mean[i] + rest1 * (g - mean[i]);
    REAL v = beta2 * square[i] + rest2 * g * g;
    mean[i] = m;
    square[i] = v;
    p[i] = x - size * m / (SQRT(v) / root + eps);
  }
}

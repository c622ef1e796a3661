/* loss.c -- losses of classes, a gather with weights, and of pairs of numbers. Sums are kept in
** f64: a loss is one number out of many, and the price is nothing beside the memory's.
*/
#include "loss.h"

#include <math.h>

/* -- classes -- */

static inline double load(int dtype, const void *x, int64_t i) {
  return dtype == MOTH_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static inline void store(int dtype, void *x, int64_t i, double v) {
  if (dtype == MOTH_F32) ((float *)x)[i] = (float)v;
  else ((double *)x)[i] = v;
}

static inline double weight_of(int dtype, const moth_classes *c, int64_t i) {
  if (c->target[i] == c->ignore) return 0;
  return c->weight ? load(dtype, c->weight, c->target[i]) : 1;
}

/* Where the score of case i for its target lies. */
static inline int64_t place(const moth_classes *c, int64_t i) {
  return (i / c->inner * c->classes + c->target[i]) * c->inner + i % c->inner;
}

int64_t moth_class_check(const moth_classes *c) {
  for (int64_t i = 0; i < c->n * c->inner; i++) {
    int64_t t = c->target[i];
    if (t != c->ignore && (t < 0 || t >= c->classes)) return i;
  }
  return -1;
}

void moth_class_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x, void *y) {
  double sum = 0, total = 0;
  for (int64_t i = 0; i < c->n * c->inner; i++) {
    double w = weight_of(dtype, c, i);
    double loss = c->target[i] == c->ignore ? 0 : -w * load(dtype, x, place(c, i));
    if (reduction == MOTH_EACH) store(dtype, y, i, loss);
    sum += loss;
    total += w;
  }
  if (reduction != MOTH_EACH) store(dtype, y, 0, reduction == MOTH_MEAN ? sum / total : sum);
}

void moth_class_loss_back(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                          void *dx) {
  int64_t cases = c->n * c->inner;
  double total = 1;
  if (cases == 0) return;
  if (reduction == MOTH_MEAN) {
    total = 0;
    for (int64_t i = 0; i < cases; i++) total += weight_of(dtype, c, i);
  }
  memset(dx, 0, (size_t)(cases * c->classes) * moth_dtype_size[dtype]);
  for (int64_t i = 0; i < cases; i++) {
    if (c->target[i] == c->ignore) continue;
    double up = load(dtype, dy, reduction == MOTH_EACH ? i : 0) / total;
    store(dtype, dx, place(c, i), -weight_of(dtype, c, i) * up);
  }
}

void moth_entropy_loss(int dtype, const moth_classes *c, int64_t reduction, const void *x,
                       const void *const parts[2], void *y) {
  double sum = 0, total = 0;
  for (int64_t i = 0; i < c->n * c->inner; i++) {
    double w = weight_of(dtype, c, i), loss = 0;
    if (c->target[i] != c->ignore)
      loss = w * (load(dtype, parts[0], i) - load(dtype, x, place(c, i)) + load(dtype, parts[1], i));
    if (reduction == MOTH_EACH) store(dtype, y, i, loss);
    sum += loss;
    total += w;
  }
  if (reduction != MOTH_EACH) store(dtype, y, 0, reduction == MOTH_MEAN ? sum / total : sum);
}

void moth_class_factors(int dtype, const moth_classes *c, int64_t reduction, const void *dy,
                        void *factor) {
  double total = 1;
  if (reduction == MOTH_MEAN) total = 0;
  for (int64_t i = 0; reduction == MOTH_MEAN && i < c->n * c->inner; i++)
    total += weight_of(dtype, c, i);
  for (int64_t i = 0; i < c->n * c->inner; i++) {
    double up = load(dtype, dy, reduction == MOTH_EACH ? i : 0) / total;
    store(dtype, factor, i, c->target[i] == c->ignore ? 0 : weight_of(dtype, c, i) * up);
  }
}

/* -- pairs -- */

static inline double square(double x, double t, double a) {
  (void)a;
  return (x - t) * (x - t);
}
static inline double distance(double x, double t, double a) {
  (void)a;
  return fabs(x - t);
}
static inline double huber(double x, double t, double a) {
  double d = fabs(x - t);
  return d <= a ? 0.5 * d * d : a * (d - 0.5 * a);
}
static inline double smooth(double x, double t, double a) {
  double d = fabs(x - t);
  return d < a ? 0.5 * d * d / a : d - 0.5 * a;
}
static inline double logits(double x, double t, double a) {
  (void)a;
  return (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x)));
}
static inline double at_least(double low, double x) { return x < low ? low : x; }
static inline double chances(double x, double t, double a) {
  (void)a;
  return -(t * at_least(-100, log(x)) + (1 - t) * at_least(-100, log1p(-x)));
}
static inline double kl(double x, double t, double a) {
  (void)a;
  return (t == 0 ? 0 : t * log(t)) - t * x;
}
static inline double kl_log(double x, double t, double a) {
  (void)a;
  return exp(t) * (t - x);
}

/* Writes the losses into y if it is given, else adds them up in four parts. */
#define PAIRS(f, name, real)                                                             \
  static double f##_##name(int64_t n, const real *x, const real *t, double a, real *y) { \
    double s[4] = {0};                                                                   \
    int64_t i = 0;                                                                       \
    if (y)                                                                               \
      for (; i < n; i++) y[i] = (real)f((double)x[i], (double)t[i], a);                  \
    for (; i + 4 <= n; i += 4)                                                           \
      for (int k = 0; k < 4; k++) s[k] += f((double)x[i + k], (double)t[i + k], a);      \
    for (; i < n; i++) s[0] += f((double)x[i], (double)t[i], a);                         \
    return (s[0] + s[2]) + (s[1] + s[3]);                                                \
  }
#define BOTH_PAIRS(NAME, f) PAIRS(f, f32, float) PAIRS(f, f64, double)
MOTH_PAIR_LOSSES(BOTH_PAIRS)

static double pairs(int dtype, int which, double a, int64_t n, const void *x, const void *t,
                    void *y) {
  switch (which) {
#define CASE(NAME, f) \
  case MOTH_LOSS_##NAME: return dtype == MOTH_F32 ? f##_f32(n, x, t, a, y) : f##_f64(n, x, t, a, y);
    MOTH_PAIR_LOSSES(CASE)
  }
  return 0;
}

void moth_pair_loss(int dtype, int which, double a, int64_t n, int64_t reduction, const void *x,
                    const void *target, void *y) {
  double sum = pairs(dtype, which, a, n, x, target, reduction == MOTH_EACH ? y : NULL);
  if (reduction != MOTH_EACH) store(dtype, y, 0, reduction == MOTH_MEAN ? sum / (double)n : sum);
}

bool moth_all_chances(int dtype, int64_t n, const void *x) {
  bool inside = true;
  for (int64_t i = 0; i < n; i++) {
    double v = load(dtype, x, i);
    inside &= v >= 0 && v <= 1;
  }
  return inside;
}

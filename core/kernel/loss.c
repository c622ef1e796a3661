/* loss.c -- losses of class scores: a weighted gather. Sums are in f64: a loss is one number, and
** the time is that of reading memory.
*/
#include "loss.h"

#include <string.h>

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

/* The offset of the score of case i for its target class. */
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
      loss = w * ((load(dtype, parts[0], i) - load(dtype, x, place(c, i))) +
                  load(dtype, parts[1], i));
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

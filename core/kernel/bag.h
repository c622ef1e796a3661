/* bag.h -- embedding_bag: sums of rows of a table, by bags of tokens. */
#ifndef MOTH_KERNEL_BAG_H
#define MOTH_KERNEL_BAG_H

#include "base/context.h"

typedef struct moth_bags {
  int dtype;                 /* f32 or f64, of the table, the factors and the sums */
  int64_t bags, features;
  int64_t each;              /* tokens of a bag, where start is NULL; else bag b has those from */
  const int64_t *start;      /* start[b] up to start[b + 1] */
  const int64_t *token;      /* rows of the table, the first of which is called `base` */
  int64_t base;
  int64_t padding;           /* a token that is ignored, or -1 */
  const void *weight, *factor; /* factor: one for each token, or NULL */
  void *y;
} moth_bags;

/* y := the sums. They do not depend on the number of threads or on other bags. */
int moth_bag_sums(moth_ctx *ctx, const moth_bags *o);

#endif

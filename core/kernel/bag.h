/* bag.h -- embedding_bag: sums of rows of a table, by bags of tokens. */
#ifndef MOTH_KERNEL_BAG_H
#define MOTH_KERNEL_BAG_H

#include "base/context.h"

typedef struct moth_bags {
  int dtype;                 /* of the table, the factors and the sums: f32 or f64 */
  int64_t bags, features;
  int64_t each;              /* tokens per bag if start is NULL; else bag b has the tokens from */
  const int64_t *start;      /* start[b] to start[b + 1] - 1 */
  const int64_t *token;      /* row numbers of the table, counted from `base` */
  int64_t base;
  int64_t padding;           /* the token that is ignored, or -1 */
  const void *weight, *factor; /* factor: one for each token, or NULL for 1 */
  void *y;
} moth_bags;

/* y := the sums. A bag's sum does not depend on the number of threads or on other bags. */
int moth_bag_sums(moth_ctx *ctx, const moth_bags *o);

#endif

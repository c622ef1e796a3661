/* attention.h -- attention in blocks: scores of some queries and some keys at a time, never the
** whole (L, S) matrix. The maximum and the sum of each row are updated block by block (Milakov and
** Gimelshein 2018, Dao et al. 2022). Products call moth_multiply_inside.
*/
#ifndef MOTH_KERNEL_ATTENTION_H
#define MOTH_KERNEL_ATTENTION_H

#include "base/context.h"

typedef struct moth_matrices { /* a matrix for each batch */
  const char *data;            /* NULL if absent */
  int64_t rs, cs;              /* strides of rows and columns in elements; may be 0 */
  const int64_t *at;           /* offset of each batch, in elements */
} moth_matrices;

typedef struct moth_attention {
  int dtype; /* f32 or f64 */
  int64_t batches, l, s, e, v; /* batches, queries, keys, their length, length of the values */
  bool causal;
  double scale;
  moth_matrices query, key, value, bias;
  /* lse, packed: the log of each row's sum of exp(score); inf if all keys are masked */
  char *y, *lse;
  /* offset of each batch in y and in dy, in elements, and the stride of rows */
  const int64_t *y_at;
  int64_t y_rs;
  /* For backward, which reads y and lse. dquery, dkey and dvalue are initially zero, and packed. */
  const char *dy;
  char *dquery, *dkey, *dvalue;
  const int64_t *dquery_at, *dkey_at, *dvalue_at;
} moth_attention;

/* Both functions poll and return a status. */
int moth_attention_run(moth_ctx *ctx, const moth_attention *p);
int moth_attention_back(moth_ctx *ctx, const moth_attention *p);

#endif

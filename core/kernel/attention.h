/* attention.h -- attention in blocks: scores of some queries and some keys at a time, never the
** whole (L, S) matrix. The maximum and the sum of each row are updated block by block (Milakov and
** Gimelshein 2018, Dao et al. 2022). Products call moth_multiply_inside.
*/
#ifndef MOTH_KERNEL_ATTENTION_H
#define MOTH_KERNEL_ATTENTION_H

#include "base/context.h"

typedef struct moth_matrices { /* one matrix for each batch */
  const char *data;            /* NULL: absent */
  int64_t rs, cs;              /* elements from row to row, from column to column; may be 0 */
  const int64_t *at;           /* of each batch, in elements */
} moth_matrices;

typedef struct moth_attention {
  int dtype; /* f32 or f64 */
  int64_t batches, l, s, e, v; /* queries, keys, their size, size of the values */
  bool causal;
  double scale;
  moth_matrices query, key, value, bias;
  char *y, *lse; /* lse, packed: log of a row's sum of exp(score), inf if all keys are masked */
  const int64_t *y_at; /* of each batch in y, and in dy, in elements; from row to row: */
  int64_t y_rs;
  /* backward; y and lse are read. d... are zeroed, packed like what they belong to */
  const char *dy;
  char *dquery, *dkey, *dvalue;
  const int64_t *dquery_at, *dkey_at, *dvalue_at;
} moth_attention;

/* Each polls and returns a status. */
int moth_attention_run(moth_ctx *ctx, const moth_attention *p);
int moth_attention_back(moth_ctx *ctx, const moth_attention *p);

#endif

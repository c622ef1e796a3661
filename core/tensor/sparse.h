/* sparse.h -- sparse tensors: gradients of embedding tables, of which a step uses few rows.
**
** A sparse tensor has the shape of the dense tensor, with strides of 0. Its storage holds some of
** the slices along the first dimension, its values. `rows` is a 1-d tensor with the index, from 0,
** of each slice; nothing else writes it. Slices of the same row are added; absent rows are 0. It
** has no history and is not a view. Only the functions below and callers of moth_resolve_any handle
** sparse tensors. All other code gets its tensors from moth_resolve, which refuses them. In a
** backward pass only gradients of leaves are sparse, where they are accumulated.
*/
#ifndef MOTH_SPARSE_H
#define MOTH_SPARSE_H

#include "base/context.h"

static inline bool moth_sparse(const moth_tensor *x) { return x->flags & MOTH_T_SPARSE; }

/* Owned, or NULL with the error set. rows (n) and values (n, ...) are packed. Both are shared. */
moth_tensor *moth_sparse_new(const moth_layout *whole, moth_tensor *rows, moth_tensor *values);
moth_tensor *moth_sparse_values(moth_tensor *x); /* a tensor over the same storage */
moth_tensor *moth_sparse_clone(moth_tensor *x);  /* with a copy of the values */

/* *at := *at + x, where at least one is sparse. The sum is sparse only if both are. A dense *at is
** overwritten if `over` allows it, else replaced. */
int moth_sparse_add(moth_tensor **at, moth_tensor *x, bool over);

#endif

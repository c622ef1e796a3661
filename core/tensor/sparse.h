/* sparse.h -- sparse tensors: the gradients of tables of vectors, of which a step used few.
**
** A sparse tensor has the layout of the whole, with strides of 0. Its storage holds some of the
** slices along the first dimension, its values, and `rows` says which, counted from 0: a 1-d tensor
** that nothing else writes. What stands there twice is added up; what does not stand there is 0.
** It has no history and is no view. Only the functions below, and those that call
** moth_resolve_any, ever meet one: all else gets its tensors from moth_resolve, which refuses it.
** In a backward pass gradients are sparse at leaves alone, where they are gathered.
*/
#ifndef MOTH_SPARSE_H
#define MOTH_SPARSE_H

#include "base/context.h"

static inline bool moth_sparse(const moth_tensor *x) { return x->flags & MOTH_T_SPARSE; }

/* Owned, or NULL with the error set. rows (n) and values (n, ...) are packed, and shared. */
moth_tensor *moth_sparse_new(const moth_layout *whole, moth_tensor *rows, moth_tensor *values);
moth_tensor *moth_sparse_values(moth_tensor *x); /* a tensor over the same storage */
moth_tensor *moth_sparse_clone(moth_tensor *x);  /* with values of its own */

/* *at := *at + x, of which one is sparse at least: only then is the sum. A dense *at is written
** where `over` allows it, else replaced. */
int moth_sparse_add(moth_tensor **at, moth_tensor *x, bool over);

#endif

/* small.h -- loops over batches of small matrices. Element e of all matrices of a batch is one
** vector, so each step of an elimination runs for all matrices at once.
*/
#ifndef MOTH_KERNEL_SMALL_H
#define MOTH_KERNEL_SMALL_H

#include <stdbool.h>

/* bytes of a vector: 16 floats or 8 doubles, at every level of instructions */
#define MOTH_SIDE_BYTES 64

/* x has matrices of n rows and columns, y of n rows and k columns. A result for each matrix, such
** as a pivot or info, is an element of a vector. */
typedef struct moth_small {
  /* x := L and U of P x = L U, without the ones of L. pivots: the row, from 0, that each row was
  ** swapped with. sign: 1 for an even number of swaps, else -1. info: the first pivot that is 0,
  ** counted from 1; 0 if there is none. */
  void (*lu)(int n, void *x, void *pivots, void *sign, void *info);
  void (*swap)(int n, int k, const void *pivots, void *y); /* y := P y */
  /* y := the solution z of x z = y, for a triangular x. */
  void (*substitute)(int n, int k, const void *x, bool upper, bool unit, void *y);
  /* The lower triangle of x := its Cholesky factor. info: the first leading block that is not
  ** positive, or 0. */
  void (*cholesky)(int n, void *x, void *info);
} moth_small;

const moth_small *moth_small_loops(bool wide);

#endif

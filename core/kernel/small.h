/* small.h -- loops over batches of small matrices. Element e of all matrices of a batch is one
** vector, so that each step of an elimination runs for all matrices at once.
*/
#ifndef MOTH_KERNEL_SMALL_H
#define MOTH_KERNEL_SMALL_H

#include <stdbool.h>

#define MOTH_SIDE_BYTES 64 /* of a vector: 16 floats or 8 doubles, at every level of instructions */

/* x are matrices of n rows and columns, y of n rows and k columns. Results per lane, such as pivots
** and infos, are elements of vectors. */
typedef struct moth_small {
  /* x := L and U of P x = L U, the ones of L left out; pivots: with which row, from 0, each was
  ** swapped; sign: 1 for an even number of swaps, else -1; info: the first pivot that is 0, from 1,
  ** or 0. */
  void (*lu)(int n, void *x, void *pivots, void *sign, void *info);
  void (*swap)(int n, int k, const void *pivots, void *y); /* y := P y */
  /* y := the solution z of x z = y, of one triangle of x. */
  void (*substitute)(int n, int k, const void *x, bool upper, bool unit, void *y);
  /* The lower triangle of x := its factor; info: the first leading block that is not positive. */
  void (*cholesky)(int n, void *x, void *info);
} moth_small;

const moth_small *moth_small_loops(bool wide);

#endif

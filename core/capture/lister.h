/* lister.h -- who is told what ops do with elements. While ctx->lister is set, moth_map,
** moth_map_where and moth_copy_into tell it which function runs, over what. So recordings learn
** which ops they can join, and moth.kernel what a function written in Lua is made of.
*/
#ifndef MOTH_LISTER_H
#define MOTH_LISTER_H

#include "kernel/math/elementwise.h"

typedef struct moth_lister {
  /* operands[0] is the result, broadcast operands come as they are. loops: the function, NULL for a
  ** conversion; dtype: that it computes in; arg: as for moth_map. True: it is not to be run. */
  bool (*note)(struct moth_lister *, const moth_loops *loops, int dtype, int noperands,
               const moth_tensor *const *operands, const void *arg);
  /* After an op of whole tensors has run, or NULL: its results lie in out. Returns a status. */
  int (*ran)(struct moth_lister *, const moth_op *op, const void *args, moth_tensor **out,
             uint32_t nout);
  /* Whether the values of x are known, so that a formula may go by them; or NULL. */
  bool (*constant)(struct moth_lister *, const moth_tensor *x);
  uint64_t began; /* what a kernel makes for itself has storages of greater ids; 0: none runs */
} moth_lister;

static inline bool moth_lists(moth_ctx *ctx, const moth_loops *loops, int dtype, int noperands,
                              const moth_tensor *const *operands, const void *arg) {
  struct moth_lister *l = ctx->lister;
  return __builtin_expect(l != NULL, 0) && l->note(l, loops, dtype, noperands, operands, arg);
}

#endif

/* bf16_product.h -- products of bf16 by instructions that multiply two neighbours along k at once:
** tiles of f32 sums, for one thread and without memory. AMX does it where the processor has it,
** AVX512-BF16 elsewhere. half_product.c makes whole products of them.
*/
#ifndef MOTH_KERNEL_BF16_PRODUCT_H
#define MOTH_KERNEL_BF16_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_BF16_PANEL 64 /* columns of the widest panel: four vectors */

/* C (m, 16 nv) := A (m, 2 k [+ 1]) B [+ C]. A word is two neighbours along k, the lower one first;
** a word after an odd end has 0 as its second. */
typedef struct moth_bf16_product {
  int64_t m, k; /* rows; whole pairs */
  int nv;       /* vectors of 16 columns, 1 to 4 */
  bool odd;     /* one number follows the pairs */
  const uint16_t *a;
  int64_t rs, cs;    /* from one row, one pair to the next; a pair's numbers lie together */
  const uint32_t *b; /* rows of 16 nv words, one below the other */
  float *c;
  int64_t ldc;
  bool add;
} moth_bf16_product;

/* Whether this processor is faster at it than at f32, and MOTH_ISA allows it. */
bool moth_bf16_here(void);
bool moth_bf16_by_rows(void); /* and wants a row's pairs together: cs == 2, since it is AMX */
void moth_bf16_run(const moth_bf16_product *p);

/* to[t * step + j] = x[2 t][j] and x[2 t + 1][j], for j < w and t < (k + 1) / 2, and 0 for j from w
** to wide - 1. x[t][j] lies at x + t * rs + j * cs. */
void moth_bf16_pack(uint32_t *to, int64_t step, const uint16_t *x, int64_t k, int64_t rs,
                     int64_t cs, int64_t w, int64_t wide);
/* Each of w rows of words on its own, ld apart: to[j * ld + t]. */
void moth_bf16_pack_rows(uint32_t *to, int64_t ld, const uint16_t *x, int64_t k, int64_t rs,
                          int64_t cs, int64_t w);
/* What that costs: neighbours along j, along k, and the rest. */
double moth_bf16_pack_cost(const uint16_t *x, int64_t rs, int64_t cs);

#endif

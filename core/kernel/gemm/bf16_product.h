/* bf16_product.h -- bf16 products by instructions that multiply two neighbors along k at once:
** tiles of f32 sums, on one thread, without allocation. The tiles use AMX if the processor has it,
** else AVX512-BF16. half_product.c builds whole products from them.
*/
#ifndef MOTH_KERNEL_BF16_PRODUCT_H
#define MOTH_KERNEL_BF16_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_BF16_PANEL 64 /* columns of the widest panel: four vectors */

/* C (m, 16 nv) := A (m, 2 k [+ 1]) B [+ C]. A word has two neighbors along k, the first in the low
** half. For odd depths the high half of the last word is 0. */
typedef struct moth_bf16_product {
  int64_t m, k; /* rows; complete pairs */
  int nv;       /* vectors of 16 columns, 1 to 4 */
  bool odd;     /* a single number follows the pairs */
  const uint16_t *a;
  int64_t rs, cs;    /* steps between rows and between pairs; a pair is contiguous */
  const uint32_t *b; /* rows of 16 nv words, contiguous */
  float *c;
  int64_t ldc;
  bool add;
} moth_bf16_product;

/* True if bf16 products are faster than f32 on this processor, and MOTH_ISA allows them. */
bool moth_bf16_here(void);
bool moth_bf16_by_rows(void); /* true for AMX, which needs contiguous rows of pairs: cs == 2 */
void moth_bf16_run(const moth_bf16_product *p);

/* to[t * step + j] := the pair x[2 t][j], x[2 t + 1][j] for j < w, and 0 for j from w to wide - 1;
** t < (k + 1) / 2. x[t][j] is at x + t * rs + j * cs. */
void moth_bf16_pack(uint32_t *to, int64_t step, const uint16_t *x, int64_t k, int64_t rs,
                     int64_t cs, int64_t w, int64_t wide);
/* The same with w rows of words, ld apart: to[j * ld + t]. */
void moth_bf16_pack_rows(uint32_t *to, int64_t ld, const uint16_t *x, int64_t k, int64_t rs,
                          int64_t cs, int64_t w);
/* The cost of packing, which depends on the contiguous direction: along j, along k, or none. */
double moth_bf16_pack_cost(const uint16_t *x, int64_t rs, int64_t cs);

#endif

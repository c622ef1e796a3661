/* bf16_amx.c -- the products of bf16_product.h with AMX tiles: blocks of 16 or 32 rows by one or
** two vectors. Their sums stay in up to four tiles for all of k.
*/
#include "amx.h"

#if MOTH_HAS_LEVELS

#include <immintrin.h>

#define SIDE AMX_SIDE

/* The last pairs, fewer than 16, of up to 32 rows and two vectors of columns. */
AMX_TARGET INLINED void last_pairs(const moth_bf16_product *p, int m, int64_t some,
                                   const uint16_t *a, const uint32_t *b, int64_t ldb, bool wide,
                                   uint32_t left[2 * SIDE][SIDE], uint32_t right[2][SIDE][SIDE]) {
  const __mmask32 mask = (__mmask32)((UINT64_C(1) << (2 * some + p->odd)) - 1);
  for (int i = 0; i < m; i++)
    AMX_TO(left[i]) = (words16)_mm512_maskz_loadu_epi16(mask, a + i * p->rs);
  for (int64_t k = 0; k < SIDE; k++)
    for (int v = 0; v < 1 + wide; v++)
      AMX_TO(right[v][k]) =
        k < some + p->odd ? (words16)AMX_AT(b + k * ldb + v * SIDE) : (words16){0};
}

AMX_TARGET INLINED void block(const int tall, const int wide, const moth_bf16_product *p, int m,
                              const uint16_t *a, const uint32_t *b) {
  uint32_t left[2 * SIDE][SIDE] __attribute__((aligned(64)));
  uint32_t right[2][SIDE][SIDE] __attribute__((aligned(64)));
  const int64_t ldb = SIDE * p->nv, k = p->k;
  for (int64_t t = 0; t < k + p->odd; t += SIDE, a += 2 * SIDE, b += SIDE * ldb) {
    const bool whole = k - t >= SIDE;
    const void *rows = a, *first = b, *more = b + SIDE;
    int64_t down = 2 * p->rs, across = 4 * ldb;
    if (!whole) {
      last_pairs(p, m, k - t, a, b, ldb, wide, left, right);
      rows = left, first = right[0], more = right[1];
      down = across = 4 * SIDE;
    }
    amx_multiply(tall, wide, rows, down, first, more, across);
  }
}

AMX_TARGET static void some_rows(const moth_bf16_product *p, int m, int v, const uint16_t *a,
                                 float *c) {
  const uint32_t *b = p->b + v * SIDE;
  const bool tall = m > SIDE, wide = p->nv - v > 1;
  amx_zero();
  if (p->add) amx_load(tall, wide, c, p->ldc);
  AMX_OF_SIZE(block, tall, wide, p, m, a, b);
  amx_store(tall, wide, c, p->ldc);
}

AMX_TARGET void moth_amx_run(const moth_bf16_product *p) {
  for (int64_t i = 0, m; i < p->m; i += m) {
    m = p->m - i < 2 * SIDE ? p->m - i : 2 * SIDE;
    amx_open(m > SIDE ? SIDE : (int)m, m > SIDE ? (int)m - SIDE : 1);
    for (int v = 0; v < p->nv; v += 2)
      some_rows(p, (int)m, v, p->a + i * p->rs, p->c + i * p->ldc + v * SIDE);
    AMX_CLOSE();
  }
}

#endif

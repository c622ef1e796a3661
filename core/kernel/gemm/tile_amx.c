/* tile_amx.c -- convolution's product and sum with AMX tiles, for pairs of bf16. Operands are
** packed in blocks of 16 by 16 words, or read in place if they have this layout.
*/
#include "amx.h"

#if MOTH_HAS_LEVELS

#include <immintrin.h>

#define SIDE AMX_SIDE
#define SOME(p, n) ((words16)_mm512_maskz_loadu_epi32((__mmask16)((1 << (n)) - 1), p))

AMX_TARGET INLINED void multiply(const int tall, const int wide, int m, int64_t n, const float *a,
                                 int64_t rs, const float *b, const int64_t *off) {
  uint32_t left[2 * SIDE][SIDE] __attribute__((aligned(64)));
  uint32_t right[2][SIDE][SIDE] __attribute__((aligned(64)));
  for (int64_t t = 0; t < n; t += SIDE, a += SIDE, off += SIDE) {
    const int64_t some = n - t < SIDE ? n - t : SIDE;
    const void *rows = a;
    int64_t down = 4 * rs;
    for (int64_t k = 0; k < some; k++) {
      AMX_TO(right[0][k]) = AMX_AT(b + off[k]);
      if (wide) AMX_TO(right[1][k]) = AMX_AT(b + off[k] + SIDE);
    }
    if (some < SIDE) { /* zeros in both operands, because unused memory may hold NaN */
      for (int64_t k = some; k < SIDE; k++)
        AMX_TO(right[0][k]) = AMX_TO(right[1][k]) = (words16){0};
      for (int i = 0; i < m; i++) AMX_TO(left[i]) = SOME(a + i * rs, some);
      rows = left, down = 4 * SIDE;
    }
    amx_multiply(tall, wide, rows, down, right[0], right[1], 4 * SIDE);
  }
}

AMX_TARGET static void product(int m, bool wide, int64_t n, const float *a, int64_t rs,
                               const float *b, const int64_t *off, const float *start, float *y,
                               int64_t ldy) {
  float sums[MOTH_TILE_MOST][2 * SIDE] __attribute__((aligned(64)));
  const bool tall = m > SIDE;
  amx_open(tall ? SIDE : m, tall ? m - SIDE : 1);
  amx_zero();
  AMX_OF_SIZE(multiply, tall, wide, m, n, a, rs, b, off);
  amx_store(tall, wide, sums[0], 2 * SIDE);
  AMX_CLOSE();
  for (int i = 0; i < m; i++)
    for (int v = 0; v < 1 + wide; v++) {
      loose16 *to = (loose16 *)(void *)(y + i * ldy + v * SIDE);
      const vector16 sum = *(const loose16 *)(const void *)(sums[i] + v * SIDE);
      *to = sum + (start ? (vector16){0} + start[i] : (vector16)*to);
    }
}

/* Copies the elements of m taps in `some` windows that are not contiguous; the rest is 0. */
AMX_TARGET INLINED void take_windows(int m, int64_t some, const float *x, const int64_t *off,
                                     const int64_t *at, uint32_t to[SIDE][SIDE]) {
  const __mmask16 mask = (__mmask16)((1 << some) - 1);
  const __mmask8 first = (__mmask8)mask, second = (__mmask8)(mask >> 8);
  const __m512i from = _mm512_maskz_loadu_epi64(first, at);
  const __m512i next = _mm512_maskz_loadu_epi64(second, at + (second ? SIDE / 2 : 0));
  const __m256i none = _mm256_setzero_si256();
  for (int i = 0; i < m; i++) {
    const void *tap = x + off[i];
    _mm256_storeu_si256((__m256i *)(void *)to[i],
                        _mm512_mask_i64gather_epi32(none, first, from, tap, 4));
    _mm256_storeu_si256((__m256i *)(void *)(to[i] + SIDE / 2),
                        _mm512_mask_i64gather_epi32(none, second, next, tap, 4));
  }
}

/* True if 16 offsets are consecutive. The offsets of narrow images may even decrease. */
AMX_TARGET INLINED bool in_a_row(const int64_t *at) {
  const __m512i first = _mm512_add_epi64(_mm512_set1_epi64(at[0]),
                                         _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  const __m512i second = _mm512_add_epi64(first, _mm512_set1_epi64(SIDE / 2));
  return _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at), first) == 0xff &&
         _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at + SIDE / 2), second) == 0xff;
}

AMX_TARGET static void sum(int m, int v, int64_t n, const float *x, const int64_t *off,
                           const int64_t *at, const float *b, int64_t ldb, bool add, float *y) {
  uint32_t left[SIDE][SIDE] __attribute__((aligned(64)));
  uint32_t right[4][SIDE][SIDE] __attribute__((aligned(64)));
  amx_open(m, m);
  amx_zero();
  for (int64_t q = 0; q < n; q += SIDE) {
    const int64_t some = n - q < SIDE ? n - q : SIDE;
    const bool row = some == SIDE && in_a_row(at + q);
    const float *from = b + q * ldb;
    if (row)
      for (int i = 0; i < m; i++) AMX_TO(left[i]) = AMX_AT(x + off[i] + at[q]);
    else
      take_windows(m, some, x, off, at + q, left);
    if (some < SIDE) { /* zeros in both operands, because unused memory may hold NaN */
      for (int64_t k = 0; k < SIDE * ldb; k += SIDE)
        AMX_TO(right[0][0] + k) = k < some * ldb ? (words16)AMX_AT(from + k) : (words16){0};
      from = (const float *)(const void *)right;
    }
    AMX_LOAD(4, left, SIDE);
    AMX_LOAD(6, from, ldb);
    AMX_DOT(0, 4, 6);
    if (v < 2) continue;
    AMX_LOAD(7, from + SIDE, ldb);
    AMX_DOT(1, 4, 7);
    if (v < 4) continue;
    AMX_LOAD(6, from + 2 * SIDE, ldb);
    AMX_DOT(2, 4, 6);
    AMX_LOAD(7, from + 3 * SIDE, ldb);
    AMX_DOT(3, 4, 7);
  }
  float *sums = (float *)(void *)right;
  AMX_STORE(0, sums, ldb);
  if (v >= 2) AMX_STORE(1, sums + SIDE, ldb);
  if (v >= 4) AMX_STORE(2, sums + 2 * SIDE, ldb);
  if (v >= 4) AMX_STORE(3, sums + 3 * SIDE, ldb);
  AMX_CLOSE();
  for (int64_t i = 0; i < m * ldb; i += SIDE) {
    loose16 *to = (loose16 *)(void *)(y + i);
    const vector16 more = *(const loose16 *)(const void *)(sums + i);
    *to = add ? (vector16)*to + more : more;
  }
}

bool moth_tile_amx(moth_tile *to) {
  if (!moth_amx_here()) return false;
  *to = *moth_tile_best();
  to->product = product;
  to->sum = sum;
  to->rows = MOTH_TILE_MOST;
  to->by_rows = true;
  to->chain = 1024;
  to->taps[1] = to->taps[2] = to->taps[4] = SIDE;
  return true;
}

#endif

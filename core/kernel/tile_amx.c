/* tile_amx.c -- convolution's product and sum where each number is a pair of bf16 and registers
** hold tiles, and products of such pairs: operands are put together 16 by 16 words, or read where
** they lie so.
*/
#include <string.h>

#include "amx.h"
#include "tile.h"

#if MOTH_HAS_LEVELS

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIDE AMX_SIDE
#define REQUEST 0x1023 /* of arch_prctl: ARCH_REQ_XCOMP_PERM, */
#define TILES 18       /* ... for the state of tiles */

static bool ask(void) {
  unsigned a, b, c, d;
  if (moth_level() != MOTH_LEVEL_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  bool tiles = d >> 22 & 1 && d >> 24 & 1 && __builtin_cpu_supports("avx512bf16");
#ifdef SYS_arch_prctl
  return tiles && syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
#else
  return tiles && false;
#endif
}

bool moth_amx_here(void) {
  static atomic_int known; /* 1: no, 2: yes */
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (!is) atomic_store(&known, is = 1 + ask());
  return is == 2;
}

typedef uint32_t words __attribute__((vector_size(64)));
typedef uint32_t loose_words __attribute__((vector_size(64), aligned(4), may_alias));
typedef float vector __attribute__((vector_size(64)));
typedef float loose __attribute__((vector_size(64), aligned(4), may_alias));
#define SOME(p, n) ((words)_mm512_maskz_loadu_epi32((__mmask16)((1 << (n)) - 1), p))
#define AT(p) (*(const loose_words *)(const void *)(p))
#define TO(p) (*(loose_words *)(void *)(p))

/* tall: more than 16 rows; wide: more than 16 columns. */
AMX_TARGET INLINED void multiply(const int tall, const int wide, int m, int64_t n, const float *a,
                                 int64_t rs, const float *b, const int64_t *off) {
  uint32_t left[2 * SIDE][SIDE] __attribute__((aligned(64)));
  uint32_t right[2][SIDE][SIDE] __attribute__((aligned(64)));
  for (int64_t t = 0; t < n; t += SIDE, a += SIDE, off += SIDE) {
    const int64_t some = n - t < SIDE ? n - t : SIDE;
    const void *upper = a, *lower = a + SIDE * rs;
    int64_t apart = rs;
    for (int64_t k = 0; k < some; k++) {
      TO(right[0][k]) = AT(b + off[k]);
      if (wide) TO(right[1][k]) = AT(b + off[k] + SIDE);
    }
    if (some < SIDE) { /* zeros on both sides: what lies there may be no number */
      for (int64_t k = some; k < SIDE; k++) TO(right[0][k]) = TO(right[1][k]) = (words){0};
      for (int i = 0; i < m; i++) TO(left[i]) = SOME(a + i * rs, some);
      upper = left, lower = left + SIDE, apart = SIDE;
    }
    AMX_LOAD(4, upper, apart);
    AMX_LOAD(6, right[0], SIDE);
    AMX_DOT(0, 4, 6);
    if (wide) AMX_LOAD(7, right[1], SIDE);
    if (wide) AMX_DOT(1, 4, 7);
    if (tall) AMX_LOAD(5, lower, apart);
    if (tall) AMX_DOT(2, 5, 6);
    if (tall && wide) AMX_DOT(3, 5, 7);
  }
}

AMX_TARGET static void product(int m, bool wide, int64_t n, const float *a, int64_t rs,
                               const float *b, const int64_t *off, const float *start, float *y,
                               int64_t ldy) {
  float sums[MOTH_TILE_MOST][2 * SIDE] __attribute__((aligned(64)));
  const bool tall = m > SIDE;
  amx_open(tall ? SIDE : m, tall ? m - SIDE : 1);
  AMX_ZERO(0);
  AMX_ZERO(1);
  AMX_ZERO(2);
  AMX_ZERO(3);
  if (tall && wide) multiply(1, 1, m, n, a, rs, b, off);
  else if (tall) multiply(1, 0, m, n, a, rs, b, off);
  else if (wide) multiply(0, 1, m, n, a, rs, b, off);
  else multiply(0, 0, m, n, a, rs, b, off);
  AMX_STORE(0, sums[0], 2 * SIDE);
  AMX_STORE(1, sums[0] + SIDE, 2 * SIDE);
  if (tall) AMX_STORE(2, sums[SIDE], 2 * SIDE);
  if (tall) AMX_STORE(3, sums[SIDE] + SIDE, 2 * SIDE);
  AMX_CLOSE();
  for (int i = 0; i < m; i++)
    for (int v = 0; v < 1 + wide; v++) {
      loose *to = (loose *)(void *)(y + i * ldy + v * SIDE);
      const vector sum = *(const loose *)(const void *)(sums[i] + v * SIDE);
      *to = sum + (start ? (vector){0} + start[i] : (vector)*to);
    }
}

/* What m taps see in some windows that do not lie in a row, and zeros. */
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

/* Whether 16 places follow each other: those of narrow images may go back and forth. */
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
  AMX_ZERO(0);
  AMX_ZERO(1);
  AMX_ZERO(2);
  AMX_ZERO(3);
  for (int64_t q = 0; q < n; q += SIDE) {
    const int64_t some = n - q < SIDE ? n - q : SIDE;
    const bool row = some == SIDE && in_a_row(at + q);
    const float *from = b + q * ldb;
    int64_t apart = ldb;
    if (row)
      for (int i = 0; i < m; i++) TO(left[i]) = AT(x + off[i] + at[q]);
    else
      take_windows(m, some, x, off, at + q, left);
    if (some < SIDE) { /* zeros on both sides: what lies there may be no number */
      for (int64_t k = 0; k < SIDE * ldb; k += SIDE)
        TO(right[0][0] + k) = k < some * ldb ? (words)AT(from + k) : (words){0};
      from = (const float *)(const void *)right;
    }
    AMX_LOAD(4, left, SIDE);
    AMX_LOAD(6, from, apart);
    AMX_DOT(0, 4, 6);
    if (v < 2) continue;
    AMX_LOAD(7, from + SIDE, apart);
    AMX_DOT(1, 4, 7);
    if (v < 4) continue;
    AMX_LOAD(6, from + 2 * SIDE, apart);
    AMX_DOT(2, 4, 6);
    AMX_LOAD(7, from + 3 * SIDE, apart);
    AMX_DOT(3, 4, 7);
  }
  float *sums = (float *)(void *)right;
  AMX_STORE(0, sums, ldb);
  if (v >= 2) AMX_STORE(1, sums + SIDE, ldb);
  if (v >= 4) AMX_STORE(2, sums + 2 * SIDE, ldb);
  if (v >= 4) AMX_STORE(3, sums + 3 * SIDE, ldb);
  AMX_CLOSE();
  for (int64_t i = 0; i < m * ldb; i += SIDE) {
    loose *to = (loose *)(void *)(y + i);
    const vector more = *(const loose *)(const void *)(sums + i);
    *to = add ? (vector)*to + more : more;
  }
}

/* -- products -- */

/* The last pairs, fewer than 16, of up to 32 rows and two vectors of columns. */
AMX_TARGET INLINED void last_pairs(const moth_pairs *p, int m, int64_t some, const uint16_t *a,
                                   const uint32_t *b, int64_t ldb, bool wide,
                                   uint32_t left[2 * SIDE][SIDE], uint32_t right[2][SIDE][SIDE]) {
  const __mmask32 mask = (__mmask32)((UINT64_C(1) << (2 * some + p->odd)) - 1);
  for (int i = 0; i < m; i++) TO(left[i]) = (words)_mm512_maskz_loadu_epi16(mask, a + i * p->rs);
  for (int64_t k = 0; k < SIDE; k++)
    for (int v = 0; v < 1 + wide; v++)
      TO(right[v][k]) = k < some + p->odd ? (words)AT(b + k * ldb + v * SIDE) : (words){0};
}

AMX_TARGET INLINED void block(const int tall, const int wide, const moth_pairs *p, int m,
                              const uint16_t *a, const uint32_t *b) {
  uint32_t left[2 * SIDE][SIDE] __attribute__((aligned(64)));
  uint32_t right[2][SIDE][SIDE] __attribute__((aligned(64)));
  const int64_t ldb = SIDE * p->nv, k = p->k;
  for (int64_t t = 0; t < k + p->odd; t += SIDE, a += 2 * SIDE, b += SIDE * ldb) {
    const bool whole = k - t >= SIDE;
    const void *upper = a, *lower = a + SIDE * p->rs, *first = b, *second = b + SIDE;
    int64_t down = 2 * p->rs, across = 4 * ldb;
    if (!whole) {
      last_pairs(p, m, k - t, a, b, ldb, wide, left, right);
      upper = left, lower = left + SIDE, first = right[0], second = right[1];
      down = across = 4 * SIDE;
    }
    AMX_LOAD_BYTES(4, upper, down);
    AMX_LOAD_BYTES(6, first, across);
    AMX_DOT(0, 4, 6);
    if (wide) AMX_LOAD_BYTES(7, second, across);
    if (wide) AMX_DOT(1, 4, 7);
    if (tall) AMX_LOAD_BYTES(5, lower, down);
    if (tall) AMX_DOT(2, 5, 6);
    if (tall && wide) AMX_DOT(3, 5, 7);
  }
}

AMX_TARGET static void some_rows(const moth_pairs *p, int m, int v, const uint16_t *a, float *c) {
  const uint32_t *b = p->b + v * SIDE;
  const bool tall = m > SIDE, wide = p->nv - v > 1;
  float *low = c + SIDE * p->ldc;
  AMX_ZERO(0);
  AMX_ZERO(1);
  AMX_ZERO(2);
  AMX_ZERO(3);
  if (p->add) {
    AMX_LOAD(0, c, p->ldc);
    if (wide) AMX_LOAD(1, c + SIDE, p->ldc);
    if (tall) AMX_LOAD(2, low, p->ldc);
    if (tall && wide) AMX_LOAD(3, low + SIDE, p->ldc);
  }
  if (tall && wide) block(1, 1, p, m, a, b);
  else if (tall) block(1, 0, p, m, a, b);
  else if (wide) block(0, 1, p, m, a, b);
  else block(0, 0, p, m, a, b);
  AMX_STORE(0, c, p->ldc);
  if (wide) AMX_STORE(1, c + SIDE, p->ldc);
  if (tall) AMX_STORE(2, low, p->ldc);
  if (tall && wide) AMX_STORE(3, low + SIDE, p->ldc);
}

AMX_TARGET void moth_amx_run(const moth_pairs *p) {
  for (int64_t i = 0, m; i < p->m; i += m) {
    m = p->m - i < 2 * SIDE ? p->m - i : 2 * SIDE;
    amx_open(m > SIDE ? SIDE : (int)m, m > SIDE ? (int)m - SIDE : 1);
    for (int v = 0; v < p->nv; v += 2)
      some_rows(p, (int)m, v, p->a + i * p->rs, p->c + i * p->ldc + v * SIDE);
    AMX_CLOSE();
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

#else

bool moth_amx_here(void) { return false; }
void moth_amx_run(const moth_pairs *p) { (void)p; }
bool moth_tile_amx(moth_tile *to) { return to && false; }

#endif

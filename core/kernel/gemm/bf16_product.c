/* bf16_product.c -- tiles of bf16 pairs: 6 rows and 4 vectors, or 12 rows and up to 2 vectors, as
** in matrix_level.h. vdpbf16ps multiplies; it rounds each sum to nearest and treats denormal
** numbers as 0.
*/
#include "bf16_product.h"

#include <string.h>

#include "amx.h"
#include "bf16_dot.h"
#include "matrix.h"

#if MOTH_HAS_LEVELS

#include <immintrin.h>

/* -- packing -- */

static inline void plain_pack(uint32_t *to, int64_t step, const uint16_t *x, int64_t k, int64_t rs,
                              int64_t cs, int64_t w) {
  for (int64_t t = 0; t < k; t++)
    for (int64_t j = 0; j < w; j++) {
      const uint16_t *p = x + 2 * t * rs + j * cs;
      to[t * step + j] = p[0] | (uint32_t)p[rs] << 16;
    }
}

MOTH_AVX512 static void pack_rows(uint32_t *restrict to, int64_t step, const uint16_t *restrict x,
                                  int64_t k, int64_t rs, int64_t w) {
  for (int64_t t = 0; t < k; t++, to += step, x += 2 * rs) {
    const uint16_t *restrict y = x + rs;
    for (int64_t j = 0; j < w; j++) to[j] = x[j] | (uint32_t)y[j] << 16;
  }
}

/* Packs short rows that are contiguous. */
MOTH_AVX512 static void pack_short(uint32_t *to, const uint16_t *x, int64_t k, int64_t w) {
  const __mmask32 both = (__mmask32)((UINT64_C(1) << 2 * w) - 1);
  const __mmask16 words = (__mmask16)((1 << w) - 1);
  uint16_t from[32];
  for (int j = 0; j < 32; j++) from[j] = (uint16_t)(j / 2 + j % 2 * w);
  const __m512i index = _mm512_loadu_si512(from);
  for (int64_t t = 0; t < k; t++, to += w, x += 2 * w)
    _mm512_mask_storeu_epi32(to, words,
                             _mm512_permutexvar_epi16(index, _mm512_maskz_loadu_epi16(both, x)));
}

static bool by_words(const uint16_t *x, int64_t rs, int64_t cs) {
  return rs == 1 && cs % 2 == 0 && (uintptr_t)x % 4 == 0;
}

double moth_bf16_pack_cost(const uint16_t *x, int64_t rs, int64_t cs) {
  return cs == 1 ? 1 : by_words(x, rs, cs) ? 1.5 : 16;
}

void moth_bf16_pack(uint32_t *to, int64_t step, const uint16_t *x, int64_t k, int64_t rs,
                     int64_t cs, int64_t w, int64_t wide) {
  int64_t pairs = k / 2, rows = (k + 1) / 2;
  if (cs == 1 && rs == w && step == w && w <= 16)
    pack_short(to, x, pairs, w);
  else if (cs == 1)
    pack_rows(to, step, x, pairs, rs, w);
  else if (by_words(x, rs, cs))
    moth_matrix_transpose_panel((float *)(void *)to, step, (const float *)(const void *)x, pairs, w,
                           cs / 2);
  else
    plain_pack(to, step, x, pairs, rs, cs, w);
  if (k % 2)
    for (int64_t j = 0; j < w; j++) to[pairs * step + j] = x[(k - 1) * rs + j * cs];
  if (w == wide) return;
  for (int64_t t = 0; t < rows; t++)
    memset(to + t * step + w, 0, (size_t)(wide - w) * sizeof *to);
}

void moth_bf16_pack_rows(uint32_t *to, int64_t ld, const uint16_t *x, int64_t k, int64_t rs,
                          int64_t cs, int64_t w) {
  enum { DEEP = 32, WIDE = 64 };
  uint32_t scratch[DEEP * WIDE];
  for (int64_t j = 0; j < w; j += WIDE)
    for (int64_t t = 0; t < k; t += 2 * DEEP) {
      const int64_t some = w - j < WIDE ? w - j : WIDE, n = k - t < 2 * DEEP ? k - t : 2 * DEEP;
      moth_bf16_pack(scratch, some, x + t * rs + j * cs, n, rs, cs, some, some);
      moth_matrix_transpose_panel((float *)(void *)(to + j * ld + t / 2), ld,
                             (const float *)(void *)scratch, some, (n + 1) / 2, some);
    }
}

/* -- tiles -- */

#define TARGET MOTH_BF16_TARGET

TARGET static inline __attribute__((always_inline)) uint32_t word_at(const uint16_t *a) {
  uint32_t word;
  memcpy(&word, a, sizeof word);
  return word;
}

/* s += the words of a row times those of the panel's row b */
#define STEP(word)                                                                               \
  UNROLL for (int v = 0; v < nv; v++) x[v] = *(const loose_words16 *)(const void *)(b + 16 * v); \
  UNROLL for (int i = 0; i < m; i++) {                                                           \
    const uint16_t *at = a[i / 3] + i % 3 * rs;                                                  \
    const words16 y = (words16){0} + (word);                                                     \
    UNROLL for (int v = 0; v < nv; v++) s[i][v] = BF16_DOT(s[i][v], (operand)y, (operand)x[v]);  \
  }

TARGET static inline __attribute__((always_inline)) void tile(const moth_bf16_product *p,
                                                              const uint16_t *from, float *c,
                                                              const int m, const int nv) {
  const int64_t rs = p->rs, cs = p->cs, ldc = p->ldc;
  vector16 s[12][4];
  words16 x[4];
  UNROLL for (int i = 0; i < m; i++)
    UNROLL for (int v = 0; v < nv; v++)
      s[i][v] = (vector16){0};
  if (p->add)
    UNROLL for (int i = 0; i < m; i++)
      UNROLL for (int v = 0; v < nv; v++)
        s[i][v] = *(const loose16 *)(const void *)(c + i * ldc + 16 * v);
  const uint16_t *a[4] = {from, from + 3 * rs, from + 6 * rs, from + 9 * rs};
  const uint32_t *b = p->b;
  for (int64_t t = 0; t < p->k; t++, b += 16 * nv) {
    STEP(word_at(at))
    UNROLL for (int g = 0; 3 * g < m; g++) a[g] += cs;
  }
  if (p->odd) {
    STEP((uint32_t)*at)
  }
  UNROLL for (int i = 0; i < m; i++)
    UNROLL for (int v = 0; v < nv; v++)
      *(loose16 *)(void *)(c + i * ldc + 16 * v) = s[i][v];
}

#define TILE(m, nv)                                                                             \
  TARGET static void tile_##m##_##nv(const moth_bf16_product *p, const uint16_t *a, float *c) { \
    tile(p, a, c, m, nv);                                                                       \
  }
#define ROW(m, nv) [m] = tile_##m##_##nv,
#define SIX(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv)
#define TWELVE(X, nv) SIX(X, nv) X(7, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
TWELVE(TILE, 1) TWELVE(TILE, 2) SIX(TILE, 3) SIX(TILE, 4)

typedef void tile_function(const moth_bf16_product *p, const uint16_t *a, float *c);
static tile_function *const tiles[4][13] = {
  {TWELVE(ROW, 1)}, {TWELVE(ROW, 2)}, {SIX(ROW, 3)}, {SIX(ROW, 4)}};

void moth_bf16_run(const moth_bf16_product *p) {
  if (p->cs == 2 && moth_amx_here()) {
    moth_amx_run(p);
    return;
  }
  const int most = p->nv > 2 ? 6 : 12;
  for (int64_t i = 0, m; i < p->m; i += m) {
    m = p->m - i < most ? p->m - i : most;
    tiles[p->nv - 1][m](p, p->a + i * p->rs, p->c + i * p->ldc);
  }
}

bool moth_bf16_dot(void) {
  return moth_level() == MOTH_LEVEL_AVX512 && __builtin_cpu_supports("avx512bf16") &&
         !__builtin_cpu_is("intel");
}

bool moth_bf16_here(void) { return moth_amx_here() || moth_bf16_dot(); }

bool moth_bf16_by_rows(void) { return moth_amx_here(); }

#else

double moth_bf16_pack_cost(const uint16_t *x, int64_t rs, int64_t cs) {
  return x && rs + cs ? 1 : 2;
}
void moth_bf16_pack(uint32_t *to, int64_t step, const uint16_t *x, int64_t k, int64_t rs,
                    int64_t cs, int64_t w, int64_t wide) {
  (void)to, (void)step, (void)x, (void)k, (void)rs, (void)cs, (void)w, (void)wide;
}
void moth_bf16_run(const moth_bf16_product *p) { (void)p; }
void moth_bf16_pack_rows(uint32_t *to, int64_t ld, const uint16_t *x, int64_t k, int64_t rs,
                          int64_t cs, int64_t w) {
  (void)to, (void)ld, (void)x, (void)k, (void)rs, (void)cs, (void)w;
}
bool moth_bf16_here(void) { return false; }
bool moth_bf16_by_rows(void) { return false; }

#endif

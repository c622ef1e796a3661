/* gemm.c -- matrix products: plain loops, and blocked loops after Goto and van de Geijn (2008). */
#include "gemm.h"
#include "base/error.h"
#include "base/alloc.h"

#include "kernel/math/elementwise.h"
#include "kernel/level.h"

/* -- plain loops --
**
** If rows of B are contiguous, eight or four elements of a row of C are computed together. Else,
** and at the edge, each element of C is a dot product. */

#define PLAIN(name, type, wide)                                                                  \
  static void edge_##name(const moth_product *p, const type *a, const type *b, type *c) {        \
    wide sum = p->beta ? (wide)*c : 0;                                                           \
    for (int64_t l = 0; l < p->k; l++, a += p->cs_a, b += p->rs_b) sum += (wide)*a * (wide)*b;   \
    *c = (type)sum;                                                                              \
  }                                                                                              \
  INLINED void columns_##name(const moth_product *p, const int w, const type *x, const type *y,  \
                              type *c) {                                                         \
    wide sum[8];                                                                                 \
    for (int r = 0; r < w; r++) sum[r] = p->beta ? (wide)c[r] : 0;                               \
    for (int64_t l = 0; l < p->k; l++, x += p->cs_a, y += p->rs_b) {                             \
      const wide f = (wide)*x;                                                                   \
      for (int r = 0; r < w; r++) {                                                              \
        const wide v = (wide)y[r];                                                               \
        sum[r] += f * v;                                                                         \
      }                                                                                          \
    }                                                                                            \
    for (int r = 0; r < w; r++) c[r] = (type)sum[r];                                             \
  }                                                                                              \
  static void rows_##name(const moth_product *p) {                                               \
    for (int64_t i = 0; i < p->m; i++) {                                                         \
      const type *a = (const type *)(const void *)p->a + i * p->rs_a;                            \
      const type *b = (const type *)(const void *)p->b;                                          \
      type *c = (type *)(void *)p->c + i * p->ldc;                                               \
      int64_t j = 0;                                                                             \
      for (; j + 8 <= p->n; j += 8) columns_##name(p, 8, a, b + j, c + j);                       \
      if (j + 4 <= p->n) columns_##name(p, 4, a, b + j, c + j), j += 4;                          \
      for (; j < p->n; j++) edge_##name(p, a, b + j, c + j);                                     \
    }                                                                                            \
  }                                                                                              \
  static void dots_##name(const moth_product *p) {                                               \
    const type *a = (const type *)(const void *)p->a, *b = (const type *)(const void *)p->b;     \
    for (int64_t i = 0; i < p->m; i++)                                                           \
      for (int64_t j = 0; j < p->n; j++)                                                         \
        edge_##name(p, a + i * p->rs_a, b + j * p->cs_b,                                         \
                    (type *)(void *)p->c + i * p->ldc + j);                                      \
  }
MOTH_EACH_INT(PLAIN)
MOTH_EACH_FLOAT(PLAIN)

typedef void product_loop(const moth_product *p);

void moth_gemm_plain(const moth_product *p) {
  static product_loop *const rows[MOTH_DTYPES] = {MOTH_INT_ROWS(rows), MOTH_FLOAT_ROWS(rows)};
  static product_loop *const dots[MOTH_DTYPES] = {MOTH_INT_ROWS(dots), MOTH_FLOAT_ROWS(dots)};
  (p->cs_b == 1 && p->n > 1 ? rows : dots)[p->dtype](p);
}

/* -- tiles --
**
** A block of A (MC x KC) and a block of B (KC x NC) are copied so that the innermost loop reads
** both in order. A tile of C, MR x NR, stays in registers for all of KC. */

enum { MR = 4, MC = 96, KC = 256, NC = 512 };

#define TILED(name, type, NR)                                                                     \
  static void pack_a_##name(type *to, const type *a, int64_t m, int64_t k, int64_t rs,            \
                            int64_t cs) {                                                         \
    for (int64_t i = 0; i < m; i += MR)                                                           \
      for (int64_t l = 0; l < k; l++)                                                             \
        for (int64_t r = i; r < i + MR; r++) *to++ = r < m ? a[r * rs + l * cs] : 0;              \
  }                                                                                               \
  static void pack_b_##name(type *to, const type *b, int64_t k, int64_t n, int64_t rs,            \
                            int64_t cs) {                                                         \
    for (int64_t j = 0; j < n; j += NR)                                                           \
      for (int64_t l = 0; l < k; l++)                                                             \
        for (int64_t r = j; r < j + NR; r++) *to++ = r < n ? b[l * rs + r * cs] : 0;              \
  }                                                                                               \
  /* c += the tile of rows a and columns b; only m x n of it are written */                       \
  static void tile_##name(int64_t k, const type *a, const type *b, type *c, int64_t ldc,          \
                          int64_t m, int64_t n) {                                                 \
    type sum[MR][NR] = {{0}};                                                                     \
    for (int64_t l = 0; l < k; l++, a += MR, b += NR)                                             \
      for (int i = 0; i < MR; i++)                                                                \
        for (int j = 0; j < NR; j++) sum[i][j] += a[i] * b[j];                                    \
    for (int64_t i = 0; i < m; i++)                                                               \
      for (int64_t j = 0; j < n; j++) c[i * ldc + j] += sum[i][j];                                \
  }                                                                                               \
  static void block_##name(const moth_product *p, int64_t m, int64_t n, int64_t k, const type *a, \
                           const type *b, type *c) {                                              \
    for (int64_t j = 0; j < n; j += NR)                                                           \
      for (int64_t i = 0; i < m; i += MR)                                                         \
        tile_##name(k, a + i * k, b + j * k, c + i * p->ldc + j, p->ldc,                          \
                    m - i < MR ? m - i : MR, n - j < NR ? n - j : NR);                            \
  }                                                                                               \
  static int tiled_##name(moth_ctx *ctx, const moth_product *p, type *packed_a, type *packed_b) { \
    const type *a = (const type *)(const void *)p->a, *b = (const type *)(const void *)p->b;      \
    type *c = (type *)(void *)p->c;                                                               \
    for (int64_t i = 0; i < p->m && !p->beta; i++)                                                \
      for (int64_t j = 0; j < p->n; j++) c[i * p->ldc + j] = 0;                                   \
    for (int64_t j = 0; j < p->n; j += NC)                                                        \
      for (int64_t l = 0; l < p->k; l += KC) {                                                    \
        int64_t n = p->n - j < NC ? p->n - j : NC, k = p->k - l < KC ? p->k - l : KC;             \
        pack_b_##name(packed_b, b + l * p->rs_b + j * p->cs_b, k, n, p->rs_b, p->cs_b);           \
        for (int64_t i = 0; i < p->m; i += MC) {                                                  \
          int64_t m = p->m - i < MC ? p->m - i : MC;                                              \
          pack_a_##name(packed_a, a + i * p->rs_a + l * p->cs_a, m, k, p->rs_a, p->cs_a);         \
          block_##name(p, m, n, k, packed_a, packed_b, c + i * p->ldc + j);                       \
        }                                                                                         \
        if (moth_cancelled(ctx)) return moth_stopped(ctx);                                        \
      }                                                                                           \
    return MOTH_OK;                                                                               \
  }
TILED(f32, float, 8)
TILED(f64, double, 4)

int moth_gemm_tiled(moth_ctx *ctx, const moth_product *p) {
  int64_t size = moth_dtype_size[p->dtype], bytes_a = MC * KC * size, bytes_b = NC * KC * size;
  void *a = moth_alloc(ctx, bytes_a), *b = a ? moth_alloc(ctx, bytes_b) : NULL;
  int status = ctx->error.code;
  if (b) status = p->dtype == MOTH_F32 ? tiled_f32(ctx, p, a, b) : tiled_f64(ctx, p, a, b);
  if (b) moth_dealloc(ctx, b, bytes_b);
  if (a) moth_dealloc(ctx, a, bytes_a);
  return status;
}

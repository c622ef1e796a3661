/* igemm.c -- integer matrix products in tiles, after Goto and van de Geijn (2008). Sums wrap, so
** every order of additions returns the same bits. i8 and u8 are computed in 16 bits.
*/
#include "igemm.h"
#include "base/alloc.h"

#include "base/threads.h"
#include "kernel/math/elementwise.h"

enum { MR = 6, KC = 256, NC = 256, WIDEST = 64 }; /* WIDEST: columns of the widest tile */

#define LOOPS "kernel/gemm/igemm_level.h"
#include "kernel/all_levels.h"

typedef void tile_loop(int64_t k, const void *a, const void *b, void *to, int64_t ldc);

/* A packed block of B, and the columns of C that it computes. */
typedef struct block {
  const moth_product *p;
  tile_loop *tile;
  int64_t width;             /* columns of a tile */
  int64_t from, k, first, n; /* rows and columns of B */
  bool adds;                 /* adds to the elements of C */
  void *b;
} block;

#define PRODUCT(name, type, word)                                                              \
  static void pack_##name(int64_t first, int64_t last, int thread, const void *arg) {          \
    const block *o = arg;                                                                      \
    const moth_product *p = o->p;                                                              \
    (void)thread;                                                                              \
    for (int64_t t = first; t < last; t++) {                                                   \
      const int64_t left = o->n - t * o->width, n = left < o->width ? left : o->width;         \
      word *to = (word *)o->b + t * o->width * o->k;                                           \
      const type *b = (const type *)(const void *)p->b + o->from * p->rs_b +                   \
                      (o->first + t * o->width) * p->cs_b;                                     \
      for (int64_t l = 0; l < o->k; l++, b += p->rs_b, to += o->width) {                       \
        if (p->cs_b == 1)                                                                      \
          for (int64_t j = 0; j < n; j++) to[j] = (word)b[j];                                  \
        else                                                                                   \
          for (int64_t j = 0; j < n; j++) to[j] = (word)b[j * p->cs_b];                        \
        for (int64_t j = n; j < o->width; j++) to[j] = 0;                                      \
      }                                                                                        \
    }                                                                                          \
  }                                                                                            \
  static void rows_##name(int64_t first, int64_t last, int thread, const void *arg) {          \
    const block *o = arg;                                                                      \
    const moth_product *p = o->p;                                                              \
    word a[MR * KC], tile[MR * WIDEST];                                                        \
    (void)thread;                                                                              \
    for (int64_t t = first; t < last; t++) {                                                   \
      const int64_t m = p->m - t * MR < MR ? p->m - t * MR : MR;                               \
      const type *x = (const type *)(const void *)p->a + t * MR * p->rs_a + o->from * p->cs_a; \
      type *c = (type *)(void *)p->c + t * MR * p->ldc + o->first;                             \
      for (int64_t l = 0; l < o->k; l++)                                                       \
        for (int64_t i = 0; i < MR; i++)                                                       \
          a[l * MR + i] = i < m ? (word)x[i * p->rs_a + l * p->cs_a] : 0;                      \
      for (int64_t j = 0; j < o->n; j += o->width) {                                           \
        const int64_t n = o->n - j < o->width ? o->n - j : o->width;                           \
        o->tile(o->k, a, (const word *)o->b + j * o->k, tile, o->width);                       \
        for (int64_t i = 0; i < m; i++) {                                                      \
          type *restrict to = c + i * p->ldc + j;                                              \
          const word *restrict sum = tile + i * o->width;                                      \
          if (o->adds)                                                                         \
            for (int64_t s = 0; s < n; s++) to[s] = (type)(word)((word)to[s] + sum[s]);        \
          else                                                                                 \
            for (int64_t s = 0; s < n; s++) to[s] = (type)sum[s];                              \
        }                                                                                      \
      }                                                                                        \
    }                                                                                          \
  }
PRODUCT(u8, uint8_t, uint16_t)
PRODUCT(i8, int8_t, uint16_t)
PRODUCT(i16, int16_t, uint16_t)
PRODUCT(i32, int32_t, uint32_t)
PRODUCT(i64, int64_t, uint64_t)

/* Plain instructions are as fast for single products of 64 bits. */
bool moth_igemm_pays(const moth_product *p) {
  if (p->dtype == MOTH_I64 && moth_level() == MOTH_LEVEL_PLAIN) return false;
  return p->m >= 4 && p->n >= 8 && p->k >= 8 && (double)p->m * (double)p->n * (double)p->k > 4096;
}

int moth_igemm(moth_ctx *ctx, const moth_product *p) {
  static moth_work *const packs[MOTH_DTYPES] = {MOTH_INT_ROWS(pack)};
  static moth_work *const rows[MOTH_DTYPES] = {MOTH_INT_ROWS(rows)};
  const int64_t size = moth_dtype_size[p->dtype] < 2 ? 2 : moth_dtype_size[p->dtype];
  const int64_t bytes = (NC + WIDEST) * KC * size;
  const int level = moth_level();
  block o = {.p = p, .width = (level == MOTH_LEVEL_AVX512 ? 128 : level == MOTH_LEVEL_AVX2 ? 64
                                                                                           : 32) /
                              size};
  o.tile = size == 2 ? MOTH_BEST(tile_16) : size == 4 ? MOTH_BEST(tile_32) : MOTH_BEST(tile_64);
  o.b = moth_alloc(ctx, bytes);
  int status = o.b ? MOTH_OK : ctx->error.code;
  for (o.first = 0; o.first < p->n && !status; o.first += NC) {
    o.n = p->n - o.first < NC ? p->n - o.first : NC;
    const int64_t tiles = (o.n + o.width - 1) / o.width, panels = (p->m + MR - 1) / MR;
    for (o.from = 0; o.from < p->k && !status; o.from += KC) {
      o.k = p->k - o.from < KC ? p->k - o.from : KC;
      o.adds = p->beta || o.from > 0;
      const double each = (double)(o.k * o.width);
      status = moth_parallel(ctx, tiles, 1, each, packs[p->dtype], &o);
      if (!status)
        status = moth_parallel(ctx, panels, 1, 0.5 * each * (double)tiles, rows[p->dtype], &o);
    }
  }
  if (o.b) moth_dealloc(ctx, o.b, bytes);
  return status;
}

/* half_product.c -- products of f16 and bf16, summed in f32 and rounded once.
**
** B is packed in panels of at most 64 columns, A is read in blocks of 48 rows. A block times a
** panel is summed in f32 in a small buffer; then the bias is added and the result is rounded into
** C. The code computes A B or its transpose B' A', whichever packs less. An operand whose elements
** are contiguous along k is read in place.
*/
#include "half_product.h"
#include "base/alloc.h"

#include "base/threads.h"
#include "matrix.h"
#include "bf16_product.h"

#define BLOCK_ROWS 48 /* rows of a block, a multiple of the height of each tile */
#define WIDE MOTH_BF16_PANEL
#define BF16_DEPTH 1024 /* bf16 products along k in one pass over a block of C */
/* the same for operands converted to float, which have a separate buffer */
#define FLOATS_DEPTH 768
#define MOST_WORDS (1 << 20) /* maximal number of words of B that are packed at a time */
/* Operations of a thread per ns, which decide how work is divided. Measured on a Zen 5. AMX
** multiplies up to 350 per ns, but only in products that are divided at either rate. */
#define BF16_PER_NS 200.0  /* multiply-adds of bf16 */
#define FLOATS_PER_NS 90.0 /* multiply-adds of floats */
#define PACKED_PER_NS 6.0  /* numbers packed */
#define ALONE_NS 3000.0    /* shorter work is not divided among threads */

typedef struct halves {
  moth_product p; /* the product as given, or its transpose */
  bool transposed, pairs, packs_a;
  int64_t words, depth; /* rows of a packed matrix: k, or pairs of k; rows of a part */
  int64_t blocks;       /* blocks of rows */
  int64_t columns, at;  /* columns at a time; the first of these, `at`, */
  int64_t n, panels;    /* ... their number, and the number of panels */
  int64_t thread_floats, a_words, b_words; /* sizes of buffers */
  float *scratch;       /* thread_floats for each thread */
  uint32_t *a, *b;
} halves;

/* -- A B or B' A' -- */

static moth_product turned_form(const moth_product *p) {
  moth_product q = *p;
  q.m = p->n, q.a = p->b, q.rs_a = p->cs_b, q.cs_a = p->rs_b;
  q.n = p->m, q.b = p->a, q.rs_b = p->cs_a, q.cs_b = p->rs_a;
  return q;
}

static const uint16_t *numbers(const char *at) { return (const uint16_t *)(const void *)at; }

/* The number of elements to pack. */
static double effort(const moth_product *p, bool pairs) {
  double b = moth_bf16_pack_cost(numbers(p->b), p->rs_b, p->cs_b), k = (double)p->k;
  double a = p->cs_a == 1 || !pairs ? 0
                                    : moth_bf16_pack_cost(numbers(p->a), p->cs_a, p->rs_a);
  int64_t n = (p->n + 15) / 16 * 16;
  return k * (double)n * b + k * (double)p->m * a;
}

static int64_t panels_of(int64_t n) { return (n + WIDE - 1) / WIDE; }

/* The start of panel j, in vectors of 16 columns. */
static int64_t panel_at(const halves *h, int64_t j) { return (h->n + 15) / 16 * j / h->panels; }

static void take_columns(halves *h, int64_t at) {
  h->at = at;
  h->n = h->p.n - at < h->columns ? h->p.n - at : h->columns;
  h->panels = panels_of(h->n);
}

static halves planned(const moth_product *given) {
  moth_product p = *given;
  if (p.k == 1) p.cs_a = p.rs_b = 1; /* these steps are not used; any value will do */
  if (p.n == 1 && p.cs_b == 1 && p.rs_b != 1) p.cs_b = p.k;
  halves h = {.pairs = p.dtype == MOTH_BF16 && moth_bf16_here()};
  const moth_product q = turned_form(&p);
  h.transposed = effort(&q, h.pairs) + (double)p.m * (double)p.n < effort(&p, h.pairs);
  h.p = h.transposed ? q : p;
  h.packs_a = h.pairs && h.p.cs_a != 1;
  h.words = h.pairs ? (p.k + 1) / 2 : p.k;
  h.depth = h.pairs ? BF16_DEPTH : FLOATS_DEPTH;
  h.blocks = (h.p.m + BLOCK_ROWS - 1) / BLOCK_ROWS;
  h.columns = MOST_WORDS / (h.words + 1) / WIDE * WIDE;
  if (h.columns < WIDE) h.columns = WIDE;
  if (h.columns > h.p.n) h.columns = h.p.n;
  h.b_words = (h.columns + 15) / 16 * 16 * h.words;
  h.a_words = h.packs_a ? h.p.m * h.words : 0;
  h.thread_floats = h.pairs ? 0 : WIDE * FLOATS_DEPTH;
  take_columns(&h, 0);
  return h;
}

/* -- packing -- */

static const char *element(const char *x, int64_t i) { return x + 2 * i; }

/* to[t * w + j] := w columns of B as floats. `to` has WIDE * FLOATS_DEPTH elements. */
static void widen_panel(const halves *h, float *to, const char *b, int64_t w, float *scratch) {
  const int64_t k = h->p.k, rs = h->p.rs_b, cs = h->p.cs_b;
  if (rs != 1 || cs == 1) {
    for (int64_t t = 0; t < k; t++)
      moth_convert(w, h->p.dtype, element(b, t * rs), 2 * cs, MOTH_F32, (char *)(to + t * w), 4);
    return;
  }
  for (int64_t t = 0; t < k; t += FLOATS_DEPTH) {
    int64_t n = k - t < FLOATS_DEPTH ? k - t : FLOATS_DEPTH;
    for (int64_t j = 0; j < w; j++)
      moth_convert(n, h->p.dtype, element(b, t + j * cs), 2, MOTH_F32, (char *)(scratch + j * n),
                   4);
    moth_matrix_transpose_panel(to + t * w, w, scratch, n, w, n);
  }
}

static void pack_b(int64_t first, int64_t last, int thread, const void *arg) {
  const halves *h = arg;
  for (int64_t j = first; j < last; j++) {
    int64_t v = panel_at(h, j), wide = (panel_at(h, j + 1) - v) * 16, column = v * 16;
    int64_t w = h->n - column < wide ? h->n - column : wide;
    uint32_t *to = h->b + column * h->words;
    const char *b = element(h->p.b, (h->at + column) * h->p.cs_b);
    if (h->pairs)
      moth_bf16_pack(to, wide, numbers(b), h->p.k, h->p.rs_b, h->p.cs_b, w, wide);
    else
      widen_panel(h, (float *)(void *)to, b, w, h->scratch + thread * h->thread_floats);
  }
}

static int64_t block_rows(const halves *h, int64_t block) {
  int64_t rest = h->p.m - block * BLOCK_ROWS;
  return rest < BLOCK_ROWS ? rest : BLOCK_ROWS;
}

static void pack_a(int64_t first, int64_t last, int thread, const void *arg) {
  const halves *h = arg;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    int64_t rows = block_rows(h, i);
    const char *a = element(h->p.a, i * BLOCK_ROWS * h->p.rs_a);
    uint32_t *to = h->a + i * BLOCK_ROWS * h->words;
    if (moth_bf16_by_rows())
      moth_bf16_pack_rows(to, h->words, numbers(a), h->p.k, h->p.cs_a, h->p.rs_a, rows);
    else
      moth_bf16_pack(to, rows, numbers(a), h->p.k, h->p.cs_a, h->p.rs_a, rows, rows);
  }
}

/* -- a block of rows times a panel -- */

typedef struct square {
  int64_t block, rows, column, w, wide; /* wide: w rounded up to whole vectors */
  const uint32_t *b;
  float *c, *scratch; /* c: rows are WIDE apart */
} square;

static void sum_bf16(const halves *h, const square *s, int64_t t, int64_t n) {
  moth_bf16_product q = {.m = s->rows, .k = n / 2, .odd = n % 2, .nv = (int)(s->wide / 16),
                  .b = s->b + t / 2 * s->wide, .c = s->c, .ldc = WIDE, .add = t > 0};
  if (h->packs_a) {
    const bool rows = moth_bf16_by_rows();
    const uint32_t *a = h->a + s->block * BLOCK_ROWS * h->words + t / 2 * (rows ? 1 : s->rows);
    q.a = (const uint16_t *)(const void *)a;
    q.rs = rows ? 2 * h->words : 2;
    q.cs = rows ? 2 : 2 * s->rows;
  } else {
    q.a = numbers(element(h->p.a, s->block * BLOCK_ROWS * h->p.rs_a + t));
    q.rs = h->p.rs_a;
    q.cs = 2;
  }
  moth_bf16_run(&q);
}

/* Converts A's block of n numbers along k: rows of A, or columns if A is transposed. */
static void widen_block(const halves *h, const square *s, int64_t t, int64_t n) {
  const int64_t rs = h->p.rs_a, cs = h->p.cs_a;
  const char *a = element(h->p.a, s->block * BLOCK_ROWS * rs + t * cs);
  bool columns = rs == 1 && cs != 1;
  int64_t lines = columns ? n : s->rows, length = columns ? s->rows : n;
  for (int64_t i = 0; i < lines; i++)
    moth_convert(length, h->p.dtype, element(a, i * (columns ? cs : rs)), 2 * (columns ? rs : cs),
                 MOTH_F32, (char *)(s->scratch + i * length), 4);
}

static void sum_floats(const halves *h, const square *s, int64_t t, int64_t n) {
  bool columns = h->p.rs_a == 1 && h->p.cs_a != 1;
  moth_matrix_run(&(moth_matrix){
    .m = s->rows, .n = s->w, .k = n, .a = s->scratch, .rs = columns ? 1 : n,
    .cs = columns ? s->rows : 1, .b = (const float *)(const void *)s->b + t * s->w, .ldb = s->w,
    .c = s->c, .ldc = WIDE, .add = t > 0});
}

/* Negative numbers become 0. Their bits are between those of -0 and -inf. */
static void relu(uint16_t *x, int64_t n, int dtype) {
  const int above = 0x8000, last = dtype == MOTH_F16 ? 0xfc00 : 0xff80;
  for (int64_t i = 0; i < n; i++) x[i] = x[i] > above && x[i] <= last ? 0 : x[i];
}

/* Rounds the sums into C. c has space for their transpose, too. */
static void finish(const halves *h, const square *s) {
  int64_t row = s->block * BLOCK_ROWS, column = h->at + s->column, rows = s->rows, w = s->w,
          step = WIDE;
  float *c = s->c, other[WIDE];
  if (h->transposed) {
    c += BLOCK_ROWS * WIDE, step = BLOCK_ROWS;
    moth_matrix_transpose_panel(c, step, s->c, w, rows, WIDE);
    int64_t i = row, n = rows;
    row = column, column = i, rows = w, w = n;
  }
  const moth_product *p = &h->p;
  if (p->bias)
    moth_convert(w, p->dtype, element(p->bias, column), 2, MOTH_F32, (char *)other, 4);
  for (int64_t i = 0; i < rows; i++, c += step) {
    char *to = p->c + 2 * ((row + i) * p->ldc + column);
    if (p->bias)
      for (int64_t j = 0; j < w; j++) c[j] += other[j];
    if (p->beta) {
      float old[WIDE];
      moth_convert(w, p->dtype, to, 2, MOTH_F32, (char *)old, 4);
      for (int64_t j = 0; j < w; j++) c[j] += old[j];
    }
    moth_convert(w, MOTH_F32, (const char *)c, 4, p->dtype, to, 2);
    if (p->relu) relu((uint16_t *)(void *)to, w, p->dtype);
  }
}

static void multiply(const halves *h, int64_t block, int64_t first, int64_t last, int thread) {
  float c[2 * BLOCK_ROWS * WIDE] __attribute__((aligned(64)));
  square s = {.block = block, .rows = block_rows(h, block), .c = c,
              .scratch = h->scratch + thread * h->thread_floats};
  bool once = h->p.k <= h->depth;
  for (int64_t j = first; j < last; j++) {
    s.column = panel_at(h, j) * 16;
    s.wide = panel_at(h, j + 1) * 16 - s.column;
    s.w = h->n - s.column < s.wide ? h->n - s.column : s.wide;
    s.b = h->b + s.column * h->words;
    for (int64_t t = 0; t < h->p.k || t == 0; t += h->depth) {
      int64_t n = h->p.k - t < h->depth ? h->p.k - t : h->depth;
      if (!h->pairs && (!once || j == first)) widen_block(h, &s, t, n);
      if (h->pairs) sum_bf16(h, &s, t, n);
      else sum_floats(h, &s, t, n);
    }
    finish(h, &s);
    moth_pause();
  }
}

/* -- whole products -- */

static void by_blocks(int64_t first, int64_t last, int thread, const void *arg) {
  const halves *h = arg;
  for (int64_t i = first; i < last; i++) multiply(h, i, 0, h->panels, thread);
}

static void by_panels(int64_t first, int64_t last, int thread, const void *arg) {
  const halves *h = arg;
  for (int64_t i = 0; i < h->blocks; i++) multiply(h, i, first, last, thread);
}

static int64_t scratch_floats(const halves *h, int64_t lanes) {
  return (lanes * h->thread_floats + h->a_words + h->b_words + 15) / 16 * 16;
}

/* Sets the buffers to parts of scratch, which has scratch_floats(h, lanes) floats. */
static void settle(halves *h, float *scratch, int64_t lanes) {
  h->scratch = scratch;
  h->b = (uint32_t *)(void *)(scratch + lanes * h->thread_floats);
  h->a = h->b + h->b_words;
}

static void alone(halves *h) {
  if (h->packs_a) pack_a(0, h->blocks, 0, h);
  for (int64_t j = 0; j < h->p.n; j += h->columns) {
    take_columns(h, j);
    pack_b(0, h->panels, 0, h);
    by_blocks(0, h->blocks, 0, h);
  }
}

static double time_of(const moth_product *p, bool pairs) {
  double numbers_packed = (double)p->k * (double)(p->m < p->n ? p->m : p->n);
  return (double)p->m * (double)p->n * (double)p->k / (pairs ? BF16_PER_NS : FLOATS_PER_NS) +
         numbers_packed / PACKED_PER_NS;
}

static int shared(moth_ctx *ctx, halves *h) {
  int status = MOTH_OK;
  if (h->packs_a)
    status =
        moth_parallel(ctx, h->blocks, 1, BLOCK_ROWS * (double)h->p.k / PACKED_PER_NS, pack_a, h);
  for (int64_t j = 0; j < h->p.n && !status; j += h->columns) {
    take_columns(h, j);
    status = moth_parallel(ctx, h->panels, 1, WIDE * (double)h->p.k / PACKED_PER_NS, pack_b, h);
    bool rows = h->blocks >= h->panels || h->blocks >= 2 * moth_lanes(ctx);
    int64_t items = rows ? h->blocks : h->panels;
    double ns = (double)h->p.m * (double)h->n * (double)h->p.k /
                (h->pairs ? BF16_PER_NS : FLOATS_PER_NS);
    if (!status)
      status = moth_parallel(ctx, items, moth_grain(ctx, items), ns / (double)items,
                             rows ? by_blocks : by_panels, h);
  }
  return status;
}

int moth_half_product(moth_ctx *ctx, const moth_product *p) {
  halves h = planned(p);
  bool little = time_of(p, h.pairs) < ALONE_NS;
  int64_t lanes = little ? 1 : moth_lanes(ctx), bytes = scratch_floats(&h, lanes) * 4;
  float *scratch = moth_alloc(ctx, bytes);
  if (!scratch) return ctx->error.code;
  settle(&h, scratch, lanes);
  int status = MOTH_OK;
  if (little) alone(&h);
  else status = shared(ctx, &h);
  moth_dealloc(ctx, scratch, bytes);
  return status;
}

/* -- batches -- */

typedef struct many {
  moth_product p;
  const moth_batch *batch;
  float *scratch;
  int64_t each;
} many;

static void batch_part(int64_t first, int64_t last, int thread, const void *arg) {
  const many *w = arg;
  for (int64_t i = first; i < last; i++) {
    moth_product q = moth_batch_product(&w->p, w->batch, i);
    halves h = planned(&q);
    settle(&h, w->scratch + thread * w->each, 1);
    alone(&h);
  }
}

/* The largest buffer that a product of the batch needs. The method depends on the layout. */
static int64_t most_scratch(const moth_product *p) {
  int64_t words = p->k, m = (p->m + 15) / 16 * 16, n = (p->n + 15) / 16 * 16;
  return (m + n) * words + WIDE * FLOATS_DEPTH + 16;
}

int moth_half_product_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch,
                      int64_t count) {
  bool pairs = p->dtype == MOTH_BF16 && moth_bf16_here();
  double ns = time_of(p, pairs);
  many w = {.p = *p, .batch = batch, .each = most_scratch(p)};
  if (count == 1 || w.each > MOST_WORDS || (ns > 1e5 && count < 4 * moth_lanes(ctx))) {
    int status = MOTH_OK;
    for (int64_t i = 0; i < count && !status; i++) {
      moth_product q = moth_batch_product(p, batch, i);
      status = moth_half_product(ctx, &q);
    }
    return status;
  }
  int64_t bytes = w.each * moth_lanes(ctx) * 4;
  if (!(w.scratch = moth_alloc(ctx, bytes))) return ctx->error.code;
  int status = moth_parallel(ctx, count, 1, ns + 40, batch_part, &w);
  moth_dealloc(ctx, w.scratch, bytes);
  return status;
}

/* attention.c -- blocks of queries times blocks of keys, forward and backward (the tiling of Dao et
** al. 2022). Keys and values are packed first, so that all products read contiguous rows. A block
** of scores stays in L1. attention_real.h has the loops over a block; they are compiled for f64
** once and for f32 at several levels.
*/
#include "attention.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include <math.h>

#include "vendor/blas.h"
#include "base/threads.h"
#include "kernel/math/exp_f64.h"
#include "kernel/gemm/matrix.h"

#define QUERIES 36  /* queries of a block: six tiles of a product */
#define KEYS 128 /* keys of a block */

typedef struct block {
  const moth_attention *p;
  int64_t batch, row, rows, col, cols;
  void *scores, *other; /* (rows, cols); other: the gradient of the scores */
  void *max, *sum;      /* (rows); sum: of exp(score), or of dy * y */
  void *y;              /* (rows, v), the sum of weighted values */
} block;

typedef struct attention_level {
  void (*add_scores)(const block *);
  void (*divide)(const block *, char *, char *);
  void (*weigh)(const block *, const char *);
  void (*dots)(const block *, const char *, const char *);
  void (*score_grad)(const block *);
} attention_level;

#define LOOPS "kernel/attention_real.h"
#include "each_level.h"

static const attention_level *level_for(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

/* -- layout -- */

typedef struct matrix {
  const char *at;
  int64_t rs, cs;
} matrix;

/* The matrix of a batch, from row `row` on. */
static matrix part(const moth_attention *p, const moth_matrices *m, int64_t batch, int64_t row) {
  int64_t size = moth_dtype_size[p->dtype];
  return (matrix){m->data + (m->at[batch] + row * m->rs) * size, m->rs, m->cs};
}

static matrix packed(const void *at, int64_t cols) { return (matrix){at, cols, 1}; }
static matrix transposed(matrix m) { return (matrix){m.at, m.cs, m.rs}; }

/* C := A B + beta C; the rows of B and C are contiguous. */
static void product(int dtype, int64_t m, int64_t n, int64_t k, matrix a, matrix b, void *c,
                    int beta) {
  moth_multiply_inside(&(moth_product){.dtype = dtype, .beta = beta, .m = m, .n = n, .k = k,
                                       .a = a.at, .b = b.at, .rs_a = a.rs, .cs_a = a.cs,
                                       .rs_b = b.rs, .cs_b = b.cs, .c = c, .ldc = n});
}

/* to := x (rows, cols), packed. */
static void pack(int dtype, int64_t rows, int64_t cols, matrix x, char *to) {
  int64_t size = moth_dtype_size[dtype];
  for (int64_t i = 0; i < rows; i++)
    moth_convert(cols, dtype, x.at + i * x.rs * size, x.cs * size, dtype, to + i * cols * size,
                 size);
}

/* to := x' (cols, rows), packed. */
static void pack_transposed(int dtype, int64_t rows, int64_t cols, matrix x, char *to) {
  if (dtype == MOTH_F32 && x.cs == 1 && moth_matrix_here())
    moth_matrix_transpose_panel((float *)(void *)to, rows, (const float *)(const void *)x.at, cols,
                                rows, x.rs);
  else
    pack(dtype, cols, rows, transposed(x), to);
}

/* Buffers of one thread. Keys and values of a batch are in blocks of KEYS keys; a block is
** transposed, (e, KEYS), or has a row for each key. The rest is for one block of queries: the
** queries, the scores and the gradient of the scores. */
typedef struct scratch {
  block b;
  int64_t batch; /* the batch whose keys and values are packed; -1: none */
  char *keys_transposed, *values_transposed, *keys, *values, *query;
} scratch;

typedef struct job {
  const moth_attention *p;
  const attention_level *level;
  scratch *scratches;
  int64_t blocks; /* blocks of queries in a batch */
} job;

static int64_t blocks_of(int64_t n, int64_t of) { return (n + of - 1) / of; }

/* Allocates the buffers of all threads in one piece, which starts with the `scratch` structs. */
static int scratch_open(moth_ctx *ctx, job *j, bool back, int64_t *bytes) {
  const moth_attention *p = j->p;
  int64_t size = moth_dtype_size[p->dtype], lanes = moth_lanes(ctx), each, more;
  int64_t keys = blocks_of(p->s, KEYS) * KEYS, scores = QUERIES * KEYS;
  bool over = moth_mul_overflow(keys, back ? 2 * p->e + p->v : p->e + p->v, &each) ||
              moth_add_overflow(each, 2 * scores + 2 * QUERIES + QUERIES * (p->e + p->v), &each) ||
              moth_mul_overflow(each, size, &each) || moth_add_overflow(each, 63, &each) ||
              moth_mul_overflow(each / 64 * 64 + (int64_t)sizeof(scratch), lanes, bytes);
  if (over) return moth_fail(ctx, MOTH_E_LIMIT, "key", "too many keys");
  j->scratches = moth_alloc(ctx, *bytes);
  if (!j->scratches) return ctx->error.code;
  more = each / 64 * 64;
  for (int64_t i = 0; i < lanes; i++) {
    char *at = (char *)(j->scratches + lanes) + i * more;
    scratch *r = &j->scratches[i];
    *r = (scratch){.batch = -1, .b = {.p = p}};
    r->b.scores = at;
    r->b.other = at + scores * size;
    r->b.max = at + 2 * scores * size;
    r->b.sum = at + (2 * scores + QUERIES) * size;
    r->query = at + (2 * scores + 2 * QUERIES) * size;
    r->b.y = r->query + QUERIES * p->e * size;
    r->keys_transposed = (char *)r->b.y + QUERIES * p->v * size;
    r->values = r->values_transposed = r->keys_transposed + keys * p->e * size;
    r->keys = r->values + keys * p->v * size;
  }
  return MOTH_OK;
}

/* The first row of the block in y, or in a tensor with the layout of y. */
static const char *rows_of(const block *b, const char *y) {
  const moth_attention *p = b->p;
  return y + (p->y_at[b->batch] + b->row * p->y_rs) * moth_dtype_size[p->dtype];
}

/* The first element of the block in a buffer of blocks of KEYS keys, with `width` elements for each
** key. */
static char *block_at(const block *b, char *at, int64_t width) {
  return at + b->col * width * moth_dtype_size[b->p->dtype];
}

/* The number of keys that the last query of the block may use. */
static int64_t keys_seen(const block *b) {
  int64_t last = b->row + b->rows;
  return b->p->causal && last < b->p->s ? last : b->p->s;
}

static void set_all(int dtype, void *at, int64_t n, double value) {
  for (int64_t i = 0; i < n; i++)
    if (dtype == MOTH_F32) ((float *)at)[i] = (float)value;
    else ((double *)at)[i] = value;
}

/* -- forward -- */

/* Packs the keys and values of a batch. */
static void scratch_fill(const job *j, scratch *r, int64_t batch, bool back) {
  const moth_attention *p = j->p;
  block *b = &r->b;
  b->batch = r->batch = batch;
  for (b->col = 0; b->col < p->s; b->col += KEYS) {
    matrix k = part(p, &p->key, batch, b->col), v = part(p, &p->value, batch, b->col);
    b->cols = p->s - b->col < KEYS ? p->s - b->col : KEYS;
    pack_transposed(p->dtype, b->cols, p->e, k, block_at(b, r->keys_transposed, p->e));
    if (back) pack(p->dtype, b->cols, p->e, k, block_at(b, r->keys, p->e));
    if (back) pack_transposed(p->dtype, b->cols, p->v, v, block_at(b, r->values_transposed, p->v));
    else pack(p->dtype, b->cols, p->v, v, block_at(b, r->values, p->v));
  }
}

static void scores_of(const scratch *r) {
  const block *b = &r->b;
  const moth_attention *p = b->p;
  product(p->dtype, b->rows, b->cols, p->e, part(p, &p->query, b->batch, b->row),
          packed(block_at(b, r->keys_transposed, p->e), b->cols), b->scores, 0);
}

static void rows_forward(const job *j, scratch *r) {
  block *b = &r->b;
  const moth_attention *p = b->p;
  int64_t keys = keys_seen(b), size = moth_dtype_size[p->dtype];
  int64_t first = b->batch * p->l + b->row;
  set_all(p->dtype, b->max, b->rows, -INFINITY);
  set_all(p->dtype, b->sum, b->rows, 0);
  set_all(p->dtype, b->y, b->rows * p->v, 0);
  for (b->col = 0; b->col < keys; b->col += KEYS) {
    b->cols = p->s - b->col < KEYS ? p->s - b->col : KEYS;
    scores_of(r);
    j->level->add_scores(b);
    product(p->dtype, b->rows, p->v, b->cols, packed(b->scores, b->cols),
            packed(block_at(b, r->values, p->v), p->v), b->y, 1);
  }
  j->level->divide(b, p->lse + first * size, (char *)(uintptr_t)rows_of(b, p->y));
}

static void block_of_rows(block *b, int64_t row) {
  b->row = row;
  b->rows = b->p->l - row < QUERIES ? b->p->l - row : QUERIES;
}

/* An item is a block of queries of a batch. */
static void forward_work(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  scratch *r = &j->scratches[thread];
  for (int64_t i = first; i < last; i++) {
    if (r->batch != i / j->blocks) scratch_fill(j, r, i / j->blocks, false);
    block_of_rows(&r->b, i % j->blocks * QUERIES);
    rows_forward(j, r);
  }
}

/* Estimated ns of a block of queries: 100 multiplications per ns, and the exponentials. */
static double row_cost(const moth_attention *p) {
  double pairs = (double)(p->l < QUERIES ? p->l : QUERIES) * (double)p->s * (p->causal ? 0.5 : 1);
  return pairs * ((double)(p->e + p->v) / 100 + 0.3);
}

int moth_attention_run(moth_ctx *ctx, const moth_attention *p) {
  job j = {.p = p, .level = level_for(p->dtype), .blocks = blocks_of(p->l, QUERIES)};
  int64_t bytes;
  int status = scratch_open(ctx, &j, false, &bytes);
  if (status) return status;
  status = moth_parallel(ctx, p->batches * j.blocks, 1, row_cost(p), forward_work, &j);
  moth_dealloc(ctx, j.scratches, bytes);
  return status;
}

/* -- backward -- */

/* Adds the gradients that a block of scores contributes to query, key and value. */
static void block_back(const job *j, scratch *r, matrix dy) {
  block *b = &r->b;
  const moth_attention *p = b->p;
  int64_t size = moth_dtype_size[p->dtype], n = b->cols, m = b->rows;
  char *dv = p->dvalue + (p->dvalue_at[b->batch] + b->col * p->v) * size;
  char *dk = p->dkey + (p->dkey_at[b->batch] + b->col * p->e) * size;
  char *dq = p->dquery + (p->dquery_at[b->batch] + b->row * p->e) * size;
  matrix weights = packed(b->scores, n), ds = packed(b->other, n);
  scores_of(r);
  j->level->weigh(b, p->lse + (b->batch * p->l + b->row) * size);
  product(p->dtype, n, p->v, m, transposed(weights), dy, dv, 1);
  product(p->dtype, m, n, p->v, dy, packed(block_at(b, r->values_transposed, p->v), n), b->other,
          0);
  j->level->score_grad(b);
  product(p->dtype, m, p->e, n, ds, packed(block_at(b, r->keys, p->e), p->e), dq, 1);
  product(p->dtype, n, p->e, m, transposed(ds), packed(r->query, p->e), dk, 1);
}

/* An item is a batch, because the gradients of keys and values are sums over all queries. */
static void back_work(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_attention *p = j->p;
  scratch *r = &j->scratches[thread];
  block *b = &r->b;
  for (int64_t batch = first; batch < last; batch++) {
    scratch_fill(j, r, batch, true);
    for (int64_t row = 0; row < p->l; row += QUERIES) {
      block_of_rows(b, row);
      const int64_t keys = keys_seen(b);
      const char *dy = rows_of(b, p->dy);
      pack(p->dtype, b->rows, p->e, part(p, &p->query, batch, row), r->query);
      j->level->dots(b, dy, rows_of(b, p->y));
      for (b->col = 0; b->col < keys; b->col += KEYS) {
        b->cols = p->s - b->col < KEYS ? p->s - b->col : KEYS;
        block_back(j, r, (matrix){dy, p->y_rs, 1});
        moth_pause();
      }
    }
  }
}

/* True if batches share a gradient, for example if keys are broadcast. */
static bool is_shared(const int64_t *at, int64_t batches) {
  for (int64_t i = 1; i < batches; i++)
    if (at[i] <= at[i - 1]) return true;
  return false;
}

int moth_attention_back(moth_ctx *ctx, const moth_attention *p) {
  job j = {.p = p, .level = level_for(p->dtype), .blocks = blocks_of(p->l, QUERIES)};
  int64_t bytes, n = p->batches;
  int status = scratch_open(ctx, &j, true, &bytes);
  if (status) return status;
  bool alone = is_shared(p->dquery_at, n) || is_shared(p->dkey_at, n) || is_shared(p->dvalue_at, n);
  double cost = row_cost(p) * (double)j.blocks * 2.5;
  status = moth_parallel(ctx, n, alone ? n : 1, cost, back_work, &j);
  moth_dealloc(ctx, j.scratches, bytes);
  return status;
}

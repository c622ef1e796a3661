/* attention.c -- blocks of queries against blocks of keys, forward and backward. The loops over a
** block stand in attention_real.h and are compiled for f64 once and for f32 at several levels.
*/
#include "attention.h"

#include <math.h>

#include "../blas.h"
#include "exp.h"

#define ROWS 64  /* queries at a time */
#define COLS 256 /* keys at a time */

typedef struct block {
  const moth_attention *p;
  int64_t batch, row, rows, col, cols;
  void *scores, *other; /* (rows, cols) */
  void *max, *sum;      /* (rows) */
  void *y;              /* (rows, v), gathering */
} block;

typedef struct attention_level {
  void (*take_in)(const block *);
  void (*divide)(const block *, char *);
  void (*weigh)(const block *, const char *);
  void (*dots)(int64_t, int64_t, const char *, const char *, void *);
  void (*score_grad)(const block *);
} attention_level;

#define LOOPS "attention_real.h"
#include "each_level.h"

static const attention_level *level_for(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

/* -- products -- */

typedef struct matrix {
  const char *at;
  int64_t rs, cs;
} matrix;

/* A part of a batch's matrix, from a row on. */
static matrix part(const moth_attention *p, const moth_matrices *m, int64_t batch, int64_t row) {
  int64_t size = moth_dtype_size[p->dtype];
  return (matrix){m->data + (m->at[batch] + row * m->rs) * size, m->rs, m->cs};
}

static matrix packed(const void *at, int64_t cols) { return (matrix){at, cols, 1}; }
static matrix turned(matrix m) { return (matrix){m.at, m.cs, m.rs}; }

static int product(moth_ctx *ctx, int dtype, int64_t m, int64_t n, int64_t k, matrix a, matrix b,
                   void *c, int beta) {
  return moth_gemm(ctx, dtype, m, n, k, a.at, a.rs, a.cs, b.at, b.rs, b.cs, c, n, beta);
}

/* -- room -- */

typedef struct room {
  moth_ctx *ctx;
  char *at;
  int64_t bytes;
} room;

/* Scores twice, and a row of numbers twice. */
static int room_new(room *r, block *b, moth_ctx *ctx, const moth_attention *p) {
  int64_t size = moth_dtype_size[p->dtype];
  *r = (room){.ctx = ctx, .bytes = (2 * ROWS * COLS + 2 * ROWS) * size};
  r->at = moth_alloc(ctx, r->bytes);
  if (!r->at) return ctx->error.code;
  b->p = p;
  b->scores = r->at;
  b->other = r->at + ROWS * COLS * size;
  b->max = r->at + 2 * ROWS * COLS * size;
  b->sum = r->at + (2 * ROWS * COLS + ROWS) * size;
  return MOTH_OK;
}

/* How many keys the block's last query may see. */
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

static int scores_of(moth_ctx *ctx, const block *b) {
  const moth_attention *p = b->p;
  return product(ctx, p->dtype, b->rows, b->cols, p->e, part(p, &p->query, b->batch, b->row),
                 turned(part(p, &p->key, b->batch, b->col)), b->scores, 0);
}

static int rows_forward(moth_ctx *ctx, const attention_level *level, block *b) {
  const moth_attention *p = b->p;
  int64_t keys = keys_seen(b), size = moth_dtype_size[p->dtype];
  int64_t first = b->batch * p->l + b->row;
  int status = MOTH_OK;
  b->y = p->y + first * p->v * size;
  set_all(p->dtype, b->max, b->rows, -INFINITY);
  set_all(p->dtype, b->sum, b->rows, 0);
  set_all(p->dtype, b->y, b->rows * p->v, 0);
  for (b->col = 0; b->col < keys && !status; b->col += COLS) {
    b->cols = keys - b->col < COLS ? keys - b->col : COLS;
    status = scores_of(ctx, b);
    if (status) break;
    level->take_in(b);
    status = product(ctx, p->dtype, b->rows, p->v, b->cols, packed(b->scores, b->cols),
                     part(p, &p->value, b->batch, b->col), b->y, 1);
  }
  if (!status) level->divide(b, p->lse + first * size);
  return status;
}

typedef int (*row_work)(moth_ctx *ctx, const attention_level *level, block *b);

/* Does the work for each block of rows in turn. */
static int each_rows(moth_ctx *ctx, const moth_attention *p, row_work work) {
  room r;
  block b = {.p = p};
  int status = room_new(&r, &b, ctx, p);
  const attention_level *level = level_for(p->dtype);
  for (b.batch = 0; b.batch < p->batches && !status; b.batch++)
    for (b.row = 0; b.row < p->l && !status; b.row += ROWS) {
      b.rows = p->l - b.row < ROWS ? p->l - b.row : ROWS;
      status = moth_cancelled(ctx) ? moth_poll(ctx) : work(ctx, level, &b);
    }
  if (r.at) moth_dealloc(ctx, r.at, r.bytes);
  return status;
}

int moth_attention_run(moth_ctx *ctx, const moth_attention *p) {
  return each_rows(ctx, p, rows_forward);
}

/* -- backward -- */

/* The block's share in the gradients of query, key and value. */
static int block_back(moth_ctx *ctx, const attention_level *level, block *b, matrix dy) {
  const moth_attention *p = b->p;
  int64_t size = moth_dtype_size[p->dtype], n = b->cols, m = b->rows;
  char *dv = p->dvalue + (p->dvalue_at[b->batch] + b->col * p->v) * size;
  char *dk = p->dkey + (p->dkey_at[b->batch] + b->col * p->e) * size;
  char *dq = p->dquery + (p->dquery_at[b->batch] + b->row * p->e) * size;
  matrix weights = packed(b->scores, n), ds = packed(b->other, n);
  int status = scores_of(ctx, b);
  if (status) return status;
  level->weigh(b, p->lse + (b->batch * p->l + b->row) * size);
  status = product(ctx, p->dtype, n, p->v, m, turned(weights), dy, dv, 1);
  if (!status)
    status = product(ctx, p->dtype, m, n, p->v, dy,
                     turned(part(p, &p->value, b->batch, b->col)), b->other, 0);
  if (status) return status;
  level->score_grad(b);
  status = product(ctx, p->dtype, m, p->e, n, ds, part(p, &p->key, b->batch, b->col), dq, 1);
  if (!status)
    status = product(ctx, p->dtype, n, p->e, m, turned(ds),
                     part(p, &p->query, b->batch, b->row), dk, 1);
  return status;
}

static int rows_back(moth_ctx *ctx, const attention_level *level, block *b) {
  const moth_attention *p = b->p;
  int64_t keys = keys_seen(b), size = moth_dtype_size[p->dtype];
  int64_t first = (b->batch * p->l + b->row) * p->v * size;
  int status = MOTH_OK;
  level->dots(b->rows, p->v, p->dy + first, p->y + first, b->sum);
  for (b->col = 0; b->col < keys && !status; b->col += COLS) {
    b->cols = keys - b->col < COLS ? keys - b->col : COLS;
    status = block_back(ctx, level, b, packed(p->dy + first, p->v));
  }
  return status;
}

int moth_attention_back(moth_ctx *ctx, const moth_attention *p) {
  return each_rows(ctx, p, rows_back);
}

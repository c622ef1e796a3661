/* sgemm.c -- f32 products: the method for their sizes and strides, packing, and threads.
**
** Tiles read operands in place if they can: A with any strides, B with contiguous rows. B is packed
** if it is transposed (as in x W') or large, or if its rows collide in the caches. For few rows of
** A, A is packed instead and C is transposed. Else A is packed only if it is transposed and is read
** many times, a few tiles at a time. Up to 1024^3, packing B is no faster: tiles 64 wide read B in
** long enough pieces, and for tiles 16 wide matrix.c copies a panel at a time.
*/
#include "sgemm.h"
#include "base/alloc.h"

#include "base/threads.h"
#include "gemm.h"
#include "matrix.h"

#define PLAIN_PRODUCTS 64 /* up to this many multiplications, plain loops are faster */
#define PER_NS 110.0      /* multiply-adds of a thread per ns */
#define PACKED_PER_NS 4.0 /* elements that a thread packs per ns */
#define READ_PER_NS 8.0   /* elements of a matrix that a product with a vector reads per ns */
/* up to this many rows of A, a product with a transposed B is computed as dot products */
#define FEW_ROWS 8
#define DOT_LENGTH 32             /* minimal length of these dot products */
#define STREAMED (64 << 10)       /* a matrix with more elements does not stay in L2 */
#define PART_ELEMENTS (128 << 10) /* elements of a part if a matrix is divided across its rows */
/* only matrices with rows up to this length are divided across their rows: pieces of longer rows
** are already read in order */
#define SHORT_ROW 4096
#define MOST_PARTS 64
#define MOST_PACKED (1 << 20) /* floats of B that are packed at a time */
#define PIECE_ROWS 8192       /* maximal number of rows of B that are packed at a time */
#define WHOLE_COLUMNS 16      /* threads divide columns in groups of this size */
#define LARGE_B (3 << 19)     /* a B with more elements is always packed */
/* rows of B whose distance is a multiple of this many bytes share few sets of L2 */
#define L2_PERIOD 8192
#define L1_PERIOD 4096 /* ... or of L1; this matters from MANY_ROWS rows of A on */
#define MANY_ROWS 512  /* see L1_PERIOD */
/* with more rows than this, rows of B in the same sets evict each other */
#define COLLIDING_ROWS 128
#define PACK_A_SIDE 64 /* from this many rows and columns on, A is packed */
/* from this many rows on, C is computed as the transpose of B transposed times A transposed */
#define LEAST_CROSSED 16

static const float *floats(const char *at) { return (const float *)(const void *)at; }

/* -- one row, one column, few rows times a transposed B -- */

typedef struct vector_product { /* a product by dots (d) or by sums (s) */
  bool dots;
  int64_t n; /* rows of w, or elements of y */
  moth_dots d;
  moth_sums s;
  int64_t parts, rows; /* parts of sums: each has `rows` rows and its own sums */
  float *scratch;         /* the sums of parts, (parts, n) */
} vector_product;

static bool as_sums(const moth_product *p, vector_product *v) {
  if (p->n * p->k < STREAMED || p->m > 1 || p->cs_b != 1) return false;
  v->n = p->n;
  v->s = (moth_sums){.k = p->k, .step = p->cs_a, .ldb = p->rs_b, .x = floats(p->a),
                     .b = floats(p->b), .bias = floats(p->bias), .y = (float *)(void *)p->c,
                     .add = p->beta, .relu = p->relu};
  return true;
}

/* y' = x' A'. */
static bool as_transposed_sums(const moth_product *p, vector_product *v) {
  if (p->m * p->k < STREAMED || p->n > 1 || p->rs_a != 1 || p->ldc != 1 || p->bias) return false;
  v->n = p->m;
  v->s = (moth_sums){.k = p->k, .step = p->rs_b, .ldb = p->cs_a, .x = floats(p->b),
                     .b = floats(p->a), .y = (float *)(void *)p->c, .add = p->beta,
                     .relu = p->relu};
  return true;
}

static bool as_dots(const moth_product *p, vector_product *v) {
  if (p->k < DOT_LENGTH || p->cs_a != 1 || p->rs_b != 1) return false;
  v->dots = true;
  v->d = (moth_dots){.k = p->k, .bias = floats(p->bias), .y = (float *)(void *)p->c,
                     .add = p->beta, .relu = p->relu};
  moth_dots *d = &v->d;
  if (p->m <= FEW_ROWS) {
    v->n = p->n;
    d->m = (int)p->m, d->x = floats(p->a), d->w = floats(p->b);
    d->ldx = p->rs_a, d->ldw = p->cs_b, d->ldy = p->ldc, d->step = 1, d->bias_w = 1;
  } else if (p->n <= FEW_ROWS) {
    v->n = p->m;
    d->m = (int)p->n, d->x = floats(p->b), d->w = floats(p->a);
    d->ldx = p->cs_b, d->ldw = p->rs_a, d->ldy = 1, d->step = p->ldc, d->bias_x = 1;
  } else {
    return false;
  }
  return true;
}

/* Sums of short rows are divided across the rows, so that each part is read in one stream. The
** division depends on the sizes only. */
static bool as_vector(const moth_product *p, vector_product *v) {
  if (p->m > FEW_ROWS && p->n > FEW_ROWS) return false;
  *v = (vector_product){.parts = 1};
  if (as_dots(p, v)) return true;
  if (!as_sums(p, v) && !as_transposed_sums(p, v)) return false;
  if (v->n > SHORT_ROW) return true;
  const int64_t most = (v->s.k + MOST_PARTS - 1) / MOST_PARTS;
  v->rows = (PART_ELEMENTS / v->n > most ? PART_ELEMENTS / v->n : most) / 8 * 8 + 8;
  v->parts = (v->s.k + v->rows - 1) / v->rows;
  return true;
}

static void vector_part(int64_t first, int64_t last, int thread, const void *arg) {
  const vector_product *v = arg;
  (void)thread;
  if (v->dots) moth_matrix_dots(&v->d, first, last);
  else moth_matrix_sums(&v->s, first, last);
}

static void sums_part(int64_t first, int64_t last, int thread, const void *arg) {
  const vector_product *v = arg;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    const int64_t at = i * v->rows, left = v->s.k - at;
    moth_sums s = {.k = left < v->rows ? left : v->rows, .step = v->s.step, .ldb = v->s.ldb,
                   .x = v->s.x + at * v->s.step, .b = v->s.b + at * v->s.ldb,
                   .y = v->scratch + i * v->n};
    moth_matrix_sums(&s, 0, v->n);
  }
}

/* y (+)= the sums of the parts, in order. */
static void gather_parts(const vector_product *v) {
  static const float one = 1;
  moth_sums s = v->s;
  s.k = v->parts, s.x = &one, s.step = 0, s.b = v->scratch, s.ldb = v->n;
  moth_matrix_sums(&s, 0, v->n);
}

static int run_vector(moth_ctx *ctx, const moth_product *p, vector_product *v) {
  const double ns = (double)p->k * (double)p->m * (double)p->n / READ_PER_NS;
  if (v->parts == 1)
    return moth_parallel(ctx, v->n, 64, ns / (double)v->n, vector_part, v);
  const int64_t bytes = v->parts * v->n * 4;
  if (!(v->scratch = moth_alloc(ctx, bytes))) return ctx->error.code;
  int status = moth_parallel(ctx, v->parts, 1, ns / (double)v->parts, sums_part, v);
  if (!status) gather_parts(v);
  moth_dealloc(ctx, v->scratch, bytes);
  return status;
}

/* -- by tiles -- */

/* transposed_b: B must be packed. packs_b: packing pays, because rows of B that are far apart in
** memory collide in the caches. */
static bool transposed_b(const moth_product *p) { return p->cs_b != 1 && p->n > 1; }
static bool packs_b(const moth_product *p) {
  int64_t apart = p->m < MANY_ROWS ? L2_PERIOD : L1_PERIOD;
  bool collide = p->k > COLLIDING_ROWS && p->rs_b * 4 % apart == 0;
  return transposed_b(p) || (p->m >= 128 && p->n > 64 && (collide || p->k * p->n > LARGE_B));
}

static moth_matrix tiled(const moth_product *p) {
  return (moth_matrix){.m = p->m, .n = p->n, .k = p->k, .a = floats(p->a), .rs = p->rs_a,
                       .cs = p->cs_a, .b = floats(p->b), .ldb = p->rs_b, .ldc = p->ldc,
                       .c = (float *)(void *)p->c, .bias = floats(p->bias), .add = p->beta,
                       .relu = p->relu};
}

int64_t moth_sgemm_scratch(const moth_product *p) {
  vector_product v;
  if (as_vector(p, &v)) return v.parts > 1 ? v.parts * v.n : 0;
  return transposed_b(p) ? p->k * p->n : 0;
}

void moth_sgemm_alone(const moth_product *p, float *scratch) {
  vector_product v;
  if (as_vector(p, &v)) {
    v.scratch = scratch;
    if (!scratch || v.parts == 1) vector_part(0, v.n, 0, &v);
    else sums_part(0, v.parts, 0, &v), gather_parts(&v);
    return;
  }
  moth_matrix q = tiled(p);
  if (transposed_b(p)) {
    moth_matrix_pack(scratch, q.b, q.k, q.n, p->rs_b, p->cs_b);
    q.b = scratch;
    q.packed = true;
  }
  moth_matrix_run(&q);
}

typedef struct shared { /* a product that threads divide */
  const moth_product *p;
  moth_matrix q;
  float *b, *scratch; /* buffers for a piece of B, and for each thread's tiles of a transposed A */
  bool by_rows;
} shared;

static void pack_part(int64_t first, int64_t last, int thread, const void *arg) {
  const shared *s = arg;
  (void)thread;
  for (int64_t t = 0; t < s->q.k; t += moth_matrix_depth(s->q.k))
    moth_matrix_pack_panels(s->b, s->q.b, s->q.k, s->q.n, s->p->rs_b, s->p->cs_b, t, first, last);
}

static void tile_part(int64_t first, int64_t last, int thread, const void *arg) {
  const shared *s = arg;
  moth_matrix q = s->q;
  if (s->scratch) q.scratch = s->scratch + thread * moth_matrix_scratch(q.k);
  if (s->by_rows) moth_matrix_rows(&q, first, last);
  else moth_matrix_columns(&q, first, last);
}

/* Threads divide the longer side, so that the other operand is read once for each piece. */
static int run_tiles(moth_ctx *ctx, shared *s) {
  const moth_matrix *q = &s->q;
  int height = moth_matrix_height(q->m, q->n);
  int64_t tiles = (q->m + height - 1) / height, panels = moth_matrix_panels(q->n);
  double ns = (double)q->m * (double)q->n * (double)q->k / PER_NS;
  s->by_rows = q->m >= q->n || panels < 4 || s->scratch ? tiles >= 4 || tiles >= panels : false;
  int64_t items = s->by_rows ? tiles : panels;
  return moth_parallel(ctx, items, moth_grain(ctx, items), ns / (double)items, tile_part, s);
}

/* The pieces of a packed B. They are equal, have whole vectors, and as many columns as fit the
** buffer, so that all pieces of a large B are wide. */
typedef struct pieces {
  int64_t vectors, n; /* vectors of a row of B; number of pieces */
} pieces;
_Static_assert(MOST_PACKED / PIECE_ROWS / 2 > MOTH_MATRIX_NARROW &&
                   PACK_A_SIDE > MOTH_MATRIX_NARROW,
               "pieces of a product with a transposed A are not narrow");

static pieces pieces_of(const moth_product *p) {
  const int64_t vectors = (p->n + WHOLE_COLUMNS - 1) / WHOLE_COLUMNS,
                most = MOST_PACKED / p->k / WHOLE_COLUMNS;
  return (pieces){vectors, (vectors + most - 1) / most};
}

static int64_t piece_at(const moth_product *p, const pieces *c, int64_t i) {
  return i < c->n ? c->vectors * i / c->n * WHOLE_COLUMNS : p->n;
}

static int64_t piece_scratch(const moth_product *p) {
  const pieces c = pieces_of(p);
  return (c.vectors + c.n - 1) / c.n * WHOLE_COLUMNS * p->k;
}

/* Packs and uses B one piece at a time. */
static int run_packed(moth_ctx *ctx, shared *s) {
  const moth_product *p = s->p;
  const moth_matrix whole = s->q;
  const pieces cut = pieces_of(p);
  int status = MOTH_OK;
  for (int64_t i = 0; i < cut.n && !status; i++) {
    const int64_t j = piece_at(p, &cut, i);
    s->q = whole;
    s->q.n = piece_at(p, &cut, i + 1) - j;
    s->q.b += j * p->cs_b;
    s->q.c += j;
    if (s->q.bias) s->q.bias += j;
    int64_t panels = moth_matrix_panels(s->q.n);
    double ns = (double)s->q.n * (double)s->q.k / PACKED_PER_NS;
    status = moth_parallel(ctx, panels, 1, ns / (double)panels, pack_part, s);
    s->q.b = s->b;
    s->q.packed = true;
    if (!status) status = run_tiles(ctx, s);
  }
  return status;
}

/* True if tiles of A are packed: A is transposed, or its rows collide in a small L1. */
static bool packs_a(const moth_product *p) {
  if (p->m < PACK_A_SIDE || p->n <= PACK_A_SIDE) return false;
  const bool collide = p->cs_a == 1 && p->rs_a * 4 % L1_PERIOD == 0 && p->k > COLLIDING_ROWS;
  return (p->rs_a == 1 && p->cs_a > 1) || (collide && moth_matrix_lanes() == 8);
}

static int run_shared(moth_ctx *ctx, const moth_product *p) {
  shared s = {.p = p, .q = tiled(p)};
  int64_t bytes_b = packs_b(p) ? piece_scratch(p) * 4 : 0;
  int64_t bytes = packs_a(p) ? moth_lanes(ctx) * moth_matrix_scratch(p->k) * 4 : 0;
  if (bytes && !(s.scratch = moth_alloc(ctx, bytes))) return ctx->error.code;
  if (bytes_b) s.b = moth_alloc(ctx, bytes_b);
  int status = bytes_b && !s.b ? ctx->error.code : s.b ? run_packed(ctx, &s)
                                                       : run_tiles(ctx, &s);
  if (s.scratch) moth_dealloc(ctx, s.scratch, bytes);
  if (s.b) moth_dealloc(ctx, s.b, bytes_b);
  return status;
}

/* A transposed B of any depth, one piece at a time. */
static int run_deep(moth_ctx *ctx, const moth_product *p) {
  int64_t parts = (p->k + PIECE_ROWS - 1) / PIECE_ROWS, depth = (p->k + parts - 1) / parts;
  int status = MOTH_OK;
  for (int64_t t = 0; t < p->k && !status; t += depth) {
    moth_product part = *p;
    part.k = p->k - t < depth ? p->k - t : depth;
    part.a += t * p->cs_a * 4;
    part.b += t * p->rs_b * 4;
    if (t) part.beta = 1;
    if (t + part.k < p->k) part.bias = NULL, part.relu = false;
    status = run_shared(ctx, &part);
  }
  return status;
}

static int run_whole(moth_ctx *ctx, const moth_product *p) {
  return packs_b(p) && p->k > PIECE_ROWS ? run_deep(ctx, p) : run_shared(ctx, p);
}

/* -- few rows times a large transposed matrix: C' = B' A' packs A, which is smaller than B, and
** then transposes C -- */

static bool pays_crossed(const moth_product *p) {
  return p->rs_b == 1 && p->cs_a == 1 && transposed_b(p) && !p->beta && p->m >= LEAST_CROSSED &&
         p->m * (p->k + p->n) < p->n * p->k;
}

typedef struct turned_back {
  const moth_product *p;
  const float *from; /* C' */
} turned_back;

static void turn_part(int64_t first, int64_t last, int thread, const void *arg) {
  const turned_back *w = arg;
  const moth_product *p = w->p;
  const int64_t n = p->n;
  const bool relu = p->relu;
  const float *bias = floats(p->bias);
  float *c = (float *)(void *)p->c + first * p->ldc;
  (void)thread;
  moth_matrix_transpose_panel(c, p->ldc, w->from + first, last - first, n, p->m);
  for (int64_t i = first; i < last; i++, c += p->ldc) {
    for (int64_t j = 0; bias && j < n; j++) c[j] += bias[j];
    for (int64_t j = 0; relu && j < n; j++) c[j] = c[j] < 0 ? 0 : c[j];
  }
}

static int run_crossed(moth_ctx *ctx, const moth_product *p) {
  moth_product q = *p;
  int64_t bytes = p->m * p->n * 4;
  q.c = moth_alloc(ctx, bytes);
  if (!q.c) return ctx->error.code;
  q.m = p->n, q.n = p->m, q.ldc = p->m, q.bias = NULL, q.relu = false;
  q.a = p->b, q.rs_a = p->cs_b, q.cs_a = p->rs_b;
  q.b = p->a, q.rs_b = p->cs_a, q.cs_b = p->rs_a;
  int status = run_whole(ctx, &q);
  turned_back w = {.p = p, .from = floats(q.c)};
  if (!status)
    status = moth_parallel(ctx, p->m, 16, (double)p->n / PACKED_PER_NS, turn_part, &w);
  moth_dealloc(ctx, q.c, bytes);
  return status;
}

static bool is_small(const moth_product *p) { /* nothing to divide, and little to pack */
  return (double)p->m * (double)p->n * (double)p->k < 3000 * PER_NS && p->n * p->k <= 65536;
}

/* The strides of dimensions of size 1 are arbitrary; sets them to usual values. */
static moth_product normalized(const moth_product *p) {
  moth_product q = *p;
  if (q.m == 1) q.rs_a = q.cs_a == 1 ? q.k : 1;
  if (q.k == 1) q.cs_a = 1, q.rs_b = q.cs_b == 1 ? q.n : 1;
  if (q.n == 1) q.cs_b = q.rs_b == 1 ? q.k : 1;
  return q;
}

int moth_sgemm(moth_ctx *ctx, const moth_product *given) {
  const moth_product p = normalized(given);
  vector_product v;
  if (is_small(&p)) {
    int64_t bytes = moth_sgemm_scratch(&p) * 4;
    float *scratch = bytes ? moth_alloc(ctx, bytes) : NULL;
    if (bytes && !scratch) return ctx->error.code;
    moth_sgemm_alone(&p, scratch);
    if (scratch) moth_dealloc(ctx, scratch, bytes);
    return MOTH_OK;
  }
  if (as_vector(&p, &v)) return run_vector(ctx, &p, &v);
  return pays_crossed(&p) ? run_crossed(ctx, &p) : run_whole(ctx, &p);
}

/* -- batches -- */

moth_product moth_batch_product(const moth_product *p, const moth_batch *batch, int64_t i) {
  moth_product q = *p;
  int64_t size = moth_dtype_size[p->dtype], rest = i;
  q.c += i * batch->step_c * size;
  for (int d = batch->ndim - 1; d >= 0; d--) {
    int64_t at = rest % batch->shape[d];
    rest /= batch->shape[d];
    q.a += at * batch->step_a[d] * size;
    q.b += at * batch->step_b[d] * size;
  }
  return q;
}

typedef struct many {
  moth_product p;
  const moth_batch *batch;
  float *scratch;
  int64_t each; /* floats of scratch for a thread */
  bool few;     /* so few elements that a tile would be mostly empty */
} many;

static void batch_part(int64_t first, int64_t last, int thread, const void *arg) {
  const many *w = arg;
  for (int64_t i = first; i < last; i++) {
    moth_product q = moth_batch_product(&w->p, w->batch, i);
    if (w->few) moth_gemm_plain(&q);
    else moth_sgemm_alone(&q, w->scratch ? w->scratch + thread * w->each : NULL);
  }
}

int moth_sgemm_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch,
                     int64_t count) {
  many w = {.p = normalized(p), .batch = batch};
  w.each = (moth_sgemm_scratch(&w.p) + 15) / 16 * 16;
  double ns = (double)p->m * (double)p->n * (double)p->k / PER_NS;
  w.few = ns * PER_NS <= PLAIN_PRODUCTS && !p->bias && !p->relu;
  if (count == 1 || w.each > MOST_PACKED || p->k > PIECE_ROWS ||
      (ns > 1e5 && count < 4 * moth_lanes(ctx))) {
    int status = MOTH_OK;
    for (int64_t i = 0; i < count && !status; i++) {
      moth_product q = moth_batch_product(p, batch, i);
      status = moth_sgemm(ctx, &q);
    }
    return status;
  }
  int64_t bytes = w.each * moth_lanes(ctx) * 4;
  if (bytes && !(w.scratch = moth_alloc(ctx, bytes))) return ctx->error.code;
  int status = moth_parallel(ctx, count, 1, ns + 20, batch_part, &w);
  if (w.scratch) moth_dealloc(ctx, w.scratch, bytes);
  return status;
}

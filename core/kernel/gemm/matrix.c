/* matrix.c -- f32 matrix products for AVX-512 and AVX2: the loops over tiles. matrix_level.h has
** the tiles.
*/
#include "matrix.h"

#include "base/threads.h"

#include <stddef.h>
#include <string.h>

#include "kernel/level.h"

#if MOTH_HAS_LEVELS

/* tiles of A that are multiplied with a panel of B before the next panel; they stay in L2 */
#define BLOCK_TILES 40
#define BLOCK_MOST 44 /* maximal number of such tiles with AVX2, where blocks have equal sizes */
#define PAUSE_PRODUCTS (1 << 21) /* multiply-adds between two calls of moth_pause */
#define LOW_TILE 6    /* rows of a tile that has more than two vectors */
/* floats between packed tiles; without a gap the tiles would share few sets of L1 */
#define TILE_GAP 16
/* up to this depth all tiles of a row of C are computed first: C is most of the memory traffic */
#define SHALLOW_DEPTH 32
#define CHAIN_PRODUCTS 96 /* products that one register sums; longer sums lose digits */
#define MOST_CHAINS 16 /* with more sums than this, sums are longer: many sums lose digits too */
#define L2_FLOATS (128 << 10) /* a larger A or B does not stay in L2 until it is used */
#define PREFETCH_ROWS 32 /* with fewer rows of A, B is read faster than prefetching could read it */
/* maximal rows of B at a time with vectors of 8 floats: three sums. A panel of this depth leaves
** space for a tile of A in an L1 of 32 KB */
#define AVX2_DEPTH 288
#define AVX2_COLUMNS 16 /* columns of the widest panel with vectors of 8 floats */
/* a panel of at most this many cache lines stays in L1 next to a tile of A if it uses all sets */
#define L1_LINES 320
#define L1_BYTES 4096 /* addresses this many bytes apart use the same set of L1 */
#define COPY_ROWS 72  /* from this many rows of C on, a panel of B that leaves L1 is copied */
#define COPY_FEWER 40 /* ... and from here on if even an eighth of it leaves L1 */

typedef struct moth_strip { /* tiles one below the other */
  int64_t tiles, k, chain;
  const float *a;
  int64_t rs, cs, next; /* next: step in A from one tile's rows to the next tile's */
  const float *b;
  int64_t ldb, last; /* last: column where the last vector of a row starts */
  float *c;
  int64_t ldc;
  const float *bias;
  bool add, relu;
  /* Data to prefetch: */
  int64_t below;      /* step in A to the next tile's rows; 0: none */
  const float *ahead; /* the next panel of B, */
  int64_t few;        /* the number of its rows for each chain, */
  int64_t apart;      /* ... which are `apart` floats apart: ldb for vectors of 16 floats */
} moth_strip;

typedef void strip_loop(moth_strip *p);

#define VECTOR(n)                                              \
  typedef float vector##n __attribute__((vector_size(4 * n))); \
  typedef float loose##n __attribute__((vector_size(4 * n), aligned(4), may_alias));
VECTOR(4)
VECTOR(8)
VECTOR(16)
#undef VECTOR
typedef float loose1 __attribute__((may_alias));

/* 0 where x < 0; NaN and -0 stay. The mask of a comparison has its own type. */
#define RELU_LANES(x) ((__typeof__(x))((__typeof__((x) < 0))(x) & ~((x) < 0)))
#define RELU_ONE(x) ((x) < 0 ? 0 : (x))

#define SHUFFLE __builtin_shufflevector

#define TARGET MOTH_AVX512
#define NAME(f) f##_avx512
#define LANES 16
#define vector_avx512 vector16
#define loose_avx512 loose16
#define LOW1(x, y) SHUFFLE(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH1(x, y) SHUFFLE(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW2(x, y) SHUFFLE(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH2(x, y) SHUFFLE(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define EVEN4(x, y) SHUFFLE(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD4(x, y) SHUFFLE(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#include "matrix_level.h"
#undef TARGET
#undef NAME
#undef LANES
#undef LOW1
#undef HIGH1
#undef LOW2
#undef HIGH2

#define TARGET MOTH_AVX2
#define NAME(f) f##_avx2
#define LANES 8
#define vector_avx2 vector8
#define loose_avx2 loose8
#define LOW1(x, y) SHUFFLE(x, y, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH1(x, y) SHUFFLE(x, y, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW2(x, y) SHUFFLE(x, y, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2(x, y) SHUFFLE(x, y, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW4(x, y) SHUFFLE(x, y, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH4(x, y) SHUFFLE(x, y, 4, 5, 6, 7, 12, 13, 14, 15)
#include "matrix_level.h"

static bool wide(void) { return moth_level() == MOTH_LEVEL_AVX512; }

bool moth_matrix_here(void) { return moth_level() != MOTH_LEVEL_PLAIN; }
int moth_matrix_lanes(void) { return wide() ? 16 : 8; }

/* -- division of rows and columns -- */

typedef struct panels {
  int lanes, set;   /* lanes of a vector, and its index in the tables */
  int64_t vectors, n; /* vectors in a row of C; number of panels */
} panels;

static inline panels panels_of(int64_t n) {
  panels p = {.lanes = 1, .set = 0};
  if (n >= 16 && wide()) p.lanes = 16, p.set = 3;
  else if (n >= 8) p.lanes = 8, p.set = 2;
  else if (n >= 4) p.lanes = 4, p.set = 1;
  int most = p.lanes == 16 || p.lanes == 1 ? 4 : 2;
  p.vectors = (n + p.lanes - 1) / p.lanes;
  p.n = (p.vectors + most - 1) / most;
  return p;
}

/* The start of panel i, in vectors. Panels differ by at most one vector. */
static inline int64_t panel_at(const panels *p, int64_t i) { return p->vectors * i / p->n; }

int64_t moth_matrix_panels(int64_t n) { return panels_of(n).n; }

int moth_matrix_height(int64_t m, int64_t n) {
  int most = n >= 16 && n <= MOTH_MATRIX_NARROW && wide() ? MOTH_MATRIX_ROWS : LOW_TILE;
  if (m <= most) return m > 0 ? (int)m : most;
  int64_t tiles = (m + most - 1) / most;
  return (int)((m + tiles - 1) / tiles);
}

/* The length of the fewest equal parts of k that are at most `most` long. Small matrices return
** early, because a division would take much of their time. */
static int64_t equal_part(int64_t k, int64_t most) {
  if (k <= most) return k > 0 ? k : 1;
  int64_t parts = (k + most - 1) / most;
  return (k + parts - 1) / parts;
}

int64_t moth_matrix_depth(int64_t k) {
  return equal_part(k, wide() ? MOTH_MATRIX_DEPTH : AVX2_DEPTH);
}

/* Floats from one packed tile of A to the next. */
static inline int64_t tile_scratch(int64_t rows, int64_t k) { return rows * k + TILE_GAP; }

int64_t moth_matrix_scratch(int64_t k) {
  return BLOCK_MOST * tile_scratch(LOW_TILE, moth_matrix_depth(k));
}

/* relu of an (m, n) matrix, in place. */
MOTH_AVX2 static void relu(float *c, int64_t ldc, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; i++, c += ldc) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
      loose8 *at = (loose8 *)(void *)(c + j);
      const vector8 x = *at;
      *at = RELU_LANES(x);
    }
    for (; j < n; j++) c[j] = RELU_ONE(c[j]);
  }
}

/* -- products -- */

/* The division of m rows. Tiles differ by at most one row, since a tile of few rows would be slow
** in reading B. The first `more` tiles have least + 1 rows. */
typedef struct row_tiles {
  int64_t tiles, least, more;
} row_tiles;

static inline row_tiles cut_rows(int64_t m, int height) {
  row_tiles c = {.tiles = (m + height - 1) / height};
  c.least = m / c.tiles;
  c.more = m - c.tiles * c.least;
  return c;
}

/* Computes these rows of one panel, at most MOTH_MATRIX_DEPTH deep. */
static inline void strips(moth_strip *s, strip_loop *const *loops, const row_tiles *c, bool laid,
                          bool first) {
  const int64_t chains = c->tiles * ((s->k + s->chain - 1) / s->chain);
  if (s->ahead) s->few = (s->k + chains - 1) / chains;
  for (int64_t rows = c->least + (c->more > 0); rows >= c->least; rows--) {
    s->tiles = rows > c->least ? c->more : c->tiles - c->more;
    if (laid) s->rs = 1, s->cs = rows;
    s->next = laid ? tile_scratch(rows, s->k) : rows * s->rs;
    s->below = first ? s->next : 0;
    loops[rows](s);
    s->a += s->tiles * s->next;
    s->c += s->tiles * rows * s->ldc;
  }
}

/* Packs tiles of an A with contiguous columns: a tile has k times its rows. Eight numbers are
** copied at a time where reading and overwriting that many is allowed. Columns are short and far
** apart; processors do not prefetch them, so the code does. */
static void pack_tiles(float *to, const float *a, int64_t cs, int64_t k, int64_t tiles,
                       int64_t rows, bool ends) {
  enum { SOME = 8, AHEAD = 8, LINE = 16 };
  for (int64_t t = 0; t < k; t++, a += cs) {
    for (int64_t i = 0; i < tiles * rows; i += LINE) __builtin_prefetch(a + AHEAD * cs + i);
    for (int64_t i = 0; i < tiles; i++) {
      float *tile = to + i * tile_scratch(rows, k) + t * rows;
      if (t + 1 < k && !(ends && i + 1 == tiles)) memcpy(tile, a + i * rows, SOME * sizeof *to);
      else memcpy(tile, a + i * rows, (size_t)rows * sizeof *to);
    }
  }
}

static void lay_rows(float *to, const float *a, int64_t cs, int64_t k, const row_tiles *c) {
  const int64_t taller = c->more * (c->least + 1);
  pack_tiles(to, a, cs, k, c->more, c->least + 1, false);
  to += c->more * tile_scratch(c->least + 1, k);
  pack_tiles(to, a + taller, cs, k, c->tiles - c->more, c->least, true);
}

/* The same for an A with contiguous rows, rs apart; m is their number. Tiles of fewer than 8 rows
** are transposed eight at a time; the excess of a column is overwritten by the next column, or ends
** in the gap between tiles. */
MOTH_AVX2 static void pack_transposed_tiles(float *to, const float *a, int64_t rs, int64_t m,
                                            int64_t k, const row_tiles *c) {
  enum { EIGHT = 8 };
  for (int64_t i = 0; i < c->tiles; i++) {
    const int64_t rows = c->least + (i < c->more);
    if (m < EIGHT || k < EIGHT)
      for (int64_t t = 0; t < k; t++)
        for (int64_t r = 0; r < rows; r++) to[t * rows + r] = a[r * rs + t];
    else
      for (int64_t t = 0; t < k; t += EIGHT) {
        if (t > k - EIGHT) t = k - EIGHT;
        transpose_avx2(to + t * rows, rows, a + t, rs);
      }
    to += tile_scratch(rows, k);
    a += rows * rs;
    m -= rows;
  }
}

/* -- panels of B for vectors of 8 floats --
**
** The panels are narrow and L1 may be small: rows that are far apart evict each other. */

/* True if k rows of at most AVX2_COLUMNS floats, ld apart, do not stay in L1. */
static bool evicts(int64_t k, int64_t ld) {
  const int64_t bytes = ld * 4 % L1_BYTES, line = 64;
  int64_t alone = L1_BYTES; /* rows this many bytes apart use all sets of L1 */
  if (bytes % line) return 2 * k > L1_LINES; /* most rows cover two lines */
  while (bytes % alone) alone /= 2;
  return k * (alone / line) > L1_LINES;
}

MOTH_AVX2 static void copy_panel(float *to, const float *b, int64_t k, int64_t w, int64_t ld) {
  enum { AHEAD = 8 };
  for (int64_t t = 0; t < k; t++, b += ld, to += w) {
    __builtin_prefetch(b + AHEAD * ld);
    if (w == AVX2_COLUMNS) memcpy(to, b, AVX2_COLUMNS * sizeof *to);
    else memcpy(to, b, (size_t)w * sizeof *to);
  }
}

/* Like strips(), for m rows in all. Uses a copy of the panel where a copy pays. */
static void strips_near(moth_strip *s, strip_loop *const *loops, const row_tiles *c, bool laid,
                        bool first, int64_t m) {
  float copy[AVX2_DEPTH * AVX2_COLUMNS] __attribute__((aligned(64)));
  const int64_t width = s->last + 8;
  const int64_t k = m >= COPY_ROWS ? s->k : m >= COPY_FEWER ? s->k / 8 : 0;
  if (s->ldb != width && evicts(k, s->ldb)) {
    copy_panel(copy, s->b, s->k, width, s->ldb);
    s->b = copy;
    s->ldb = width;
  }
  strips(s, loops, c, laid, first);
}

/* Rows of C that use a panel of B before the next panel. */
static int64_t block_rows(int64_t m, int64_t k, int height) {
  if (k <= SHALLOW_DEPTH) return height;
  return wide() ? BLOCK_TILES * height : equal_part(m, BLOCK_MOST * height);
}

/* Computes tiles t0 to t1 - 1 of panels p0 to p1 - 1. */
static void part(const moth_matrix *p, int64_t t0, int64_t t1, int64_t p0, int64_t p1) {
  const panels cut = panels_of(p->n);
  const int height = moth_matrix_height(p->m, p->n);
  float *const scratch = p->scratch;
  strip_loop *const(*loops)[MOTH_MATRIX_ROWS + 1] =
    wide() ? strips_avx512[cut.set] : strips_avx2[cut.set];
  const int64_t most = p->k > MOST_CHAINS * CHAIN_PRODUCTS ? MOTH_MATRIX_DEPTH : CHAIN_PRODUCTS;
  const bool far_a = p->m * p->k > L2_FLOATS && p->cs == 1,
             far_b = p->k * p->n > L2_FLOATS && p->m > PREFETCH_ROWS;
  int64_t done = 0; /* multiply-adds since the last pause */
  int64_t depth = moth_matrix_depth(p->k), bottom = t1 * height < p->m ? t1 * height : p->m;
  for (int64_t t = 0; t < p->k || t == 0; t += depth) {
    int64_t k = p->k - t < depth ? p->k - t : depth, chain = equal_part(k, most);
    const int64_t block = block_rows(bottom - t0 * height, k, height);
    for (int64_t i = t0 * height, m; i < bottom; i += m) {
      m = block < bottom - i ? block : bottom - i;
      const row_tiles rows = cut_rows(m, height);
      const float *a = p->a + i * p->rs + t * p->cs;
      if (scratch && p->rs == 1) lay_rows(scratch, a, p->cs, k, &rows);
      else if (scratch) pack_transposed_tiles(scratch, a, p->rs, p->m - i, k, &rows);
      for (int64_t j = p0; j < p1; j++) {
        int64_t v = panel_at(&cut, j), nv = panel_at(&cut, j + 1) - v, column = v * cut.lanes;
        int64_t width = (v + nv) * cut.lanes < p->n ? nv * cut.lanes : p->n - column;
        const int64_t ldb = p->packed ? width : p->ldb;
        const float *b = p->packed ? p->b + t * p->n + column * k : p->b + t * p->ldb + column;
        moth_strip s = {.k = k, .chain = chain, .a = scratch ? scratch : a, .rs = p->rs, .b = b,
                        .ahead = far_b && j + 1 < p1 ? b + width * (p->packed ? k : 1) : NULL,
                        .cs = p->cs, .ldb = ldb, .apart = ldb, .last = width - cut.lanes,
                        .c = p->c + i * p->ldc + column, .ldc = p->ldc, .add = p->add || t,
                        .relu = p->relu && t + k >= p->k,
                        .bias = p->bias && t + k >= p->k ? p->bias + column : NULL};
        const bool first = far_a && j == p0, laid = scratch != NULL;
        if (cut.lanes == 8 && !wide()) strips_near(&s, loops[nv - 1], &rows, laid, first, m);
        else strips(&s, loops[nv - 1], &rows, laid, first);
        if ((done += m * k * width) > PAUSE_PRODUCTS) done = 0, moth_pause();
      }
    }
  }
}

void moth_matrix_rows(const moth_matrix *p, int64_t first, int64_t last) {
  part(p, first, last, 0, panels_of(p->n).n);
}

void moth_matrix_columns(const moth_matrix *p, int64_t first, int64_t last) {
  part(p, 0, p->m, first, last); /* p->m is more than the number of tiles */
}

void moth_matrix_run(const moth_matrix *p) { part(p, 0, p->m, 0, panels_of(p->n).n); }

/* -- packing -- */

static void pack_panel(float *to, const float *b, int64_t k, int64_t w, int64_t rs, int64_t cs) {
  if (cs == 1)
    for (int64_t t = 0; t < k; t++) memcpy(to + t * w, b + t * rs, (size_t)w * sizeof *to);
  else if (rs == 1)
    (wide() ? pack_transposed_avx512 : pack_transposed_avx2)(to, w, k, w, b, cs);
  else
    for (int64_t t = 0; t < k; t++)
      for (int64_t j = 0; j < w; j++) to[t * w + j] = b[t * rs + j * cs];
}

void moth_matrix_pack_panels(float *to, const float *b, int64_t k, int64_t n, int64_t rs,
                             int64_t cs, int64_t t, int64_t first, int64_t last) {
  const panels cut = panels_of(n);
  int64_t depth = moth_matrix_depth(k);
  if (k - t < depth) depth = k - t;
  for (int64_t j = first; j < last; j++) {
    int64_t from = panel_at(&cut, j) * cut.lanes, until = panel_at(&cut, j + 1) * cut.lanes;
    if (until > n) until = n;
    pack_panel(to + t * n + from * depth, b + t * rs + from * cs, depth, until - from, rs, cs);
  }
}

void moth_matrix_pack(float *to, const float *b, int64_t k, int64_t n, int64_t rs, int64_t cs) {
  for (int64_t t = 0; t < k; t += moth_matrix_depth(k))
    moth_matrix_pack_panels(to, b, k, n, rs, cs, t, 0, panels_of(n).n);
}

void moth_matrix_transpose_panel(float *to, int64_t step, const float *b, int64_t k, int64_t w,
                            int64_t cs) {
  (wide() ? pack_transposed_avx512 : pack_transposed_avx2)(to, step, k, w, b, cs);
}

/* -- a matrix times a vector -- */

void moth_matrix_dots(const moth_dots *p, int64_t first, int64_t last) {
  moth_dots d = *p;
  int most = moth_matrix_height(p->m, 64);
  for (int i = 0; i < p->m; i += most) { /* w is read once for `most` vectors */
    d.m = p->m - i < most ? p->m - i : most;
    d.x = p->x + i * p->ldx;
    d.y = p->y + i * p->ldy;
    if (p->bias) d.bias = p->bias + i * p->bias_x;
    (wide() ? dots_avx512 : dots_avx2)(&d, first, last);
    if (!p->relu) continue;
    if (p->step == 1) relu(d.y + first, p->ldy, d.m, last - first);
    else relu(d.y + first * p->step, p->step, last - first, d.m);
  }
}

void moth_matrix_sums(const moth_sums *p, int64_t first, int64_t last) {
  (wide() ? sums_avx512 : sums_avx2)(p, first, last);
  if (p->relu) relu(p->y + first, 0, 1, last - first);
}

#else

bool moth_matrix_here(void) { return false; }
int moth_matrix_lanes(void) { return 1; }
int64_t moth_matrix_scratch(int64_t k) {
  (void)k;
  return 0;
}
int moth_matrix_height(int64_t m, int64_t n) { return m + n ? 1 : 1; }
int64_t moth_matrix_panels(int64_t n) { return n; }
int64_t moth_matrix_depth(int64_t k) { return k; }
void moth_matrix_run(const moth_matrix *p) { (void)p; }
void moth_matrix_rows(const moth_matrix *p, int64_t first, int64_t last) {
  (void)p, (void)first, (void)last;
}
void moth_matrix_columns(const moth_matrix *p, int64_t first, int64_t last) {
  (void)p, (void)first, (void)last;
}
void moth_matrix_pack(float *to, const float *b, int64_t k, int64_t n, int64_t rs, int64_t cs) {
  (void)to, (void)b, (void)k, (void)n, (void)rs, (void)cs;
}
void moth_matrix_pack_panels(float *to, const float *b, int64_t k, int64_t n, int64_t rs,
                             int64_t cs, int64_t t, int64_t first, int64_t last) {
  (void)to, (void)b, (void)k, (void)n, (void)rs, (void)cs, (void)t, (void)first, (void)last;
}
void moth_matrix_transpose_panel(float *to, int64_t step, const float *b, int64_t k, int64_t w,
                            int64_t cs) {
  (void)to, (void)step, (void)b, (void)k, (void)w, (void)cs;
}
void moth_matrix_dots(const moth_dots *p, int64_t first, int64_t last) {
  (void)p, (void)first, (void)last;
}
void moth_matrix_sums(const moth_sums *p, int64_t first, int64_t last) {
  (void)p, (void)first, (void)last;
}

#endif

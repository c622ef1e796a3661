/* pad.c -- padding row by row. Tables have the source index of each position of a dimension, or -1
** for the constant. The middle of the last dimension is one contiguous copy.
*/
#include "pad.h"
#include "base/error.h"
#include "base/alloc.h"

#include "base/threads.h"

/* The number of elements of dimension d that are kept. */
static int64_t kept(const moth_pad *p, int d) {
  const int64_t n = p->in[d], before = p->before[d], after = p->out[d] - n - before;
  return n + (before < 0 ? before : 0) + (after < 0 ? after : 0);
}

static int64_t source(const moth_pad *p, int d, int64_t i) {
  int64_t at = i - p->before[d], n = p->in[d];
  if (at >= 0 && at < n) return at;
  switch (p->mode) {
    case MOTH_PAD_REFLECT: return at < 0 ? -at : 2 * n - 2 - at;
    case MOTH_PAD_REPLICATE: return at < 0 ? 0 : n - 1;
    case MOTH_PAD_CIRCULAR: return at < 0 ? at + kept(p, d) : at - kept(p, d);
    default: return -1;
  }
}

typedef struct walk { /* a walk over the rows of the padded tensor */
  const moth_pad *p;
  int64_t index[MOTH_MAX_DIMS], *table[MOTH_MAX_DIMS];
  /* positions first to last - 1 of the last dimension are one contiguous copy */
  int64_t first, last;
} walk;

static int64_t table_bytes(const moth_pad *p) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim; d++) n += p->out[d];
  return n * (int64_t)sizeof(int64_t);
}

static int64_t *start(moth_ctx *ctx, const moth_pad *p, walk *w) {
  int64_t *block = moth_alloc(ctx, table_bytes(p)), *at = block;
  *w = (walk){.p = p};
  for (int d = 0; block && d < p->ndim; d++) {
    w->table[d] = at;
    for (int64_t i = 0; i < p->out[d]; i++) *at++ = source(p, d, i);
  }
  const int last = p->ndim - 1;
  const int64_t before = p->before[last], end = before + p->in[last];
  w->first = before > 0 ? before : 0;
  w->last = end < p->out[last] ? end : p->out[last];
  if (w->last < w->first) w->first = w->last = 0;
  return block;
}

/* The offset of the current row in the input, or -1 if the whole row is the constant. */
static int64_t row_of(const walk *w) {
  int64_t at = 0;
  for (int d = 0; d < w->p->ndim - 1; d++) {
    int64_t from = w->table[d][w->index[d]];
    if (from < 0) return -1;
    at = at * w->p->in[d] + from;
  }
  return at * w->p->in[w->p->ndim - 1];
}

static void step(walk *w) {
  for (int d = w->p->ndim - 2; d >= 0; d--) {
    if (++w->index[d] < w->p->out[d]) return;
    w->index[d] = 0;
  }
}

static int64_t rows_of(const moth_pad *p, const int64_t *size) {
  int64_t n = 1;
  for (int d = 0; d < p->ndim - 1; d++) n *= size[d];
  return n;
}

#define COPIES(name, type)                                                                     \
  static void copy_##name(const walk *w, const char *x, const char *fill, char *y) {            \
    const int64_t *from = w->table[w->p->ndim - 1], n = w->p->out[w->p->ndim - 1];              \
    const type *in = (const type *)(const void *)x;                                             \
    type *out = (type *)(void *)y, constant;                                                    \
    memcpy(&constant, fill, sizeof constant);                                                   \
    if (!x) {                                                                                   \
      for (int64_t i = 0; i < n; i++) out[i] = constant;                                        \
      return;                                                                                   \
    }                                                                                           \
    for (int64_t i = 0; i < w->first; i++) out[i] = from[i] < 0 ? constant : in[from[i]];       \
    if (w->last > w->first)                                                                     \
      memcpy(out + w->first, in + from[w->first], (size_t)(w->last - w->first) * sizeof *out);  \
    for (int64_t i = w->last; i < n; i++) out[i] = from[i] < 0 ? constant : in[from[i]];        \
  }
COPIES(1, uint8_t)
COPIES(2, uint16_t)
COPIES(4, uint32_t)
COPIES(8, uint64_t)

typedef struct forward {
  const walk *from_first;
  int64_t size;
  const char *x, *fill;
  char *y;
} forward;

static void forward_rows(int64_t first, int64_t last, int thread, const void *arg) {
  const forward *f = arg;
  walk w = *f->from_first;
  const int64_t size = f->size, bytes = w.p->out[w.p->ndim - 1] * size;
  int64_t rest = first;
  char *y = f->y + first * bytes;
  (void)thread;
  for (int d = w.p->ndim - 2; d >= 0; rest /= w.p->out[d--]) w.index[d] = rest % w.p->out[d];
  for (int64_t r = first; r < last; r++, y += bytes, step(&w)) {
    const int64_t from = row_of(&w);
    const char *row = from < 0 ? NULL : f->x + from * size;
    if (size == 1) copy_1(&w, row, f->fill, y);
    else if (size == 2) copy_2(&w, row, f->fill, y);
    else if (size == 4) copy_4(&w, row, f->fill, y);
    else copy_8(&w, row, f->fill, y);
  }
}

int moth_pad_forward(moth_ctx *ctx, const moth_pad *p, int64_t size, const char *x,
                     const char *fill, char *y) {
  walk w;
  const int64_t width = p->out[p->ndim - 1], rows = rows_of(p, p->out);
  if (rows == 0 || width == 0) return MOTH_OK; /* the tables of the other dims could be huge */
  int64_t *block = start(ctx, p, &w);
  if (!block) return ctx->error.code;
  const forward f = {&w, size, x, fill, y};
  int status = moth_parallel(ctx, rows, 1, 15 + 0.05 * (double)(width * size), forward_rows, &f);
  moth_dealloc(ctx, block, table_bytes(p));
  return status;
}

#define ADDS(name, type)                                                        \
  static void add_##name(const walk *w, const type *dy, type *dx) {             \
    const int64_t *to = w->table[w->p->ndim - 1], n = w->p->out[w->p->ndim - 1]; \
    for (int64_t i = 0; i < w->first; i++)                                      \
      if (to[i] >= 0) dx[to[i]] += dy[i];                                       \
    if (w->last > w->first) {                                                   \
      type *restrict run = dx + to[w->first];                                   \
      const type *restrict from = dy + w->first;                                \
      for (int64_t i = 0; i < w->last - w->first; i++) run[i] += from[i];       \
    }                                                                           \
    for (int64_t i = w->last; i < n; i++)                                       \
      if (to[i] >= 0) dx[to[i]] += dy[i];                                       \
  }
ADDS(f32, float)
ADDS(f64, double)

int moth_pad_back(moth_ctx *ctx, const moth_pad *p, int dtype, const void *dy, void *dx) {
  walk w;
  if (p->mode == MOTH_PAD_CONSTANT) { /* crops dy, or pads dy where the forward pass cropped */
    const double zero = 0;
    moth_pad back = *p;
    memcpy(back.in, p->out, sizeof back.in);
    memcpy(back.out, p->in, sizeof back.out);
    for (int d = 0; d < p->ndim; d++) back.before[d] = -p->before[d];
    return moth_pad_forward(ctx, &back, moth_dtype_size[dtype], dy, (const char *)&zero, dx);
  }
  const int64_t width = p->out[p->ndim - 1], rows = rows_of(p, p->out);
  const int64_t bytes = rows_of(p, p->in) * p->in[p->ndim - 1] * moth_dtype_size[dtype];
  if (bytes) memset(dx, 0, (size_t)bytes);
  if (rows == 0 || width == 0) return MOTH_OK;
  int64_t *block = start(ctx, p, &w);
  if (!block) return ctx->error.code;
  int status = MOTH_OK;
  for (int64_t r = 0; r < rows && !status; r++, step(&w)) {
    int64_t to = row_of(&w);
    if (to >= 0 && dtype == MOTH_F32) add_f32(&w, (const float *)dy + r * width, (float *)dx + to);
    if (to >= 0 && dtype == MOTH_F64)
      add_f64(&w, (const double *)dy + r * width, (double *)dx + to);
    if ((r & 4095) == 4095 && moth_cancelled(ctx)) status = moth_stopped(ctx);
  }
  moth_dealloc(ctx, block, table_bytes(p));
  return status;
}

/* save.c -- writes safetensors files: plans the header in memory, then writes bytes from the
** tensors to a file that appears complete or not at all.
*/
#include "device/device.h"
#include "call/observer.h"
#include "save.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include <stdlib.h>

#define PACK_BYTES ((size_t)256 << 10) /* size of the buffer for strided tensors */
#define TIED "moth.tied"

typedef struct item {
  moth_text name;
  const moth_tensor *x;
  int64_t nbytes;
  struct item *tied; /* the item that is written in its place */
} item;

typedef struct saver {
  moth_ctx *ctx;
  item *items, **order; /* order: as written; sorted by address while find_ties runs */
  uint32_t n, ntied, nmeta;
  int64_t nbytes; /* of all values */
  bool durable;
  const moth_text *keys, *values;
  moth_buffer header;
  char shown[96];
} saver;

static const char *quoted(saver *s, moth_text text) {
  return moth_quote(text, s->shown, sizeof s->shown);
}

/* -- sort orders -- */

static int by_name(const void *a, const void *b) {
  return moth_text_order(&(*(item *const *)a)->name, &(*(item *const *)b)->name);
}

static int by_size_and_name(const void *a, const void *b) {
  int x = moth_dtype_size[(*(item *const *)a)->x->l.dtype];
  int y = moth_dtype_size[(*(item *const *)b)->x->l.dtype];
  return x != y ? y - x : by_name(a, b);
}

static int by_address(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)moth_at((*(item *const *)a)->x);
  uintptr_t y = (uintptr_t)moth_at((*(item *const *)b)->x);
  return x != y ? (x < y ? -1 : 1) : by_name(a, b);
}

/* -- checks -- */

static int take_tensors(saver *s, const moth_text *names, const moth_handle *tensors) {
  for (uint32_t i = 0; i < s->n; i++) {
    moth_tensor *x = moth_resolve(s->ctx, &tensors[i], "tensors");
    if (!x) return s->ctx->error.code;
    if (!moth_utf8(names[i]))
      return moth_fail(s->ctx, MOTH_E_ARG, "names", "%s is not UTF-8", quoted(s, names[i]));
    if (names[i].size == 12 && memcmp(names[i].at, "__metadata__", 12) == 0)
      return moth_fail(s->ctx, MOTH_E_ARG, "names", "'__metadata__' is a reserved name");
    s->items[i] = (item){names[i], x, x->l.numel * moth_dtype_size[x->l.dtype], NULL};
    s->order[i] = &s->items[i];
  }
  qsort(s->order, s->n, sizeof *s->order, by_name);
  for (uint32_t i = 1; i < s->n; i++)
    if (by_name(&s->order[i - 1], &s->order[i]) == 0)
      return moth_fail(s->ctx, MOTH_E_ARG, "names", "two tensors are called %s",
                       quoted(s, s->order[i]->name));
  return MOTH_OK;
}

static int check_metadata(saver *s) {
  for (uint32_t i = 0; i < s->nmeta; i++) {
    if (!moth_utf8(s->keys[i]) || !moth_utf8(s->values[i]))
      return moth_fail(s->ctx, MOTH_E_ARG, "metadata", "%s or its value is not UTF-8",
                       quoted(s, s->keys[i]));
    if (s->keys[i].size == strlen(TIED) && memcmp(s->keys[i].at, TIED, strlen(TIED)) == 0)
      return moth_fail(s->ctx, MOTH_E_ARG, "metadata", "'" TIED "' is written by Moth alone");
    for (uint32_t k = 0; k < i; k++)
      if (moth_text_order(&s->keys[k], &s->keys[i]) == 0)
        return moth_fail(s->ctx, MOTH_E_ARG, "metadata", "%s is there twice",
                         quoted(s, s->keys[i]));
  }
  return MOTH_OK;
}

/* Have a and b the same elements of the same storage, in the same order? */
static bool same_bytes(const moth_tensor *a, const moth_tensor *b) {
  if (moth_storage_root(a->storage) != moth_storage_root(b->storage)) return false;
  if (a->l.dtype != b->l.dtype || a->l.ndim != b->l.ndim || a->l.numel == 0) return false;
  for (int d = 0; d < a->l.ndim; d++) {
    if (a->l.shape[d] != b->l.shape[d]) return false;
    if (a->l.shape[d] > 1 && a->l.stride[d] != b->l.stride[d]) return false;
  }
  return true;
}

/* Of several names for the same bytes, the alphabetically first one is written. */
static void find_ties(saver *s) {
  qsort(s->order, s->n, sizeof *s->order, by_address);
  for (uint32_t i = 1; i < s->n; i++) {
    item *one = s->order[i];
    for (uint32_t k = i; k-- > 0 && !one->tied;) {
      item *other = s->order[k];
      if (moth_at(other->x) != moth_at(one->x)) break;
      if (same_bytes(other->x, one->x)) one->tied = other->tied ? other->tied : other;
    }
    s->ntied += one->tied != NULL;
  }
  qsort(s->order, s->n, sizeof *s->order, by_size_and_name);
}

/* -- the header -- */

static void put_pair(moth_buffer *b, moth_text key, moth_text value) {
  if (b->at[b->size - 1] != '{') moth_put_word(b, ",");
  moth_put_json(b, key);
  moth_put_word(b, ":");
  moth_put_json(b, value);
}

static void put_metadata(saver *s) {
  moth_buffer tied = {0}, *b = &s->header;
  moth_put_word(b, "\"__metadata__\":{");
  for (uint32_t i = 0; i < s->nmeta && !b->failed; i++) put_pair(b, s->keys[i], s->values[i]);
  if (s->ntied) {
    moth_put_word(&tied, "{");
    for (uint32_t i = 0; i < s->n && !tied.failed; i++)
      if (s->order[i]->tied) put_pair(&tied, s->order[i]->name, s->order[i]->tied->name);
    moth_put_word(&tied, "}");
    b->failed |= tied.failed;
    if (!b->failed)
      put_pair(b, (moth_text){TIED, strlen(TIED)}, (moth_text){tied.at, tied.size});
    free(tied.at);
  }
  moth_put_word(b, "}");
}

static void put_tensor(moth_buffer *b, const item *t, int64_t start, int64_t end) {
  moth_put_json(b, t->name);
  moth_put_word(b, ":{\"dtype\":\"");
  moth_put_word(b, moth_safetensors_dtypes[t->x->l.dtype]);
  moth_put_word(b, "\",\"shape\":[");
  for (int d = 0; d < t->x->l.ndim; d++) {
    if (d) moth_put_word(b, ",");
    moth_put_size(b, t->x->l.shape[d]);
  }
  moth_put_word(b, "],\"data_offsets\":[");
  moth_put_size(b, start);
  moth_put_word(b, ",");
  moth_put_size(b, end);
  moth_put_word(b, "]}");
}

static int put_header(saver *s) {
  moth_buffer *b = &s->header;
  int64_t start = 0;
  bool first = true;
  moth_put_word(b, "{");
  if (s->nmeta || s->ntied) {
    put_metadata(s);
    first = false;
  }
  for (uint32_t i = 0; i < s->n; i++) {
    const item *t = s->order[i];
    if (t->tied) continue;
    if (!first) moth_put_word(b, ",");
    first = false;
    int64_t end;
    if (moth_add_overflow(start, t->nbytes, &end))
      return moth_fail(s->ctx, MOTH_E_LIMIT, "tensors", "more bytes than a file can hold");
    put_tensor(b, t, start, end);
    start = end;
  }
  s->nbytes = start;
  moth_put_word(b, "}");
  while (b->size % 8 && !b->failed) moth_put_word(b, " ");
  if (b->failed) return moth_fail(s->ctx, MOTH_E_MEM, NULL, "out of memory for the header");
  if (b->size > MOTH_MAX_HEADER)
    return moth_fail(s->ctx, MOTH_E_LIMIT, "metadata",
                     "names and metadata take %llu bytes, a file holds at most %d of them: large "
                     "data belongs in tensors",
                     (unsigned long long)b->size, MOTH_MAX_HEADER);
  return MOTH_OK;
}

/* -- the values -- */

/* Copies elements row-major through a buffer: the last dimension in the inner loop, an odometer for
** the others. */
static int write_strided(moth_sink *sink, const moth_tensor *x) {
  int64_t size = moth_dtype_size[x->l.dtype], index[MOTH_MAX_DIMS] = {0};
  int last = x->l.ndim - 1, status = MOTH_OK;
  char *buffer = malloc(PACK_BYTES);
  size_t used = 0;
  if (!buffer) return moth_fail(sink->ctx, MOTH_E_MEM, "tensors", "out of memory");
  for (const char *row = moth_at(x); row && !status;) {
    const char *at = row;
    for (int64_t i = 0; i < x->l.shape[last] && !status; i++, at += x->l.stride[last] * size) {
      memcpy(buffer + used, at, (size_t)size);
      used += (size_t)size;
      if (used + 8 <= PACK_BYTES) continue;
      status = moth_sink_write(sink, buffer, (int64_t)used);
      used = 0;
    }
    int d = last - 1;
    for (; d >= 0; d--) {
      row += x->l.stride[d] * size;
      if (++index[d] < x->l.shape[d]) break;
      row -= x->l.stride[d] * size * x->l.shape[d];
      index[d] = 0;
    }
    if (d < 0) row = NULL;
  }
  if (!status) status = moth_sink_write(sink, buffer, (int64_t)used);
  free(buffer);
  return status;
}

static int write_tensor(moth_sink *sink, const moth_tensor *given) {
  moth_tensor *here = given->l.device ? moth_to_host(given) : NULL; /* one tensor at a time */
  const moth_tensor *x = here ? here : given;
  const int64_t nbytes = x->l.numel * moth_dtype_size[x->l.dtype];
  int status = MOTH_OK;
  if (given->l.device && !here) status = sink->ctx->error.code;
  else if (nbytes && moth_contiguous(x)) status = moth_sink_write(sink, moth_at(x), nbytes);
  else if (nbytes) status = write_strided(sink, x);
  moth_tensor_release(here);
  return status;
}

static int write_all(saver *s, moth_sink *sink) {
  char start[8];
  uint64_t size = s->header.size;
  for (int i = 0; i < 8; i++) start[i] = (char)(size >> (8 * i) & 0xff);
  int status = moth_sink_write(sink, start, 8);
  if (!status) status = moth_sink_write(sink, s->header.at, (int64_t)s->header.size);
  for (uint32_t i = 0; i < s->n && !status; i++) {
    if (!s->order[i]->tied) status = write_tensor(sink, s->order[i]->x);
  }
  return status;
}

static int save(saver *s, const moth_text *path, const moth_text *names,
                const moth_handle *tensors) {
  s->items = malloc((s->n + 1u) * sizeof *s->items);
  s->order = malloc((s->n + 1u) * sizeof *s->order);
  if (!s->items || !s->order)
    return moth_fail(s->ctx, MOTH_E_MEM, "tensors", "out of memory for %u names", s->n);
  int status = take_tensors(s, names, tensors);
  if (!status) status = check_metadata(s);
  if (status) return status;
  find_ties(s);
  status = put_header(s);
  if (status) return status;
  moth_sink sink;
  int64_t size;
  if (moth_add_overflow(s->nbytes, 8 + (int64_t)s->header.size, &size)) size = 0;
  status = moth_sink_open(s->ctx, path, size, s->durable, &sink);
  return status ? status : moth_sink_close(&sink, write_all(s, &sink));
}

int32_t moth_safetensors_save(moth_ctx *ctx, const moth_text *path, const moth_text *names,
                              const moth_handle *tensors, uint32_t n, const moth_text *keys,
                              const moth_text *values, uint32_t nmeta, int32_t durable) {
  MOTH_NEED(ctx, path && (names || !n) && (tensors || !n) && (keys || !nmeta) &&
             (values || !nmeta), MOTH_E_ARG);
  saver s = {.ctx = ctx, .n = n, .keys = keys, .values = values, .nmeta = nmeta,
             .durable = durable != 0};
  moth_error_clear(ctx);
  int status = MOTH_NOTICE(ctx, READ, .what = "a file is written");
  if (!status) status = save(&s, path, names, tensors);
  free(s.items);
  free(s.order);
  free(s.header.at);
  return status;
}

int32_t moth_file_save(moth_ctx *ctx, const moth_text *path, const moth_piece *pieces, uint32_t n,
                       int32_t durable) {
  MOTH_NEED(ctx, path && (pieces || !n), MOTH_E_ARG);
  moth_sink sink;
  int64_t size = 0;
  moth_error_clear(ctx);
  if (MOTH_NOTICE(ctx, READ, .what = "a file is written")) return ctx->error.code;
  for (uint32_t i = 0; i < n; i++) {
    const moth_piece *p = &pieces[i];
    const moth_tensor *x = p->tensor._slot ? moth_resolve(ctx, &p->tensor, NULL) : NULL;
    if (p->tensor._slot && !x) return ctx->error.code;
    const int64_t more = x ? x->l.numel * moth_dtype_size[x->l.dtype] : (int64_t)p->text.size;
    if (moth_add_overflow(size, more, &size)) size = 0;
  }
  int status = moth_sink_open(ctx, path, size, durable != 0, &sink);
  if (status) return status;
  for (uint32_t i = 0; i < n && !status; i++) {
    const moth_piece *p = &pieces[i];
    if (!p->tensor._slot) status = moth_sink_write(&sink, p->text.at, (int64_t)p->text.size);
    else status = write_tensor(&sink, moth_resolve(ctx, &p->tensor, NULL));
  }
  return moth_sink_close(&sink, status);
}

/* safetensors.c -- reads safetensors files. The whole file is checked before a tensor is made.
**
** The header is parsed twice. The first pass allocates nothing: it checks syntax, dtypes, shapes
** and offsets, and counts the tensors. The second fills an index of exactly that size. Sorting the
** index finds overlaps, holes and duplicate names. After that the header is trusted.
*/
#include "save.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include <stdarg.h>
#include <stdlib.h>

const char *const moth_safetensors_dtypes[MOTH_DTYPES] = {
    "BOOL", "U8", "I8", "I16", "I32", "I64", "F16", "BF16", "F32", "F64"};

static const struct {
  const char *name;
  int8_t dtype; /* -1: valid in a file, but no dtype of Moth */
  uint8_t bits;
} dtypes[] = {
    {"BOOL", MOTH_BOOL, 8}, {"U8", MOTH_U8, 8},       {"I8", MOTH_I8, 8},
    {"I16", MOTH_I16, 16},  {"I32", MOTH_I32, 32},    {"I64", MOTH_I64, 64},
    {"F16", MOTH_F16, 16},  {"BF16", MOTH_BF16, 16},  {"F32", MOTH_F32, 32},
    {"F64", MOTH_F64, 64},  {"U16", -1, 16},          {"U32", -1, 32},
    {"U64", -1, 64},        {"C64", -1, 64},          {"F8_E4M3", -1, 8},
    {"F8_E5M2", -1, 8},     {"F8_E8M0", -1, 8},       {"F8_E4M3FNUZ", -1, 8},
    {"F8_E5M2FNUZ", -1, 8}, {"F6_E2M3", -1, 6},       {"F6_E3M2", -1, 6},
    {"F4", -1, 4}};
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

typedef struct stored {
  moth_text name;
  const int64_t *shape;
  int64_t start, nbytes; /* relative to the data */
  uint8_t kind, ndim;    /* kind: index in dtypes */
} stored;

typedef struct pair {
  moth_text key, value;
} pair;

typedef struct moth_file {
  uint32_t refs; /* atomic: tensors of any context retain it */
  moth_source source;
  char *header;
  int64_t header_size, data_size;
  stored *tensors, **by_name;
  pair *metadata;
  int64_t *shapes;
  uint32_t ntensors, nmetadata, nshapes;
} moth_file;

static void file_drop(void *owner) {
  moth_file *f = owner;
  if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL)) return;
  moth_source_close(&f->source);
  free(f->header);
  free(f->tensors);
  free(f->by_name);
  free(f->metadata);
  free(f->shapes);
  free(f);
}

/* -- errors -- */

typedef struct reader {
  moth_ctx *ctx;
  moth_file *file;
  moth_json json;
  bool fill; /* is this the second pass? */
  uint32_t ntensors, nmetadata, nshapes;
  char name[96]; /* quoted name of the current tensor */
} reader;

/* The argument that messages name. */
static const char *given_as(const moth_file *f) { return f->source.copied ? "bytes" : "path"; }

static int bad(reader *r, const char *format, ...) MOTH_FORMAT(2, 3);
static int bad(reader *r, const char *format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return moth_fail(r->ctx, MOTH_E_FORMAT, given_as(r->file), "%s: %s", r->file->source.shown, text);
}

static int malformed(reader *r) {
  return bad(r, "the header is broken at byte %lld of the file: expected %s",
             (long long)(8 + (r->json.at - r->json.text)), r->json.wrong);
}

/* -- the header -- */

/* In the second pass decodes a raw string in place. */
static moth_text decoded(reader *r, moth_text raw) {
  char *at = r->file->header + (raw.at - r->file->header);
  return (moth_text){at, moth_json_decode(raw, at)};
}

static int read_metadata(reader *r) {
  moth_json *j = &r->json;
  if (!moth_json_need(j, '{', "'{' after \"__metadata__\"")) return malformed(r);
  if (moth_json_next(j, '}')) return MOTH_OK;
  do {
    moth_text key, value;
    if (!moth_json_string(j, &key) || !moth_json_need(j, ':', "':'") ||
        !moth_json_string(j, &value))
      return malformed(r);
    if (r->fill)
      r->file->metadata[r->nmetadata] = (pair){decoded(r, key), decoded(r, value)};
    r->nmetadata++;
  } while (moth_json_next(j, ','));
  return moth_json_need(j, '}', "',' or '}'") ? MOTH_OK : malformed(r);
}

static int read_dtype(reader *r, stored *t) {
  moth_text raw;
  char shown[64];
  if (!moth_json_string(&r->json, &raw)) return malformed(r);
  for (t->kind = 0; t->kind < DTYPES; t->kind++)
    if (moth_json_is(raw, dtypes[t->kind].name)) return MOTH_OK;
  return bad(r, "tensor %s has the unknown dtype %s", r->name,
             moth_quote(raw, shown, sizeof shown));
}

static int read_shape(reader *r, stored *t, int64_t *shape) {
  moth_json *j = &r->json;
  if (!moth_json_need(j, '[', "'[' and the sizes of a shape")) return malformed(r);
  t->ndim = 0;
  if (moth_json_next(j, ']')) return MOTH_OK;
  do {
    if (t->ndim == MOTH_MAX_DIMS)
      return moth_fail(r->ctx, MOTH_E_UNSUPPORTED, given_as(r->file),
                       "%s: tensor %s has more than %d dimensions", r->file->source.shown, r->name,
                       MOTH_MAX_DIMS);
    if (!moth_json_size(j, &shape[t->ndim++])) return malformed(r);
  } while (moth_json_next(j, ','));
  return moth_json_need(j, ']', "',' or ']'") ? MOTH_OK : malformed(r);
}

static int read_offsets(reader *r, stored *t) {
  moth_json *j = &r->json;
  int64_t end;
  if (!moth_json_need(j, '[', "'[' and two offsets") || !moth_json_size(j, &t->start) ||
      !moth_json_need(j, ',', "',' and the second offset") || !moth_json_size(j, &end) ||
      !moth_json_need(j, ']', "']' after two offsets"))
    return malformed(r);
  if (end < t->start)
    return bad(r, "tensor %s ends at byte %lld, before its start at %lld", r->name, (long long)end,
               (long long)t->start);
  if (end > r->file->data_size)
    return bad(r, "tensor %s ends at byte %lld of the data, but there are only %lld", r->name,
               (long long)end, (long long)r->file->data_size);
  t->nbytes = end - t->start;
  return MOTH_OK;
}

/* The size in bytes of a shape of a dtype, by checked multiplications. Strides must not overflow
** either, so empty dimensions count as 1 in that check. */
static int check_size(reader *r, const stored *t, const int64_t *shape) {
  int64_t extent = dtypes[t->kind].bits;
  bool empty = false, overflow = false;
  for (int d = 0; d < t->ndim; d++) {
    empty |= shape[d] == 0;
    overflow |= moth_mul_overflow(extent, shape[d] ? shape[d] : 1, &extent);
  }
  if (overflow)
    return bad(r, "tensor %s is too large: %s of %s", r->name,
               moth_str_shape(r->ctx, t->ndim, shape), dtypes[t->kind].name);
  int64_t bits = empty ? 0 : extent;
  if (bits % 8)
    return bad(r, "tensor %s of %s does not end at a whole byte", r->name, dtypes[t->kind].name);
  if (bits / 8 != t->nbytes)
    return bad(r, "tensor %s, %s of %s, takes %lld bytes, but its offsets give %lld", r->name,
               moth_str_shape(r->ctx, t->ndim, shape), dtypes[t->kind].name, (long long)(bits / 8),
               (long long)t->nbytes);
  return MOTH_OK;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

static int read_field(reader *r, stored *t, int64_t *shape, unsigned *seen) {
  moth_text key;
  char shown[64];
  if (!moth_json_string(&r->json, &key) || !moth_json_need(&r->json, ':', "':'"))
    return malformed(r);
  unsigned field = moth_json_is(key, "dtype")          ? HAS_DTYPE
                   : moth_json_is(key, "shape")        ? HAS_SHAPE
                   : moth_json_is(key, "data_offsets") ? HAS_OFFSETS : 0;
  if (!field || (*seen & field))
    return bad(r, "tensor %s has %s field %s", r->name, field ? "a second" : "the unknown",
               moth_quote(key, shown, sizeof shown));
  *seen |= field;
  return field == HAS_DTYPE   ? read_dtype(r, t)
         : field == HAS_SHAPE ? read_shape(r, t, shape) : read_offsets(r, t);
}

static int read_tensor(reader *r, moth_text key) {
  stored t = {.ndim = 0};
  int64_t shape[MOTH_MAX_DIMS];
  unsigned seen = 0;
  moth_quote(key, r->name, sizeof r->name);
  if (!moth_json_need(&r->json, '{', "'{' and the fields of a tensor")) return malformed(r);
  do {
    int status = read_field(r, &t, shape, &seen);
    if (status) return status;
  } while (moth_json_next(&r->json, ','));
  if (!moth_json_need(&r->json, '}', "',' or '}'")) return malformed(r);
  if (seen != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS))
    return bad(r, "tensor %s lacks its %s", r->name,
               !(seen & HAS_DTYPE) ? "dtype" : !(seen & HAS_SHAPE) ? "shape" : "data_offsets");
  int status = check_size(r, &t, shape);
  if (status) return status;
  if (r->fill) {
    int64_t *kept = r->file->shapes + r->nshapes;
    memcpy(kept, shape, t.ndim * sizeof *kept);
    t.shape = kept;
    t.name = decoded(r, key);
    r->file->tensors[r->ntensors] = t;
  }
  r->ntensors++;
  r->nshapes += t.ndim;
  return MOTH_OK;
}

static int read_header(reader *r, bool fill) {
  moth_file *f = r->file;
  moth_json *j = &r->json;
  bool metadata = false;
  *j = (moth_json){f->header, f->header, f->header + f->header_size, NULL};
  r->fill = fill;
  r->ntensors = r->nmetadata = r->nshapes = 0;
  if (f->header[0] != '{') return bad(r, "the header does not begin with '{'");
  j->at++;
  if (moth_json_next(j, '}')) return moth_json_end(j) ? MOTH_OK : malformed(r);
  do {
    moth_text key;
    int status = moth_poll(r->ctx);
    if (status) return status;
    if (!moth_json_string(j, &key) || !moth_json_need(j, ':', "':'")) return malformed(r);
    if (!moth_json_is(key, "__metadata__")) {
      status = read_tensor(r, key);
    } else {
      status = metadata ? bad(r, "the header has two entries \"__metadata__\"") : read_metadata(r);
      metadata = true;
    }
    if (status) return status;
  } while (moth_json_next(j, ','));
  return moth_json_need(j, '}', "',' or '}'") && moth_json_end(j) ? MOTH_OK : malformed(r);
}

/* -- the index -- */

int moth_text_order(const moth_text *a, const moth_text *b) {
  size_t n = a->size < b->size ? a->size : b->size;
  int order = n ? memcmp(a->at, b->at, n) : 0;
  return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int by_place(const void *a, const void *b) {
  const stored *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? -1 : 1;
  return moth_text_order(&x->name, &y->name);
}

static int by_name(const void *a, const void *b) {
  return moth_text_order(&(*(stored *const *)a)->name, &(*(stored *const *)b)->name);
}

static int by_key(const void *a, const void *b) {
  return moth_text_order(&((const pair *)a)->key, &((const pair *)b)->key);
}

static int alloc_index(reader *r) {
  moth_file *f = r->file;
  f->ntensors = r->ntensors;
  f->nmetadata = r->nmetadata;
  f->nshapes = r->nshapes;
  f->tensors = malloc((f->ntensors + 1u) * sizeof *f->tensors);
  f->by_name = malloc((f->ntensors + 1u) * sizeof *f->by_name);
  f->metadata = malloc((f->nmetadata + 1u) * sizeof *f->metadata);
  f->shapes = malloc((f->nshapes + 1u) * sizeof *f->shapes);
  if (f->tensors && f->by_name && f->metadata && f->shapes) return MOTH_OK;
  return moth_fail(r->ctx, MOTH_E_MEM, "path", "%s: out of memory for its %u tensors",
                   f->source.shown, f->ntensors);
}

static int check_places(reader *r) {
  moth_file *f = r->file;
  int64_t end = 0;
  char other[96];
  qsort(f->tensors, f->ntensors, sizeof *f->tensors, by_place);
  for (uint32_t i = 0; i < f->ntensors; i++) {
    const stored *t = &f->tensors[i];
    moth_quote(t->name, r->name, sizeof r->name);
    if (t->start < end)
      return bad(r, "tensor %s overlaps tensor %s at byte %lld of the data", r->name,
                 moth_quote(f->tensors[i - 1].name, other, sizeof other), (long long)t->start);
    if (t->start > end)
      return bad(r, "a hole before tensor %s: bytes %lld to %lld of the data belong to none",
                 r->name, (long long)end, (long long)t->start - 1);
    end = t->start + t->nbytes;
  }
  if (end == f->data_size) return MOTH_OK;
  return bad(r, "no tensor holds the last %lld bytes", (long long)(f->data_size - end));
}

static int check_names(reader *r) {
  moth_file *f = r->file;
  for (uint32_t i = 0; i < f->ntensors; i++) f->by_name[i] = &f->tensors[i];
  qsort(f->by_name, f->ntensors, sizeof *f->by_name, by_name);
  qsort(f->metadata, f->nmetadata, sizeof *f->metadata, by_key);
  for (uint32_t i = 1; i < f->ntensors; i++)
    if (by_name(&f->by_name[i - 1], &f->by_name[i]) == 0)
      return bad(r, "two tensors are called %s",
                 moth_quote(f->by_name[i]->name, r->name, sizeof r->name));
  for (uint32_t i = 1; i < f->nmetadata; i++)
    if (by_key(&f->metadata[i - 1], &f->metadata[i]) == 0)
      return bad(r, "the metadata has the key %s twice",
                 moth_quote(f->metadata[i].key, r->name, sizeof r->name));
  return MOTH_OK;
}

static int build_index(reader *r) {
  int status = read_header(r, false);
  if (!status) status = alloc_index(r);
  if (!status) status = read_header(r, true);
  if (!status) status = check_places(r);
  return status ? status : check_names(r);
}

/* -- opening -- */

static const char *hint(const unsigned char *start) {
  if (start[0] == 'P' && start[1] == 'K')
    return " (a zip archive: a .pt of PyTorch or a .npz of NumPy?)";
  if (start[0] == 0x80 && start[1] < 6) return " (a Python pickle: an old .pt of PyTorch?)";
  return "";
}

/* Reads the header of f->source, which is open. */
static int read_file(moth_ctx *ctx, moth_file *f) {
  reader r = {.ctx = ctx, .file = f};
  unsigned char start[8];
  int status;
  if (f->source.size < 10)
    return bad(&r, "%lld bytes are too few for a safetensors file", (long long)f->source.size);
  status = moth_source_read(ctx, &f->source, 0, (char *)start, 8);
  if (status) return status;
  uint64_t size = 0;
  for (int i = 7; i >= 0; i--) size = size << 8 | start[i];
  if (size > MOTH_MAX_HEADER)
    return bad(&r, "no safetensors file: a header of %llu bytes, at most %d are allowed%s",
               (unsigned long long)size, MOTH_MAX_HEADER, hint(start));
  if (size < 2 || (int64_t)size > f->source.size - 8)
    return bad(&r, "a header of %llu bytes in a file of %lld", (unsigned long long)size,
               (long long)f->source.size);
  f->header_size = (int64_t)size;
  f->data_size = f->source.size - 8 - f->header_size;
  f->header = malloc(size);
  if (!f->header)
    return moth_fail(ctx, MOTH_E_MEM, "path", "%s: out of memory for its header", f->source.shown);
  status = moth_source_read(ctx, &f->source, 8, f->header, f->header_size);
  return status ? status : build_index(&r);
}

/* A tensor over bytes of the file, which it keeps open. */
static int hand_out_mapped(moth_ctx *ctx, moth_file *f, const moth_layout *l, char *data,
                           int64_t nbytes, moth_handle *out) {
  __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  moth_storage *s = moth_storage_foreign(ctx, data, nbytes, file_drop, f);
  if (!s) {
    file_drop(f);
    return ctx->error.code;
  }
  moth_tensor *x = moth_tensor_like(ctx, l, s);
  moth_storage_release(ctx, s);
  return x ? moth_hand_out(ctx, x, out) : ctx->error.code;
}

static moth_file *new_file(moth_ctx *ctx) {
  moth_file *f = calloc(1, sizeof *f);
  if (!f) {
    moth_fail(ctx, MOTH_E_MEM, "path", "out of memory");
    return NULL;
  }
  f->refs = 1;
  f->source.fd = -1;
  return f;
}

/* Returns the handle of a file that was read with `status`. Releases f. */
static int hand_out_file(moth_ctx *ctx, moth_file *f, int status, moth_handle *out) {
  const moth_layout none = {.ndim = 1, .dtype = MOTH_U8, .stride = {1}};
  if (!status) status = hand_out_mapped(ctx, f, &none, f->header, 0, out);
  file_drop(f);
  return status;
}

int32_t moth_safetensors_open(moth_ctx *ctx, const moth_text *path, int32_t map,
                              moth_handle *file) {
  MOTH_NEED(ctx, path && file, MOTH_E_ARG);
  moth_error_clear(ctx);
  moth_file *f = new_file(ctx);
  if (!f) return ctx->error.code;
  int status = moth_source_open(ctx, path, &f->source);
  if (!status) status = read_file(ctx, f);
  if (!status && map) (void)!moth_source_map(&f->source); /* if it cannot be mapped, it is read */
  return hand_out_file(ctx, f, status, file);
}

int32_t moth_safetensors_open_bytes(moth_ctx *ctx, const moth_text *bytes, moth_handle *file) {
  MOTH_NEED(ctx, bytes && file, MOTH_E_ARG);
  moth_error_clear(ctx);
  moth_file *f = new_file(ctx);
  if (!f) return ctx->error.code;
  int status = moth_source_bytes(ctx, bytes, &f->source);
  if (!status) status = read_file(ctx, f);
  return hand_out_file(ctx, f, status, file);
}

/* -- functions of moth.h -- */

static moth_file *file_of(moth_ctx *ctx, const moth_handle *h) {
  moth_error_clear(ctx);
  moth_tensor *x = moth_resolve(ctx, h, "file");
  if (!x) return NULL;
  moth_storage *s = moth_storage_root(x->storage);
  if (s->deleter == file_drop && s->nbytes == 0) return s->owner;
  moth_fail(ctx, MOTH_E_TYPE, "file", "a file is needed, got %s", moth_str(x));
  return NULL;
}

static stored *stored_at(moth_ctx *ctx, moth_file *f, int64_t i) {
  if (!f) return NULL;
  if (i >= 0 && i < f->ntensors) return &f->tensors[i];
  moth_fail(ctx, MOTH_E_INDEX, "i", "tensor " MOTH_POS " of %u", (long long)i, f->ntensors);
  return NULL;
}

int64_t moth_safetensors_count(moth_ctx *ctx, const moth_handle *file) {
  MOTH_NEED(ctx, file, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  return f ? (int64_t)f->ntensors : ctx->error.code;
}

int32_t moth_safetensors_at(moth_ctx *ctx, const moth_handle *file, int64_t i, moth_stored *info) {
  MOTH_NEED(ctx, file && info, MOTH_E_ARG);
  const stored *t = stored_at(ctx, file_of(ctx, file), i);
  if (!t) return ctx->error.code;
  info->name = t->name;
  info->format = dtypes[t->kind].name;
  info->dtype = dtypes[t->kind].dtype;
  info->ndim = t->ndim;
  info->nbytes = t->nbytes;
  memcpy(info->shape, t->shape, t->ndim * sizeof *t->shape);
  return MOTH_OK;
}

int64_t moth_safetensors_find(moth_ctx *ctx, const moth_handle *file, const moth_text *name) {
  MOTH_NEED(ctx, file && name, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  if (!f) return ctx->error.code;
  uint32_t low = 0, high = f->ntensors;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = moth_text_order(&f->by_name[middle]->name, name);
    if (order == 0) return f->by_name[middle] - f->tensors;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  char shown[96];
  return moth_fail(ctx, MOTH_E_INDEX, "name", "%s has no tensor %s", f->source.shown,
                   moth_quote(*name, shown, sizeof shown));
}

int64_t moth_safetensors_metadata_count(moth_ctx *ctx, const moth_handle *file) {
  MOTH_NEED(ctx, file, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  return f ? (int64_t)f->nmetadata : ctx->error.code;
}

int32_t moth_safetensors_metadata(moth_ctx *ctx, const moth_handle *file, int64_t i,
                                  moth_text *key, moth_text *value) {
  MOTH_NEED(ctx, file && key && value, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  if (!f) return ctx->error.code;
  if (i < 0 || i >= f->nmetadata)
    return moth_fail(ctx, MOTH_E_INDEX, "i", "entry " MOTH_POS " of %u", (long long)i,
                     f->nmetadata);
  *key = f->metadata[i].key;
  *value = f->metadata[i].value;
  return MOTH_OK;
}

/* In a file any byte except 0 is true; kernels need 1. */
static bool only_bits(const char *bytes, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if ((unsigned char)bytes[i] > 1) return false;
  return true;
}

static int hand_out_copy(moth_ctx *ctx, moth_file *f, const moth_layout *l, int64_t at,
                         int64_t nbytes, moth_handle *out) {
  moth_tensor *x = moth_tensor_new(ctx, l);
  if (!x) return ctx->error.code;
  char *to = moth_at(x);
  int status = MOTH_OK;
  if (f->source.map) memcpy(to, f->source.map + at, (size_t)nbytes);
  else status = moth_source_read(ctx, &f->source, at, to, nbytes);
  if (status) {
    moth_tensor_release(x);
    return status;
  }
  for (int64_t i = 0; l->dtype == MOTH_BOOL && i < nbytes; i++) to[i] = to[i] != 0;
  return moth_hand_out(ctx, x, out);
}

int32_t moth_safetensors_bytes(moth_ctx *ctx, const moth_handle *file, int64_t i,
                               moth_handle *out) {
  MOTH_NEED(ctx, file && out, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  const stored *t = stored_at(ctx, f, i);
  if (!t) return ctx->error.code;
  const moth_layout l = {.ndim = 1, .dtype = MOTH_U8, .numel = t->nbytes, .shape = {t->nbytes},
                         .stride = {1}};
  return hand_out_copy(ctx, f, &l, 8 + f->header_size + t->start, t->nbytes, out);
}

int32_t moth_safetensors_tensor(moth_ctx *ctx, const moth_handle *file, int64_t i,
                                moth_handle *out) {
  MOTH_NEED(ctx, file && out, MOTH_E_ARG);
  moth_file *f = file_of(ctx, file);
  const stored *t = stored_at(ctx, f, i);
  if (!t) return ctx->error.code;
  char shown[96];
  if (dtypes[t->kind].dtype < 0)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, given_as(f),
                     "%s: tensor %s has dtype %s, which Moth lacks", f->source.shown,
                     moth_quote(t->name, shown, sizeof shown), dtypes[t->kind].name);
  moth_layout l = {.dtype = (uint8_t)dtypes[t->kind].dtype};
  int status = moth_shape_of(ctx, "path", (moth_ints){t->shape, t->ndim}, &l);
  if (status) return status;
  int64_t at = 8 + f->header_size + t->start;
  char *data = f->source.map ? f->source.map + at : NULL;
  if (data && t->nbytes && at % moth_dtype_size[l.dtype] == 0 &&
      (l.dtype != MOTH_BOOL || only_bits(data, t->nbytes)))
    return hand_out_mapped(ctx, f, &l, data, t->nbytes, out);
  return hand_out_copy(ctx, f, &l, at, t->nbytes, out);
}

/* order.c -- sorting and selecting within rows, by keys. */
#include "order.h"

#include "elementwise.h"

/* -- keys -- */

#define TOP 0x8000000000000000u

#define INT_KEYS(name, type, wide)                                             \
  static void keys_##name(int64_t n, const void *from, uint64_t *keys) {       \
    const type *x = from;                                                      \
    const bool is_signed = (type)-1 < 0;                                       \
    const uint64_t flip = is_signed ? (uint64_t)1 << (8 * sizeof(type) - 1) : 0; \
    const uint64_t bits = UINT64_MAX >> (64 - 8 * sizeof(type));               \
    for (int64_t i = 0; i < n; i++) keys[i] = ((uint64_t)x[i] & bits) ^ flip;  \
  }
MOTH_EACH_INT(INT_KEYS)

/* Negative numbers have all bits turned, others the sign bit. */
static void keys_f32(int64_t n, const void *from, uint64_t *keys) {
  const float *x = from;
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] + 0.0f; /* which makes 0 of -0 */
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits ^= bits >> 31 ? UINT32_MAX : (uint32_t)1 << 31;
    keys[i] = v != v ? UINT32_MAX : bits;
  }
}

static void keys_f64(int64_t n, const void *from, uint64_t *keys) {
  const double *x = from;
  for (int64_t i = 0; i < n; i++) {
    const double v = x[i] + 0.0;
    uint64_t bits;
    memcpy(&bits, &v, 8);
    bits ^= bits >> 63 ? UINT64_MAX : TOP;
    keys[i] = v != v ? UINT64_MAX : bits;
  }
}

void moth_keys_of(int64_t n, const char *x, int dtype, bool descending, uint64_t *keys) {
  typedef void keys_loop(int64_t n, const void *x, uint64_t *keys);
  static keys_loop *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = keys_u8, MOTH_INT_ROWS(keys), MOTH_FLOAT_ROWS(keys)};
  loops[dtype](n, x, keys);
  if (dtype == MOTH_F32) /* so that NaN has one key for both */
    for (int64_t i = 0; i < n; i++)
      if (keys[i] == UINT32_MAX) keys[i] = MOTH_KEY_NAN;
  if (descending)
    for (int64_t i = 0; i < n; i++) keys[i] = ~keys[i];
}

/* -- sorting -- */

enum { RUN = 16, SMALL = 32, FEW = 192, DIGITS = 8, BYTES = 256 };

static void insertion(int64_t n, moth_keyed *x) {
  for (int64_t i = 1; i < n; i++) {
    const moth_keyed v = x[i];
    int64_t j = i;
    for (; j > 0 && x[j - 1].key > v.key; j--) x[j] = x[j - 1];
    x[j] = v;
  }
}

static void merge(const moth_keyed *a, int64_t na, const moth_keyed *b, int64_t nb,
                  moth_keyed *y) {
  int64_t i = 0, j = 0;
  while (i < na && j < nb) *y++ = b[j].key < a[i].key ? b[j++] : a[i++];
  memcpy(y, a + i, (size_t)(na - i) * sizeof *y);
  memcpy(y + (na - i), b + j, (size_t)(nb - j) * sizeof *y);
}

static void merge_sort(int64_t n, moth_keyed *x, moth_keyed *spare) {
  moth_keyed *from = x, *to = spare;
  for (int64_t i = 0; i < n; i += RUN) insertion(n - i < RUN ? n - i : RUN, x + i);
  for (int64_t width = RUN; width < n; width *= 2) {
    for (int64_t i = 0; i < n; i += 2 * width) {
      const int64_t left = n - i < width ? n - i : width;
      const int64_t right = n - i - left < width ? n - i - left : width;
      merge(from + i, left, from + i + left, right, to + i);
    }
    moth_keyed *was = from;
    from = to;
    to = was;
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
}

/* A byte at a time from the lowest; bytes that all elements share are passed over. */
static bool radix_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare) {
  int64_t count[DIGITS][BYTES] = {{0}};
  moth_keyed *from = x, *to = spare;
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < DIGITS; d++) count[d][x[i].key >> (8 * d) & 255u]++;
  for (int d = 0; d < DIGITS; d++) {
    int64_t *c = count[d], start = 0;
    if (c[x[0].key >> (8 * d) & 255u] == n) continue;
    if (moth_cancelled(ctx)) return false;
    for (int b = 0; b < BYTES; b++) {
      const int64_t here = c[b];
      c[b] = start;
      start += here;
    }
    for (int64_t i = 0; i < n; i++) to[c[from[i].key >> (8 * d) & 255u]++] = from[i];
    moth_keyed *was = from;
    from = to;
    to = was;
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
  return true;
}

bool moth_keyed_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare) {
  if (n <= RUN) insertion(n, x);
  else if (n <= FEW) merge_sort(n, x, spare);
  else return radix_sort(ctx, n, x, spare);
  return true;
}

uint64_t moth_key_select(int64_t n, const uint64_t *keys, int64_t k) {
  uint64_t prefix = 0, mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    int64_t count[BYTES] = {0};
    uint64_t byte = 0;
    for (int64_t i = 0; i < n; i++)
      if ((keys[i] & mask) == prefix) count[keys[i] >> shift & 255u]++;
    while (k >= count[byte]) k -= count[byte++];
    prefix |= byte << shift;
    mask |= (uint64_t)255 << shift;
  }
  return prefix;
}

/* -- rows -- */

/* Fills x with the first k of n, in the order of their positions. */
static void choose(int64_t n, const uint64_t *keys, int64_t k, moth_keyed *x) {
  const uint64_t last = k ? moth_key_select(n, keys, k - 1) : 0;
  int64_t equal = k;
  for (int64_t i = 0; i < n; i++) equal -= keys[i] < last;
  for (int64_t i = 0; i < n && k > 0; i++)
    if (keys[i] < last || (keys[i] == last && equal-- > 0)) {
      *x++ = (moth_keyed){keys[i], i};
      k--;
    }
}

/* The same, and in order, for a k that is small: most elements are no match for the k-th so far. */
static void choose_few(int64_t n, const uint64_t *keys, int64_t k, moth_keyed *x) {
  int64_t have = 0;
  for (int64_t i = 0; i < n; i++) {
    const uint64_t key = keys[i];
    if (have == k && key >= x[k - 1].key) continue;
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && x[at - 1].key > key; at--) x[at] = x[at - 1];
    x[at] = (moth_keyed){key, i};
  }
}

static void take_values(int64_t k, const char *row, int64_t size, const int64_t *position,
                        char *values) {
  for (int64_t i = 0; i < k; i++)
    memcpy(values + i * size, row + position[i] * size, (size_t)size);
}

int moth_rows_sort(const moth_rows *r, int64_t k, bool descending, char *values,
                   int64_t *position) {
  moth_ctx *ctx = r->owner->ctx;
  const int64_t n = r->length, size = moth_dtype_size[r->dtype];
  const int64_t bytes = (n ? n : 1) * (int64_t)(2 * sizeof(moth_keyed) + sizeof(uint64_t));
  int status = MOTH_OK;
  char *room = moth_alloc(ctx, bytes);
  if (!room) return ctx->error.code;
  moth_keyed *x = (moth_keyed *)(void *)room, *spare = x + n;
  uint64_t *keys = (uint64_t *)(void *)(spare + n);
  for (int64_t i = 0; i < r->count && !status; i++) {
    const char *row = r->x + i * n * size;
    moth_keys_of(n, row, r->dtype, descending, keys);
    const bool few = k > 0 && k <= SMALL && k < n / 4;
    if (few) choose_few(n, keys, k, x);
    else if (k < n / 4) choose(n, keys, k, x);
    else
      for (int64_t j = 0; j < n; j++) x[j] = (moth_keyed){keys[j], j};
    if (!few && !moth_keyed_sort(ctx, k < n / 4 ? k : n, x, spare)) {
      status = moth_stopped(ctx);
      break;
    }
    for (int64_t j = 0; j < k; j++) position[i * k + j] = x[j].at;
    if (values) take_values(k, row, size, position + i * k, values + i * k * size);
    if (moth_cancelled(ctx)) status = moth_stopped(ctx);
  }
  moth_dealloc(ctx, room, bytes);
  return status;
}

int moth_rows_rank(const moth_rows *r, int64_t k, char *values, int64_t *position) {
  moth_ctx *ctx = r->owner->ctx;
  const int64_t n = r->length, size = moth_dtype_size[r->dtype], bytes = n * 8;
  int status = MOTH_OK;
  uint64_t *keys = moth_alloc(ctx, bytes);
  if (!keys) return ctx->error.code;
  for (int64_t i = 0; i < r->count && !status; i++) {
    const char *row = r->x + i * n * size;
    int64_t at = 0, rank = k < 0 ? (n - 1) / 2 : k;
    moth_keys_of(n, row, r->dtype, false, keys);
    if (k < 0 && moth_is_float(r->dtype)) {
      while (at < n && keys[at] != MOTH_KEY_NAN) at++;
      if (at < n) rank = n - 1;
    }
    const uint64_t key = moth_key_select(n, keys, rank);
    for (at = 0; keys[at] != key;) at++;
    position[i] = at;
    memcpy(values + i * size, row + at * size, (size_t)size);
    if (moth_cancelled(ctx)) status = moth_stopped(ctx);
  }
  moth_dealloc(ctx, keys, bytes);
  return status;
}

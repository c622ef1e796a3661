/* sort.c -- sort, top k and rank selection within rows, by integer keys. */
#include "sort.h"
#include "base/error.h"
#include "base/alloc.h"

#include <math.h>
#include <stdatomic.h>

#include "base/threads.h"
#include "kernel/math/elementwise.h"

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

/* Flips all bits of negative numbers, and the sign bit of the others. */
static void keys_f32(int64_t n, const void *from, uint64_t *keys) {
  const float *x = from;
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits ^= bits >> 31 ? UINT32_MAX : (uint32_t)1 << 31;
    keys[i] = v != v ? MOTH_KEY_NAN : bits;
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
  if (descending)
    for (int64_t i = 0; i < n; i++) keys[i] = ~keys[i];
}

/* -- runs -- */

/* Runs from the end: the first element of a run is written last, which needs no branches. */
#define RUNS(name, type, wide)                                                 \
  static int64_t runs_##name(int64_t n, const void *from, int64_t *first, void *values) { \
    const type *x = from;                                                      \
    type *y = values;                                                          \
    int64_t count = n > 0;                                                     \
    for (int64_t i = 1; i < n; i++) count += x[i] != x[i - 1];                 \
    if (n == 0) return count;                                                  \
    int64_t to = count - 1;                                                    \
    for (int64_t i = n - 1; first && i > 0; i--) {                             \
      first[to] = i;                                                           \
      to -= x[i] != x[i - 1];                                                  \
    }                                                                          \
    if (first) first[0] = 0;                                                   \
    to = count - 1;                                                            \
    for (int64_t i = n - 1; values && i > 0; i--) {                            \
      y[to] = x[i];                                                            \
      to -= x[i] != x[i - 1];                                                  \
    }                                                                          \
    if (values) y[0] = x[0];                                                   \
    return count;                                                              \
  }
MOTH_EACH_INT(RUNS)
MOTH_EACH_FLOAT(RUNS)

int64_t moth_runs_of(int64_t n, const char *x, int dtype, int64_t *first, char *values) {
  typedef int64_t runs_loop(int64_t n, const void *x, int64_t *first, void *values);
  static runs_loop *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = runs_u8, MOTH_INT_ROWS(runs), MOTH_FLOAT_ROWS(runs)};
  return loops[dtype](n, x, first, values);
}

/* -- sorting -- */

enum { INSERTION_RUN = 16, SMALL_K = 32, MERGE_KEYS = 192, DIGITS = 8, BYTES = 256,
       POLL_KEYS = 1 << 14 /* keys between two polls */, PAGE_KEYS = 4096 / sizeof(moth_keyed) };

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
  for (int64_t i = 0; i < n; i += INSERTION_RUN)
    insertion(n - i < INSERTION_RUN ? n - i : INSERTION_RUN, x + i);
  for (int64_t width = INSERTION_RUN; width < n; width *= 2) {
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

/* Sorts by one byte at a time, from the lowest byte on; skips bytes that are equal in all
** elements. */
static bool radix_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare) {
  int64_t count[DIGITS][BYTES] = {{0}};
  moth_keyed *from = x, *to = spare;
  for (int64_t i = 0; i < n; i++) {
    for (int d = 0; d < DIGITS; d++) count[d][x[i].key >> (8 * d) & 255u]++;
    if (i % POLL_KEYS == POLL_KEYS - 1 && moth_cancelled(ctx)) return false;
  }
  for (int d = 0; d < DIGITS; d++) {
    int64_t *c = count[d], start = 0;
    if (c[x[0].key >> (8 * d) & 255u] == n) continue;
    for (int b = 0; b < BYTES; b++) {
      const int64_t here = c[b];
      c[b] = start;
      start += here;
    }
    for (int64_t i = 0, end; i < n;) {
      for (end = n - i < POLL_KEYS ? n : i + POLL_KEYS; i < end; i++)
        to[c[from[i].key >> (8 * d) & 255u]++] = from[i];
      if (moth_cancelled(ctx)) return false;
    }
    moth_keyed *was = from;
    from = to;
    to = was;
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
  return true;
}

bool moth_keyed_sort(moth_ctx *ctx, int64_t n, moth_keyed *x, moth_keyed *spare) {
  if (n <= INSERTION_RUN) insertion(n, x);
  else if (n <= MERGE_KEYS) merge_sort(n, x, spare);
  else return radix_sort(ctx, n, x, spare);
  return true;
}

/* The end of the block of keys that begins at i: loops over long rows poll between blocks. */
static int64_t block_end(int64_t i, int64_t n) { return n - i < POLL_KEYS ? n : i + POLL_KEYS; }

static bool block_stops(moth_ctx *ctx, int64_t end, int64_t n) {
  return end < n && moth_cancelled(ctx);
}

/* The bits in which n keys differ from the first. */
static bool differing(moth_ctx *ctx, int64_t n, const uint64_t *keys, uint64_t *differ) {
  const uint64_t one = keys[0];
  uint64_t bits = 0;
  for (int64_t i = 0, end; i < n;) {
    for (end = block_end(i, n); i < end; i++) bits |= keys[i] ^ one;
    if (block_stops(ctx, end, n)) return false;
  }
  *differ = bits;
  return true;
}

/* *found := the key of a rank, which counts from 0, among n keys. *rank becomes the rank among the
** equal keys. `spare` has space for n keys. Each round counts the eight highest bits in which the
** keys differ, and continues with the keys whose bits are those of the wanted key. Returns false if
** a cancel stopped it. */
static bool select_key(moth_ctx *ctx, int64_t n, const uint64_t *keys, int64_t *rank,
                       uint64_t *spare, uint64_t *found) {
  int64_t k = *rank;
  for (uint64_t differ;;) {
    if (!differing(ctx, n, keys, &differ)) return false;
    if (!differ) {
      *rank = k;
      *found = keys[0];
      return true;
    }
    const int high = 63 - __builtin_clzll(differ), shift = high > 7 ? high - 7 : 0;
    int64_t count[BYTES] = {0}, left = 0;
    uint64_t byte = 0;
    for (int64_t i = 0, end; i < n;) {
      for (end = block_end(i, n); i < end; i++) count[keys[i] >> shift & 255u]++;
      if (block_stops(ctx, end, n)) return false;
    }
    while (k >= count[byte]) k -= count[byte++];
    for (int64_t i = 0, end; i < n;) {
      for (end = block_end(i, n); i < end; i++) {
        const uint64_t key = keys[i];
        spare[left] = key;
        left += (key >> shift & 255u) == byte;
      }
      if (block_stops(ctx, end, n)) return false;
    }
    keys = spare;
    n = left;
  }
}

/* -- rows. The functions return false if a cancel stopped them. -- */

/* x := the first k of n keys, in the order of their positions. x has space for n keys. */
static bool choose(moth_ctx *ctx, int64_t n, const uint64_t *keys, int64_t k, moth_keyed *x) {
  int64_t have = 0, equal = k - 1;
  uint64_t last = 0;
  if (k && !select_key(ctx, n, keys, &equal, (uint64_t *)(void *)x, &last)) return false;
  for (int64_t i = 0, end; have < k;) {
    for (end = block_end(i, n); i < end && have < k; i++) {
      const uint64_t key = keys[i];
      x[have] = (moth_keyed){key, i};
      have += (key < last) | ((key == last) & (equal >= 0));
      equal -= key == last;
    }
    if (have < k && block_stops(ctx, end, n)) return false;
  }
  return true;
}

/* x := the first k of n keys, sorted, for a small k: most elements are above the k-th so far. */
static bool choose_few(moth_ctx *ctx, int64_t n, const uint64_t *keys, int64_t k, moth_keyed *x) {
  int64_t have = 0;
  uint64_t last = UINT64_MAX; /* the k-th key so far */
  for (int64_t i = 0, end = block_end(0, n); i < n;) {
    for (; have == k && i + 4 <= end; i += 4)
      if ((keys[i] < last) | (keys[i + 1] < last) | (keys[i + 2] < last) | (keys[i + 3] < last))
        break;
    if (i == end) {
      if (block_stops(ctx, end, n)) return false;
      end = block_end(i, n);
      continue;
    }
    const moth_keyed new = {keys[i], i};
    i++;
    if (new.key >= last && have == k) continue;
    int64_t at = have < k ? have++ : k - 1;
    for (; at > 0 && x[at - 1].key > new.key; at--) x[at] = x[at - 1];
    x[at] = new;
    if (have == k) last = x[k - 1].key;
  }
  return true;
}

/* As choose(), for a k that is small relative to n. Keeps the elements below the k-th so far; at 2
** k kept elements, keeps the first k of them. In random order this happens ln(n / k) times. If it
** happens MOST_ROUNDS times, for example in a row sorted the other way, choose() takes over.
** `spare` has space for 2 k elements. */
enum { MOST_ROUNDS = 16 };
static bool choose_kept(moth_ctx *ctx, int64_t n, const uint64_t *keys, int64_t k, moth_keyed *x,
                        moth_keyed *spare) {
  uint64_t *kept = (uint64_t *)(void *)spare, last = UINT64_MAX;
  int64_t *at = (int64_t *)(void *)(kept + 2 * k), have = 0;
  bool full = false; /* k elements have been found */
  int rounds = 0;
  for (int64_t i = 0, end = block_end(0, n); i < n;) {
    if (full && i + 4 <= n && !((keys[i] < last) | (keys[i + 1] < last) |
                                (keys[i + 2] < last) | (keys[i + 3] < last))) {
      i += 4;
    } else {
      kept[have] = keys[i];
      at[have] = i;
      have += !full | (keys[i] < last);
      i++;
    }
    if (i >= end) {
      if (block_stops(ctx, end, n)) return false;
      end = block_end(i, n);
    }
    if (have < 2 * k && i < n) continue;
    if (++rounds > MOST_ROUNDS) return choose(ctx, n, keys, k, x);
    if (!choose(ctx, have, kept, k, x)) return false;
    full = true;
    last = 0;
    for (have = 0; have < k; have++) {
      kept[have] = x[have].key;
      at[have] = x[have].at = at[x[have].at];
      last = kept[have] > last ? kept[have] : last;
    }
  }
  return true;
}

static void take_values(int64_t k, const char *row, int64_t size, const int64_t *position,
                        char *values) {
  for (int64_t i = 0; i < k; i++)
    memcpy(values + i * size, row + position[i] * size, (size_t)size);
}

/* values := the i64 values of contiguous keys, from which `less` was subtracted. */
static void values_of_keys(int64_t k, const moth_keyed *x, uint64_t less, bool descending,
                           char *values) {
  const uint64_t turn = descending ? ~TOP : TOP;
  uint64_t *to = (uint64_t *)(void *)values;
  for (int64_t i = 0; i < k; i++) to[i] = (x[i].key + less) ^ turn;
}

/* x := all elements of a row. For integers the least key is subtracted and set: keys on both sides
** of 0 would differ in all high bytes, and the sort would have to read those. Also writes to each
** page of `spare`: the sort would touch all of its new pages, milliseconds of work for the kernel,
** between two polls. */
static bool from_least(moth_ctx *ctx, int64_t n, bool integers, const uint64_t *keys,
                       moth_keyed *x, moth_keyed *spare, uint64_t *set) {
  uint64_t least = integers ? UINT64_MAX : 0;
  for (int64_t j = 0; integers && j < n; j++) least = keys[j] < least ? keys[j] : least;
  for (int64_t j = 0; j < n; j++) {
    x[j] = (moth_keyed){keys[j] - least, j};
    if (j % PAGE_KEYS == 0) spare[j].key = 0;
    if (j % POLL_KEYS == POLL_KEYS - 1 && moth_cancelled(ctx)) return false;
  }
  *set = least;
  return true;
}

/* A job whose rows threads share. Each thread has scratch space for one row. */
typedef struct ordering {
  const moth_rows *r;
  const moth_rank *rank;
  int64_t k;
  bool descending;
  char *values;
  int64_t *position;
  char *scratch;
  int64_t each; /* bytes of scratch for a thread */
  atomic_bool *stopped;
} ordering;

static bool row_keys(const ordering *o, int64_t n, const char *row, int64_t size,
                     uint64_t *keys) {
  for (int64_t j = 0; j < n; j += POLL_KEYS) {
    const int64_t some = n - j < POLL_KEYS ? n - j : POLL_KEYS;
    moth_keys_of(some, row + j * size, o->r->dtype, o->descending, keys + j);
    if (moth_cancelled(o->r->owner->ctx)) return false;
  }
  return true;
}

/* Writes the results of row i, whose first k elements are x. */
static bool row_results(const ordering *o, int64_t i, const moth_keyed *x, uint64_t less) {
  const int64_t k = o->k, size = moth_dtype_size[o->r->dtype];
  const char *row = o->r->x + i * o->r->length * size;
  for (int64_t j = 0; j < k; j += POLL_KEYS) {
    const int64_t some = k - j < POLL_KEYS ? k - j : POLL_KEYS;
    int64_t *position = o->position + i * k + j;
    char *values = o->values ? o->values + (i * k + j) * size : NULL;
    for (int64_t m = 0; m < some; m++) position[m] = x[j + m].at;
    if (values && o->r->dtype == MOTH_I64)
      values_of_keys(some, x + j, less, o->descending, values);
    else if (values) take_values(some, row, size, position, values);
    if (moth_cancelled(o->r->owner->ctx)) return false;
  }
  return true;
}

static void sort_rows(int64_t first, int64_t last, int thread, const void *arg) {
  const ordering *o = arg;
  moth_ctx *ctx = o->r->owner->ctx;
  const int64_t n = o->r->length, k = o->k, size = moth_dtype_size[o->r->dtype];
  moth_keyed *x = (moth_keyed *)(void *)(o->scratch + thread * o->each), *spare = x + n;
  uint64_t *keys = (uint64_t *)(void *)(spare + n);
  const bool part = k < n / 4, few = part && k > 0 && k <= SMALL_K;
  for (int64_t i = first; i < last && !atomic_load(o->stopped); i++) {
    uint64_t less = 0;
    bool ok = row_keys(o, n, o->r->x + i * n * size, size, keys);
    if (!ok) {
      atomic_store(o->stopped, true);
      return;
    }
    if (few) ok = choose_few(ctx, n, keys, k, x);
    else if (part && k > 0 && k < n / 64) ok = choose_kept(ctx, n, keys, k, x, spare);
    else if (part) ok = choose(ctx, n, keys, k, x);
    else ok = from_least(ctx, n, !moth_is_float(o->r->dtype), keys, x, spare, &less);
    if (ok && !few) ok = moth_keyed_sort(ctx, part ? k : n, x, spare);
    if (!ok || !row_results(o, i, x, less) || moth_cancelled(ctx)) atomic_store(o->stopped, true);
  }
}

/* The wanted rank among n keys. nan: the position of the first NaN, or n. */
static int64_t rank_in(const moth_rank *wanted, int64_t n, const uint64_t *keys, int64_t nan) {
  if (wanted->k >= 0) return wanted->k;
  if (nan < n && !wanted->skips_nan) return n - 1;
  int64_t good = n;
  for (int64_t i = nan; i < n; i++) good -= keys[i] == MOTH_KEY_NAN;
  const double at = wanted->share * (double)(good > 0 ? good - 1 : 0);
  return (int64_t)(wanted->above ? ceil(at) : at);
}

/* Returns false if a cancel stopped it. */
static bool rank_row(const ordering *o, int64_t i, uint64_t *keys) {
  moth_ctx *ctx = o->r->owner->ctx;
  const int64_t n = o->r->length, size = moth_dtype_size[o->r->dtype];
  const char *row = o->r->x + i * n * size;
  int64_t at = moth_is_float(o->r->dtype) ? 0 : n;
  uint64_t key;
  if (!row_keys(o, n, row, size, keys)) return false;
  while (o->rank->k < 0 && at < n && keys[at] != MOTH_KEY_NAN) at++;
  int64_t rank = rank_in(o->rank, n, keys, at);
  if (!select_key(ctx, n, keys, &rank, keys + n, &key)) return false;
  for (at = 0; keys[at] != key;) at++;
  o->position[i] = at;
  memcpy(o->values + i * size, row + at * size, (size_t)size);
  return !moth_cancelled(ctx);
}

static void rank_rows(int64_t first, int64_t last, int thread, const void *arg) {
  const ordering *o = arg;
  uint64_t *keys = (uint64_t *)(void *)(o->scratch + thread * o->each);
  for (int64_t i = first; i < last && !atomic_load(o->stopped); i++)
    if (!rank_row(o, i, keys)) atomic_store(o->stopped, true);
}

#define MOST_SCRATCH ((int64_t)256 << 20) /* bytes of scratch of all threads together */

/* Allocates a scratch buffer for each thread, or one buffer if rows are long; then rows are
** processed one at a time. */

static int run_rows(ordering *o, int64_t each, double cost, moth_work *work) {
  moth_ctx *ctx = o->r->owner->ctx;
  const int64_t rows = o->r->count, lanes = moth_lanes(ctx);
  const bool shared = lanes > 1 && rows > 1 && each <= MOST_SCRATCH / lanes;
  const int64_t bytes = (each + 63) / 64 * 64 * (shared ? lanes : 1);
  int status = MOTH_OK;
  atomic_bool stopped = false;
  o->each = (each + 63) / 64 * 64;
  o->scratch = moth_alloc(ctx, bytes);
  if (!o->scratch) return ctx->error.code;
  o->stopped = &stopped;
  if (shared) status = moth_parallel(ctx, rows, 1, cost, work, o);
  for (int64_t i = 0; !shared && i < rows && !stopped; i++) work(i, i + 1, 0, o);
  if (!status && stopped) status = moth_stopped(ctx);
  moth_dealloc(ctx, o->scratch, bytes);
  return status;
}

int moth_rows_sort(const moth_rows *r, int64_t k, bool descending, char *values,
                   int64_t *position) {
  const int64_t n = r->length ? r->length : 1;
  const double cost = (double)n * (k < n / 4 ? 6 : n <= MERGE_KEYS ? 20 : 50);
  ordering o = {.r = r, .k = k, .descending = descending, .values = values, .position = position};
  return run_rows(&o, n * (int64_t)(2 * sizeof(moth_keyed) + sizeof(uint64_t)), cost, sort_rows);
}

int moth_rows_rank(const moth_rows *r, const moth_rank *rank, char *values, int64_t *position) {
  ordering o = {.r = r, .rank = rank, .values = values, .position = position};
  return run_rows(&o, r->length * 16, 6 * (double)r->length, rank_rows);
}

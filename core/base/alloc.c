/* alloc.c -- the block cache. Freed blocks are kept, since fresh pages cost more than arithmetic.
**
** Sizes are rounded up to classes, eight per power of two. Each class has a chain of free blocks in
** the context. A block may be freed in another context than the one that allocated it. Nothing is
** kept under AddressSanitizer, so that it detects a use after free, and under tools that check a
** GPU's kernels. The memory limit and the allocation failures for tests are here, too.
**
** The cache has a bound for the bytes of blocks in use and free blocks together: 5/4 of the most
** bytes in use recently, plus SPARE, and at most the memory limit. "Recently" is the current period
** and the last one. A period ends when the bytes handed out reach PERIOD times that maximum. Only
** the calls that leave the inline functions count and check, so a loop that finds all its blocks in
** the cache pays nothing. Above the bound, the large class that was used least recently loses a
** block first.
*/
#include <stdlib.h>

#include "context.h"
#include "system.h"
#include "error.h"
#include "alloc.h"

#if defined(__SANITIZE_ADDRESS__) || defined(MOTH_KEEPS_NO_BLOCKS)
#define KEEP_BLOCKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEP_BLOCKS 0
#endif
#endif
#ifndef KEEP_BLOCKS
#define KEEP_BLOCKS 1
#endif

#define HUGE_PAGE ((int64_t)2 << 20)
#define MAX_BLOCK_BYTES ((int64_t)1 << 37)
#define SMALL_CLASSES 113         /* sizes up to MOTH_INLINE_BLOCK */
#define PAGED ((int64_t)1 << 16)  /* the smallest block whose pages are returned separately */
#define SPARE ((int64_t)32 << 20) /* bytes that may be cached in any case */
#define PERIOD 8

_Static_assert((SMALL_CLASSES - 1) % 8 == 0 &&
                 MOTH_INLINE_BLOCK == (uint64_t)MOTH_ALIGN << (SMALL_CLASSES - 1) / 8,
               "the last small class is that of MOTH_INLINE_BLOCK");

/* The size of the blocks of a class. */
static int64_t class_size(uint32_t c) {
  if (c == 0) return MOTH_ALIGN;
  uint32_t k = 6 + (c - 1) / 8;
  uint64_t size = ((uint64_t)1 << k) + ((c - 1) % 8 + 1) * ((uint64_t)1 << (k - 3));
  return (int64_t)((size + MOTH_ALIGN - 1) / MOTH_ALIGN * MOTH_ALIGN);
}

static void *block_new(int64_t size) {
  if (KEEP_BLOCKS && size >= HUGE_PAGE) return moth_pages_new((size_t)HUGE_PAGE, (size_t)size);
  return moth_aligned_new(MOTH_ALIGN, (size_t)size);
}

/* The size of a block for nbytes. Without a cache it is exact, so that every overrun is
** detected. */
static int64_t block_size(int64_t nbytes) {
  return KEEP_BLOCKS ? class_size(moth_class_of(nbytes)) : nbytes;
}

void moth_block_free(void *block, int64_t nbytes) {
  const size_t size = (size_t)block_size(nbytes);
  if (KEEP_BLOCKS && size >= HUGE_PAGE) {
    moth_pages_free(block, size);
    return;
  }
  /* The C library may keep a freed block, so its pages are returned to the system first. */
  if (KEEP_BLOCKS && size >= PAGED) moth_aligned_drop(block, size);
  moth_aligned_free(block);
}

static void block_free(moth_ctx *ctx, void *block, int64_t size) {
  ctx->cache.held -= size;
  moth_block_free(block, size);
}

void moth_block_left(moth_ctx *ctx, int64_t nbytes) { ctx->cache.held -= block_size(nbytes); }

void moth_block_came(moth_ctx *ctx, int64_t nbytes) { ctx->cache.held += block_size(nbytes); }

void moth_keep_blocks(moth_ctx *ctx, bool keep) { ctx->keeps_blocks = keep && KEEP_BLOCKS; }

/* -- the chains -- */

static void *pop(moth_ctx *ctx, uint32_t c) {
  moth_chain *chain = &ctx->blocks[c];
  void *block = chain->first;
  if (!block) return NULL;
  memcpy(&chain->first, block, sizeof(void *));
  chain->count--;
  if (c >= SMALL_CLASSES) ctx->cache.large -= class_size(c);
  return block;
}

static int64_t count_small(moth_ctx *ctx) {
  int64_t bytes = 0;
  for (uint32_t c = 0; c < SMALL_CLASSES; c++)
    if (ctx->blocks[c].count) bytes += ctx->blocks[c].count * class_size(c);
  return ctx->cache.small = bytes;
}

int64_t moth_cached_bytes(const moth_ctx *ctx) {
  int64_t bytes = 0;
  for (uint32_t c = 0; c < MOTH_CLASSES; c++) bytes += ctx->blocks[c].count * class_size(c);
  return bytes;
}

void moth_empty_cache(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  for (uint32_t c = 0; c < MOTH_CLASSES; c++)
    for (void *block; (block = pop(ctx, c));) block_free(ctx, block, class_size(c));
  ctx->cache.small = 0;
}

/* -- the bound -- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Frees the same share of each small class, about `bytes` in all. */
static void trim_small(moth_ctx *ctx, int64_t bytes) {
  const double share = (double)bytes / (double)larger(ctx->cache.small, 1);
  for (uint32_t c = 0; c < SMALL_CLASSES; c++) {
    int64_t n = (int64_t)(share * (double)ctx->blocks[c].count) + 1;
    for (void *block; n-- > 0 && (block = pop(ctx, c));) block_free(ctx, block, class_size(c));
  }
  count_small(ctx);
  if (bytes >= SPARE / 4) moth_aligned_trim();
}

/* Frees a block of the large class that was used least recently. Returns false if there is none. */
static bool trim_large(moth_ctx *ctx) {
  uint32_t oldest = 0;
  if (!ctx->cache.large) return false;
  for (uint32_t c = SMALL_CLASSES; c < MOTH_CLASSES; c++)
    if (ctx->blocks[c].count && (!oldest || ctx->cache.used[c] < ctx->cache.used[oldest]))
      oldest = c;
  void *block = pop(ctx, oldest);
  if (block) block_free(ctx, block, class_size(oldest));
  return block != NULL;
}

/* Frees blocks until at most `most` bytes are held, or no free block is left. */
static void trim(moth_ctx *ctx, int64_t most) {
  moth_cache *k = &ctx->cache;
  int64_t over = k->held - most, more = count_small(ctx) - k->large;
  if (over > 0 && more > 0) trim_small(ctx, over < more ? over : more);
  while (k->held > most && trim_large(ctx)) continue;
  if (k->held > most && k->small) trim_small(ctx, k->held - most);
}

/* The most bytes that the context may hold now, in use or free. */
static int64_t bound(const moth_ctx *ctx) {
  const int64_t high = larger(ctx->cache.high, ctx->cache.last), limit = ctx->mem.limit_bytes;
  const int64_t most = larger(high + high / 4 + SPARE, ctx->cache.reserved);
  return limit > 0 && limit < most ? limit : most;
}

/* Updates the maximum of bytes in use. `more` bytes are about to be allocated from the system. */
static void note_use(moth_ctx *ctx, int64_t more) {
  moth_cache *k = &ctx->cache;
  const int64_t now = k->held + more - k->large - k->small;
  if (now > k->high) k->high = now;
  if (k->passed < PERIOD * larger(larger(k->high, k->last), SPARE)) return;
  count_small(ctx);
  k->last = k->high;
  k->high = larger(k->held + more - k->large - k->small, 0);
  k->passed = 0;
  if (k->held + more > bound(ctx)) trim(ctx, bound(ctx) - more);
}

/* Called before a block of `size` bytes is allocated from the system. */
static void trim_for(moth_ctx *ctx, int64_t size) {
  moth_cache *k = &ctx->cache;
  k->passed += size;
  if (k->held + size <= bound(ctx)) return;
  count_small(ctx);
  note_use(ctx, size);
  const int64_t most = bound(ctx);
  if (k->held + size > most) trim(ctx, most - most / 32 - size);
}

void moth_age_cache(moth_ctx *ctx) {
  ctx->cache.passed += larger(ctx->cache.high, ctx->cache.last) / 2;
  count_small(ctx);
  note_use(ctx, 0);
}

void moth_trim_cache(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_cache *k = &ctx->cache;
  count_small(ctx);
  k->last = 0;
  k->high = larger(k->held - k->large - k->small, 0);
  trim(ctx, larger(k->high + SPARE, k->reserved));
}

void moth_memory_reserve(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, );
  ctx->cache.reserved = on ? larger(ctx->cache.held, ctx->cache.reserved) : 0;
}

/* -- blocks -- */

static void *take_large(moth_ctx *ctx, uint32_t c) {
  moth_cache *k = &ctx->cache;
  k->used[c] = ++k->clock;
  void *block = pop(ctx, c);
  if (block) {
    k->passed += class_size(c);
    if (k->clock % 16 == 0) count_small(ctx);
    note_use(ctx, 0);
  }
  return block;
}

void *moth_alloc_block(moth_ctx *ctx, int64_t nbytes) {
  if (ctx->fail_after > 0 && --ctx->fail_after == 0) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory (as asked for by a test)");
    return NULL;
  }
  if (nbytes < 0 || nbytes > MAX_BLOCK_BYTES) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory: %lld bytes asked for", (long long)nbytes);
    return NULL;
  }
  uint32_t c = moth_class_of(nbytes);
  void *block = c < SMALL_CLASSES ? pop(ctx, c) : take_large(ctx, c);
  if (block) return block;
  if (ctx->closed) {
    moth_fail_closed(ctx);
    return NULL;
  }
  ctx->mem.allocations++;
  int64_t size = block_size(nbytes);
  trim_for(ctx, size);
  block = block_new(size);
  if (!block) {
    moth_empty_cache(ctx);
    block = block_new(size);
  }
  if (!block) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory: %lld bytes asked for, %lld in use",
              (long long)nbytes, (long long)ctx->mem.live_bytes);
    return NULL;
  }
  ctx->cache.held += size;
  if (c >= SMALL_CLASSES) note_use(ctx, 0);
  return block;
}

void moth_dealloc_block(moth_ctx *ctx, void *block, int64_t nbytes) {
  if (!ctx->keeps_blocks) {
    block_free(ctx, block, block_size(nbytes));
    return;
  }
  const uint32_t c = moth_class_of(nbytes);
  moth_chain *chain = &ctx->blocks[c];
  memcpy(block, &chain->first, sizeof(void *));
  chain->first = block;
  chain->count++;
  if (c < SMALL_CLASSES) return;
  ctx->cache.large += class_size(c);
  const int64_t limit = ctx->mem.limit_bytes;
  if (limit > 0 && ctx->cache.held > limit) trim(ctx, limit);
}

int moth_grow(moth_ctx *ctx, void *list, uint32_t n, uint32_t *capacity, size_t size) {
  void *old;
  if (n < *capacity) return MOTH_OK;
  const uint32_t more = *capacity ? *capacity * 2 : 32;
  void *block = moth_alloc(ctx, (int64_t)(more * size));
  if (!block) return ctx->error.code;
  memcpy(&old, list, sizeof old);
  if (n) memcpy(block, old, n * size);
  moth_dealloc(ctx, old, (int64_t)(*capacity * size));
  memcpy(list, &block, sizeof block);
  *capacity = more;
  return MOTH_OK;
}

/* -- counts and limits -- */

void moth_refuse_data(moth_ctx *ctx, int64_t nbytes) {
  moth_fail(ctx, MOTH_E_LIMIT, NULL,
            "memory limit of %lld bytes reached: %lld in use, %lld more asked for",
            (long long)ctx->data_limit, (long long)ctx->mem.live_bytes, (long long)nbytes);
}

void moth_memory_reset_peak(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  ctx->mem.peak_bytes = ctx->mem.live_bytes;
}

void moth_guard_memory(moth_ctx *ctx, int64_t bytes) {
  const int64_t limit = ctx->mem.limit_bytes;
  ctx->guard_bytes = bytes;
  ctx->data_limit = bytes > 0 && (limit <= 0 || bytes < limit) ? bytes : limit;
}

void moth_memory_limit(moth_ctx *ctx, int64_t bytes) {
  MOTH_NEED(ctx, true, );
  ctx->mem.limit_bytes = bytes;
  moth_guard_memory(ctx, ctx->guard_bytes);
  if (bytes > 0) trim(ctx, bytes);
}

void moth_fail_allocation(moth_ctx *ctx, int64_t after) {
  MOTH_NEED(ctx, true, );
  ctx->fail_after = after;
}

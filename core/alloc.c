/* alloc.c -- the block cache: fresh pages cost more than arithmetic, so blocks are kept.
**
** Sizes are rounded up to classes, eight to an octave; each class has a chain of free blocks in
** the context. A block may be freed in another context than it was made in. Under AddressSanitizer
** nothing is kept, so that a use after free is seen.
*/
#include <stdlib.h>
#include <sys/mman.h>

#include "context.h"

#if defined(__SANITIZE_ADDRESS__)
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
#define ALIGN 64
#define LARGEST ((int64_t)1 << 37)

/* The class of a size (a multiple of 64), and the size that blocks of a class have. */
static uint32_t class_of(int64_t n) {
  if (n <= ALIGN) return 0;
  uint32_t k = 63u - (uint32_t)__builtin_clzll((uint64_t)(n - 1)); /* 2^k < n <= 2^(k+1) */
  uint64_t step = (uint64_t)1 << (k - 3);
  return (k - 6) * 8 + (uint32_t)(((uint64_t)n - ((uint64_t)1 << k) + step - 1) / step);
}

static int64_t class_size(uint32_t c) {
  if (c == 0) return ALIGN;
  uint32_t k = 6 + (c - 1) / 8;
  uint64_t size = ((uint64_t)1 << k) + ((c - 1) % 8 + 1) * ((uint64_t)1 << (k - 3));
  return (int64_t)((size + ALIGN - 1) / ALIGN * ALIGN);
}

static void *block_new(int64_t size) {
  void *exact = NULL;
  if (!KEEP_BLOCKS) return posix_memalign(&exact, ALIGN, (size_t)size) ? NULL : exact;
  bool huge = size >= HUGE_PAGE;
  size_t align = huge ? (size_t)HUGE_PAGE : ALIGN;
  void *block = aligned_alloc(align, ((size_t)size + align - 1) / align * align);
  if (block && huge) madvise(block, (size_t)size, MADV_HUGEPAGE);
  return block;
}

void *moth_alloc(moth_ctx *ctx, int64_t nbytes) {
  if (ctx->fail_after > 0 && --ctx->fail_after == 0) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory (as asked for by a test)");
    return NULL;
  }
  if (nbytes < 0 || nbytes > LARGEST) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory: %lld bytes asked for", (long long)nbytes);
    return NULL;
  }
  uint32_t c = class_of((nbytes + ALIGN - 1) / ALIGN * ALIGN);
  void *block = ctx->blocks[c];
  if (block) {
    memcpy(&ctx->blocks[c], block, sizeof(void *));
    ctx->mem.cached_bytes -= class_size(c);
    return block;
  }
  if (ctx->closed) {
    moth_fail_closed(ctx);
    return NULL;
  }
  ctx->mem.allocations++;
  int64_t size = KEEP_BLOCKS ? class_size(c) : nbytes; /* there, every byte too many is seen */
  block = block_new(size);
  if (!block) {
    moth_empty_cache(ctx);
    block = block_new(size);
  }
  if (!block)
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory: %lld bytes asked for, %lld in use",
              (long long)nbytes, (long long)ctx->mem.live_bytes);
  return block;
}

void moth_dealloc(moth_ctx *ctx, void *block, int64_t nbytes) {
  if (!block) return;
  if (!KEEP_BLOCKS || ctx->closed) {
    free(block);
    return;
  }
  uint32_t c = class_of((nbytes + ALIGN - 1) / ALIGN * ALIGN);
  memcpy(block, &ctx->blocks[c], sizeof(void *));
  ctx->blocks[c] = block;
  ctx->mem.cached_bytes += class_size(c);
}

void *moth_alloc_data(moth_ctx *ctx, int64_t nbytes) {
  int64_t limit = ctx->mem.limit_bytes;
  if (limit > 0 && (nbytes > limit || ctx->mem.live_bytes > limit - nbytes)) {
    moth_fail(ctx, MOTH_E_LIMIT, NULL,
              "memory limit of %lld bytes reached: %lld in use, %lld more asked for",
              (long long)limit, (long long)ctx->mem.live_bytes, (long long)nbytes);
    return NULL;
  }
  void *block = moth_alloc(ctx, nbytes);
  if (!block) return NULL;
  ctx->mem.live_bytes += nbytes;
  if (ctx->mem.live_bytes > ctx->mem.peak_bytes) ctx->mem.peak_bytes = ctx->mem.live_bytes;
  return block;
}

void moth_dealloc_data(moth_ctx *ctx, void *block, int64_t nbytes) {
  ctx->mem.live_bytes -= nbytes;
  moth_dealloc(ctx, block, nbytes);
}

void moth_empty_cache(moth_ctx *ctx) {
  for (uint32_t c = 0; c < MOTH_CLASSES; c++) {
    for (void *block = ctx->blocks[c], *next; block; block = next) {
      memcpy(&next, block, sizeof(void *));
      free(block);
    }
    ctx->blocks[c] = NULL;
  }
  ctx->mem.cached_bytes = 0;
}

/* alloc.c -- the block cache: fresh pages cost more than arithmetic, so blocks are kept.
**
** Sizes are rounded up to classes, eight to an octave; each class has a chain of free blocks in
** the context. A block may be freed in another context than it was made in. Under AddressSanitizer
** nothing is kept, so that a use after free is seen, nor with what looks on at kernels of a GPU.
** The limit and the failures that tests ask for are here, too.
*/
#include <stdlib.h>

#include "context.h"
#include "system.h"

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
#define LARGEST ((int64_t)1 << 37)

/* The size that blocks of a class have. */
static int64_t class_size(uint32_t c) {
  if (c == 0) return MOTH_ALIGN;
  uint32_t k = 6 + (c - 1) / 8;
  uint64_t size = ((uint64_t)1 << k) + ((c - 1) % 8 + 1) * ((uint64_t)1 << (k - 3));
  return (int64_t)((size + MOTH_ALIGN - 1) / MOTH_ALIGN * MOTH_ALIGN);
}

static void *block_new(int64_t size) {
  if (!KEEP_BLOCKS) return moth_aligned_new(MOTH_ALIGN, (size_t)size); /* not a byte more */
  bool huge = size >= HUGE_PAGE;
  size_t align = huge ? (size_t)HUGE_PAGE : MOTH_ALIGN;
  void *block = moth_aligned_new(align, ((size_t)size + align - 1) / align * align);
  if (block && huge) moth_aligned_huge(block, (size_t)size);
  return block;
}

void moth_keep_blocks(moth_ctx *ctx, bool keep) { ctx->keeps_blocks = keep && KEEP_BLOCKS; }

void *moth_alloc_block(moth_ctx *ctx, int64_t nbytes) {
  if (ctx->fail_after > 0 && --ctx->fail_after == 0) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory (as asked for by a test)");
    return NULL;
  }
  if (nbytes < 0 || nbytes > LARGEST) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory: %lld bytes asked for", (long long)nbytes);
    return NULL;
  }
  uint32_t c = moth_class_of(nbytes);
  void *block = ctx->blocks[c].first;
  if (block) {
    memcpy(&ctx->blocks[c].first, block, sizeof(void *));
    ctx->blocks[c].count--;
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

void moth_dealloc_block(moth_ctx *ctx, void *block, int64_t nbytes) {
  if (!ctx->keeps_blocks) {
    moth_aligned_free(block);
    return;
  }
  moth_chain *c = &ctx->blocks[moth_class_of(nbytes)];
  memcpy(block, &c->first, sizeof(void *));
  c->first = block;
  c->count++;
}

int64_t moth_cached_bytes(const moth_ctx *ctx) {
  int64_t bytes = 0;
  for (uint32_t c = 0; c < MOTH_CLASSES; c++) bytes += ctx->blocks[c].count * class_size(c);
  return bytes;
}

void moth_empty_cache(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  for (uint32_t c = 0; c < MOTH_CLASSES; c++) {
    for (void *block = ctx->blocks[c].first, *next; block; block = next) {
      memcpy(&next, block, sizeof(void *));
      moth_aligned_free(block);
    }
    ctx->blocks[c] = (moth_chain){NULL, 0};
  }
}

/* -- counts and limits -- */

void moth_refuse_data(moth_ctx *ctx, int64_t nbytes) {
  moth_fail(ctx, MOTH_E_LIMIT, NULL,
            "memory limit of %lld bytes reached: %lld in use, %lld more asked for",
            (long long)ctx->mem.limit_bytes, (long long)ctx->mem.live_bytes, (long long)nbytes);
}

void moth_memory_reset_peak(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  ctx->mem.peak_bytes = ctx->mem.live_bytes;
}

void moth_memory_limit(moth_ctx *ctx, int64_t bytes) {
  MOTH_NEED(ctx, true, );
  ctx->mem.limit_bytes = bytes;
}

void moth_fail_allocation(moth_ctx *ctx, int64_t after) {
  MOTH_NEED(ctx, true, );
  ctx->fail_after = after;
}

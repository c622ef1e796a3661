/* alloc.h -- memory blocks: cached by size class, 64-byte aligned, uninitialised. */
#ifndef MOTH_ALLOC_H
#define MOTH_ALLOC_H

#include "context.h"

/* The slow path of the inline functions below: large blocks, empty chains, failures for tests. */
void *moth_alloc_block(moth_ctx *ctx, int64_t nbytes);
void moth_dealloc_block(moth_ctx *ctx, void *block, int64_t nbytes);
#define MOTH_INLINE_BLOCK ((uint64_t)1 << 20)

/* The class of a size: eight per power of two, from 64 bytes on. */
static inline uint32_t moth_class_of(int64_t nbytes) {
  if (nbytes <= MOTH_ALIGN) return 0;
  uint64_t n = ((uint64_t)nbytes + MOTH_ALIGN - 1) / MOTH_ALIGN * MOTH_ALIGN;
  uint32_t k = 63u - (uint32_t)__builtin_clzll(n - 1); /* 2^k < n <= 2^(k+1) */
  uint64_t step = (uint64_t)1 << (k - 3);
  return (k - 6) * 8 + (uint32_t)((n - ((uint64_t)1 << k) + step - 1) >> (k - 3));
}

/* Returns NULL with E_MEM. A loop whose garbage waits for Lua's collector walks through more blocks
** than a CPU cache holds, so the next block is prefetched. */
static inline void *moth_alloc(moth_ctx *ctx, int64_t nbytes) {
  if ((uint64_t)nbytes > MOTH_INLINE_BLOCK || ctx->fail_after > 0)
    return moth_alloc_block(ctx, nbytes);
  moth_chain *c = &ctx->blocks[moth_class_of(nbytes)];
  char *block = c->first;
  if (!block) return moth_alloc_block(ctx, nbytes);
  memcpy(&c->first, block, sizeof c->first);
  c->count--;
  const char *next = c->first ? c->first : block; /* prefetching NULL costs 10 ns */
  __builtin_prefetch(next, 1);
  if (nbytes > 64) __builtin_prefetch(next + 64, 1);
  if (nbytes > 128) __builtin_prefetch(next + 128, 1);
  return block;
}

static inline void moth_dealloc(moth_ctx *ctx, void *block, int64_t nbytes) {
  if (!block) return;
  if (!ctx->keeps_blocks || (uint64_t)nbytes > MOTH_INLINE_BLOCK) {
    moth_dealloc_block(ctx, block, nbytes);
    return;
  }
  moth_chain *c = &ctx->blocks[moth_class_of(nbytes)];
  memcpy(block, &c->first, sizeof c->first);
  c->first = block;
  c->count++;
}

/* Grows the list at *list, which holds n elements of `size` bytes, to a capacity of at least n + 1.
** *list is NULL where *capacity is 0. */
int moth_grow(moth_ctx *ctx, void *list, uint32_t n, uint32_t *capacity, size_t size);

void moth_keep_blocks(moth_ctx *ctx, bool keep);
int64_t moth_cached_bytes(const moth_ctx *ctx);
void moth_age_cache(moth_ctx *ctx);                  /* call after a collection */
void moth_block_left(moth_ctx *ctx, int64_t nbytes); /* the block leaves this context */
void moth_block_came(moth_ctx *ctx, int64_t nbytes); /* a block of another context enters it */
void moth_block_free(void *block, int64_t nbytes);   /* frees a block that left its context */

/* Counts bytes of tensor data as live before their allocation, and checks the memory limit. Returns
** false with E_LIMIT. */
void moth_refuse_data(moth_ctx *ctx, int64_t nbytes);
void moth_guard_memory(moth_ctx *ctx, int64_t bytes); /* sets ctx->guard_bytes */
static inline bool moth_count_data(moth_ctx *ctx, int64_t nbytes) {
  int64_t limit = ctx->data_limit;
  if (limit > 0 && (nbytes > limit || ctx->mem.live_bytes > limit - nbytes)) {
    moth_refuse_data(ctx, nbytes);
    return false;
  }
  ctx->mem.live_bytes += nbytes;
  if (ctx->mem.live_bytes > ctx->mem.peak_bytes) ctx->mem.peak_bytes = ctx->mem.live_bytes;
  return true;
}

#endif

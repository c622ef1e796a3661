/* random.h -- random bits by Philox4x32-10, a counter-based generator.
**
** Block b of the stream of a seed is four words that depend only on (seed, b), so any thread can
** compute any part of a stream. A generator is an i64 tensor {seed, offset}. A random op first
** takes a range of blocks from the generator.
*/
#ifndef MOTH_RANDOM_H
#define MOTH_RANDOM_H

#include "context.h"

/* The first n words of the stream of `seed` from block `block` on. */
void moth_philox_fill(uint64_t seed, uint64_t block, int64_t n, uint32_t *out);

/* Block number `turn` of the substream that belongs to block `block`. Number 0 is the block
** itself. */
void moth_philox_turn(uint64_t seed, uint64_t block, uint32_t turn, uint32_t out[4]);

/* The context's own generator. In a forked process the seed is mixed with the process id, so that
** parent and children draw different numbers. Returns NULL if the context is closed. */
moth_tensor *moth_generator_own(moth_ctx *ctx);

/* Takes nblocks blocks from the generator, or from the context's own if it is NULL. */
int moth_generator_take(moth_ctx *ctx, moth_tensor *generator, uint64_t nblocks, uint64_t *seed,
                        uint64_t *block);

typedef struct moth_stream { /* the unread rest of a range of blocks */
  uint64_t seed, block;
} moth_stream;
int moth_stream_open(moth_ctx *ctx, moth_tensor *generator, int64_t n, int64_t words_each,
                     moth_stream *s);
/* Reads the next words. All reads except the last are multiples of 4. */
void moth_stream_read(moth_stream *s, int64_t nwords, uint32_t *words);

/* A random integer below `range` from two words. Each probability is off by less than range / 2^64.
** A range of 0 means 2^64. */
uint64_t moth_random_below(uint64_t range, const uint32_t *words);

#endif

/* random.h -- where random bits come from: Philox4x32-10, a counter-based generator.
**
** Block b of the stream of a seed is four words that depend on (seed, b) alone, so any part of a
** stream can be drawn by anyone. A generator is an i64 tensor {seed, offset}; whoever draws takes
** a range of blocks from it first.
*/
#ifndef MOTH_RANDOM_H
#define MOTH_RANDOM_H

#include "context.h"

/* The first n words of the stream of `seed` from block `block` on. */
void moth_philox_fill(uint64_t seed, uint64_t block, int64_t n, uint32_t *out);

/* A block of the stream that belongs to block `block`, its turn-th: the first, 0, is that one. */
void moth_philox_turn(uint64_t seed, uint64_t block, uint32_t turn, uint32_t out[4]);

/* The context's own generator. In a forked process its seed takes in the process's number, so that
** parent and children draw different numbers; NULL: the context is closed. */
moth_tensor *moth_generator_own(moth_ctx *ctx);

/* Takes nblocks blocks from the generator, or from the context's own if it is NULL. */
int moth_generator_take(moth_ctx *ctx, moth_tensor *generator, uint64_t nblocks, uint64_t *seed,
                        uint64_t *block);

typedef struct moth_stream { /* the rest of a range of blocks that was taken */
  uint64_t seed, block;
} moth_stream;
int moth_stream_open(moth_ctx *ctx, moth_tensor *generator, int64_t n, int64_t words_each,
                     moth_stream *s);
/* The next words, a multiple of 4 until the last. */
void moth_stream_read(moth_stream *s, int64_t nwords, uint32_t *words);

/* An integer below `range` from two words, off by less than range / 2^64 from an even chance;
** range 0 stands for 2^64. */
uint64_t moth_random_below(uint64_t range, const uint32_t *words);

#endif

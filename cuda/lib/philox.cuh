/* philox.cuh -- Philox4x32-10 in kernels, with the same words as core/base/random.c: Salmon and
** others, "Parallel random numbers: as easy as 1, 2, 3" (2011). Generators are on the CPU; a launch
** gets a range of blocks, by which the generator is advanced. */
#ifndef MOTH_CUDA_PHILOX_CUH
#define MOTH_CUDA_PHILOX_CUH

#include "dtypes.cuh"

struct stream { /* a launch's range of blocks */
  uint64_t seed, block;
};

struct words {
  uint32_t at[4];
};

/* Block i of the range; with `turn`, a further block derived from it. */
HD words philox(const stream &s, uint64_t i, uint32_t turn = 0) {
  const uint64_t block = s.block + i;
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = turn, c3 = 0;
  uint32_t k0 = (uint32_t)s.seed, k1 = (uint32_t)(s.seed >> 32);
  for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
    const uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
  }
  return words{{c0, c1, c2, c3}};
}

/* Advances the generator by n values of words_each words. */
static inline int stream_open(moth_ctx *ctx, moth_tensor *generator, int64_t n, int words_each,
                              stream *s) {
  const uint64_t count = (uint64_t)n * (uint64_t)words_each;
  return moth_generator_take(ctx, generator, (count + 3) / 4, &s->seed, &s->block);
}

#endif

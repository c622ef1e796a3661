/* random.c -- Philox4x32-10, and the generators that hand out its blocks. */
#include "random.h"
#include "tensor/shape.h"
#include "error.h"
#include "threads.h"

#include "kernel/random/distributions.h"
#include "kernel/level.h"

#include <unistd.h>

#define ROUND_A 0xd2511f53u
#define ROUND_B 0xcd9e8d57u
#define KEY_A 0x9e3779b9u
#define KEY_B 0xbb67ae85u
#define COUNTERS 64 /* independent counters, so that compilers vectorise the rounds */

#if defined(__GNUC__)
#define INLINE __attribute__((always_inline))
#else
#define INLINE
#endif

/* Salmon and others, "Parallel random numbers: as easy as 1, 2, 3". */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++, k0 += KEY_A, k1 += KEY_B) {
    uint64_t a = (uint64_t)ROUND_A * c0, b = (uint64_t)ROUND_B * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Computes COUNTERS blocks from `block` on; compiled for several instruction levels. Separate high
** and low halves of the products vectorise best. */
static inline INLINE void lanes(uint64_t seed, uint64_t block, uint32_t *restrict out) {
  uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (uint32_t i = 0; i < COUNTERS; i++) {
    c0[i] = (uint32_t)(block + i);
    c1[i] = (uint32_t)((block + i) >> 32);
    c2[i] = c3[i] = 0;
  }
  for (int round = 0; round < 10; round++, k0 += KEY_A, k1 += KEY_B) {
    for (int i = 0; i < COUNTERS; i++) {
      uint32_t ha = (uint32_t)((uint64_t)ROUND_A * c0[i] >> 32), la = ROUND_A * c0[i];
      uint32_t hb = (uint32_t)((uint64_t)ROUND_B * c2[i] >> 32), lb = ROUND_B * c2[i];
      c0[i] = hb ^ c1[i] ^ k0;
      c2[i] = ha ^ c3[i] ^ k1;
      c1[i] = lb;
      c3[i] = la;
    }
  }
  for (int i = 0; i < COUNTERS; i++) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

typedef void (*fill_lanes)(uint64_t seed, uint64_t block, uint32_t *restrict out);

static void lanes_plain(uint64_t seed, uint64_t block, uint32_t *restrict out) {
  lanes(seed, block, out);
}

#if MOTH_HAS_LEVELS
#define LEVEL(features) __attribute__((target(features))) static void
LEVEL("avx2") lanes_avx2(uint64_t seed, uint64_t block, uint32_t *restrict out) {
  lanes(seed, block, out);
}
LEVEL("avx512f,avx512dq,avx512vl,avx512bw")
lanes_avx512(uint64_t seed, uint64_t block, uint32_t *restrict out) { lanes(seed, block, out); }

static fill_lanes best_lanes(void) {
  int level = moth_level();
  return level == MOTH_LEVEL_AVX512 ? lanes_avx512
         : level == MOTH_LEVEL_AVX2 ? lanes_avx2 : lanes_plain;
}
#else
static fill_lanes best_lanes(void) { return lanes_plain; }
#endif

void moth_philox_fill(uint64_t seed, uint64_t block, int64_t n, uint32_t *out) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  fill_lanes many = best_lanes();
  for (; n >= 4 * COUNTERS; n -= 4 * COUNTERS, block += COUNTERS, out += 4 * COUNTERS)
    many(seed, block, out);
  for (; n > 0; n -= 4, block++, out += 4) {
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t word[4];
    philox(counter, key, word);
    memcpy(out, word, n < 4 ? (size_t)n * 4 : 16);
  }
}

void moth_philox_turn(uint64_t seed, uint64_t block, uint32_t turn, uint32_t out[4]) {
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), turn, 0};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  philox(counter, key, out);
}

/* Stafford's 13th mix of 64 bits, as in SplitMix64. */
static uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

moth_tensor *moth_generator_own(moth_ctx *ctx) {
  const unsigned forks = atomic_load_explicit(&moth_forks, memory_order_relaxed);
  if (ctx->forks == forks || !ctx->generator) return ctx->generator;
  uint64_t state[2];
  memcpy(state, moth_at(ctx->generator), sizeof state);
  state[0] = mixed(state[0] + 0x9e3779b97f4a7c15u * ((uint64_t)getpid() + 1)) >> 11;
  memcpy(moth_at(ctx->generator), state, sizeof state);
  moth_storage_bump(ctx->generator->storage);
  ctx->forks = forks;
  return ctx->generator;
}

int moth_generator_take(moth_ctx *ctx, moth_tensor *generator, uint64_t nblocks, uint64_t *seed,
                        uint64_t *block) {
  uint64_t state[2];
  moth_tensor *own = moth_generator_own(ctx), *from = generator ? generator : own;
  if (!from) return moth_fail_closed(ctx);
  if (from->l.dtype != MOTH_I64 || from->l.numel != 2 || !moth_contiguous(from))
    return moth_fail(ctx, MOTH_E_TYPE, "generator", "a generator is needed, got %s",
                     moth_str(from));
  memcpy(state, moth_at(from), sizeof state);
  *seed = state[0];
  *block = state[1];
  state[1] += nblocks;
  memcpy(moth_at(from), state, sizeof state);
  moth_storage_bump(from->storage);
  return MOTH_OK;
}

int moth_stream_open(moth_ctx *ctx, moth_tensor *generator, int64_t n, int64_t words_each,
                     moth_stream *s) {
  uint64_t words = (uint64_t)n * (uint64_t)words_each;
  return moth_generator_take(ctx, generator, (words + 3) / 4, &s->seed, &s->block);
}

void moth_stream_read(moth_stream *s, int64_t nwords, uint32_t *words) {
  moth_philox_fill(s->seed, s->block, nwords, words);
  s->block += (uint64_t)(nwords + 3) / 4;
}

uint64_t moth_random_below(uint64_t range, const uint32_t *words) {
  return moth_below(range, words);
}

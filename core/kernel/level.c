/* level.c -- finds the level of instructions that this processor supports. */
#include "level.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static int found(void) {
#if MOTH_HAS_LEVELS
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return MOTH_LEVEL_PLAIN;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
             ? MOTH_LEVEL_AVX512
             : MOTH_LEVEL_AVX2;
#else
  return MOTH_LEVEL_PLAIN;
#endif
}

#if defined(__aarch64__)
#define LEAST "neon" /* all ARM64 processors have it */
#else
#define LEAST "plain"
#endif
static const char *const names[] = {LEAST, "avx2", "avx512"};

const char *moth_level_name(void) { return names[moth_level()]; }

int moth_level(void) {
  static atomic_int known; /* 1 + the level; 0: not known yet */
  int level = atomic_load_explicit(&known, memory_order_relaxed) - 1;
  if (level >= 0) return level;
  const char *wanted = getenv("MOTH_ISA");
  level = found();
  for (int i = 0; wanted && i < level; i++)
    if (!strcmp(wanted, names[i])) level = i;
  atomic_store_explicit(&known, level + 1, memory_order_relaxed);
  return level;
}

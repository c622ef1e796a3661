/* amx.c -- checks that AMX tiles can be used: the processor has them, and the system permits them
** on request.
*/
#include "amx.h"

#if MOTH_HAS_LEVELS

#include <cpuid.h>
#include <stdatomic.h>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool granted(void) {
#ifdef SYS_arch_prctl
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
  return false; /* only on Linux is a way to request them known */
#endif
}

static bool ask(void) {
  unsigned a, b, c, d;
  if (moth_level() != MOTH_LEVEL_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tiles = d >> 24 & 1, of_bf16 = d >> 22 & 1;
  return tiles && of_bf16 && __builtin_cpu_supports("avx512bf16") && granted();
}

bool moth_amx_here(void) {
  static atomic_int known; /* 0: not known yet, 1: no, 2: yes */
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (!is) atomic_store(&known, is = 1 + ask());
  return is == 2;
}

#endif

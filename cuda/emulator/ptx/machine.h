/* machine.h -- the interface between kernels translated from PTX (ptx.h) and the emulator that runs
** them. */
#ifndef MOTH_PTX_MACHINE_H
#define MOTH_PTX_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Functions and variables of a thread's block; cuda_runtime.h describes each. */
struct moth_ptx_machine {
  const unsigned (*thread)[3], (*block)[3], (*threads)[3], (*blocks)[3];
  int (*lane)(void);
  void (*barrier)(void);
  int (*barrier_count)(int);
  void (*warp_barrier)(unsigned mask);
  void (*sleep)(void);
  void (*exchange)(unsigned mask, const void *mine, size_t size, int from, void *theirs);
  void (*together)(void *mine, void (*act)(void *const *all));
  void (*copy_later)(void *to, const void *from, size_t n);
  void (*await_copies)(int left);
  unsigned (*ballot)(unsigned mask, int value);
  unsigned long long *instructions; /* the number so far, if instructions are counted (PTX_COUNT) */
  void (*touch)(const char *kernel, int line, uint64_t at, unsigned n, const char *block_shared);
};

struct moth_ptx_kernel {
  const char *file, *name; /* gather.cu; the mangled name */
  /* Runs one thread. */
  void (*run)(char *block_shared, uint64_t size, const char *name, const char *params);
  unsigned size, shared; /* bytes of arguments, and of static shared memory */
  unsigned count;
  const unsigned *places; /* offset and size of each argument */
};

#endif

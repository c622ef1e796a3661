/* amx_emulated.c -- emulates AMX instructions for specs on processors without AMX; replaces
** kernel/gemm/amx.c. AMX instructions are illegal on these processors, and a signal handler
** computes their results. Thus the specs run the compiled kernels, and an invalid instruction ends
** the process with a message. Semantics are those of Intel's Software Developer's Manual, volume 2;
** instructions that Moth does not use are missing.
*/
#include "amx.h"

static bool of_processor(void);
#define moth_amx_here of_processor
#include "amx.c"
#undef moth_amx_here

#include <immintrin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, BYTES = 64 };

typedef struct shapes {
  uint8_t palette, start, zeros[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} shapes;

/* Tiles of each thread. As on the processor, they are 0 until they are configured. */
static _Thread_local shapes shape;
static _Thread_local uint8_t tiles[TILES][ROWS][BYTES];

/* The number of products; -1 if the processor runs the instructions itself. */
__attribute__((visibility("default"))) int64_t moth_emulated_tiles(void);

static _Atomic int64_t products;

static void need(bool right, const char *what) {
  if (right) return;
  fprintf(stderr, "tiles: %s\n", what);
  abort();
}

static void need_tile(int t) {
  need(shape.palette == 1, "used before they are configured");
  need(t < TILES, "there are eight");
  need(shape.rows[t] > 0 && shape.bytes[t] > 0, "one without a shape is used");
}

/* -- the instructions -- */

static void release(void) {
  memset(&shape, 0, sizeof shape);
  memset(tiles, 0, sizeof tiles);
}

static void configure(const void *from) {
  static const uint8_t none[16];
  shapes to;
  memcpy(&to, from, sizeof to);
  need(to.palette <= 1, "there are palettes 0 and 1");
  need(!to.start && !memcmp(to.zeros, none, sizeof to.zeros), "reserved bytes are not 0");
  for (int t = 0; t < 16; t++) {
    need(to.rows[t] <= (t < TILES ? ROWS : 0), "too many rows");
    need(to.bytes[t] <= (t < TILES ? BYTES : 0), "too wide rows");
    need(!to.rows[t] == !to.bytes[t], "rows without bytes, or bytes without rows");
  }
  release();
  if (to.palette) shape = to;
}

static void load(int t, const char *from, int64_t step) {
  need_tile(t);
  memset(tiles[t], 0, sizeof tiles[t]);
  for (int i = 0; i < shape.rows[t]; i++) memcpy(tiles[t][i], from + i * step, shape.bytes[t]);
}

static void store(int t, char *to, int64_t step) {
  need_tile(t);
  for (int i = 0; i < shape.rows[t]; i++) memcpy(to + i * step, tiles[t][i], shape.bytes[t]);
}

static void zero(int t) {
  need_tile(t);
  memset(tiles[t], 0, sizeof tiles[t]);
}

/* The lower and the upper numbers of pairs have separate sums along k, which are added to c at the
** end. Each step rounds to nearest, and reads and writes denormal numbers as 0. */
__attribute__((noinline, target("avx512f,fma"))) static void dot(int c, int a, int b) {
  products++;
  need_tile(a), need_tile(b), need_tile(c);
  need(a != b && a != c && b != c, "a product wants three of them");
  need(shape.bytes[a] % 4 == 0 && shape.bytes[b] % 4 == 0, "a product wants whole pairs");
  need(shape.rows[a] == shape.rows[c] && shape.bytes[b] == shape.bytes[c] &&
         shape.bytes[a] == 4 * shape.rows[b], "shapes of a product do not fit");
  for (int i = 0; i < shape.rows[c]; i++) {
    float sums[BYTES / 4], low[BYTES / 4] = {0}, high[BYTES / 4] = {0};
    for (int k = 0; k < shape.rows[b]; k++) {
      uint32_t left, right[BYTES / 4];
      memcpy(&left, tiles[a][i] + 4 * k, sizeof left);
      memcpy(right, tiles[b][k], sizeof right);
      for (int j = 0; j < BYTES / 4; j++) {
        union { uint32_t u; float f; } x = {left << 16}, y = {right[j] << 16};
        low[j] = __builtin_fmaf(x.f, y.f, low[j]);
        x.u = left & 0xffff0000, y.u = right[j] & 0xffff0000;
        high[j] = __builtin_fmaf(x.f, y.f, high[j]);
      }
    }
    memcpy(sums, tiles[c][i], sizeof sums);
    for (int j = 0; j < BYTES / 4; j++) sums[j] += low[j] + high[j];
    memcpy(tiles[c][i], sums, shape.bytes[c]);
  }
}

/* -- decoding -- */

/* The register with the number that instructions use. */
static int64_t word(const ucontext_t *at, int number) {
  static const uint8_t names[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI,
                                    REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13,
                                    REG_R14, REG_R15};
  return at->uc_mcontext.gregs[names[number]];
}

/* An operand in memory: base and displacement are its address, index and scale its step. */
typedef struct place {
  char *address;
  int64_t step;
  int length; /* length of the instruction */
} place;

/* Decodes the operand of the instruction at p, which has a prefix of three bytes, an opcode, and
** operand bytes. */
static place place_of(const ucontext_t *at, const uint8_t *p) {
  const int mode = p[4] >> 6;
  const bool indexed = (p[4] & 7) == 4;
  const int base = p[4 + indexed] & 7;
  /* without a base: from 0, or from the next instruction */
  const bool bare = mode == 0 && base == 5;
  place it = {.length = 5 + indexed};
  int32_t far = 0;
  if (mode == 2 || bare) memcpy(&far, p + it.length, sizeof far), it.length += 4;
  if (mode == 1) far = (int8_t)p[it.length++];
  if (indexed) {
    const int index = (p[5] >> 3 & 7) + (p[1] & 0x40 ? 0 : 8);
    if (index != 4) it.step = word(at, index) * (1 << (p[5] >> 6));
  }
  const int64_t next = (int64_t)(uintptr_t)p + it.length;
  const int64_t from = !bare ? word(at, base + (p[1] & 0x20 ? 0 : 8)) : indexed ? 0 : next;
  it.address = (char *)(uintptr_t)(from + far);
  return it;
}

/* Executes the AMX instruction at p. Returns its length, or 0 if it is another instruction. */
static int done(const ucontext_t *at, const uint8_t *p) {
  enum { NONE, OF_F3 = 2, OF_F2 };
  if (p[0] != 0xc4 || (p[1] & 31) != 2 || p[2] & 0x84) return 0; /* VEX.128.0F38.W0 */
  const int prefix = p[2] & 3, code = p[3], reg = (p[4] >> 3 & 7) + (p[1] & 0x80 ? 0 : 8);
  if (p[4] >> 6 == 3) {
    if (code == 0x5c && prefix == OF_F3)
      dot(reg, (p[4] & 7) + (p[1] & 0x20 ? 0 : 8), ~p[2] >> 3 & 15);
    else if (code == 0x49 && prefix == OF_F2)
      zero(reg);
    else if (code == 0x49 && prefix == NONE && p[4] == 0xc0)
      release();
    else
      return 0;
    return 5;
  }
  const place it = place_of(at, p);
  if (code == 0x49 && prefix == NONE && reg == 0)
    configure(it.address);
  else if (code == 0x4b && prefix == OF_F2)
    load(reg, it.address, it.step);
  else if (code == 0x4b && prefix == OF_F3)
    store(reg, it.address, it.step);
  else
    return 0;
  return it.length;
}

/* Executes the illegal instruction, and the AMX instructions that follow it, since signals are
** slow. */
static void illegal(int number, siginfo_t *info, void *context) {
  ucontext_t *at = context;
  greg_t *here = &at->uc_mcontext.gregs[REG_RIP];
  (void)info;
  _mm_setcsr(0x9fc0); /* rounds to nearest, without denormal numbers; restored at the end */
  int length = done(at, (const uint8_t *)(uintptr_t)*here);
  if (!length) signal(number, SIG_DFL);
  for (; length; length = done(at, (const uint8_t *)(uintptr_t)*here)) *here += length;
}

static bool stands_in(void) {
  struct sigaction to = {.sa_flags = SA_SIGINFO};
  to.sa_sigaction = illegal;
  return moth_level() == MOTH_LEVEL_AVX512 && !sigaction(SIGILL, &to, NULL);
}

bool moth_amx_here(void) {
  static atomic_int known; /* 0: not known yet, 1: no, 2: yes */
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (!is) atomic_store(&known, is = 1 + (of_processor() || stands_in()));
  return is == 2;
}

int64_t moth_emulated_tiles(void) { return of_processor() ? -1 : products; }

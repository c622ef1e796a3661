/* ptx.h -- used by kernels that translate.lua translated from PTX: instructions without an operator
** in C, and calls to the emulator (emulated.cpp).
**
** A register holds bits; F() and D() read them as a float or a double, B() and Q() convert back.
** Shared memory is addressed from 0; SHARED() converts to a CPU address, UNSHARED() back. Where a
** GPU would fault, the program ends with the kernel's name: at an unaligned address, or outside of
** the block's shared memory. */
#ifndef MOTH_PTX_H
#define MOTH_PTX_H

#include <fenv.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sums.h"
#include "machine.h"

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

/* -- the list of kernels, with the offsets of their arguments -- */

extern const struct moth_ptx_machine *ptx;

#ifdef PTX_LIST /* one file of the shared object */
const struct moth_ptx_machine *ptx;
extern const struct moth_ptx_kernel *const __start_ptx_kernels[], *const __stop_ptx_kernels[];
const struct moth_ptx_kernel *const *moth_ptx_kernels(size_t *count) {
  *count = (size_t)(__stop_ptx_kernels - __start_ptx_kernels);
  return __start_ptx_kernels;
}
#endif

#define PTX_TAKE char *shared_, u64 shared_size_, const char *kernel_
#define PTX_PASS shared_, shared_size_, kernel_
#define PTX_KERNEL(name, size, shared, count, ...)                                              \
  static const unsigned name##_places[] = __VA_ARGS__;                                          \
  static const struct moth_ptx_kernel name##_kernel = {PTX_FILE, #name, name, size,             \
                                                       shared, count, name##_places};           \
  static const struct moth_ptx_kernel *const name##_listed                                      \
    __attribute__((section("ptx_kernels"), used)) = &name##_kernel;

static __attribute__((noinline, cold, noreturn, unused)) void fault(const char *kernel,
                                                                     const char *what, u64 at) {
  fprintf(stderr, "PTX: %s: %s at 0x%llx\n", kernel, what, (unsigned long long)at);
  abort();
}
#define FAULT(what) fault(kernel_, what, 0)

/* -- registers -- */

static inline float F(u32 bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline double D(u64 bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
static inline u32 B(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static inline u64 Q(double x) {
  u64 bits;
  memcpy(&bits, &x, 8);
  return bits;
}

#define SPECIAL_tid_x (*ptx->thread)[0]
#define SPECIAL_tid_y (*ptx->thread)[1]
#define SPECIAL_tid_z (*ptx->thread)[2]
#define SPECIAL_ctaid_x (*ptx->block)[0]
#define SPECIAL_ctaid_y (*ptx->block)[1]
#define SPECIAL_ctaid_z (*ptx->block)[2]
#define SPECIAL_ntid_x (*ptx->threads)[0]
#define SPECIAL_ntid_y (*ptx->threads)[1]
#define SPECIAL_ntid_z (*ptx->threads)[2]
#define SPECIAL_nctaid_x (*ptx->blocks)[0]
#define SPECIAL_nctaid_y (*ptx->blocks)[1]
#define SPECIAL_nctaid_z (*ptx->blocks)[2]
#define SPECIAL_laneid ((u32)ptx->lane())
#define SPECIAL_lanemask_lt ((1u << ptx->lane()) - 1)
#define SPECIAL_WARP_SZ 32

/* -- memory -- */

static inline __attribute__((always_inline)) void *address(u64 at, unsigned n, const char *kernel) {
  if (__builtin_expect(at % n != 0, 0)) fault(kernel, "an address that is not aligned", at);
  return (void *)at;
}
#ifdef PTX_COUNT /* counts.cpp */
#define I_ (*ptx->instructions)++;
#define AT(type, at, count)                                                                      \
  ({                                                                                             \
    const u64 at_ = (at);                                                                        \
    ptx->touch(kernel_, __LINE__, at_, sizeof(type) * (count), shared_);                         \
    (type *)address(at_, sizeof(type) * (count), kernel_);                                       \
  })
#else
#define I_
#define AT(type, at, count) (type *)address((at), sizeof(type) * (count), kernel_)
#endif
#define UNSHARED(at) ((at) - (u64)shared_)
#define SHARED(at, n) shared(shared_, shared_size_, (at), (n), kernel_)
static inline u64 shared(char *block_shared, u64 size, u64 at, unsigned n, const char *kernel) {
  at = (u32)at;
  if (__builtin_expect(at + n > size, 0)) fault(kernel, "shared memory that is not there", at);
  return (u64)block_shared + at;
}

/* -- integers -- */

#define ADD(u, a, b, c) ((u128)(u)(a) + (u)(b) + (c))
#define SUB(u, a, b, c) ((u128)(u)(a) - (u)(b) - (c))
#define CARRY(u, w) (u32)((w) >> (8 * sizeof(u)) & 1)

/* Division by 0, and of the smallest integer by -1: any result, but no fault. */
#define DIVIDE(t, has_sign)                                                                    \
  static inline t DIV_##t(t a, t b) {                                                          \
    return b == 0 ? (t)-1 : has_sign && b == (t)-1 ? (t)(0 - (u64)a) : a / b;                  \
  }                                                                                            \
  static inline t REM_##t(t a, t b) {                                                          \
    return b == 0 ? a : has_sign && b == (t)-1 ? 0 : a % b;                                    \
  }
DIVIDE(u16, 0) DIVIDE(s16, 1) DIVIDE(u32, 0) DIVIDE(s32, 1) DIVIDE(u64, 0) DIVIDE(s64, 1)

#define CLAMP(v, least, most) ((v) < (least) ? (least) : (v) > (most) ? (most) : (v))
#define sat_s32(v) CLAMP_s32(v)
#define CLAMP_u8(v) (u8)CLAMP(v, 0, UINT8_MAX)
#define CLAMP_s8(v) (s8)CLAMP(v, INT8_MIN, INT8_MAX)
#define CLAMP_u16(v) (u16)CLAMP(v, 0, UINT16_MAX)
#define CLAMP_s16(v) (s16)CLAMP(v, INT16_MIN, INT16_MAX)
#define CLAMP_u32(v) (u32)CLAMP(v, 0, UINT32_MAX)
#define CLAMP_s32(v) (s32)CLAMP(v, INT32_MIN, INT32_MAX)
#define CLAMP_u64(v) (u64)CLAMP(v, 0, (s128)UINT64_MAX)
#define CLAMP_s64(v) (s64)CLAMP(v, (s128)INT64_MIN, (s128)INT64_MAX)

static inline u32 prmt(u32 a, u32 b, u32 how) {
  const u64 from = a | (u64)b << 32;
  u32 r = 0;
  for (int i = 0; i < 4; i++) {
    const u32 select = how >> (4 * i) & 15, byte = (u32)(from >> (8 * (select & 7))) & 255;
    r |= (select & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return r;
}
#define popc_b32(a) (u32)__builtin_popcount(a)
#define popc_b64(a) (u32)__builtin_popcountll(a)
#define clz_b32(a) ((a) ? (u32)__builtin_clz(a) : 32)
#define clz_b64(a) ((a) ? (u32)__builtin_clzll(a) : 64)
/* The position of the highest bit, or its distance from the top; all bits set if there is none. */
#define bfind_u32(a, shift) ((a) ? (shift) ? clz_b32(a) : 31 - clz_b32(a) : ~(u32)0)
#define bfind_u64(a, shift) ((a) ? (shift) ? clz_b64(a) : 63 - clz_b64(a) : ~(u32)0)
static inline u64 brev(u64 a, int size) {
  u64 reversed = 0;
  for (int i = 0; i < size; i++) reversed |= (a >> i & 1) << (size - 1 - i);
  return reversed;
}
#define brev_b32(a) (u32)brev(a, 32)
#define brev_b64(a) brev(a, 64)
static inline u64 bfi_b64(u64 a, u64 b, u32 from, u32 n) {
  for (u32 i = 0; i < (n & 255) && (from & 255) + i < 64; i++) {
    const u32 at = (from & 255) + i;
    b = (b & ~((u64)1 << at)) | (a >> i & 1) << at;
  }
  return b;
}
#define bfi_b32(a, b, from, n) (u32)bfi_b64(a, b, from, n)
/* The upper word of `high` and `low` shifted to the left; shf_r: the lower word, shifted to the
** right. A distance above 31 wraps, or is 32. */
static inline u32 shf_l(u32 low, u32 high, u32 by, int wraps) {
  const u32 n = wraps ? by & 31 : by > 32 ? 32 : by;
  return n == 32 ? low : (u32)(((u64)high << 32 | low) << n >> 32);
}
static inline u32 shf_r(u32 low, u32 high, u32 by, int wraps) {
  const u32 n = wraps ? by & 31 : by > 32 ? 32 : by;
  return (u32)(((u64)high << 32 | low) >> n);
}
/* n bits of a, which has `size` bits, from bit `from` on; bits beyond a are 0, or a's sign */
static inline u64 bfe(u64 a, u32 from, u32 n, u32 size, int is_signed) {
  const u32 at = from & 255, count = n & 255;
  const u32 top = at + count > size ? size - 1 : at + count - 1;
  const u64 fill = is_signed && count ? a >> top & 1 : 0;
  u64 bits = 0;
  for (u32 i = 0; i < size; i++)
    bits |= (i < count && at + i < size ? a >> (at + i) & 1 : fill) << i;
  return bits;
}
#define bfe_u32(a, from, n) (u32)bfe((u32)(a), from, n, 32, 0)
#define bfe_s32(a, from, n) (s32)(u32)bfe((u32)(a), from, n, 32, 1)
#define bfe_u64(a, from, n) bfe(a, from, n, 64, 0)
#define bfe_s64(a, from, n) (s64)bfe((u64)(a), from, n, 64, 1)

/* -- floats -- */

/* Operands are HIDDEN: else the compiler reuses a result that was computed in another rounding
** mode. */
#define HIDDEN(x)                                                                              \
  ({                                                                                           \
    __typeof__(x) hidden_ = (x);                                                               \
    __asm__ volatile("" : "+m"(hidden_));                                                      \
    hidden_;                                                                                   \
  })
#define ROUNDED(how, x)                                                                        \
  ({                                                                                           \
    const int was_ = fegetround();                                                             \
    fesetround(how);                                                                           \
    __asm__ volatile("" ::: "memory");                                                         \
    volatile __typeof__(x) r_ = (x);                                                           \
    fesetround(was_);                                                                          \
    r_;                                                                                        \
  })
static inline float FLUSH(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
#define SAT(x) ({ __typeof__(x) s_ = (x); s_ > 0 ? s_ < 1 ? s_ : 1 : 0; })
#define UPPER(x) D(Q(x) & 0xffffffff00000000ull) /* the upper half of an f64, which .approx.ftz
                                                 ** keeps */

#define EXTREMES(t, real)                                                                      \
  static inline real min_##t(real a, real b) {                                                 \
    return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b;                  \
  }                                                                                            \
  static inline real max_##t(real a, real b) {                                                 \
    return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b;                 \
  }
EXTREMES(f32, float)
EXTREMES(f64, double)

/* To integers: NaN becomes 0, or, if either type has 64 bits, the minimum or the middle. */
#define TO_WHOLE(t, least, most)                                                               \
  static inline t to_##t(double x, int wide) {                                                 \
    x = trunc(x);                                                                              \
    if (x != x) return wide ? (t)((u64)1 << (8 * sizeof(t) - 1)) : 0;                          \
    return x <= (double)(least) ? (t)(least) : x >= (double)(most) ? (t)(most) : (t)x;         \
  }
TO_WHOLE(u8, 0, UINT8_MAX)
TO_WHOLE(s8, INT8_MIN, INT8_MAX)
TO_WHOLE(u16, 0, UINT16_MAX)
TO_WHOLE(s16, INT16_MIN, INT16_MAX)
TO_WHOLE(u32, 0, UINT32_MAX)
TO_WHOLE(s32, INT32_MIN, INT32_MAX)
TO_WHOLE(u64, 0, UINT64_MAX)
TO_WHOLE(s64, INT64_MIN, INT64_MAX)

static inline float f16_to_f32(u16 bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}
static inline float bf16_to_f32(u16 bits) { return F((u32)bits << 16); }
static inline u16 f64_to_f16(double x) {
  const _Float16 h = (_Float16)x;
  u16 bits;
  memcpy(&bits, &h, 2);
  return x != x ? 0x7fff : bits;
}
static inline u16 f32_to_f16(float x) { return f64_to_f16(x); }
static inline u16 f32_to_bf16(float x) {
  const u32 bits = B(x);
  return x != x ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline u16 f64_to_bf16(double x) { /* through a float, rounded to odd */
  float y = (float)x;
  if ((double)y != x && isfinite(y)) {
    const int over = fabs((double)y) > fabs(x);
    u32 bits = B(y) - (u32)over;
    y = F(bits | 1);
  }
  return f32_to_bf16(y);
}
static inline u32 f32_to_tf32_rna(float x) {
  return x - x != 0 ? B(x) : (B(x) + 0x1000u) & 0xffffe000u;
}
static inline u32 f32_to_tf32_rn(float x) {
  return x - x != 0 ? B(x) : (B(x) + 0xfffu + (B(x) >> 13 & 1)) & 0xffffe000u;
}

/* -- threads of a warp -- */

static inline u32 shfl(int how, u32 v, u32 by, u32 bounds, u32 mask, u8 *there) {
  const u32 lane = (u32)ptx->lane(), clamp = bounds & 31, part = bounds >> 8 & 31;
  const u32 most = (lane & part) | (clamp & ~part), least = lane & part;
  u32 from, inside, theirs = 0;
  by &= 31;
  if (how == 0) from = lane - by, inside = (s32)from >= (s32)most;
  else if (how == 1) from = lane + by, inside = from <= most;
  else if (how == 2) from = lane ^ by, inside = from <= most;
  else from = least | (by & ~part), inside = from <= most;
  if (!inside) from = lane;
  *there = (u8)inside;
  ptx->exchange(mask, &v, 4, (int)from, &theirs);
  return theirs;
}
#define barrier_or(p) (ptx->barrier_count(p) != 0)
#define barrier_and(p) (ptx->barrier_count(!(p)) == 0)

static inline void copy_later(void *to, const void *from, u32 n, u32 inside) {
  if (inside != n && inside != 0) abort();
  ptx->copy_later(to, inside ? from : NULL, n);
}

/* -- tensor cores: a warp's fragments of a 16 x depth, depth x 8 and 16 x 8 matrix -- */

enum { F16, BF16, TF32 };
struct fragments {
  int kind, depth;
  float *c;
  const u32 *a, *b;
};
static inline float element(int kind, const u32 *words, int k) {
  if (kind == TF32) return F(words[k] & 0xffffe000u);
  const u16 half = (u16)(words[k / 2] >> (16 * (k % 2)));
  return kind == F16 ? f16_to_f32(half) : bf16_to_f32(half);
}
/* The elements that a thread holds: PTX ISA, "Matrix Fragments for mma.m16n8k16" and ".m16n8k8". */
static inline void multiply_warp(void *const *all) {
  const struct fragments *const *of = (const struct fragments *const *)all;
  const int kind = of[0]->kind, depth = of[0]->depth;
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const int group = lane >> 2, in = lane & 3;
    for (int i = 0; i < depth / 2; i++) { /* a_i */
      const int half = kind != TF32;
      const int row = half ? ((i & 2) ? group + 8 : group) : ((i & 1) ? group + 8 : group);
      const int column = half ? in * 2 + (i & 1) + (i >= 4 ? 8 : 0) : in + (i >= 2 ? 4 : 0);
      a[row][column] = element(kind, of[lane]->a, i);
    }
    for (int i = 0; i < depth / 4; i++) {
      const int row = kind != TF32 ? in * 2 + (i & 1) + (i >= 2 ? 8 : 0) : in + 4 * i;
      b[row][group] = element(kind, of[lane]->b, i);
    }
  }
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = (lane >> 2) + (i >= 2 ? 8 : 0), column = (lane & 3) * 2 + (i & 1);
      for (int k = 0; k < depth; k += depth / 2)
        of[lane]->c[i] = moth_add_products(of[lane]->c[i], depth / 2, &a[row][k], &b[k][column], 8);
    }
}
static inline void multiply(int kind, int depth, float *c, const u32 *a, const u32 *b) {
  struct fragments mine = {kind, depth, c, a, b};
  ptx->together(&mine, multiply_warp);
}

struct matrices {
  const char *row;
  u32 *to;
  int transposed;
};
static inline void load_warp(void *const *all) {
  const struct matrices *const *of = (const struct matrices *const *)all;
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++) {
      u16 two[2];
      for (int i = 0; i < 2; i++) {
        const int group = lane >> 2, in = (lane & 3) * 2 + i, transposed = of[0]->transposed;
        memcpy(&two[i], of[8 * m + (transposed ? in : group)]->row + 2 * (transposed ? group : in),
               2);
      }
      of[lane]->to[m] = two[0] | (u32)two[1] << 16;
    }
}
static inline void load_matrices(u32 *to, const void *row, int transposed) {
  if ((u64)row % 16) abort();
  struct matrices mine = {(const char *)row, to, transposed};
  ptx->together(&mine, load_warp);
}

#endif

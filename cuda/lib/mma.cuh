/* mma.cuh -- instructions of a whole warp on devices of compute capability 8.0 and above: products
** of small matrices on tensor cores, loads of their factors from shared memory, asynchronous copies
** to shared memory. On older devices these functions trap; callers must check.
**
** The distribution of elements over threads (PTX ISA, "Warp-level matrix instructions":
** mma.m16n8k16, mma.m16n8k8, ldmatrix). Thread 4 g + t of a warp holds, with rows and columns
** counted from 0,
**
**   A, 16 by 16 of half types, pairs   (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
**   B, 16 by 8 of half types, pairs    (2t, g), (2t + 8, g): a pair goes down a column
**   C, 16 by 8 of f32                  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
**   A, 16 by 8 of TF32                 (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
**   B, 8 by 8 of TF32                  (t, g), (t + 4, g)
**
** so that two neighbouring C, converted to half types, are an A (Dao 2023, FlashAttention-2). */
#ifndef MOTH_CUDA_MMA_CUH
#define MOTH_CUDA_MMA_CUH

#include "dtypes.cuh"

enum { TENSOR_MAJOR = 8 }; /* lowest compute capability for these functions */

#if !defined(__CUDACC__)
#include "emulator/mma.h"
#define MOTH_ASM(...)
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define MOTH_ASM(...) __trap()
#else
#define MOTH_ASM(...) asm volatile(__VA_ARGS__)
#endif

#ifdef __CUDACC__

static __device__ inline uint32_t shared_address(const void *at) {
  return (uint32_t)__cvta_generic_to_shared(at);
}

/* -- products: c += a b -- */

#define MOTH_MMA(shape, types)                                                                  \
  MOTH_ASM("mma.sync.aligned." shape ".row.col.f32." types ".f32 "                              \
           "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                    \
           : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                     \
           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <class T>
static __device__ inline void multiply_add(float *c, const uint32_t *a, const uint32_t *b);
template <> __device__ inline void multiply_add<bf16>(float *c, const uint32_t *a,
                                                      const uint32_t *b) {
  MOTH_MMA("m16n8k16", "bf16.bf16");
}
template <> __device__ inline void multiply_add<f16>(float *c, const uint32_t *a,
                                                     const uint32_t *b) {
  MOTH_MMA("m16n8k16", "f16.f16");
}
template <> __device__ inline void multiply_add<float>(float *c, const uint32_t *a,
                                                       const uint32_t *b) {
  MOTH_MMA("m16n8k8", "tf32.tf32");
}

/* An f32 rounded to TF32. */
static __device__ inline uint32_t tf32_of(float x) {
  uint32_t bits = 0;
  MOTH_ASM("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/* -- factors -- */

/* Loads four matrices of 8 rows of 16 bytes; thread i passes the address of row i % 8 of matrix i /
** 8. From each matrix, to[] gets elements (g, 2t) and (g, 2t + 1) of half types, (g, t) of f32. */
static __device__ inline void load_matrices(uint32_t *to, const void *row) {
  MOTH_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
           : "r"(shared_address(row)));
}

/* The same, transposed: to[] gets elements (2t, g) and (2t + 1, g); half types only. */
static __device__ inline void load_transposed(uint32_t *to, const void *row) {
  MOTH_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
           : "r"(shared_address(row)));
}

/* Packs two numbers as half types into a word, the first in its lower half. */
template <class T> static __device__ inline uint32_t pair_of(float low, float high);
template <> __device__ inline uint32_t pair_of<bf16>(float low, float high) {
  uint32_t bits = 0;
  MOTH_ASM("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
template <> __device__ inline uint32_t pair_of<f16>(float low, float high) {
  uint32_t bits = 0;
  MOTH_ASM("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

/* -- asynchronous copies from global to shared memory: BYTES are 8 or 16 -- */

/* If not `inside`, writes 0 and reads nothing. */
template <int BYTES>
static __device__ inline void copy_later(void *to, const void *from, bool inside) {
  if constexpr (BYTES == 16)
    MOTH_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
             "r"(inside ? 16 : 0)
             : "memory");
  else
    MOTH_ASM("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from),
             "r"(inside ? 8 : 0)
             : "memory");
}

/* Ends a group of this thread's copies, and waits until all but the last LEFT groups are complete.
*/
static __device__ inline void end_copies() { MOTH_ASM("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> static __device__ inline void await_copies() {
  MOTH_ASM("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* -- arithmetic -- */

/* 2^x by the hardware instruction, to 2 ulp. */
static __device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

/* -- tiles in shared memory -- */

/* Processes tiles from, from + step, ... below `to`: load_later(slot, at) starts loading a tile
** into shared memory, use(slot, at) computes with it. `ahead`: there are two slots; one is loaded
** while the other is used. */
template <class Bring, class Use>
static __device__ inline void for_tiles(bool ahead, int from, int to, int step, Bring load_later,
                                        Use use) {
  int slot = 0;
  if (ahead && from < to) load_later(0, from);
  end_copies();
  for (int at = from; at < to; at += step) {
    if (!ahead) {
      __syncthreads(); /* all threads have used the last tile */
      load_later(0, at);
      end_copies();
    }
    await_copies<0>();
    __syncthreads();
    if (ahead && at + step < to) load_later(slot ^ 1, at + step);
    end_copies();
    use(slot, at);
    slot ^= ahead;
  }
  await_copies<0>(); /* also without tiles: a block must not end before its copies */
}

/* -- f32 as PARTS TF32 numbers: one, or two whose sum is the f32 -- */

/* Splits an f32 into two TF32 numbers: the nearest one, and the remainder. Products ignore the last
** 13 bits of the remainder: a relative error of at most 2^-23. Infinities, and numbers that round
** to infinity, become NaN: they would become NaN anyway in a product with a factor whose remainder
** is 0. A NaN may become 0 in the first number, but not in both. */
static __device__ inline void split_tf32(float x, uint32_t *first, uint32_t *rest) {
  *first = (bits_of(x) + 0x1000u) & 0xffffe000u;
  *rest = bits_of(x - float_of(*first));
}

/* Stores the parts of element i of a factor to to[0] and to[1]. */
template <int PARTS>
static __device__ inline void put_factor(uint32_t (*to)[4], int i, float x) {
  if constexpr (PARTS == 2) split_tf32(x, &to[0][i], &to[1][i]);
  else to[0][i] = tf32_of(x);
}

template <int PARTS>
static __device__ inline void load_factor(uint32_t (*to)[4], const float *row) {
  load_matrices(to[0], row);
  for (int i = 0; i < 4; i++) put_factor<PARTS>(to, i, float_of(to[0][i]));
}

/* c += a b; b begins at element `at`. Small products are added first; the product of both
** remainders is left out. */
template <int PARTS>
static __device__ inline void multiply_factors(float *c, const uint32_t (*a)[4],
                                               const uint32_t (*b)[4], int at) {
  if constexpr (PARTS == 2) {
    multiply_add<float>(c, a[1], b[0] + at);
    multiply_add<float>(c, a[0], b[1] + at);
  }
  multiply_add<float>(c, a[0], b[0] + at);
}

/* The same for long sums, and sums of one sign: tensor cores round each sum towards zero, and the
** error accumulates. So the products of two parts are added outside of them (Ootomo and Yokota
** 2022). */
template <int PARTS>
static __device__ inline void gather_factors(float *c, const uint32_t (*a)[4],
                                             const uint32_t (*b)[4], int at) {
  if constexpr (PARTS == 2) {
    float sum[4] = {0, 0, 0, 0};
    multiply_factors<PARTS>(sum, a, b, at);
    for (int i = 0; i < 4; i++) c[i] += sum[i];
  } else {
    multiply_factors<PARTS>(c, a, b, at);
  }
}

#endif

/* mma.h -- the instructions of cuda/lib/mma.cuh on the CPU, with the documented layouts. When all
** 32 threads of a warp have called, one thread does the work of all. Sums have the rounding errors
** of a tensor core (sums.h). */
#ifndef MOTH_EMULATED_MMA_H
#define MOTH_EMULATED_MMA_H

#include "sums.h"

struct moth_fragments { /* of a thread */
  float *c;
  const uint32_t *a, *b;
};

template <class T> static float moth_half(uint32_t pair, int i) {
  const T h = {(uint16_t)(pair >> 16 * i)};
  return widen(h);
}

/* Element (row, k) of A and (k, column) of B, from the threads of a warp. */
template <class T> struct moth_factor {
  enum { depth = 16 };
  static float a(const moth_fragments *const *of, int row, int k) {
    const int which = row / 8 + k / 8 * 2, thread = row % 8 * 4 + k % 8 / 2;
    return moth_half<T>(of[thread]->a[which], k % 2);
  }
  static float b(const moth_fragments *const *of, int k, int column) {
    return moth_half<T>(of[column * 4 + k % 8 / 2]->b[k / 8], k % 2);
  }
};
template <> struct moth_factor<float> {
  enum { depth = 8 };
  static float tf32(uint32_t bits) { return float_of(bits & 0xffffe000u); }
  static float a(const moth_fragments *const *of, int row, int k) {
    return tf32(of[row % 8 * 4 + k % 4]->a[row / 8 + k / 4 * 2]);
  }
  static float b(const moth_fragments *const *of, int k, int column) {
    return tf32(of[column * 4 + k % 4]->b[k / 4]);
  }
};

template <class T> static void moth_multiply_warp(void *const *all) {
  const moth_fragments *const *of = (const moth_fragments *const *)(void *)all;
  enum { DEPTH = moth_factor<T>::depth };
  float a[16][DEPTH], b[DEPTH][8];
  for (int k = 0; k < DEPTH; k++) {
    for (int row = 0; row < 16; row++) a[row][k] = moth_factor<T>::a(of, row, k);
    for (int column = 0; column < 8; column++) b[k][column] = moth_factor<T>::b(of, k, column);
  }
  for (int row = 0; row < 16; row++)
    for (int column = 0; column < 8; column++) {
      float *c = &of[row % 8 * 4 + column / 2]->c[row / 8 * 2 + column % 2];
      for (int k = 0; k < DEPTH; k += DEPTH / 2)
        *c = moth_add_products(*c, DEPTH / 2, &a[row][k], &b[k][column], 8);
    }
}

template <class T>
static inline void multiply_add(float *c, const uint32_t *a, const uint32_t *b) {
  moth_fragments mine = {c, a, b};
  moth_together(&mine, moth_multiply_warp<T>);
}

static inline uint32_t tf32_of(float x) { /* to nearest, ties away from 0 */
  const uint32_t bits = bits_of(x);
  return x - x != 0 ? bits : (bits + 0x1000u) & 0xffffe000u;
}

struct moth_rows {
  const void *row;
  uint32_t *to;
};

template <bool TURNED> static void moth_load_warp(void *const *all) {
  const moth_rows *const *of = (const moth_rows *const *)(void *)all;
  for (int matrix = 0; matrix < 4; matrix++)
    for (int g = 0; g < 8; g++)
      for (int t = 0; t < 4; t++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
          const int row = TURNED ? 2 * t + i : g, column = TURNED ? g : 2 * t + i;
          memcpy(&pair[i], (const char *)of[matrix * 8 + row]->row + 2 * column, 2);
        }
        of[4 * g + t]->to[matrix] = pair[0] | (uint32_t)pair[1] << 16;
      }
}

static inline void load_matrices(uint32_t *to, const void *row) {
  moth_rows mine = {row, to};
  moth_watch_read(row, 16);
  moth_together(&mine, moth_load_warp<false>);
}
static inline void load_transposed(uint32_t *to, const void *row) {
  moth_rows mine = {row, to};
  moth_watch_read(row, 16);
  moth_together(&mine, moth_load_warp<true>);
}

template <class T> static inline uint32_t pair_of(float low, float high) {
  T pair[2];
  put(&pair[0], low);
  put(&pair[1], high);
  return pair[0].bits | (uint32_t)pair[1].bits << 16;
}

template <int BYTES> static inline void copy_later(void *to, const void *from, bool inside) {
  moth_copy_later(to, inside ? from : NULL, BYTES);
}
static inline void end_copies() { moth_copy_later(NULL, NULL, 0); }
template <int LEFT> static inline void await_copies() { moth_await_copies(LEFT); }

static inline float exp2_approx(float x) { return exp2f(x); }

#endif

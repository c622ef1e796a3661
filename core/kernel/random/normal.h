/* normal.h -- converts random words to numbers: the same bits on every machine. */
#ifndef MOTH_KERNEL_NORMAL_H
#define MOTH_KERNEL_NORMAL_H

#include <stdint.h>

/* Uniform in [0, 1). An f32 takes one word and has `bits` random bits; an f64 takes two words. */
void moth_uniform_f32(int64_t n, const uint32_t *words, int bits, float *out);
void moth_uniform_f64(int64_t n, const uint32_t *words, double *out);

/* Standard normal, by Box and Muller: two values from two (f32) or four (f64) words; n is even. */
void moth_normal_f32(int64_t n, const uint32_t *words, float *out);
void moth_normal_f64(int64_t n, const uint32_t *words, double *out);

/* Exponential with mean 1, from two words per value; never 0. */
void moth_exponential_f64(int64_t n, const uint32_t *words, double *out);

/* x := add + mul * x. */
void moth_affine_f32(int64_t n, double mul, double add, float *x);
void moth_affine_f64(int64_t n, double mul, double add, double *x);

#endif

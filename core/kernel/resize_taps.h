/* resize_taps.h -- the source position of each output element of a resize, and the weights of its
** taps. For the tables of the CPU and the GPU.
**
** Positions, and the precision in which they are computed, equal PyTorch's bit by bit: half a step
** decides which neighbor `nearest` uses.
*/
#ifndef MOTH_KERNEL_RESIZE_TAPS_H
#define MOTH_KERNEL_RESIZE_TAPS_H

#include "kernel/math/exp.h"

enum { MOTH_NEAREST, MOTH_NEAREST_EXACT, MOTH_LINEAR, MOTH_CUBIC, MOTH_MOST_TAPS = 4 };

/* Products that compilers never contract with a sum, so that all machines return the same bits. */
MOTH_INLINE float moth_times_f32(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

MOTH_INLINE double moth_times_f64(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

typedef struct moth_axis {
  int64_t in, out;
  int mode;
  bool align;   /* align_corners */
  double scale; /* enlargement; 0: out / in */
} moth_axis;

MOTH_INLINE int moth_taps_count(int mode) {
  return mode == MOTH_LINEAR ? 2 : mode == MOTH_CUBIC ? 4 : 1;
}

/* Elements of the image per element of the result. */
MOTH_INLINE double moth_taps_step(const moth_axis *a) {
  const double in = (double)a->in, out = (double)a->out;
  if (a->align && a->mode >= MOTH_LINEAR) return out > 1 ? (in - 1) / (out - 1) : 0;
  return a->scale > 0 ? 1 / a->scale : in / out;
}

MOTH_INLINE int64_t moth_taps_nearest(const moth_axis *a, int64_t i) {
  if (a->in == a->out && !(a->scale > 0)) return i; /* floats are inexact from 2^24 on */
  const float step = (float)moth_taps_step(a);
  const float at = moth_times_f32((float)i + (a->mode == MOTH_NEAREST ? 0.0f : 0.5f), step);
  const int64_t last = a->in - 1;
  if (!(at < 0x1p62f)) return last; /* for a tiny scale, beyond i64 */
  const int64_t found = (int64_t)floorf(at);
  return found < last ? found : last;
}

MOTH_INLINE void moth_taps_linear(int64_t last, double at, int64_t *to, double *weight) {
  at = at > 0 ? at : 0;
  if (at > (double)last + 1) at = (double)last + 1;
  to[0] = (int64_t)floor(at);
  if (to[0] > last) to[0] = last;
  to[1] = to[0] + (to[0] < last);
  weight[1] = at - (double)to[0];
  if (weight[1] > 1) weight[1] = 1;
  weight[0] = 1 - weight[1];
}

/* Cubic convolution (Keys 1981), with the coefficient -0.75. */
MOTH_INLINE void moth_taps_cubic(int64_t last, double at, int64_t *to, double *weight) {
  if (at > (double)last + 2) at = (double)last + 2;
  const double A = -0.75, whole = floor(at), t = at - whole;
  const double near[2] = {t, 1 - t}, far[2] = {t + 1, 2 - t};
  for (int k = 0; k < 2; k++) {
    weight[1 + k] = ((A + 2) * near[k] - (A + 3)) * near[k] * near[k] + 1;
    weight[3 * k] = ((A * far[k] - 5 * A) * far[k] + 8 * A) * far[k] - 4 * A;
  }
  for (int k = 0; k < 4; k++) {
    const int64_t place = (int64_t)whole - 1 + k;
    to[k] = place < 0 ? 0 : place > last ? last : place;
  }
}

/* The source position of element i; computed in f32 if `single`. */
MOTH_INLINE double moth_taps_place(const moth_axis *a, bool single, int64_t i) {
  const double step = moth_taps_step(a);
  if (a->mode == MOTH_LINEAR && a->in == a->out) return (double)i;
  if (!single)
    return a->align ? moth_times_f64(step, (double)i)
                    : moth_times_f64(step, (double)i + 0.5) - 0.5;
  return (double)(a->align ? moth_times_f32((float)step, (float)i)
                           : moth_times_f32((float)step, (float)i + 0.5f) - 0.5f);
}

/* The taps of element i of the result: to[] and weight[] have MOTH_MOST_TAPS elements, of which
** moth_taps_count are used. */
MOTH_INLINE void moth_taps_of(const moth_axis *a, bool single, int64_t i, int64_t *to,
                              double *weight) {
  const int64_t last = a->in - 1;
  weight[0] = 1;
  if (a->mode <= MOTH_NEAREST_EXACT) to[0] = moth_taps_nearest(a, i);
  else if (a->mode == MOTH_LINEAR)
    moth_taps_linear(last, moth_taps_place(a, single, i), to, weight);
  else moth_taps_cubic(last, moth_taps_place(a, single, i), to, weight);
}

#endif

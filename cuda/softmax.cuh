/* softmax.cuh -- the largest of a row and the sum of exp(x - largest), found in one pass: Milakov
** and Gimelshein, "Online normalizer calculation for softmax" (2018).
*/
#ifndef MOTH_CUDA_SOFTMAX_CUH
#define MOTH_CUDA_SOFTMAX_CUH

#include "rows.cuh"

template <class real> struct top {
  real most, sum;
};

template <class real> HD top<real> no_top() { return top<real>{-(real)INFINITY, 0}; }

/* A NaN is never the largest and gets into the sum, as does an infinity less itself. */
template <class real> HD void take(top<real> *t, real x) {
  if (x > t->most) {
    t->sum = t->sum * exp(t->most - x) + (1 + (x - x));
    t->most = x;
  } else if (x != -(real)INFINITY) {
    t->sum += exp(x - t->most);
  }
}

template <class real> struct join_tops {
  typedef top<real> room;
  MEMBER room join(room a, room b) const {
    const real most = a.most > b.most ? a.most : b.most;
    const real of_a = a.most == most ? a.sum : a.sum * exp(a.most - most);
    const real of_b = b.most == most ? b.sum : b.sum * exp(b.most - most);
    return room{most, of_a + of_b};
  }
};

/* The team's row of n elements, n a multiple of EACH; the same for all threads. */
template <bool WIDE, int EACH, class T>
static __device__ inline top<real_of<T>> top_of_row(const team &me, const T *x, int64_t n) {
  top<real_of<T>> t = no_top<real_of<T>>();
  for (int64_t i = (int64_t)me.lane * EACH; i < n; i += (int64_t)me.size * EACH) {
    const lump<T, EACH> in = *(const lump<T, EACH> *)(const void *)(x + i);
    for (int k = 0; k < EACH; k++) take(&t, get(&in.at[k]));
  }
  return join_team<WIDE>(join_tops<real_of<T>>(), t);
}

#endif

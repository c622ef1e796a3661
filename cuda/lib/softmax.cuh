/* softmax.cuh -- the maximum of a row and the sum of exp(x - maximum), computed in one pass:
** Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). */
#ifndef MOTH_CUDA_SOFTMAX_CUH
#define MOTH_CUDA_SOFTMAX_CUH

#include "rows.cuh"

template <class real> struct top {
  real most, sum;
};

template <class real> HD top<real> no_top() { return top<real>{-(real)INFINITY, 0}; }

/* A NaN is never the maximum; it makes the sum NaN, as does infinity minus infinity. */
template <class real> HD void take(top<real> *t, real x) {
  if (x > t->most) {
    t->sum = t->sum * exp(t->most - x) + (1 + (x - x));
    t->most = x;
  } else if (x != -(real)INFINITY) {
    t->sum += exp(x - t->most);
  }
}

/* Adds several elements; rescales the sum only once. */
template <class T, int EACH> HD void take_vec(top<real_of<T>> *t, const vec<T, EACH> &in) {
  typedef real_of<T> real;
  real most = -(real)INFINITY;
  for (int k = 0; k < EACH; k++) most = get(&in.at[k]) > most ? get(&in.at[k]) : most;
  if (most > t->most) {
    t->sum *= exp(t->most - most);
    t->most = most;
  }
  for (int k = 0; k < EACH; k++) {
    const real x = get(&in.at[k]);
    t->sum += x == -(real)INFINITY ? 0 : exp(x - t->most);
  }
}

template <class real> struct join_tops {
  typedef top<real> state;
  MEMBER state join(state a, state b) const {
    const real most = a.most > b.most ? a.most : b.most;
    const real of_a = a.most == most ? a.sum : a.sum * exp(a.most - most);
    const real of_b = b.most == most ? b.sum : b.sum * exp(b.most - most);
    return state{most, of_a + of_b};
  }
};

/* Joins the states of a team's threads, for all of them; rescales once, to the maximum. */
template <bool WIDE, class real>
static __device__ inline top<real> join_top(const team &me, top<real> t) {
  if constexpr (WIDE) return join_block(join_tops<real>(), t);
  const real own = t.most;
  for (int by = 1; by < me.size; by *= 2) {
    const real theirs = from_lane(t.most, by);
    if (theirs > t.most) t.most = theirs;
  }
  if (own != t.most) t.sum *= exp(own - t.most);
  t.sum = join_lanes(adds<real>(), t.sum, me.size);
  return t;
}

/* Processes the team's row of n elements, with any alignment. The alignment decides which thread
** adds which element: if rows are not a multiple of 16 bytes, equal rows may differ in the last
** bit. */
template <bool WIDE, int EACH, class T>
static __device__ inline top<real_of<T>> top_of_row(const team &me, const T *x, int64_t n) {
  top<real_of<T>> t = no_top<real_of<T>>();
  each_vec<EACH>(me, x, n, [&](int64_t i) { take_vec(&t, read_vec<T, EACH>(x + i)); },
                  [&](int64_t i) { take(&t, get(x + i)); });
  return join_top<WIDE>(me, t);
}

#endif

/* pointloss.cu -- elementwise losses in one pass: the formulas of core/kernel/pointloss_real.h,
** their sum or mean in f64, and their gradients (the list is in core/op/pointloss.h). */
#include "../../core/op/pointloss.h"

#include "lib/elementwise.cuh"
#include "lib/sum_f64.cuh"

enum { MEAN, SUM, EACH_PAIR, BATCH_MEAN }; /* the values of `reduction` in core/op/pointloss.c */

/* -- the losses of numbers x and t; a is the parameter of some losses -- */

template <class real> HD real log_tail(real x) { return log1p(exp(-fabs(x))); }
template <class real> HD real no_less(real x) { return x < -100 ? (real)-100 : x; }

#define PAIR(name, ...)                                              \
  struct name##_pair {                                               \
    template <class real> HD real loss(real x, real t, real a) {     \
      const real d = x - t, far = d < 0 ? -d : d;                    \
      (void)far, (void)a;                                            \
      return __VA_ARGS__;                                            \
    }                                                                \
  };
PAIR(square, d *d)
PAIR(distance, far)
PAIR(smooth, far < a ? (real)0.5 * d * d / a : far - (real)0.5 * a)
PAIR(huber, far <= a ? (real)0.5 * d * d : a * (far - (real)0.5 * a))
PAIR(logits, (x < 0 ? -t : 1 - t) * x + log_tail(x))
PAIR(chances, -(t * no_less(log(x)) + (1 - t) * no_less(log1p(-x))))
PAIR(kl, (t == 0 ? 0 : t * log(t)) - t * x)
PAIR(kl_log, exp(t) * (t - x))

/* -- one pass; each term of the reduction is the sum of EACH losses -- */

template <class Pair, class T, int EACH> struct pair_losses {
  int reduction;
  int64_t n;
  double a, divisor;
  const T *x, *t;
  T *y;
  moth_kernel_error *kernel_error; /* for losses that need x from 0 to 1, else NULL */

  __device__ sums_of<double> term(int64_t i) const {
    const vec<T, EACH> p = ((const vec<T, EACH> *)(const void *)x)[i];
    const vec<T, EACH> q = ((const vec<T, EACH> *)(const void *)t)[i];
    vec<T, EACH> losses;
    double sum = 0;
    for (int k = 0; k < EACH; k++) {
      const real_of<T> v = get(&p.at[k]);
      if (kernel_error && !(v >= 0 && v <= 1)) report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
      const real_of<T> loss = Pair::loss(v, get(&q.at[k]), (real_of<T>)a);
      put(&losses.at[k], loss);
      sum += (double)loss;
    }
    if (reduction == EACH_PAIR) write_vec(y + i * EACH, losses);
    return sums_of<double>{sum, 0};
  }
  __device__ void finish(sums_of<double> s) const {
    if (reduction == EACH_PAIR) return;
    if (reduction == BATCH_MEAN) { /* the sum is rounded before it is divided */
      put(y, s.a);
      put(y, (double)get(y) / divisor);
    } else {
      put(y, reduction == MEAN ? s.a / (double)n : s.a);
    }
  }
};

template <class Pair, class T, int EACH>
static int run_pairs(const moth_tensor *x, const moth_tensor *t, double a, double divisor,
                     int64_t reduction, moth_kernel_error *kernel_error, moth_tensor *out) {
  const int64_t n = x->l.numel;
  const pair_losses<Pair, T, EACH> job = {(int)reduction, n,          a,           divisor,
                                          data<T>(x),     data<T>(t), data<T>(out), kernel_error};
  return run_total(out, n / EACH, job);
}

template <class Pair>
static int pair_run(const moth_tensor *input, const moth_tensor *target, double a, double divisor,
                    int64_t reduction, bool chances, moth_tensor *out) {
  const moth_queue *q = moth_queue_of(out->ctx, out->l.device);
  moth_tensor *x = moth_packed(input), *t = moth_packed(target);
  int status = q && x && t ? MOTH_OK : moth_status(out->ctx);
  moth_kernel_error *kernel_error = chances && q ? q->kernel_error : NULL;
  if (!status)
    status = with_float(out->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const T *y = reduction == EACH_PAIR ? data<T>(out) : NULL;
      const bool whole = x->l.numel % VEC<T> == 0 && on_vec(data<T>(x)) &&
                         on_vec(data<T>(t)) && on_vec(y);
      return whole ? run_pairs<Pair, T, VEC<T>>(x, t, a, divisor, reduction, kernel_error, out)
                   : run_pairs<Pair, T, 1>(x, t, a, divisor, reduction, kernel_error, out);
    });
  moth_tensor_release(x);
  moth_tensor_release(t);
  return status;
}

#define PAIR_LOSS_OF(op, pair, number, chances)                                                   \
  MOTH_CUDA(op) {                                                                                 \
    return pair_run<pair##_pair>(a->input, a->target, number, 1, a->reduction, chances, out[0]);  \
  }
PAIR_LOSS_OF(mse_loss, square, 0, false)
PAIR_LOSS_OF(l1_loss, distance, 0, false)
PAIR_LOSS_OF(smooth_l1_loss, smooth, a->beta, false)
PAIR_LOSS_OF(huber_loss, huber, a->delta, false)
PAIR_LOSS_OF(logit_loss, logits, 0, false)
PAIR_LOSS_OF(chance_loss, chances, 0, true)

MOTH_CUDA(kl_div) {
  const double batch = a->input->l.ndim ? (double)a->input->l.shape[0] : 1;
  return a->log_target ? pair_run<kl_log_pair>(a->input, a->target, 0, batch, a->reduction, false,
                                               out[0])
                       : pair_run<kl_pair>(a->input, a->target, 0, batch, a->reduction, false,
                                           out[0]);
}

/* -- gradients -- */

#define LISTS(ONE, TWO, THREE) PAIR_SLOPES(THREE)
MOTH_CUDA_FAMILY(LISTS)

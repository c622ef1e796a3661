/* ctc.cu -- connectionist temporal classification. A block processes one sequence, one time step
** after another; its threads are the states (defined in core/kernel/ctc_real.h). Then a block for
** each step and sequence sums the probabilities of all states of a class, in a fixed order. */
#include "../../core/op/ctc.h"

#include "lib/reduce.cuh"
#include "lib/rows.cuh"

template <class T> struct ctc_problem {
  typedef real_of<T> R;
  int64_t steps, samples, classes, blank, wide; /* wide: length of a row of targets */
  const T *x;                                   /* (T, N, C) */
  const int64_t *targets, *steps_of, *targets_of;
  moth_kernel_error *kernel_error;

  __device__ static R none() { return (R)-1e30; } /* used as log 0 */
  __device__ int64_t steps_in(int64_t n) const {
    const int64_t k = steps_of[n];
    return k < 0 ? 0 : k > steps ? steps : k;
  }
  __device__ int64_t targets_in(int64_t n) const {
    const int64_t k = targets_of[n];
    return k < 0 ? 0 : k > wide ? wide : k;
  }
  /* The class of a state. An invalid class is reported and replaced by the blank. */
  __device__ int64_t label(int64_t n, int64_t s) const {
    if (!(s & 1)) return blank;
    const int64_t c = targets[n * wide + (s >> 1)];
    if (c >= 0 && c < classes) return c;
    report(kernel_error, KERNEL_ERROR_CLASS, c, classes);
    return blank;
  }
  __device__ R emits(int64_t t, int64_t n, int64_t s) const {
    const R v = (R)get(x + (t * samples + n) * classes + label(n, s));
    return v < none() ? none() : v;
  }
  /* Tests if state s can be reached from s - 2. */
  __device__ bool skips(int64_t n, int64_t s) const {
    return (s & 1) && s > 1 && label(n, s) != label(n, s - 2);
  }
  __device__ static R sum3(R a, R b, R c) {
    const R ab = a > b ? a : b, m = ab > c ? ab : c;
    return m + log(exp(a - m) + exp(b - m) + exp(c - m));
  }
};

/* Keeps the rows of all steps, (N, T, L), or only two rows. */
template <class T>
static __device__ real_of<T> read_through(const ctc_problem<T> &p, int64_t n, int64_t states,
                                          bool keep, real_of<T> *rows, int64_t wide) {
  typedef real_of<T> R;
  const R none = p.none();
  const int64_t steps = p.steps_in(n);
  if (threadIdx.x == 0) {
    if (steps != p.steps_of[n]) report(p.kernel_error, KERNEL_ERROR_LENGTH, p.steps_of[n], p.steps);
    if (p.targets_in(n) != p.targets_of[n])
      report(p.kernel_error, KERNEL_ERROR_LENGTH, p.targets_of[n], p.wide);
  }
  for (int64_t t = 0; t < steps; t++) {
    R *row = rows + (keep ? t : t & 1) * wide;
    const R *from = rows + (keep ? t - 1 : (t - 1) & 1) * wide;
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      R sum = s < 2 ? 0 : none;
      if (t > 0)
        sum = p.sum3(from[s], s > 0 ? from[s - 1] : none, p.skips(n, s) ? from[s - 2] : none);
      row[s] = sum + p.emits(t, n, s);
    }
    __syncthreads();
  }
  if (steps == 0) return states > 1 ? none : 0;
  const R *last = rows + (keep ? steps - 1 : (steps - 1) & 1) * wide;
  return p.sum3(last[states - 1], states > 1 ? last[states - 2] : none, none);
}

template <class T>
static __global__ void find_losses(ctc_problem<T> p, real_of<T> *rows, T *loss) {
  typedef real_of<T> R;
  const int64_t n = blockIdx.x, wide = 2 * p.wide + 1, states = 2 * p.targets_in(n) + 1;
  const R total = read_through(p, n, states, false, rows + n * 2 * wide, wide);
  if (threadIdx.x == 0) put(loss + n, total < p.none() / 2 ? (R)INFINITY : -total);
}

/* Links each target to the next target of the same class, if any; the first one of a class is
** marked by an inverted link. */
template <class T>
static __device__ void link_targets(const ctc_problem<T> &p, int64_t n, int *link) {
  const int targets = (int)p.targets_in(n);
  for (int k = threadIdx.x; k < targets; k += blockDim.x) {
    const int64_t c = p.label(n, 2 * k + 1);
    bool first = c != p.blank;
    for (int j = 0; j < k && first; j++) first = p.label(n, 2 * j + 1) != c;
    int next = k + 1;
    while (next < targets && p.label(n, 2 * next + 1) != c) next++;
    link[k] = first ? next : ~next;
  }
}

/* rows := the probability of each state at each step; totals := the log probability of all paths.
*/
template <class T>
static __global__ void find_shares(ctc_problem<T> p, real_of<T> *rows, real_of<T> *pair,
                                   real_of<T> *totals, int *links) {
  typedef real_of<T> R;
  const R none = p.none();
  const int64_t n = blockIdx.x, wide = 2 * p.wide + 1, states = 2 * p.targets_in(n) + 1;
  const int64_t steps = p.steps_in(n);
  rows += n * p.steps * wide;
  R *q = pair + n * 2 * wide, *behind = q + wide;
  link_targets(p, n, links + n * p.wide);
  const R total = read_through(p, n, states, true, rows, wide);
  if (threadIdx.x == 0) totals[n] = total;
  for (int64_t s = threadIdx.x; s < states; s += blockDim.x)
    behind[s] = s >= states - 2 ? 0 : none;
  __syncthreads(); /* all threads have read the total; its row may change */
  for (int64_t t = steps - 1; t >= 0; t--) {
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      R *share = rows + t * wide + s;
      const R size = *share + behind[s] - total;
      *share = exp(size > 0 ? (R)0 : size); /* rounding can make it positive */
      q[s] = behind[s] + p.emits(t, n, s);
    }
    __syncthreads();
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x)
      behind[s] = p.sum3(q[s], s + 1 < states ? q[s + 1] : none,
                         s + 2 < states && p.skips(n, s + 2) ? q[s + 2] : none);
    __syncthreads();
  }
}

/* One step of one sequence: minus the probability of each class, times the gradient of the loss. */
template <class T>
static __global__ void add_shares(ctc_problem<T> p, const real_of<T> *rows,
                                  const real_of<T> *totals, const int *links, const T *dy,
                                  T *dx) {
  typedef real_of<T> R;
  __shared__ R parts[BLOCK];
  const int64_t t = blockIdx.x / p.samples, n = blockIdx.x - t * p.samples;
  const int64_t wide = 2 * p.wide + 1, targets = p.targets_in(n);
  const int *link = links + n * p.wide;
  const R by = -(R)get(dy + n), *share = rows + (n * p.steps + t) * wide;
  const bool runs = t < p.steps_in(n) && by != 0, none = totals[n] < p.none() / 2;
  T *to = dx + (t * p.samples + n) * p.classes;
  for (int64_t c = threadIdx.x; c < p.classes; c += blockDim.x)
    put(to + c, runs && none ? (R)NAN : (R)0);
  if (!runs || none) return;
  R sum = 0;
  for (int64_t k = threadIdx.x; k <= targets; k += blockDim.x) {
    sum += share[2 * k];
    if (k < targets && p.label(n, 2 * k + 1) == p.blank) sum += share[2 * k + 1];
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if ((int)threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) put(to + p.blank, parts[0] * by);
  for (int64_t k = threadIdx.x; k < targets; k += blockDim.x) {
    if (link[k] < 0) continue;
    R all = 0;
    for (int64_t j = k; j < targets; j = link[j] < 0 ? ~link[j] : link[j]) all += share[2 * j + 1];
    put(to + p.label(n, 2 * k + 1), all * by);
  }
}

/* -- launching -- */

typedef struct ctc_inputs { /* packed tensors, released after use */
  moth_tensor *x, *targets, *steps, *counts;
} ctc_inputs;

static int open_inputs(moth_ctx *ctx, const moth_tensor *x, const moth_tensor *targets,
                       const moth_tensor *steps, const moth_tensor *counts, ctc_inputs *in) {
  *in = {moth_packed(x), moth_packed(targets), moth_packed(steps), moth_packed(counts)};
  return in->x && in->targets && in->steps && in->counts ? MOTH_OK : moth_status(ctx);
}

static void drop_inputs(ctc_inputs *in) {
  moth_tensor_release(in->x);
  moth_tensor_release(in->targets);
  moth_tensor_release(in->steps);
  moth_tensor_release(in->counts);
}

template <class T>
static ctc_problem<T> problem_of(const ctc_inputs &in, int64_t blank, const moth_queue *q) {
  const int64_t *n = in.x->l.shape;
  return {n[0], n[1], n[2], blank, in.targets->l.shape[1], data<T>(in.x),
          data<int64_t>(in.targets), data<int64_t>(in.steps), data<int64_t>(in.counts),
          q->kernel_error};
}

MOTH_CUDA(ctc_losses) {
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  if (out[0]->l.numel == 0) return MOTH_OK;
  if (!q) return moth_status(a->ctx);
  ctc_inputs in;
  int status = open_inputs(a->ctx, a->log_probs, a->targets, a->input_lengths, a->target_lengths,
                           &in);
  if (!status)
    status = with_float(a->log_probs->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const ctc_problem<T> p = problem_of<T>(in, a->blank, q);
      const int64_t count = p.samples * 2 * (2 * p.wide + 1);
      moth_tensor *rows = device_scratch(out[0], count * (int64_t)sizeof(real_of<T>));
      if (!rows) return moth_status(a->ctx);
      int launched = launch(a->ctx, out[0], find_losses<T>, grid_for(p.samples), BLOCK, 0, p,
                            data<real_of<T>>(rows), data<T>(out[0]));
      moth_tensor_release(rows);
      return launched;
    });
  drop_inputs(&in);
  return status;
}

template <class T>
static int back_run(const ctc_problem<T> &p, const moth_tensor *dy, moth_tensor *dx) {
  typedef real_of<T> R;
  const int64_t wide = 2 * p.wide + 1, all = p.samples * p.steps * wide;
  const int64_t pairs = p.samples * 2 * wide;
  const int64_t links = p.samples * p.wide * (int64_t)sizeof(int);
  moth_tensor *scratch = device_scratch(dx, (all + pairs + p.samples) * (int64_t)sizeof(R) + links);
  if (!scratch) return moth_status(dx->ctx);
  R *rows = data<R>(scratch), *totals = rows + all + pairs;
  int *link = (int *)(totals + p.samples);
  int status = launch(dx->ctx, dx, find_shares<T>, grid_for(p.samples), BLOCK, 0, p, rows,
                      rows + all, totals, link);
  if (!status)
    status = launch(dx->ctx, dx, add_shares<T>, grid_for(p.samples * p.steps), BLOCK, 0, p,
                    rows, totals, link, data<T>(dy), data<T>(dx));
  moth_tensor_release(scratch);
  return status;
}

MOTH_CUDA(ctc_back) {
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  if (out[0]->l.numel == 0) return MOTH_OK;
  if (!q) return moth_status(a->ctx);
  ctc_inputs in;
  moth_tensor *dy = moth_packed(a->grad);
  int status = open_inputs(a->ctx, a->log_probs, a->targets, a->input_lengths, a->target_lengths,
                           &in);
  if (!status && !dy) status = moth_status(a->ctx);
  if (!status)
    status = with_float(a->log_probs->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return back_run(problem_of<T>(in, a->blank, q), dy, out[0]);
    });
  moth_tensor_release(dy);
  drop_inputs(&in);
  return status;
}

/* strided.cuh -- loops over several tensors with any strides: the core's merged dimensions
** (core/tensor/loop.h), with multiplications in place of divisions. */
#ifndef MOTH_CUDA_STRIDED_CUH
#define MOTH_CUDA_STRIDED_CUH

#include "dtypes.cuh"

/* Below this count, 32-bit arithmetic is enough. The GPU emulator may lower the limit, to test the
** 64-bit code. */
#if defined(__CUDACC__) || defined(MOTH_AT_RUN_TIME)
#define MOTH_SMALL INT32_MAX
#else
#define MOTH_SMALL moth_emulated_small
#endif

/* n / by for n below 2^31, after Granlund and Montgomery, "Division by invariant integers". */
struct divider {
  uint32_t by, magic, shift;
};

HD divider divider_of(uint32_t by) {
  divider d = {by, 0, 0};
  while (d.shift < 31 && ((uint32_t)1 << d.shift) < by) d.shift++;
  d.magic = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - by)) / by + 1);
  return d;
}

HD uint32_t divide(uint32_t n, const divider &d) {
  return (uint32_t)(((uint64_t)n * d.magic >> 32) + n) >> d.shift;
}

/* Quotients by one number: fast if all counts are below 2^31. */
struct quotient_by {
  divider quick;
  int64_t by;
  bool small;
};

static inline quotient_by quotients(int64_t by, int64_t most) {
  const bool small = most < MOTH_SMALL && by < MOTH_SMALL;
  if (by < 1) by = 1;
  return quotient_by{divider_of(small ? (uint32_t)by : 1), by, small};
}

HD int64_t divide(int64_t n, const quotient_by &q) {
  return q.small ? (int64_t)divide((uint32_t)n, q.quick) : n / q.by;
}

/* One tensor as an operand: its address, or the value of a 0-d CPU tensor. */
struct operand {
  char *at;
  uint64_t held;
  bool is_held;
};

template <class T> HD const T *element(const operand &o, int64_t bytes) {
  return o.is_held ? (const T *)(const void *)&o.held : (const T *)(const void *)(o.at + bytes);
}

enum { STRIDED_DIMS = MOTH_MAX_DIMS };

/* N operands over one shape; [0] is the result. Dimension 0 is the innermost. */
template <int N> struct strided {
  operand of[N];
  int64_t n;
  int ndim;
  bool small; /* all offsets and counts are below 2^31 */
  divider size[STRIDED_DIMS];
  int64_t wide[STRIDED_DIMS];    /* the sizes, if not small */
  int64_t step[STRIDED_DIMS][N]; /* bytes */
};

template <int N> HD void offsets(const strided<N> &w, int64_t i, int64_t *at) {
  for (int k = 0; k < N; k++) at[k] = 0;
  if (w.small) {
    uint32_t rest = (uint32_t)i;
    for (int d = 0; d < w.ndim; d++) {
      const uint32_t over = d + 1 < w.ndim ? divide(rest, w.size[d]) : 0;
      const uint32_t index = rest - over * w.size[d].by;
      for (int k = 0; k < N; k++) at[k] += (int64_t)index * w.step[d][k];
      rest = over;
    }
    return;
  }
  int64_t rest = i;
#pragma unroll 1
  for (int d = 0; d < w.ndim; d++) {
    const int64_t over = d + 1 < w.ndim ? rest / w.wide[d] : 0, index = rest - over * w.wide[d];
    for (int k = 0; k < N; k++) at[k] += index * w.step[d][k];
    rest = over;
  }
}

#ifndef MOTH_AT_RUN_TIME
/* Fills w for operands that broadcast to the first one's shape. The value of a 0-d CPU tensor is
** stored in w. */
template <int N>
static inline void strided_over(strided<N> *w, moth_ctx *ctx, const moth_tensor *const *operands) {
  moth_loop loop;
  moth_loop_over(&loop, ctx, &operands[0]->l, N, operands);
  w->n = operands[0]->l.numel;
  w->ndim = loop.ndim;
  w->small = w->n < MOTH_SMALL;
  for (int d = 0; d < loop.ndim; d++) {
    w->wide[d] = loop.size[d] ? loop.size[d] : 1;
    w->size[d] = divider_of(w->small ? (uint32_t)w->wide[d] : 1);
    for (int k = 0; k < N; k++) w->step[d][k] = loop.step[d][k];
  }
  for (int k = 0; k < N; k++) {
    const moth_tensor *x = operands[k];
    w->of[k] = operand{loop.at[k], 0, x->l.device == 0};
    if (x->l.device == 0) memcpy(&w->of[k].held, loop.at[k], moth_dtype_size[x->l.dtype]);
  }
}
#endif

/* Tests if all operands are contiguous or scalars. */
template <int N> static inline bool strided_is_flat(const strided<N> &w, const int *sizes) {
  if (w.ndim != 1) return false;
  for (int k = 0; k < N; k++)
    if (w.step[0][k] != sizes[k] && (k == 0 || w.step[0][k] != 0)) return w.n <= 1;
  return true;
}

/* Tests if threads can access `each` elements of all operands at once: operands are contiguous and
** aligned to the vector size, or constant along the dimension; the first `results` operands must be
** contiguous. With several rows, no vector crosses a row's end. */
template <int N>
static inline bool strided_packs(const strided<N> &w, const int *sizes, int results, int each) {
  if (w.ndim > 1 && w.wide[0] % each != 0) return false;
  if (w.ndim <= 1 && w.n <= 1) return true;
  for (int k = 0; k < N; k++) {
    const bool one = k >= results && (w.of[k].is_held || w.step[0][k] == 0);
    if (one) continue;
    if (w.step[0][k] != sizes[k] || (uintptr_t)w.of[k].at % (sizes[k] * each) != 0) return false;
    for (int d = 1; d < w.ndim; d++)
      if (w.step[d][k] % (sizes[k] * each) != 0) return false;
  }
  return true;
}

/* Loads EACH elements of operand k, `at` bytes from its start; `left` elements remain, and zeros
** follow them. strided_packs has checked that it is possible. */
template <class T, int EACH, int N>
static __device__ inline vec<T, EACH> read_run(const strided<N> &w, int k, int64_t at,
                                               int64_t left) {
  const T *from = element<T>(w.of[k], at);
  const bool one = w.of[k].is_held || w.step[0][k] == 0;
  vec<T, EACH> run;
  if (!one && left >= EACH) return *(const vec<T, EACH> *)(const void *)from;
  for (int j = 0; j < EACH; j++) run.at[j] = one ? *from : j < left ? from[j] : T{};
  return run;
}

template <class T, int EACH, int N>
static __device__ inline void write_run(const strided<N> &w, int k, int64_t at, int64_t left,
                                        const vec<T, EACH> &run) {
  T *to = (T *)(void *)(w.of[k].at + at);
  if (left >= EACH) write_vec(to, run);
  else
    for (int j = 0; j < EACH; j++)
      if (j < left) to[j] = run.at[j];
}

#endif

/* gemm_pad.cu -- large matrix products on tensor cores, for matrices whose rows do not begin at
** multiples of 16 bytes, for example with a vocabulary of 50257 words. Tensor core kernels load 16
** bytes at a time; kernels for unaligned rows have half the speed, if they exist. Here the factors
** are first copied into padded rows, and the result is computed in padded rows, too. */
#include "lib/gemm.cuh"
#include "lib/strided.cuh"

static bool lies_aligned(const void *at, int64_t far, int64_t size) {
  return (uintptr_t)at % 16 == 0 && far * size % 16 == 0;
}

/* Copies lines of `inner` elements, `far` apart, to lines that are a multiple of EACH long; pads
** with 0. */
template <class T, int EACH>
static __global__ void pad_lines(int64_t n, int64_t inner, quotient_by across, int64_t near,
                                 int64_t far, const T *from, T *to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t line = divide(i, across), at = (i - line * across.by) * EACH;
  vec<T, EACH> v;
#pragma unroll
  for (int e = 0; e < EACH; e++)
    v.at[e] = at + e < inner ? from[line * far + (at + e) * near] : T();
  write_vec(to + i * EACH, v);
}

/* Copies back, to lines with any strides. */
template <class T, int EACH>
static __global__ void cut_lines(int64_t n, int64_t inner, quotient_by across, int64_t far,
                                 const T *from, T *to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t line = divide(i, across), at = (i - line * across.by) * EACH;
  const vec<T, EACH> v = read_vec<T, EACH>(from + i * EACH);
#pragma unroll
  for (int e = 0; e < EACH; e++)
    if (at + e < inner) to[line * far + at + e] = v.at[e];
}

/* A matrix as adjacent lines; down: the lines are its columns. */
struct lines {
  int64_t outer, inner, near, far;
  bool down;
};

static lines lines_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  if (rs == 1 && cs != 1) return lines{cols, rows, rs, cs, true};
  return lines{rows, cols, cs, rs, false};
}

static int64_t padded(const lines &l, int64_t size) {
  return (l.inner * size + 15) / 16 * 16 / size;
}

/* f(element type, elements per copy, number of threads, divisor by the threads of a line) */
template <class F> static int with_chunks(const moth_gemm *m, const lines &l, F f) {
  return with_size(m->dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (sizeof(T) != 2 && sizeof(T) != 4) return MOTH_OK;
    else {
      constexpr int each = 16 / (int)sizeof(T);
      const int64_t across = padded(l, sizeof(T)) / each, n = l.outer * across;
      return f(t, std::integral_constant<int, each>(), n, quotients(across, n));
    }
  });
}

/* Copies a factor into `scratch`; *at and its steps then describe the copy. */
static int pad(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m, const lines &l,
               const moth_tensor *scratch, const void **at, int64_t *rs, int64_t *cs, bool *ends) {
  const void *from = *at;
  if (!scratch) return MOTH_OK;
  *at = moth_address(scratch);
  *(l.down ? rs : cs) = 1;
  *(l.down ? cs : rs) = padded(l, moth_dtype_size[m->dtype]);
  *ends = true;
  return with_chunks(m, l, [&](auto t, auto each, int64_t n, const quotient_by &across) {
    typedef typename decltype(t)::of T;
    return launch_on(ctx, q, pad_lines<T, decltype(each)::value>, blocks_for(n), BLOCK, 0, n,
                     l.inner, across, l.near, l.far, (const T *)from, data<T>(scratch));
  });
}

static int cut(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m, const lines &l,
               const moth_tensor *scratch) {
  if (!scratch) return MOTH_OK;
  return with_chunks(m, l, [&](auto t, auto each, int64_t n, const quotient_by &across) {
    typedef typename decltype(t)::of T;
    return launch_on(ctx, q, cut_lines<T, decltype(each)::value>, blocks_for(n), BLOCK, 0, n,
                     l.inner, across, l.far, data<T>(scratch), (T *)m->c);
  });
}

/* Decides which of A, B and C to copy, if it is worth it. */
static bool wants_copies(const moth_queue *q, const moth_gemm *m, const lines *l, bool *which) {
  /* products for each copied element, and in total, since launches take time; the emulator may
  ** lower both thresholds */
  const int64_t least = MOTH_SMALL < INT32_MAX ? 8 : 512, large = 2 * (int64_t)MOTH_SMALL;
  const int64_t size = moth_dtype_size[m->dtype];
  const void *const at[3] = {m->a, m->b, m->c};
  int64_t copied = 0;
  if (m->m < least || m->n < least || m->k < least || m->m * m->n < large / m->k) return false;
  for (int i = 0; i < 3; i++) {
    which[i] = l[i].near != 1 || !lies_aligned(at[i], l[i].far, size);
    if (i == 2 && (m->beta != 0 || !moth_blaslt_is_here(q))) which[i] = false;
    if (which[i]) copied += l[i].outer * l[i].inner;
  }
  return copied && copied <= m->m * m->n / least * m->k;
}

int moth_gemm_padded(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m, bool *done) {
  const lines l[3] = {lines_of(m->m, m->k, m->rs_a, m->cs_a),
                      lines_of(m->k, m->n, m->rs_b, m->cs_b), {m->m, m->n, 1, m->ldc, false}};
  moth_tensor *scratch[3] = {NULL, NULL, NULL};
  bool which[3];
  moth_gemm g = *m;
  *done = wants_copies(q, m, l, which);
  for (int i = 0; *done && i < 3; i++) {
    moth_layout y = {};
    if (!which[i]) continue;
    y.dtype = (uint8_t)m->dtype;
    y.device = (uint8_t)m->device;
    y.ndim = 1;
    y.shape[0] = y.numel = l[i].outer * padded(l[i], moth_dtype_size[m->dtype]);
    scratch[i] = moth_tensor_new(ctx, &y);
    *done = scratch[i] != NULL; /* else not copied */
    if (!*done) forget_failure(ctx);
  }
  int status = MOTH_OK;
  if (*done) status = pad(ctx, q, m, l[0], scratch[0], &g.a, &g.rs_a, &g.cs_a, &g.ends_a);
  if (*done && !status)
    status = pad(ctx, q, m, l[1], scratch[1], &g.b, &g.rs_b, &g.cs_b, &g.ends_b);
  if (scratch[2]) g.c = moth_address(scratch[2]), g.ldc = padded(l[2], moth_dtype_size[m->dtype]);
  if (*done && !status) status = moth_gemm_run(ctx, &g);
  if (*done && !status) status = cut(ctx, q, m, l[2], scratch[2]);
  for (moth_tensor *r : scratch) moth_tensor_release(r);
  return status;
}

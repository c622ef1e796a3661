/* optim.cu -- optimizer steps: the rules of core/kernel/optim_rules.h, for many parameters in one
** launch. Tensors are cut into chunks, one for each block. A table of the tensors is a kernel
** parameter: 122 tensors fit if the rule reads only a gradient, 70 for the rule with most state. */
#include "../../core/kernel/optim.h"

#include "lib/rows.cuh"

enum { MOST = MOTH_STEP_OPERANDS, EACH_THREAD = 16, CHUNK = BLOCK * EACH_THREAD };

union step_word {
  int64_t n;
  void *at;
};

/* A tensor's words in the table: its number of elements, its last chunk, then its operands. */
enum { NUMEL, CHUNKS, OPERANDS };
enum { WORDS = 490 }; /* the size limit of kernel parameters */

struct step_table {
  step_word words[WORDS];
  int count, operands;

  MEMBER step_word *of(int i) { return words + i * (OPERANDS + operands); }
  MEMBER const step_word *of(int i) const { return words + i * (OPERANDS + operands); }
  MEMBER int64_t chunks(int i) const { return i < 0 ? 0 : of(i)[CHUNKS].n; }
  bool is_full() const { return (count + 1) * (OPERANDS + operands) > WORDS; }
};

/* -- the rules -- */

template <class real> HD real step_sqrt(real x) { return sqrt(x); }
template <class real> HD real step_abs(real x) { return fabs(x); }

#define REAL real
#define TEMPLATE template <class real>
#define RULE HD
#define NAME(f) step_##f
#define NUMBERS struct step_numbers<real>
#define MATH(f) step_##f
#include "../../core/kernel/optim_rules.h"
#undef REAL
#undef RULE

template <int RULE, class real> HD void follow(real *x, const step_numbers<real> &s) {
#define FOLLOW(rule, function, fewest, most) \
  if constexpr (RULE == rule) step_##function(x, &s);
  MOTH_RULE_LIST(FOLLOW)
}

static_assert(sizeof(step_table) + sizeof(step_numbers<double>) <= 4096, "a kernel's parameters");

/* -- one launch -- */

/* EACH elements from i on, of T; operands from 2 on are of S. Operands are in registers, so they
** need constant indices. */
template <int RULE, class T, class S, int EACH>
static __device__ inline void step_at(const step_word *at, int operands, int64_t i,
                                      const step_numbers<real_of<T>> &s) {
  vec<T, EACH> x[2];
  vec<S, EACH> own[MOST];
#pragma unroll
  for (int k = 0; k < 2; k++)
    x[k] = *(const vec<T, EACH> *)(const void *)((const T *)at[k].at + i);
#pragma unroll
  for (int k = 2; k < MOST; k++)
    if (k < operands) own[k] = *(const vec<S, EACH> *)(const void *)((const S *)at[k].at + i);
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    real_of<T> v[MOST] = {get(&x[0].at[j]), get(&x[1].at[j])};
#pragma unroll
    for (int k = 2; k < MOST; k++)
      if (k < operands) v[k] = get(&own[k].at[j]);
    follow<RULE>(v, s);
    put(&x[0].at[j], v[0]);
#pragma unroll
    for (int k = 2; k < MOST; k++)
      if (k < operands) put(&own[k].at[j], v[k]);
  }
  write_vec((T *)at[0].at + i, x[0]);
#pragma unroll
  for (int k = 2; k < MOST; k++)
    if (k < operands) write_vec((S *)at[k].at + i, own[k]);
}

template <int RULE, class T, class S>
static __global__ void step_chunks(step_table t, step_numbers<real_of<T>> s) {
  enum { EACH_VEC = VEC<S> < VEC<T> ? VEC<S> : VEC<T> };
  const int operands = t.operands;
  int low = 0, high = t.count - 1;
  while (low < high) { /* find the tensor of this chunk */
    const int middle = (low + high) / 2;
    if ((int64_t)blockIdx.x < t.chunks(middle)) high = middle;
    else low = middle + 1;
  }
  const step_word *at = t.of(low) + OPERANDS;
  const int64_t chunk = blockIdx.x - t.chunks(low - 1);
  const int64_t n = t.of(low)[NUMEL].n, end = n < (chunk + 1) * CHUNK ? n : (chunk + 1) * CHUNK;
  bool whole = true;
  for (int k = 0; k < operands; k++) whole = whole && (uintptr_t)at[k].at % 16 == 0;
  for (int64_t i = chunk * CHUNK + threadIdx.x * EACH_VEC; i < end; i += BLOCK * EACH_VEC) {
    if (whole && i + EACH_VEC <= end) {
      step_at<RULE, T, S, EACH_VEC>(at, operands, i, s);
    } else {
      for (int64_t j = i; j < i + EACH_VEC && j < end; j++)
        step_at<RULE, T, S, 1>(at, operands, j, s);
    }
  }
}

/* Launches when the table is full, or at the end. */
template <class T, class S>
static int step_launch(const moth_tensor *near, const step_table &t, const moth_steps *how) {
  const step_numbers<real_of<T>> s = step_numbers_of<real_of<T>>(how->how, how->how->rule, how->n);
  const int64_t chunks = t.chunks(t.count - 1);
  const dim3 grid = grid_for(chunks);
  if (chunks == 0) return MOTH_OK;
/* The state of half types is f32. */
#define LAUNCH(rule, function, fewest, most)                                                  \
  case rule:                                                                                  \
    if constexpr (fewest > 2 && sizeof(S) == 2)                                               \
      return moth_fail(near->ctx, MOTH_E_DTYPE, NULL,                                         \
                       "half-precision parameters need a state in f32");                      \
    else                                                                                      \
      return launch(near->ctx, near, step_chunks<rule, T, S>, grid, BLOCK, 0, t, s);
  switch (how->how->rule) {
    MOTH_RULE_LIST(LAUNCH)
    default: return MOTH_OK;
  }
}

/* -- all parameters, grouped by dtype -- */

/* Half types may have a state in f32. */
static bool is_wide(const moth_tensor *const *x, int n) {
  return n > 2 && x[2]->l.dtype != x[0]->l.dtype;
}

/* f(types of the parameters, and of their state) */
template <class F> static int with_types(int dtype, bool wide, F f) {
  return with_float(dtype, [&](auto own) {
    typedef typename decltype(own)::of T;
    if constexpr (sizeof(T) == 2) {
      if (wide) return f(own, type<float>());
    }
    return f(own, own);
  });
}

static void append(step_table *t, const moth_tensor *const *x) {
  const int64_t n = x[0]->l.numel;
  step_word *row = t->of(t->count);
  row[NUMEL].n = n;
  row[CHUNKS].n = t->chunks(t->count - 1) + (n + CHUNK - 1) / CHUNK;
  for (int k = 0; k < t->operands; k++) row[OPERANDS + k].at = moth_address(x[k]);
  t->count++;
}

/* Operands that are not dense are packed, and copied back afterwards. */
static int step_packed(const moth_tensor *const *x, const moth_steps *how) {
  const moth_tensor *rows[MOST] = {NULL};
  moth_tensor *packed[MOST] = {NULL};
  int status = MOTH_OK;
  for (int k = 0; k < how->n && !status; k++)
    if (!(rows[k] = packed[k] = moth_packed(x[k]))) status = moth_status(x[0]->ctx);
  step_table t = {};
  t.operands = how->n;
  if (!status) append(&t, rows);
  if (!status)
    status = with_types(x[0]->l.dtype, is_wide(x, how->n), [&](auto own, auto state) {
      return step_launch<typename decltype(own)::of, typename decltype(state)::of>(x[0], t, how);
    });
  for (int k = 0; k < how->n && !status; k++)
    if (k != 1 && packed[k] != x[k])
      status = moth_copy_into((moth_tensor *)(uintptr_t)x[k], packed[k]);
  for (int k = 0; k < how->n; k++) moth_tensor_release(packed[k]);
  return status;
}

/* Tests if all tensors are dense with the same strides. */
static bool in_rows(const moth_tensor *const *x, int n) {
  bool rows = true, channels_last = true;
  for (int k = 0; k < n; k++) {
    rows = rows && moth_layout_contiguous(&x[k]->l);
    channels_last = channels_last && moth_layout_channels_last(&x[k]->l);
  }
  return rows || channels_last;
}

template <class T, class S>
static int step_dtype(int dtype, bool wide, int64_t count, const moth_tensor *const *x,
                      const moth_steps *how) {
  const int n = how->n;
  const moth_tensor *near = NULL;
  step_table t = {};
  int status = MOTH_OK;
  t.operands = n;
  for (int64_t i = 0; i < count && !status; i++, x += n) {
    if (x[0]->l.dtype != dtype || is_wide(x, n) != wide || x[0]->l.numel == 0) continue;
    if (!in_rows(x, n)) {
      status = step_packed(x, how);
      continue;
    }
    near = x[0];
    append(&t, x);
    if (!t.is_full()) continue;
    status = step_launch<T, S>(near, t, how);
    t.count = 0;
  }
  return !status && t.count ? step_launch<T, S>(near, t, how) : status;
}

static int optimizer_step(moth_ctx *ctx, int dtype, int noperands,
                          const moth_tensor *const *operands, const void *arg) {
  const moth_steps *how = (const moth_steps *)arg;
  const int64_t count = noperands / how->n;
  int status = MOTH_OK;
  uint32_t seen[2] = {0, 0};
  (void)ctx, (void)dtype;
  for (int64_t i = 0; i < count; i++) {
    const moth_tensor *const *x = operands + i * how->n;
    seen[is_wide(x, how->n)] |= MOTH_BIT(x[0]->l.dtype);
  }
  for (int d = 0; d < 2 * MOTH_DTYPES && !status; d++) {
    const int of = d / 2;
    const bool wide = d % 2;
    if (seen[wide] & MOTH_BIT(of))
      status = with_types(of, wide, [&](auto own, auto state) {
        return step_dtype<typename decltype(own)::of, typename decltype(state)::of>(
          of, wide, count, operands, how);
      });
  }
  return status;
}
MOTH_ENTRY(optimizer_steps, {"optimizer_step", NULL, optimizer_step})

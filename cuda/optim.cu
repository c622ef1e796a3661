/* optim.cu -- optimizer steps: the rules of core/kernel/optim_rules.h, for many parameters in one
** launch. Tensors are cut into chunks, one for a block; a table of the tensors goes along as the
** kernel's parameter.
*/
#include "../core/kernel/optim.h"

#include "rows.cuh"

enum { MOST = MOTH_STEP_OPERANDS, TENSORS = 48, EACH_THREAD = 16, CHUNK = BLOCK * EACH_THREAD };

struct step_table { /* a kernel's parameters have 4 KiB */
  void *at[TENSORS][MOST];
  int64_t numel[TENSORS];
  int64_t chunks[TENSORS]; /* up to the end of this one */
  int count;
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
#include "../core/kernel/optim_rules.h"
#undef REAL
#undef RULE

template <int RULE, class real> HD void follow(real *x, const step_numbers<real> &s) {
#define FOLLOW(rule, function, fewest, most) \
  if constexpr (RULE == rule) step_##function(x, &s);
  MOTH_RULE_LIST(FOLLOW)
}

/* -- one launch -- */

/* EACH elements from i on. Operands lie in registers, so their number must not index them. */
template <int RULE, class T, int EACH>
static __device__ inline void step_at(void *const *at, int operands, int64_t i,
                                      const step_numbers<real_of<T>> &s) {
  lump<T, EACH> x[MOST];
#pragma unroll
  for (int k = 0; k < MOST; k++)
    if (k < operands) x[k] = *(const lump<T, EACH> *)(const void *)((const T *)at[k] + i);
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    real_of<T> v[MOST] = {};
#pragma unroll
    for (int k = 0; k < MOST; k++)
      if (k < operands) v[k] = get(&x[k].at[j]);
    follow<RULE>(v, s);
#pragma unroll
    for (int k = 0; k < MOST; k++)
      if (k < operands) put(&x[k].at[j], v[k]);
  }
#pragma unroll
  for (int k = 0; k < MOST; k++)
    if (k < operands && k != 1) *(lump<T, EACH> *)(void *)((T *)at[k] + i) = x[k];
}

template <int RULE, class T>
static __global__ void step_chunks(step_table t, int operands, step_numbers<real_of<T>> s) {
  enum { MANY = LUMP<T> };
  int low = 0, high = t.count - 1;
  while (low < high) { /* whose chunk this is */
    const int middle = (low + high) / 2;
    if ((int64_t)blockIdx.x < t.chunks[middle]) high = middle;
    else low = middle + 1;
  }
  void *const *at = t.at[low];
  const int64_t chunk = blockIdx.x - (low ? t.chunks[low - 1] : 0);
  const int64_t n = t.numel[low], end = n < (chunk + 1) * CHUNK ? n : (chunk + 1) * CHUNK;
  bool whole = true;
  for (int k = 0; k < operands; k++) whole = whole && (uintptr_t)at[k] % 16 == 0;
  for (int64_t i = chunk * CHUNK + threadIdx.x * MANY; i < end; i += BLOCK * MANY) {
    if (whole && i + MANY <= end) {
      step_at<RULE, T, MANY>(at, operands, i, s);
    } else {
      for (int64_t j = i; j < i + MANY && j < end; j++) step_at<RULE, T, 1>(at, operands, j, s);
    }
  }
}

/* The launch for tables that are full, or the last one. */
template <class T>
static int step_launch(const moth_tensor *near, const step_table &t, const moth_steps *how) {
  const step_numbers<real_of<T>> s = step_numbers_of<real_of<T>>(how->how, how->how->rule, how->n);
  const int64_t chunks = t.count ? t.chunks[t.count - 1] : 0;
  const dim3 grid = grid_for(chunks);
  if (chunks == 0) return MOTH_OK;
#define LAUNCH(rule, function, fewest, most) \
  case rule: return launch(near->ctx, near, step_chunks<rule, T>, grid, BLOCK, 0, t, how->n, s);
  switch (how->how->rule) {
    MOTH_RULE_LIST(LAUNCH)
    default: return MOTH_OK;
  }
}

/* -- all parameters; those of a dtype go together -- */

/* Operands that do not lie in a row are packed, and written back afterwards. */
static int step_packed(const moth_tensor *const *x, const moth_steps *how) {
  const moth_tensor *rows[MOST] = {NULL};
  moth_tensor *packed[MOST] = {NULL};
  int status = MOTH_OK;
  for (int k = 0; k < how->n && !status; k++)
    if (!(rows[k] = packed[k] = moth_packed(x[k]))) status = moth_status(x[0]->ctx);
  step_table t = {};
  t.count = 1;
  t.numel[0] = x[0]->l.numel;
  t.chunks[0] = (x[0]->l.numel + CHUNK - 1) / CHUNK;
  for (int k = 0; k < how->n && !status; k++) t.at[0][k] = moth_address(rows[k]);
  if (!status)
    status = with_float(x[0]->l.dtype, [&](auto type) {
      return step_launch<typename decltype(type)::of>(x[0], t, how);
    });
  for (int k = 0; k < how->n && !status; k++)
    if (k != 1 && packed[k] != x[k])
      status = moth_copy_into((moth_tensor *)(uintptr_t)x[k], packed[k]);
  for (int k = 0; k < how->n; k++) moth_tensor_release(packed[k]);
  return status;
}

/* Whether all of them lie in one and the same order. */
static bool in_rows(const moth_tensor *const *x, int n) {
  bool rows = true, channels_last = true;
  for (int k = 0; k < n; k++) {
    rows = rows && moth_layout_contiguous(&x[k]->l);
    channels_last = channels_last && moth_layout_channels_last(&x[k]->l);
  }
  return rows || channels_last;
}

template <class T>
static int step_dtype(int dtype, int64_t count, const moth_tensor *const *x,
                      const moth_steps *how) {
  const int n = how->n;
  const moth_tensor *near = NULL;
  step_table t = {};
  int status = MOTH_OK;
  for (int64_t i = 0; i < count && !status; i++, x += n) {
    if (x[0]->l.dtype != dtype || x[0]->l.numel == 0) continue;
    if (!in_rows(x, n)) {
      status = step_packed(x, how);
      continue;
    }
    near = x[0];
    for (int k = 0; k < n; k++) t.at[t.count][k] = moth_address(x[k]);
    t.numel[t.count] = near->l.numel;
    t.chunks[t.count] = (t.count ? t.chunks[t.count - 1] : 0) + (near->l.numel + CHUNK - 1) / CHUNK;
    if (++t.count < TENSORS) continue;
    status = step_launch<T>(near, t, how);
    t.count = 0;
  }
  return !status && t.count ? step_launch<T>(near, t, how) : status;
}

static int optimizer_step(moth_ctx *ctx, int dtype, int noperands,
                          const moth_tensor *const *operands, const void *arg) {
  const moth_steps *how = (const moth_steps *)arg;
  const int64_t count = noperands / how->n;
  int status = MOTH_OK;
  uint32_t seen = 0;
  (void)ctx, (void)dtype;
  for (int64_t i = 0; i < count; i++) seen |= MOTH_BIT(operands[i * how->n]->l.dtype);
  for (int d = 0; d < MOTH_DTYPES && !status; d++)
    if (seen & MOTH_BIT(d))
      status = with_float(d, [&](auto type) {
        return step_dtype<typename decltype(type)::of>(d, count, operands, how);
      });
  return status;
}
MOTH_ENTRY(optimizer_steps, {"optimizer_step", NULL, optimizer_step})

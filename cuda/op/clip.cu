/* clip.cu -- the norm of many tensors as one vector, and scaling them by that norm or by a number
** (core/op/clip.c). Tensors are processed in batches of one dtype, so that a launch serves many
** small tensors; a block processes a piece of one tensor. */
#include "../../core/op/clip.h"

#include "lib/vector_norm.cuh"
#include "lib/rows.cuh"

enum { MOST = 64, PIECE = 16384 }; /* tensors in a batch; elements for a block */

struct batch {
  int count, dtype;
  void *at[MOST];
  int64_t n[MOST], first[MOST + 1]; /* number of elements; index of a tensor's first block */
};

/* The block's tensor, and its range of elements. */
static __device__ inline int piece_of(const batch &b, int64_t *from, int64_t *to) {
  int i = 0;
  while (blockIdx.x >= b.first[i + 1]) i++;
  *from = (blockIdx.x - b.first[i]) * PIECE;
  *to = *from + PIECE < b.n[i] ? *from + PIECE : b.n[i];
  return i;
}

/* The address ranges of a batch's tensors. Memory that is written twice (a tensor listed twice, or
** overlapping views) must not be in one launch, whose blocks run concurrently. */
struct extents {
  const char *from[MOST], *to[MOST];
};

/* Tests if x may overlap one of the first n tensors; x is added after them. */
static bool meets(extents *e, int n, const moth_tensor *x) {
  int64_t last = 0;
  bool found = false;
  for (int d = 0; d < x->l.ndim; d++) last += (x->l.shape[d] - 1) * x->l.stride[d];
  e->from[n] = moth_address(x);
  e->to[n] = e->from[n] + (x->l.numel ? (last + 1) * moth_dtype_size[x->l.dtype] : 0);
  for (int i = 0; i < n && !found; i++) found = e->from[i] < e->to[n] && e->from[n] < e->to[i];
  return found;
}

/* Calls f(batch) for runs of tensors of one dtype. `write`: non-dense tensors are copied back
** afterwards. */
template <class F> static int each_batch(moth_ctx *ctx, moth_tensors list, bool write, F f) {
  batch b;
  extents taken;
  moth_tensor *packed[MOST];
  int status = MOTH_OK;
  for (int64_t i = 0; i < list.n && !status;) {
    const int64_t start = i;
    b.count = 0;
    b.first[0] = 0;
    b.dtype = list.at[start]->l.dtype;
    for (; !status && i < list.n && b.count < MOST && list.at[i]->l.dtype == b.dtype; i++) {
      const int k = b.count;
      const moth_tensor *x = list.at[i];
      if (write && meets(&taken, k, x)) break;
      packed[k] = moth_packed_as(x, moth_layout_channels_last(&x->l));
      if (!packed[k]) {
        status = moth_status(ctx);
        break;
      }
      b.at[k] = moth_address(packed[k]);
      b.n[k] = packed[k]->l.numel;
      b.first[k + 1] = b.first[k] + (b.n[k] + PIECE - 1) / PIECE;
      b.count++;
    }
    if (!status && b.first[b.count]) status = f(b);
    for (int k = 0; k < b.count; k++) {
      moth_tensor *x = list.at[start + k];
      if (!status && write && moth_address(packed[k]) != moth_address(x))
        status = moth_copy_into(x, packed[k]);
      moth_tensor_release(packed[k]);
    }
  }
  return status;
}

/* -- the norm -- */

template <class T, int ORDER>
static __global__ void norm_pieces(batch b, double p, double *parts) {
  int64_t from, to;
  const norm_of<double, ORDER> f = {p}; /* squares of f32 can overflow f32 */
  const T *x = (const T *)b.at[piece_of(b, &from, &to)] + from;
  double sum = f.start();
  each_vec<VEC<T>>(block_team(), x, to - from, [&](int64_t i) {
    const vec<T, VEC<T>> in = read_vec<T, VEC<T>>(x + i);
    for (int k = 0; k < VEC<T>; k++) f.add(&sum, (double)get(&in.at[k]));
  }, [&](int64_t i) { f.add(&sum, (double)get(x + i)); });
  sum = join_block(f, sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/* total := the earlier total plus the batch's pieces, `to` := the norm of that; one block. For
** order 0 every nonzero tensor counts 1, as in PyTorch: the norm of the norms. */
template <int ORDER>
static __global__ void norm_total(batch b, double p, const double *parts, double *total,
                                  bool begins, results to) {
  const norm_of<double, ORDER> f = {p};
  double sum = begins ? f.start() : *total;
  if (ORDER == ORDER_0) {
    for (int i = 0; i < b.count; i++) {
      double found = 0;
      for (int64_t k = b.first[i] + threadIdx.x; k < b.first[i + 1]; k += BLOCK) found += parts[k];
      sum += join_block(f, found) > 0 ? 1 : 0;
    }
  } else {
    double mine = f.start();
    for (int64_t k = threadIdx.x; k < b.first[b.count]; k += BLOCK) mine = f.join(mine, parts[k]);
    sum = f.join(sum, join_block(f, mine));
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  *total = sum;
  if (to.dtype == MOTH_F64) put_result(to, 0, f.root(sum));
  else put_result(to, 0, (float)f.root(sum));
}

static int refuse_infinite(moth_ctx *ctx, const moth_tensor *y, double p) {
  double length;
  moth_layout l = y->l;
  l.device = 0;
  l.dtype = MOTH_F64;
  moth_tensor *here = moth_tensor_new(ctx, &l);
  int status = here ? moth_copy_into(here, y) : moth_status(ctx);
  if (!status) memcpy(&length, moth_address(here), sizeof length);
  moth_tensor_release(here);
  if (status || length - length == 0) return status;
  return moth_fail(ctx, MOTH_E_DOMAIN, "error_if_nonfinite",
                   "the norm of order %g is %s; the gradients cannot be clipped", p,
                   length != length ? "NaN" : "infinite");
}

template <int ORDER>
static int norm_run(const total_norm_args *a, moth_tensor *y, double *total) {
  const double p = a->norm_type;
  const results to = {moth_address(y), y->l.dtype};
  bool begins = true;
  int status = each_batch(a->ctx, a->tensors, false, [&](const batch &b) {
    moth_tensor *scratch = device_scratch(y, b.first[b.count] * (int64_t)sizeof(double));
    if (!scratch) return moth_status(a->ctx);
    double *parts = data<double>(scratch);
    int done = with_float(b.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(a->ctx, y, norm_pieces<T, ORDER>, grid_for(b.first[b.count]), BLOCK, 0, b, p,
                    parts);
    });
    if (!done)
      done = launch(a->ctx, y, norm_total<ORDER>, 1, BLOCK, 0, b, p, parts, total, begins, to);
    begins = false;
    moth_tensor_release(scratch);
    return done;
  });
  if (status || !begins) return status;
  return launch(a->ctx, y, norm_total<ORDER>, 1, BLOCK, 0, batch{}, p, (const double *)NULL, total,
                true, to); /* the norm of no elements */
}

MOTH_CUDA(total_norm) {
  moth_tensor *y = out[0], *total = device_scratch(y, sizeof(double));
  if (!total) return moth_status(a->ctx);
  int status = with_order(a->norm_type, [&](auto kind) {
    return norm_run<decltype(kind)::is>(a, y, data<double>(total));
  });
  moth_tensor_release(total);
  if (!status && a->error_if_nonfinite) status = refuse_infinite(a->ctx, y, a->norm_type);
  return status;
}

/* -- scaling -- */

/* Scales by `factor`, or so that a norm of *length is at most `longest`. Sets found to 1 if an
** element was not finite before. */
struct scale {
  double factor, longest;
  const void *length; /* norm of all tensors, or NULL */
  bool narrow;        /* length is a float32, otherwise a float64 */
  void *found;        /* or NULL; of dtype found_dtype */
  int found_dtype;
};

/* Many threads may write this at once; the stores are volatile and write equal values. */
static __device__ inline void note(const scale &s) {
  uint64_t one = 0; /* 1 in the dtype of found */
  const results to = {&one, s.found_dtype};
  if (s.found_dtype == MOTH_F64) put_result(to, 0, 1.0);
  else put_result(to, 0, 1.0f);
  if (s.found_dtype == MOTH_F64) *(volatile uint64_t *)s.found = one;
  else if (s.found_dtype == MOTH_F32) *(volatile uint32_t *)s.found = (uint32_t)one;
  else *(volatile uint16_t *)s.found = (uint16_t)one;
}

template <class T> static __global__ void scale_pieces(batch b, scale s) {
  int64_t from, to;
  T *x = (T *)b.at[piece_of(b, &from, &to)] + from;
  double factor = s.factor;
  bool found = false;
  if (s.length)
    factor = s.longest /
             ((s.narrow ? (double)*(const float *)s.length : *(const double *)s.length) + 1e-6);
  if (s.length && factor >= 1) return; /* a NaN norm is not >= 1, so the gradients become NaN */
  const auto scaled = [&](T *at) {
    const real_of<T> v = get(at);
    found = found || !(v - v == 0);
    put(at, v * (real_of<T>)factor);
  };
  each_vec<VEC<T>>(block_team(), x, to - from, [&](int64_t i) {
    vec<T, VEC<T>> many = read_vec<T, VEC<T>>(x + i);
    for (int k = 0; k < VEC<T>; k++) scaled(&many.at[k]);
    write_vec(x + i, many);
  }, [&](int64_t i) { scaled(x + i); });
  if (s.found && found) note(s);
}

static int scale_all(moth_ctx *ctx, moth_tensors list, const scale &s) {
  for (int64_t i = 0; i < list.n; i++)
    if (list.at[i]->l.numel) moth_storage_bump(list.at[i]->storage);
  return each_batch(ctx, list, true, [&](const batch &b) {
    return with_float(b.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(ctx, list.at[0], scale_pieces<T>, grid_for(b.first[b.count]), BLOCK, 0,
                    b, s);
    });
  });
}

static int check_all(moth_ctx *ctx, const char *arg, const moth_tensor *one, moth_tensors list) {
  int status = MOTH_OK;
  if (one->l.numel != 1)
    return moth_fail(ctx, MOTH_E_SHAPE, arg, "one element is needed, got %s", moth_str(one));
  for (int64_t i = 0; i < list.n && !status; i++)
    status = moth_check_write(list.at[i], "tensors", false);
  return status;
}

MOTH_CUDA(clip_norm_) {
  const moth_tensor *total = a->total_norm;
  (void)out;
  int status = check_all(a->ctx, "total_norm", total, a->tensors);
  if (status || a->tensors.n == 0) return status;
  const bool narrow = total->l.device && total->l.dtype == MOTH_F32;
  moth_tensor *length = narrow ? moth_packed(total) : moth_cast(total, MOTH_F64);
  if (!length) return moth_status(a->ctx);
  scale s = {1, a->max_norm, NULL, narrow, NULL, 0};
  if (length->l.device) s.length = moth_address(length);
  else s.factor = a->max_norm / (*data<double>(length) + 1e-6);
  if (s.length || !(s.factor >= 1)) status = scale_all(a->ctx, a->tensors, s);
  moth_tensor_release(length);
  return status;
}

MOTH_CUDA(unscale_) {
  moth_tensor *found = a->found;
  (void)out;
  int status = check_all(a->ctx, "found", found, a->tensors);
  if (!status) status = moth_check_write(found, "found", false);
  if (status || a->tensors.n == 0) return status;
  if (found->l.device != a->tensors.at[0]->l.device)
    return moth_fail(a->ctx, MOTH_E_DEVICE, "found", "it must be on the device of the tensors");
  moth_storage_bump(found->storage);
  const scale s = {a->factor, 0, NULL, false, moth_address(found), found->l.dtype};
  return scale_all(a->ctx, a->tensors, s);
}

/* selection.cuh -- copies elements between a tensor and the values selected from it by positions,
** as core/kernel/gather.h: strided loops over the full dimensions, and a list of positions that
** replaces the other dimensions (selection.cu). */
#ifndef MOTH_CUDA_SELECTION_CUH
#define MOTH_CUDA_SELECTION_CUH

#include "radix_sort.cuh"

struct selection {
  int ndim, before; /* number of full dimensions; `before` of them precede the list's dimension in
                    ** the values */
  int64_t size[MOTH_MAX_DIMS], base_step[MOTH_MAX_DIMS], value_step[MOTH_MAX_DIMS]; /* bytes */
  int64_t count;       /* number of positions */
  const int64_t *at;   /* the positions, below limit */
  int64_t first;       /* the base of positions: 0, or 1 for positions from Lua */
  int64_t limit, wrap; /* wrap: what is added to negative positions, or 0 */
  int64_t scale;       /* bytes of the base from one position to the next */
  int64_t grain;       /* all offsets are multiples of this */
  int64_t step;        /* bytes between the values of neighbouring positions */
  bool skips;          /* writes leave one position out: */
  int64_t skip;        /* this one */
  int64_t inner;       /* contiguous values of one position; this and the next fields are set with
                       ** the divisors */
  quotient_by by[MOTH_MAX_DIMS], by_count; /* the sizes and count */
};

enum { SELECT_GET, SELECT_PUT, SELECT_ADD };

/* values := the selected elements of x. */
MOTH_LOCAL int selection_read(selection p, const moth_tensor *x, const moth_tensor *values);
/* base := or += values at the positions. Sums for half types should have an f32 base. */
MOTH_LOCAL int selection_write(selection p, int mode, const moth_tensor *base,
                               const moth_tensor *values);
/* Sorts the positions into p.at; `like` is any tensor on the device. `any`: all get one value, so
** the order does not matter. */
MOTH_LOCAL int selection_sort(selection *p, const moth_tensor *like, bool any, sorted_list *o);

/* -- types of sums: signed integers wrap as unsigned ones; half types are only copied -- */

template <class F> static inline int with_sums(int dtype, F f) {
  switch (dtype) {
    case MOTH_BOOL: return f(type<bool8>());
    case MOTH_F32: return f(type<float>());
    case MOTH_F64: return f(type<double>());
    default: return with_size(dtype, f);
  }
}

template <class T> HD real_of<T> added(real_of<T> a, real_of<T> b) {
  if constexpr (std::is_same<T, bool8>::value) return (real_of<T>)(a || b);
  else return (real_of<T>)(a + b);
}

/* Converts a position that counts from `first` to one that counts from 0; adds `wrap` to negative
** ones if it is not 0. A position outside [0, limit) is reported, and becomes -1. */
static __device__ inline int64_t position_of(int64_t v, int64_t first, int64_t wrap, int64_t limit,
                                             moth_kernel_error *t) {
  const int64_t own = v < 0 ? v + wrap : v - first;
  if ((uint64_t)own < (uint64_t)limit) return own;
  if (v == 0 && first) report(t, KERNEL_ERROR_ZERO, 0, 0);
  else report(t, KERNEL_ERROR_INDEX, v < 0 ? v : own, limit);
  return -1;
}

/* -- tensors for these functions -- */

/* A view of x's storage through another layout, on the caller's stack. */
static inline moth_tensor seen_as(const moth_tensor *x, const moth_layout *l) {
  moth_tensor y = *x;
  y.l = *l;
  return y;
}

/* Slices of dimension dim of x at a list of positions; `values` has them packed. */
static inline selection selection_of_slices(const moth_tensor *x, int dim,
                                            const moth_tensor *list) {
  const int64_t size = moth_dtype_size[x->l.dtype], n = list->l.numel;
  selection p;
  memset(&p, 0, sizeof p);
  p.before = dim;
  p.count = n;
  p.at = data<int64_t>(list);
  p.first = list->l.index_base;
  p.limit = x->l.shape[dim];
  p.scale = p.grain = x->l.stride[dim] * size;
  int64_t step = size;
  for (int d = x->l.ndim - 1; d >= 0; d--) {
    if (d == dim) {
      p.step = step;
      step *= n;
      continue;
    }
    const int at = d < dim ? d : d - 1;
    p.size[at] = x->l.shape[d];
    p.base_step[at] = x->l.stride[d] * size;
    p.value_step[at] = step;
    step *= p.size[at];
    p.ndim++;
  }
  return p;
}

static inline int real_dim(int64_t dim, int ndim) { return (int)(dim < 0 ? dim + ndim : dim); }

static inline bool is_here(const moth_tensor *y, const moth_tensor *x) {
  return moth_address(y) == moth_address(x) && y->l.dtype == x->l.dtype;
}

/* Fills packed y with 0; in all dtypes that is zero bytes. */
static inline int clear(const moth_tensor *y) {
  moth_ctx *ctx = y->ctx;
  const moth_queue *q = moth_queue_of(ctx, y->l.device);
  if (!q) return moth_status(ctx);
  if (y->l.numel == 0) return MOTH_OK;
  return moth_launched(ctx, q, cudaMemsetAsync(moth_address(y), 0,
                                               (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]),
                                               q->stream));
}

/* A tensor for scattered writes to y, which is initialized as x: y itself, or a packed scratch
** tensor, with f32 for half types if values are added. written_back copies and releases it. */
static inline moth_tensor *writable(moth_tensor *y, const moth_tensor *x, bool wide) {
  const int dtype = wide ? moth_compute_dtype(y->l.dtype) : y->l.dtype;
  if (dtype != y->l.dtype || !moth_layout_contiguous(&y->l)) return moth_cast(x, dtype);
  if (!is_here(y, x) && moth_copy_into(y, x)) return NULL;
  return moth_packed(y); /* y itself */
}

static inline int written_back(moth_tensor *work, moth_tensor *y, int status) {
  if (!status && work != y) status = moth_copy_into(y, work);
  moth_tensor_release(work);
  return status;
}

#endif

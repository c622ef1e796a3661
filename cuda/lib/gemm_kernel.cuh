/* gemm_kernel.cuh -- shared by the kernels of matrix products (gemm.cu, gemm_mma.cu): their
** arguments, the epilogue of a sum, and sums that are split among blocks. */
#ifndef MOTH_CUDA_GEMM_KERNEL_CUH
#define MOTH_CUDA_GEMM_KERNEL_CUH

#include "gemm.cuh"
#include "gemm_tile.cuh"

/* -- the compute type of a product: integers wrap -- */

template <class T> struct sum_of_ {
  typedef real_of<T> type;
};
#define MOTH_WRAPS(from, to)          \
  template <> struct sum_of_<from> {  \
    typedef to type;                  \
  };
MOTH_WRAPS(uint8_t, uint32_t)
MOTH_WRAPS(int8_t, uint32_t)
MOTH_WRAPS(int16_t, uint32_t)
MOTH_WRAPS(int32_t, uint32_t)
MOTH_WRAPS(int64_t, uint64_t)
template <class T> using sum_of = typename sum_of_<T>::type;

/* -- kernels -- */

struct batch_steps {
  int ndim;
  int64_t shape[MOTH_MAX_BATCH_DIMS], a[MOTH_MAX_BATCH_DIMS], b[MOTH_MAX_BATCH_DIMS], c;
};

template <class T> struct gemm_args {
  side<T> a, b; /* b is transposed: its rows are columns of C */
  T *c;
  int64_t ldc;
  const T *bias;
  sum_of<T> alpha, beta;
  bool adds; /* beta is not 0 */
  bool relu;
  batch_steps batch;
  int64_t first, columns; /* index of the launch's first product; number of tiles in a row of C */
  int64_t parts, share;   /* number of blocks that share a sum, and terms for each */
  sum_of<T> *partial;     /* their partial sums: part, product, row, column */
  T *sums;                /* NULL, or for the sums of A's rows; in `partial` they come last */
};

/* Applies the epilogue to a sum, for *c in column `col`. */
template <class T>
static __device__ inline sum_of<T> finished(const gemm_args<T> &g, const T *c, int64_t col,
                                            sum_of<T> sum) {
  typedef sum_of<T> R;
  R v = g.alpha * sum;
  if (g.adds) v += g.beta * (R)get(c);
  if (g.bias) v += (R)get(g.bias + col);
  if (g.relu) { /* after rounding: -0 is not below 0 */
    T rounded;
    put(&rounded, v);
    v = get(&rounded) < 0 ? (R)0 : (R)get(&rounded);
  }
  return v;
}

template <class T>
static __device__ inline void finish(const gemm_args<T> &g, T *c, int64_t col, sum_of<T> sum) {
  put(c, finished(g, c, col, sum));
}

/* The factors and the result of one product of a batch. */
template <class T> struct one_product {
  side<T> a, b;
  T *c;
  int64_t number;
};

template <class T>
static __device__ inline one_product<T> enter_batch(const gemm_args<T> &g) {
  one_product<T> p = {g.a, g.b, g.c, g.first + (int64_t)blockIdx.z};
  int64_t rest = p.number;
  for (int d = g.batch.ndim - 1; d >= 0; d--) {
    const int64_t over = rest / g.batch.shape[d], index = rest - over * g.batch.shape[d];
    p.a.at += index * g.batch.a[d];
    p.b.at += index * g.batch.b[d];
    rest = over;
  }
  p.c += p.number * g.batch.c;
  return p;
}

/* -- sums that are split among blocks -- */

static const int64_t SHARE = 256, MOST_PARTS = 64, MOST_Z = 65535;

/* Adds the partial sums of each result; threads from n on add those of row sums. */
template <class T> static __global__ void add_parts(gemm_args<T> g, int64_t n) {
  const int64_t i = thread_number(), each = g.a.rows * g.b.rows, rest = i - n;
  sum_of<T> sum = 0;
  if (i >= n) {
    if (!g.sums || rest >= g.a.rows) return;
    for (int64_t p = 0; p < g.parts; p++) sum += g.partial[g.parts * n + p * g.a.rows + rest];
    put(g.sums + rest, sum);
    return;
  }
  for (int64_t p = 0; p < g.parts; p++) sum += g.partial[p * n + i];
  const int64_t r = i % each / g.b.rows, q = i % g.b.rows;
  finish(g, g.c + i / each * g.batch.c + r * g.ldc + q, q, sum);
}

/* By a block in the first column of tiles: sums its rows of A over columns `from` to `to`. memory:
** shared memory that is no longer read, an element for each thread. */
template <int TILE, class T>
static __device__ inline void sum_rows(const gemm_args<T> &g, int64_t row, int64_t from,
                                       int64_t to, sum_of<T> *memory) {
  enum { SHARES = TILE_THREADS / TILE };
  const int t = (int)threadIdx.x, share = t / TILE;
  const int64_t r = row + t % TILE;
  sum_of<T> sum = 0;
  if (r < g.a.rows)
    for (int64_t k = from + share; k < to; k += SHARES)
      sum += get(g.a.at + r * g.a.rs + k * g.a.cs);
  memory[t] = sum;
  __syncthreads();
  if (share || r >= g.a.rows) return;
  for (int i = 1; i < SHARES; i++) sum += memory[i * TILE + t];
  if (g.partial)
    g.partial[gridDim.y * g.a.rows * g.b.rows + blockIdx.y * g.a.rows + r] = sum;
  else put(g.sums + r, sum);
}

/* Launches a kernel with tiles of TILE by TILE: one(g, grid) launches it for products g.first to
** g.first + grid.z - 1. If there are too few tiles for the device, blocks share their sums. */
template <int TILE, class T, class F>
static int multiply_in_tiles(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                             gemm_args<T> g, int64_t products, F one) {
  typedef sum_of<T> R;
  g.columns = (m->n + TILE - 1) / TILE;
  const int64_t tiles = g.columns * ((m->m + TILE - 1) / TILE), n = products * m->m * m->n;
  const int64_t idle = 2 * q->processors / (tiles * products); /* free block slots for each block */
  int64_t parts = m->k / SHARE < idle ? m->k / SHARE : idle;
  moth_tensor *partial = NULL;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  g.share = m->k;
  g.parts = 1;
  if (parts > 1) {
    moth_layout l = {};
    g.share = (m->k / parts + SHARE - 1) / SHARE * SHARE;
    g.parts = (m->k + g.share - 1) / g.share;
    l.dtype = MOTH_U8;
    l.device = (uint8_t)m->device;
    l.ndim = 1;
    l.shape[0] = l.numel = g.parts * (n + (g.sums ? m->m : 0)) * (int64_t)sizeof(R);
    l.stride[0] = 1;
    partial = moth_tensor_new(ctx, &l);
    if (!partial) return moth_status(ctx);
    g.partial = data<R>(partial);
  }
  int status = MOTH_OK;
  for (g.first = 0; !status && g.first < products; g.first += MOST_Z) {
    const int64_t now = products - g.first < MOST_Z ? products - g.first : MOST_Z;
    status = one(g, grid_for(tiles, g.parts, now));
  }
  if (!status && partial)
    status = launch_on(ctx, q, add_parts<T>, blocks_for(n + (g.sums ? m->m : 0)), BLOCK, 0, g, n);
  moth_tensor_release(partial);
  return status;
}

/* Half types, and f32 as TF32 if allowed, on tensor cores (gemm_mma.cu). *done: whether it could;
** if not, nothing has been written. */
template <class T>
int multiply_on_tensor_cores(moth_ctx *ctx, const moth_queue *q, const moth_gemm *m,
                             const gemm_args<T> &g, int64_t products, bool *done);

#endif

/* conv_tiles.cuh -- convolution as matrix products without a stored im2col matrix (conv.cu,
** conv_mma.cu): the taps for the positions of an axis, the tile of the result for each block, and
** sums that are split among blocks and joined in order, so that results repeat. */
#ifndef MOTH_CUDA_CONV_TILES_CUH
#define MOTH_CUDA_CONV_TILES_CUH

#include "conv.cuh"

/* -- axes -- */

/* One axis for one class of positions. Tap k is the kernel's tap first_tap + k * next_tap. For
** position i it reads the element at i * by + at_tap + k * by_tap. Position i is element first + i
** * next of the output. */
struct conv_axis {
  int taps, first_tap, next_tap, at_tap, by_tap;
  int pixels, at, by, first, next;
};

static __device__ inline int common_divisor(int a, int b) {
  while (b) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

HD conv_side side_on(const window &w, int i) {
  return conv_side{w.in[i], w.out[i], w.kernel[i], w.stride[i], w.padding[i], w.dilation[i]};
}

/* back: for the gradient of the images, whose pixels are split into classes that use the same taps.
*/
static __device__ inline conv_axis axis_of(const conv_side &c, bool back, int number) {
  const int s = c.stride, d = c.dilation;
  if (!back) return conv_axis{c.kernel, 0, 1, 0, d, c.out, -c.padding, s, 0, 1};
  /* pixels with pixel + padding = rest (mod s) use taps with tap * d = rest (mod s) */
  const int rest = (int)(((int64_t)number + c.padding) % s), next = s / common_divisor(d, s);
  int tap = 0;
  while (tap < next && (int)((int64_t)tap * d % s) != rest) tap++;
  conv_axis a = {};
  a.first_tap = tap;
  a.next_tap = next;
  a.taps = tap < next && tap < c.kernel ? (c.kernel - tap + next - 1) / next : 0;
  a.at_tap = a.taps ? -((tap * d - rest) / s) : 0;
  a.by_tap = -(int)((int64_t)next * d / s);
  a.at = (number + c.padding - rest) / s;
  a.by = 1;
  a.first = number;
  a.next = s;
  a.pixels = (c.in - number + s - 1) / s;
  return a;
}

/* The number of classes for the elements of an axis. */
static inline int classes_of(const conv_side &c, bool back) {
  return !back ? 1 : c.stride < c.in ? c.stride : c.in;
}

/* -- blocks -- */

/* How a grid divides the work: a block has a tile of the result, in one group and class, and a
** range of its sums, `chunk` long. */
struct conv_tiling {
  int64_t groups, row_tiles, column_tiles, splits, chunk;
  int classes[3];
};

struct conv_block { /* a block's part; `number` is the index of its class on each axis */
  int64_t row, column, group, split;
  int number[3];
};

template <class S> static __device__ inline conv_block block_of(const conv_tiling &t) {
  int64_t rest = blockIdx.x;
  conv_block b;
  b.row = rest % t.row_tiles * S::rows;
  rest /= t.row_tiles;
  b.column = rest % t.column_tiles * S::columns;
  rest /= t.column_tiles;
  b.group = rest % t.groups;
  rest /= t.groups;
  b.split = rest % t.splits;
  rest /= t.splits;
  b.number[2] = (int)(rest % t.classes[2]);
  rest /= t.classes[2];
  b.number[1] = (int)(rest % t.classes[1]);
  b.number[0] = (int)(rest / t.classes[1]);
  return b;
}

/* Chooses tiles for a result of numel elements, rows by columns in each group and class. The number
** of splits of a sum of length `depth` depends on the shape and not on the device, so that results
** are the same on all devices. */
template <class S>
static void plan_tiles(conv_tiling *t, int64_t rows, int64_t columns, int64_t depth,
                       int64_t numel) {
  enum { ENOUGH_BLOCKS = 512, LEAST = 16 * S::depth, LARGEST = 1 << 27 };
  t->row_tiles = (rows + S::rows - 1) / S::rows;
  t->column_tiles = (columns + S::columns - 1) / S::columns;
  const int64_t classes = (int64_t)t->classes[0] * t->classes[1] * t->classes[2];
  int64_t splits = ENOUGH_BLOCKS / (t->row_tiles * t->column_tiles * t->groups * classes);
  if (splits > depth / LEAST) splits = depth / LEAST;
  if (splits > LARGEST / numel) splits = LARGEST / numel;
  if (splits < 1) splits = 1;
  t->chunk = ((depth + splits - 1) / splits + S::depth - 1) / S::depth * S::depth;
  if (t->chunk < S::depth) t->chunk = S::depth;
  t->splits = (depth + t->chunk - 1) / t->chunk;
  if (t->splits < 1) t->splits = 1;
}

/* Calls run(parts, grid), which launches a kernel of tiles; parts: the memory for split sums, which
** are joined here, or NULL. */
template <class R, class F>
static int run_tiles(const conv_job &c, const conv_tiling &t, F run) {
  moth_tensor *parts = NULL;
  const int64_t classes = (int64_t)t.classes[0] * t.classes[1] * t.classes[2];
  const int64_t blocks = t.row_tiles * t.column_tiles * t.groups * t.splits * classes;
  if (blocks > INT32_MAX)
    return moth_fail(c.ctx, MOTH_E_UNSUPPORTED, NULL, "%s is too large for one convolution",
                     moth_str(c.to));
  if (t.splits > 1) {
    parts = conv_scratch(c, t.splits * c.to->l.numel, sizeof(R) == 8 ? MOTH_F64 : MOTH_F32);
    if (!parts) return moth_status(c.ctx);
  }
  int status = run(parts ? data<R>(parts) : (R *)NULL, grid_for(blocks));
  if (!status && parts) status = moth_conv_join(c, parts, t.splits);
  moth_tensor_release(parts);
  return status;
}

#endif

/* geometry.cpp -- the division of launches into blocks, and the addresses of elements, for tensors
** too large for the specs' machine: the plugin's own functions, with sizes beyond 32 bits.
**
** Built on cuda/emulator and run by spec/cuda/geometry_spec.lua.
*/
#include <stdio.h>

#include "../../cuda/lib/channel_sums.cuh"
#include "../../cuda/lib/rows.cuh"

const int64_t moth_emulated_small = INT32_MAX;

static int failures;
#define HOLDS(claim, ...)                                          \
  do {                                                             \
    if (claim) break;                                              \
    failures++;                                                    \
    printf("line %d: %s does not hold: ", __LINE__, #claim);       \
    printf(__VA_ARGS__);                                           \
    printf("\n");                                                  \
  } while (0)

static const int64_t BILLIONS = (int64_t)1 << 33;

static const uint8_t BYTES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static moth_host host;
const moth_host *moth_engine = &host;

static void grids() {
  HOLDS(grid_for(INT32_MAX).x == INT32_MAX, "the widest");
  for (int64_t n : {(int64_t)INT32_MAX + 1, ((int64_t)1 << 32) + 5, BILLIONS})
    HOLDS(grid_for(n).x == 0 && grid_for(1, n).x == 0 && grid_for(1, 1, n).x == 0, "%lld",
          (long long)n);
  HOLDS(grid_for(1, 65535, 65535).x == 1 && grid_for(1, 65536).x == 0, "the highest");
  HOLDS(blocks_for(0).x == 1 && blocks_for(1).x == 1 && blocks_for(257).x == 2, "small ones");
  HOLDS(blocks_for(BILLIONS).x == BILLIONS / BLOCK, "one element a thread");
  HOLDS(blocks_for(BILLIONS + 1, 8).x == BILLIONS / BLOCK / 8 + 1, "eight a thread");
  HOLDS(blocks_for(BLOCK * ((int64_t)INT32_MAX + 1)).x == 0, "more than there can be");
  const strips two = {((int64_t)1 << 32) + 5, 2, 2}, wide = {3, 2, BILLIONS};
  HOLDS(inner_form_of(two).grid.x == 0, "lanes in 2^32 + 5 blocks");
  HOLDS(inner_form_of(wide).grid.x == 3 * (BILLIONS / WARP), "lanes side by side");
  const int64_t rows = ((int64_t)1 << 32) + 5;
  HOLDS(teams_for(true, rows, 5000, 4).x == 0, "a block for each of 2^32 + 5 rows");
  HOLDS(teams_for(false, rows, 64, 8).x == rows * 8 / BLOCK + 1, "eight lanes for each");
  HOLDS(teams_for(false, rows, 3, 4).x == rows / BLOCK + 1, "one lane for each");
  HOLDS(teams_for(false, 8, 1024, 4).x == 1, "a warp for each of eight");
}

/* Positions below n where mistakes are likely. */
static int64_t some_place(int64_t n, int k) {
  static const int64_t near[6] = {0, INT32_MAX, (int64_t)UINT32_MAX, BILLIONS - 1, BILLIONS / 2, 1};
  const int64_t i = k < 18 ? near[k % 6] + k / 6 - 1
                           : (int64_t)(0x9e3779b97f4a7c15u * (unsigned)k >> 20);
  return (i % n + n) % n;
}

static void quotients_of_all() {
  for (int64_t by : {1, 2, 3, 7, 640, 65537, INT32_MAX - 1})
    for (int64_t n : {(int64_t)INT32_MAX - 1, (int64_t)INT32_MAX + 9, BILLIONS + 3})
      for (int k = 0; k < 500; k++) {
        const int64_t i = some_place(n, k);
        HOLDS(divide(i, quotients(by, n)) == i / by, "%lld / %lld", (long long)i, (long long)by);
      }
}

/* Eight dimensions, all except one in the reverse of the packed order. */
static void walks() {
  static const int64_t sizes[8] = {5, 3, 1024, 7, 2, 1 << 14, 3, 2};
  strided<1> w = {};
  moth_tensor x = {};
  axes a;
  w.n = 1;
  x.l.ndim = w.ndim = 8;
  for (int d = 0; d < 8; d++) {
    w.wide[d] = x.l.shape[7 - d] = sizes[d];
    w.step[d][0] = x.l.stride[7 - d] = d == 3 ? 0 : (int64_t)1 << (40 - 5 * d);
    w.n *= sizes[d];
  }
  axes_of(&a, &x, 0, false, false);
  HOLDS(w.n > BILLIONS / 2 && a.n == w.n && !a.small, "%lld elements", (long long)a.n);
  for (int k = 0; k < 500; k++) {
    const int64_t i = some_place(w.n, k);
    int64_t at, right = 0, rest = i;
    for (int d = 0; d < 8; rest /= sizes[d++]) right += rest % sizes[d] * w.step[d][0];
    offsets(w, i, &at);
    HOLDS(at == right && axes_at(a, i) == right, "element %lld", (long long)i);
  }
}

struct nothing {
  typedef double state;
};

static void folds() {
  static const int64_t sizes[][2] = {{1, BILLIONS}, {BILLIONS, 1}, {2, BILLIONS}, {BILLIONS, 2},
                                     {1 << 13, 1 << 20}, {1 << 20, 1 << 13}, {BILLIONS, 5}, {5, 5}};
  for (auto &size : sizes)
    for (uint32_t mask = 0; mask < 4; mask++) {
      moth_tensor x = {};
      reduce_plan<nothing> p;
      x.l.ndim = 2;
      x.l.shape[0] = size[0], x.l.stride[0] = size[1];
      x.l.shape[1] = size[1], x.l.stride[1] = 1;
      axes_of(&p.kept, &x, mask, false, false);
      axes_of(&p.over, &x, mask, true, true);
      const bool columns = reduce_cut(&p, 1);
      const int64_t threads = p.kept.n * (p.lanes > WARP ? (int64_t)BLOCK : p.lanes);
      HOLDS(p.chunks >= 1 && p.chunks <= 65535 && p.chunk * p.chunks >= p.over.n &&
            p.chunk * (p.chunks - 1) < p.over.n, "%d chunks of %lld", p.chunks, (long long)p.chunk);
      HOLDS((columns ? grid_for((p.kept.n + WARP - 1) / WARP) : blocks_for(threads)).x > 0,
            "(%lld, %lld), mask %u", (long long)size[0], (long long)size[1], mask);
    }
}

static void channels_and_columns() {
  for (int64_t c : {(int64_t)1, (int64_t)3, (int64_t)1 << 20, BILLIONS})
    for (int64_t n : {(int64_t)1, (int64_t)1000, BILLIONS}) {
      const channel_form f = channels_for(n, c, 1);
      const column_form b = columns_for(c, 4);
      const int most = column_parts(b, n, 65535);
      HOLDS(f.parts >= 1 && f.parts <= 128, "%d parts", f.parts);
      HOLDS(grid_for(b.blocks, most).x > 0 && (int64_t)b.blocks * b.across * 4 >= c,
            "%d blocks of %d, %d high", b.blocks, b.across, most);
    }
}

int main() {
  host.dtype_size = BYTES;
  grids();
  quotients_of_all();
  walks();
  folds();
  channels_and_columns();
  printf("%d failures\n", failures);
  return failures != 0;
}

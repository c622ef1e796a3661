/* transpose_level.h -- transposes LANES x LANES elements of 4 bytes in registers, for one level:
** log2 LANES rounds, each exchanges halves of pairs of rows. TARGET chooses the instructions.
*/
typedef uint32_t NAME(transposed) __attribute__((vector_size(4 * LANES)));
typedef uint32_t NAME(rowed) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* y(i, j) := x(j, i); the steps, in bytes, are from row to row. */
TARGET static void NAME(transpose_square)(const char *x, int64_t x_step, char *y, int64_t y_step) {
  NAME(transposed) r[LANES];
  UNROLL for (int i = 0; i < LANES; i++)
    r[i] = *(const NAME(rowed) *)(const void *)(x + i * x_step);
#define EXCHANGE(step, low, high)                      \
  UNROLL for (int i = 0; i < LANES; i++) {             \
    if (i & step) continue;                            \
    const NAME(transposed) a = r[i], b = r[i + step];  \
    r[i] = __builtin_shufflevector(a, b, low);         \
    r[i + step] = __builtin_shufflevector(a, b, high); \
  }
  ROUNDS
#undef EXCHANGE
  UNROLL for (int i = 0; i < LANES; i++)
    *(NAME(rowed) *)(void *)(y + i * y_step) = r[i];
}

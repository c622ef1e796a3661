/* igemm_level.h -- the loops of igemm.c for one level: TARGET chooses the instructions, NAME the
** function names, VECTOR_BYTES is the size of a register.
*/

/* to[MR][ldc] := a b, where a has k rows of MR numbers and b has k rows of two vectors. */
#define TILE(name, word)                                                                         \
  typedef word NAME(vec_##name)                                                                  \
    __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(word)), may_alias));                \
  TARGET static void NAME(tile_##name)(int64_t k, const void *left, const void *right, void *to, \
                                       int64_t ldc) {                                            \
    typedef NAME(vec_##name) vec;                                                                \
    enum { PER = VECTOR_BYTES / sizeof(word) };                                                  \
    const word *a = left, *b = right;                                                            \
    word *c = to;                                                                                \
    vec sum[MR][2];                                                                              \
    UNROLL for (int i = 0; i < MR; i++) sum[i][0] = sum[i][1] = (vec){0};                        \
    for (int64_t l = 0; l < k; l++, a += MR, b += 2 * PER) {                                     \
      const vec p = *(const vec *)(const void *)b, q = *(const vec *)(const void *)(b + PER);    \
      UNROLL for (int i = 0; i < MR; i++) {                                                      \
        const vec f = (vec){0} + a[i];                                                           \
        sum[i][0] += f * p;                                                                      \
        sum[i][1] += f * q;                                                                      \
      }                                                                                          \
    }                                                                                            \
    UNROLL for (int i = 0; i < MR; i++, c += ldc) {                                              \
      *(vec *)(void *)c = sum[i][0];                                                             \
      *(vec *)(void *)(c + PER) = sum[i][1];                                                     \
    }                                                                                            \
  }
TILE(16, uint16_t)
TILE(32, uint32_t)
TILE(64, uint64_t)
#undef TILE

/* copy_level.h -- the loops of copy.c for one level. TARGET chooses the instructions, NAME makes
** the function names. The loops have no branches, so compilers vectorize all of them.
*/

#define CHOOSE(name, type)                                                                       \
  TARGET static void NAME(choose_##name)(int64_t n, void *to, const uint8_t *mask, const void *p, \
                                         bool p_moves, const void *q, bool q_moves) {            \
    type *y = to;                                                                                \
    const type *a = p, *b = q, v = *a, w = *b;                                                   \
    if (p_moves && q_moves) {                                                                    \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                               \
        const type s = a[i], t = b[i];                                                           \
        y[i] = mask[i] ? s : t;                                                                  \
      }                                                                                          \
    } else if (q_moves) {                                                                        \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                               \
        const type t = b[i];                                                                     \
        y[i] = mask[i] ? v : t;                                                                  \
      }                                                                                          \
    } else if (p_moves) {                                                                        \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                               \
        const type s = a[i];                                                                     \
        y[i] = mask[i] ? s : w;                                                                  \
      }                                                                                          \
    } else {                                                                                     \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) y[i] = mask[i] ? v : w;                         \
    }                                                                                            \
  }
CHOOSE(8, uint8_t)
CHOOSE(16, uint16_t)
CHOOSE(32, uint32_t)
CHOOSE(64, uint64_t)
#undef CHOOSE

#define REVERSE(name, type)                                                      \
  TARGET static void NAME(reverse_##name)(int64_t n, const void *from, void *to) { \
    const type *restrict x = from;                                               \
    type *restrict y = to;                                                       \
    for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i];                         \
  }
REVERSE(8, uint8_t)
REVERSE(16, uint16_t)
REVERSE(32, uint32_t)
REVERSE(64, uint64_t)
#undef REVERSE

#define SKIP(name, type)                                                      \
  TARGET static void NAME(skip_##name)(int64_t n, const void *from, void *to) { \
    const type *restrict x = from;                                            \
    type *restrict y = to;                                                    \
    for (int64_t i = 0; i < n; i++) y[i] = x[2 * i];                          \
  }
SKIP(16, uint16_t)
SKIP(32, uint32_t)
#undef SKIP

#define FILL(name, type)                                                       \
  TARGET static void NAME(fill_##name)(int64_t n, void *to, const void *from) { \
    type *y = to;                                                              \
    const type v = *(const type *)from;                                        \
    for (int64_t i = 0; i < n; i++) y[i] = v;                                  \
  }
FILL(16, uint16_t)
FILL(32, uint32_t)
FILL(64, uint64_t)
#undef FILL

/* Compares by sign bits, because plain vector instructions do not compare 64 bits. */
TARGET static bool NAME(shift)(int64_t n, const int64_t *from, int64_t *to) {
  const uint64_t *restrict x = (const uint64_t *)from;
  uint64_t *restrict y = (uint64_t *)to, all = ~(uint64_t)0;
  for (int64_t i = 0; i < n; i++) {
    const uint64_t v = x[i], least = 0 - v;
    all &= v | least;
    y[i] = v - ((least & ~v) >> 63);
  }
  return all >> 63;
}

TARGET static bool NAME(within)(int64_t n, const int64_t *at, int64_t first, int64_t size) {
  const uint64_t *x = (const uint64_t *)at, last = (uint64_t)size - 1, least = (uint64_t)first;
  uint64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) wrong |= (x[i] - least) | (last - (x[i] - least));
  return !(wrong >> 63);
}

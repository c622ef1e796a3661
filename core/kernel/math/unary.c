/* unary.c -- loops of elementwise functions of one tensor, which op/unary.h lists. */
#include "unary.h"

#include "curves.h"

/* comparisons of unsigned integers with 0 are always true or false */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define LISTS(ONE, TWO, THREE) \
  UNARY_FUNCTIONS(ONE) \
  UNARY_OTHERS(ONE) \
  UNARY_BACKS(TWO)
MOTH_FAMILY(unary, LISTS)

/* -- neg and abs of half types, whose signs are the highest bit -- */

#define SIGN_LOOP(name, f)                                                            \
  MOTH_INNER(name##_half) {                                                           \
    const char *p = at[1];                                                            \
    char *r = at[0];                                                                  \
    const int64_t dr = step[0], dp = step[1];                                         \
    (void)arg;                                                                        \
    if (dr == sizeof(uint16_t) && dp == sizeof(uint16_t)) {                           \
      const uint16_t *const first = (const uint16_t *)(const void *)p;                \
      uint16_t *const result = (uint16_t *)(void *)r;                                 \
      MOTH_IVDEP for (int64_t i = 0; i < n; i++) {                                    \
        const uint16_t x = first[i];                                                  \
        result[i] = (uint16_t)(f);                                                    \
      }                                                                               \
      return;                                                                         \
    }                                                                                 \
    for (int64_t i = 0; i < n; i++, r += dr, p += dp) {                               \
      const uint16_t x = *(const uint16_t *)(const void *)p;                          \
      *(uint16_t *)(void *)r = (uint16_t)(f);                                         \
    }                                                                                 \
  }                                                                                   \
  const moth_loops moth_##name##_half[1] = {                                          \
    {{[MOTH_I16] = name##_half}, #name, 0, .noperands = 2}};
SIGN_LOOP(neg, x ^ 0x8000)
SIGN_LOOP(abs, x & 0x7fff)

/* optim_real.h -- the loops of optim.c for one type and level (each_level.h) over contiguous
** elements: one loop for each rule of optim_rules.h and each number of operands of that rule.
*/

#define TEMPLATE
#define RULE TARGET MOTH_INLINE
#define NUMBERS struct NAME(numbers)
#include "optim_rules.h"

#define EACH(id, rule, N)                                                                     \
  do {                                                                                        \
    const NUMBERS s = NAME(numbers_of)(step, id, N);                                          \
    for (int64_t i = 0; i < n; i++) {                                                         \
      REAL v[] = {p[i], grad[i], N > 2 ? a[i] : 0, N > 3 ? b[i] : 0, N > 4 ? c[i] : 0};       \
      NAME(rule)(v, &s);                                                                      \
      p[i] = v[0];                                                                            \
      if (N > 2) a[i] = v[2];                                                                 \
      if (N > 3) b[i] = v[3];                                                                 \
      if (N > 4) c[i] = v[4];                                                                 \
    }                                                                                         \
  } while (0)
#define LOOP(id, rule, fewest, most)                                                          \
  TARGET static void NAME(rule##_row)(int64_t n, REAL *const *x, const moth_step *step,       \
                                      int operands) {                                         \
    REAL *restrict p = x[0], *restrict a = x[2], *restrict b = x[3], *restrict c = x[4];      \
    const REAL *restrict grad = x[1];                                                         \
    if (fewest == most || operands == fewest) EACH(id, rule, fewest);                         \
    else if (fewest + 1 == most || operands == most) EACH(id, rule, most);                    \
    else EACH(id, rule, fewest + 1);                                                          \
  }
MOTH_RULE_LIST(LOOP)

#define ROW(id, rule, fewest, most) [id] = NAME(rule##_row),
static void (*const NAME(rules)[MOTH_RULES])(int64_t, REAL *const *, const moth_step *, int) = {
  MOTH_RULE_LIST(ROW)
};

#undef TEMPLATE
#undef RULE
#undef NUMBERS
#undef EACH
#undef LOOP
#undef ROW

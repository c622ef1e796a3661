/* compare.c -- loops of comparisons and of logic. x > y is y < x: the operands change places. */
#include "compare.h"

#define LOOPS(name, type, wide)                                          \
  MOTH_MAP2(eq_##name, type, uint8_t, x == y)                            \
  MOTH_MAP2(ne_##name, type, uint8_t, x != y)                            \
  MOTH_MAP2(lt_##name, type, uint8_t, x < y)                             \
  MOTH_MAP2(le_##name, type, uint8_t, x <= y)                            \
  MOTH_MAP2(logical_and_##name, type, uint8_t, (x != 0) & (y != 0))      \
  MOTH_MAP2(logical_or_##name, type, uint8_t, (x != 0) | (y != 0))
MOTH_EACH_INT(LOOPS)
MOTH_EACH_FLOAT(LOOPS)

#define TABLE(op)                                                                        \
  moth_inner_table moth_##op##_loops = {[MOTH_BOOL] = op##_u8, MOTH_INT_ROWS(op),         \
                                        MOTH_FLOAT_ROWS(op)}
TABLE(eq);
TABLE(ne);
TABLE(lt);
TABLE(le);
TABLE(logical_and);
TABLE(logical_or);

/* maps.c -- the table of all elementwise functions, family by family. */
#include "maps.h"

#include "activation.h"
#include "arith.h"
#include "binary.h"
#include "compare.h"
#include "kernel/pointloss.h"
#include "special.h"
#include "unary.h"

#define FAMILY(name) {(const moth_loops *)&moth_##name, sizeof moth_##name / sizeof(moth_loops)},

static const struct {
  const moth_loops *first;
  int64_t n;
} families[] = {FAMILY(arith) FAMILY(unary) FAMILY(special) FAMILY(binary) FAMILY(compare)
                FAMILY(activation) FAMILY(pointloss) FAMILY(where)};

enum { FAMILIES = sizeof families / sizeof *families };

const moth_loops *moth_map_at(int64_t number) {
  for (int i = 0; i < FAMILIES && number >= 0; number -= families[i++].n)
    if (number < families[i].n) return families[i].first + number;
  return NULL;
}

int64_t moth_map_number(const moth_loops *loops) {
  int64_t before = 0;
  for (int i = 0; i < FAMILIES; before += families[i++].n)
    if (loops >= families[i].first && loops < families[i].first + families[i].n)
      return before + (loops - families[i].first);
  return -1;
}

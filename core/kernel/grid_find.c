/* grid_find.c -- the taps of many places at once, in vectors: those in images, unless the border
** reflects. All else goes place by place (grid_taps.h), and these are the same bits: so this file
** is compiled without contraction.
*/
#include <math.h>

#include "grid.h"
#include "level.h"

enum { RUN = MOTH_GRID_RUN };

/* Along one side, as doubles: positions, -1 outside; weights, and how fast those change. */
typedef struct side {
  double at[4][RUN], weight[2][4][RUN];
} side;

#if MOTH_HAS_LEVELS /* vectors of four doubles; wider ones gain little, plain ones nothing */

#define REAL double
#define NAME(f) f##_f64
#include "grid_find_real.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(f) f##_f32
#include "grid_find_real.h"

#else

#define find_f32 NULL
#define find_f64 NULL

#endif

moth_grid_find *moth_grid_finder(int dtype, const moth_grid *g, bool slopes) {
  if (g->sides != 2 || g->padding == MOTH_GRID_REFLECTION) return NULL;
  if (slopes && g->mode == MOTH_GRID_NEAREST) return NULL;
  if (moth_level() == MOTH_LEVEL_PLAIN) return NULL;
  return dtype == MOTH_F32 ? find_f32 : find_f64;
}

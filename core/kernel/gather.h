/* gather.h -- moving elements between a tensor and the values picked out of it by positions.
**
** A pick is a set of whole dimensions, in which both sides are walked by steps, and a list of
** offsets into the base for the dimensions that positions replace.
*/
#ifndef MOTH_KERNEL_GATHER_H
#define MOTH_KERNEL_GATHER_H

#include "tensor/loop.h"

typedef struct moth_gather_plan {
  int32_t nwhole, before; /* whole dimensions; how many stand before the picks in the values */
  int64_t size[MOTH_MAX_DIMS], base_step[MOTH_MAX_DIMS], value_step[MOTH_MAX_DIMS]; /* bytes */
  int64_t count;          /* picks */
  const int64_t *offset;  /* of each in the base, bytes */
  int64_t step;           /* between neighbouring picks in the values, bytes */
} moth_gather_plan;

enum {
  MOTH_GATHER_GET,
  MOTH_GATHER_PUT,
  MOTH_GATHER_ADD,
  MOTH_GATHER_MUL,
  MOTH_GATHER_MAX,
  MOTH_GATHER_MIN
};

/* values := base, base := values, base += values, or in i64, f32 and f64 base *= values or the
** larger or the smaller of both. Half types cannot be added. */
int moth_gather_run(moth_ctx *ctx, const moth_gather_plan *p, int mode, int dtype, char *base,
                    char *values);

typedef struct moth_reach { /* what an argument `index` must lie within */
  const moth_tensor *of;
  int32_t dim;
  int64_t size; /* of that dim */
} moth_reach;

/* One position per value, along one dimension of the base whose step is given: operands are the
** positions, the values, and the base with that dimension held where the first position is 0. reach
** is NULL for positions that were checked; else they are on the way, when some may be done. */
int moth_gather_along(moth_ctx *ctx, int mode, const moth_tensor *index, const moth_tensor *values,
                    const moth_tensor *base, int64_t step, const moth_reach *reach);

/* The same where a mask of the base's shape holds, in `count` places; all packed. one: all places
** get the same value, which is not read from the base. Half types cannot be added. */
int moth_gather_masked(moth_ctx *ctx, int mode, int dtype, const moth_tensor *mask, int64_t count,
                     char *base, char *values, bool one);

/* Do values go into elements of dtype? No float into integers, nor a number into bool. */
int moth_gather_check(const char *arg, const moth_tensor *values, int dtype);
/* values as dtype, packed (a number gives a 0-d tensor); owned, NULL: an error is set, or they do
** not go. */
moth_tensor *moth_gather_values(const char *arg, const moth_tensor *values, int dtype);

/* Whether all positions lie within reach; else E_INDEX names the first that does not. */
int moth_gather_check_positions(const moth_tensor *index, const moth_reach *reach);

/* The positions, packed, nobody else's to change, and found to lie within reach. They may count
** from 1: l.index_base. Owned, NULL: error set. */
moth_tensor *moth_gather_positions(const moth_tensor *index, const moth_reach *reach);

#endif

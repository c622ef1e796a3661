/* gather.h -- kernels that gather elements of a tensor by positions, and scatter values to them.
**
** A plan has the dimensions that are taken whole, which both tensors walk by strides, and a list of
** offsets into the base for the dimensions that positions index.
*/
#ifndef MOTH_KERNEL_GATHER_H
#define MOTH_KERNEL_GATHER_H

#include "tensor/loop.h"

typedef struct moth_gather_plan {
  int32_t nwhole, before; /* whole dimensions; those before the indexed ones in values */
  int64_t size[MOTH_MAX_DIMS], base_step[MOTH_MAX_DIMS], value_step[MOTH_MAX_DIMS]; /* bytes */
  int64_t count;          /* gathered positions */
  const int64_t *offset;  /* of each position in the base, bytes */
  int64_t step;           /* between neighboring positions in values, bytes */
} moth_gather_plan;

enum {
  MOTH_GATHER_GET,
  MOTH_GATHER_PUT,
  MOTH_GATHER_ADD,
  MOTH_GATHER_MUL,
  MOTH_GATHER_MAX,
  MOTH_GATHER_MIN
};

/* By mode: values := base, base := values, base += values, and for i64, f32 and f64 base *= values,
** the maximum or the minimum of both. Half types cannot be added. */
int moth_gather_run(moth_ctx *ctx, const moth_gather_plan *p, int mode, int dtype, char *base,
                    char *values);

typedef struct moth_reach { /* the range of an argument `index` */
  const moth_tensor *of;
  int32_t dim;
  int64_t size; /* of that dim */
} moth_reach;

/* One position per value, along one dimension of the base with the given step. `base` is the base
** with that dimension fixed at position 0. reach is NULL for checked positions; else positions are
** checked during the walk, and an error may come after some are written. */
int moth_gather_along(moth_ctx *ctx, int mode, const moth_tensor *index, const moth_tensor *values,
                    const moth_tensor *base, int64_t step, const moth_reach *reach);

/* Gathers or writes where a mask of the base's shape is true, in `count` places; all tensors are
** packed. one: all places get the same value, which is not read from the base. Half types cannot be
** added. */
int moth_gather_masked(moth_ctx *ctx, int mode, int dtype, const moth_tensor *mask, int64_t count,
                     char *base, char *values, bool one);

/* Checks that values can be written to elements of dtype: no floats to integers, no numbers to
** bool. */
int moth_gather_check(const char *arg, const moth_tensor *values, int dtype);
/* values as dtype, packed (a number is a 0-d tensor). Owned; NULL: an error is set, also if the
** dtypes do not fit. */
moth_tensor *moth_gather_values(const char *arg, const moth_tensor *values, int dtype);

/* MOTH_OK if all positions are in range; else E_INDEX names the first that is not. */
int moth_gather_check_positions(const moth_tensor *index, const moth_reach *reach);

/* The positions, packed, in a private copy, checked against reach. They may count from 1:
** l.index_base. Owned; NULL: an error is set. */
moth_tensor *moth_gather_positions(const moth_tensor *index, const moth_reach *reach);

#endif

/* gather.h -- kernels that gather elements of a tensor by positions, and scatter values to them.
**
** A plan has the whole dimensions, which positions do not index and both tensors step through by
** strides, and a list of offsets into the base for the indexed dimensions.
*/
#ifndef MOTH_KERNEL_GATHER_H
#define MOTH_KERNEL_GATHER_H

#include "tensor/loop.h"

typedef struct moth_gather_plan {
  /* whole dimensions; `before` of them precede the indexed ones in values */
  int32_t nwhole, before;
  int64_t size[MOTH_MAX_DIMS], base_step[MOTH_MAX_DIMS], value_step[MOTH_MAX_DIMS]; /* in bytes */
  int64_t count;          /* number of positions */
  const int64_t *offset;  /* offset of each position in the base, in bytes */
  int64_t step;           /* from position to position in values, in bytes */
} moth_gather_plan;

enum {
  MOTH_GATHER_GET,
  MOTH_GATHER_PUT,
  MOTH_GATHER_ADD,
  MOTH_GATHER_MUL,
  MOTH_GATHER_MAX,
  MOTH_GATHER_MIN
};

/* Sets values := base, base := values or base += values, by mode. For i64, f32 and f64 also base *=
** values, and the maximum or minimum of both. Half types have no add. */
int moth_gather_run(moth_ctx *ctx, const moth_gather_plan *p, int mode, int dtype, char *base,
                    char *values);

typedef struct moth_reach { /* the valid range of an argument `index` */
  const moth_tensor *of;
  int32_t dim;
  int64_t size; /* the size of that dim */
} moth_reach;

/* One position per value, along one dimension of the base with the given step. `base` has that
** dimension fixed at position 0. reach is NULL if positions were checked; else they are checked in
** the loop, and an error may come after some values are written. */
int moth_gather_along(moth_ctx *ctx, int mode, const moth_tensor *index, const moth_tensor *values,
                    const moth_tensor *base, int64_t step, const moth_reach *reach);

/* Gathers or scatters the elements for which the mask, of the base's shape, is true: `count` of
** them. All tensors are packed. one: writes the same value to all places and does not read it from
** the base. Half types have no add. */
int moth_gather_masked(moth_ctx *ctx, int mode, int dtype, const moth_tensor *mask, int64_t count,
                     char *base, char *values, bool one);

/* Raises if values cannot be written to elements of dtype: floats to integers, or numbers to
** bool. */
int moth_gather_check(const char *arg, const moth_tensor *values, int dtype);
/* Returns the values as dtype, packed; a number becomes a 0-d tensor. The caller owns the result;
** NULL: an error is set, also for dtypes that do not fit. */
moth_tensor *moth_gather_values(const char *arg, const moth_tensor *values, int dtype);

/* Raises E_INDEX, with the first position that is out of range. */
int moth_gather_check_positions(const moth_tensor *index, const moth_reach *reach);

/* Returns a packed copy of the positions, checked against reach. They count from l.index_base. The
** caller owns the result; NULL: an error is set. */
moth_tensor *moth_gather_positions(const moth_tensor *index, const moth_reach *reach);

#endif

/* elementwise.c -- runs an inner loop over its operands, on several threads. Floats use the best
** level of instructions. Operands that a loop does not accept (half types, strided elements) are
** copied in blocks.
*/
#include "elementwise.h"
#include "tensor/tensor.h"

#include "device/device.h"
#include "call/observer.h"

#include "base/threads.h"
#include "functions.h"

#define BLOCK_SIZE 512 /* elements of a block; the blocks of all operands stay in L1 */
#define SHIFT 40  /* doubles between blocks; equal offsets in a page would stall */
#define SHORTEST_RUN 12    /* shorter runs use the loop for any strides */
#define SHORT_RUN 16  /* shorter runs cost more than a copy to contiguous memory */

/* True if operand k may be a single element. Functions of three operands have a loop for a single
** last operand only. */
static inline bool single_fits(int noperands, int k) { return noperands <= 3 || k == 3; }

/* True if operand k must be copied: it has a half type, or is neither contiguous nor a single
** element that the loop accepts. */
static inline bool gathered(const moth_block_call *call, int k, int64_t step, bool apart) {
  if (moth_compute_dtype(call->dtype[k]) != call->dtype[k]) return true;
  return apart && step != moth_dtype_size[call->dtype[k]] &&
         (step != 0 || !single_fits(call->noperands, k));
}

void moth_blocks(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const moth_block_call *call = arg;
  _Alignas(64) double scratch[MOTH_MAP_OPERANDS][BLOCK_SIZE + SHIFT];
  bool moved[MOTH_MAP_OPERANDS], apart = n >= SHORTEST_RUN, any = false;
  int64_t most = 2 * BLOCK_SIZE;
  for (int k = 0; k < call->noperands; k++) {
    any |= moved[k] = gathered(call, k, step[k], apart);
    if (moth_dtype_size[call->dtype[k]] == 8) most = BLOCK_SIZE;
  }
  if (!any) {
    call->inner(n, at, step, call->arg);
    return;
  }
  for (int64_t i = 0; i < n; i += most) {
    const int64_t m = n - i < most ? n - i : most;
    char *block[MOTH_MAP_OPERANDS];
    int64_t width[MOTH_MAP_OPERANDS];
    for (int k = 0; k < call->noperands; k++) {
      const int from = call->dtype[k], to = moth_compute_dtype(from);
      block[k] = at[k] + i * step[k];
      width[k] = step[k];
      if (!moved[k]) continue;
      const bool single = step[k] == 0 && k > 0;
      const bool spread = single && !single_fits(call->noperands, k);
      width[k] = single && !spread ? 0 : moth_dtype_size[to];
      if (k > 0 && !(spread && i > 0)) /* otherwise it is still in the buffer */
        moth_convert(single && !spread ? 1 : m, from, block[k], step[k], to, (char *)scratch[k],
                     moth_dtype_size[to]);
      block[k] = (char *)scratch[k];
    }
    call->inner(m, block, width, call->arg);
    if (moved[0])
      moth_convert(m, moth_compute_dtype(call->dtype[0]), block[0], width[0], call->dtype[0],
                   at[0] + i * step[0], step[0]);
  }
}

/* The cost of an element in ns: its memory traffic and the function. */
double moth_cost_of(const moth_loops *loops, int dtype, int noperands) {
  static const float slower[] = {8, 2, 1}; /* by level: plain, AVX2, AVX-512 */
  double each = loops->cost, moved = 0.03 * noperands;
  if (dtype == MOTH_F64) moved *= 2, each *= 2;
  if (moth_is_float(dtype)) each *= (double)slower[moth_level()];
  else each *= 10;
  return moved + each + (moth_compute_dtype(dtype) == dtype ? 0 : 0.1 * noperands);
}

/* -- short rows of f32: many rows are computed together, and repeated rows are written out -- */

typedef struct row_call {
  const moth_loop *loop;
  moth_inner inner;
  const void *arg;
} row_call;

/* Items are rows. Operands that are not contiguous are copied to `scratch`. */
static void run_rows(int64_t first, int64_t last, int thread, const void *arg) {
  const row_call *call = arg;
  const moth_loop *loop = call->loop;
  const int64_t wide = loop->size[0], most = BLOCK_SIZE / wide;
  float scratch[MOTH_MAP_OPERANDS][BLOCK_SIZE];
  int64_t step[MOTH_MAP_OPERANDS];
  (void)thread;
  for (int64_t i = first, rows; i < last; i += rows) {
    char *at[MOTH_MAP_OPERANDS];
    rows = last - i < most ? last - i : most;
    for (int k = 0; k < loop->noperands; k++) {
      const int64_t along = loop->step[0][k], down = loop->step[1][k];
      at[k] = loop->at[k] + i * down;
      step[k] = along;
      if (along && down == along * wide) continue;
      const char *x = at[k];
      at[k] = (char *)scratch[k];
      step[k] = sizeof(float);
      if (down == 0 && i > first) continue; /* the row is the same as in the previous block */
      for (int64_t r = 0; r < rows; r++, x += down)
        for (int64_t j = 0; j < wide; j++)
          memcpy(&scratch[k][r * wide + j], x + j * along, sizeof(float));
    }
    call->inner(rows * wide, at, step, call->arg);
  }
}

/* True if run_rows applies: the result is contiguous, and the operands are contiguous or f32. */
static bool short_rows(const moth_loop *loop, const moth_tensor *const *operands) {
  if (loop->ndim != 2 || loop->size[0] >= 64 || loop->size[1] < 8) return false;
  for (int k = 0; k < loop->noperands; k++) {
    const int64_t along = loop->step[0][k], down = loop->step[1][k];
    const int dtype = operands[k]->l.dtype;
    if (along == moth_dtype_size[dtype] && down == along * loop->size[0]) continue;
    if (k == 0 || dtype != MOTH_F32) return false;
  }
  return true;
}

/* -- transposed operands and short runs are copied first, by tiles or rows -- */

static bool across(const moth_loop *loop, int k, int64_t size) {
  if (loop->step[0][k] == size || loop->step[0][k] == 0) return false;
  for (int d = 1; d < loop->ndim; d++)
    if (loop->step[d][k] == size && loop->size[d] >= 4) return true;
  return false;
}

/* True if operand k has as many elements as the result, in another order. */
static bool differs(const moth_loop *loop, int k, const moth_tensor *const *operands) {
  const int64_t size = moth_dtype_size[operands[k]->l.dtype];
  const int64_t result = moth_dtype_size[operands[0]->l.dtype];
  if (operands[k]->l.numel != operands[0]->l.numel) return false;
  for (int d = 0; d < loop->ndim; d++)
    if (loop->step[d][k] * result != loop->step[d][0] * size) return true;
  return false;
}

/* Copies such operands to own, in the order of the result. Returns their number, or -1 if an error
** is set. */
static int pack_operands(const moth_loop *loop, const moth_loops *loops,
                         const moth_tensor *const *operands, moth_tensor **own) {
  const bool few = loop->size[0] < (loops->cost > 0 ? 2 * SHORT_RUN : SHORT_RUN);
  int packed = 0;
  if (loop->ndim < 2 || operands[0]->l.numel < 4096 || !moth_dense(operands[0])) return 0;
  for (int k = 1; k < loop->noperands; k++) {
    if (!across(loop, k, moth_dtype_size[operands[k]->l.dtype]) &&
        !(few && differs(loop, k, operands)))
      continue;
    own[k] = moth_packed_like(operands[k], &operands[0]->l);
    if (!own[k]) return -1;
    packed++;
  }
  return packed;
}

moth_inner moth_loop_of(const moth_loops *loops, int dtype) {
  const int real = moth_compute_dtype(dtype), level = moth_level();
  const int at = MOTH_DTYPES - 1 + level + (real == MOTH_F64 ? 2 : 0);
  const bool built = level && (real == MOTH_F32 || (real == MOTH_F64 && loops->of[at]));
  return loops->of[built ? at : real];
}

static int run_map(const moth_loop *loop, const moth_loops *loops, int dtype,
                   const moth_tensor *const *operands, const void *arg) {
  const int n = loop->noperands;
  const moth_inner inner = moth_loop_of(loops, dtype);
  const double cost = moth_cost_of(loops, dtype, n);
  if (loops == moth_where) return moth_loop_share(loop, loops->of[dtype], arg, cost);
  if (dtype == MOTH_F32 && short_rows(loop, operands)) {
    const row_call rows = {loop, inner, arg};
    return moth_parallel(loop->ctx, loop->size[1], 16, (cost + 0.2) * (double)loop->size[0],
                         run_rows, &rows);
  }
  bool plain = moth_compute_dtype(dtype) == dtype;
  for (int k = 0; plain && k < n; k++) {
    const int64_t step = loop->step[0][k];
    plain = step == moth_dtype_size[operands[k]->l.dtype] || (step == 0 && single_fits(n, k));
  }
  if (plain) return moth_loop_share(loop, inner, arg, cost);
  moth_block_call call = {.inner = inner, .arg = arg, .noperands = n};
  for (int k = 0; k < n; k++) call.dtype[k] = operands[k]->l.dtype;
  return moth_loop_share(loop, moth_blocks, &call, cost + 0.3);
}

/* run_map, with packed copies of the operands for which a copy pays. */
static int map_packed(moth_loop *loop, const moth_loops *loops, int dtype,
                      const moth_tensor *const *operands, const void *arg) {
  const int noperands = loop->noperands;
  moth_tensor *own[MOTH_MAP_OPERANDS] = {NULL};
  const moth_tensor *now[MOTH_MAP_OPERANDS];
  const int packed = pack_operands(loop, loops, operands, own);
  if (packed == 0) return run_map(loop, loops, dtype, operands, arg);
  for (int k = 0; k < noperands; k++) now[k] = own[k] ? own[k] : operands[k];
  int status = packed < 0 ? loop->ctx->error.code : MOTH_OK;
  if (!status) {
    moth_loop_over(loop, loop->ctx, &now[0]->l, noperands, now);
    status = run_map(loop, loops, dtype, now, arg);
  }
  for (int k = 0; k < noperands; k++) moth_tensor_release(own[k]);
  return status;
}

int moth_map(moth_ctx *ctx, const moth_loops *loops, int dtype, int noperands,
             const moth_tensor *const *operands, const void *arg) {
  if (ctx->observer && moth_observe_function(ctx, loops, dtype, noperands, operands, arg))
    return MOTH_OK;
  if (operands[0]->l.device)
    return moth_device_map(ctx, loops->name, dtype, noperands, operands, arg);
  moth_loop loop;
  moth_loop_over(&loop, ctx, &operands[0]->l, noperands, operands);
  return loop.ndim > 1 ? map_packed(&loop, loops, dtype, operands, arg)
                       : run_map(&loop, loops, dtype, operands, arg);
}

void moth_wave(int64_t n, char *const *at, const int64_t *step, const void *arg, int64_t size,
               moth_away away, moth_inner near, moth_inner far) {
  for (int64_t i = 0; i < n; i += BLOCK_SIZE) {
    const int64_t m = n - i < BLOCK_SIZE ? n - i : BLOCK_SIZE;
    char *block[] = {at[0] + i * step[0], at[1] + i * step[1]};
    if (!away(m, block[1], step[1])) {
      near(m, block, step, arg);
      continue;
    }
    double scratch[BLOCK_SIZE]; /* copy of x, because the result may overlap x */
    char *x = (char *)scratch;
    for (int64_t j = 0; j < m; j++)
      memcpy(x + j * size, block[1] + j * step[1], (size_t)size);
    near(m, (char *const[]){block[0], x}, (const int64_t[]){step[0], size}, arg);
    for (int64_t j = 0; j < m; j++) {
      char *one[] = {block[0] + j * step[0], x + j * size};
      if (away(1, one[1], size)) far(1, one, step, arg);
    }
  }
}

static bool are_near(int64_t n, const char *p, int64_t dp, const char *q, int64_t dq) {
  const float *x = (const float *)(const void *)p, *y = (const float *)(const void *)q;
  bool far = false;
  if (dp == sizeof *x && dq == sizeof *y) {
    for (int64_t j = 0; j < n; j++) {
      const float b = moth_abs_f32(y[j]);
      far |= !(moth_abs_f32(x[j]) * 0x1p-28f < b) | !(b < INFINITY);
    }
    return !far;
  }
  for (int64_t j = 0; j < n; j++, p += dp, q += dq) {
    x = (const float *)(const void *)p, y = (const float *)(const void *)q;
    const float b = moth_abs_f32(*y);
    far |= !(moth_abs_f32(*x) * 0x1p-28f < b) | !(b < INFINITY);
  }
  return !far;
}

void moth_quotients(int64_t n, char *const *at, const int64_t *step, const void *arg,
                    moth_inner near, moth_inner far) {
  for (int64_t i = 0; i < n; i += BLOCK_SIZE) {
    const int64_t m = n - i < BLOCK_SIZE ? n - i : BLOCK_SIZE;
    char *block[] = {at[0] + i * step[0], at[1] + i * step[1], at[2] + i * step[2]};
    (are_near(m, block[1], step[1], block[2], step[2]) ? near : far)(m, block, step, arg);
  }
}

/* Runs the loop for up to BLOCK_SIZE elements. Operands in a layout that the loop does not accept
** are copied to `scratch`. If the length is not a multiple of the vector, all operands are copied
** and filled with zeros. */
static void run_block(int64_t n, char *const *at, const int64_t *step, const void *arg,
                      int noperands, int64_t size, int single, moth_inner inner) {
  double scratch[4][BLOCK_SIZE];
  const int dtype = size == sizeof(double) ? MOTH_F64 : MOTH_F32;
  const int64_t whole = (n + MOTH_VECTOR - 1) & -(int64_t)MOTH_VECTOR;
  char *block[4];
  int64_t width[4];
  for (int k = 0; k < noperands; k++) {
    const bool stays = single >> k & 1;
    width[k] = stays ? 0 : size;
    block[k] = stays || (step[k] == size && n == whole) ? at[k] : (char *)scratch[k];
    if (k == 0 || block[k] == at[k]) continue;
    moth_convert(n, dtype, at[k], step[k], dtype, block[k], size);
    memset(block[k] + n * size, 0, (size_t)((whole - n) * size));
  }
  inner(whole, block, width, arg);
  if (block[0] != at[0]) moth_convert(n, dtype, block[0], size, dtype, at[0], step[0]);
}

void moth_run_blocks(int64_t n, char *const *at, const int64_t *step, const void *arg,
                     int noperands, int64_t size, int single, moth_inner inner) {
  char *now[4] = {NULL};
  int64_t done = 0;
  bool together = true;
  for (int k = 0; k < noperands; k++) together &= step[k] == size || (single >> k & 1);
  if (together && n >= MOTH_VECTOR) inner(done = MOTH_WHOLE(n), at, step, arg);
  while (done < n) {
    const int64_t m = n - done < BLOCK_SIZE ? n - done : BLOCK_SIZE;
    for (int k = 0; k < noperands; k++) now[k] = at[k] + done * step[k];
    run_block(m, now, step, arg, noperands, size, single, inner);
    done += m;
  }
}

void moth_numbers(int dtype, uint64_t arg[3], double a, double b, double c) {
  double numbers[3] = {a, b, c};
  int real = moth_compute_dtype(dtype);
  moth_convert(3, MOTH_F64, (const char *)numbers, 8, real, (char *)arg, moth_dtype_size[real]);
}

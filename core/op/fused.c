/* fused.c -- several elementwise functions in one pass. The program is checked, then run a block of
** elements at a time, so that intermediate values stay in the L1 cache. Each value is rounded to
** its dtype, as if it had been stored: the results are equal to those of the single ops.
*/
#include "fused.h"
#include "tensor/shape.h"
#include "base/error.h"

#include "device/device.h"
#include "kernel/math/maps.h"
#include "call/frame.h"
#include "tensor/loop.h"

enum {
  BLOCK = 512, /* intermediate values of a block fit into the L1 cache */
  VALUES = FUSED_INPUTS + FUSED_RESULTS + FUSED_BETWEEN
};
_Static_assert(VALUES <= 64, "a set of values must fit 64 bits");

typedef struct fused_step {
  moth_block_call call;
  const moth_loops *loops; /* NULL for a conversion */
  bool as_is;              /* the loop reads all operands without conversion */
  uint64_t numbers[3];
  int value[FUSED_VALUES];
} fused_step;

typedef struct fused_plan {
  int nin, nres, nsteps, nvalues;
  int dtype[VALUES];
  int buffer[VALUES]; /* buffer of an intermediate value, until its last read */
  double cost;        /* time per element in ns */
  fused_step step[FUSED_STEPS];
} fused_plan;

/* -- reading the program -- */

static int wrong(const fused_args *a, const char *arg, const char *what) {
  return moth_fail(a->ctx, MOTH_E_ARG, arg, "%s", what);
}

static int read_values(const fused_args *a, fused_plan *plan) {
  const int64_t values = a->input.n + a->dtypes.n;
  if (a->input.n < 1 || a->input.n > FUSED_INPUTS)
    return moth_fail(a->ctx, MOTH_E_ARG, "input", "1 to %d tensors are needed, got %lld",
                     FUSED_INPUTS, (long long)a->input.n);
  if (a->results < 1 || a->results > FUSED_RESULTS || a->results > a->dtypes.n)
    return wrong(a, "results", "1 to 4 results are needed, each with a dtype");
  if (a->dtypes.n - a->results > FUSED_BETWEEN)
    return wrong(a, "dtypes", "at most 48 intermediate values are possible");
  plan->nin = (int)a->input.n;
  plan->nres = (int)a->results;
  plan->nvalues = (int)values;
  for (int64_t i = 0; i < values; i++) {
    const int64_t given = i < a->input.n ? -1 : a->dtypes.at[i - a->input.n];
    const moth_tensor *x = a->input.at[i < a->input.n ? i : 0];
    if (given < -1 || given >= MOTH_DTYPES) return wrong(a, "dtypes", "there is no such dtype");
    plan->dtype[i] = given < 0 ? x->l.dtype : (int)given;
  }
  return MOTH_OK;
}

/* Returns true if the loops for `dtype` can read and write values of these dtypes. */
static bool suits(const fused_plan *plan, const fused_step *s, int dtype) {
  const int real = moth_compute_dtype(dtype);
  if (!moth_loop_of(s->loops, dtype) || s->call.noperands != s->loops->noperands) return false;
  for (int k = 0; k < s->call.noperands; k++) {
    const int of = plan->dtype[s->value[k]];
    const bool is_bool = (k == 0 && s->loops->asks) || (k == 1 && s->loops == moth_where);
    if (is_bool ? of != MOTH_BOOL : moth_compute_dtype(of) != real) return false;
  }
  return true;
}

/* Returns true if `where` copies values of one dtype unchanged. Its loop then also broadcasts
** single elements. */
static bool chooses_alike(const fused_plan *plan, const fused_step *s) {
  const int dtype = plan->dtype[s->value[0]];
  return s->loops == moth_where && plan->dtype[s->value[2]] == dtype &&
         plan->dtype[s->value[3]] == dtype;
}

static int read_step(const fused_args *a, const int64_t *words, uint64_t *given, fused_plan *plan) {
  fused_step *s = &plan->step[plan->nsteps];
  const int64_t n = words[2], dtype = words[1] < 0 ? plan->dtype[0] : words[1];
  s->loops = moth_map_at(words[0]);
  s->call = (moth_block_call){.noperands = (int)n};
  s->as_is = false;
  if (dtype >= MOTH_DTYPES) return wrong(a, "steps", "there is no such dtype");
  if ((!s->loops && words[0] != FUSED_CONVERT) || n < 2 || n > FUSED_VALUES)
    return wrong(a, "steps", "there is no such function");
  for (int k = 0; k < n; k++) {
    const int64_t value = words[3 + k];
    if (value < 0 || value >= plan->nvalues || (k > 0) != (*given >> value & 1u))
      return wrong(a, "steps", "a value must be computed once, before it is read");
    s->value[k] = (int)value;
    s->call.dtype[k] = plan->dtype[value];
  }
  *given |= (uint64_t)1 << words[3];
  if (s->loops ? !suits(plan, s, (int)dtype) : n != 2)
    return wrong(a, "steps", "the values do not match the function");
  if (!s->loops) return MOTH_OK;
  s->call.inner = moth_loop_of(s->loops, (int)dtype);
  s->as_is = chooses_alike(plan, s);
  if (s->as_is) s->call.inner = moth_where->of[s->call.dtype[0]];
  if (a->numbers.at) {
    const double *at = a->numbers.at + 3 * plan->nsteps;
    moth_numbers((int)dtype, s->numbers, at[0], at[1], at[2]);
    s->call.arg = s->numbers;
  }
  plan->cost += moth_cost_of(s->loops, (int)dtype, s->call.noperands);
  return MOTH_OK;
}

/* Assigns a buffer to each intermediate value. A buffer is free again after the last read of its
** value. */
static int assign_buffers(const fused_args *a, fused_plan *plan) {
  const int first = plan->nin + plan->nres;
  int last[VALUES] = {0};
  uint32_t taken = 0;
  if (plan->nvalues - first <= FUSED_ROOMS) { /* one buffer for each value */
    for (int v = first; v < plan->nvalues; v++) plan->buffer[v] = v - first;
    return MOTH_OK;
  }
  for (int i = 0; i < plan->nsteps; i++)
    for (int k = 0; k < plan->step[i].call.noperands; k++) last[plan->step[i].value[k]] = i;
  for (int i = 0; i < plan->nsteps; i++) {
    const fused_step *s = &plan->step[i];
    const int y = s->value[0];
    if (y >= first) {
      const int buffer = __builtin_ctz(~taken);
      if (buffer >= FUSED_ROOMS)
        return wrong(a, "steps", "at most 16 intermediate values can be live at once");
      taken |= 1u << buffer;
      plan->buffer[y] = buffer;
    }
    for (int k = 0; k < s->call.noperands; k++)
      if (s->value[k] >= first && last[s->value[k]] == i)
        taken &= ~(1u << plan->buffer[s->value[k]]);
  }
  return MOTH_OK;
}

static int read_program(const fused_args *a, fused_plan *plan) {
  const int64_t n = a->steps.n / FUSED_WORDS;
  plan->nsteps = 0;
  plan->cost = 0.1;
  if (n < 1 || n > FUSED_STEPS || n * FUSED_WORDS != a->steps.n)
    return wrong(a, "steps", "1 to 48 steps of 9 numbers are needed");
  if (a->numbers.at && a->numbers.n != 3 * n) return wrong(a, "numbers",
                                                           "three numbers per step are needed");
  int status = read_values(a, plan);
  uint64_t given = status ? 0 : ((uint64_t)1 << plan->nin) - 1;
  for (; !status && plan->nsteps < n; plan->nsteps++)
    status = read_step(a, a->steps.at + plan->nsteps * FUSED_WORDS, &given, plan);
  for (int i = 0; !status && i < plan->nres; i++)
    if (!(given >> (plan->nin + i) & 1u)) status = wrong(a, "steps", "a result is not computed");
  return status ? status : assign_buffers(a, plan);
}

/* -- the op -- */

static int fused_shape(const fused_args *a, moth_layout *y) {
  fused_plan plan;
  moth_layout all = {.ndim = 0};
  int status = read_program(a, &plan);
  for (int i = 0; !status && i < plan.nin; i++)
    if (!moth_layout_broadcast(&all, &a->input.at[i]->l))
      status = moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s cannot be broadcast with %s",
                         moth_str(a->input.at[i]), moth_str_shape(a->ctx, all.ndim, all.shape));
  for (int i = 0; !status && i < FUSED_RESULTS; i++) {
    y[i].ndim = i < plan.nres ? all.ndim : MOTH_NO_RESULT;
    if (i >= plan.nres) continue;
    memcpy(y[i].shape, all.shape, sizeof all.shape);
    y[i].dtype = (uint8_t)plan.dtype[plan.nin + i];
  }
  return status;
}

/* Runs the program on one block. `at` and `step` list the results, then the inputs. */
static void run_block(const fused_plan *plan, int64_t n, char *const *at, const int64_t *step,
                      double (*buffer)[BLOCK]) {
  for (int i = 0; i < plan->nsteps; i++) {
    const fused_step *s = &plan->step[i];
    char *own[FUSED_VALUES];
    int64_t width[FUSED_VALUES];
    for (int k = 0; k < s->call.noperands; k++) {
      const int v = s->value[k], between = v - plan->nin - plan->nres;
      const int outside = v < plan->nin ? plan->nres + v : v - plan->nin;
      own[k] = between < 0 ? at[outside] : (char *)buffer[plan->buffer[v]];
      width[k] = between < 0 ? step[outside] : moth_dtype_size[plan->dtype[v]];
    }
    if (s->as_is) s->call.inner(n, own, width, NULL);
    else if (s->loops) moth_blocks(n, own, width, &s->call);
    else
      moth_convert(n, s->call.dtype[1], own[1], width[1], s->call.dtype[0], own[0], width[0]);
  }
}

static void run_blocks(int64_t n, char *const *at, const int64_t *step, const void *arg) {
  const fused_plan *plan = arg;
  const int operands = plan->nres + plan->nin;
  double buffer[FUSED_ROOMS][BLOCK];
  char *now[FUSED_RESULTS + FUSED_INPUTS];
  for (int k = 0; k < operands; k++) now[k] = at[k];
  for (int64_t i = 0; i < n; i += BLOCK) {
    run_block(plan, n - i < BLOCK ? n - i : BLOCK, now, step, buffer);
    for (int k = 0; k < operands; k++) now[k] += BLOCK * step[k];
  }
}

static int run_plan(const fused_args *a, const fused_plan *plan, moth_tensor **out) {
  moth_loop loop;
  const moth_tensor *operands[FUSED_RESULTS + FUSED_INPUTS];
  for (int i = 0; i < plan->nres; i++) operands[i] = out[i];
  for (int i = 0; i < plan->nin; i++) operands[plan->nres + i] = a->input.at[i];
  moth_loop_over(&loop, a->ctx, &out[0]->l, plan->nres + plan->nin, operands);
  return moth_loop_share(&loop, run_blocks, plan, plan->cost);
}

static int fused_cpu(const fused_args *a, moth_tensor **out) {
  fused_plan plan;
  const int status = read_program(a, &plan);
  return status ? status : run_plan(a, &plan, out);
}

/* -- for captured steps: the program is decoded once, then run many times -- */

size_t moth_fused_bytes(int64_t nsteps) {
  return sizeof(fused_args) + offsetof(fused_plan, step) + (size_t)nsteps * sizeof(fused_step);
}

int moth_fused_read(fused_args *a) {
  /* the plan is allocated with as many steps as are used */
  return read_program(a, (fused_plan *)(void *)(a + 1));
}

int moth_fused_again(const void *args, moth_tensor **out) {
  const fused_args *a = args;
  return run_plan(a, (const fused_plan *)(const void *)(a + 1), out);
}

int moth_fused_ready(const fused_args *a) {
  fused_plan plan;
  int status = read_program(a, &plan), device = 0;
  for (int i = 0; !status && i < plan.nin; i++)
    if (a->input.at[i]->l.device) device = a->input.at[i]->l.device;
  return status || !device ? status : moth_device_call(a->ctx, "fused_ready", a);
}

MOTH_OP_CONST(fused, FUSED,
  .doc = "Several elementwise functions in one pass: intermediate values are not written to "
         "memory.",
  .examples = "{moth.randn(2, 3), moth.randn(3)}, {0, -1, 3, 2, 0, 1, 0, 0, 0}, {-1}\n"
              "{moth.randn(2, 3)}, {1, -1, 3, 3, 0, 0, 0, 0, 0, 0, -1, 3, 1, 3, 0, 0, 0, 0, "
              "0, -1, 3, 2, 1, 0, 0, 0, 0}, {-1, -1, -1}, 2, "
              "{0.5, 0, 0, 0, 0, 0, 0, 0, 0}",
  .outputs = "first, second, third, fourth", .dtypes = MOTH_ANY,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_MIXED)

const moth_op *const moth_fused_ops[] = {&moth_op_fused, NULL};

/* abi.c -- a C program without Lua fits a line to points. Its weights are arrays of the program. It
** calls ops by name, computes gradients, runs an optimizer's step, and saves and loads the weights.
**
**     abi line.safetensors
*/
#include <math.h>
#include <moth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 64, STEPS = 200 };

static moth_ctx *ctx;

/* Ends the program after an error; returns other results. */
static int64_t check(int64_t status) {
  if (status >= 0) return status;
  fprintf(stderr, "%s: %s\n", moth_error_name((int32_t)status), moth_error(ctx, 0));
  exit(1);
}

/* y = op(tensors...): the tensors are the first arguments; the others have their defaults. */
static moth_handle apply(const char *name, const moth_handle *tensors, uint32_t n) {
  moth_slot slots[8];
  moth_handle y;
  for (uint32_t i = 0; i < n; i++) slots[i].handle = tensors[i];
  check(moth_call(ctx, moth_op_find(name), slots, n, ((uint64_t)1 << n) - 1, &y, 1));
  return y;
}

/* Marks the argument with this name as given. Returns its first slot. */
static moth_slot *argument(const moth_op *op, const char *name, moth_slot *slots, uint64_t *given) {
  const moth_op_info *info = moth_op_describe(op);
  uint32_t i = 0;
  while (i < info->nargs && strcmp(info->args[i].name, name)) i++;
  if (i == info->nargs) exit(1); /* a misspelt name */
  *given |= (uint64_t)1 << i;
  return &slots[info->args[i].slot];
}

/* One step of SGD without momentum: params -= lr * grads, in place. */
static void sgd(const moth_handle *params, const moth_handle *grads, int64_t n, double lr) {
  const moth_op *op = moth_op_find("sgd_step_");
  uint64_t given = 0;
  moth_slot slots[64], *list;
  memset(slots, 0, sizeof slots);
  list = argument(op, "params", slots, &given);
  list[0].pointer = params, list[1].integer = n;
  list = argument(op, "grads", slots, &given);
  list[0].pointer = grads, list[1].integer = n;
  argument(op, "momentum_buffers", slots, &given); /* an empty list */
  argument(op, "lr", slots, &given)->number = lr;
  moth_grad_mode(ctx, 0); /* the step itself is not recorded */
  check(moth_call(ctx, op, slots, moth_op_describe(op)->nslots, given, NULL, 0));
  moth_grad_mode(ctx, 1);
}

static void save_and_load(const char *name, const moth_handle *params) {
  const moth_text path = {name, strlen(name)}, names[2] = {{"weight", 6}, {"bias", 4}};
  moth_handle file, loaded;
  float weight[2];
  check(moth_safetensors_save(ctx, &path, names, params, 2, NULL, NULL, 0, 0));
  check(moth_safetensors_open(ctx, &path, 0, &file));
  const int64_t i = check(moth_safetensors_find(ctx, &file, &names[0]));
  check(moth_safetensors_tensor(ctx, &file, i, &loaded));
  check(moth_bytes(ctx, &loaded, weight, sizeof weight));
  printf("loaded %.3f %.3f\n", (double)weight[0], (double)weight[1]);
}

int main(int argc, char **argv) {
  float x[POINTS][2], y[POINTS], weight[2] = {0, 0}, bias = 0; /* y = 3 a - 2 b + 1 */
  const int64_t matrix[] = {POINTS, 2}, row[] = {1, 2}, one[] = {1}, column[] = {POINTS, 1};
  moth_handle line[3], target, params[2]; /* line: x, weight, bias */
  if (argc < 2 || !(ctx = moth_open())) return 1;
  for (int i = 0; i < POINTS; i++) {
    x[i][0] = sinf((float)i), x[i][1] = cosf(2.5f * (float)i);
    y[i] = 3 * x[i][0] - 2 * x[i][1] + 1;
  }
  /* Tensors over the program's memory. Without a deleter the memory must outlive the context. */
  check(moth_from_memory(ctx, MOTH_F32, matrix, 2, x, sizeof x, NULL, NULL, &line[0]));
  check(moth_from_memory(ctx, MOTH_F32, column, 2, y, sizeof y, NULL, NULL, &target));
  check(moth_from_memory(ctx, MOTH_F32, row, 2, weight, sizeof weight, NULL, NULL, &params[0]));
  check(moth_from_memory(ctx, MOTH_F32, one, 1, &bias, sizeof bias, NULL, NULL, &params[1]));
  for (int i = 0; i < 2; i++) {
    check(moth_requires_grad(ctx, &params[i], 1));
    line[1 + i] = params[i];
  }

  for (int step = 0; step < STEPS; step++) {
    const uint32_t scope = moth_scope_open(ctx); /* the handles of a step are freed at its end */
    const moth_handle pair[2] = {apply("linear", line, 3), target};
    const moth_handle loss = apply("mse_loss", pair, 2);
    moth_handle grads[2];
    check(moth_backward(ctx, &loss, NULL, 1, params, 2, 0, grads));
    sgd(params, grads, 2, 0.2);
    if (step % 50 == 0) {
      moth_slot value;
      check(moth_read(ctx, &loss, 0, 1, &value));
      printf("step %d: loss %.4f\n", step, value.number);
    }
    check(moth_scope_close(ctx, scope));
  }
  printf("weight %.3f %.3f, bias %.3f\n", (double)weight[0], (double)weight[1], (double)bias);
  save_and_load(argv[1], params);
  moth_close(ctx);
  return 0;
}

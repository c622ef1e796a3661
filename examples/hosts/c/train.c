/* train.c -- a C program without Lua fits a line to points. It owns the weights as a C array, calls
** ops by name, takes gradients, runs an optimizer's step, saves the weights and loads them.
**
**   cc -Icore examples/hosts/c/train.c -o build/train -Lbuild -lmoth -lm -Wl,-rpath,$PWD/build
**   build/train line.safetensors
*/
#include <math.h>
#include <moth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS 64

static moth_ctx *ctx;

static int64_t check(int64_t status) {
  if (status >= 0) return status;
  fprintf(stderr, "%s: %s\n", moth_error_name((int32_t)status), moth_error(ctx, 0));
  exit(1);
}

/* Returns an argument of an op by its name. */
static void set(const moth_op *op, const char *name, moth_slot *slots, uint64_t *given,
                moth_slot first, moth_slot second) {
  const moth_op_info *info = moth_op_describe(op);
  for (uint32_t i = 0; i < info->nargs; i++) {
    const moth_arg *arg = &info->args[i];
    if (strcmp(arg->name, name)) continue;
    slots[arg->slot] = first;
    if (arg->nslots > 1) slots[arg->slot + 1] = second;
    *given |= (uint64_t)1 << i;
  }
}

/* y = op(tensors...); the tensors are the op's first arguments. */
static moth_handle call(const char *name, const moth_handle *tensors, uint32_t n) {
  const moth_op *op = moth_op_find(name);
  moth_slot slots[64];
  moth_handle y;
  for (uint32_t i = 0; i < n; i++) slots[i].handle = tensors[i];
  check(moth_call(ctx, op, slots, n, ((uint64_t)1 << n) - 1, &y, 1));
  return y;
}

/* One step of SGD: params -= lr * grads, in place. */
static void sgd(const moth_handle *params, const moth_handle *grads, int64_t n, double lr) {
  const moth_op *op = moth_op_find("sgd_step_");
  const moth_slot count = {.integer = n}, none = {.integer = 0};
  moth_slot slots[64];
  uint64_t given = 0;
  memset(slots, 0, sizeof slots);
  set(op, "params", slots, &given, (moth_slot){.pointer = params}, count);
  set(op, "grads", slots, &given, (moth_slot){.pointer = grads}, count);
  set(op, "momentum_buffers", slots, &given, (moth_slot){.pointer = NULL}, none);
  set(op, "lr", slots, &given, (moth_slot){.number = lr}, none);
  moth_grad_mode(ctx, 0); /* the step itself is not recorded */
  check(moth_call(ctx, op, slots, moth_op_describe(op)->nslots, given, NULL, 0));
  moth_grad_mode(ctx, 1);
}

int main(int argc, char **argv) {
  float x[POINTS][2], y[POINTS], weight[2] = {0, 0}, bias = 0; /* y = 3 a - 2 b + 1 */
  const int64_t matrix[] = {POINTS, 2}, row[] = {1, 2}, one[] = {1}, column[] = {POINTS, 1};
  moth_handle data[3], target, params[2];
  if (argc < 2 || !(ctx = moth_open())) return 1;
  for (int i = 0; i < POINTS; i++) {
    x[i][0] = sinf((float)i), x[i][1] = cosf(2.5f * (float)i);
    y[i] = 3 * x[i][0] - 2 * x[i][1] + 1;
  }
  check(moth_from_memory(ctx, MOTH_F32, matrix, 2, x, sizeof x, NULL, NULL, &data[0]));
  check(moth_from_memory(ctx, MOTH_F32, column, 2, y, sizeof y, NULL, NULL, &target));
  check(moth_from_memory(ctx, MOTH_F32, row, 2, weight, sizeof weight, NULL, NULL, &params[0]));
  check(moth_from_memory(ctx, MOTH_F32, one, 1, &bias, sizeof bias, NULL, NULL, &params[1]));
  for (int i = 0; i < 2; i++) check(moth_requires_grad(ctx, &params[i], 1));

  for (int step = 0; step < 200; step++) {
    const uint32_t scope = moth_scope_open(ctx); /* its handles end with the step */
    moth_handle grads[2];
    data[1] = params[0], data[2] = params[1];
    const moth_handle pair[2] = {call("linear", data, 3), target};
    const moth_handle loss = call("mse_loss", pair, 2);
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

  const moth_text path = {argv[1], strlen(argv[1])}, names[2] = {{"weight", 6}, {"bias", 4}};
  moth_handle file, loaded;
  float again[2];
  check(moth_safetensors_save(ctx, &path, names, params, 2, NULL, NULL, 0, 0));
  check(moth_safetensors_open(ctx, &path, 0, &file));
  const int64_t place = check(moth_safetensors_find(ctx, &file, &names[0]));
  check(moth_safetensors_tensor(ctx, &file, place, &loaded));
  check(moth_bytes(ctx, &loaded, again, sizeof again));
  printf("loaded %.3f %.3f\n", (double)again[0], (double)again[1]);
  moth_close(ctx);
  return 0;
}

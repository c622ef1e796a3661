/* capture_list.c -- finds the elementwise functions of instructions by running their kernels for an
** observer, and which instructions use a storage. Only kernels are run that use nothing but
** moth_map and its variants (MOTH_OP_PORTABLE) and write any layout: with the observer they compute
** nothing.
*/
#include "capture_list.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include <stdlib.h>

#include "kernel/math/arith.h"
#include "kernel/math/maps.h"
#include "call/registry.h"

typedef struct reading {
  moth_observer observer;
  const moth_instruction *in;
  moth_listed *list;
  const moth_tensor *result[MOTH_LISTED]; /* the result of each function */
  int n;
  bool odd;
} reading;

static bool is_input(const moth_instruction *in, const moth_tensor *x) {
  moth_cursor cursor = {.op = in->op, .args = in->args};
  while (moth_next_input(&cursor))
    if (*cursor.at == x) return true;
  return false;
}

/* An operand is a tensor of the instruction, a tensor that its kernel made and wrote, or a number
** on the kernel's stack. */
static bool read_operand(reading *r, const moth_tensor *x, moth_listed_operand *to) {
  *to = (moth_listed_operand){.made = -1, .dtype = x->l.dtype};
  for (int i = r->n; i-- > 0;)
    if (r->result[i] == x) {
      to->made = i;
      return true;
    }
  if (is_input(r->in, x)) {
    to->x = x;
    return true;
  }
  if (x->l.ndim != 0 || x->l.device != 0) return false;
  memcpy(&to->element, moth_at(x), (size_t)moth_dtype_size[x->l.dtype]);
  return true;
}

/* Numbers are in the compute dtype. They must be exact as f64. */
static bool read_numbers(moth_listed *f, const void *arg) {
  const int real = moth_compute_dtype(f->dtype);
  const int64_t size = moth_dtype_size[real];
  uint64_t again[3];
  if (!arg) return true;
  moth_convert(3, real, arg, size, MOTH_F64, (char *)f->numbers, 8);
  moth_numbers(f->dtype, again, f->numbers[0], f->numbers[1], f->numbers[2]);
  return !memcmp(again, arg, (size_t)(3 * size));
}

/* Does the function read values first? Integer division does. */
static bool looks(const moth_loops *loops, int dtype) {
  return !moth_is_float(dtype) && (loops == moth_arith.div || loops == moth_arith.div_trunc ||
                                   loops == moth_arith.div_floor || loops == moth_arith.remainder ||
                                   loops == moth_arith.fmod);
}

static bool note(moth_observer *o, const struct moth_loops *loops, int dtype, int noperands,
                 const moth_tensor *const *operands, const void *arg) {
  reading *r = (reading *)o;
  const moth_tensor *y = r->in->out[0];
  if (r->odd || r->n == MOTH_LISTED || looks(loops, dtype) ||
      (loops && moth_map_number(loops) < 0) ||
      (r->n && r->result[r->n - 1] == y) || !moth_shape_same(&operands[0]->l, &y->l)) {
    r->odd = true;
    return true;
  }
  moth_listed *f = &r->list[r->n];
  *f = (moth_listed){.loops = loops, .dtype = dtype, .n = noperands};
  f->operand[0] = (moth_listed_operand){.x = operands[0], .dtype = operands[0]->l.dtype};
  for (int k = 1; k < noperands; k++)
    r->odd |= !read_operand(r, operands[k], &f->operand[k]);
  r->odd |= !read_numbers(f, arg);
  r->result[r->n++] = operands[0];
  return true;
}

bool moth_capture_number(const moth_capture *c, const moth_tensor *x) {
  const moth_storage *s = x->storage;
  const uint8_t dead = MOTH_C_INSIDE | MOTH_C_BURIED;
  if (x->l.numel != 1 || x->l.device) return false;
  return x->flags & MOTH_T_NUMBER ||
         (s->capture == c->id && !s->root &&
          (s->held & (dead | MOTH_C_POOLED | MOTH_C_WRITTEN | MOTH_C_AGAIN)) == dead);
}

/* Does the value of an element select the function, as pow's exponent does? */
static bool chooses(const moth_capture *c, const moth_instruction *in) {
  if (!in->op->chooser) return false;
  const moth_tensor *x = moth_arg_at(in->op, in->args, in->op->chooser - 1)->pointer;
  return x->l.numel == 1 && !moth_capture_number(c, x);
}

int moth_capture_list(moth_capture *c, const moth_instruction *in, moth_listed *list) {
  const uint32_t flags = MOTH_OP_PORTABLE | MOTH_OP_STRIDED;
  moth_ctx *ctx = c->ctx;
  reading r = {.observer = {.rank = MOTH_TRACES, .function = note}, .in = in, .list = list};
  moth_tensor *y[] = {in->out[0]};
  if (!in->run || !y[0] || in->out[1] || (in->op->flags & flags) != flags || !in->op->cpu ||
      in->op->flags & MOTH_OP_WHOLE || in->op->lists || in->facts & MOTH_I_VARIES ||
      y[0]->l.numel == 0 || chooses(c, in) || (y[0]->l.device && in->op->device))
    return 0;
  moth_capture_put_aside(ctx); /* tensors made by the kernel are not recorded */
  moth_observer_add(ctx, &r.observer);
  const int status = in->op->cpu(in->args, y);
  moth_observer_remove(ctx, &r.observer);
  moth_capture_take_up(ctx, c);
  if (status) moth_error_clear(ctx);
  return status || r.odd || !r.n || r.result[r.n - 1] != y[0] ? 0 : r.n;
}

/* -- uses of storages -- */

static int by_address(const void *a, const void *b) {
  const uintptr_t p = (uintptr_t)((const moth_use *)a)->s, q = (uintptr_t)((const moth_use *)b)->s;
  return p < q ? -1 : p > q;
}

moth_use *moth_use_of(const moth_uses *uses, const moth_storage *s) {
  const moth_use key = {.s = s};
  return bsearch(&key, uses->at, uses->n, sizeof key, by_address);
}

static void note_use(const moth_uses *uses, const moth_storage *s, uint32_t i) {
  moth_use *u = moth_use_of(uses, s);
  if (!u) return;
  if (i < u->first) u->first = i;
  if (i > u->last) u->last = i;
}

static void note_uses(const moth_uses *uses, const moth_instruction *in, uint32_t i) {
  const moth_guard *guard = moth_guard_of(in);
  for (uint32_t k = 0; guard && k < guard->nfound; k++) note_use(uses, guard->found[k]->storage, i);
  if (guard) return;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  while (moth_next_input(&cursor))
    if (*cursor.at) note_use(uses, (*cursor.at)->storage, i);
  for (int k = 0; k < MOTH_MAX_OUTPUTS && in->out[k]; k++) note_use(uses, in->out[k]->storage, i);
}

int moth_uses_find(moth_uses *uses, const moth_capture *c) {
  uses->at = moth_alloc(c->ctx, (int64_t)(c->nstores * sizeof *uses->at));
  if (!uses->at) return c->ctx->error.code;
  for (uint32_t i = 0; i < c->nstores; i++)
    uses->at[i] = (moth_use){.s = c->stores[i].s, .first = c->ncode};
  uses->n = c->nstores;
  qsort(uses->at, uses->n, sizeof *uses->at, by_address);
  for (uint32_t i = 0; i < uses->n; i++) {
    const moth_storage *of = uses->at[i].s->root;
    moth_use *root = of ? moth_use_of(uses, of) : NULL;
    if (of) uses->at[i].shared = true;
    if (root) root->shared = true;
  }
  for (uint32_t i = 0; i < c->ncode; i++)
    if (!moth_capture_left_out(&c->code[i])) note_uses(uses, &c->code[i], i);
  return MOTH_OK;
}

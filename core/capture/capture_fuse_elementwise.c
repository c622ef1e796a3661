/* capture_fuse_elementwise.c -- fuses consecutive elementwise instructions of a captured step into
** one, `fused`, which runs them in one pass over memory, a block of elements at a time (capture.h).
**
** The functions of each instruction are found by running its kernel for an observer
** (capture_list.h). A group is a number of consecutive instructions whose results have one shape
** and layout. An instruction can join if each operand either is exactly the elements of a result of
** the group or overlaps no result. Then it does not matter that the group computes a block of
** elements of all its instructions before the next block. Results that no other instruction reads
** are not written any more, and their blocks are freed.
*/
#include "capture_list.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"

#include "kernel/math/maps.h"
#include "op/fused.h"

enum {
  MADE = FUSED_RESULTS + FUSED_ROOMS,
  MIN_FUSED_ROW = 64 /* elements of a row; for shorter rows separate functions are faster */
};

typedef struct input { /* an operand from outside the group */
  const moth_tensor *x; /* NULL: a number, of dtype */
  uint64_t element;
  uint8_t dtype;
} input;

typedef struct made {
  moth_tensor *y; /* NULL: a value that is not stored */
  uint8_t dtype;
  bool over;      /* a later result overwrites it */
} made;

typedef struct step { /* computes the made value of the same index */
  const moth_loops *loops;
  int dtype, n;
  int value[MOTH_MAP_OPERANDS]; /* from 1 on: input k as k, made value k as -1 - k */
  double numbers[3];
} step;

typedef struct group {
  uint32_t first, last; /* first and last instruction */
  int ninputs, nmade, ninstructions;
  input input[FUSED_INPUTS];
  made made[MADE];
  step step[MADE];
} group;

typedef struct joiner {
  moth_capture *c;
  moth_uses uses;
} joiner;

/* -- memory of values -- */

/* Is s used only inside the group? Then its contents need not be written. */
static bool is_own(const joiner *j, const group *g, const moth_storage *s) {
  const uint8_t dead = MOTH_C_INSIDE | MOTH_C_BURIED;
  const moth_use *u = moth_use_of(&j->uses, s);
  return u && !u->shared && s->capture == j->c->id && (s->held & dead) == dead &&
         u->first >= g->first && u->last <= g->last;
}

static bool is_result(const joiner *j, const group *g, const made *m) {
  return m->y && !m->over && !is_own(j, g, m->y->storage);
}

static bool same_strides(const moth_layout *a, const moth_layout *b) {
  for (int d = 0; d < a->ndim; d++)
    if (a->shape[d] != 1 && a->stride[d] != b->stride[d]) return false;
  return true;
}

static bool same_place(const moth_tensor *a, const moth_tensor *b) {
  return a->l.device == b->l.device && a->l.dtype == b->l.dtype && moth_at(a) == moth_at(b) &&
         moth_shape_same(&a->l, &b->l) && same_strides(&a->l, &b->l);
}

static bool overlap(const moth_tensor *a, const moth_tensor *b) {
  const int64_t m = moth_dtype_size[a->l.dtype], n = moth_dtype_size[b->l.dtype];
  int64_t a_low, a_high, b_low, b_high;
  if (a->l.device != b->l.device || a->l.numel == 0 || b->l.numel == 0) return false;
  moth_layout_span(&a->l, &a_low, &a_high);
  moth_layout_span(&b->l, &b_low, &b_high);
  return a->storage->data + a_low * m < b->storage->data + b_high * n &&
         b->storage->data + b_low * n < a->storage->data + a_high * m;
}

/* -- growing a group -- */

static const int NONE = -1 - MADE;

static int outside(group *g, const input *from) {
  const size_t size = (size_t)moth_dtype_size[from->dtype];
  for (int k = 0; k < g->ninputs; k++) {
    const input *in = &g->input[k];
    if (from->x ? in->x && same_place(in->x, from->x)
                : !in->x && in->dtype == from->dtype && !memcmp(&in->element, &from->element, size))
      return k;
  }
  if (g->ninputs == FUSED_INPUTS) return NONE;
  g->input[g->ninputs] = *from;
  return g->ninputs++;
}

/* The value of an operand, or NONE. own: the values of the instruction's previous functions. */
static int value_of(const joiner *j, group *g, const moth_listed_operand *o, const int *own) {
  input from = {.x = o->x, .element = o->element, .dtype = o->dtype};
  if (o->made >= 0) return own[o->made];
  if (o->x && moth_capture_number(j->c, o->x)) {
    from.x = NULL;
    memcpy(&from.element, moth_at(o->x), (size_t)moth_dtype_size[o->dtype]);
  }
  for (int k = g->nmade; from.x && k-- > 0;) {
    const made *m = &g->made[k];
    if (!m->y || m->over) continue;
    if (same_place(m->y, from.x)) return -1 - k;
    if (overlap(m->y, from.x)) return NONE;
  }
  return outside(g, &from);
}

/* Checks that a result can be written to y: over exactly an earlier value, or without overlap. */
static bool find_place(group *g, const moth_tensor *y) {
  for (int k = 0; k < g->nmade; k++) {
    made *m = &g->made[k];
    if (!m->y || m->over || !overlap(m->y, y)) continue;
    if (!same_place(m->y, y)) return false;
    m->over = true;
  }
  for (int k = 0; k < g->ninputs; k++) {
    const moth_tensor *x = g->input[k].x;
    if (x && overlap(x, y) && !same_place(x, y)) return false;
  }
  return true;
}

static bool add_step(const joiner *j, group *g, const moth_listed *f, moth_tensor *y,
                     const int *own) {
  step *s = &g->step[g->nmade];
  if (g->nmade == MADE || f->n > FUSED_VALUES) return false;
  *s = (step){.loops = f->loops, .dtype = f->dtype, .n = f->n};
  memcpy(s->numbers, f->numbers, sizeof s->numbers);
  for (int k = 1; k < f->n; k++)
    if ((s->value[k] = value_of(j, g, &f->operand[k], own)) == NONE) return false;
  if (y && !find_place(g, y)) return false;
  g->made[g->nmade++] = (made){.y = y, .dtype = f->operand[0].dtype};
  return true;
}

/* Is the group faster on the CPU? It is if rows are long and every operand is contiguous along
** them. */
static bool runs_well(const group *g, const moth_tensor *y) {
  const moth_tensor *operands[1 + FUSED_INPUTS] = {y};
  int n = 1;
  moth_loop loop;
  if (y->l.device) return true;
  for (int k = 0; k < g->ninputs; k++)
    if (g->input[k].x) operands[n++] = g->input[k].x;
  moth_loop_over(&loop, y->ctx, &y->l, n, operands);
  for (int k = 0; k < n && loop.ndim > 1; k++)
    if (loop.step[0][k] && loop.step[0][k] != moth_dtype_size[operands[k]->l.dtype]) return false;
  return loop.ndim == 1 || loop.size[0] >= MIN_FUSED_ROW;
}

/* Is x on y's device? A single element may be on the CPU. */
static bool goes_with(const moth_tensor *y, const moth_tensor *x) {
  return x->l.device == y->l.device || (x->l.device == 0 && x->l.ndim == 0);
}

/* Adds instruction i to the group. Returns false if it cannot join; g is then invalid. */
static bool add(const joiner *j, group *g, uint32_t i) {
  const moth_instruction *in = &j->c->code[i];
  moth_listed list[MOTH_LISTED];
  moth_tensor *y = in->out[0];
  const int n = moth_capture_list(j->c, in, list);
  int own[MOTH_LISTED];
  if (n == 0 || (y->l.device && !moth_op_fused.device)) return false;
  if (g->nmade) {
    const moth_layout *l = &j->c->code[g->first].out[0]->l;
    if (l->device != y->l.device || !moth_shape_same(l, &y->l) || !same_strides(l, &y->l))
      return false;
  }
  for (int k = 0; k < n; k++) {
    for (int o = 1; o < list[k].n; o++)
      if (list[k].operand[o].x && !goes_with(y, list[k].operand[o].x)) return false;
    if (!add_step(j, g, &list[k], k == n - 1 ? y : NULL, own)) return false;
    own[k] = -g->nmade;
  }
  g->last = i;
  g->ninstructions++;
  return runs_well(g, y);
}

static int results_of(const joiner *j, const group *g) {
  int n = 0;
  for (int k = 0; k < g->nmade; k++) n += is_result(j, g, &g->made[k]);
  return n;
}

/* Does instruction i follow the instructions of a guard, which may be skipped? */
static bool is_past(const moth_capture *c, uint32_t i) {
  for (const moth_guard *guard = c->guards; guard; guard = guard->next)
    if (guard->past == i) return true;
  return false;
}

/* Finds the longest group from g->first on that `fused` can run. */
static void grow_from(const joiner *j, group *best) {
  group now = *best;
  for (uint32_t i = now.first; i < j->c->ncode; i++) {
    if (i > now.first && is_past(j->c, i)) return;
    if (moth_capture_left_out(&j->c->code[i])) continue;
    if (!add(j, &now, i)) return;
    const int results = results_of(j, &now);
    if (results >= 1 && results <= FUSED_RESULTS && now.nmade - results <= FUSED_ROOMS)
      *best = now;
  }
}

/* -- replacing a group by an instruction -- */

static moth_tensor *number_tensor(moth_capture *c, const input *in) {
  struct {
    moth_tensor x;
    moth_storage s;
    uint64_t element;
  } *at = moth_capture_alloc(c, sizeof *at);
  if (!at) return NULL;
  at->element = in->element;
  at->s = (moth_storage){.refs = 1, .data = (char *)&at->element, .nbytes = 8};
  at->x = (moth_tensor){.refs = 1, .flags = MOTH_T_NUMBER, .ctx = c->ctx, .storage = &at->s,
                        .l = {.dtype = in->dtype, .numel = 1}};
  return &at->x;
}

/* Numbers the values for the program: inputs, results, then values that are not stored. */
static void number_values(const joiner *j, const group *g, int nres, int *number) {
  int result = g->ninputs, between = g->ninputs + nres;
  for (int k = 0; k < g->nmade; k++)
    number[k] = is_result(j, g, &g->made[k]) ? result++ : between++;
}

static void write_program(const group *g, const int *number, int64_t *words, int64_t *dtypes,
                          double *numbers) {
  for (int k = 0; k < g->nmade; k++, words += FUSED_WORDS, numbers += 3) {
    const step *s = &g->step[k];
    dtypes[number[k] - g->ninputs] = g->made[k].dtype;
    memset(words, 0, FUSED_WORDS * sizeof *words);
    words[0] = s->loops ? moth_map_number(s->loops) : FUSED_CONVERT;
    words[1] = s->dtype;
    words[2] = s->n;
    words[3] = number[k];
    for (int o = 1; o < s->n; o++)
      words[3 + o] = s->value[o] >= 0 ? s->value[o] : number[-1 - s->value[o]];
    memcpy(numbers, s->numbers, sizeof s->numbers);
  }
}

/* Returns NULL with the error set. */
static fused_args *program_of(moth_capture *c, const group *g, const int *number, int nres) {
  fused_args *a = moth_capture_alloc(c, (int64_t)moth_fused_bytes(g->nmade));
  moth_tensor **inputs = moth_capture_alloc(c, (int64_t)sizeof(moth_tensor *) * g->ninputs);
  int64_t *words = moth_capture_alloc(c, (int64_t)sizeof *words * FUSED_WORDS * g->nmade);
  int64_t *dtypes = moth_capture_alloc(c, (int64_t)sizeof *dtypes * g->nmade);
  double *numbers = moth_capture_alloc(c, (int64_t)sizeof *numbers * 3 * g->nmade);
  if (!a || !inputs || !words || !dtypes || !numbers) return NULL;
  write_program(g, number, words, dtypes, numbers);
  for (int k = 0; k < g->ninputs; k++) {
    const input *in = &g->input[k];
    inputs[k] = in->x ? (moth_tensor *)(uintptr_t)in->x : number_tensor(c, in);
    if (!inputs[k]) return NULL;
  }
  *a = (fused_args){.ctx = c->ctx, .input = {inputs, g->ninputs}, .results = nres,
                    .steps = {words, g->nmade * FUSED_WORDS}, .dtypes = {dtypes, g->nmade},
                    .numbers = {numbers, 3 * g->nmade}};
  return a;
}

/* Frees the blocks of results that are not written any more. */
static void drop_blocks(const joiner *j, const group *g) {
  for (int k = 0; k < g->nmade; k++) {
    moth_storage *s = g->made[k].y ? g->made[k].y->storage : NULL;
    if (!s || s->held & MOTH_C_UNMADE || !is_own(j, g, s)) continue;
    moth_capture_drop_block(j->c, s);
  }
}

/* The kernel that runs the program. NULL: the instructions stay separate. */
static moth_kernel kernel_of(fused_args *a, int device) {
  bool there = false;
  for (int64_t k = 0; k < a->input.n; k++) there |= a->input.at[k]->l.device == device;
  if (!there) return NULL;
  const int status = device ? moth_fused_ready(a) : moth_fused_read(a);
  if (status) moth_error_clear(a->ctx);
  if (status) return NULL;
  return device ? moth_op_fused.device : moth_fused_again;
}

static int emit(const joiner *j, const group *g) {
  moth_capture *c = j->c;
  moth_instruction *in = &c->code[g->first], whole = {.op = &moth_op_fused, .launches = 1};
  const int nres = results_of(j, g);
  int number[MADE];
  number_values(j, g, nres, number);
  fused_args *a = program_of(c, g, number, nres);
  if (!a) return c->ctx->error.code;
  whole.args = a;
  whole.device = in->out[0]->l.device;
  whole.run = kernel_of(a, whole.device);
  if (!whole.run) return MOTH_OK;
  for (int k = 0; k < g->nmade; k++)
    if (number[k] < g->ninputs + nres) whole.out[number[k] - g->ninputs] = g->made[k].y;
  for (uint32_t i = g->first + 1; i <= g->last; i++) c->code[i].joined = true;
  *in = whole;
  drop_blocks(j, g);
  return MOTH_OK;
}

int moth_capture_join(moth_capture *c) {
  joiner j = {.c = c};
  int status = c->ncode > 1 ? moth_uses_find(&j.uses, c) : MOTH_OK;
  for (uint32_t i = 0; i < c->ncode && j.uses.at && !status; i++) {
    group best = {.first = i};
    if (moth_capture_left_out(&c->code[i])) continue;
    grow_from(&j, &best);
    if (best.ninstructions < 2) continue;
    status = emit(&j, &best);
    i = best.last;
  }
  moth_dealloc(c->ctx, j.uses.at, (int64_t)(j.uses.n * sizeof *j.uses.at));
  return status;
}

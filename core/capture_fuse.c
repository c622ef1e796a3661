/* capture_fuse.c -- instructions of a recording that one kernel can do: what stands behind an
** instruction whose result it alone reads becomes a part of that, or the other way round (the table
** below). And what need not be written: a norm's f32 result where products alone read it, in their
** dtype. capture.h tells how recordings work.
**
** The step itself ran both, and a replay gives the same bits. The result between them is not made
** any more, and its block goes back to the allocator unless another one lay there too.
*/
#include "capture_parts.h"
#include "frame.h"

#include "op/arith.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/unary.h"

/* -- who reads and writes what lies between -- */

static bool reads(const moth_instruction *in, const moth_storage *s) {
  const moth_guard *guard = moth_guard_of(in);
  for (uint32_t i = 0; guard && i < guard->nfound; i++)
    if (guard->found[i]->storage == s) return true;
  if (guard || in->joined) return false;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  while (moth_next_input(&cursor))
    if (*cursor.at && (*cursor.at)->storage == s) return true;
  return false;
}

static bool writes(const moth_instruction *in, const moth_storage *s) {
  if (in->joined) return false;
  for (int i = 0; i < MOTH_MAX_OUTPUTS && in->out[i]; i++)
    if (in->out[i]->storage == s) return true;
  return in->op->flags & MOTH_OP_WHOLE && reads(in, s);
}

static bool has_alias(const moth_capture *c, const moth_storage *s) {
  if (s->capture != c->id || s->root) return true;
  for (uint32_t k = 0; k < c->nstores; k++)
    if (c->stores[k].s->root == s) return true;
  return false;
}

/* Whether `writer` alone writes s. */
static bool is_written_once(const moth_capture *c, uint32_t writer, const moth_storage *s) {
  if (has_alias(c, s)) return false;
  for (uint32_t k = 0; k < c->ncode; k++)
    if (k != writer && writes(&c->code[k], s)) return false;
  return true;
}

/* Whether from instruction a on b is the only one that reads s, and nobody outside will, since it
** died meanwhile. */
static bool is_between(const moth_capture *c, uint32_t a, uint32_t b, const moth_storage *s) {
  const uint8_t needs = MOTH_C_INSIDE | MOTH_C_BURIED;
  if (has_alias(c, s) || (s->held & needs) != needs) return false;
  for (uint32_t k = a + 1; k < c->ncode; k++)
    if (k != b && reads(&c->code[k], s)) return false;
  return true;
}

static bool overlap(const moth_storage *a, const moth_storage *b) {
  const char *p = a->data, *q = b->data;
  return a->device == b->device && p < q + b->nbytes && q < p + a->nbytes;
}

/* Whether an instruction writes bytes of x, or reads them where `any`. */
static bool touches(const moth_instruction *in, const moth_tensor *x, bool any) {
  if (in->joined) return false;
  for (int i = 0; i < MOTH_MAX_OUTPUTS && in->out[i]; i++)
    if (overlap(in->out[i]->storage, x->storage)) return true;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  if (any || in->op->flags & MOTH_OP_WHOLE)
    while (moth_next_input(&cursor))
      if (*cursor.at && overlap((*cursor.at)->storage, x->storage)) return true;
  return false;
}

static bool any_touches(const moth_capture *c, uint32_t from, uint32_t to, const moth_tensor *x,
                        bool any) {
  for (uint32_t k = from; k < to; k++)
    if (touches(&c->code[k], x, any)) return true;
  return false;
}

/* -- the joins -- */

/* Both in a row, of whatever shapes. */
static bool same_elements(const moth_tensor *a, const moth_tensor *b) {
  return a->l.dtype == b->l.dtype && a->l.numel == b->l.numel && moth_contiguous(a) &&
         moth_contiguous(b);
}

/* In the same order in memory, of the same shape. */
static bool lie_alike(const moth_tensor *a, const moth_tensor *b) {
  moth_layout l = b->l;
  l.offset = a->l.offset;
  return a->l.dtype == b->l.dtype && moth_dense(a) && moth_layout_same(&a->l, &l);
}

static bool same_place(const moth_tensor *a, const moth_tensor *b) {
  return a->storage == b->storage && a->l.offset == b->l.offset &&
         (same_elements(a, b) || lie_alike(a, b));
}

typedef struct pair { /* instructions a and b of the code: b reads what a gives */
  const moth_capture *c;
  uint32_t a, b;
  moth_instruction *first, *next;
} pair;

/* A join in the place of a: b's result must not be written too early. What a reads, or gives beside
** its result, may have died before that was made, and have left it its block; a norm may write over
** its input. */
static bool can_write_early(const pair *p) {
  const moth_instruction *first = p->first;
  const moth_tensor *y = p->next->out[0], *x = first->out[0];
  if (any_touches(p->c, p->a + 1, p->b, y, true)) return false;
  if (y->storage == x->storage) return y->l.offset == x->l.offset; /* in place: nobody saw it */
  if (!is_between(p->c, p->a, p->b, x->storage)) return false;
  for (int i = 1; i < MOTH_MAX_OUTPUTS && first->out[i]; i++)
    if (overlap(first->out[i]->storage, y->storage)) return false;
  moth_cursor cursor = {.op = first->op, .args = first->args};
  while (moth_next_input(&cursor)) {
    const moth_tensor *from = *cursor.at;
    if (!from || !overlap(from->storage, y->storage)) continue;
    const bool input = first->op == &moth_op_channel_norm && cursor.from == 0;
    if (!input || moth_at(from) != moth_at(y) || !lie_alike(from, y)) return false;
  }
  return true;
}

static bool join_linear_relu(const pair *p) {
  linear_args *a = p->first->args;
  const moth_tensor *x = ((const relu_args *)p->next->args)->input;
  if (a->activation || !same_place(x, p->first->out[0]) || !same_elements(x, p->next->out[0]) ||
      !can_write_early(p))
    return false;
  a->activation = LINEAR_RELU;
  return true;
}

static bool join_norm_relu(const pair *p) {
  channel_norm_args *a = p->first->args;
  const moth_tensor *x = ((const relu_args *)p->next->args)->input, *y = p->first->out[0];
  if (a->activation || !same_place(x, y) || !lie_alike(x, y) || !lie_alike(y, p->next->out[0]) ||
      !can_write_early(p))
    return false;
  a->activation = NORM_RELU;
  return true;
}

static bool is_one(moth_scalar s) { return s.type == 0 ? s.as.number == 1 : s.as.integer == 1; }

/* Whether the norm may write its result over what it adds. */
static bool is_added_to(const moth_tensor *residual, const moth_tensor *y) {
  return same_place(residual, y) && lie_alike(residual, y) &&
         (y->l.device || !moth_is_half(y->l.dtype));
}

/* The sum's other operand must be there when the norm runs, and stay until then. */
static bool join_norm_add(const pair *p) {
  channel_norm_args *a = p->first->args;
  const add_args *sum = p->next->args;
  const moth_tensor *y = p->next->out[0], *x = p->first->out[0];
  const bool first = sum->input->storage == x->storage;
  const moth_tensor *summand = first ? sum->input : sum->other;
  moth_tensor *residual = first ? sum->other : sum->input;
  if (a->activation || a->residual || !is_one(sum->alpha) || !same_place(summand, x) ||
      !lie_alike(summand, x) || !lie_alike(x, y) || residual->l.dtype != y->l.dtype ||
      !moth_shape_same(&residual->l, &y->l) || overlap(residual->storage, x->storage) ||
      (overlap(residual->storage, y->storage) && !is_added_to(residual, y)) ||
      any_touches(p->c, p->a, p->b, residual, false) || !can_write_early(p))
    return false;
  a->residual = residual;
  return true;
}

/* Where the gradient is that of a norm with its relu, the norm's map tells what was let through. */
static bool is_masked_by(const pair *p, const moth_tensor *map, const moth_tensor *relued) {
  for (uint32_t k = 0; map && k < p->a; k++) {
    const moth_instruction *in = &p->c->code[k];
    if (in->joined || in->op != &moth_op_channel_norm || !in->run || !in->out[3]) continue;
    const channel_norm_args *a = in->args;
    if (in->out[3]->storage == map->storage)
      return a->activation && !a->residual && same_place(in->out[0], relued) &&
             is_written_once(p->c, k, relued->storage);
  }
  return false;
}

/* In the place of b. */
static bool join_relu_norm_back(const pair *p) {
  const relu_back_args *relu = p->first->args;
  channel_norm_back_args *a = p->next->args;
  moth_tensor *dy = relu->grad;
  const moth_tensor *g = p->first->out[0];
  if (a->activation || !same_place(a->grad, g) || !lie_alike(g, dy) || !lie_alike(g, a->grad) ||
      !is_masked_by(p, a->map, relu->output) ||
      any_touches(p->c, p->a + 1, p->b, dy, false) || touches(p->next, dy, false))
    return false;
  if (!is_between(p->c, p->a, p->b, g->storage)) return false;
  a->activation = NORM_RELU;
  a->grad = dy;
  return true;
}

static const struct join {
  const moth_op *first, *next;
  bool (*make)(const pair *p); /* changes the args of the one that stays, unless it cannot */
  bool late;                   /* the second one stays */
} joins[] = {
  {&moth_op_linear, &moth_op_relu, join_linear_relu, false},
  {&moth_op_channel_norm, &moth_op_add, join_norm_add, false},
  {&moth_op_channel_norm, &moth_op_relu, join_norm_relu, false},
  {&moth_op_relu_back, &moth_op_channel_norm_back, join_relu_norm_back, true},
};
enum { JOINS = sizeof joins / sizeof *joins };

/* Whether nothing else may happen between a and b: neither is in what a guard leaves out alone. */
static bool is_straight(const moth_capture *c, uint32_t a, uint32_t b) {
  for (uint32_t k = a + 1; k < b; k++)
    if (moth_guard_of(&c->code[k])) return false;
  for (const moth_guard *guard = c->guards; guard; guard = guard->next)
    if (guard->past > a && guard->past <= b) return false;
  return true;
}

/* The instruction that reads the result of a next; ncode: there is none. */
static uint32_t reader_of(const moth_capture *c, uint32_t a) {
  uint32_t b = a + 1;
  while (b < c->ncode && !reads(&c->code[b], c->code[a].out[0]->storage)) b++;
  return b;
}

/* The block of a result that is not made any more, unless another one lies there too. */
void moth_capture_drop_block(moth_capture *c, moth_storage *s) {
  for (uint32_t k = 0; k < c->ncode; k++)
    if (writes(&c->code[k], s)) return;
  s->held |= MOTH_C_UNMADE;
  for (uint32_t k = 0; k < c->nstores; k++) {
    const moth_storage *other = c->stores[k].s;
    if (other != s && !(other->held & MOTH_C_UNMADE) && overlap(other, s)) return;
  }
  for (uint32_t i = 0; i < c->npool; i++) {
    const moth_spare spare = c->pool[i];
    if (spare.block != s->data || spare.device != s->device) continue;
    c->pool[i] = c->pool[--c->npool];
    moth_capture_free_block(c->ctx, &spare);
    return;
  }
}

/* The kernel of a norm writes no f32 result where both results are one tensor. */
static void skip_result(moth_capture *c, uint32_t i) {
  moth_instruction *in = &c->code[i];
  const int brief = in->run ? moth_autocast_brief(in->op) : 0;
  if (!brief || !in->out[brief] || !is_between(c, i, c->ncode, in->out[0]->storage)) return;
  moth_storage *unread = in->out[0]->storage;
  in->out[0] = in->out[brief];
  moth_capture_drop_block(c, unread);
}

/* Joins instruction a and the one that reads what it gives, if they can be. */
static bool join(moth_capture *c, uint32_t a) {
  const uint32_t b = c->code[a].run && c->code[a].out[0] ? reader_of(c, a) : c->ncode;
  if (b == c->ncode || !c->code[b].run || !is_straight(c, a, b)) return false;
  const pair p = {c, a, b, &c->code[a], &c->code[b]};
  for (int i = 0; i < JOINS; i++) {
    if (joins[i].first != p.first->op || joins[i].next != p.next->op) continue;
    if (!joins[i].make(&p)) continue;
    moth_instruction *stays = joins[i].late ? p.next : p.first;
    moth_instruction *goes = joins[i].late ? p.first : p.next;
    const moth_tensor *between = p.first->out[0], *kept = between;
    if (joins[i].late) kept = ((const relu_back_args *)goes->args)->grad;
    else kept = p.first->out[0] = p.next->out[0];
    stays->facts |= goes->facts;
    goes->joined = true;
    if (between->storage != kept->storage) moth_capture_drop_block(c, between->storage);
    return true;
  }
  return false;
}

void moth_capture_fuse(moth_capture *c) {
  for (uint32_t i = 0; i < c->ncode; i++) skip_result(c, i);
  for (uint32_t i = 0; i < c->ncode; i++)
    while (!c->code[i].joined && join(c, i)) continue;
}

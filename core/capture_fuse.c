/* capture_fuse.c -- instructions of a recording that one kernel can do: a relu right behind the
** linear whose result it alone reads becomes a part of that. And what need not be written: a norm's
** f32 result where products alone read it, in their dtype. capture.h tells how recordings work.
**
** The step itself ran both, and a replay gives the same bits. The result between them is not made
** any more, and its block goes back to the allocator unless another one lay there too.
*/
#include "capture_parts.h"
#include "frame.h"

#include "op/matmul.h"
#include "op/unary.h"

/* -- who reads what lies between -- */

static bool reads(const moth_instruction *in, const moth_storage *s) {
  const moth_guard *guard = moth_guard_of(in);
  for (uint32_t i = 0; guard && i < guard->nfound; i++)
    if (guard->found[i]->storage == s) return true;
  if (guard) return false;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  while (moth_next_input(&cursor))
    if (*cursor.at && (*cursor.at)->storage == s) return true;
  return false;
}

/* Whether the result s is read by instruction `reader` alone, and written once: neither others nor
** an alias have it, and nobody outside, since it died meanwhile. */
static bool is_between(const moth_capture *c, uint32_t reader, const moth_storage *s) {
  const uint8_t needs = MOTH_C_INSIDE | MOTH_C_BURIED;
  if (s->capture != c->id || s->root || (s->held & (needs | MOTH_C_AGAIN)) != needs) return false;
  for (uint32_t k = 0; k < c->nstores; k++)
    if (c->stores[k].s->root == s) return false;
  for (uint32_t k = 0; k < c->ncode; k++)
    if (k != reader && reads(&c->code[k], s)) return false;
  return true;
}

static bool overlap(const moth_storage *a, const moth_storage *b) {
  const char *p = a->data, *q = b->data;
  return a->device == b->device && p < q + b->nbytes && q < p + a->nbytes;
}

/* The block of y may have been that of something which linear reads, and which died before y was
** made. */
static bool spoils(const moth_instruction *linear, const moth_tensor *y) {
  moth_cursor cursor = {.op = linear->op, .args = linear->args};
  while (moth_next_input(&cursor))
    if (*cursor.at && overlap((*cursor.at)->storage, y->storage)) return true;
  return false;
}

/* -- joining them -- */

static bool same_elements(const moth_tensor *a, const moth_tensor *b) {
  return a->l.dtype == b->l.dtype && a->l.numel == b->l.numel && moth_contiguous(a) &&
         moth_contiguous(b);
}

static bool can_join(const moth_capture *c, uint32_t i) {
  const moth_instruction *first = &c->code[i], *next = first + 1;
  if (first->op != &moth_op_linear || next->op != &moth_op_relu || !first->run || !next->run)
    return false;
  if (((const linear_args *)first->args)->activation != LINEAR_PLAIN) return false;
  const moth_tensor *x = ((const relu_args *)next->args)->input, *y = next->out[0];
  if (x->storage != first->out[0]->storage || x->l.offset != first->out[0]->l.offset) return false;
  if (!same_elements(x, first->out[0]) || !same_elements(x, y)) return false;
  for (const moth_guard *guard = c->guards; guard; guard = guard->next)
    if (guard->past == i + 1) return false; /* the first alone may be left out */
  if (y->storage == x->storage) return y->l.offset == x->l.offset; /* in place: nobody saw it */
  return is_between(c, i + 1, x->storage) && !spoils(first, y);
}

/* The block of a result that is not made any more. */
static void drop_block(moth_capture *c, const moth_storage *s) {
  for (uint32_t k = 0; k < c->nstores; k++)
    if (c->stores[k].s != s && overlap(c->stores[k].s, s)) return;
  for (uint32_t i = 0; i < c->npool; i++) {
    const moth_spare spare = c->pool[i];
    if (spare.block != s->data || spare.device != s->device) continue;
    c->pool[i] = c->pool[--c->npool];
    moth_capture_free_block(c->ctx, &spare);
    return;
  }
}

/* The kernel of a norm writes no f32 result where both results are one tensor. */
static void skip_result(moth_capture *c, moth_instruction *in) {
  const int brief = in->run ? moth_autocast_brief(in->op) : 0;
  if (!brief || !in->out[brief] || !is_between(c, c->ncode, in->out[0]->storage)) return;
  const moth_storage *unread = in->out[0]->storage;
  in->out[0] = in->out[brief];
  drop_block(c, unread);
}

void moth_capture_fuse(moth_capture *c) {
  for (uint32_t i = 0; i < c->ncode; i++) skip_result(c, &c->code[i]);
  for (uint32_t i = 0; i + 1 < c->ncode; i++) {
    moth_instruction *first = &c->code[i], *next = first + 1;
    if (!can_join(c, i)) continue;
    const moth_storage *between = first->out[0]->storage;
    ((linear_args *)first->args)->activation = LINEAR_RELU;
    first->out[0] = next->out[0];
    first->facts |= next->facts;
    next->joined = true;
    if (between != next->out[0]->storage) drop_block(c, between);
  }
}

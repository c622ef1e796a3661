/* capture_fuse_pairs.c -- fuses pairs of instructions of a captured step (capture.h). If only b
** reads the result of a, one kernel may run both, by a rule in the record of its op
** (`.fuses_with`). A normalization does not write its f32 result if only products read it, in
** their dtype.
**
** The step itself ran both, and a replay returns the same bits. The intermediate result is not
** computed any more. Its block is freed unless another result uses it too.
*/
#include "capture_fuse_pairs.h"
#include "tensor/shape.h"

#include "call/frame.h"

/* -- reads and writes of other instructions -- */

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

bool moth_capture_written_once(const moth_capture *c, uint32_t writer, const moth_storage *s) {
  if (has_alias(c, s)) return false;
  for (uint32_t k = 0; k < c->ncode; k++)
    if (k != writer && writes(&c->code[k], s)) return false;
  return true;
}

bool moth_capture_only_reader(const moth_capture *c, uint32_t a, uint32_t b,
                              const moth_storage *s) {
  const uint8_t needs = MOTH_C_INSIDE | MOTH_C_BURIED;
  if (has_alias(c, s) || (s->held & needs) != needs) return false;
  for (uint32_t k = a + 1; k < c->ncode; k++)
    if (k != b && reads(&c->code[k], s)) return false;
  return true;
}

bool moth_storages_overlap(const moth_storage *a, const moth_storage *b) {
  const char *p = a->data, *q = b->data;
  return a->device == b->device && p < q + b->nbytes && q < p + a->nbytes;
}

/* Does an instruction write bytes of x, or with `any` read them? */
static bool touches(const moth_instruction *in, const moth_tensor *x, bool any) {
  if (in->joined) return false;
  for (int i = 0; i < MOTH_MAX_OUTPUTS && in->out[i]; i++)
    if (moth_storages_overlap(in->out[i]->storage, x->storage)) return true;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  if (any || in->op->flags & MOTH_OP_WHOLE)
    while (moth_next_input(&cursor))
      if (*cursor.at && moth_storages_overlap((*cursor.at)->storage, x->storage)) return true;
  return false;
}

bool moth_capture_touches(const moth_capture *c, uint32_t from, uint32_t to, const moth_tensor *x,
                          bool any) {
  for (uint32_t k = from; k < to; k++)
    if (touches(&c->code[k], x, any)) return true;
  return false;
}

/* -- comparing tensors -- */

bool moth_same_elements(const moth_tensor *a, const moth_tensor *b) {
  return a->l.dtype == b->l.dtype && a->l.numel == b->l.numel && moth_contiguous(a) &&
         moth_contiguous(b);
}

bool moth_lie_alike(const moth_tensor *a, const moth_tensor *b) {
  moth_layout l = b->l;
  l.offset = a->l.offset;
  return a->l.dtype == b->l.dtype && moth_dense(a) && moth_layout_same(&a->l, &l);
}

bool moth_same_bytes(const moth_tensor *a, const moth_tensor *b) {
  return a->storage == b->storage && a->l.offset == b->l.offset &&
         (moth_same_elements(a, b) || moth_lie_alike(a, b));
}

/* a's inputs and further results may have been freed before b's result was made, which may use
** their block. */
bool moth_pair_early(const moth_pair *p, bool over_input) {
  const moth_instruction *first = p->first;
  const moth_tensor *y = p->next->out[0], *x = first->out[0];
  if (moth_capture_touches(p->c, p->a + 1, p->b, y, true)) return false;
  if (y->storage == x->storage) return y->l.offset == x->l.offset; /* in place */
  if (!moth_capture_only_reader(p->c, p->a, p->b, x->storage)) return false;
  for (int i = 1; i < MOTH_MAX_OUTPUTS && first->out[i]; i++)
    if (moth_storages_overlap(first->out[i]->storage, y->storage)) return false;
  moth_cursor cursor = {.op = first->op, .args = first->args};
  while (moth_next_input(&cursor)) {
    const moth_tensor *from = *cursor.at;
    if (!from || !moth_storages_overlap(from->storage, y->storage)) continue;
    if (!over_input || cursor.from != 0 || moth_at(from) != moth_at(y) || !moth_lie_alike(from, y))
      return false;
  }
  return true;
}

/* -- instructions -- */

/* Do a and b always run together? Not if a guard can skip one of them. */
static bool is_straight(const moth_capture *c, uint32_t a, uint32_t b) {
  for (uint32_t k = a + 1; k < b; k++)
    if (moth_guard_of(&c->code[k])) return false;
  for (const moth_guard *guard = c->guards; guard; guard = guard->next)
    if (guard->past > a && guard->past <= b) return false;
  return true;
}

/* The next instruction that reads the result of a; ncode: none. */
static uint32_t reader_of(const moth_capture *c, uint32_t a) {
  uint32_t b = a + 1;
  while (b < c->ncode && !reads(&c->code[b], c->code[a].out[0]->storage)) b++;
  return b;
}

/* Frees the block of a result that no instruction makes any more, unless another result uses it. */
void moth_capture_drop_block(moth_capture *c, moth_storage *s) {
  for (uint32_t k = 0; k < c->ncode; k++)
    if (writes(&c->code[k], s)) return;
  s->held |= MOTH_C_UNMADE;
  for (uint32_t k = 0; k < c->nstores; k++) {
    const moth_storage *other = c->stores[k].s;
    if (other != s && !(other->held & MOTH_C_UNMADE) && moth_storages_overlap(other, s)) return;
  }
  for (uint32_t i = 0; i < c->npool; i++) {
    const moth_spare spare = c->pool[i];
    if (spare.block != s->data || spare.device != s->device) continue;
    c->pool[i] = c->pool[--c->npool];
    moth_capture_free_block(c->ctx, &spare);
    return;
  }
}

/* If both results of a normalization are one tensor, its kernel does not write the f32 result. */
static void skip_result(moth_capture *c, uint32_t i) {
  moth_instruction *in = &c->code[i];
  const int half_copy = in->run ? moth_autocast_half_copy(in->op) : 0;
  if (!half_copy || !in->out[half_copy] ||
      !moth_capture_only_reader(c, i, c->ncode, in->out[0]->storage))
    return;
  moth_storage *unread = in->out[0]->storage;
  in->out[0] = in->out[half_copy];
  moth_capture_drop_block(c, unread);
}

/* The rule by which one kernel runs both instructions, if it accepts them; else NULL. */
static const moth_fusion *rule_of(const moth_pair *p, const moth_op *stays, const moth_op *goes,
                                  bool before) {
  for (const moth_fusion *rule = stays->fuses_with; rule && rule->with; rule++)
    if (rule->with == goes && rule->before == before && rule->fuse(p)) return rule;
  return NULL;
}

static const moth_tensor *first_input(const moth_instruction *in) {
  moth_cursor cursor = {.op = in->op, .args = in->args};
  moth_next_input(&cursor);
  return *cursor.at;
}

/* Fuses instruction a with the instruction that reads its result, if a rule allows it. */
static bool fuse(moth_capture *c, uint32_t a) {
  const uint32_t b = c->code[a].run && c->code[a].out[0] ? reader_of(c, a) : c->ncode;
  if (b == c->ncode || !c->code[b].run || !is_straight(c, a, b)) return false;
  const moth_pair p = {c, a, b, &c->code[a], &c->code[b]};
  const bool early = rule_of(&p, p.first->op, p.next->op, false) != NULL;
  if (!early && !rule_of(&p, p.next->op, p.first->op, true)) return false;
  moth_instruction *stays = early ? p.first : p.next, *goes = early ? p.next : p.first;
  const moth_tensor *between = p.first->out[0], *kept = between;
  if (early) kept = p.first->out[0] = p.next->out[0];
  else kept = first_input(goes);
  stays->facts |= goes->facts;
  goes->joined = true;
  if (between->storage != kept->storage) moth_capture_drop_block(c, between->storage);
  return true;
}

void moth_capture_fuse(moth_capture *c) {
  for (uint32_t i = 0; i < c->ncode; i++) skip_result(c, i);
  for (uint32_t i = 0; i < c->ncode; i++)
    while (!c->code[i].joined && fuse(c, i)) continue;
}

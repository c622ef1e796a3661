/* args.c -- converts a caller's slots to an op's arguments: resolves handles, copies lists, checks
** values, fills in defaults. Also the frame that holds the arguments.
*/
#include "device/device.h"
#include "frame.h"
#include "registry.h"
#include "tensor/tensor.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/handles.h"

#define MOST_IN_LIST ((int64_t)1 << 31)

void moth_frame_open(moth_call_frame *f, moth_ctx *ctx) {
  f->temps = (moth_results){.ctx = ctx, .at = f->own, .capacity = MOTH_TEMPS};
  f->nlists = 0;
  f->device = 0;
  f->args.ctx = ctx;
}

/* Keeps an owned tensor until the call ends. The first MOTH_TEMPS need no allocation. */
moth_tensor *moth_frame_keep(moth_call_frame *f, moth_tensor *take) {
  moth_results *t = &f->temps;
  if (!take) return NULL;
  if (t->n == t->capacity && t->at == f->own) {
    moth_tensor **at = moth_alloc(t->ctx, (int64_t)(2 * MOTH_TEMPS * sizeof *at));
    if (!at) {
      moth_tensor_release(take);
      return NULL;
    }
    memcpy(at, f->own, sizeof f->own);
    t->at = at;
    t->capacity = 2 * MOTH_TEMPS;
  }
  return moth_results_push(t, take) ? NULL : take;
}

void moth_frame_close(moth_call_frame *f) {
  moth_results_clear(&f->temps);
  if (f->temps.at != f->own)
    moth_dealloc(f->temps.ctx, f->temps.at, (int64_t)(f->temps.capacity * sizeof(moth_tensor *)));
  while (f->nlists) {
    f->nlists--;
    moth_dealloc(f->temps.ctx, f->list[f->nlists], f->list_bytes[f->nlists]);
  }
}

moth_tensor **moth_frame_list(moth_call_frame *f, int64_t n) {
  int64_t bytes = (n ? n : 1) * (int64_t)sizeof(moth_tensor *);
  void *block = NULL;
  if (f->nlists < MOTH_LISTS)
    block = moth_alloc(f->temps.ctx, bytes);
  else
    moth_fail(f->temps.ctx, MOTH_E_UNSUPPORTED, NULL, "more than %d lists", MOTH_LISTS);
  if (!block) return NULL;
  f->list[f->nlists] = block;
  f->list_bytes[f->nlists++] = bytes;
  return block;
}

int moth_frame_own_lists(moth_call_frame *f, const moth_op *op) {
  for (uint32_t row = 0; row < op->nrows; row++) {
    if (!moth_kind_is_list(op->kinds[row])) continue;
    moth_tensors *list = (moth_tensors *)(void *)(f->args.slot + op->rows[row].slot);
    moth_tensor **at = moth_frame_list(f, list->n);
    if (!at) return f->temps.ctx->error.code;
    if (list->n) memcpy(at, list->at, (size_t)list->n * sizeof *at);
    list->at = at;
  }
  return MOTH_OK;
}

/* -- reading the slots -- */

static int read_list(moth_call_frame *f, const moth_op *op, uint32_t row, const moth_slot *from,
                     moth_tensors *to) {
  moth_ctx *ctx = f->temps.ctx;
  const moth_handle *handles = from[0].pointer;
  int64_t n = from[1].integer;
  to->n = n;
  to->at = moth_frame_list(f, n);
  if (!to->at) return ctx->error.code;
  for (int64_t i = 0; i < n; i++) {
    bool absent = handles[i]._slot == 0 && op->kinds[row] == MOTH_KIND_indices;
    to->at[i] = absent ? NULL : moth_resolve(ctx, &handles[i], op->rows[row].name);
    if (!to->at[i] && !absent) return ctx->error.code;
  }
  return MOTH_OK;
}

static int read_tensor(moth_ctx *ctx, const moth_op *op, uint32_t row, const moth_slot *from,
                       moth_slot *to) {
  int kind = op->kinds[row];
  bool optional = kind == MOTH_KIND_maybe_tensor || kind == MOTH_KIND_maybe_index ||
                  kind == MOTH_KIND_generator;
  to->pointer = NULL;
  if (optional && from->handle._slot == 0) return MOTH_OK;
  to->pointer = moth_resolve(ctx, &from->handle, op->rows[row].name);
  return to->pointer ? MOTH_OK : ctx->error.code;
}

/* Checks values that are used as sizes, counts or table indices later. */
static int check_plain(moth_ctx *ctx, const moth_op *op, uint32_t row, const moth_slot *v) {
  int kind = op->kinds[row];
  bool good = true;
  if (moth_kind_is_ints(kind) || moth_kind_is_list(kind))
    good = v[1].integer >= 0 && v[1].integer <= MOST_IN_LIST && (v[0].pointer || !v[1].integer);
  else if (kind == MOTH_KIND_dtype) good = v->integer >= -1 && v->integer < MOTH_DTYPES;
  else if (moth_kind_is_choice(kind))
    good = v->integer >= 0 && v->integer < op->defaults[row].choices;
  else if (kind == MOTH_KIND_device && v->integer > 0)
    return moth_device_check(ctx, op->rows[row].name, v->integer - 1);
  else if (kind == MOTH_KIND_device) good = v->integer == 0;
  else if (moth_kind_is_scalar(kind)) good = v->integer >= 0 && v->integer <= 2;
  if (good) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_ARG, op->rows[row].name, "not a valid %s", op->rows[row].kind);
}

/* A value has one slot or two, so memcpy is not worth its call. */
static inline void copy_slots(moth_slot *to, const moth_slot *from, uint32_t n) {
  to[0] = from[0];
  for (uint32_t i = 1; i < n; i++) to[i] = from[i];
}

static int fill_default(const moth_op *op, moth_args *args, uint32_t row) {
  const moth_default *d = &op->defaults[row];
  if (d->type == MOTH_REQUIRED)
    return moth_fail(args->ctx, MOTH_E_ARG, op->rows[row].name, "a value is needed, got nothing");
  const moth_arg *at = &op->rows[row];
  moth_slot *to = args->slot + at->slot;
  if (d->type == MOTH_EARLIER) {
    const moth_arg *e = &op->rows[d->earlier];
    for (uint32_t i = 0; i < at->nslots; i++)
      to[i] = args->slot[e->slot + (e->nslots == at->nslots ? i : 0)];
  } else {
    copy_slots(to, d->value, at->nslots);
  }
  return MOTH_OK;
}

int moth_read_args(moth_call_frame *f, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                     uint64_t given) {
  moth_ctx *ctx = f->temps.ctx;
  for (uint32_t row = 0; row < op->nrows; row++) {
    const moth_arg *at = &op->rows[row];
    int kind = op->kinds[row], status = MOTH_OK;
    if (!(given >> row & 1u) || at->slot + at->nslots > nslots) {
      status = fill_default(op, &f->args, row);
    } else if ((status = check_plain(ctx, op, row, slots + at->slot)) != MOTH_OK) {
      return status;
    } else if (moth_kind_is_tensor(kind)) {
      status = read_tensor(ctx, op, row, slots + at->slot, f->args.slot + at->slot);
    } else if (moth_kind_is_list(kind)) {
      moth_tensors *list = (moth_tensors *)(void *)(f->args.slot + at->slot);
      status = read_list(f, op, row, slots + at->slot, list);
    } else {
      copy_slots(f->args.slot + at->slot, slots + at->slot, at->nslots);
    }
    if (status) return status;
  }
  return MOTH_OK;
}

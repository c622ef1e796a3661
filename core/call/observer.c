/* observer.c -- the chain of a context's observers. */
#include "observer.h"

void moth_observer_add(moth_ctx *ctx, moth_observer *o) {
  moth_observer **at = &ctx->observer;
  while (*at && (*at)->rank < o->rank) at = &(*at)->next;
  o->next = *at;
  *at = o;
}

void moth_observer_remove(moth_ctx *ctx, const moth_observer *o) {
  moth_observer **at = &ctx->observer;
  while (*at && *at != o) at = &(*at)->next;
  if (*at) *at = o->next;
}

int moth_observe(moth_observer *o, const moth_observed *run) {
  while (o && !o->run[run->what]) o = o->next;
  if (o) return o->run[run->what](o, run);
  return run->kernel ? run->kernel(run->args, run->out) : run->run(run->op, run->args, run->out);
}

#define EACH(ctx, hook) \
  for (moth_observer *o = (ctx)->observer; o; o = o->next) \
    if (o->hook)

void moth_observe_results(moth_ctx *ctx, const moth_op *op, const void *args, bool on) {
  EACH(ctx, results) o->results(o, op, args, on);
}

bool moth_observe_function(moth_ctx *ctx, const struct moth_loops *loops, int dtype, int noperands,
                           const moth_tensor *const *operands, const void *arg) {
  EACH(ctx, function)
    if (o->function(o, loops, dtype, noperands, operands, arg)) return true;
  return false;
}

bool moth_observes_functions(const moth_ctx *ctx) {
  EACH(ctx, function) return true;
  return false;
}

int moth_observe_born(moth_ctx *ctx, moth_storage *s, int device, int64_t nbytes) {
  int status = MOTH_OK;
  EACH(ctx, born)
    if (!status) status = o->born(o, s, device, nbytes);
  return status;
}

bool moth_observe_died(moth_ctx *ctx, moth_storage *s) {
  EACH(ctx, died)
    if (o->died(o, s)) return true;
  return false;
}

bool moth_observe_constant(const moth_tensor *x) {
  EACH(x->ctx, constant)
    if (!o->constant(o, x)) return false;
  return true;
}

int moth_observe_notice(moth_ctx *ctx, const moth_notice *n) {
  int status = MOTH_OK;
  EACH(ctx, notice)
    if (!status) status = o->notice(o, n);
  return status;
}

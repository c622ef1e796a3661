/* error.c -- statuses, messages, and the cancel flags.
**
** Positions in a message are stored 0-based between two marks. moth_error renders them in the
** reader's base, so the core need not know who reads.
*/
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "context.h"
#include "error.h"
#include "system.h"
#include "threads.h"
#include "call/op.h"

atomic_int moth_interrupts;

static const char *const error_names[] = {
    "OK",      "E_ARG",   "E_TYPE",    "E_DTYPE",  "E_SHAPE",   "E_INDEX",
    "E_DEVICE", "E_ALIAS", "E_VERSION", "E_GRAPH",  "E_DOMAIN",  "E_MEM",
    "E_LIMIT", "E_FORMAT", "E_IO",      "E_STATE",  "E_INTERRUPT", "E_CUDA",
    "E_UNSUPPORTED", "E_PAUSED"};

const char *moth_error_name(int32_t status) {
  if (status > 0) return "OK";
  return status < MOTH_E_PAUSED ? "E_UNKNOWN" : error_names[-status];
}

void moth_error_clear(moth_ctx *ctx) {
  ctx->error.code = MOTH_OK;
  ctx->error.arg[0] = 0;
  ctx->error.node = ctx->error.storage = 0;
}

void moth_error_blame(moth_ctx *ctx, const char *op) { ctx->error.op = op; }

void moth_error_blame_copy(moth_ctx *ctx, const char *op) {
  snprintf(ctx->error.op_copy, sizeof ctx->error.op_copy, "%s", op);
  ctx->error.op = ctx->error.op_copy;
}

int moth_error_as(moth_ctx *ctx, int status, const char *from, const char *to) {
  if (status < 0 && !strcmp(ctx->error.arg, from))
    snprintf(ctx->error.arg, sizeof ctx->error.arg, "%s", to);
  return status;
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* printf writes NaN with a sign that has no meaning. */
static void drop_sign_of_nan(char *text) {
  for (char *at = text; (at = strstr(at, "-nan")) != NULL; at += 3)
    if (!in_word(at[4]) && (at == text || !in_word(at[-1]))) memmove(at, at + 1, strlen(at));
}

static _Thread_local const moth_ctx *refused; /* it was busy in the last failed call of a thread */

int moth_fail(moth_ctx *ctx, int code, const char *arg, const char *format, ...) {
  va_list list;
  refused = NULL;
  ctx->error.code = code;
  snprintf(ctx->error.arg, sizeof ctx->error.arg, "%s", arg ? arg : "");
  va_start(list, format);
  moth_text_print(ctx->error.text, sizeof ctx->error.text, format, list);
  va_end(list);
  drop_sign_of_nan(ctx->error.text);
  return code;
}

void moth_fail_need(moth_ctx *ctx) {
  if (ctx && moth_is_busy(ctx)) refused = ctx;
  else if (ctx) moth_fail(ctx, MOTH_E_ARG, NULL, "a pointer is NULL that must not be");
}

/* Renders the text with positions that count from base. Negative positions count from the end and
** do not change. */
const char *moth_error(moth_ctx *ctx, int32_t base) {
  if (!ctx) return "no context";
  if (refused == ctx) return "another thread runs a call in this context";
  char *to = ctx->error.shown, *const end = to + sizeof ctx->error.shown - 32;
  for (const char *at = ctx->error.text; *at && to < end;) {
    if (*at != '\1') {
      *to++ = *at++;
      continue;
    }
    char *rest;
    long long position = strtoll(at + 1, &rest, 10);
    if (position >= 0 && position < INT64_MAX) position += base;
    to += snprintf(to, 24, "%lld", position);
    at = *rest == '\2' ? rest + 1 : rest;
  }
  *to = 0;
  return ctx->error.shown;
}

const char *moth_error_arg(moth_ctx *ctx) {
  if (!ctx) return "no context";
  return refused == ctx ? "" : ctx->error.arg;
}

const char *moth_error_op(moth_ctx *ctx) {
  if (!ctx) return "no context";
  return ctx->error.op && refused != ctx ? ctx->error.op : "";
}

uint64_t moth_error_node(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  return ctx->error.node;
}

uint64_t moth_error_storage(moth_ctx *ctx, uint32_t *version) {
  if (version) *version = ctx ? ctx->error.version : 0;
  if (!ctx) return 0;
  return ctx->error.storage;
}

/* -- cancelling -- */

static bool late(const moth_ctx *ctx) {
  return ctx->deadline > 0 && moth_seconds() >= ctx->deadline;
}

bool moth_cancelled_now(moth_ctx *ctx) {
  if (ctx->message_poll) ctx->message_poll(ctx);
  if (late(ctx) || (ctx->slice_poll && ctx->slice_poll(ctx))) return true;
  return (atomic_load(&ctx->cancel) & 1) || atomic_load(&moth_interrupts) != ctx->interrupts;
}

static atomic_int interrupts_taken; /* interrupts that were turned into an error by some context */

void moth_interrupt(void) { atomic_fetch_add(&moth_interrupts, 1); }

int32_t moth_interrupt_pending(void) {
  return atomic_load(&moth_interrupts) > atomic_load(&interrupts_taken);
}

/* Does not withdraw interrupts that another context has handled in the meantime. */
void moth_interrupt_withdraw(void) {
  int now = atomic_load(&moth_interrupts);
  while (now > atomic_load(&interrupts_taken) &&
         !atomic_compare_exchange_weak(&moth_interrupts, &now, now - 1)) {
  }
}

void moth_cancel(moth_ctx *ctx, int32_t on) { /* any thread may call it */
  if (!ctx) return;
  if (on) atomic_fetch_or(&ctx->cancel, 1);
  else atomic_fetch_and(&ctx->cancel, ~1);
}

double moth_deadline(moth_ctx *ctx, double seconds) {
  const double old = ctx->deadline;
  ctx->deadline = seconds;
  if (seconds > 0) atomic_fetch_or(&ctx->cancel, MOTH_TIMED);
  else atomic_fetch_and(&ctx->cancel, ~MOTH_TIMED);
  return old;
}

int32_t moth_interrupted(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  int mine = atomic_fetch_and(&ctx->cancel, ~1) & 1 || late(ctx);
  const int now = atomic_load(&moth_interrupts);
  if (now != ctx->interrupts) {
    mine = 1;
    if (!moth_on_worker) atomic_store(&interrupts_taken, now); /* the host handled it */
  }
  ctx->interrupts = now;
  return mine;
}

int moth_fail_closed(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_STATE, NULL, "this state is closed");
}

int moth_stopped(moth_ctx *ctx) {
  moth_interrupted(ctx);
  return moth_fail(ctx, MOTH_E_INTERRUPT, NULL, "interrupted");
}

/* -- the NaN that marks an absent argument -- */

static const uint64_t absent_bits = 0x7ffadeadbeef0001u;

bool moth_absent(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits == absent_bits;
}

double moth_absent_value(void) {
  double value;
  memcpy(&value, &absent_bits, 8);
  return value;
}

/* open.c -- opens and closes a context (context.h); its memory report, modes and generator. */
#include "capture/capture.h"
#include "coroutine.h"
#include "device/device.h"
#include "call/observer.h"
#include "call/slice.h"
#include "host/processes.h"
#include "capture/profile.h"
#include "random.h"
#include "system.h"
#include "host/workers.h"
#include "error.h"
#include "alloc.h"
#include "threads.h"
#include "call/autocast.h"
#include "tensor/handles.h"
#include "kernel/fft.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#define FLOOR_BYTES ((int64_t)1 << 20)
#define FLOOR_SLOTS 8192
#define ALIGN ((size_t)MOTH_ALIGN)

/* -- opening and closing -- */

static moth_ctx *open_in(moth_ctx *ctx, bool lent) {
  if (!ctx || !moth_op_count()) return NULL; /* this also reads the registry */
  memset(ctx, 0, sizeof *ctx);
  ctx->lent = lent;
  atomic_init(&ctx->cancel, 0);
  ctx->refs = 1;
  moth_keep_blocks(ctx, true);
  ctx->grad_mode = true;
  ctx->autocast = -1;
  ctx->base.modes[MOTH_MODE_GRAD] = true;
  ctx->base.modes[MOTH_MODE_AUTOCAST] = -1;
  ctx->default_dtype = MOTH_F32;
  ctx->cudnn = 1u << MOTH_CUDNN_ENABLED | 1u << MOTH_CUDNN_SDP;
  moth_memory_floor(ctx, FLOOR_BYTES, FLOOR_SLOTS);
  ctx->looked = moth_seconds();
  ctx->interrupts = atomic_load(&moth_interrupts);
  moth_forks_watch();
  ctx->forks = atomic_load(&moth_forks);
  moth_pool_ready(ctx);
  ctx->results.ctx = ctx;
  ctx->slot_capacity = 256;
  ctx->scope_capacity = 16;
  ctx->slots = moth_alloc(ctx, (int64_t)(ctx->slot_capacity * sizeof *ctx->slots));
  ctx->scopes = moth_alloc(ctx, (int64_t)(ctx->scope_capacity * sizeof *ctx->scopes));
  if (ctx->slots && ctx->scopes) {
    ctx->nslots = MOTH_NUMBER_SLOTS + 1;
    memset(ctx->slots, 0, ctx->nslots * sizeof *ctx->slots);
    ctx->scopes[0] = (moth_frame){0};
    moth_layout l = {.ndim = 1, .shape = {2}, .dtype = MOTH_I64};
    ctx->generator = moth_tensor_new(ctx, &l);
  }
  if (!ctx->generator) {
    moth_close(ctx);
    return NULL;
  }
  memset(ctx->generator->storage->data, 0, 16);
  moth_workers_opened(ctx);
  return ctx;
}

moth_ctx *moth_open(void) {
  return open_in(moth_aligned_new(ALIGN, sizeof(moth_ctx)), false);
}

size_t moth_open_size(void) { return sizeof(moth_ctx) + ALIGN - 1; }

moth_ctx *moth_open_at(void *memory) {
  if (!memory) return NULL;
  return open_in((moth_ctx *)(((uintptr_t)memory + ALIGN - 1) / ALIGN * ALIGN), true);
}

static void unref(moth_ctx *ctx) {
  if (--ctx->refs == 0 && !ctx->lent) moth_aligned_free(ctx);
}

void moth_close(moth_ctx *ctx) {
  if (!ctx || ctx->closed) return;
  if (moth_slices_inside(ctx)) return; /* work of moth_run_for is on this stack */
  moth_slices_free(ctx);
  moth_processes_free(ctx);
  moth_profiles_free(ctx);
  ctx->closed = true;
  moth_keep_blocks(ctx, false);
  if (ctx->checkpoint) moth_checkpoint_end(ctx, 0, MOTH_CHECKPOINT_DROP, 0);
  moth_trace_free(ctx);
  moth_call_log_free(ctx);
  moth_captures_free(ctx);
  moth_tasks_free(ctx);
  while (ctx->leaves) { /* a gradient from create_graph may refer to its leaf */
    moth_node *leaf = moth_node_retain(ctx->leaves);
    moth_leaf_set(leaf, NULL);
    moth_node_release(leaf);
  }
  for (uint32_t i = 1; i < ctx->nslots; i++) {
    moth_tensor *x = ctx->slots[i].tensor;
    ctx->slots[i].tensor = NULL;
    moth_tensor_release(x);
  }
  moth_results_clear(&ctx->results);
  moth_coroutines_free(ctx);
  moth_autocast_forget(ctx);
  moth_fft_forget(ctx);
  moth_tensor_release(ctx->generator);
  moth_dealloc(ctx, ctx->results.at, (int64_t)(ctx->results.capacity * sizeof(moth_tensor *)));
  moth_dealloc(ctx, ctx->slots, (int64_t)(ctx->slot_capacity * sizeof *ctx->slots));
  moth_dealloc(ctx, ctx->scopes, (int64_t)(ctx->scope_capacity * sizeof *ctx->scopes));
  moth_dealloc(ctx, ctx->dead_ids, (int64_t)(ctx->dead_capacity * sizeof *ctx->dead_ids));
  moth_workers_close(ctx);
  moth_devices_close(ctx);
  moth_empty_cache(ctx);
  /* Finalizers may still call: no handle is live, and every allocation fails. */
  ctx->slots = NULL;
  ctx->scopes = NULL;
  ctx->generator = NULL;
  ctx->results = (moth_results){.ctx = ctx};
  ctx->dead_ids = NULL;
  ctx->nslots = ctx->slot_capacity = ctx->scope_capacity = 1;
  ctx->free_slot = ctx->live_slots = ctx->nscopes = ctx->free_scope = ctx->numbers = 0;
  ctx->base.scope = 0;
  ctx->ndead_ids = ctx->dead_capacity = 0;
  unref(ctx);
}

moth_ctx *moth_tick_arm(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, NULL);
  ctx->refs++;
  return ctx;
}

void moth_tick(moth_ctx **anchor) {
  if (!anchor || !*anchor) return;
  (*anchor)->want = true;
  unref(*anchor);
}

/* -- memory -- */

void moth_memory(moth_ctx *ctx, moth_memory_info *info) {
  if (!info) return;
  memset(info, 0, sizeof *info);
  MOTH_NEED(ctx, true, );
  *info = ctx->mem;
  info->cached_bytes = moth_cached_bytes(ctx);
  info->shared_bytes = moth_shared_bytes();
  info->live_handles = ctx->live_slots;
}

/* -- modes -- */

int32_t moth_grad_mode(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = moth_mode(ctx, MOTH_MODE_GRAD, MOTH_ASK);
  if (on >= 0) moth_mode(ctx, MOTH_MODE_GRAD, on != 0);
  return old;
}

int32_t moth_anomaly_mode(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = moth_mode(ctx, MOTH_MODE_ANOMALY, MOTH_ASK);
  if (on >= 0) moth_mode(ctx, MOTH_MODE_ANOMALY, on != 0);
  return old;
}

int32_t moth_default_dtype(moth_ctx *ctx, int32_t dtype) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = ctx->default_dtype;
  if (dtype < 0) return old;
  if (dtype >= MOTH_DTYPES)
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %d", dtype);
  if (!moth_is_float(dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "a floating dtype is needed, got %s",
                     moth_dtype_name(dtype));
  ctx->default_dtype = dtype;
  return old;
}

int32_t moth_float32_precision(moth_ctx *ctx, int32_t level) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = ctx->float32_precision;
  if (level > 2)
    return moth_fail(ctx, MOTH_E_DOMAIN, "precision", "0, 1 or 2 is needed, got %d", level);
  if (level >= 0) ctx->float32_precision = level;
  return old;
}

int32_t moth_deterministic(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = ctx->deterministic;
  if (on >= 0) ctx->deterministic = on != 0;
  return old;
}

int32_t moth_cudnn(moth_ctx *ctx, int32_t what, int32_t on) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  if (what < MOTH_CUDNN_ENABLED || what > MOTH_CUDNN_SDP)
    return moth_fail(ctx, MOTH_E_ARG, "what", "cuDNN has no switch %d", what);
  const uint32_t bit = 1u << what;
  const int32_t old = (ctx->cudnn & bit) != 0;
  if (on >= 0) ctx->cudnn = on ? ctx->cudnn | bit : ctx->cudnn & ~bit;
  return old;
}

int32_t moth_seed(moth_ctx *ctx, uint64_t seed) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  uint64_t state[2] = {seed, 0};
  if (ctx->closed) return moth_fail_closed(ctx);
  if (MOTH_NOTICE(ctx, READ, .what = "the generator is seeded")) return ctx->error.code;
  MOTH_NOTICE(ctx, OTHER);
  memcpy(moth_at(ctx->generator), state, 16);
  ctx->forks = atomic_load(&moth_forks);
  moth_storage_bump(ctx->generator->storage);
  return MOTH_OK;
}

int32_t moth_generator(moth_ctx *ctx, moth_handle *out) {
  MOTH_NEED(ctx, out, MOTH_E_ARG);
  if (ctx->closed) return moth_fail_closed(ctx);
  return moth_hand_out(ctx, moth_tensor_retain(moth_generator_own(ctx)), out);
}

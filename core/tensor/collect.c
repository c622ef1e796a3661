/* collect.c -- decides when Lua should collect its garbage and sweep the slots.
**
** Lua's collector sees 16 bytes where a tensor has megabytes, so the core decides: an op returns
** MOTH_WANT, and Lua collects, sweeps and reports the cost (moth_swept).
**
** A collection is due when live bytes or handles are above their goals and a budget allows it. The
** budget is TIME_SHARE of the time that passes, at most a few collections. Garbage adds to the
** budget: results that walk through garbage, instead of the few blocks that are in the CPU caches,
** are slower by COLD_SECONDS per byte, and by COLD_HANDLE per tensor for its header and its
** history. If the budget is too small, the goal rises, up to a limit above which a collection is
** always due.
**
** Programs such as training steps reach the same height (live bytes after a collection) again and
** again, and only the garbage at the height costs memory. So far below the recent height no
** collection is due. A backward pass and a moth.scope use the same rules.
**
** On an ordinary heap a collection takes 0.2 to 2 ms. A step then needs 1 to 1.13 times the bytes
** that reference counting would need. With a million live tables a collection takes 25 to 60 ms.
** Then collections take less than a twentieth of the time, at the price of up to 430 MiB of
** garbage.
*/
#include "base/context.h"
#include "device/device.h"
#include "base/error.h"
#include "base/alloc.h"
#include "collect.h"

#define TIME_SHARE 0.04
#define MOST_CREDIT 8      /* the budget holds at most this many collections */
#define COLD_SECONDS 8e-12 /* the least cost of a byte of memory outside the CPU caches */
/* the cost of a tensor outside the CPU caches: a few cache lines with one miss each */
#define COLD_HANDLE 40e-9
#define NEAR 16 /* no collection is due below height * (1 - 1 / NEAR) */
#define FADES 8 /* the recorded height falls by 1 / FADES of the difference per collection */
#define LOOKS 32 /* clock reads between the first goal and the limit */
#define LEAST_LIMIT 15 /* minimal limit, in floors of bytes; 16 MiB with the new live bytes */
#define MOST_SLOTS 8 /* limit of handles, in floors of handles */
#define MOST_FLOOR ((int64_t)1 << 52) /* disables collections; sums do not overflow */
#define HEAP_LIMIT 4 /* limit, in sizes of Lua's heap */
#define MOST_LIMIT ((double)((int64_t)1 << 30))
#define FREE_SECONDS 20e-9 /* Lua's time to free a handle */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The smaller the budget, the larger the distance between collections: the rest is for the
** height. */
static int64_t next_goal(const moth_ctx *ctx) {
  int64_t live = ctx->mem.live_bytes, some = larger(ctx->floor_bytes, live / 64);
  double left = ctx->cost > 0 ? ctx->credit / ctx->cost : MOST_CREDIT;
  if (left < 1) left = 1;
  if (left < MOST_CREDIT) some = (int64_t)((double)some * MOST_CREDIT / left);
  return larger(live + some, ctx->high_bytes - ctx->high_bytes / NEAR);
}

static int64_t next_slots(const moth_ctx *ctx) {
  const int64_t slots = ctx->live_slots;
  return slots + larger(ctx->floor_slots, slots / 4);
}

/* Lua has finished a garbage collection cycle. Small tensors are counted from here again. */
static void lower_slots(moth_ctx *ctx) {
  const int64_t goal = next_slots(ctx);
  ctx->after_slots = smaller(ctx->after_slots, ctx->live_slots);
  if (goal < ctx->goal_slots) ctx->goal_slots = goal;
}

static void set_goals(moth_ctx *ctx, double heap) {
  int64_t live = ctx->mem.live_bytes, slots = ctx->live_slots, high = ctx->high_bytes;
  if (ctx->found_bytes - live > live) high = live; /* most of it was garbage */
  ctx->high_bytes = larger(live, high - (high - live) / FADES);
  double beside = HEAP_LIMIT * heap < MOST_LIMIT ? HEAP_LIMIT * heap : MOST_LIMIT;
  ctx->after_bytes = live;
  ctx->found_bytes = 0;
  ctx->mem.goal_bytes = next_goal(ctx);
  ctx->most_bytes = live + larger(larger(LEAST_LIMIT * ctx->floor_bytes, live), (int64_t)beside);
  ctx->after_slots = slots;
  ctx->goal_slots = next_slots(ctx);
  ctx->most_slots = slots + larger(MOST_SLOTS * ctx->floor_slots, slots);
}

void moth_memory_floor(moth_ctx *ctx, int64_t bytes, int64_t handles) {
  MOTH_NEED(ctx, true, );
  ctx->floor_bytes = smaller(bytes, MOST_FLOOR);
  ctx->floor_slots = smaller(handles, MOST_FLOOR);
  set_goals(ctx, 0);
}

void moth_lower_goal(moth_ctx *ctx) {
  int64_t goal = next_goal(ctx);
  if (goal < ctx->mem.goal_bytes) ctx->mem.goal_bytes = goal;
}

static void add_credit(moth_ctx *ctx) {
  double now = moth_seconds(), most = MOST_CREDIT * ctx->cost;
  ctx->credit += TIME_SHARE * (now - ctx->looked);
  if (ctx->credit > most) ctx->credit = most;
  ctx->looked = now;
}

/* The seconds that the caches would save if so many bytes and handles were collected. */
static double saved_by(int64_t bytes, int64_t slots) {
  return COLD_SECONDS * (double)larger(bytes, 0) + COLD_HANDLE * (double)larger(slots, 0);
}

int32_t moth_above_goal(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  int64_t bytes = ctx->mem.live_bytes, slots = ctx->live_slots;
  if (bytes <= ctx->mem.goal_bytes && slots <= ctx->goal_slots) return 0;
  ctx->found_bytes = bytes;
  if (bytes > ctx->most_bytes || slots > ctx->most_slots) return 1;
  add_credit(ctx);
  if (ctx->credit + saved_by(bytes - ctx->after_bytes, slots - ctx->after_slots) >= ctx->cost)
    return 1;
  if (bytes > ctx->mem.goal_bytes)
    ctx->mem.goal_bytes = bytes + larger(ctx->floor_bytes, ctx->mem.live_bytes) / LOOKS;
  if (slots > ctx->goal_slots) ctx->goal_slots = slots + ctx->floor_slots * MOST_SLOTS / LOOKS;
  return 0;
}

int moth_due_now(moth_ctx *ctx) {
  return ctx->want || ctx->anomaly || moth_above_goal(ctx) ? MOTH_WANT : MOTH_OK;
}

int moth_due_soon(moth_ctx *ctx) {
  int64_t enough = ctx->after_bytes + ctx->floor_bytes;
  if (ctx->mem.live_bytes <= enough) return MOTH_OK;
  if (ctx->mem.goal_bytes > enough) ctx->mem.goal_bytes = enough;
  return moth_due_now(ctx);
}

void moth_swept(moth_ctx *ctx, int32_t collected, double seconds, double sweeping, double heap) {
  MOTH_NEED(ctx, true, );
  const double cost = seconds - sweeping - FREE_SECONDS * ctx->dropped;
  const int64_t dropped = ctx->dropped;
  ctx->want = false;
  ctx->dropped = 0;
  if (!collected) {
    lower_slots(ctx);
    return;
  }
  ctx->mem.collections++;
  moth_devices_swept(ctx);
  moth_age_cache(ctx);
  ctx->mem.collection_seconds += seconds;
  add_credit(ctx);
  ctx->cost = cost > 0 ? cost : 0;
  double saved = saved_by(ctx->found_bytes - ctx->mem.live_bytes, dropped);
  if (saved < ctx->cost) ctx->credit -= ctx->cost - saved;
  if (ctx->credit < -ctx->cost) ctx->credit = -ctx->cost; /* after a collection at the limit */
  set_goals(ctx, heap);
}

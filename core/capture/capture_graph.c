/* capture_graph.c -- captured steps on devices other than the CPU: consecutive instructions become
** graphs of the device, and a replay launches each graph by one call (capture.h).
**
** The first run of an instruction decides whether a graph can contain it: all its tensors must be
** on one device, and it must not have waited for the device or copied bytes to or from the CPU. An
** instruction whose numbers differ in each replay (an optimizer's step, random numbers) runs again
** before the launch. Its kernels are then not launched: their arguments in the graph are updated.
** This works only for the plugin's own kernels. An op may run that part first and call
** moth_capture_settles; the rest does not run again and may use any kernels.
*/
#include "capture_parts.h"
#include "call/frame.h"
#include "profile.h"
#include "base/random.h"
#include "tensor/tensor.h"
#include "base/error.h"
#include "base/alloc.h"

#define MIN_GRAPH_LAUNCHES 4 /* launches below which a graph is not faster */

/* Returns NULL with the error set. */
static const moth_graph_functions *graphs_of(moth_ctx *ctx) {
  const moth_backend *b = moth_backend_load(ctx);
  return b ? b->graphs : NULL;
}

/* -- recording -- */

static bool joins(int *device, const moth_tensor *x) {
  if (*device && x->l.device != *device) return false;
  *device = x->l.device;
  return *device != 0;
}

/* The device of all tensors of an instruction; 0: there is none. Generators are on the CPU, and
** kernels take single elements of the CPU, but an op with MOTH_OP_WHOLE may write them. */
static int device_of(const moth_instruction *in) {
  moth_cursor cursor = {.op = in->op, .args = in->args};
  int device = 0;
  for (int i = 0; i < MOTH_MAX_OUTPUTS && in->out[i]; i++)
    if (!joins(&device, in->out[i])) return 0;
  while (moth_next_input(&cursor)) {
    const moth_tensor *x = *cursor.at;
    if (!x || in->op->kinds[cursor.from] == MOTH_KIND_generator) continue;
    if (x->l.device == 0 && x->l.ndim == 0 && !(in->op->flags & MOTH_OP_WHOLE)) continue;
    if (!joins(&device, x)) return 0;
  }
  return device;
}

int moth_guard_look(moth_ctx *ctx, moth_tensor *const *found, uint32_t n) {
  int any = 0;
  ctx->quiet++;
  for (uint32_t i = 0; i < n && any == 0; i++) {
    moth_tensor *x = moth_to_host(found[i]);
    double value = 0;
    if (x) moth_convert(1, x->l.dtype, moth_at(x), 0, MOTH_F64, (char *)&value, 0);
    any = x ? value != 0 : ctx->error.code;
    moth_tensor_release(x);
  }
  ctx->quiet--;
  return any;
}

int moth_capture_first_run(moth_instruction *in, const void *args, moth_tensor **out) {
  moth_ctx *ctx = ((const moth_args *)args)->ctx;
  const int device = device_of(in);
  const moth_graph_functions *f = device ? graphs_of(ctx) : NULL;
  const uint32_t numbers = moth_storage_version(ctx->generator->storage);
  moth_device_work before, after;
  if (!f) return in->run(args, out);
  f->work(ctx, device, &before);
  ctx->capture->observed = in;
  int status = in->run(args, out);
  ctx->capture->observed = NULL;
  f->work(ctx, device, &after);
  const uint64_t others = after.others - before.others;
  const uint64_t launches = after.kernels - before.kernels + others;
  in->device = (uint8_t)device;
  in->launches = launches < UINT16_MAX ? (uint16_t)launches : UINT16_MAX;
  if (moth_storage_version(ctx->generator->storage) != numbers) in->facts |= MOTH_I_VARIES;
  if (others) in->facts |= MOTH_I_OTHERS;
  if (after.waits != before.waits) in->facts |= MOTH_I_WAITED;
  return status;
}

int moth_capture_settles(moth_ctx *ctx) {
  moth_capture *c = ctx->capture;
  if (c && c->observed) c->observed->facts |= MOTH_I_SETTLES;
  for (c = ctx->captures; c && !c->running;) c = c->next;
  if (!c || c->changes) return c != NULL;
  const moth_graph_functions *f = graphs_of(ctx);
  const uint32_t part = 2 * (c->at - c->running->first) + 1;
  return f ? f->part(ctx, c->running->graph, part, c->code[c->at].op->name, false)
           : ctx->error.code;
}

/* Can a graph contain the instruction? Elements of the CPU that it reads may differ in each replay.
** The state of a user's generator could not be restored if the graph fails. */
static bool can_join(moth_instruction *in) {
  const bool settles = in->facts & MOTH_I_SETTLES;
  if (!in->device || in->facts & MOTH_I_WAITED) return false;
  moth_cursor cursor = {.op = in->op, .args = in->args};
  while (moth_next_input(&cursor)) {
    const moth_tensor *x = *cursor.at;
    if (!x || x->l.device) continue;
    if (in->op->kinds[cursor.from] == MOTH_KIND_generator) return false;
    if (!moth_observe_constant(x)) in->facts |= MOTH_I_VARIES;
    if (settles) return false;
  }
  return settles || !(in->facts & MOTH_I_VARIES && in->facts & MOTH_I_OTHERS);
}

static int add_segment(moth_capture *c, uint32_t first, uint32_t last, int device) {
  moth_segment *at = c->nsegments ? &c->segments[c->nsegments - 1] : NULL;
  if (at && !at->device && !device) {
    at->last = last;
    return MOTH_OK;
  }
  int status =
    moth_grow(c->ctx, &c->segments, c->nsegments, &c->segment_capacity, sizeof *c->segments);
  if (!status)
    c->segments[c->nsegments++] = (moth_segment){.first = first, .last = last, .device = device};
  return status;
}

/* A graph ends where the instructions of a guard end. */
int moth_capture_segments(moth_capture *c) {
  bool any = false;
  int status = MOTH_OK;
  uint32_t past = 0;
  for (uint32_t first = 0, end; first < c->ncode && !status; first = end) {
    const int device = c->code[first].device;
    uint32_t launches = 0;
    if (moth_guard_of(&c->code[first])) past = moth_guard_of(&c->code[first])->past;
    for (end = first; end < c->ncode && c->code[end].device == device; end++) {
      if (!can_join(&c->code[end]) || (end == past && end > first)) break;
      if (!(c->code[end].facts & MOTH_I_VARIES)) launches += c->code[end].launches;
    }
    const bool graph = launches >= MIN_GRAPH_LAUNCHES;
    if (end == first) end++;
    status = add_segment(c, first, end, graph ? device : 0);
    any |= graph;
  }
  if (!any) c->nsegments = 0;
  return status;
}

/* -- replay -- */

static int run_guard(moth_capture *c, moth_guard *guard) {
  int found = moth_guard_look(c->ctx, guard->found, guard->nfound);
  if (found < 0) return found;
  guard->skipped = found;
  if (found) c->resume = guard->past;
  return MOTH_OK;
}

/* Runs an instruction as an event of the profile. */
static int profile_run(moth_ctx *ctx, moth_instruction *in) {
  const uint64_t event = moth_profile_enter(ctx, MOTH_EVENT_OP, in->op->name, false);
  const uint32_t span = in->device ? moth_profile_device_begin(ctx, in->device) : 0;
  int status = in->run(in->args, in->out);
  moth_profile_device_end(ctx, span);
  moth_profile_inputs(ctx, event, in->op, in->args);
  moth_profile_leave(ctx, event, status);
  return status;
}

int moth_capture_run_each(moth_capture *c, uint32_t first, uint32_t last) {
  moth_ctx *ctx = c->ctx;
  const bool named = ctx->devices != NULL; /* errors of devices come late and name the op */
  const bool seen = ctx->profile != NULL;
  for (uint32_t i = first; i < last; i++) {
    moth_instruction *in = &c->code[i];
    if (i < c->resume) continue;
    if (named) moth_error_blame(ctx, in->op->name);
    int status = moth_cancelled(ctx) ? moth_stopped(ctx)
                 : !in->run          ? run_guard(c, in->args)
                 : seen              ? profile_run(ctx, in)
                                     : in->run(in->args, in->out);
    if (!status) continue;
    moth_error_blame(ctx, in->op->name);
    return status;
  }
  return MOTH_OK;
}

/* Makes the graph, or updates the instructions that vary, and launches it. Each instruction has two
** parts; the second begins at moth_capture_settles. */
static int launch(moth_capture *c, moth_segment *s, const moth_graph_functions *f) {
  moth_ctx *ctx = c->ctx;
  int status = MOTH_OK;
  c->changes = s->graph != NULL;
  if (!s->graph) s->graph = f->begin(ctx, s->device, 2 * (s->last - s->first));
  if (!s->graph) return ctx->error.code;
  c->running = s;
  for (c->at = s->first; c->at < s->last && !status; c->at++) {
    moth_instruction *in = &c->code[c->at];
    const bool varies = in->facts & MOTH_I_VARIES;
    if (c->changes && !varies) continue;
    status = f->part(ctx, s->graph, 2 * (c->at - s->first), in->op->name, varies);
    if (!status) status = in->run(in->args, in->out);
  }
  c->running = NULL;
  return status ? status : f->launch(ctx, s->graph);
}

/* The same as one event of the profile: a launch calls no ops. */
static int profile_launch(moth_capture *c, moth_segment *s, const moth_graph_functions *f) {
  moth_ctx *ctx = c->ctx;
  struct moth_profile *profile = ctx->profile;
  const uint64_t event = moth_profile_enter(ctx, MOTH_EVENT_WHOLE, "graph", false);
  const uint32_t span = moth_profile_device_begin(ctx, s->device);
  moth_profile_attach(ctx, NULL);
  int status = launch(c, s, f);
  moth_profile_attach(ctx, profile);
  moth_profile_device_end(ctx, span);
  moth_profile_leave(ctx, event, status);
  return status;
}

static void drop_graph(moth_ctx *ctx, const moth_graph_functions *f, moth_segment *s) {
  if (s->graph) f->drop(ctx, s->graph);
  s->graph = NULL;
}

/* Frees memory after a graph ran out of it. Returns true if the graph should be tried again. */
static bool free_memory(moth_ctx *ctx, moth_segment *s, int status) {
  const moth_backend *b = moth_backend_load(ctx);
  if (status != MOTH_E_MEM || s->short_once || !b) return false;
  s->short_once = true;
  b->empty_cache(ctx, s->device);
  return true;
}

/* If a graph fails, none of its work was done. Then its instructions run separately, and if they
** succeed, all later replays run them separately. After a lack of memory the graph is tried once
** more. */
static int run_graph(moth_capture *c, moth_segment *s) {
  moth_ctx *ctx = c->ctx;
  const moth_graph_functions *f = graphs_of(ctx);
  uint64_t drawn[2];
  if (!f) return ctx->error.code;
  moth_error_blame(ctx, c->code[s->first].op->name);
  int status = moth_cancelled(ctx) ? moth_stopped(ctx) : f->ready(ctx, s->device);
  if (status) return status;
  memcpy(drawn, moth_at(moth_generator_own(ctx)), sizeof drawn);
  status = ctx->profile ? profile_launch(c, s, f) : launch(c, s, f);
  if (!status) return MOTH_OK;
  drop_graph(ctx, f, s);
  memcpy(moth_at(ctx->generator), drawn, sizeof drawn);
  if (status == MOTH_E_INTERRUPT) return status;
  const bool again = free_memory(ctx, s, status);
  moth_error_clear(ctx);
  status = moth_capture_run_each(c, s->first, s->last);
  s->failed = status == MOTH_OK && !again;
  return status;
}

int moth_capture_run_segments(moth_capture *c) {
  int status = MOTH_OK;
  for (uint32_t i = 0; i < c->nsegments && !status; i++) {
    moth_segment *s = &c->segments[i];
    if (s->last <= c->resume) continue;
    status = s->device && !s->failed ? run_graph(c, s)
                                     : moth_capture_run_each(c, s->first, s->last);
  }
  return status;
}

/* -- streams -- */

void moth_capture_note_streams(moth_capture *c) {
  const moth_backend *b = c->ctx->devices ? moth_backend_load(c->ctx) : NULL;
  for (uint32_t i = 0; b && i < c->nstores; i++) {
    const int device = c->stores[i].s->device;
    if (device) c->stream[device] = 1 + b->streams->use(c->ctx, device, -1);
  }
}

int moth_capture_follow_last(moth_capture *c) {
  moth_ctx *ctx = c->ctx;
  const moth_backend *b = ctx->devices ? moth_backend_load(ctx) : NULL;
  for (int device = 1; b && device <= MOTH_MAX_DEVICES; device++) {
    const int last = c->stream[device] - 1;
    if (last < 0) continue;
    const int now = b->streams->use(ctx, device, -1);
    const int status = now < 0 || now == last ? now : b->streams->join(ctx, device, now, device,
                                                                       last);
    if (status < 0) return status;
    c->stream[device] = 1 + now;
  }
  return MOTH_OK;
}

void moth_capture_drop_graphs(moth_capture *c) {
  const moth_graph_functions *f = c->nsegments ? graphs_of(c->ctx) : NULL;
  for (uint32_t i = 0; f && i < c->nsegments; i++) drop_graph(c->ctx, f, &c->segments[i]);
}

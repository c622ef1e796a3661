/* profile.c -- records ops as events: their name, time, outer event, and memory.
**
** Time belongs to the innermost running event: each begin and end adds the time since the last one
** to the `self` of the event on top. So the sum of all selves is never above the elapsed time, even
** if coroutines end their ranges in another order. Bytes are counted in the same way.
**
** Devices run asynchronously. Each kernel is between two events of the device, in its stream. Their
** times are read at the end, or when many events are pending and the first have completed.
**
** Events are allocated by malloc, so that a profile does not count itself.
*/
#include "profile.h"
#include "base/error.h"
#include "tensor/handles.h"

#include <stdlib.h>

#include "device/device.h"
#include "call/observer.h"
#include "call/registry.h"
#include "autograd/tape.h"

#define PER_CHUNK 1024                /* events */
#define MAX_EVENTS ((int64_t)1 << 26) /* events */
#define MOST_TENSORS 64               /* tensors whose shapes an event records */
#define MOST_SPANS 1024               /* pending spans above which finished ones are read */
#define NO_EVENT (-1)

typedef struct row {
  moth_profile_event e;
  int64_t below; /* the running event below it in the stack; NO_EVENT */
  bool open;
} row;

typedef struct span { /* one or more kernels of a device */
  void *start, *end;  /* the device's events */
  int64_t event;
  uint32_t around;    /* the outer span, counted from 1; 0: none */
  uint8_t device;
  bool ended;
} span;

typedef struct moth_profile {
  moth_observer observer;
  uint32_t serial, flags;
  int64_t n, most, dropped;
  row **chunks;
  int64_t top, host;       /* the innermost running event; the host's last call; NO_EVENT */
  double start, last;      /* seconds; last: when `self` was last updated */
  int64_t live, device_live; /* at that time */
  int64_t peak;            /* of the context before the profile; at the end of the profile */
  int64_t *sizes;
  int64_t nsizes, size_capacity;
  span *spans;
  uint32_t nspans, span_capacity, nread; /* the first nread spans are read */
  uint32_t inside;         /* the running span, counted from 1 */
  uint32_t first[MOTH_MAX_DEVICES + 1]; /* per device: its first span, counted from 1 */
} moth_profile;

static row *row_at(const moth_profile *p, int64_t i) {
  return &p->chunks[i / PER_CHUNK][i % PER_CHUNK];
}

static double since(const moth_profile *p, double now) { return (now - p->start) * 1e6; }

/* -- events -- */

static int64_t device_live(const moth_ctx *ctx, const moth_profile *p) {
  return ctx->devices && p->flags & MOTH_PROFILE_DEVICES ? moth_devices_live(ctx) : 0;
}

/* Adds the time and bytes since the last update to the event on top. */
static void settle(const moth_ctx *ctx, moth_profile *p, double now) {
  const int64_t live = ctx->mem.live_bytes, there = device_live(ctx, p);
  if (p->top != NO_EVENT) {
    moth_profile_event *e = &row_at(p, p->top)->e;
    e->self += (now - p->last) * 1e6;
    e->self_bytes += live - p->live;
    e->device_self_bytes += there - p->device_live;
  }
  p->last = now;
  p->live = live;
  p->device_live = there;
}

static bool can_add(moth_profile *p) {
  if (p->n == p->most) return false;
  row **chunk = &p->chunks[p->n / PER_CHUNK];
  if (!*chunk) *chunk = malloc(PER_CHUNK * sizeof **chunk);
  return *chunk != NULL;
}

uint64_t moth_profile_enter(moth_ctx *ctx, int kind, const char *name, bool host) {
  moth_profile *p = ctx->profile;
  if (p->dropped || !can_add(p)) { /* no event inside a dropped one is recorded */
    p->dropped++;
    if (host) p->host = NO_EVENT;
    return 0;
  }
  const double now = moth_seconds();
  settle(ctx, p, now);
  row *r = row_at(p, p->n);
  *r = (row){.below = p->top, .open = true};
  r->e = (moth_profile_event){.name = name, .kind = kind, .parent = p->top, .begin = since(p, now),
                      .bytes = -p->live, .device_bytes = -p->device_live, .sizes = -1,
                      .first = ctx->ids};
  p->top = p->n++;
  if (host) p->host = p->top;
  return (uint64_t)p->serial << 32 | (uint64_t)p->n;
}

/* The number of a running event of this profile, or NO_EVENT. */
static int64_t number_of(const moth_profile *p, uint64_t event) {
  const int64_t i = (int64_t)(event & UINT32_MAX) - 1;
  const bool ours = p && event >> 32 == p->serial && i >= 0 && i < p->n;
  return ours && row_at(p, i)->open ? i : NO_EVENT;
}

/* Removes a row from the chain of running events. */
static void unlink_row(moth_profile *p, int64_t i) {
  int64_t *at = &p->top;
  while (*at != i) at = &row_at(p, *at)->below;
  *at = row_at(p, i)->below;
}

static void end_row(const moth_ctx *ctx, moth_profile *p, int64_t i, int status) {
  row *r = row_at(p, i);
  unlink_row(p, i);
  r->open = false;
  r->e.status = status < 0 ? status : MOTH_OK;
  r->e.end = since(p, p->last);
  r->e.live = p->live;
  r->e.bytes += p->live;
  r->e.device_bytes += p->device_live;
  if (r->e.kind != MOTH_EVENT_GRADIENT) r->e.last = ctx->ids;
}

void moth_profile_leave(moth_ctx *ctx, uint64_t event, int status) {
  moth_profile *p = ctx->profile;
  const int64_t i = number_of(p, event);
  if (i == NO_EVENT) return;
  settle(ctx, p, moth_seconds());
  end_row(ctx, p, i, status);
  if (i == p->host && p->flags & MOTH_PROFILE_LINES) ctx->want = true;
}

uint64_t moth_profile_gradient(moth_ctx *ctx, const moth_node *n) {
  const uint64_t event = moth_profile_enter(ctx, MOTH_EVENT_GRADIENT, n->op->name, false);
  if (event) {
    moth_profile_event *e = &row_at(ctx->profile, ctx->profile->top)->e;
    e->first = e->last = n->id;
  }
  return event;
}

static bool add_size(moth_profile *p, int64_t size) {
  if (p->nsizes == p->size_capacity) {
    const int64_t capacity = p->size_capacity ? p->size_capacity * 2 : PER_CHUNK;
    int64_t *more = realloc(p->sizes, (size_t)capacity * sizeof *more);
    if (!more) return false;
    p->sizes = more;
    p->size_capacity = capacity;
  }
  p->sizes[p->nsizes++] = size;
  return true;
}

void moth_profile_inputs(moth_ctx *ctx, uint64_t event, const moth_op *op, const void *args) {
  moth_profile *p = ctx->profile;
  const int64_t i = number_of(p, event);
  if (i == NO_EVENT || !(p->flags & MOTH_PROFILE_SHAPES)) return;
  const int64_t begin = p->nsizes;
  int64_t count = 0;
  bool fits = add_size(p, 0);
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (fits && count < MOST_TENSORS && moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    if (!x || op->kinds[c.from] == MOTH_KIND_generator) continue;
    fits = add_size(p, x->l.ndim);
    for (int d = 0; fits && d < x->l.ndim; d++) fits = add_size(p, x->l.shape[d]);
    count++;
  }
  if (fits) {
    p->sizes[begin] = count;
    row_at(p, i)->e.sizes = begin;
  } else {
    p->nsizes = begin;
  }
}

/* -- devices -- */

static span *new_span(moth_profile *p) {
  if (p->nspans == p->span_capacity) {
    const uint32_t capacity = p->span_capacity ? p->span_capacity * 2 : PER_CHUNK;
    span *more = realloc(p->spans, capacity * sizeof *more);
    if (!more) return NULL;
    p->spans = more;
    p->span_capacity = capacity;
  }
  return &p->spans[p->nspans];
}

static int record(moth_ctx *ctx, const moth_stream_functions *f, void *event, int device) {
  const int stream = f->use(ctx, device, -1);
  return stream < 0 ? stream : f->record(ctx, event, device, stream);
}

/* Adds the time of a span, without its inner spans, to its event. The device's clock is aligned
** with the CPU's at the device's first span. */
static int read_span(moth_ctx *ctx, const moth_profile *p, const moth_backend *b, const span *s) {
  const span *first = &p->spans[p->first[s->device] - 1];
  moth_profile_event *e = &row_at(p, s->event)->e;
  double ms = 0, begin = 0;
  if (!s->ended) return MOTH_OK;
  int status = b->streams->elapsed(ctx, s->start, s->end, &ms);
  if (!status && s != first) status = b->streams->elapsed(ctx, first->start, s->start, &begin);
  if (status) return status;
  if (!e->device) e->device_begin = row_at(p, first->event)->e.begin + begin * 1e3;
  e->device = s->device;
  e->device_time += ms * 1e3;
  e->device_self += ms * 1e3;
  if (s->around) row_at(p, p->spans[s->around - 1].event)->e.device_self -= ms * 1e3;
  return MOTH_OK;
}

static void drop_events(const moth_backend *b, span *s, bool keep_start) {
  if (s->start && !keep_start) {
    b->streams->drop_event(s->start);
    s->start = NULL;
  }
  if (s->end) b->streams->drop_event(s->end);
  s->end = NULL;
}

/* If many spans are pending, reads those whose devices have finished them. */
static void read_some(moth_ctx *ctx, moth_profile *p, const moth_backend *b) {
  while (p->nspans - p->nread >= MOST_SPANS) {
    span *s = &p->spans[p->nread];
    if (!s->ended || b->streams->query_event(ctx, s->end) != 1 || read_span(ctx, p, b, s)) return;
    drop_events(b, s, ++p->nread == p->first[s->device]);
  }
}

uint32_t moth_profile_device_begin(moth_ctx *ctx, int device) {
  moth_profile *p = ctx->profile;
  if (!(p->flags & MOTH_PROFILE_DEVICES) || p->dropped || p->top == NO_EVENT) return 0;
  const moth_backend *b = moth_backend_load(ctx);
  span *s = b ? new_span(p) : NULL;
  if (!s) return 0;
  read_some(ctx, p, b);
  *s = (span){.event = p->top, .around = p->inside, .device = (uint8_t)device};
  int status = b->streams->take_event(ctx, true, &s->start);
  if (!status) status = b->streams->take_event(ctx, true, &s->end);
  if (!status) status = record(ctx, b->streams, s->start, device);
  if (status) {
    drop_events(b, s, false);
    return 0;
  }
  p->inside = ++p->nspans;
  if (!p->first[device]) p->first[device] = p->nspans;
  return p->nspans;
}

void moth_profile_device_end(moth_ctx *ctx, uint32_t number) {
  moth_profile *p = ctx->profile;
  if (!p || number == 0 || number > p->nspans) return;
  span *s = &p->spans[number - 1];
  const moth_backend *b = moth_backend_load(ctx);
  p->inside = s->around;
  s->ended = b && record(ctx, b->streams, s->end, s->device) == MOTH_OK;
}

static int wait_for_devices(moth_ctx *ctx, const moth_profile *p, const moth_backend *b) {
  int first = MOTH_OK;
  for (int device = 1; device <= MOTH_MAX_DEVICES; device++) {
    const int status = p->first[device] ? b->synchronize(ctx, device) : MOTH_OK;
    if (!first) first = status;
  }
  return first;
}

static int read_spans(moth_ctx *ctx, const moth_profile *p) {
  const moth_backend *b = p->nspans ? moth_backend_load(ctx) : NULL;
  if (!b) return MOTH_OK;
  int status = wait_for_devices(ctx, p, b);
  for (uint32_t i = p->nread; !status && i < p->nspans; i++)
    status = read_span(ctx, p, b, &p->spans[i]);
  for (uint32_t i = 0; i < p->nspans; i++) drop_events(b, &p->spans[i], false);
  return status;
}

/* -- ops and kernels: the observer -- */

static int run_op(moth_observer *o, const moth_observed *run) {
  moth_ctx *ctx = ((const moth_args *)run->args)->ctx;
  const bool host = run->what == MOTH_RUN_CALL;
  const uint64_t event = moth_profile_enter(ctx, MOTH_EVENT_OP, run->op->name, host);
  const int status = moth_observe(o->next, run);
  if (!host || !status) moth_profile_inputs(ctx, event, run->op, run->args);
  /* temporaries such as casts do not count as its memory */
  if (host) moth_results_clear(&((moth_call_frame *)(uintptr_t)run->args)->temps);
  moth_profile_leave(ctx, event, status);
  return status;
}

static int run_kernel(moth_observer *o, const moth_observed *run) {
  moth_ctx *ctx = ((const moth_args *)run->args)->ctx;
  const uint32_t kernel = run->device ? moth_profile_device_begin(ctx, run->device) : 0;
  const int status = moth_observe(o->next, run);
  moth_profile_device_end(ctx, kernel);
  return status;
}

void moth_profile_attach(moth_ctx *ctx, struct moth_profile *p) {
  if (ctx->profile) moth_observer_remove(ctx, &ctx->profile->observer);
  if (p) moth_observer_add(ctx, &p->observer);
  ctx->profile = p;
}

/* -- functions of moth_lua.h -- */

static void free_profile(moth_profile *p) {
  if (!p) return;
  for (int64_t i = 0; p->chunks && i * PER_CHUNK < p->most; i++) free(p->chunks[i]);
  free(p->chunks);
  free(p->sizes);
  free(p->spans);
  free(p);
}

void moth_profiles_free(moth_ctx *ctx) {
  if (ctx->profile) moth_profile_stop(ctx, NULL);
  free_profile(ctx->profiled);
  ctx->profiled = NULL;
}

int32_t moth_profile_start(moth_ctx *ctx, uint32_t flags, int64_t most) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (ctx->profile) return moth_fail(ctx, MOTH_E_STATE, NULL, "a profile is under way already");
  moth_profiles_free(ctx);
  moth_profile *p = calloc(1, sizeof *p);
  if (p) {
    p->most = most < 1 ? 1 : most < MAX_EVENTS ? most : MAX_EVENTS;
    p->chunks = calloc((size_t)((p->most + PER_CHUNK - 1) / PER_CHUNK), sizeof *p->chunks);
  }
  if (!p || !p->chunks) {
    free_profile(p);
    return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  }
  static atomic_uint serials; /* of the process, so that ranges of different profiles differ */
  while (p->serial == 0) p->serial = atomic_fetch_add(&serials, 1) + 1;
  p->flags = flags;
  p->top = p->host = NO_EVENT;
  p->observer = (moth_observer){
    .rank = MOTH_PROFILES,
    .run = {[MOTH_RUN_CALL] = run_op, [MOTH_RUN_OP] = run_op, [MOTH_RUN_KERNEL] = run_kernel}};
  p->peak = ctx->mem.peak_bytes;
  moth_memory_reset_peak(ctx);
  p->live = ctx->mem.live_bytes;
  p->device_live = device_live(ctx, p);
  moth_profile_attach(ctx, p);
  p->start = p->last = moth_seconds();
  return MOTH_OK;
}

int32_t moth_profile_stop(moth_ctx *ctx, moth_profile_info *info) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_profile *p = ctx->profile;
  moth_error_clear(ctx);
  if (!p) return moth_fail(ctx, MOTH_E_STATE, NULL, "no profile is under way");
  const double now = moth_seconds();
  settle(ctx, p, now);
  while (p->top != NO_EVENT) end_row(ctx, p, p->top, MOTH_OK);
  moth_profile_attach(ctx, NULL);
  ctx->profiled = p;
  const int64_t peak = ctx->mem.peak_bytes;
  if (p->peak > peak) ctx->mem.peak_bytes = p->peak;
  if (info)
    *info = (moth_profile_info){.events = p->n, .sizes = p->nsizes, .dropped = p->dropped,
                                .peak_bytes = peak, .time = since(p, now)};
  return read_spans(ctx, p);
}

int32_t moth_profile_take(moth_ctx *ctx, moth_profile_event *events, int64_t *sizes) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  const moth_profile *p = ctx->profiled;
  moth_error_clear(ctx);
  if (!p) return moth_fail(ctx, MOTH_E_STATE, NULL, "there is no profile to take");
  for (int64_t i = 0; events && i < p->n; i++) events[i] = row_at(p, i)->e;
  if (sizes && p->nsizes) memcpy(sizes, p->sizes, (size_t)p->nsizes * sizeof *sizes);
  free_profile(ctx->profiled);
  ctx->profiled = NULL;
  return MOTH_OK;
}

uint64_t moth_profile_begin(moth_ctx *ctx, int32_t kind, uint32_t label, uint32_t line) {
  MOTH_NEED(ctx, true, 0);
  if (!ctx->profile) return 0;
  const uint64_t event = moth_profile_enter(ctx, kind, NULL, false);
  if (event) {
    moth_profile_event *e = &row_at(ctx->profile, ctx->profile->top)->e;
    e->label = label;
    e->line = line;
  }
  return event;
}

void moth_profile_end(moth_ctx *ctx, uint64_t range) {
  MOTH_NEED(ctx, true, );
  if (ctx->profile) moth_profile_leave(ctx, range, MOTH_OK);
}

void moth_profile_line(moth_ctx *ctx, uint32_t line) {
  MOTH_NEED(ctx, true, );
  moth_profile *p = ctx->profile;
  if (!p || p->host == NO_EVENT) return;
  row_at(p, p->host)->e.line = line;
  p->host = NO_EVENT; /* the next call may fail before it is an event */
}

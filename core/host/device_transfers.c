/* device_transfers.c -- messages of tensors on GPUs, which the plugin moves (device/transfers.h).
**
** A transfer is submitted to the device and runs there after the work of the current stream. A wait
** makes the current stream wait, and the CPU goes on. The message stays in the list until the
** device has ended it, so that a failure or a timeout is noticed: when the CPU waits for the device
** (moth_transfers_check) and at the next message. Then the comm of the group is aborted, because
** its members are out of step, and later calls raise the reason.
*/
#include "processes.h"

#include "base/error.h"
#include "base/system.h"
#include "device/device.h"
#include "tensor/tensor.h"

static const moth_transfer_functions *functions(moth_ctx *ctx) {
  const moth_backend *b = moth_backend_load(ctx);
  return b ? b->transfers : NULL;
}

void moth_group_leave_device(moth_group *g, bool abort) {
  if (g->busy) return; /* the caller of the plugin closes it */
  if (g->on_device) moth_plugin->transfers->close(g->on_device, abort);
  g->on_device = NULL;
}

/* Its members are out of step. */
static void abandon(moth_group *g, const char *why) {
  if (!g->failure[0]) snprintf(g->failure, sizeof g->failure, "%s", why);
  moth_group_leave_device(g, true);
}

static int fail_group(moth_ctx *ctx, moth_group *g) {
  g->raised = true;
  return moth_fail(ctx, MOTH_E_IO, NULL, "%s", g->failure[0] ? g->failure
                   : "the process group was closed");
}

void moth_device_transfer_test(struct moth_processes *p, moth_transfer *m) {
  moth_group *g = &p->groups[m->x.group];
  char why[160] = "", text[256];
  const int done = g->on_device
    ? moth_plugin->transfers->done(g->on_device, m->job, why, sizeof why) : -1;
  m->done = done != 0;
  m->code = done < 0 ? -1 : 0;
  if (done >= 0 || !g->on_device || g->busy) return;
  snprintf(text, sizeof text, "'%s', which was started before, has failed: %s",
           moth_transfer_names[m->x.kind], why);
  abandon(g, text);
}

int moth_device_transfer_join(moth_ctx *ctx, moth_transfer *m) {
  moth_group *g = &ctx->processes->groups[m->x.group];
  if (m->code) return fail_group(ctx, g);
  int status = moth_plugin->transfers->join(ctx, m->job);
  if (status) return status;
  m->joined = true;
  if (m->output) moth_storage_bump(m->output->storage);
  return MOTH_OK;
}

static int timed_out(moth_ctx *ctx, moth_transfer *m) {
  moth_group *g = &ctx->processes->groups[m->x.group];
  char text[256], missing[160];
  moth_transfer_missing(ctx, m, missing, sizeof missing);
  if (m->done) return MOTH_OK;
  snprintf(text, sizeof text, "'%s', which was started before, has no result after %g s%s",
           moth_transfer_names[m->x.kind], m->x.seconds, missing);
  abandon(g, text);
  return fail_group(ctx, g);
}

int moth_transfers_check(moth_ctx *ctx) {
  struct moth_processes *p = ctx->processes;
  if (!p) return MOTH_OK;
  moth_transfers_progress(ctx);
  const double now = moth_seconds();
  moth_transfer *late = NULL; /* the oldest one; the list begins with the newest */
  for (moth_transfer *m = p->messages; m; m = m->next)
    if (m->job && !m->done && m->x.seconds > 0 && now - m->started > m->x.seconds) late = m;
  int status = late ? timed_out(ctx, late) : MOTH_OK;
  for (int32_t i = 0; !status && i < p->ngroups; i++)
    if (p->groups[i].failure[0] && !p->groups[i].raised) status = fail_group(ctx, &p->groups[i]);
  return status ? status : moth_poll(ctx);
}

static int check_place(moth_ctx *ctx, const moth_transfer *m, const moth_group *g) {
  const moth_tensor *x = m->input ? m->input : m->output;
  char own[24], other[24];
  if (g->failure[0])
    return moth_fail(ctx, MOTH_E_STATE, "group", "the process group has failed: %s", g->failure);
  if (!g->on_device)
    return moth_fail(ctx, MOTH_E_DEVICE, m->input ? "input" : "output", "MPI moves tensors of the "
                     "CPU, and this one is on %s: use init_process_group{backend = \"nccl\"}, or "
                     "x:cpu()", moth_device_name(x->l.device, other));
  if (x->l.device != g->device)
    return moth_fail(ctx, MOTH_E_DEVICE, m->input ? "input" : "output", "the tensor is on %s, but "
                     "this process joined the group with %s",
                     moth_device_name(x->l.device, other), moth_device_name(g->device, own));
  if (m->x.kind == MOTH_TRANSFER_RECV && m->x.peer < 0)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, "src", "NCCL needs the rank of the sender");
  if (m->x.tag)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, "tag", "NCCL has no tags: messages of two processes "
                     "arrive in order");
  return MOTH_OK;
}

static int check_sizes(moth_ctx *ctx, const moth_transfer *m, const moth_group *g) {
  int64_t at[2] = {0, 0};
  for (int i = 0; m->x.sizes && i < 2 * g->n; i++) {
    if (m->x.sizes[i] < 0) return moth_fail(ctx, MOTH_E_ARG, "sizes", "a size is negative");
    if (__builtin_add_overflow(at[i / g->n], m->x.sizes[i], &at[i / g->n])) at[0] = INT64_MAX;
  }
  if (m->x.sizes && (at[0] > m->input->l.numel || at[1] > m->output->l.numel))
    return moth_fail(ctx, MOTH_E_SHAPE, "sizes", "more elements than the tensor has");
  return MOTH_OK;
}

int moth_device_transfer_start(moth_ctx *ctx, moth_transfer *m, moth_group *g) {
  int status = moth_transfers_check(ctx);
  if (!status) status = check_place(ctx, m, g);
  if (!status) status = check_sizes(ctx, m, g);
  if (!status) status = moth_plugin->graphs->ready(ctx, g->device);
  if (status) return status;
  const moth_collective x = {m->x.kind, m->x.op, m->x.peer, moth_transfer_names[m->x.kind],
                             m->x.seconds, m->input, m->output, m->x.sizes};
  moth_job *job = NULL;
  g->busy = true;
  status = moth_plugin->transfers->start(ctx, g->on_device, &x, &job);
  g->busy = false;
  m->job = job;
  m->source = m->x.peer;
  m->x.sizes = NULL;
  if (status == MOTH_E_IO || status == MOTH_E_CUDA || status == MOTH_E_INTERRUPT) {
    char text[256];
    snprintf(text, sizeof text, "%.255s", ctx->error.text);
    abandon(g, text);
    g->raised = true;
  }
  if (!status && m->output) moth_storage_bump(m->output->storage);
  return status;
}

/* A transfer of the group that has not ended, or NULL. */
static moth_transfer *unfinished(const struct moth_processes *p, int32_t group) {
  moth_transfer *m = p->messages;
  while (m && !(m->job && !m->done && (group < 0 || m->x.group == group))) m = m->next;
  return m;
}

int moth_device_transfers_end(moth_ctx *ctx, int32_t group) {
  for (moth_transfer *m; (m = unfinished(ctx->processes, group));) {
    const bool dropped = m->dropped;
    m->dropped = false; /* or it would be freed during the wait */
    int status = moth_transfer_await(ctx, m, m->x.seconds > 0 ? m->x.seconds : 1e9);
    m->dropped = dropped;
    if (!status && m->code) status = fail_group(ctx, &ctx->processes->groups[m->x.group]);
    if (status) return status;
  }
  moth_transfers_progress(ctx);
  return MOTH_OK;
}

/* -- opening -- */

int32_t moth_nccl_id(moth_ctx *ctx, void *id) {
  MOTH_NEED(ctx, id, MOTH_E_ARG);
  moth_error_clear(ctx);
  int status = moth_device_check(ctx, NULL, 1);
  return status ? status : functions(ctx)->id(ctx, id);
}

int32_t moth_nccl_open(moth_ctx *ctx, int32_t group, int32_t device, const void *id,
                       double seconds) {
  MOTH_NEED(ctx, id, MOTH_E_ARG);
  moth_error_clear(ctx);
  moth_group *g = moth_group_of(ctx, group);
  int status = g ? moth_device_check(ctx, "device", device) : ctx->error.code;
  if (status) return status;
  if (device == 0) return moth_fail(ctx, MOTH_E_DEVICE, "device", "NCCL needs a GPU");
  if (g->rank < 0)
    return moth_fail(ctx, MOTH_E_STATE, "group", "this process is not a member of the group");
  if (g->on_device) return moth_fail(ctx, MOTH_E_STATE, "group", "the group is connected already");
  g->on_device = functions(ctx)->open(ctx, device, id, g->rank, g->n, seconds);
  g->device = device;
  return g->on_device ? MOTH_OK : ctx->error.code;
}

/* processes.c -- messages between processes: collectives, sends and receives of tensors, groups of
** processes. Messages of CPU tensors are MPI's, those of GPU tensors are in device_transfers.c.
**
** Every message is a nonblocking MPI operation. MPI works only inside calls of its own, so messages
** advance while a caller waits, and at the polls of kernels (moth_cancelled): a reduction of
** gradients overlaps with the backward pass without a thread. Only the thread of the context calls
** MPI.
**
** f16 and bf16 are reduced in f32, in a scratch buffer.
**
** A process that ends waits for the others in a barrier of its own, MOTH_LEAVING: it must not meet
** a message that another process has started. Processes that wait for one that has ended notice it
** after a few seconds (notes.c).
*/
#include "processes.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/system.h"
#include "base/threads.h"
#include "device/device.h"
#include "kernel/divide.h"
#include "tensor/dtype.h"
#include "tensor/handles.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"
#include "transfer_ops.h"
#include "vendor/mpi.h"

#define POLL_EVERY 20e-6    /* seconds between two polls of MPI inside kernels */
#define LISTEN_EVERY 50e-3  /* seconds between two looks for questions */
#define ASK_AFTER 5.0       /* seconds until a wait asks whether a process has ended */
#define SPIN 0.5            /* seconds that a wait only yields; then it sleeps */
#define MAX_GROUPS 4096

enum { /* kinds of messages, in the order of moth_lua.h */
  BARRIER, BROADCAST, REDUCE, ALL_REDUCE, REDUCE_SCATTER, GATHER, ALL_GATHER, SCATTER, ALL_TO_ALL,
  SEND, RECV
};
_Static_assert((int)RECV == (int)MOTH_TRANSFER_RECV, "kinds as in moth_lua.h");

static atomic_bool taken; /* a context of this process uses MPI */
static pid_t first_user;  /* the process that has used MPI, or 0; a forked child cannot */

const char *const moth_transfer_names[] = {
  "barrier", "broadcast", "reduce", "all_reduce", "reduce_scatter", "gather",
  "all_gather", "scatter", "all_to_all", "send", "recv", "destroy_process_group"};

static bool on_device(const moth_transfer *m) {
  return (m->input && m->input->storage->device) || (m->output && m->output->storage->device);
}

static int mpi_error(moth_ctx *ctx, int code) {
  char text[1024] = "";
  int n = 0;
  ctx->processes->mpi->error_string(code, text, &n);
  return moth_fail(ctx, MOTH_E_IO, NULL, "MPI: %s%s", text, strstr(text, "runcated")
                   ? "; all processes must call the same functions in the same order, with tensors "
                     "of one size" : "");
}

static int not_open(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_STATE, NULL, "no process group: init_process_group makes one");
}

static bool forked(void) { return first_user && first_user != getpid(); }

static int not_ours(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_STATE, NULL,
                   "MPI belongs to the process that this one was forked from");
}

moth_group *moth_group_of(moth_ctx *ctx, int32_t index) {
  struct moth_processes *p = ctx->processes;
  if (!p) not_open(ctx);
  else if (forked()) not_ours(ctx);
  else if (index < 0 || index >= p->ngroups || !p->groups[index].used)
    moth_fail(ctx, MOTH_E_STATE, "group", "the process group was destroyed");
  else return &p->groups[index];
  return NULL;
}

/* -- progress -- */

/* The result of a reduction, from the scratch buffer to the tensor; the mean from the sum. */
static void finish_reduction(const struct moth_processes *p, moth_transfer *m) {
  moth_tensor *y = m->output;
  const moth_group *g = &p->groups[m->x.group];
  const bool arrives = m->x.kind != REDUCE || m->x.peer == g->rank;
  const int dtype = y->l.dtype, compute = moth_compute_dtype(dtype);
  const int64_t n = y->l.numel;
  char *from = m->scratch ? m->scratch : moth_at(y);
  if (!arrives) return;
  if (m->x.op == MOTH_REDUCE_MEAN) moth_divide(compute, from, n, g->n);
  if (!m->scratch) return;
  moth_convert(n, compute, from, 4, dtype, moth_at(y), moth_dtype_size[dtype]);
}

static bool reduces(int kind) {
  return kind == REDUCE || kind == ALL_REDUCE || kind == REDUCE_SCATTER;
}

static void finish(struct moth_processes *p, moth_transfer *m) {
  if (!m->code && m->output && reduces(m->x.kind)) finish_reduction(p, m);
  m->done = true;
  if (m->output) moth_storage_bump(m->output->storage);
}

static void release(moth_ctx *ctx, moth_transfer *m) {
  if (m->job) moth_plugin->transfers->drop(m->job);
  moth_tensor_release(m->input);
  moth_tensor_release(m->output);
  moth_dealloc(ctx, m->scratch, m->scratch_bytes);
  moth_dealloc(ctx, m->copy, m->copy_bytes);
  free(m->counts);
  moth_dealloc(ctx, m, sizeof *m);
}

/* Nobody waits for it any more. After a join, later users of the tensors' blocks run behind it. */
static void drop_message(moth_transfer *m) {
  m->dropped = true;
  if (!m->joined) return;
  moth_tensor_release(m->input);
  moth_tensor_release(m->output);
  m->input = m->output = NULL;
}

static void unlink_message(struct moth_processes *p, moth_transfer *m) {
  moth_transfer **at = &p->messages;
  while (*at && *at != m) at = &(*at)->next;
  if (*at) *at = m->next;
}

/* Tests every message. Frees those that are done and that nobody waits for. */
void moth_transfers_progress(moth_ctx *ctx) {
  struct moth_processes *p = ctx->processes;
  for (moth_transfer *m = p->messages, *next; m; m = next) {
    int done = m->done;
    next = m->next;
    if (!done && m->job) {
      moth_device_transfer_test(p, m);
    } else if (!done) {
      m->code = p->mpi->test(&m->request, &done, &m->source);
      if (done || m->code) finish(p, m);
    }
    const bool kept = m->captured && m->captured == ctx->capture && !m->waited;
    if (!m->done || !m->dropped || kept) continue;
    unlink_message(p, m);
    release(ctx, m);
  }
}

static void poll(moth_ctx *ctx) {
  struct moth_processes *p = ctx->processes;
  if (moth_on_worker || (!p->messages && ++p->polls % 64)) return;
  const double now = moth_seconds();
  const bool moves = p->messages && now - p->polled > POLL_EVERY;
  const bool listens = now - p->listened >= LISTEN_EVERY;
  if (moves) p->polled = now;
  if (listens) p->listened = now;
  if ((!moves && !listens) || forked()) return;
  if (moves) moth_transfers_progress(ctx);
  if (listens) moth_notes_answer(p);
}

/* -- waiting -- */

static int timed_out(moth_ctx *ctx, const moth_transfer *m, double seconds) {
  char text[512];
  moth_transfer_missing(ctx, m, text, sizeof text);
  if (m->done) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_IO, NULL, "no result after %g s%s", seconds,
                   text[0] || m->x.kind >= SEND ? text : "; all ranks have called it: do their "
                   "tensors have one size?");
}

/* Fails if a process has ended that the collective waits for. */
static int check_ended(moth_ctx *ctx, const moth_transfer *m, double seconds) {
  char text[512];
  if (m->job || m->x.kind >= SEND || moth_is_leaving(&m->x)) return MOTH_OK;
  if (!moth_transfer_missing(ctx, m, text, sizeof text) || m->done) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_IO, NULL, "no result after %g s%s", seconds, text);
}

int moth_transfer_await(moth_ctx *ctx, moth_transfer *m, double seconds) {
  const double began = moth_seconds();
  double ask = ASK_AFTER;
  for (uint32_t turn = 0; !m->done; turn++) {
    moth_transfers_progress(ctx);
    if (m->done) break;
    if (turn % 16 == 15 && moth_cancelled(ctx)) return moth_stopped(ctx);
    const double passed = moth_seconds() - began;
    if (passed > seconds) return timed_out(ctx, m, seconds);
    if (passed > ask) {
      int status = check_ended(ctx, m, ask);
      if (status) return status;
      ask *= 2;
    }
    if (passed > SPIN) moth_sleep(passed > 2 * SPIN ? 1e-3 : 1e-4);
    else sched_yield();
  }
  return MOTH_OK;
}

/* -- starting -- */

static int check_tensor(moth_ctx *ctx, const moth_tensor *x, const char *arg) {
  if (!moth_contiguous(x)) return moth_fail(ctx, MOTH_E_ARG, arg, "a contiguous tensor is needed");
  if (!x->storage->device && x->l.numel > INT32_MAX)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, arg, "a message has at most 2^31 - 1 elements");
  return MOTH_OK;
}

static char *input_of(const moth_transfer *m) {
  return m->copy ? m->copy : m->input ? moth_at(m->input) : NULL;
}

static moth_mpi_handle op_of(const moth_mpi *mpi, int op, int dtype) {
  if (dtype != MOTH_BOOL) return mpi->ops[op == MOTH_REDUCE_MEAN ? MOTH_MPI_SUM : op];
  if (op == MOTH_REDUCE_SUM) op = MOTH_MPI_MAX;
  if (op == MOTH_REDUCE_PRODUCT) op = MOTH_MPI_MIN;
  return mpi->ops[op];
}

/* A reduction reads from `*from`, or from where it writes if that is MPI_IN_PLACE. */
static int prepare_reduction(moth_ctx *ctx, moth_transfer *m, const void **from, void **to,
                             moth_mpi_handle *type) {
  const struct moth_processes *p = ctx->processes;
  const int dtype = m->input->l.dtype;
  const int64_t n = m->input->l.numel;
  *from = input_of(m);
  *to = moth_at(m->output);
  if (moth_is_half(dtype)) {
    m->scratch_bytes = n * 4 + 4;
    if (!(m->scratch = moth_alloc(ctx, m->scratch_bytes))) return ctx->error.code;
    moth_convert(n, dtype, input_of(m), 2, MOTH_F32, m->scratch, 4);
    *from = *to = m->scratch;
    *type = p->mpi->types[MOTH_F32];
  }
  if (*from == *to) *from = p->mpi->in_place;
  if (m->x.kind == REDUCE && m->x.peer != p->groups[m->x.group].rank &&
      *from == p->mpi->in_place)
    *from = *to; /* only the root reduces in place */
  return MOTH_OK;
}

static int start_all_to_all(moth_ctx *ctx, moth_transfer *m, const moth_group *g) {
  const struct moth_processes *p = ctx->processes;
  int *counts = m->counts = calloc((size_t)g->n * 4 + 1, sizeof *counts);
  int64_t at[2] = {0, 0};
  if (!counts) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < g->n; i++) {
      const int64_t n = m->x.sizes[side * g->n + i];
      if (n < 0 || n > INT32_MAX)
        return moth_fail(ctx, MOTH_E_ARG, "sizes", "sizes must be from 0 to 2^31 - 1");
      counts[(2 * side) * g->n + i] = (int)n;
      counts[(2 * side + 1) * g->n + i] = (int)at[side];
      at[side] += n;
    }
  m->x.sizes = NULL;
  if (at[0] > m->input->l.numel || at[1] > m->output->l.numel)
    return moth_fail(ctx, MOTH_E_SHAPE, "sizes", "more elements than the tensor has");
  const int code = p->mpi->all_to_all(
    input_of(m), counts, counts + g->n, moth_at(m->output), counts + 2 * g->n,
    counts + 3 * g->n, p->mpi->types[m->input->l.dtype], g->comm, &m->request);
  return code ? mpi_error(ctx, code) : MOTH_OK;
}

static int check_reduction(moth_ctx *ctx, const moth_transfer *m) {
  const int dtype = m->input->l.dtype;
  if (m->x.op == MOTH_REDUCE_MEAN && !moth_is_float(dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, "op", "the mean needs a float tensor");
  if (moth_is_float(dtype) && m->x.op >= MOTH_REDUCE_BAND && m->x.op != MOTH_REDUCE_MEAN)
    return moth_fail(ctx, MOTH_E_DTYPE, "op", "bitwise operations need an integer tensor");
  return MOTH_OK;
}

/* How many times the elements of the input does the output have, times n? 0: any number. */
static int check_sizes(moth_ctx *ctx, const moth_transfer *m, const moth_group *g) {
  const moth_tensor *x = m->input, *y = m->output;
  if (x && y && x->l.dtype != y->l.dtype)
    return moth_fail(ctx, MOTH_E_DTYPE, "output", "input and output need one dtype");
  const int kind = m->x.kind;
  const bool root = m->x.peer == g->rank;
  const bool wrong =
    kind == ALL_GATHER || (kind == GATHER && root) ? y->l.numel != x->l.numel * g->n
    : kind == REDUCE_SCATTER || (kind == SCATTER && root)
      ? x->l.numel != y->l.numel * g->n
    : kind == ALL_REDUCE || kind == REDUCE ? y->l.numel != x->l.numel : false;
  return wrong ? moth_fail(ctx, MOTH_E_SHAPE, "output", "the numbers of elements do not fit: %lld "
                           "and %lld on %d ranks", (long long)x->l.numel, (long long)y->l.numel,
                           (int)g->n) : MOTH_OK;
}

static int start(moth_ctx *ctx, moth_transfer *m, const moth_group *g) {
  const moth_mpi *mpi = ctx->processes->mpi;
  const moth_tensor *some = m->input ? m->input : m->output;
  const int dtype = some ? some->l.dtype : MOTH_U8;
  moth_mpi_handle type = mpi->types[dtype], *r = &m->request;
  const void *from = input_of(m);
  void *to = m->output ? moth_at(m->output) : NULL;
  const int kind = m->x.kind, root = m->x.peer;
  const int n = some ? (int)some->l.numel : 0, out = m->output ? (int)m->output->l.numel : 0;
  int status = MOTH_OK, code = 0;
  if (reduces(kind)) status = prepare_reduction(ctx, m, &from, &to, &type);
  if (status) return status;
  const moth_mpi_handle op = reduces(kind) ? op_of(mpi, m->x.op, dtype) : 0;
  switch (kind) {
    case BARRIER:
      code = mpi->barrier(moth_is_leaving(&m->x) ? ctx->processes->monitor : g->comm, r);
      break;
    case BROADCAST: code = mpi->broadcast(to, out, type, root, g->comm, r); break;
    case REDUCE: code = mpi->reduce(from, to, n, type, op, root, g->comm, r); break;
    case ALL_REDUCE: code = mpi->all_reduce(from, to, n, type, op, g->comm, r); break;
    case REDUCE_SCATTER:
      code = mpi->reduce_scatter(from, to, out, type, op, g->comm, r);
      break;
    case GATHER: code = mpi->gather(from, to, n, type, root, g->comm, r); break;
    case ALL_GATHER: code = mpi->all_gather(from, to, n, type, g->comm, r); break;
    case SCATTER: code = mpi->scatter(from, to, out, type, root, g->comm, r); break;
    case ALL_TO_ALL: return start_all_to_all(ctx, m, g);
    case SEND: code = mpi->send(from, n, type, root, m->x.tag, g->comm, r); break;
    default:
      code = mpi->receive(to, out, type, root < 0 ? mpi->any_source : root, m->x.tag, g->comm, r);
  }
  return code ? mpi_error(ctx, code) : MOTH_OK;
}

static bool writes(int kind) { return kind != BARRIER && kind != SEND; }
static bool reads(int kind) {
  return kind != BARRIER && kind != RECV && kind != BROADCAST;
}

/* Resolves the tensors that this rank's side of the message needs; NULL for the others. */
static int find_tensors(moth_ctx *ctx, const moth_transfer_args *x, const moth_group *g,
                        moth_tensor **input, moth_tensor **output) {
  const bool root = x->peer == g->rank;
  *input = *output = NULL;
  if (reads(x->kind) && !(x->kind == SCATTER && !root)) {
    *input = moth_resolve(ctx, &x->input, "input");
    if (!*input || check_tensor(ctx, *input, "input")) return ctx->error.code;
  }
  if (writes(x->kind) && !(x->kind == GATHER && !root)) {
    *output = moth_resolve(ctx, &x->output, "output");
    if (!*output || check_tensor(ctx, *output, "output")) return ctx->error.code;
  }
  if (*input && *output && (*input)->l.device != (*output)->l.device)
    return moth_fail(ctx, MOTH_E_DEVICE, "output", "input and output need one device");
  return MOTH_OK;
}

/* Replaces the input, a tensor of a device, by a copy. */
static int copy_input(moth_ctx *ctx, moth_transfer *m) {
  moth_tensor *x = m->input;
  m->input = moth_tensor_new(ctx, &x->l);
  const int status = m->input ? moth_copy_into(m->input, x) : ctx->error.code;
  moth_tensor_release(x);
  return status;
}

/* Checks the message before it is started. */
static int check(moth_ctx *ctx, const moth_transfer *m, const moth_group *g) {
  int status = check_sizes(ctx, m, g);
  if (!status && reduces(m->x.kind)) status = check_reduction(ctx, m);
  if (!status && !ctx->processes->mpi && !on_device(m))
    return moth_fail(ctx, MOTH_E_STATE, NULL, "messages of the CPU need MPI: start the processes "
                     "with mpirun, or pass tensors of a GPU");
  return status;
}

/* Gives the message tensors of its own over the memory of input and output: if the data of these
** are replaced, MPI still has its buffers. The buffers must not overlap: an input in the memory of
** the output is copied, unless it is a reduction in place. */
static int take_tensors(moth_ctx *ctx, moth_transfer *m, const moth_tensor *input,
                        const moth_tensor *output) {
  if (input && !(m->input = moth_tensor_like(ctx, &input->l, input->storage)))
    return ctx->error.code;
  if (output && !(m->output = moth_tensor_like(ctx, &output->l, output->storage)))
    return ctx->error.code;
  if (!input || !output) return MOTH_OK;
  const char *from = moth_at(input), *to = moth_at(output);
  const int64_t size = input->l.numel * moth_dtype_size[input->l.dtype],
                room = output->l.numel * moth_dtype_size[output->l.dtype];
  if (from + size <= to || to + room <= from) return MOTH_OK;
  if (from == to && (m->x.kind == ALL_REDUCE || m->x.kind == REDUCE)) return MOTH_OK;
  if (input->l.device) return copy_input(ctx, m);
  if (!(m->copy = moth_alloc(ctx, size))) return ctx->error.code;
  m->copy_bytes = size;
  memcpy(m->copy, from, (size_t)size);
  return MOTH_OK;
}

/* Is the message one that the group can have? */
static int check_exchange(moth_ctx *ctx, const moth_transfer_args *x, const moth_group *g) {
  const bool from_any = x->kind == RECV && x->peer == -1;
  if (x->kind < 0 || x->kind > RECV || x->op < 0 || x->op > MOTH_REDUCE_MEAN ||
      (x->kind == ALL_TO_ALL && !x->sizes))
    return moth_fail(ctx, MOTH_E_ARG, NULL, "no such message");
  if (g->rank < 0)
    return moth_fail(ctx, MOTH_E_STATE, "group", "this process is not a member of the group");
  if (!from_any && (x->peer < 0 || x->peer >= g->n))
    return moth_fail(ctx, MOTH_E_ARG, "rank", "the group has ranks 0 to %d, got %d",
                     (int)g->n - 1, (int)x->peer);
  return MOTH_OK;
}

int moth_transfer_begin(moth_ctx *ctx, const moth_transfer_args *x, const moth_tensor *input,
                        const moth_tensor *output, bool replayed) {
  moth_group *g = moth_group_of(ctx, x->group);
  if (!g) return ctx->error.code;
  moth_transfer *m = moth_alloc(ctx, sizeof *m);
  if (!m) return ctx->error.code;
  *m = (moth_transfer){.x = *x, .source = -1, .started = moth_seconds(),
                       .captured = ctx->capture, .replayed = replayed};
  if (ctx->processes->mpi) m->request = ctx->processes->mpi->no_request;
  int status = take_tensors(ctx, m, input, output);
  if (!status) status = check(ctx, m, g);
  if (!status) status = on_device(m) ? moth_device_transfer_start(ctx, m, g) : start(ctx, m, g);
  if (status) {
    release(ctx, m);
    return status;
  }
  const bool collective = x->kind != SEND && x->kind != RECV && !moth_is_leaving(x);
  m->number = collective ? ++g->started : INT64_MAX;
  m->next = ctx->processes->messages;
  ctx->processes->messages = m;
  return MOTH_OK;
}

int32_t moth_transfer_start(moth_ctx *ctx, const moth_transfer_args *x, moth_transfer **made) {
  MOTH_NEED(ctx, x && made, MOTH_E_ARG);
  const moth_group *g = moth_group_of(ctx, x->group);
  moth_tensor *input, *output;
  int status = g ? check_exchange(ctx, x, g) : ctx->error.code;
  if (!status) status = find_tensors(ctx, x, g, &input, &output);
  if (!status)
    status = ctx->capture ? moth_transfer_start_recorded(ctx, x, input, output)
                          : moth_transfer_begin(ctx, x, input, output, false);
  if (!status) *made = ctx->processes->messages; /* the newest is the first */
  return status;
}

/* Is m a message of the context? Those that ended before MPI was closed are freed. */
static bool knows(const moth_ctx *ctx, const moth_transfer *m) {
  const struct moth_processes *p = ctx->processes;
  const moth_transfer *at = p && !forked() ? p->messages : NULL;
  while (at && at != m) at = at->next;
  return at != NULL;
}

int32_t moth_transfer_done(moth_ctx *ctx, const moth_transfer *m) {
  MOTH_NEED(ctx, m, MOTH_E_ARG);
  if (!knows(ctx, m)) return not_open(ctx);
  moth_transfers_progress(ctx);
  return m->done;
}

static int wait_for(moth_ctx *ctx, moth_transfer *m, double seconds) {
  ctx->processes->waits_for = moth_is_leaving(&m->x) ? MOTH_LEAVING : m->x.kind;
  int status = m->job && seconds < 0 ? MOTH_OK : moth_transfer_await(ctx, m, seconds);
  ctx->processes->waits_for = -1;
  if (!status && m->job) return moth_device_transfer_join(ctx, m);
  return !status && m->code ? mpi_error(ctx, m->code) : status;
}

/* The oldest transfer whose first tensor is x: of the step that is recorded, or of replays. NULL:
** there is none. */
static moth_transfer *captured_of(moth_ctx *ctx, const moth_tensor *x) {
  moth_transfer *found = NULL;
  for (moth_transfer *m = ctx->processes->messages; m; m = m->next) {
    const moth_tensor *first = m->output ? m->output : m->input;
    const bool counts = (ctx->capture ? m->captured != NULL : m->replayed) && !m->joined;
    if (counts && first && first->storage == x->storage && first->l.offset == x->l.offset)
      found = m;
  }
  return found;
}

/* Ends a transfer in a captured step or a replay. */
int moth_transfer_end(moth_ctx *ctx, const moth_tensor *x, double seconds) {
  if (!moth_group_of(ctx, 0)) return ctx->error.code;
  moth_transfer *m = captured_of(ctx, x);
  if (!m) return MOTH_OK;
  int status = wait_for(ctx, m, seconds);
  if (m->replayed && m->joined) drop_message(m);
  if (!m->done || !m->replayed) return status;
  unlink_message(ctx->processes, m);
  release(ctx, m);
  return status;
}

int32_t moth_transfer_wait(moth_ctx *ctx, moth_transfer *m, double seconds, int32_t *source) {
  MOTH_NEED(ctx, m, MOTH_E_ARG);
  if (!knows(ctx, m)) return not_open(ctx);
  moth_tensor *first = m->output ? m->output : m->input;
  if (m->captured && !ctx->capture)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a captured step started this %s: wait for it in the "
                     "captured function", moth_transfer_names[m->x.kind]);
  m->waited = true;
  int status = m->captured ? moth_transfer_wait_recorded(ctx, first, seconds)
                           : wait_for(ctx, m, seconds);
  if (source) *source = m->source;
  return status;
}

int moth_processes_check_capture(moth_ctx *ctx) {
  const moth_transfer *m = ctx->processes ? ctx->processes->messages : NULL;
  while (m && (m->captured != ctx->capture || m->waited)) m = m->next;
  return m ? moth_fail(ctx, MOTH_E_STATE, NULL, "the captured function must wait for the %s that "
                       "it starts", moth_transfer_names[m->x.kind]) : MOTH_OK;
}

void moth_transfer_free(moth_ctx *ctx, moth_transfer *m) {
  MOTH_NEED(ctx, m, );
  if (!knows(ctx, m)) return;
  drop_message(m);
  moth_transfers_progress(ctx);
}

/* -- groups -- */

static int add_group(moth_ctx *ctx, moth_mpi_handle comm, const int32_t *ranks, int32_t n,
                     int32_t rank) {
  struct moth_processes *p = ctx->processes;
  moth_group *grown = realloc(p->groups, (size_t)(p->ngroups + 1) * sizeof *grown);
  int32_t *copy = malloc((size_t)n * sizeof *copy);
  if (grown) p->groups = grown;
  if (!grown || !copy) {
    free(copy);
    return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  }
  for (int32_t i = 0; i < n; i++) copy[i] = ranks ? ranks[i] : i;
  p->groups[p->ngroups++] =
    (moth_group){.comm = comm, .ranks = copy, .n = n, .rank = rank, .used = true};
  if (rank >= 0 && p->mpi) p->mpi->on_error(comm, p->mpi->return_errors);
  return MOTH_OK;
}

int32_t moth_group_new(moth_ctx *ctx, const int32_t *ranks, int32_t n, int32_t *made) {
  MOTH_NEED(ctx, ranks && made, MOTH_E_ARG);
  const moth_group *all = moth_group_of(ctx, 0);
  if (!all) return ctx->error.code;
  struct moth_processes *p = ctx->processes;
  int32_t mine = -1;
  if (p->ngroups >= MAX_GROUPS)
    return moth_fail(ctx, MOTH_E_LIMIT, NULL, "at most %d process groups are possible, with those "
                     "that were destroyed", MAX_GROUPS);
  if (n < 1 || n > all->n)
    return moth_fail(ctx, MOTH_E_ARG, "ranks", "from 1 to %d ranks are needed, got %d", (int)all->n,
                     (int)n);
  for (int32_t i = 0; i < n; i++) {
    if (ranks[i] < 0 || ranks[i] >= all->n)
      return moth_fail(ctx, MOTH_E_ARG, "ranks", "ranks are from 0 to %d, got %d", (int)all->n - 1,
                       (int)ranks[i]);
    for (int32_t k = 0; k < i; k++)
      if (ranks[k] == ranks[i])
        return moth_fail(ctx, MOTH_E_ARG, "ranks", "rank %d occurs twice", (int)ranks[i]);
    if (ranks[i] == all->rank) mine = i;
  }
  moth_mpi_handle comm = 0;
  const int color = mine >= 0 ? 1 : MOTH_MPI_UNDEFINED;
  const int code = p->mpi ? p->mpi->split(all->comm, color, mine, &comm) : 0;
  if (code) return mpi_error(ctx, code);
  *made = p->ngroups;
  return add_group(ctx, comm, ranks, n, mine);
}

int32_t moth_group_free(moth_ctx *ctx, int32_t index) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_group *g = moth_group_of(ctx, index);
  if (!g) return ctx->error.code;
  if (index == 0) return moth_fail(ctx, MOTH_E_ARG, "group", "the group of all processes ends "
                                   "with moth_mpi_close");
  int status = moth_device_transfers_end(ctx, index);
  if (status) return status;
  moth_group_leave_device(g, false);
  if (g->rank >= 0 && ctx->processes->mpi) ctx->processes->mpi->free(&g->comm);
  g->used = false;
  return MOTH_OK;
}

/* -- opening and closing -- */

/* Open MPI's nonblocking all_reduce sends whole buffers by default. Rabenseifner's algorithm sends
** parts, which takes a third of the time for 25 MB. A user's own setting remains. */
static void choose_algorithms(void) {
#ifndef _WIN32
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0);
#endif
}

static int open_world(moth_ctx *ctx, struct moth_processes *p) {
  int ready = 0, over = 0, level = 0, rank = 0, size = 1;
  int code = p->mpi->initialized(&ready);
  if (!code) code = p->mpi->finalized(&over);
  if (over)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a process can use MPI only once, and it was closed");
  if (!code && !ready) {
    choose_algorithms();
    moth_interrupts_end(true);
    code = p->mpi->init(MOTH_MPI_FUNNELED, &level);
    moth_interrupts_end(false);
    p->started_here = !code;
  }
  if (code) return moth_fail(ctx, MOTH_E_IO, NULL, "MPI_Init failed with code %d", code);
  int status = moth_mpi_check(ctx, p->mpi);
  moth_mpi_handle comm = 0;
  if (!status && ((code = p->mpi->rank(p->mpi->world, &rank)) ||
                  (code = p->mpi->size(p->mpi->world, &size)) ||
                  (code = p->mpi->split(p->mpi->world, 0, rank, &comm)) ||
                  (code = p->mpi->split(p->mpi->world, 0, rank, &p->monitor))))
    status = mpi_error(ctx, code);
  if (!status) status = moth_processes_ready(ctx, comm, size, rank);
  if (!status) p->mpi->on_error(p->monitor, p->mpi->return_errors);
  if (!status && p->started_here) p->mpi->on_error(p->mpi->world, p->mpi->return_errors);
  return status;
}

int moth_processes_begin(moth_ctx *ctx) {
  bool free_now = false;
  if (ctx->closed) return moth_fail_closed(ctx);
  if (forked()) return not_ours(ctx);
  if (ctx->processes || !atomic_compare_exchange_strong(&taken, &free_now, true))
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a context of this process already has a process "
                     "group");
  struct moth_processes *p = ctx->processes = calloc(1, sizeof *p);
  if (p) p->waits_for = -1;
  if (p) return MOTH_OK;
  atomic_store(&taken, false);
  return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
}

int moth_processes_ready(moth_ctx *ctx, moth_mpi_handle comm, int32_t n, int32_t rank) {
  int status = add_group(ctx, comm, NULL, n, rank);
  if (status) return status;
  first_user = getpid();
  ctx->message_poll = poll;
  atomic_fetch_or(&ctx->cancel, MOTH_MESSAGING);
  return MOTH_OK;
}

int32_t moth_mpi_open(moth_ctx *ctx, const char *path, int32_t *rank, int32_t *size) {
  MOTH_NEED(ctx, rank && size, MOTH_E_ARG);
  if (ctx->closed) return moth_fail_closed(ctx);
  const moth_mpi *mpi = moth_mpi_find(ctx, path);
  int status = mpi ? moth_processes_begin(ctx) : ctx->error.code;
  if (status) return status;
  struct moth_processes *p = ctx->processes;
  p->mpi = mpi;
  if ((status = open_world(ctx, p))) {
    moth_processes_free(ctx);
    return status;
  }
  *rank = p->groups[0].rank;
  *size = p->groups[0].n;
  return MOTH_OK;
}

int32_t moth_mpi_found(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  return moth_mpi_find(ctx, NULL) != NULL;
}

const char *moth_mpi_version(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, NULL);
  return ctx->processes && ctx->processes->mpi ? ctx->processes->mpi->version : NULL;
}

/* Frees what the context has. Unfinished messages stay: MPI may still write to their tensors. */
void moth_processes_free(moth_ctx *ctx) {
  struct moth_processes *p = ctx->processes;
  if (!p) return;
  ctx->message_poll = NULL;
  atomic_fetch_and(&ctx->cancel, ~MOTH_MESSAGING);
  for (int32_t i = 0; i < p->ngroups; i++) moth_group_leave_device(&p->groups[i], true);
  moth_rendezvous_close(p->rendezvous);
  for (moth_transfer *m = p->messages, *next; m; m = next) {
    next = m->next;
    if (m->done || m->job) release(ctx, m);
  }
  for (int32_t i = 0; i < p->ngroups; i++) free(p->groups[i].ranks);
  free(p->groups);
  free(p);
  ctx->processes = NULL;
  atomic_store(&taken, false);
}

int32_t moth_mpi_close(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  struct moth_processes *p = ctx->processes;
  if (!p) return MOTH_OK;
  if (forked()) {
    moth_processes_free(ctx);
    return MOTH_OK;
  }
  moth_transfers_progress(ctx);
  int status = moth_device_transfers_end(ctx, -1);
  if (status) return status;
  for (const moth_transfer *m = p->messages; m; m = m->next)
    if (!m->done)
      return moth_fail(ctx, MOTH_E_STATE, NULL, "%s has not ended: wait for it first",
                       moth_transfer_names[m->x.kind]);
  const moth_mpi *mpi = p->mpi;
  const bool ends = p->started_here;
  for (int32_t i = 0; i < p->ngroups; i++) moth_group_leave_device(&p->groups[i], false);
  moth_processes_free(ctx);
  moth_interrupts_end(true);
  const int code = ends ? mpi->finalize() : 0;
  moth_interrupts_end(false);
  return code ? moth_fail(ctx, MOTH_E_IO, NULL, "MPI_Finalize failed with code %d", code)
              : MOTH_OK;
}

int32_t moth_mpi_abort(moth_ctx *ctx, int32_t code) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  if (!moth_group_of(ctx, 0)) return ctx->error.code;
  struct moth_processes *p = ctx->processes;
  for (int32_t i = 0; i < p->ngroups; i++) moth_group_leave_device(&p->groups[i], true);
  if (p->mpi) p->mpi->abort(p->groups[0].comm, code);
  return MOTH_OK;
}

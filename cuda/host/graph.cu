/* graph.cu -- CUDA graphs: launches that are recorded once, by capturing a stream, and then
** submitted together. A graph runs on the stream that it was captured on; if another stream is
** current, each waits for the other.
**
** A graph consists of parts; a part is the launches of one op. If a part varies, the graph keeps
** the nodes of its kernels: on replay they get the new arguments; nothing runs before the whole
** graph does. Each part has an error record, so that a late error names its op. Scratch blocks of
** kernels are kept apart from blocks of tensors as long as the stream has graphs. Two graphs may
** share scratch memory, since they run one after the other. */
#include "device.cuh"

#include <stdlib.h>

typedef struct graph_part {
  const char *op;
  bool varies;
  unsigned first, count; /* its nodes, if the part varies */
} graph_part;

struct moth_graph {
  moth_graph *next;
  moth_device_stream *of;
  int back;        /* the stream to make current again, or -1 */
  uint64_t number; /* number of its last launch */
  cudaGraph_t graph;
  cudaGraphExec_t exec; /* NULL: being captured */
  graph_part *parts;
  uint32_t nparts, part;  /* number of parts, and the current part */
  cudaGraphNode_t *nodes; /* of kernels with varying arguments */
  unsigned nnodes, capacity;
  unsigned at;            /* the next node to update */
  moth_kernel_error *records, *records_there; /* one for each part; their address for the CPU and
                                              ** for the device */
};

/* -- creating and freeing -- */

static void graph_delete(moth_graph *g) {
  if (g->exec) cudaGraphExecDestroy(g->exec);
  if (g->graph) cudaGraphDestroy(g->graph);
  if (g->records) cudaFreeHost(g->records);
  free(g->parts);
  free(g->nodes);
  free(g);
}

static moth_graph *graph_new(moth_ctx *ctx, moth_device_stream *of, uint32_t parts) {
  moth_graph *g = (moth_graph *)calloc(1, sizeof *g);
  const size_t bytes = parts * sizeof *g->records;
  cudaError_t error = cudaErrorMemoryAllocation;
  if (g) g->parts = (graph_part *)calloc(parts, sizeof *g->parts);
  if (g && g->parts) error = cudaHostAlloc((void **)&g->records, bytes, cudaHostAllocMapped);
  if (!error) error = cudaHostGetDevicePointer((void **)&g->records_there, g->records, 0);
  if (error) {
    moth_fail_cuda(ctx, "a CUDA graph cannot be created", error);
    if (g) graph_delete(g);
    return NULL;
  }
  g->of = of;
  g->back = -1;
  g->nparts = parts;
  for (uint32_t i = 0; i < parts; i++)
    g->records[i] = moth_kernel_error{0, &of->device_context->streams[0]->page_there->any, 0, 0};
  return g;
}

static moth_graph *graph_begin(moth_ctx *ctx, int device, uint32_t parts) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (p && moth_is_blocking())
    moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
              "MOTH_CUDA_BLOCKING is set: each launch is synchronous");
  if (!p || moth_is_blocking()) return NULL;
  moth_device_stream *s = moth_stream_now(p);
  moth_graph *g = graph_new(ctx, s, parts);
  if (!g) return NULL;
  const cudaError_t error = cudaStreamBeginCapture(s->queue.stream, cudaStreamCaptureModeRelaxed);
  if (error) {
    moth_fail_cuda(ctx, "a CUDA graph cannot be created", error);
    graph_delete(g);
    return NULL;
  }
  g->next = s->graphs.all;
  s->graphs.all = s->graphs.now = g;
  return g;
}

/* Errors that its kernels reported are still raised. */
static void keep_kernel_errors(const moth_graph *g) {
  moth_device_stream *s = g->of;
  for (uint32_t i = 0; i < g->nparts; i++) {
    moth_kernel_error *to = &s->page->of[s->launches % RECORDS];
    if (!g->records[i].code) continue;
    to->value = g->records[i].value;
    to->limit = g->records[i].limit;
    to->code = g->records[i].code;
    moth_note_launch(s, g->parts[i].op);
  }
}

/* Makes the graph's stream current, ordered after the current stream; leave() restores it, in
** order. */
static cudaError_t enter(moth_graph *g) {
  moth_device_context *p = g->of->device_context;
  moth_device_stream *now = moth_stream_now(p);
  if (now == g->of) return cudaSuccess;
  g->back = now->number;
  p->current = g->of->number;
  return moth_stream_join(g->of, now);
}

/* The work has been submitted, so a join that fails must not hide it. */
static void leave(moth_graph *g, bool behind) {
  moth_device_context *p = g->of->device_context;
  if (g->back < 0) return;
  p->current = g->back;
  g->back = -1;
  if (!behind || !moth_stream_join(moth_stream_now(p), g->of)) return;
  cudaGetLastError();
  cudaStreamSynchronize(g->of->queue.stream);
}

static void graph_drop(moth_ctx *ctx, moth_graph *g) {
  moth_device_stream *s = g->of;
  const bool now = s->graphs.now == g, there = !moth_is_forked() &&
                                               moth_device_context_of(ctx, s->queue.device + 1);
  if (now && !g->exec && there) cudaStreamEndCapture(s->queue.stream, &g->graph);
  if (now) s->graphs.now = NULL;
  leave(g, there);
  if (!there) return;
  cudaGetLastError(); /* a failed capture reports its error once more */
  cudaStreamSynchronize(s->queue.stream);
  keep_kernel_errors(g);
  for (moth_graph **at = &s->graphs.all; *at; at = &(*at)->next)
    if (*at == g) {
      *at = g->next;
      break;
    }
  graph_delete(g);
  if (!s->graphs.all) moth_blocks_drop(s->graphs.blocks);
}

void moth_graphs_close(moth_device_stream *s) {
  while (s->graphs.all) {
    moth_graph *g = s->graphs.all;
    s->graphs.all = g->next;
    graph_delete(g);
  }
  moth_blocks_free(s->graphs.blocks);
}

/* -- launches -- */

static int note_node(moth_ctx *ctx, moth_graph *g) {
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *last = NULL; /* the nodes that the next launch depends on */
  size_t n = 0;
#if CUDART_VERSION >= 13000
  cudaError_t error =
    cudaStreamGetCaptureInfo(g->of->queue.stream, &status, NULL, NULL, &last, NULL, &n);
#else
  cudaError_t error =
    cudaStreamGetCaptureInfo_v2(g->of->queue.stream, &status, NULL, NULL, &last, &n);
#endif
  if (!error && n != 1) error = cudaErrorInvalidValue;
  if (error) return moth_fail_cuda(ctx, "a kernel is not found in its graph", error);
  if (g->nnodes == g->capacity) {
    const unsigned capacity = g->capacity ? 2 * g->capacity : 16;
    void *more = realloc(g->nodes, capacity * sizeof *g->nodes);
    if (!more) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
    g->nodes = (cudaGraphNode_t *)more;
    g->capacity = capacity;
  }
  g->nodes[g->nnodes++] = *last;
  g->parts[g->part].count++;
  return MOTH_OK;
}

static int fail_change(moth_ctx *ctx) {
  return moth_fail(ctx, MOTH_E_STATE, NULL, "its kernels differ from the captured ones");
}

static int change(moth_ctx *ctx, moth_graph *g, const moth_kernel_call *call) {
  const graph_part *p = &g->parts[g->part];
  if (g->at == p->first + p->count) return fail_change(ctx);
  struct cudaKernelNodeParams to = {};
  to.func = (void *)(uintptr_t)call->kernel;
  to.gridDim = call->grid;
  to.blockDim = call->block;
  to.sharedMemBytes = (unsigned)call->shared;
  to.kernelParams = call->args;
  const cudaError_t error = cudaGraphExecKernelNodeSetParams(g->exec, g->nodes[g->at++], &to);
  return error ? moth_fail_cuda(ctx, "a kernel of a graph cannot be changed", error) : MOTH_OK;
}

int moth_graph_launch(moth_ctx *ctx, moth_device_stream *s, const moth_kernel_call *call,
                      cudaError_t error) {
  moth_graph *g = s->graphs.now;
  const bool varies = g->parts[g->part].varies;
  if (call && g->exec) return change(ctx, g, call);
  if (call) error = moth_submit(call, s->queue.stream);
  if (error) return moth_fail_cuda(ctx, "a CUDA graph cannot contain this", error);
  if (!varies) return MOTH_OK;
  return call ? note_node(ctx, g) : fail_change(ctx);
}

/* All kernels of the last updated part must have been launched. */
static int finish_part(moth_ctx *ctx, const moth_graph *g) {
  if (!g->exec || g->of->graphs.now != g) return MOTH_OK;
  const graph_part *p = &g->parts[g->part];
  return g->at == p->first + p->count ? MOTH_OK : fail_change(ctx);
}

static int graph_part_begin(moth_ctx *ctx, moth_graph *g, uint32_t part, const char *op,
                            bool varies) {
  moth_device_stream *s = g->of;
  int status =
      moth_device_context_peek(ctx, s->queue.device + 1) ? finish_part(ctx, g) : moth_status(ctx);
  if (status) return status;
  const cudaError_t error = enter(g);
  if (error) return moth_fail_cuda(ctx, "a graph's stream cannot wait", error);
  if (!g->exec) g->parts[part] = graph_part{op, varies, g->nnodes, 0};
  s->graphs.now = g;
  g->part = part;
  g->at = g->parts[part].first;
  s->queue.kernel_error = &g->records_there[part];
  return MOTH_OK;
}

static int graph_ready(moth_ctx *ctx, int device) {
  return moth_queue_of(ctx, device) ? MOTH_OK : moth_status(ctx);
}

static int graph_launch(moth_ctx *ctx, moth_graph *g) {
  moth_device_stream *s = g->of;
  int status =
      moth_device_context_of(ctx, s->queue.device + 1) ? finish_part(ctx, g) : moth_status(ctx);
  if (status) return status;
  cudaError_t error = cudaSuccess;
  s->graphs.now = NULL;
  if (!g->exec) {
    error = cudaStreamEndCapture(s->queue.stream, &g->graph);
    if (!error) error = cudaGraphInstantiate(&g->exec, g->graph, 0);
  }
  if (!error) error = enter(g);
  if (!error) error = cudaGraphLaunch(g->exec, s->queue.stream);
  if (error) return moth_fail_cuda(ctx, "a graph cannot run", error);
  moth_note_launch(s, "a captured step");
  g->number = s->last;
  leave(g, true);
  return MOTH_OK;
}

/* -- errors -- */

const char *moth_graphs_error(moth_device_stream *s, uint64_t *oldest, moth_kernel_error *t) {
  const char *op = NULL;
  for (moth_graph *g = s->graphs.all; g; g = g->next)
    for (uint32_t i = 0; i < g->nparts; i++) {
      if (g->records[i].code && g->number < *oldest) {
        *oldest = g->number;
        *t = g->records[i];
        op = g->parts[i].op;
      }
      g->records[i].code = 0;
    }
  return op;
}

/* -- the functions that the core calls -- */

static void work_so_far(moth_ctx *ctx, int device, moth_device_work *work) {
  const moth_device_context *p = moth_device_context_peek(ctx, device);
  if (p) *work = p->work;
  else memset(work, 0, sizeof *work);
}

const moth_graph_functions moth_cuda_graphs = {
  work_so_far, graph_ready, graph_begin, graph_part_begin, graph_launch, graph_drop};

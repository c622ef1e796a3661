/* capture.h -- recordings: the kernel calls of one training or inference step, replayed in a row.
**
** A capture is an observer. While ctx->capture is set, each kernel leaves an instruction behind:
** the function, a copy of its arguments, its outputs. Tensors in it are frozen: headers of the
** recording's own, over the storages that were used. Views, shape rules, the tape and handles leave
** nothing.
**
** Three sorts of storage. Those from before the recording are held by it. Those that an op made
** (pooled) hand their block on to later results when they die, so that a replay, which runs in the
** same order, needs no more memory than the step did. All others made meanwhile hold constants of
** the recording and keep their bytes; if an instruction writes one, each replay restores it first.
**
** At the end instructions that one kernel can do are joined (capture_fuse.c, and
** capture_elementwise.c for elementwise ones in a row). On devices other than the CPU, runs of
** instructions become graphs there (capture_graph.c), each asked for by one request; what a graph
** cannot hold runs between them.
**
** ctx->quiet counts what is recorded as a whole (a kernel, a shape rule): inside it nothing is.
*/
#ifndef MOTH_CAPTURE_H
#define MOTH_CAPTURE_H

#include "call/observer.h"
#include "autograd/tape.h"

typedef struct moth_capture moth_capture;

/* -- put aside -- */

/* What runs until the recording is taken up again is no part of it, but storages stay its own.
** NULL: none is under way. */
moth_capture *moth_capture_put_aside(moth_ctx *ctx);
void moth_capture_take_up(moth_ctx *ctx, moth_capture *c); /* which may be NULL */

/* -- what a recording must notice -- */

/* For shape rules and ops made of others, where a shape depends on values: an error while
** recording, else OK. */
int moth_capture_refuse_shape(moth_ctx *ctx, const char *op);
/* Asked by an op on a device behind the kernels whose numbers differ from call to call, which come
** first: 1 says that all else is in a graph and it may return; 0 or an error. */
int moth_capture_settles(moth_ctx *ctx);
void moth_captures_free(moth_ctx *ctx);

#endif

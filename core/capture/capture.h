/* capture.h -- captured steps: the kernel calls of one training or inference step, for replays.
**
** A capture is an observer. While ctx->capture is set, each kernel adds an instruction: the
** function, a copy of its arguments, its outputs. The tensors in it are frozen: the capture's own
** tensor structs over the storages that were used. Views, shape rules, the tape and handles add
** nothing.
**
** There are three kinds of storages. Storages from before the capture are retained by it. Pooled
** storages are those that an op made: when one is freed, a later result uses its block. So a
** replay, which runs in the same order, needs no more memory than the step did. All other storages
** made during the capture hold constants and keep their bytes. If an instruction writes one, each
** replay restores it first.
**
** At the end, instructions that one kernel can run are fused (capture_fuse_pairs.c;
** capture_fuse_elementwise.c for consecutive elementwise instructions). On devices other than the
** CPU, consecutive instructions become graphs of the device (capture_graph.c), each launched by
** one call. Instructions that a graph cannot contain run between the graphs.
**
** ctx->quiet counts the running calls that are recorded as one (a kernel, a shape rule). Nothing
** inside them is recorded.
*/
#ifndef MOTH_CAPTURE_H
#define MOTH_CAPTURE_H

#include "call/observer.h"
#include "autograd/tape.h"

typedef struct moth_capture moth_capture;

/* -- suspending -- */

/* Suspends the capture: until moth_capture_take_up nothing is recorded, but its storages stay
** registered. Returns NULL if no capture is running. */
moth_capture *moth_capture_put_aside(moth_ctx *ctx);
void moth_capture_take_up(moth_ctx *ctx, moth_capture *c); /* c may be NULL */

/* -- functions for ops -- */

/* For shape rules and composed ops whose result shape depends on values: fails during a capture. */
int moth_capture_refuse_shape(moth_ctx *ctx, const char *op);
/* For ops on a device. An op first runs the kernels whose numbers differ in each replay, then calls
** this. Returns 1 if the rest of its kernels is in the graph already, so the op may return; 0; or
** an error. */
int moth_capture_settles(moth_ctx *ctx);
void moth_captures_free(moth_ctx *ctx);

#endif

/* capture.h -- recordings: the kernel calls of one training or inference step, replayed in a row.
**
** While ctx->capture is set, every kernel that runs leaves an instruction behind: the function, a
** copy of its arguments, its outputs. Tensors in it are frozen: headers of the recording's own,
** over the storages that were used. Views, shape rules, the tape and handles leave nothing.
**
** Three sorts of storage. Those from before the recording are held by it. Those that an op made
** (pooled) hand their block on to later results when they die, so that a replay, which runs in the
** same order, needs no more memory than the step did. All others made meanwhile hold constants of
** the recording and keep their bytes; if an instruction writes one, each replay restores it first.
**
** At the end instructions that one kernel can do are joined (capture_fuse.c, and capture_join.c for
** elementwise ones in a row). On a device beside
** the CPU, runs of instructions become graphs there (capture_graph.c), each asked for by one
** request; what a graph cannot hold runs between them.
**
** ctx->quiet counts what is recorded as a whole (a kernel, a shape rule): inside it nothing is.
*/
#ifndef MOTH_CAPTURE_H
#define MOTH_CAPTURE_H

#include "tape.h"

typedef struct moth_capture moth_capture;
typedef int (*moth_kernel)(const void *args, moth_tensor **out);

static inline bool moth_captures(const moth_ctx *ctx) { return ctx->capture && !ctx->quiet; }

/* Runs a kernel and records it. nout results lie in out; fresh: they were made for this call. */
int moth_capture_run(const moth_op *op, moth_kernel run, const void *args, moth_tensor **out,
                     uint32_t nout, bool fresh);
/* From now on (on: until told otherwise) storages are results of this op, to be pooled. */
void moth_capture_fresh(moth_ctx *ctx, const moth_op *op, const void *args, bool on);

/* -- storages (tensor.c asks) -- */

/* Its bytes on a device, 0 being the CPU. */
void *moth_capture_block(moth_ctx *ctx, moth_storage *s, int device, int64_t nbytes);
int moth_capture_born(moth_ctx *ctx, moth_storage *s);
void moth_capture_unborn(moth_ctx *ctx, const moth_storage *s); /* its bytes could not be had */
bool moth_capture_owns(const moth_ctx *ctx, const moth_storage *s);
/* Its last reference is gone. Returns the one it was an alias of, to be released, or NULL. */
moth_storage *moth_capture_bury(moth_ctx *ctx, moth_storage *s);

/* -- put aside -- */

/* What runs until the recording is taken up again is no part of it, but storages stay its own.
** NULL: none is under way. */
moth_capture *moth_capture_put_aside(moth_ctx *ctx);
void moth_capture_take_up(moth_ctx *ctx, moth_capture *c); /* which may be NULL */

/* -- what a recording must notice -- */

/* x gives its bytes to another tensor (detach, .data), or was given others: replays use those as
** long as x has them. */
int moth_capture_look(moth_tensor *x);

/* A leaf's .grad is about to be read or, if `set`, replaced without looking. */
int moth_capture_leaf(moth_node *leaf, bool set);
/* While recording: the error that `what` reads values. Else OK. */
int moth_capture_refuse(moth_ctx *ctx, const char *what);
/* For shape rules and ops made of others: the same if a shape depends on values. */
int moth_capture_refuse_shape(moth_ctx *ctx, const char *op);
/* Whether the values of x are the same in each replay; true when nothing is recorded. */
bool moth_capture_constant(const moth_tensor *x);
/* Asked by an op on a device behind the kernels whose numbers differ from call to call, which come
** first: 1 says that all else stands in a graph and it may return; 0 or an error. */
int moth_capture_settles(moth_ctx *ctx);
void moth_captures_free(moth_ctx *ctx);

#endif

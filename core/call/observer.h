/* observer.h -- observers of a context's ops: a trace of moth.kernel, a call log, a profile, a
** capture. They are chained at ctx->observer, in this order. Usually there is none, and a call
** tests one pointer. A hook may be NULL. A hook that wraps a run calls moth_observe(o->next, run).
*/
#ifndef MOTH_OBSERVER_H
#define MOTH_OBSERVER_H

#include "frame.h"

typedef struct moth_observer moth_observer;
struct moth_loops;

typedef int (*moth_kernel)(const void *args, moth_tensor **out);
typedef int (*moth_runner)(const moth_op *op, const void *args, moth_tensor **out);

enum {               /* moth_observed.what */
  MOTH_RUN_CALL,     /* a call by the host; the run fills in the frame's args */
  MOTH_RUN_OP,       /* a call by C */
  MOTH_RUN_GRADIENT, /* an op of a backward pass, which is then also a RUN_OP */
  MOTH_RUN_KERNEL,   /* a kernel of an op */
  MOTH_RUNS
};

typedef struct moth_observed { /* what is about to run */
  int what;
  const moth_op *op;
  const void *args;
  moth_tensor **out;
  moth_runner run;    /* for ops */
  moth_kernel kernel; /* for kernels */
  uint32_t nout;      /* for kernels: results in `out` that exist before the run */
  bool fresh;         /* ... and were allocated for it */
  int device;         /* for kernels: the device */
} moth_observed;

enum { /* moth_notice.kind: access other than by ops; first, the kinds of call logs */
  MOTH_NOTICE_DATA = MOTH_CALL_LOG_DATA,
  MOTH_NOTICE_DETACH = MOTH_CALL_LOG_DETACH,
  MOTH_NOTICE_REQUIRES = MOTH_CALL_LOG_REQUIRES,
  MOTH_NOTICE_READ = MOTH_CALL_LOG_READ,
  MOTH_NOTICE_OTHER = MOTH_CALL_LOG_OTHER,
  MOTH_NOTICE_SHARE,     /* x shares its bytes with a tensor without history */
  MOTH_NOTICE_READ_GRAD, /* the gradient of x, or of a leaf, is read */
  MOTH_NOTICE_SET_GRAD,  /* the gradient of x is set; the old one is not read */
  MOTH_NOTICE_RESHAPE    /* x changes shape in place; status > 0: a new tensor takes its handle */
};

typedef struct moth_notice {
  int kind;
  moth_tensor *x, *y;
  moth_node *leaf;
  bool value;
  const char *what; /* READ: the reader; RESHAPE: the argument */
} moth_notice;

struct moth_observer {
  moth_observer *next;
  enum { MOTH_TRACES, MOTH_LOGS, MOTH_PROFILES, MOTH_CAPTURES } rank;
  int (*run[MOTH_RUNS])(moth_observer *, const moth_observed *);
  /* Called with `on` before and with !on after the results of op(args) are allocated. */
  void (*results)(moth_observer *, const moth_op *op, const void *args, bool on);
  /* An elementwise function runs over operands (loops = NULL: a conversion). The first operand
  ** is the result; the arguments are those of moth_map. Returns true if the observer runs it
  ** instead. */
  bool (*function)(moth_observer *, const struct moth_loops *loops, int dtype, int noperands,
                   const moth_tensor *const *operands, const void *arg);
  /* A new storage needs a block of nbytes on a device; the hook may set s->data. Returns a
  ** status. */
  int (*born)(moth_observer *, moth_storage *s, int device, int64_t nbytes);
  bool (*died)(moth_observer *, moth_storage *s); /* true: the observer keeps it */
  bool (*constant)(moth_observer *, const moth_tensor *x); /* may a formula read its value? */
  int (*notice)(moth_observer *, const moth_notice *);     /* returns a status */
};

void moth_observer_add(moth_ctx *ctx, moth_observer *o);
void moth_observer_remove(moth_ctx *ctx, const moth_observer *o);

int moth_observe(moth_observer *o, const moth_observed *run); /* also by the observers after o */
void moth_observe_results(moth_ctx *ctx, const moth_op *op, const void *args, bool on);
bool moth_observe_function(moth_ctx *ctx, const struct moth_loops *loops, int dtype, int noperands,
                           const moth_tensor *const *operands, const void *arg);
int moth_observe_born(moth_ctx *ctx, moth_storage *s, int device, int64_t nbytes);
bool moth_observe_died(moth_ctx *ctx, moth_storage *s);
bool moth_observe_constant(const moth_tensor *x); /* true without observers */
int moth_observe_notice(moth_ctx *ctx, const moth_notice *n);

/* MOTH_NOTICE(ctx, READ, .x = x) notifies the observers. Returns the first status of one that is
** not 0. */
#define MOTH_NOTICE(ctx, ...)                                                             \
  (__builtin_expect((ctx)->observer != NULL, 0)                                           \
     ? moth_observe_notice(ctx, &(const moth_notice){.kind = MOTH_NOTICE_##__VA_ARGS__}) \
     : MOTH_OK)

bool moth_observes_functions(const moth_ctx *ctx);
bool moth_traces(const moth_ctx *ctx); /* is moth.kernel tracing a function? (trace.c) */

#endif

/* observer.h -- observers of a context's ops: a trace of moth.kernel, a call log, a profile, a
** capture. They are chained at ctx->observer, in this order; mostly there is none, so a call tests
** one pointer. A hook may be NULL. A hook that wraps a run calls moth_observe(o->next, run).
*/
#ifndef MOTH_OBSERVER_H
#define MOTH_OBSERVER_H

#include "frame.h"

typedef struct moth_observer moth_observer;
struct moth_loops;

typedef int (*moth_kernel)(const void *args, moth_tensor **out);
typedef int (*moth_runner)(const moth_op *op, const void *args, moth_tensor **out);

enum {               /* moth_observed.what */
  MOTH_RUN_CALL,     /* an op that the host calls; args are a frame's, which the run fills */
  MOTH_RUN_OP,       /* an op that C calls */
  MOTH_RUN_GRADIENT, /* an op of a backward pass, which is then a RUN_OP, too */
  MOTH_RUN_KERNEL,   /* the kernel of an op */
  MOTH_RUNS
};

typedef struct moth_observed { /* what is about to run */
  int what;
  const moth_op *op;
  const void *args;
  moth_tensor **out;
  moth_runner run;    /* of an op */
  moth_kernel kernel; /* of a kernel */
  uint32_t nout;      /* of a kernel: results in out that exist before it runs, */
  bool fresh;         /* ... allocated for it */
  int device;         /* of a kernel: where it runs */
} moth_observed;

enum { /* moth_notice.kind: what reaches tensors by other ways than ops; first, what logs list */
  MOTH_NOTICE_DATA = MOTH_CALL_LOG_DATA,
  MOTH_NOTICE_DETACH = MOTH_CALL_LOG_DETACH,
  MOTH_NOTICE_REQUIRES = MOTH_CALL_LOG_REQUIRES,
  MOTH_NOTICE_READ = MOTH_CALL_LOG_READ,
  MOTH_NOTICE_OTHER = MOTH_CALL_LOG_OTHER,
  MOTH_NOTICE_SHARE,     /* x shares its bytes with a tensor without history */
  MOTH_NOTICE_READ_GRAD, /* of x, or of a leaf */
  MOTH_NOTICE_SET_GRAD,  /* of x; the old one is not read */
  MOTH_NOTICE_RESHAPE    /* x in place; a status above 0: a new tensor takes its handle */
};

typedef struct moth_notice {
  int kind;
  moth_tensor *x, *y;
  moth_node *leaf;
  bool value;
  const char *what; /* READ: what reads; RESHAPE: the argument */
} moth_notice;

struct moth_observer {
  moth_observer *next;
  enum { MOTH_TRACES, MOTH_LOGS, MOTH_PROFILES, MOTH_CAPTURES } rank;
  int (*run[MOTH_RUNS])(moth_observer *, const moth_observed *);
  /* From `on` to !on storages are allocated for the results of op(args). */
  void (*results)(moth_observer *, const moth_op *op, const void *args, bool on);
  /* An elementwise function, NULL for a conversion, runs over operands, of which the first is the
  ** result; arguments are those of moth_map. True: the observer does its work. */
  bool (*function)(moth_observer *, const struct moth_loops *loops, int dtype, int noperands,
                   const moth_tensor *const *operands, const void *arg);
  /* A storage that needs a block of nbytes on a device; the hook may set s->data. A status. */
  int (*born)(moth_observer *, moth_storage *s, int device, int64_t nbytes);
  bool (*died)(moth_observer *, moth_storage *s); /* true: the observer keeps it */
  bool (*constant)(moth_observer *, const moth_tensor *x); /* may a formula read its value? */
  int (*notice)(moth_observer *, const moth_notice *);     /* a status */
};

void moth_observer_add(moth_ctx *ctx, moth_observer *o);
void moth_observer_remove(moth_ctx *ctx, const moth_observer *o);

int moth_observe(moth_observer *o, const moth_observed *run); /* runs it, from observer o on */
void moth_observe_results(moth_ctx *ctx, const moth_op *op, const void *args, bool on);
bool moth_observe_function(moth_ctx *ctx, const struct moth_loops *loops, int dtype, int noperands,
                           const moth_tensor *const *operands, const void *arg);
int moth_observe_born(moth_ctx *ctx, moth_storage *s, int device, int64_t nbytes);
bool moth_observe_died(moth_ctx *ctx, moth_storage *s);
bool moth_observe_constant(const moth_tensor *x); /* true where nobody observes */
int moth_observe_notice(moth_ctx *ctx, const moth_notice *n);

/* MOTH_NOTICE(ctx, READ, .x = x): the first status that an observer returns. */
#define MOTH_NOTICE(ctx, ...)                                                             \
  (__builtin_expect((ctx)->observer != NULL, 0)                                           \
     ? moth_observe_notice(ctx, &(const moth_notice){.kind = MOTH_NOTICE_##__VA_ARGS__}) \
     : MOTH_OK)

bool moth_observes_functions(const moth_ctx *ctx);
bool moth_traces(const moth_ctx *ctx); /* does moth.kernel read a function? (trace.c) */

#endif

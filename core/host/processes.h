/* processes.h -- messages between processes: what processes.c (groups, MPI), device_transfers.c
** (tensors of GPUs) and rendezvous.c (TCP) share. moth_lua.h declares the functions.
*/
#ifndef MOTH_PROCESSES_H
#define MOTH_PROCESSES_H

#include "base/context.h"
#include "device/transfers.h"
#include "vendor/mpi.h"

typedef struct moth_group {
  moth_mpi_handle comm; /* of members, if MPI is open */
  int32_t *ranks;       /* in the group of all processes */
  int32_t n, rank;      /* rank: of this process, or -1 */
  int64_t started;      /* messages that this process has started */
  bool used;
  moth_comm *on_device; /* for tensors of `device`, or NULL */
  int device;
  char failure[256];    /* why on_device was aborted */
  bool raised;          /* the failure was raised */
  bool busy;            /* the plugin uses on_device: it must not be closed */
} moth_group;

typedef struct moth_note { /* what processes tell each other about a group */
  int64_t group, started, kind; /* kind: of the call that waits, or -1 */
  moth_mpi_handle request;
} moth_note;

struct moth_transfer {
  moth_transfer *next;
  moth_transfer_args x;
  moth_tensor *input, *output; /* counted */
  moth_mpi_handle request;
  moth_job *job;   /* on a device; NULL: a message of MPI */
  double started;  /* time */
  char *scratch;   /* reductions of f16 and bf16 by MPI: f32 */
  char *copy;      /* of an input that shares memory with the output, or NULL */
  int64_t scratch_bytes, copy_bytes;
  int *counts; /* of all_to_all */
  int64_t number; /* among the collectives of the group; INT64_MAX: none of them */
  bool done, dropped; /* dropped: nobody waits for it */
  bool joined;        /* the stream of the caller waits for the job */
  const void *captured; /* the captured step that contains it, whose recording started it */
  bool waited;        /* the captured step also contains a wait for it */
  bool replayed;      /* started by a replay of a captured step: no handle refers to it */
  int code, source;
};

typedef struct moth_rendezvous moth_rendezvous;

struct moth_processes {
  const moth_mpi *mpi;         /* or NULL */
  moth_rendezvous *rendezvous; /* or NULL */
  moth_group *groups;
  int32_t ngroups;
  moth_transfer *messages;
  moth_mpi_handle monitor; /* the communicator of notes */
  bool started_here; /* this context has called MPI_Init */
  int32_t waits_for; /* the kind of the message that the caller waits for, or -1 */
  double polled, listened;
  uint32_t polls;
};

extern const char *const moth_transfer_names[]; /* of kinds: "all_reduce" */

void moth_processes_free(moth_ctx *ctx); /* a context closes */
/* The group with this index, or NULL with the error set. */
moth_group *moth_group_of(moth_ctx *ctx, int32_t index);
/* Makes ctx->processes for this process alone: no MPI, no group. */
int moth_processes_begin(moth_ctx *ctx);
/* Adds the group of these ranks (NULL: all n), and lets messages advance at polls. */
int moth_processes_ready(moth_ctx *ctx, moth_mpi_handle comm, int32_t n, int32_t rank);
void moth_transfers_progress(moth_ctx *ctx);
/* Waits for the message; raises after that many seconds, and names ranks that have not called. */
int moth_transfer_await(moth_ctx *ctx, moth_transfer *m, double seconds);

/* -- questions (notes.c) -- */

/* What a process waits for that has ended, next to the kinds of messages. */
enum { MOTH_LEAVING = MOTH_TRANSFER_RECV + 1 };

/* Is it the barrier before the end of MPI? */
static inline bool moth_is_leaving(const moth_transfer_args *x) {
  return x->kind == MOTH_TRANSFER_BARRIER && x->tag != 0;
}

void moth_notes_answer(struct moth_processes *p);
/* The ranks that have not started the message m, as text; waits a second for their answers. Returns
** true if one of them has ended. */
bool moth_transfer_missing(moth_ctx *ctx, const moth_transfer *m, char *text, size_t size);

/* Fails if the step that is recorded starts a transfer and does not wait for it: the memory of the
** transfer may have other contents in a replay before it has ended. */
int moth_processes_check_capture(moth_ctx *ctx);

/* -- tensors of devices (device_transfers.c) -- */

int moth_device_transfer_start(moth_ctx *ctx, moth_transfer *m, moth_group *g);
/* Sets m->done if the transfer has ended. */
void moth_device_transfer_test(struct moth_processes *p, moth_transfer *m);
int moth_device_transfer_join(moth_ctx *ctx, moth_transfer *m);
/* Waits for the transfers of a group (-1: of all groups) that the caller has waited for. */
int moth_device_transfers_end(moth_ctx *ctx, int32_t group);
void moth_group_leave_device(moth_group *g, bool abort);

/* -- TCP (rendezvous.c) -- */

void moth_rendezvous_close(moth_rendezvous *r); /* NULL is allowed */

#endif

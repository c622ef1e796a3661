/* transfers.h -- the functions of a plugin that move tensors of its devices between processes. The
** CUDA plugin does it with NCCL (cuda/vendor/nccl.cu), core/host/device_transfers.c calls them.
*/
#ifndef MOTH_DEVICE_TRANSFERS_H
#define MOTH_DEVICE_TRANSFERS_H

#include "backend.h"

enum { MOTH_COMM_ID = 128 }; /* bytes of an id */

typedef struct moth_comm moth_comm; /* the members of a group on one device each */
typedef struct moth_job moth_job; /* a transfer that was submitted to the device */

typedef struct moth_collective {
  int kind, op;                /* MOTH_TRANSFER_..., MOTH_REDUCE_... */
  int peer;                    /* the root, receiver or sender */
  const char *name;            /* "all_reduce"; static */
  double seconds;              /* limit for the connection to peers */
  moth_tensor *input, *output; /* contiguous tensors of the device, or NULL */
  const int64_t *sizes;        /* all_to_all: elements to each rank, then from each rank */
} moth_collective;

/* E_IO and E_CUDA mean that the members are out of step: the comm can only be closed. */
struct moth_transfer_functions {
  /* Makes the id that all members of a new group need. */
  int (*id)(moth_ctx *ctx, void *id);
  /* All members call it. NULL: error set. */
  moth_comm *(*open)(moth_ctx *ctx, int device, const void *id, int rank, int n, double seconds);
  /* Waits for the members' transfers, or ends them at once. */
  void (*close)(moth_comm *c, bool abort);
  /* The transfer runs after the work of the current stream so far. It does not keep the tensors. */
  int (*start)(moth_ctx *ctx, moth_comm *c, const moth_collective *x, moth_job **work);
  /* 1: done, 0: not yet, -1: failed, for the reason in `why`. Does not change the context. */
  int (*done)(moth_comm *c, moth_job *w, char *why, size_t size);
  /* Later work of the current stream runs after the transfer. */
  int (*join)(moth_ctx *ctx, moth_job *w);
  void (*drop)(moth_job *w);
};

/* Raises what has failed: on a device, by a timeout, or by an interrupt. For the plugin, while it
** waits for its device (core/host/device_transfers.c). */
int moth_transfers_check(moth_ctx *ctx);

#endif

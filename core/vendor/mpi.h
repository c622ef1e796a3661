/* mpi.h -- MPI, opened at run time: Open MPI, or MPICH and the libraries that share its ABI. Moth
** does not link with MPI and needs no mpi.h.
**
** A handle (communicator, type, operation, request) is a pointer in Open MPI and an int in MPICH.
** Here it is an intptr_t. The functions convert it. They return MPI's error codes; 0 is success.
*/
#ifndef MOTH_VENDOR_MPI_H
#define MOTH_VENDOR_MPI_H

#include "base/context.h"

typedef intptr_t moth_mpi_handle;

enum { /* operations of reductions */
  MOTH_MPI_SUM, MOTH_MPI_PRODUCT, MOTH_MPI_MIN, MOTH_MPI_MAX,
  MOTH_MPI_BAND, MOTH_MPI_BOR, MOTH_MPI_BXOR, MOTH_MPI_OPS
};

enum { MOTH_MPI_ANY_TAG = -1, MOTH_MPI_UNDEFINED = -32766, MOTH_MPI_FUNNELED = 1 };

typedef struct moth_mpi {
  moth_mpi_handle world, no_request, return_errors;
  moth_mpi_handle types[MOTH_DTYPES]; /* of elements; f16, bf16 and bool: bits of the same size */
  moth_mpi_handle ops[MOTH_MPI_OPS];
  void *in_place;
  int any_source;
  char version[128]; /* "Open MPI v4.1.4" */

  int (*initialized)(int *yes);
  int (*finalized)(int *yes);
  int (*init)(int level, int *provided);
  int (*finalize)(void);
  int (*abort)(moth_mpi_handle comm, int code);
  int (*error_string)(int code, char *text, int *size);
  int (*rank)(moth_mpi_handle comm, int *rank);
  int (*size)(moth_mpi_handle comm, int *size);
  int (*split)(moth_mpi_handle comm, int color, int key, moth_mpi_handle *made);
  int (*free)(moth_mpi_handle *comm);
  int (*on_error)(moth_mpi_handle comm, moth_mpi_handle handler);
  int (*barrier)(moth_mpi_handle comm, moth_mpi_handle *request);
  int (*broadcast)(void *data, int n, moth_mpi_handle type, int root, moth_mpi_handle comm,
                   moth_mpi_handle *request);
  int (*reduce)(const void *from, void *to, int n, moth_mpi_handle type, moth_mpi_handle op,
                int root, moth_mpi_handle comm, moth_mpi_handle *request);
  int (*all_reduce)(const void *from, void *to, int n, moth_mpi_handle type, moth_mpi_handle op,
                    moth_mpi_handle comm, moth_mpi_handle *request);
  int (*reduce_scatter)(const void *from, void *to, int n, moth_mpi_handle type,
                        moth_mpi_handle op, moth_mpi_handle comm, moth_mpi_handle *request);
  int (*gather)(const void *from, void *to, int n, moth_mpi_handle type, int root,
                moth_mpi_handle comm, moth_mpi_handle *request);
  int (*all_gather)(const void *from, void *to, int n, moth_mpi_handle type, moth_mpi_handle comm,
                    moth_mpi_handle *request);
  int (*scatter)(const void *from, void *to, int n, moth_mpi_handle type, int root,
                 moth_mpi_handle comm, moth_mpi_handle *request);
  int (*all_to_all)(const void *from, const int *counts, const int *at, void *to,
                    const int *to_counts, const int *to_at, moth_mpi_handle type,
                    moth_mpi_handle comm, moth_mpi_handle *request);
  int (*send)(const void *from, int n, moth_mpi_handle type, int to, int tag,
              moth_mpi_handle comm, moth_mpi_handle *request);
  int (*receive)(void *to, int n, moth_mpi_handle type, int from, int tag, moth_mpi_handle comm,
                 moth_mpi_handle *request);
  /* *source: the sender of a received message */
  int (*test)(moth_mpi_handle *request, int *done, int *source);
  int (*probe)(int from, int tag, moth_mpi_handle comm, int *found, int *source);
} moth_mpi;

/* The library of this process: the one that `path` names, else that of the launcher that started
** the process, else the first that is found. Opened once. NULL: an error that says what to
** install. */
const moth_mpi *moth_mpi_find(moth_ctx *ctx, const char *path);

/* Tests a message from this process to itself: are handles and status fields as expected? */
int moth_mpi_check(moth_ctx *ctx, const moth_mpi *mpi);

#endif

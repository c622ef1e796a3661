/* mpi_calls.h -- the functions of moth_mpi for one type of handles. mpi.c includes it twice, with
**
**   HANDLE      the type of handles in the library
**   NAME(x)     x with a suffix of its own
**   SOURCE      the position of MPI_SOURCE in a status, in ints
*/

#define H(x) ((HANDLE)(x))
#define SYMBOL(name) NAME(raw).name

/* X(name in moth_mpi, name in MPI, arguments) */
#define FUNCTIONS(X)                                                                          \
  X(initialized, Initialized, (int *))                                                        \
  X(finalized, Finalized, (int *))                                                            \
  X(init, Init_thread, (int *, char ***, int, int *))                                         \
  X(finalize, Finalize, (void))                                                               \
  X(abort, Abort, (HANDLE, int))                                                              \
  X(error_string, Error_string, (int, char *, int *))                                         \
  X(rank, Comm_rank, (HANDLE, int *))                                                         \
  X(size, Comm_size, (HANDLE, int *))                                                         \
  X(split, Comm_split, (HANDLE, int, int, HANDLE *))                                          \
  X(free, Comm_free, (HANDLE *))                                                              \
  X(on_error, Comm_set_errhandler, (HANDLE, HANDLE))                                          \
  X(barrier, Ibarrier, (HANDLE, HANDLE *))                                                    \
  X(broadcast, Ibcast, (void *, int, HANDLE, int, HANDLE, HANDLE *))                          \
  X(reduce, Ireduce, (const void *, void *, int, HANDLE, HANDLE, int, HANDLE, HANDLE *))      \
  X(all_reduce, Iallreduce, (const void *, void *, int, HANDLE, HANDLE, HANDLE, HANDLE *))    \
  X(reduce_scatter, Ireduce_scatter_block,                                                    \
    (const void *, void *, int, HANDLE, HANDLE, HANDLE, HANDLE *))                            \
  X(gather, Igather,                                                                          \
    (const void *, int, HANDLE, void *, int, HANDLE, int, HANDLE, HANDLE *))                  \
  X(all_gather, Iallgather, (const void *, int, HANDLE, void *, int, HANDLE, HANDLE, HANDLE *)) \
  X(scatter, Iscatter,                                                                        \
    (const void *, int, HANDLE, void *, int, HANDLE, int, HANDLE, HANDLE *))                  \
  X(all_to_all, Ialltoallv,                                                                   \
    (const void *, const int *, const int *, HANDLE, void *, const int *, const int *, HANDLE, \
     HANDLE, HANDLE *))                                                                       \
  X(send, Isend, (const void *, int, HANDLE, int, int, HANDLE, HANDLE *))                     \
  X(receive, Irecv, (void *, int, HANDLE, int, int, HANDLE, HANDLE *))                        \
  X(test, Test, (HANDLE *, int *, int *))                                                     \
  X(probe, Iprobe, (int, int, HANDLE, int *, int *))

static struct {
#define X(name, mpi, arguments) int(*name) arguments;
  FUNCTIONS(X)
#undef X
} NAME(raw);

static int NAME(initialized)(int *yes) { return SYMBOL(initialized)(yes); }
static int NAME(finalized)(int *yes) { return SYMBOL(finalized)(yes); }
static int NAME(init)(int level, int *provided) {
  return SYMBOL(init)(NULL, NULL, level, provided);
}
static int NAME(finalize)(void) { return SYMBOL(finalize)(); }
static int NAME(abort)(moth_mpi_handle comm, int code) { return SYMBOL(abort)(H(comm), code); }
static int NAME(error_string)(int code, char *text, int *size) {
  return SYMBOL(error_string)(code, text, size);
}
static int NAME(rank)(moth_mpi_handle comm, int *rank) { return SYMBOL(rank)(H(comm), rank); }
static int NAME(size)(moth_mpi_handle comm, int *size) { return SYMBOL(size)(H(comm), size); }

static int NAME(split)(moth_mpi_handle comm, int color, int key, moth_mpi_handle *made) {
  HANDLE h = H(0);
  const int code = SYMBOL(split)(H(comm), color, key, &h);
  *made = (moth_mpi_handle)h;
  return code;
}

static int NAME(free)(moth_mpi_handle *comm) {
  HANDLE h = H(*comm);
  const int code = SYMBOL(free)(&h);
  *comm = (moth_mpi_handle)h;
  return code;
}

static int NAME(on_error)(moth_mpi_handle comm, moth_mpi_handle handler) {
  return SYMBOL(on_error)(H(comm), H(handler));
}

/* Starts an operation and stores its request. */
#define START(call)                         \
  do {                                      \
    HANDLE h = H(0);                        \
    const int code = call;                  \
    if (!code) *request = (moth_mpi_handle)h; \
    return code;                            \
  } while (0)

static int NAME(barrier)(moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(barrier)(H(comm), &h));
}

static int NAME(broadcast)(void *data, int n, moth_mpi_handle type, int root, moth_mpi_handle comm,
                           moth_mpi_handle *request) {
  START(SYMBOL(broadcast)(data, n, H(type), root, H(comm), &h));
}

static int NAME(reduce)(const void *from, void *to, int n, moth_mpi_handle type,
                        moth_mpi_handle op, int root, moth_mpi_handle comm,
                        moth_mpi_handle *request) {
  START(SYMBOL(reduce)(from, to, n, H(type), H(op), root, H(comm), &h));
}

static int NAME(all_reduce)(const void *from, void *to, int n, moth_mpi_handle type,
                            moth_mpi_handle op, moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(all_reduce)(from, to, n, H(type), H(op), H(comm), &h));
}

static int NAME(reduce_scatter)(const void *from, void *to, int n, moth_mpi_handle type,
                                moth_mpi_handle op, moth_mpi_handle comm,
                                moth_mpi_handle *request) {
  START(SYMBOL(reduce_scatter)(from, to, n, H(type), H(op), H(comm), &h));
}

static int NAME(gather)(const void *from, void *to, int n, moth_mpi_handle type, int root,
                        moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(gather)(from, n, H(type), to, n, H(type), root, H(comm), &h));
}

static int NAME(all_gather)(const void *from, void *to, int n, moth_mpi_handle type,
                            moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(all_gather)(from, n, H(type), to, n, H(type), H(comm), &h));
}

static int NAME(scatter)(const void *from, void *to, int n, moth_mpi_handle type, int root,
                         moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(scatter)(from, n, H(type), to, n, H(type), root, H(comm), &h));
}

static int NAME(all_to_all)(const void *from, const int *counts, const int *at, void *to,
                            const int *to_counts, const int *to_at, moth_mpi_handle type,
                            moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(all_to_all)(from, counts, at, H(type), to, to_counts, to_at, H(type), H(comm),
                           &h));
}

static int NAME(send)(const void *from, int n, moth_mpi_handle type, int to, int tag,
                      moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(send)(from, n, H(type), to, tag, H(comm), &h));
}

static int NAME(receive)(void *to, int n, moth_mpi_handle type, int from, int tag,
                         moth_mpi_handle comm, moth_mpi_handle *request) {
  START(SYMBOL(receive)(to, n, H(type), from, tag, H(comm), &h));
}

static int NAME(test)(moth_mpi_handle *request, int *done, int *source) {
  HANDLE h = H(*request);
  _Alignas(16) int status[STATUS_INTS] = {0};
  const int code = SYMBOL(test)(&h, done, status);
  *request = (moth_mpi_handle)h;
  *source = status[SOURCE];
  return code;
}

static int NAME(probe)(int from, int tag, moth_mpi_handle comm, int *found, int *source) {
  _Alignas(16) int status[STATUS_INTS] = {0};
  const int code = SYMBOL(probe)(from, tag, H(comm), found, status);
  *source = status[SOURCE];
  return code;
}

/* Finds all functions. Returns the name of a missing one, or NULL. */
static const char *NAME(take)(void *library, moth_mpi *mpi) {
  void *at;
#define X(name, mpi_name, arguments)                                                      \
  if (!(at = moth_library_symbol(library, "MPI_" #mpi_name))) return "MPI_" #mpi_name;    \
  memcpy(&NAME(raw).name, &at, sizeof at);                                                \
  mpi->name = NAME(name);
  FUNCTIONS(X)
#undef X
  return NULL;
}

#undef H
#undef SYMBOL
#undef FUNCTIONS
#undef START
#undef HANDLE
#undef NAME
#undef SOURCE

/* mpi.c -- opens Open MPI or MPICH, and finds its functions and constants. The library is opened
** once per process. Its handles are taken from its symbols (Open MPI) or from the ABI that MPICH,
** Intel MPI and MVAPICH share; moth_mpi_check tests them.
*/
#include "mpi.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/system.h"

#define STATUS_INTS 16 /* more than MPI_Status has */

#define HANDLE void *
#define NAME(x) open_mpi_##x
#define SOURCE 0
#include "mpi_calls.h"

#define HANDLE int
#define NAME(x) mpich_##x
#define SOURCE 2
#include "mpi_calls.h"

static struct {
  moth_mpi mpi;
  char path[MOTH_PATH_SIZE];
  bool found;
} opened;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* The first words of the library's version, which has up to 8192 bytes. */
static void read_version(void *library, moth_mpi *mpi) {
  int (*get)(char *, int *);
  void *at = moth_library_symbol(library, "MPI_Get_library_version");
  char *text = calloc(1, 8193);
  int n = 0;
  if (at && text) {
    memcpy(&get, &at, sizeof at);
    get(text, &n);
  }
  if (text) {
    for (char *c = text; *c; c++)
      if (*c == '\n' || *c == ',') *c = 0;
      else if (*c == '\t') *c = ' ';
    snprintf(mpi->version, sizeof mpi->version, "%s", text);
  }
  free(text);
}

/* Open MPI's handles are the addresses of these variables. */
static const char *open_mpi_handles(void *library, moth_mpi *mpi) {
  static const char *const types[MOTH_DTYPES] = {
    "unsigned_char", "unsigned_char", "signed_char", "short", "int", "long_long_int",
    "short", "short", "float", "double"};
  static const char *const ops[MOTH_MPI_OPS] = {"sum", "prod", "min", "max",
                                                "band", "bor", "bxor"};
  char name[64];
  for (int i = 0; i < MOTH_DTYPES; i++) {
    snprintf(name, sizeof name, "ompi_mpi_%s", types[i]);
    if (!(mpi->types[i] = (moth_mpi_handle)moth_library_symbol(library, name))) return "a type";
  }
  for (int i = 0; i < MOTH_MPI_OPS; i++) {
    snprintf(name, sizeof name, "ompi_mpi_op_%s", ops[i]);
    if (!(mpi->ops[i] = (moth_mpi_handle)moth_library_symbol(library, name)))
      return "an operation";
  }
  mpi->world = (moth_mpi_handle)moth_library_symbol(library, "ompi_mpi_comm_world");
  mpi->no_request = (moth_mpi_handle)moth_library_symbol(library, "ompi_request_null");
  mpi->return_errors = (moth_mpi_handle)moth_library_symbol(library, "ompi_mpi_errors_return");
  mpi->in_place = (void *)1;
  mpi->any_source = -1;
  return mpi->world && mpi->no_request && mpi->return_errors ? NULL : "a handle";
}

static void mpich_handles(moth_mpi *mpi) {
  static const int types[MOTH_DTYPES] = {0x4c000102, 0x4c000102, 0x4c000118, 0x4c000203,
                                         0x4c000405, 0x4c000809, 0x4c000203, 0x4c000203,
                                         0x4c00040a, 0x4c00080b};
  static const int ops[MOTH_MPI_OPS] = {0x58000003, 0x58000004, 0x58000002, 0x58000001,
                                        0x58000006, 0x58000008, 0x5800000a};
  for (int i = 0; i < MOTH_DTYPES; i++) mpi->types[i] = types[i];
  for (int i = 0; i < MOTH_MPI_OPS; i++) mpi->ops[i] = ops[i];
  mpi->world = 0x44000000;
  mpi->no_request = 0x2c000000;
  mpi->return_errors = 0x54000001;
  mpi->in_place = (void *)-1;
  mpi->any_source = -2;
}

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* Returns NULL, or what is wrong with the library. */
static const char *take(void *library, moth_mpi *mpi) {
  read_version(library, mpi);
  if (moth_library_symbol(library, "ompi_mpi_comm_world")) {
    const char *missing = open_mpi_take(library, mpi);
    return missing ? missing : open_mpi_handles(library, mpi);
  }
  if (!begins(mpi->version, "MPICH") && !begins(mpi->version, "Intel(R) MPI") &&
      !begins(mpi->version, "MVAPICH"))
    return "it is neither Open MPI nor of MPICH's ABI";
  mpich_handles(mpi);
  return mpich_take(library, mpi);
}

/* Was this process started by MPICH's launcher? */
static bool under_mpich(void) {
  return getenv("PMI_RANK") && !getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK");
}

static int open_at(moth_ctx *ctx, const char *path) {
  void *library = moth_library_open(path);
  if (!library) {
    const char *trouble = moth_library_trouble(path);
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "MPI: cannot open %s: %s", path,
                     trouble ? trouble : "no such library");
  }
  const char *wrong = take(library, &opened.mpi);
  if (wrong) {
    char version[sizeof opened.mpi.version];
    memcpy(version, opened.mpi.version, sizeof version);
    moth_library_close(library);
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "MPI: %s (%s) cannot be used: %s", path,
                     version[0] ? version : "unknown version", wrong);
  }
  snprintf(opened.path, sizeof opened.path, "%s", path);
  opened.found = true;
  return MOTH_OK;
}

static int find(moth_ctx *ctx, const char *path) {
  static const char *const open_mpi_first[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12",
                                               "libmpi.so"};
  static const char *const mpich_first[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so.40",
                                            "libmpi.so"};
  const char *named = path ? path : getenv("MOTH_MPI");
  if (opened.found) {
    if (path && strcmp(path, opened.path) != 0)
      return moth_fail(ctx, MOTH_E_STATE, NULL, "MPI: this process already uses %s", opened.path);
    return MOTH_OK;
  }
  if (named && *named) return open_at(ctx, named);
  const char *const *names = under_mpich() ? mpich_first : open_mpi_first;
  for (int i = 0; i < 4; i++)
    if (open_at(ctx, names[i]) == MOTH_OK) return MOTH_OK;
    else if (!strstr(ctx->error.text, "no such library")) return ctx->error.code;
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                   "MPI is not installed: install Open MPI (apt-get install openmpi-bin) or MPICH "
                   "(apt-get install mpich), or name the library in MOTH_MPI");
}

const moth_mpi *moth_mpi_find(moth_ctx *ctx, const char *path) {
  pthread_mutex_lock(&opening);
  const int status = find(ctx, path);
  pthread_mutex_unlock(&opening);
  if (status) return NULL;
  moth_error_clear(ctx);
  return &opened.mpi;
}

int moth_mpi_check(moth_ctx *ctx, const moth_mpi *mpi) {
  int rank = -1, size = 0, done = 0, source = -5, sent = 7, got = 0, code = 0;
  moth_mpi_handle send = mpi->no_request, receive = mpi->no_request;
  code = mpi->rank(mpi->world, &rank);
  if (!code) code = mpi->size(mpi->world, &size);
  if (!code) code = mpi->receive(&got, 1, mpi->types[MOTH_I32], rank, 4711, mpi->world, &receive);
  if (!code) code = mpi->send(&sent, 1, mpi->types[MOTH_I32], rank, 4711, mpi->world, &send);
  for (int ignored; !code && !done;) {
    code = mpi->test(&receive, &done, &source);
    if (!code && send != mpi->no_request) code = mpi->test(&send, &(int){0}, &ignored);
  }
  while (!code && send != mpi->no_request) code = mpi->test(&send, &done, &(int){0});
  if (code || rank < 0 || rank >= size || got != sent || source != rank)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "MPI: %s has an ABI that Moth does not know (a message to itself arrived as "
                     "%d from rank %d, error %d)", mpi->version, got, source, code);
  return MOTH_OK;
}

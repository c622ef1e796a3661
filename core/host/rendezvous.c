/* rendezvous.c -- joins processes without MPI, as torchrun's variables describe: rank 0 listens at
** an address, the others connect to it. Through these connections the processes pass the ids of
** NCCL. Tensors never travel here.
**
** After the connection each process sends a greeting with its rank. Rank 0 answers when all have
** come. A value is a head and its bytes: the rank that has it sends it to rank 0, which sends it to
** the others.
*/
#include "processes.h"

#include "base/error.h"
#include "base/system.h"

#ifdef _WIN32

int32_t moth_rendezvous_open(moth_ctx *ctx, const char *host, int32_t port, int32_t rank,
                             int32_t size, double seconds) {
  MOTH_NEED(ctx, host, MOTH_E_ARG);
  (void)port, (void)rank, (void)size, (void)seconds;
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "on Windows processes are joined by MPI");
}

int32_t moth_rendezvous_share(moth_ctx *ctx, int32_t root, void *bytes, int64_t n,
                              double seconds) {
  MOTH_NEED(ctx, bytes, MOTH_E_ARG);
  (void)root, (void)n, (void)seconds;
  return moth_fail(ctx, MOTH_E_STATE, NULL, "the processes were not joined by TCP");
}

void moth_rendezvous_close(moth_rendezvous *r) { (void)r; }

#else

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum { MAGIC = 0x6d6f7468, VERSION = 1, MOST_RANKS = 65536, RETRY_MS = 50 };
enum { GREETING, WELCOME, REFUSAL, VALUE }; /* kinds of heads */

typedef struct head {
  uint32_t magic, version, kind;
  int32_t rank, size;
  uint32_t number; /* of the value */
  int64_t bytes;
} head;

struct moth_rendezvous {
  int32_t rank, size;
  uint32_t number; /* of values so far */
  int sockets[];   /* by rank; -1: none. Others than rank 0 have one only, to rank 0 */
};

void moth_rendezvous_close(moth_rendezvous *r) {
  for (int32_t i = 0; r && i < r->size; i++)
    if (r->sockets[i] >= 0) close(r->sockets[i]);
  free(r);
}

/* Waits until the socket is ready. *late: it is not, at that time. */
static int wait_socket(moth_ctx *ctx, int socket, short events, double until, bool *late) {
  struct pollfd p = {.fd = socket, .events = events};
  *late = false;
  for (;;) {
    if (poll(&p, 1, RETRY_MS) > 0) return MOTH_OK;
    *late = moth_seconds() > until;
    int status = moth_poll(ctx);
    if (status || *late) return status;
  }
}

static int lost(moth_ctx *ctx, int32_t rank, const char *why) {
  return moth_fail(ctx, MOTH_E_IO, NULL, "the connection to rank %d ended: %s", (int)rank, why);
}

/* Sends or receives all n bytes. */
static int move_bytes(moth_ctx *ctx, int socket, int32_t rank, char *bytes, int64_t n, bool out,
                      double until) {
  for (int64_t at = 0; at < n;) {
    bool late;
    int status = wait_socket(ctx, socket, out ? POLLOUT : POLLIN, until, &late);
    if (status) return status;
    if (late) return lost(ctx, rank, "no answer in time");
    const ssize_t moved = out ? send(socket, bytes + at, (size_t)(n - at), MSG_NOSIGNAL)
                              : recv(socket, bytes + at, (size_t)(n - at), 0);
    if (moved == 0 && !out) return lost(ctx, rank, "it has closed it");
    if (moved < 0 && errno != EAGAIN && errno != EINTR) return lost(ctx, rank, strerror(errno));
    if (moved > 0) at += moved;
  }
  return MOTH_OK;
}

static void make_ready(int socket) {
  const int yes = 1;
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static struct addrinfo *addresses(moth_ctx *ctx, const char *host, int32_t port) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                 .ai_flags = host ? AI_ADDRCONFIG : AI_PASSIVE};
  struct addrinfo *list = NULL;
  char text[16];
  snprintf(text, sizeof text, "%d", (int)port);
  const int error = getaddrinfo(host, text, &hints, &list);
  if (!error) return list;
  moth_fail(ctx, MOTH_E_IO, NULL, "the host %s is not known: %s", host ? host : "",
            gai_strerror(error));
  return NULL;
}

/* -- rank 0 -- */

/* A socket that listens at the port of this machine, or -1. IPv6 sockets also take IPv4. */
static int listen_at(moth_ctx *ctx, int32_t port) {
  struct addrinfo *list = addresses(ctx, NULL, port);
  int found = -1, error = 0;
  for (int pass = 0; pass < 2 && found < 0; pass++)
    for (struct addrinfo *a = list; a && found < 0; a = a->ai_next) {
      const int yes = 1, no = 0;
      if ((a->ai_family == AF_INET6) != (pass == 0)) continue;
      const int s = socket(a->ai_family, SOCK_STREAM, 0);
      if (s < 0) continue;
      setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (a->ai_family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      if (!bind(s, a->ai_addr, a->ai_addrlen) && !listen(s, 1024)) found = s;
      else error = errno;
      if (found < 0) close(s);
    }
  if (list) freeaddrinfo(list);
  if (found >= 0) make_ready(found);
  else if (list)
    moth_fail(ctx, MOTH_E_IO, NULL, "rank 0 cannot listen at port %d: %s", (int)port,
              strerror(error));
  return found;
}

/* The ranks that have not come, as text. */
static void missing(const moth_rendezvous *r, char *text, size_t size) {
  size_t used = 0;
  int named = 0;
  text[0] = 0;
  for (int32_t i = 1; i < r->size && used + 16 < size; i++) {
    if (r->sockets[i] >= 0) continue;
    if (named++ == 8) {
      snprintf(text + used, size - used, ", ...");
      return;
    }
    const int n = snprintf(text + used, size - used, "%s%d", named > 1 ? ", " : "", (int)i);
    used += n > 0 ? (size_t)n : 0;
  }
}

/* Takes a connection, if its greeting arrives and is right. */
static int take_guest(moth_ctx *ctx, moth_rendezvous *r, int socket, int32_t *came, double until) {
  head h = {0};
  const double soon = moth_seconds() + 5;
  make_ready(socket);
  int status =
    move_bytes(ctx, socket, -1, (char *)&h, sizeof h, false, soon < until ? soon : until);
  const bool ours = !status && h.magic == MAGIC && h.version == VERSION && h.kind == GREETING;
  if (ours && h.size == r->size && h.rank > 0 && h.rank < r->size && r->sockets[h.rank] < 0) {
    r->sockets[h.rank] = socket;
    ++*came;
    return MOTH_OK;
  }
  if (ours) {
    head no = {MAGIC, VERSION, REFUSAL, h.rank, r->size, 0, 0};
    (void)!send(socket, &no, sizeof no, MSG_NOSIGNAL);
  }
  close(socket);
  return status == MOTH_E_INTERRUPT ? status : MOTH_OK; /* not one of us */
}

static int welcome_all(moth_ctx *ctx, moth_rendezvous *r, int32_t port, double seconds) {
  const double until = moth_seconds() + seconds;
  const int listener = listen_at(ctx, port);
  int status = listener < 0 ? ctx->error.code : MOTH_OK;
  for (int32_t came = 1; !status && came < r->size;) {
    bool late;
    status = wait_socket(ctx, listener, POLLIN, until, &late);
    if (!status && late) {
      char text[128];
      missing(r, text, sizeof text);
      status = moth_fail(ctx, MOTH_E_IO, NULL, "these ranks of %d have not connected to port %d "
                         "within %g s: %s", (int)r->size, (int)port, seconds, text);
    }
    const int guest = status ? -1 : accept(listener, NULL, NULL);
    if (guest >= 0) status = take_guest(ctx, r, guest, &came, until);
  }
  if (listener >= 0) close(listener);
  for (int32_t i = 1; !status && i < r->size; i++) {
    head h = {MAGIC, VERSION, WELCOME, i, r->size, 0, 0};
    status = move_bytes(ctx, r->sockets[i], i, (char *)&h, sizeof h, true, until);
  }
  return status;
}

/* -- other ranks -- */

/* A connection to one of the addresses, or -1 and errno. */
static int connect_once(moth_ctx *ctx, const struct addrinfo *list, double until, int *status) {
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    int error = 0;
    bool late = false;
    socklen_t size = sizeof error;
    const int s = socket(a->ai_family, SOCK_STREAM, 0);
    if (s < 0) continue;
    make_ready(s);
    if (!connect(s, a->ai_addr, a->ai_addrlen)) return s;
    error = errno;
    if (error == EINPROGRESS) {
      const double soon = moth_seconds() + 5;
      *status = wait_socket(ctx, s, POLLOUT, soon < until ? soon : until, &late);
      if (late || *status || getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &size)) error = ETIMEDOUT;
    }
    if (!error) return s;
    close(s);
    errno = error;
    if (*status) return -1;
  }
  return -1;
}

static int join_host(moth_ctx *ctx, moth_rendezvous *r, const char *host, int32_t port,
                     double seconds) {
  const double until = moth_seconds() + seconds;
  struct addrinfo *list = addresses(ctx, host, port);
  int status = list ? MOTH_OK : ctx->error.code, error = 0;
  while (!status && r->sockets[0] < 0) {
    r->sockets[0] = connect_once(ctx, list, until, &status);
    error = errno;
    if (r->sockets[0] >= 0 || status) break;
    if (moth_seconds() > until)
      status = moth_fail(ctx, MOTH_E_IO, NULL, "rank 0 does not answer at %s, port %d, within %g "
                         "s: %s", host, (int)port, seconds, strerror(error));
    else if (!(status = moth_poll(ctx))) moth_sleep(RETRY_MS * 1e-3);
  }
  if (list) freeaddrinfo(list);
  if (status) return status;
  head h = {MAGIC, VERSION, GREETING, r->rank, r->size, 0, 0};
  status = move_bytes(ctx, r->sockets[0], 0, (char *)&h, sizeof h, true, until);
  /* Rank 0 gives up first, and names the ranks that are missing. */
  if (!status)
    status = move_bytes(ctx, r->sockets[0], 0, (char *)&h, sizeof h, false, until + 5);
  if (status) return status;
  if (h.magic != MAGIC || h.kind != WELCOME)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "rank 0 refuses rank %d of %d: it has %d processes, "
                     "or this rank twice", (int)r->rank, (int)r->size, (int)h.size);
  return MOTH_OK;
}

/* -- the functions -- */

int32_t moth_rendezvous_open(moth_ctx *ctx, const char *host, int32_t port, int32_t rank,
                             int32_t size, double seconds) {
  MOTH_NEED(ctx, host, MOTH_E_ARG);
  if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
    return moth_fail(ctx, MOTH_E_ARG, "rank", "rank %d of %d processes is not possible", (int)rank,
                     (int)size);
  if (port < 1 || port > 65535)
    return moth_fail(ctx, MOTH_E_ARG, "port", "a port from 1 to 65535 is needed, got %d",
                     (int)port);
  int status = moth_processes_begin(ctx);
  if (status) return status;
  moth_rendezvous *r = malloc(sizeof *r + (size_t)size * sizeof r->sockets[0]);
  if (r) {
    *r = (moth_rendezvous){.rank = rank, .size = size};
    for (int32_t i = 0; i < size; i++) r->sockets[i] = -1;
    if (size > 1)
      status = rank == 0 ? welcome_all(ctx, r, port, seconds)
                         : join_host(ctx, r, host, port, seconds);
  } else {
    status = moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  }
  ctx->processes->rendezvous = r;
  if (!status) status = moth_processes_ready(ctx, 0, size, rank);
  if (status) moth_processes_free(ctx);
  return status;
}

/* Receives a value of n bytes. */
static int receive_value(moth_ctx *ctx, moth_rendezvous *r, int32_t from, void *bytes, int64_t n,
                         double until) {
  head h;
  int status = move_bytes(ctx, r->sockets[from], from, (char *)&h, sizeof h, false, until);
  if (!status && (h.magic != MAGIC || h.kind != VALUE || h.number != r->number || h.bytes != n))
    status = moth_fail(ctx, MOTH_E_STATE, NULL, "rank %d calls another function than this process: "
                       "all processes call init_process_group and new_group in the same order",
                       (int)from);
  return status ? status : move_bytes(ctx, r->sockets[from], from, bytes, n, false, until);
}

static int send_value(moth_ctx *ctx, moth_rendezvous *r, int32_t to, void *bytes, int64_t n,
                      double until) {
  head h = {MAGIC, VERSION, VALUE, r->rank, r->size, r->number, n};
  int status = move_bytes(ctx, r->sockets[to], to, (char *)&h, sizeof h, true, until);
  return status ? status : move_bytes(ctx, r->sockets[to], to, bytes, n, true, until);
}

int32_t moth_rendezvous_share(moth_ctx *ctx, int32_t root, void *bytes, int64_t n,
                              double seconds) {
  MOTH_NEED(ctx, bytes, MOTH_E_ARG);
  moth_rendezvous *r = ctx->processes ? ctx->processes->rendezvous : NULL;
  if (!r) return moth_fail(ctx, MOTH_E_STATE, NULL, "the processes were not joined by TCP");
  if (root < 0 || root >= r->size || n < 0)
    return moth_fail(ctx, MOTH_E_ARG, "root", "a rank from 0 to %d is needed, got %d",
                     (int)r->size - 1, (int)root);
  const double until = moth_seconds() + seconds;
  int status = MOTH_OK;
  r->number++;
  if (r->rank == root && root != 0) return send_value(ctx, r, 0, bytes, n, until);
  if (r->rank != 0) return receive_value(ctx, r, 0, bytes, n, until);
  if (root != 0) status = receive_value(ctx, r, root, bytes, n, until);
  for (int32_t i = 1; !status && i < r->size; i++)
    if (i != root) status = send_value(ctx, r, i, bytes, n, until);
  return status;
}

#endif

/* nccl.cpp -- the functions of NCCL that vendor/nccl.cu calls, for processes on one machine with
** the GPU emulator. MOTH_NCCL names this library: build/emulated/libmoth_nccl.so.
**
** The members of a comm share a file in memory, with a ring of bytes for each ordered pair. An
** operation is a set of sends and receives of whole tensors, and a reduction of what arrived, in
** the order of ranks. It is a command of the emulator's stream that moves what the rings can take,
** and is repeated until all has arrived. A send ends when the receiver has taken it, as a large one
** does in NCCL. Each message begins with its kind and size: members that call different operations
** get ncclInvalidUsage, where NCCL may wait for ever.
**
** As in a comm of NCCL that does not block, each call returns ncclInProgress, and reaches the
** stream at a later ncclCommGetAsyncError. MOTH_EMULATED_NCCL=CODE is another version.
** MOTH_EMULATED_NCCL_FAILS=n: the n-th operation fails. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "submitter.h"
#include "tensor/half.h"

#define API extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, SYSTEM_ERROR = 2, WRONG_ARGUMENT = 4, WRONG_USE = 5, REMOTE_ERROR = 6,
       IN_PROGRESS = 7 };
enum { SUM, PRODUCT, MAX, MIN, AVERAGE, NO_OP };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };
enum { BROADCAST = 1, REDUCE, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, POINT };
enum { RING = 1 << 16, MOST = 16, ASKED = 3 };

static const size_t size_of[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

struct ncclUniqueId {
  char name[128];
};

struct ncclConfig {
  size_t size;
  unsigned magic, version;
  int blocking;
};

namespace {

/* -- shared memory -- */

struct ring {
  std::atomic<uint64_t> wrote, read;
  char bytes[RING];
};

struct shared {
  std::atomic<int> joined;
  std::atomic<int> process[MOST], left[MOST]; /* left: the member has closed its comm */
  ring rings[];                               /* of sender * n + receiver */
};

struct head {
  uint64_t kind, bytes, number;
};

struct message { /* of an operation: one message */
  char *at;
  size_t n;
  int peer;
  uint64_t kind, number;
  size_t moved; /* of the head and the bytes */
};

struct operation {
  std::vector<message> sends, receives;
  std::vector<std::vector<char>> arrived; /* by rank, for reductions */
  const char *from;                       /* of a reduction: own elements, result, ... */
  char *to;
  size_t n;
  int type, op;
};

struct state { /* of a comm; its commands share it */
  shared *all = NULL;
  size_t size = 0;
  char path[160] = "";
  int n = 0, rank = 0;
  bool counted = false, ended = false; /* ended: commands do nothing any more */
  int error = SUCCESS;
  int pending = 0; /* questions until the calls so far are submitted */
  struct call {
    std::shared_ptr<operation> what;
    cudaStream_t stream;
  };
  std::deque<call> calls;
  std::vector<uint64_t> sent, received; /* messages by peer */
  ~state() {
    if (all) munmap(all, size);
  }
};

} // namespace

struct ncclComm {
  std::shared_ptr<state> s;
};

static ring *ring_of(const state &s, int from, int to) {
  return &s.all->rings[from * s.n + to];
}

/* Moves bytes of a message, whose head comes first. Returns whether any were moved. */
static bool put(const moth_emulated_submitter *by, state &s, message &p) {
  ring *r = ring_of(s, s.rank, p.peer);
  const head h = {p.kind, p.n, p.number};
  bool moved = false;
  for (;;) {
    const uint64_t wrote = r->wrote.load(), free = RING - (wrote - r->read.load());
    const bool in_head = p.moved < sizeof h;
    const size_t left = in_head ? sizeof h - p.moved : sizeof h + p.n - p.moved;
    size_t n = RING - wrote % RING;
    n = n < free ? n : free;
    n = n < left ? n : left;
    if (n == 0) return moved;
    const char *from = in_head ? (const char *)&h + p.moved : p.at + (p.moved - sizeof h);
    by->copy(r->bytes + wrote % RING, from, n);
    p.moved += n;
    r->wrote.store(wrote + n);
    moved = true;
  }
}

static bool take(const moth_emulated_submitter *by, state &s, message &p) {
  ring *r = ring_of(s, p.peer, s.rank);
  head h = {p.kind, p.n, p.number};
  bool moved = false;
  for (;;) {
    const uint64_t read = r->read.load(), there = r->wrote.load() - read;
    if (p.moved == 0) {
      char *to = (char *)&h;
      if (there < sizeof h) return moved;
      for (size_t i = 0; i < sizeof h; i++) to[i] = r->bytes[(read + i) % RING];
      if (h.kind != p.kind || h.bytes != p.n || h.number != p.number) {
        fprintf(stderr, "emulated NCCL: rank %d waits for a message of kind %d and %zu bytes from "
                "rank %d, which sends kind %d and %llu bytes\n", s.rank, (int)p.kind, p.n, p.peer,
                (int)h.kind, (unsigned long long)h.bytes);
        s.error = WRONG_USE;
        return false;
      }
      p.moved = sizeof h;
      r->read.store(read + sizeof h);
      moved = true;
      continue;
    }
    const size_t left = sizeof h + p.n - p.moved;
    size_t n = RING - read % RING;
    n = n < there ? n : there;
    n = n < left ? n : left;
    if (n == 0) return moved;
    by->copy(p.at + (p.moved - sizeof h), r->bytes + read % RING, n);
    p.moved += n;
    r->read.store(read + n);
    moved = true;
  }
}

/* -- reductions -- */

template <class T> static T apply(T a, T b, int op) {
  switch (op) {
    case PRODUCT: return (T)(a * b);
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default: return (T)(a + b);
  }
}

template <class T>
static void reduce_as(T *to, const std::vector<std::vector<char>> &from, size_t n, int op) {
  for (size_t i = 0; i < n; i++) {
    T sum = ((const T *)from[0].data())[i];
    for (size_t r = 1; r < from.size(); r++) sum = apply(sum, ((const T *)from[r].data())[i], op);
    to[i] = op == AVERAGE ? (T)(sum / (T)from.size()) : sum;
  }
}

static void reduce_half(uint16_t *to, const std::vector<std::vector<char>> &from, size_t n, int op,
                        bool brain) {
  const float each = op == AVERAGE ? 1 / (float)from.size() : 1; /* as NCCL: before the sum */
  for (size_t i = 0; i < n; i++) {
    float sum = 0;
    for (size_t r = 0; r < from.size(); r++) {
      const uint16_t bits = ((const uint16_t *)from[r].data())[i];
      const float v = each * (brain ? moth_widen_bf16(bits) : moth_widen_f16(bits));
      sum = r ? apply(sum, v, op) : v;
      sum = brain ? moth_widen_bf16(moth_narrow_bf16(sum)) : moth_widen_f16(moth_narrow_f16(sum));
    }
    to[i] = brain ? moth_narrow_bf16(sum) : moth_narrow_f16(sum);
  }
}

static void reduce(const moth_emulated_submitter *by, const state &s, operation &o) {
  const size_t bytes = o.n * size_of[o.type];
  std::vector<char> result(bytes);
  o.arrived[(size_t)s.rank].resize(bytes);
  by->copy(o.arrived[(size_t)s.rank].data(), o.from, bytes);
  void *to = result.data();
  switch (o.type) {
    case INT8: reduce_as((int8_t *)to, o.arrived, o.n, o.op); break;
    case UINT8: reduce_as((uint8_t *)to, o.arrived, o.n, o.op); break;
    case INT32: reduce_as((int32_t *)to, o.arrived, o.n, o.op); break;
    case UINT32: reduce_as((uint32_t *)to, o.arrived, o.n, o.op); break;
    case INT64: reduce_as((int64_t *)to, o.arrived, o.n, o.op); break;
    case UINT64: reduce_as((uint64_t *)to, o.arrived, o.n, o.op); break;
    case FLOAT32: reduce_as((float *)to, o.arrived, o.n, o.op); break;
    case FLOAT64: reduce_as((double *)to, o.arrived, o.n, o.op); break;
    default: reduce_half((uint16_t *)to, o.arrived, o.n, o.op, o.type == BFLOAT16);
  }
  by->copy(o.to, result.data(), bytes);
}

/* -- operations -- */

/* In order for each peer: only the first message that has not ended moves. */
static bool move_parts(const moth_emulated_submitter *by, state &s, std::vector<message> &parts,
                       bool out) {
  bool all = true;
  uint64_t busy = 0;
  for (message &p : parts) {
    const bool blocked = busy >> p.peer & 1u;
    if (p.moved < sizeof(head) + p.n && !blocked && !s.error) {
      if (out) put(by, s, p);
      else take(by, s, p);
    }
    const bool done = p.moved == sizeof(head) + p.n;
    if (!done) busy |= (uint64_t)1 << p.peer;
    all = all && done;
  }
  return all;
}

static cudaError_t advance(const moth_emulated_submitter *by, state &s, operation &o) {
  if (s.ended) return cudaSuccess;
  if (s.error) return cudaErrorNotReady;
  bool done = move_parts(by, s, o.sends, true);
  done = move_parts(by, s, o.receives, false) && done;
  for (const message &p : o.sends) { /* a send ends when it was received */
    const ring *r = ring_of(s, s.rank, p.peer);
    done = done && r->wrote.load() == r->read.load();
  }
  if (!done) return cudaErrorNotReady;
  if (o.op != NO_OP) reduce(by, s, o);
  return cudaSuccess;
}

static std::shared_ptr<operation> new_operation(const void *from, void *to, size_t n, int type,
                                                int op) {
  std::shared_ptr<operation> o(new operation);
  o->from = (const char *)from;
  o->to = (char *)to;
  o->n = n;
  o->type = type;
  o->op = op;
  return o;
}

static void send_part(state &s, operation &o, int kind, const void *at, size_t n, int peer) {
  o.sends.push_back(
    message{(char *)(uintptr_t)at, n, peer, (uint64_t)kind, s.sent[(size_t)peer]++, 0});
}
static void receive_part(state &s, operation &o, int kind, void *at, size_t n, int peer) {
  o.receives.push_back(
    message{(char *)at, n, peer, (uint64_t)kind, s.received[(size_t)peer]++, 0});
}

/* Receives the elements of another rank for a reduction. */
static void receive_share(state &s, operation &o, int kind, int peer) {
  std::vector<char> &to = o.arrived[(size_t)peer];
  to.resize(o.n * size_of[o.type]);
  receive_part(s, o, kind, to.data(), to.size(), peer);
}

/* -- groups -- */

static thread_local int depth;
static thread_local ncclComm *grouped;
static thread_local std::shared_ptr<operation> *together;
static thread_local cudaStream_t grouped_stream;

static bool fails(void) {
  const char *text = getenv("MOTH_EMULATED_NCCL_FAILS");
  static int calls;
  return text && ++calls == atoi(text);
}

static int enqueue(ncclComm *c, std::shared_ptr<operation> o, cudaStream_t stream) {
  if (c->s->error) return c->s->error;
  if (fails()) return c->s->error = SYSTEM_ERROR;
  c->s->calls.push_back({o, stream});
  c->s->pending = ASKED;
  return IN_PROGRESS;
}

static bool valid(const ncclComm *c, int type, int peer) {
  return c && type >= 0 && type < TYPES && peer >= 0 && peer < c->s->n;
}

API int ncclGroupStart(void) { return depth++, SUCCESS; }

API int ncclGroupEnd(void) {
  if (depth == 0) return WRONG_USE;
  if (--depth || !grouped) return SUCCESS;
  std::shared_ptr<operation> o = *together;
  ncclComm *c = grouped;
  delete together;
  together = NULL;
  grouped = NULL;
  return enqueue(c, o, grouped_stream);
}

static int point(ncclComm *c, const void *from, void *to, size_t n, int peer, cudaStream_t stream) {
  const bool alone = depth == 0;
  if (!valid(c, INT8, peer)) return WRONG_ARGUMENT;
  if (alone) depth++;
  if (!grouped)
    together = new std::shared_ptr<operation>(new_operation(NULL, NULL, 0, INT8, NO_OP));
  grouped = c;
  grouped_stream = stream;
  if (from) send_part(*c->s, **together, POINT, from, n, peer);
  else receive_part(*c->s, **together, POINT, to, n, peer);
  return alone ? ncclGroupEnd() : (int)IN_PROGRESS;
}

/* -- NCCL's functions -- */

API int ncclGetVersion(int *version) {
  const char *text = getenv("MOTH_EMULATED_NCCL");
  return *version = text ? atoi(text) : 22200, SUCCESS;
}

API const char *ncclGetErrorString(int result) {
  return result == SUCCESS          ? "no error"
         : result == SYSTEM_ERROR   ? "unhandled system error"
         : result == WRONG_ARGUMENT ? "invalid argument"
         : result == WRONG_USE      ? "invalid usage"
         : result == REMOTE_ERROR   ? "remote process exited or there was a network error"
                                    : "an error";
}

API const char *ncclGetLastError(ncclComm *) { return ""; }

API int ncclGetUniqueId(ncclUniqueId *id) {
  static int made;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  memset(id, 0, sizeof *id);
  snprintf(id->name, sizeof id->name, "moth-nccl-%d-%d-%lld", (int)getpid(), made++,
           (long long)t.tv_nsec);
  return SUCCESS;
}

API int ncclCommInitRankConfig(ncclComm **made, int n, ncclUniqueId id, int rank,
                               const ncclConfig *config) {
  if (n < 1 || n > MOST || rank < 0 || rank >= n || !memchr(id.name, 0, sizeof id.name) ||
      config->magic != 0xcafebeef || config->blocking)
    return WRONG_ARGUMENT;
  std::shared_ptr<state> s(new state);
  s->size = sizeof(shared) + (size_t)(n * n) * sizeof(ring);
  s->n = n;
  s->rank = rank;
  s->sent.resize((size_t)n);
  s->received.resize((size_t)n);
  snprintf(s->path, sizeof s->path, "/dev/shm/%s", id.name);
  const int file = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, (off_t)s->size)) return SYSTEM_ERROR;
  void *at = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) return SYSTEM_ERROR;
  s->all = (shared *)at;
  s->all->process[rank].store((int)getpid());
  s->all->joined.fetch_add(1);
  *made = new ncclComm{s};
  return IN_PROGRESS;
}

/* Has a member died, or aborted? */
static bool is_alone(const state &s) {
  for (int i = 0; i < s.n; i++) {
    const int left = s.all->left[i].load();
    if (left == 2 || (!left && kill(s.all->process[i].load(), 0) && errno == ESRCH)) return true;
  }
  return false;
}

API int ncclCommGetAsyncError(ncclComm *c, int *result) {
  state &s = *c->s;
  *result = IN_PROGRESS;
  if (!s.counted) {
    if (s.all->joined.load() < s.n) return SUCCESS;
    s.counted = true;
    unlink(s.path); /* all have it */
  }
  if (!s.error && is_alone(s)) s.error = REMOTE_ERROR;
  if (!s.error && s.pending > 1) return s.pending--, SUCCESS;
  s.pending = 0;
  for (; !s.error && !s.calls.empty(); s.calls.pop_front()) {
    const state::call next = s.calls.front();
    moth_emulated_submitter *by = (moth_emulated_submitter *)(void *)next.stream;
    std::shared_ptr<state> held = c->s;
    std::shared_ptr<operation> o = next.what;
    by->submit(next.stream, [=] { return advance(by, *held, *o); });
  }
  return *result = s.error, SUCCESS;
}

static int leave(ncclComm *c, int how) {
  c->s->all->left[c->s->rank].store(how);
  c->s->ended = true;
  if (!c->s->counted) unlink(c->s->path);
  delete c;
  return SUCCESS;
}

API int ncclCommFinalize(ncclComm *c) { return c->s->pending = ASKED, IN_PROGRESS; }
API int ncclCommDestroy(ncclComm *c) { return leave(c, 1); }
API int ncclCommAbort(ncclComm *c) { return leave(c, 2); }

API int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, ncclComm *c,
                      cudaStream_t stream) {
  if (!valid(c, type, root) || from != to) return WRONG_ARGUMENT;
  state &s = *c->s;
  std::shared_ptr<operation> o = new_operation(from, to, n, type, NO_OP);
  for (int i = 0; i < s.n; i++)
    if (s.rank == root && i != root) send_part(s, *o, BROADCAST, from, n * size_of[type], i);
  if (s.rank != root) receive_part(s, *o, BROADCAST, to, n * size_of[type], root);
  return enqueue(c, o, stream);
}

API int ncclReduce(const void *from, void *to, size_t n, int type, int op, int root, ncclComm *c,
                   cudaStream_t stream) {
  if (!valid(c, type, root)) return WRONG_ARGUMENT;
  state &s = *c->s;
  std::shared_ptr<operation> o = new_operation(from, to, n, type, s.rank == root ? op : NO_OP);
  o->arrived.resize((size_t)s.n);
  for (int i = 0; i < s.n; i++)
    if (s.rank == root && i != root) receive_share(s, *o, REDUCE, i);
  if (s.rank != root) send_part(s, *o, REDUCE, from, n * size_of[type], root);
  return enqueue(c, o, stream);
}

API int ncclReduceScatter(const void *from, void *to, size_t n, int type, int op, ncclComm *c,
                          cudaStream_t stream) {
  if (!valid(c, type, 0)) return WRONG_ARGUMENT;
  state &s = *c->s;
  const char *parts = (const char *)from;
  const size_t size = n * size_of[type];
  std::shared_ptr<operation> o = new_operation(parts + size * (size_t)s.rank, to, n, type, op);
  o->arrived.resize((size_t)s.n);
  for (int i = 0; i < s.n; i++) {
    if (i == s.rank) continue;
    send_part(s, *o, REDUCE_SCATTER, parts + size * (size_t)i, size, i);
    receive_share(s, *o, REDUCE_SCATTER, i);
  }
  return enqueue(c, o, stream);
}

API int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, ncclComm *c,
                      cudaStream_t stream) {
  if (!valid(c, type, 0)) return WRONG_ARGUMENT;
  state &s = *c->s;
  std::shared_ptr<operation> o = new_operation(from, to, n, type, op);
  o->arrived.resize((size_t)s.n);
  for (int i = 0; i < s.n; i++) {
    if (i == s.rank) continue;
    send_part(s, *o, ALL_REDUCE, from, n * size_of[type], i);
    receive_share(s, *o, ALL_REDUCE, i);
  }
  return enqueue(c, o, stream);
}

API int ncclAllGather(const void *from, void *to, size_t n, int type, ncclComm *c,
                      cudaStream_t stream) {
  if (!valid(c, type, 0)) return WRONG_ARGUMENT;
  state &s = *c->s;
  const size_t size = n * size_of[type];
  std::shared_ptr<operation> o = new_operation(from, to, n, type, NO_OP);
  for (int i = 0; i < s.n; i++) { /* including to itself */
    send_part(s, *o, ALL_GATHER, from, size, i);
    receive_part(s, *o, ALL_GATHER, (char *)to + size * (size_t)i, size, i);
  }
  return enqueue(c, o, stream);
}

API int ncclSend(const void *from, size_t n, int type, int peer, ncclComm *c, cudaStream_t stream) {
  return valid(c, type, peer) ? point(c, from, NULL, n * size_of[type], peer, stream)
                              : (int)WRONG_ARGUMENT;
}

API int ncclRecv(void *to, size_t n, int type, int peer, ncclComm *c, cudaStream_t stream) {
  return valid(c, type, peer) ? point(c, NULL, to, n * size_of[type], peer, stream)
                              : (int)WRONG_ARGUMENT;
}

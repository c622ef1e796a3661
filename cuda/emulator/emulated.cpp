/* emulated.cpp -- runs kernels on the CPU. cuda_runtime.h says what the emulator is for;
** streams.cpp runs the commands of streams; memory.cpp has the device memory.
**
** Environment variables describe the device: MOTH_EMULATED_DEVICES is the number of devices (1),
** MOTH_EMULATED_MAJOR the compute capability (9), MOTH_EMULATED_SHARED the shared memory of a block
** (227 KiB), MOTH_EMULATED_PROCESSORS the number of multiprocessors (4, so that work is split into
** few parts), MOTH_EMULATED_COMPILED the architecture that kernels were compiled for (90).
** MOTH_EMULATED_DRIVER=none emulates a machine without a driver, MOTH_EMULATED_TOGETHER=0 a device
** without cooperative launches. The blocks of a cooperative launch are switched when one waits for
** another (__nanosleep); they have dynamic shared memory only. MOTH_EMULATED_SMALL=n lowers the
** limit of 32-bit arithmetic in kernels (2^31 - 1), so that small tensors test the 64-bit code.
**
** Blocks and threads run in order, and the threads of a warp advance together. A GPU guarantees
** neither. With MOTH_EMULATED_ORDER=reverse or random (MOTH_EMULATED_SEED is the seed) the order
** changes: each warp runs alone until it reaches a barrier of its block, and asynchronous copies to
** shared memory are done at once, or some of them. A result that changes with the order shows that
** a barrier is missing. */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <new>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim(1), gridDim(1);

pthread_mutex_t moth_emulated_lock = PTHREAD_MUTEX_INITIALIZER;

/* A property of the emulated machine: the value of an environment variable, or `usual`. */
int moth_emulated_card(const char *name, int usual) {
  const char *text = getenv(name);
  return text ? atoi(text) : usual;
}
const int64_t moth_emulated_small = moth_emulated_card("MOTH_EMULATED_SMALL", INT32_MAX);
size_t moth_emulated_most_shared() {
  return (size_t)moth_emulated_card("MOTH_EMULATED_SHARED", 227 << 10);
}

/* -- switching stacks -- Saves the callee-saved registers on the current stack, stores its pointer
** in *from, and restores the registers of the other stack. swapcontext would do the same, but it
** also sets the signal mask: two system calls for each switch, and a kernel's threads may switch
** millions of times. */

#ifdef __x86_64__
typedef void *context;

extern "C" void moth_switch(context *from, const context *to)
    __attribute__((visibility("hidden")));
asm(".text\n.p2align 4\n.hidden moth_switch\n.globl moth_switch\n"
    ".type moth_switch, @function\nmoth_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq (%rsi), %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size moth_switch, . - moth_switch\n");

static void context_make(context *c, char *stack, size_t size, void (*run)(void)) {
  void **top = (void **)(stack + size) - 1; /* at a function's start, the stack pointer is 8 bytes
                                            ** off a multiple of 16 */
  top[0] = NULL; /* the return address of run: it never returns */
  top[-1] = (void *)run;
  for (int i = 2; i < 8; i++) top[-i] = NULL; /* the registers */
  *c = top - 7;
}
#else
typedef ucontext_t context;

static void moth_switch(context *from, const context *to) { swapcontext(from, to); }

static void context_make(context *c, char *stack, size_t size, void (*run)(void)) {
  getcontext(c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = size;
  c->uc_link = NULL;
  makecontext(c, run, 0);
}
#endif

/* -- threads: each gets its own stack when it first waits -- */

enum state { FREE, RUNS, AT_BARRIER, IN_WARP, SLEEPS, DONE };

struct later { /* an asynchronous copy; to NULL: the end of a group */
  void *to;
  const void *from;
  size_t n;
};

struct fiber {
  context here;
  char *stack;
  state is;
  unsigned number;      /* the thread's index in the block */
  unsigned mask;        /* IN_WARP: the threads to wait for */
  bool orders;          /* and whether the wait also orders memory */
  const void *where;    /* the address of the waiting call, for the race checker */
  unsigned long met;    /* the number of the last meeting of the warp that it left */
  int vote;             /* its argument to the barrier or the warp function */
  int voted;            /* and its argument to the last meeting that it left */
  unsigned char brought[16], given[16];
  std::vector<later> copies;
};

static const size_t STACK = 128 << 10;
static std::vector<fiber *> *fibers; /* all fibers, for reuse */
static size_t taken;                 /* fibers used by the running blocks */
static fiber *now;
static context scheduler;
static void (*kernel)(void *);
static void *kernel_arg;
static fiber **thread_at; /* by index in the block */
static char *block_shared; /* the block's shared memory */

void *moth_emulated_shared(void) { return block_shared; }

static void place(unsigned t) {
  threadIdx.x = t % blockDim.x;
  threadIdx.y = t / blockDim.x % blockDim.y;
  threadIdx.z = t / blockDim.x / blockDim.y;
}

static void body() {
  for (;;) {
    now->copies.clear();
    kernel(kernel_arg);
    now->is = DONE;
    moth_switch(&now->here, &scheduler);
  }
}

static void resume(fiber *f) {
  now = f;
  f->is = RUNS;
  place(f->number);
  WATCH(moth_watch_thread((int)f->number, f->stack, STACK));
  moth_switch(&scheduler, &f->here);
  WATCH(moth_watch_thread(-1, NULL, 0));
  now = NULL;
}

/* The race checker gets the address at which a thread waits: both functions are inlined into the
** functions that kernels call. */
static inline __attribute__((always_inline)) void wait_as(state why) {
  WATCH(now->where = __builtin_return_address(0));
  now->is = why;
  moth_switch(&now->here, &scheduler);
}

static fiber *fiber_new() {
  fiber *f = new (std::nothrow) fiber();
  if (!f) return NULL;
  f->stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (f->stack == MAP_FAILED) return NULL;
  context_make(&f->here, f->stack, STACK, body);
  return f;
}

/* -- order: the i-th of n is (i * by + from) % n; by and n have no common factor -- */

struct turns {
  uint64_t by, from, n;
};

static enum { ASCENDING, REVERSE, RANDOM } order;
static uint64_t chance;

static void read_order() {
  const char *text = getenv("MOTH_EMULATED_ORDER"), *seed = getenv("MOTH_EMULATED_SEED");
  static bool done;
  if (done) return;
  done = true;
  order = !text ? ASCENDING : !strcmp(text, "reverse") ? REVERSE
          : !strcmp(text, "random") ? RANDOM : ASCENDING;
  chance = (seed ? strtoull(seed, NULL, 10) : 1) * 2654435761u + 1;
}

static turns turns_of(uint64_t n) {
  static const uint64_t primes[4] = {4294967291u, 4294967279u, 4294967231u, 4294967197u};
  if (order == ASCENDING) return turns{1, 0, n};
  if (order == REVERSE) return turns{n - 1, n - 1, n};
  chance = chance * 6364136223846793005u + 1442695040888963407u;
  return turns{primes[chance >> 62] % n, (chance >> 20) % n, n};
}

static unsigned turn(const turns &t, uint64_t i) {
  return (unsigned)(order == ASCENDING ? i : (i * t.by + t.from) % t.n);
}

#ifdef MOTH_WATCHED
/* Threads that met in one __syncwarp see each other's earlier writes. */
static void record_meetings(unsigned warp, fiber *const *ready, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    const fiber *f = ready[i];
    unsigned lanes = 0;
    for (unsigned j = 0; j < count; j++)
      if (ready[j]->mask == f->mask) {
        moth_watch_place(f->number, f->where, ready[j]->number, ready[j]->where);
        if (ready[j]->orders) lanes |= 1u << ready[j]->number % 32;
      }
    if (f->orders) moth_watch_meeting(warp, lanes);
  }
}
#endif

/* Releases the threads of a warp whose partners have all arrived. Their arguments are copied first,
** because the first thread may pass its next argument before the last has read this one. */
static bool release_warp(unsigned first, unsigned n) {
  static unsigned long meeting;
  fiber **warp = thread_at + first, *ready[32];
  const unsigned lanes = n - first < 32 ? n - first : 32;
  unsigned waits = 0, come = lanes < 32 ? ~0u << lanes : 0, count = 0;
  for (unsigned i = 0; i < lanes; i++) {
    if (warp[i]->is == IN_WARP) waits |= 1u << i;
    if (warp[i]->is == DONE) come |= 1u << i;
  }
  come |= waits;
  if (!waits) return false;
  const turns take = turns_of(lanes);
  for (unsigned k = 0; k < lanes; k++) {
    const unsigned i = turn(take, k);
    if (waits >> i & 1u && (warp[i]->mask & ~come) == 0) ready[count++] = warp[i];
  }
  meeting += count > 0;
  for (unsigned i = 0; i < count; i++) {
    fiber *f = ready[i];
    memcpy(f->given, f->brought, sizeof f->given);
    f->voted = f->vote;
    f->met = meeting;
  }
  WATCH(record_meetings(first / 32, ready, count));
  for (unsigned i = 0; i < count; i++) resume(ready[i]);
  return count > 0;
}

/* The same for all warps of a block. */
static bool release_warps(unsigned n) {
  const turns warps = turns_of((n + 31) / 32);
  bool moved = false;
  for (unsigned w = 0; w < warps.n; w++) {
    const unsigned first = 32 * turn(warps, w);
    while (release_warp(first, n)) {
      moved = true;
      if (order == ASCENDING) break;
    }
  }
  return moved;
}

/* Calls go(thread) for all threads of a block, warp by warp. */
template <class F> static void each_thread(unsigned n, F go) {
  const turns warps = turns_of((n + 31) / 32);
  for (unsigned w = 0; w < warps.n; w++) {
    const unsigned first = 32 * turn(warps, w);
    const turns lanes = turns_of(n - first < 32 ? n - first : 32);
    for (unsigned k = 0; k < lanes.n; k++) go(first + turn(lanes, k));
    while (order != ASCENDING && release_warp(first, n)) {}
  }
}

static int votes; /* of the threads that were last released from the barrier */

static bool release_barrier(unsigned n) {
  bool any = false;
  WATCH(const fiber *first = NULL);
  votes = 0;
  for (unsigned i = 0; i < n; i++) {
    if (thread_at[i]->is == IN_WARP || thread_at[i]->is == SLEEPS) return false;
    if (thread_at[i]->is != AT_BARRIER) continue;
    any = true;
    WATCH(if (!first) first = thread_at[i]);
    WATCH(moth_watch_place(first->number, first->where, i, thread_at[i]->where));
    votes += thread_at[i]->vote;
  }
  if (!any) return false;
  WATCH(moth_watch_barrier());
  each_thread(n, [](unsigned t) {
    if (thread_at[t]->is == AT_BARRIER) resume(thread_at[t]);
  });
  return true;
}

/* -- blocks -- */

struct running_block {
  unsigned number;
  char *shared;
  size_t shared_size;
  fiber *threads[1024];
};

static void enter(const running_block &b) {
  blockIdx = uint3{b.number % gridDim.x, b.number / gridDim.x % gridDim.y,
                   b.number / gridDim.x / gridDim.y};
  thread_at = (fiber **)b.threads;
  block_shared = b.shared;
}

static fiber *spare_fiber() {
  if (!fibers) fibers = new std::vector<fiber *>;
  if (taken == fibers->size()) fibers->push_back(fiber_new());
  return (*fibers)[taken] ? (*fibers)[taken++] : NULL;
}

static bool begin(running_block *b, unsigned n, size_t shared) {
  static fiber done;
  fiber *spare = NULL;
  bool good = true;
  done.is = DONE;
  if (shared > b->shared_size) {
    free(b->shared);
    b->shared = (char *)aligned_alloc(64, (shared + 63) / 64 * 64);
    b->shared_size = shared;
  }
  enter(*b);
  if (shared) memset(b->shared, 0xff, shared);
  WATCH(moth_watch_block_begins(b->number, b->shared, shared));
  each_thread(n, [&](unsigned t) { /* a thread that never waits leaves its stack to the next */
    if (!spare) spare = spare_fiber();
    good = good && spare;
    thread_at[t] = &done;
    if (!good) return;
    spare->number = t;
    thread_at[t] = spare;
    resume(spare);
    if (spare->is == DONE) thread_at[t] = &done;
    else spare = NULL;
  });
  taken -= spare != NULL;
  return good;
}

enum how_far { ENDED, ASLEEP, STUCK };

/* Runs a block until all of its threads wait or are done. */
static how_far go_on(unsigned n) {
  for (;;) {
    bool waits = false, sleeps = false;
    for (unsigned t = 0; t < n; t++) {
      waits = waits || thread_at[t]->is != DONE;
      sleeps = sleeps || thread_at[t]->is == SLEEPS;
    }
    if (!waits) return ENDED;
    if (!release_warps(n) && !release_barrier(n)) return sleeps ? ASLEEP : STUCK;
  }
}

/* Wakes the threads that wait for other blocks; returns whether there were any. */
static bool wake(unsigned n) {
  bool moved = false;
  each_thread(n, [&](unsigned t) {
    if (thread_at[t]->is != SLEEPS) return;
    resume(thread_at[t]);
    moved = moved || thread_at[t]->is != SLEEPS;
  });
  return moved;
}

/* Runs the blocks of a cooperative launch in turn. */
static bool run_blocks(running_block *blocks, uint64_t many, unsigned n, size_t shared) {
  uint64_t left = many;
  taken = 0;
  for (uint64_t round = 0, last = 0; left && round - last < 2; round++) {
    const turns take = turns_of(many);
    for (uint64_t i = 0; i < many; i++) {
      running_block *b = &blocks[round ? turn(take, i) : i];
      enter(*b);
      if (round ? !wake(n) : !begin(b, n, shared)) continue;
      const how_far far = go_on(n);
      if (far == STUCK) return false;
      left -= far == ENDED;
      last = round;
    }
  }
  return left == 0;
}

cudaError_t moth_emulated_run(dim3 grid, dim3 block, size_t shared, bool together,
                              void (*run)(void *), void *arg) {
  static std::vector<running_block> *blocks;
  const unsigned n = block.x * block.y * block.z;
  kernel = run;
  kernel_arg = arg;
  blockDim = block;
  gridDim = grid;
  read_order();
  const turns all = turns_of((uint64_t)grid.x * grid.y * grid.z);
  const uint64_t at_once = together ? all.n : 1;
  bool good = true;
  if (!blocks) blocks = new std::vector<running_block>;
  if (blocks->size() < at_once) blocks->resize(at_once);
  for (uint64_t i = 0; good && i < all.n; i += at_once) {
    for (uint64_t k = 0; k < at_once; k++) (*blocks)[k].number = turn(all, i + k);
    good = run_blocks(blocks->data(), at_once, n, shared);
  }
  if (!good)
    fprintf(stderr, "emulated CUDA: deadlock: threads wait for others that never arrive\n");
  return good ? cudaSuccess : cudaErrorLaunchFailure;
}

/* -- functions that threads of a block execute together -- */

void __syncthreads(void) { wait_as(AT_BARRIER); }

int __syncthreads_count(int value) {
  now->vote = value != 0;
  wait_as(AT_BARRIER);
  return votes;
}

int __syncthreads_or(int value) { return __syncthreads_count(value) != 0; }

void __nanosleep(unsigned) { wait_as(SLEEPS); }

int moth_lane(void) { return (int)(now->number % 32); }

static inline __attribute__((always_inline)) void wait_for(unsigned mask, bool orders = false) {
  now->mask = mask;
  now->orders = orders;
  wait_as(IN_WARP);
}

void __syncwarp(unsigned mask) { wait_for(mask, true); }

/* Another thread of the warp, if it took part in the meeting that this thread was last released
** from. Values of other threads are undefined. */
static const fiber *partner(unsigned lane) {
  const unsigned t = now->number / 32 * 32 + lane;
  const bool there = lane < 32 && t < blockDim.x * blockDim.y * blockDim.z;
  return there && thread_at[t]->met == now->met ? thread_at[t] : NULL;
}

void moth_warp_exchange(unsigned mask, const void *mine, size_t size, int from, void *theirs) {
  memcpy(now->brought, mine, size);
  wait_for(mask);
  const fiber *other = partner((unsigned)from);
  if (other) memcpy(theirs, other->given, size);
  else memset(theirs, 0xff, size);
}

/* The first thread of a warp that is released does the work of all. */
void moth_together(void *mine, void (*act)(void *const *all)) {
  static unsigned long done; /* the number of that meeting */
  void *all[32];
  memcpy(now->brought, &mine, sizeof mine);
  wait_for(0xffffffffu);
  if (done == now->met) return;
  done = now->met;
  for (unsigned i = 0; i < 32; i++) {
    const fiber *f = partner(i);
    if (!f) {
      fprintf(stderr, "emulated CUDA: a warp function was not called by all threads of a warp\n");
      abort();
    }
    memcpy(&all[i], f->given, sizeof all[i]);
  }
  WATCH(const bool watched = moth_watch_pause(true));
  act(all);
  WATCH(moth_watch_pause(!watched));
}

static void copy_now(const later &c) {
  WATCH(if (c.to) moth_watch_copy_comes(c.to, c.n));
  if (c.to && c.from) memcpy(c.to, c.from, c.n);
  else if (c.to) memset(c.to, 0, c.n);
}

void moth_copy_later(void *to, const void *from, size_t n) {
  if ((uintptr_t)to % (n ? n : 1) || (uintptr_t)from % (n ? n : 1)) {
    fprintf(stderr, "emulated CUDA: an unaligned copy of %zu bytes\n", n);
    abort();
  }
  now->copies.push_back(later{to, from, n});
  if (to && (order == REVERSE || (order == RANDOM && turns_of(2).from))) {
    copy_now(now->copies.back());
    now->copies.pop_back();
    return;
  }
  WATCH(if (to) moth_watch_copy_asked(to, from, n, __builtin_return_address(0)));
}

void moth_await_copies(int left) {
  size_t end = now->copies.size(), ended = 0;
  for (; end > 0; end--)
    if (!now->copies[end - 1].to && ++ended > (size_t)left) break;
  for (size_t i = 0; i < end; i++) copy_now(now->copies[i]);
  now->copies.erase(now->copies.begin(), now->copies.begin() + (long)end);
}

unsigned __ballot_sync(unsigned mask, int value) {
  unsigned votes = 0;
  now->vote = value != 0;
  wait_for(mask);
  for (unsigned i = 0; i < 32; i++) {
    const fiber *other = mask >> i & 1u ? partner(i) : NULL;
    if (other && other->voted) votes |= 1u << i;
  }
  return votes;
}

unsigned __activemask(void) { return 1u << moth_lane(); } /* one thread runs at a time */

/* -- the runtime -- */

/* The race checker can follow only one block at a time. */
enum { TOGETHER = 1 WATCH(-1) };

int moth_emulated_devices() { return moth_emulated_card("MOTH_EMULATED_DEVICES", 1); }
thread_local int moth_emulated_device;

static thread_local cudaError_t last;

static cudaError_t record_error(cudaError_t error) { return last = error ? error : last, error; }
cudaError_t moth_emulated_error(cudaError_t error) { return record_error(error); }

cudaError_t cudaGetDeviceCount(int *n) {
  const char *driver = getenv("MOTH_EMULATED_DRIVER");
  *n = moth_emulated_devices();
  if (driver && !strcmp(driver, "none")) return record_error(cudaErrorInsufficientDriver);
  return *n ? cudaSuccess : record_error(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  CALLED;
  if (device < 0 || (!moth_emulated_null && device >= moth_emulated_devices()))
    return record_error(cudaErrorInvalidDevice);
  moth_emulated_device = device;
  return cudaSuccess;
}
static int attribute(cudaDeviceAttr which) {
  const auto card = moth_emulated_card;
  switch (which) {
    case cudaDevAttrMultiProcessorCount: return card("MOTH_EMULATED_PROCESSORS", 4);
    case cudaDevAttrComputeCapabilityMajor: return card("MOTH_EMULATED_MAJOR", 9);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)moth_emulated_most_shared();
    case cudaDevAttrCooperativeLaunch: return card("MOTH_EMULATED_TOGETHER", TOGETHER);
    default: return 0;
  }
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int) {
  return *value = attribute(which), cudaSuccess;
}
cudaError_t moth_emulated_occupancy(int *n, int threads, size_t shared) {
  const size_t fit = (moth_emulated_most_shared() + 1024) / (shared + 1024);
  *n = fit < 2048u / (unsigned)threads ? (int)fit : 2048 / threads;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  CALLED;
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation       ? "cudaErrorMemoryAllocation"
         : error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
         : error == cudaErrorLaunchFailure        ? "cudaErrorLaunchFailure" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation       ? "out of memory"
         : error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
         : error == cudaErrorLaunchFailure        ? "unspecified launch failure"
         : error == cudaErrorNoDevice             ? "no CUDA-capable device is detected"
         : error == cudaErrorInsufficientDriver   ? "CUDA driver version is insufficient"
         : error == cudaErrorStreamCaptureUnsupported
           ? "operation not permitted when stream is capturing"
         : error == cudaErrorStreamCaptureInvalidated
           ? "operation failed due to a previous error during capture" : "an error";
}

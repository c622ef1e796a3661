/* watch.cpp -- the race checker. It finds races between threads of a launch, addresses outside of
** tensors, and reads of uninitialized memory.
**
** The compiler puts a call before each access of a kernel (-fsanitize=thread; its own library is
** not linked). For each word of device and shared memory, the checker stores the last writer and
** the readers since then: FastTrack (Flanagan, Freund 2009), with CUDA's barriers in place of
** locks. Time is divided into spans. A block's first span begins with the block, and each barrier
** begins another. An earlier access is ordered before the current one if it is from an earlier span
** of the same block, or from another launch. Within a span, threads of a warp are ordered by
** __syncwarp alone: shuffles and votes exchange registers and do not order memory. Blocks are
** ordered by a fence and an atomic at an address where the other block had an atomic after a fence,
** as in a sum that the last block completes. Volatile accesses count as atomics, as in PTX.
**
** Each finding is printed once, on stderr, and the process ends with status 66. With
** MOTH_EMULATED_REPORTS=FILE findings are appended to that file, and the status is the program's.
*/
#include "watch.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulated.h"

/* Symbols of the linker: the start of this library, of its variables, and the end of both. */
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start, __bss_start, _end;

namespace {

typedef uint32_t span;

/* The threads that accessed a word, as far as needed: the threads of one warp since its last
** meeting, and one thread of another warp or block. */
struct party {
  span when;
  uint32_t met; /* the warp's number of meetings at that time */
  uint32_t lanes;
  span other_when;
  uint32_t pc;
  uint16_t other;
  uint8_t warp;
  uint8_t how; /* how the writer accessed it */
};
enum { PLAIN, ATOMIC, COMING }; /* COMING: an asynchronous copy that has not been waited for */

struct cell {
  party wrote, read;
  span fine; /* if current: each byte has its own cell, and this one is not used */
};

struct region {
  const char *begin, *end;
  cell *words, *bytes;
};

region device, dynamic, fixed;    /* shared memory: dynamic, and static of the kernel */
unsigned char *states;            /* for each byte of device memory, a watch_state */
std::map<uintptr_t, size_t> used; /* start of a tensor -> its bytes */

thread_local bool watching;
unsigned self, warp, lane;
const char *stack_begin, *stack_end, *args_begin, *args_end;
const void *kernel;
bool has_reported; /* it reported an error to the host */

span now = 1, launch, block;      /* the start of the launch and of the block */
span since;                       /* accesses before this time need no check: one of these two */
std::vector<span> blocks;         /* of the launch: their start */
std::vector<unsigned> numbers;    /* and their indices */

uint32_t met[32];                 /* number of meetings of each warp */
uint32_t all_met[32];             /* the last meeting of a whole warp */
uint32_t knows[32][32][32];       /* warp, thread, other thread: the last meeting of both, if later
                                  ** than all_met */

/* -- ordering by atomics -- */

struct release { /* by a block */
  span of, before, when; /* its start; its accesses up to `before`, and ... */
  unsigned thread;       /* ... those of this thread in span `when` */
};
struct acquired {
  const std::vector<release> *from;
  size_t n;
  span when;
  unsigned thread;
};
std::unordered_map<uintptr_t, std::vector<release>> releases;
std::vector<acquired> acquisitions; /* of the block */
span fenced[1024];                  /* the last fence of each thread */

/* Tests if atomics order an access of another block's thread before this thread. */
bool is_acquired(span when, unsigned thread) {
  for (const acquired &a : acquisitions) {
    if (a.thread != self && now <= a.when) continue;
    size_t low = 0, high = a.n; /* the last entry of a block that began before that time */
    while (low < high) {
      const size_t mid = (low + high) / 2;
      if ((*a.from)[mid].of <= when) low = mid + 1;
      else high = mid;
    }
    if (!low) continue;
    const release &r = (*a.from)[low - 1];
    if (when < r.before || (when == r.when && thread == r.thread)) return true;
  }
  return false;
}

void synchronize(uintptr_t at) {
  const span fence = fenced[self];
  if (fence < block) return; /* without a fence, an atomic orders nothing */
  std::vector<release> &here = releases[at];
  acquisitions.push_back(acquired{&here, here.size(), now, self});
  here.push_back(release{block, fence < now ? fence + 1 : now, now, self});
}

/* -- reports -- */

struct pause { /* pauses the checks until the end of a block */
  bool before = watching;
  pause() { watching = false; }
  ~pause() { watching = before; }
};

/* The source position of an address: "function (file:line)", innermost first. */
std::string place_of(uintptr_t at) {
  Dl_info library;
  char text[1024], command[1200];
  std::string function, place;
  if (!dladdr(&__ehdr_start, &library)) return "?";
  snprintf(command, sizeof command, "addr2line -Cfe '%s' 0x%zx 2>/dev/null", library.dli_fname,
           (size_t)at);
  FILE *pipe = popen(command, "r");
  if (!pipe) return "?";
  if (fgets(text, sizeof text, pipe)) function = text;
  if (fgets(text, sizeof text, pipe)) place = text;
  pclose(pipe);
  function = function.substr(0, function.find_first_of("(\n"));
  place = place.substr(0, place.find_first_of(" \n"));
  return function + " (" + place.substr(place.rfind("cuda/") + 1 ? place.rfind("cuda/") : 0) + ")";
}

std::string thread_name(span when, unsigned thread) {
  size_t i = blocks.size();
  while (i > 1 && blocks[i - 1] > when) i--;
  char text[64];
  snprintf(text, sizeof text, "thread %u of block %u", thread, i ? numbers[i - 1] : 0);
  return text;
}

/* The name of an address: tensor, shared memory, or block. */
std::string name_of(uintptr_t at) {
  char text[160];
  auto after = used.upper_bound(at);
  if (at >= (uintptr_t)device.begin && at < (uintptr_t)device.end && after != used.begin()) {
    --after;
    snprintf(text, sizeof text, "byte %zu of a tensor's %zu", (size_t)(at - after->first),
             after->second);
  } else if (at >= (uintptr_t)dynamic.begin && at < (uintptr_t)dynamic.end) {
    snprintf(text, sizeof text, "byte %zu of %zu of shared memory",
             (size_t)(at - (uintptr_t)dynamic.begin), (size_t)(dynamic.end - dynamic.begin));
  } else {
    snprintf(text, sizeof text, "%s %#zx",
             at >= (uintptr_t)fixed.begin && at < (uintptr_t)fixed.end ? "a shared variable" : "at",
             (size_t)at);
  }
  return text;
}

void leave() {
  fflush(NULL);
  _exit(66);
}

struct access {
  uintptr_t at;
  size_t n;
  enum { READS, WRITES, COPIES, WAITS, ADDS, SETS } how; /* the last two: by an atomic */
  uint32_t pc;
};

/* `with`: the other access of the race, at time `then`; NULL: there is none. */
void tell(const char *what, const access &a, const party *with, span then, unsigned thread) {
  static const char *const verbs[] = {"reads", "writes", "copies to", "waits",
                                       "changes by an atomic", "sets by an atomic"};
  static std::set<std::pair<uint32_t, uint32_t>> sites;
  static std::set<std::string> reported;
  const pause none;
  const uint32_t other = with ? with->pc : 0;
  if (reported.size() > 60 || !sites.insert({a.pc, other}).second) return;
  const std::string here = place_of(a.pc), there = with ? place_of(other) : "";
  if (a.how == access::WAITS && here == there) return; /* a single source line that the compiler
                                                       ** duplicated */
  if (!reported.insert(what + here + there).second) return;
  const char *path = getenv("MOTH_EMULATED_REPORTS");
  FILE *to = path ? fopen(path, "a") : stderr;
  if (!to) return;
  fprintf(to, "watched CUDA: %s: in %s, %s %s", what, here.c_str(),
          thread_name(now, self).c_str(), verbs[a.how]);
  if (a.n) fprintf(to, " %zu bytes, %s", a.n, name_of(a.at).c_str());
  if (with) fprintf(to, "; %s was there in %s", thread_name(then, thread).c_str(), there.c_str());
  fprintf(to, "; kernel %s\n",
          kernel ? place_of((uintptr_t)kernel - (uintptr_t)&__ehdr_start).c_str() : "none");
  if (path) fclose(to);
  else if (reported.size() == 1) atexit(leave);
}

/* -- order of accesses -- */

unsigned first_of(const party &p) {
  return p.warp * 32u + (unsigned)__builtin_ctz(p.lanes | 1u << 31);
}

/* Tests if an access of a party is not ordered before this thread's; *thread and *then: which one.
*/
bool races_with(const party &p, span *then, unsigned *thread) {
  *then = p.when;
  *thread = first_of(p);
  if (p.when == now && p.warp != warp) return true;
  if (p.when == now)
    for (uint32_t left = p.lanes & ~(1u << lane); left; left &= left - 1) {
      const unsigned l = (unsigned)__builtin_ctz(left);
      *thread = warp * 32 + l;
      if (all_met[warp] <= p.met && knows[warp][lane][l] <= p.met) return true;
    }
  if (p.when >= since && p.when < block && !is_acquired(p.when, *thread)) return true;
  *then = p.other_when;
  *thread = p.other;
  if (p.other_when == now) return p.other / 32u != warp;
  return p.other_when >= since && p.other_when < block && !is_acquired(p.other_when, p.other);
}

void join(party *p, uint32_t pc) {
  const uint32_t bit = 1u << lane;
  if (p->when == now && p->warp == warp) {
    p->lanes = p->met == met[warp] ? p->lanes | bit : bit;
  } else {
    if (p->when == now || (p->when >= since && p->when < block)) {
      p->other_when = p->when;
      p->other = (uint16_t)first_of(*p);
    }
    p->when = now;
    p->warp = (uint8_t)warp;
    p->lanes = bit;
  }
  p->met = met[warp];
  p->pc = pc;
}

/* Checks one access to one cell; false: an error was reported. */
bool touch(cell *c, const access &a) {
  span then;
  unsigned thread;
  party *wrote = &c->wrote;
  const bool is_coming = wrote->how == COMING && wrote->when >= block;
  const bool reads = a.how == access::READS, adds = a.how >= access::ADDS;
  const char *what = NULL;
  const party *with = wrote;
  if (is_coming && races_with(*wrote, &then, &thread)) what = "race with a copy in progress";
  else if (is_coming) what = "a copy was not awaited", then = wrote->when, thread = self;
  else if (!(adds && wrote->how == ATOMIC) && races_with(*wrote, &then, &thread)) what = "race";
  else if (!reads && races_with(c->read, &then, &thread)) what = "race", with = &c->read;
  if (what) tell(what, a, with, then, thread);
  if (reads) return join(&c->read, a.pc), !what;
  if (!adds || wrote->how != ATOMIC) *wrote = party();
  join(wrote, a.pc);
  wrote->how = adds ? ATOMIC : a.how == access::COPIES ? COMING : PLAIN;
  if (!adds) c->read = party();
  return !what;
}

/* A wide read may include unused padding: padding is less than half of a struct. */
void check_written(const access &a, size_t unwritten) {
  const bool reads = a.how == access::READS || a.how == access::ADDS;
  if (reads && unwritten * 2 >= a.n) tell("never written", a, NULL, 0, 0);
}

/* An access to the cells of its bytes; whole words have one cell until a smaller access needs more.
*/
void touch_all(const region &r, const access &a) {
  since = &r == &device ? launch : block;
  const size_t from = a.at - (uintptr_t)r.begin, to = from + a.n;
  bool good = true;
  size_t unwritten = 0;
  for (size_t w = from / 4; good && w <= (to - 1) / 4; w++) {
    cell *c = &r.words[w];
    const size_t low = w * 4 < from ? from : w * 4, high = w * 4 + 4 > to ? to : w * 4 + 4;
    if (c->fine < since && high - low == 4) {
      unwritten += c->wrote.when < block ? 4 : 0;
      good = touch(c, a);
      continue;
    }
    for (size_t i = 0; c->fine < since && i < 4; i++) r.bytes[w * 4 + i] = *c;
    c->fine = now;
    for (size_t i = low; good && i < high; i++) {
      unwritten += r.bytes[i].wrote.when < block;
      good = touch(&r.bytes[i], a);
    }
  }
  if (&r != &device) check_written(a, unwritten);
}

void check_states(const access &a) {
  const unsigned char *s = states + (a.at - (uintptr_t)device.begin);
  const bool reads = a.how == access::READS || a.how == access::ADDS;
  size_t outside = 0, unwritten = 0;
  for (size_t i = 0; i < a.n; i++) {
    outside += s[i] == NOBODYS;
    unwritten += s[i] == UNWRITTEN;
  }
  if (outside) tell("outside of all tensors", a, NULL, 0, 0);
  else check_written(a, unwritten);
  if (!reads && !outside) memset((void *)s, WRITTEN, a.n);
}

/* A call, by its return address. */
uint32_t pc_of(const void *where) {
  return (uint32_t)((uintptr_t)where - (uintptr_t)&__ehdr_start) - 1;
}

bool is_in(uintptr_t at, const void *begin, const void *end) {
  return at >= (uintptr_t)begin && at < (uintptr_t)end;
}

/* The built-in variables of threads are among the shared variables. */
bool is_place(uintptr_t at) {
  return is_in(at, &threadIdx, &threadIdx + 1) || is_in(at, &blockIdx, &blockIdx + 1) ||
         is_in(at, &blockDim, &blockDim + 1) || is_in(at, &gridDim, &gridDim + 1);
}

void look(const access &a, bool anywhere) {
  const pause none;
  if (is_in(a.at, device.begin, device.end)) {
    check_states(a);
    touch_all(device, a);
  } else if (is_in(a.at, dynamic.begin, dynamic.end)) {
    if (a.at + a.n > (uintptr_t)dynamic.end) tell("outside of shared memory", a, NULL, 0, 0);
    else touch_all(dynamic, a);
  } else if (is_in(a.at, fixed.begin, fixed.end)) {
    if (!is_place(a.at)) touch_all(fixed, a);
  } else if (!anywhere && !is_in(a.at, stack_begin, stack_end) &&
             !is_in(a.at, args_begin, args_end) && !is_in(a.at, &__ehdr_start, &_end) &&
             !moth_emulated_is_locked((const void *)a.at)) {
    tell("memory of the CPU", a, NULL, 0, 0);
  }
}

/* Kernels compiled at run time are not checked and may have written anywhere. A kernel that
** reported an error leaves results unwritten, and the error is raised before the results are read.
*/
void forget_unwritten() {
  for (const auto &tensor : used) {
    unsigned char *s = states + (tensor.first - (uintptr_t)device.begin);
    for (size_t i = 0; i < tensor.second; i++)
      if (s[i] == UNWRITTEN) s[i] = WRITTEN;
  }
}

template <class T> T *reserve(size_t n) {
  void *map = mmap(NULL, n * sizeof(T), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    fprintf(stderr, "watched CUDA: out of memory for the state of each byte\n");
    abort();
  }
  return (T *)map;
}

void watch_region(region *r, const void *at, size_t n, size_t most) {
  r->begin = (const char *)at;
  r->end = r->begin + n;
  if (r->words) return;
  r->words = reserve<cell>(most / 4 + 2);
  r->bytes = reserve<cell>(most + 8);
}

} // namespace

/* -- calls from the emulator -- */

void moth_watch_launch(const void *of, const void *args, size_t nargs) {
  kernel = of;
  args_begin = (const char *)args;
  args_end = args_begin + nargs;
  launch = ++now;
  blocks.clear();
  numbers.clear();
  releases.clear();
  if (has_reported || !is_in((uintptr_t)of, &__ehdr_start, &_end)) forget_unwritten();
  has_reported = false;
  if (!fixed.words) watch_region(&fixed, &__bss_start, (size_t)(&_end - &__bss_start),
                                 (size_t)(&_end - &__bss_start));
}

void moth_watch_block_begins(unsigned number, const void *shared, size_t nshared) {
  block = ++now;
  blocks.push_back(block);
  numbers.push_back(number);
  acquisitions.clear();
  watch_region(&dynamic, shared, nshared, (size_t)1 << 20);
}

void moth_watch_thread(int number, const char *stack, size_t nstack) {
  watching = number >= 0;
  self = (unsigned)number;
  warp = self / 32 % 32;
  lane = self % 32;
  stack_begin = stack;
  stack_end = stack + nstack;
}

void moth_watch_barrier(void) { now++; }

void moth_watch_place(unsigned one, const void *at, unsigned other, const void *there) {
  party with = party();
  if (at == there) return;
  self = one;
  with.pc = pc_of(there);
  tell("threads wait at different places", {0, 0, access::WAITS, pc_of(at)}, &with, now, other);
}

void moth_watch_meeting(unsigned w, unsigned lanes) {
  uint32_t known[32] = {0};
  const uint32_t meeting = ++met[w];
  if (lanes == 0xffffffffu) {
    all_met[w] = meeting;
    return;
  }
  for (unsigned i = 0; i < 32; i++)
    for (unsigned j = 0; lanes >> i & 1u && j < 32; j++) {
      const uint32_t k = lanes >> j & 1u ? meeting : knows[w][i][j];
      if (k > known[j]) known[j] = k;
    }
  for (unsigned i = 0; i < 32; i++)
    if (lanes >> i & 1u) memcpy(knows[w][i], known, sizeof known);
}

bool moth_watch_pause(bool pause) {
  const bool was = watching;
  watching = !pause;
  return was;
}

void moth_watch_copy_asked(const void *to, const void *from, size_t n, const void *where) {
  const uint32_t pc = pc_of(where);
  if (from) look({(uintptr_t)from, n, access::READS, pc}, true);
  look({(uintptr_t)to, n, access::COPIES, pc}, true);
}

/* The bytes written later are reported as for any other copy. */
void moth_watch_copy_comes(const void *to, size_t n) {
  region *r = is_in((uintptr_t)to, fixed.begin, fixed.end) ? &fixed : &dynamic;
  const size_t from = (size_t)((const char *)to - r->begin);
  for (size_t i = 0; i < n; i++) {
    cell *c = &r->words[(from + i) / 4];
    if (c->fine >= block) c = &r->bytes[from + i];
    if (c->wrote.how == COMING) c->wrote.how = PLAIN;
  }
}

void moth_watch_arena(const void *at, size_t n) {
  states = reserve<unsigned char>(n);
  watch_region(&device, at, n, n);
}

void moth_watch_memory(const void *at, size_t n, watch_state to) {
  memset(states + ((const char *)at - device.begin), to, n);
}

void moth_watch_used(const void *at, size_t n, size_t map) {
  moth_watch_memory(at, map, NOBODYS);
  moth_watch_memory(at, n, UNWRITTEN);
  if (n) used[(uintptr_t)at] = n;
}

/* A copy of a whole tensor may contain unwritten bytes; the target's bytes are then unwritten, too.
*/
void moth_watch_move(const void *to, const void *from, size_t n) {
  const void *const sides[] = {to, from};
  kernel = NULL;
  for (const void *side : sides) {
    if (!is_in((uintptr_t)side, device.begin, device.end)) continue;
    const unsigned char *s = states + ((const char *)side - device.begin);
    if (memchr(s, NOBODYS, n))
      tell("outside of all tensors",
           {(uintptr_t)side, n, side == to ? access::WRITES : access::READS, 0}, NULL, 0, 0);
  }
  if (!is_in((uintptr_t)to, device.begin, device.end)) return;
  if (is_in((uintptr_t)from, device.begin, device.end))
    memmove(states + ((const char *)to - device.begin),
            states + ((const char *)from - device.begin), n);
  else
    moth_watch_memory(to, n, WRITTEN);
}

/* -- calls from kernels -- */

#define HERE pc_of(__builtin_return_address(0))

void moth_watch_atomic(const void *at, size_t n, const void *where) {
  if (!watching) return;
  look({(uintptr_t)at, n, access::ADDS, pc_of(where)}, false);
  has_reported = has_reported || moth_emulated_is_locked(at); /* see launch.cuh */
  synchronize((uintptr_t)at);
}
void moth_watch_read(const void *at, size_t n) {
  if (watching) look({(uintptr_t)at, n, access::READS, HERE}, false);
}
void moth_watch_fence(void) {
  if (watching) fenced[self] = now;
}

#define SEEN(name, size)                                                                 \
  void __tsan_read##name(void *at) {                                                     \
    if (watching) look({(uintptr_t)at, size, access::READS, HERE}, false);               \
  }                                                                                      \
  void __tsan_write##name(void *at) {                                                    \
    if (watching) look({(uintptr_t)at, size, access::WRITES, HERE}, false);              \
  }                                                                                      \
  void __tsan_volatile_read##name(void *at) {                                            \
    if (watching) look({(uintptr_t)at, size, access::ADDS, HERE}, false);                \
  }                                                                                      \
  void __tsan_volatile_write##name(void *at) {                                           \
    if (watching) look({(uintptr_t)at, size, access::SETS, HERE}, false);                \
  }
extern "C" {
SEEN(1, 1)
SEEN(2, 2)
SEEN(4, 4)
SEEN(8, 8)
SEEN(16, 16)
void __tsan_read_range(void *at, long n) {
  if (watching && n) look({(uintptr_t)at, (size_t)n, access::READS, HERE}, false);
}
void __tsan_write_range(void *at, long n) {
  if (watching && n) look({(uintptr_t)at, (size_t)n, access::WRITES, HERE}, false);
}
void __tsan_init(void) {}

void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int value, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n) {
  if (watching && n) {
    look({(uintptr_t)from, n, access::READS, HERE}, true);
    look({(uintptr_t)to, n, access::WRITES, HERE}, true);
  }
  return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
  if (watching && n) {
    look({(uintptr_t)from, n, access::READS, HERE}, true);
    look({(uintptr_t)to, n, access::WRITES, HERE}, true);
  }
  return __real_memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
  if (watching && n) look({(uintptr_t)to, n, access::WRITES, HERE}, true);
  return __real_memset(to, value, n);
}
}

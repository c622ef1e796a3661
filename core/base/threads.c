/* threads.c -- a small thread pool for the whole process.
**
** A job is one 64-bit word: (its number, its number of threads, the pieces left). The caller and
** the workers take pieces by compare-and-swap. A count of finished pieces ends the job. A worker
** without work spins for about 50 us and then parks on a futex, so an idle process uses no
** processor. A spinning thread starts a job in 0.3 us, a parked one in 15 us. Parked workers are
** woken for one long job, or for many short jobs in a row. The first job that is long enough starts
** the threads. A forked child has no workers and starts its own.
**
** If the system has suspended a worker (another process uses its processor), the end of a job may
** be delayed by milliseconds. After such a delay, jobs run on the calling thread only, for a time
** that doubles with each further delay. So a busy machine costs little more than a single thread
** would.
*/
#include "threads.h"
#include "error.h"

#include "system.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define LINGER 50e3      /* ns that a worker spins before it parks */
#define WORTH_AWAKE 3e3  /* ns of work that justify sharing with a spinning worker */
#define WORTH_WAKING 6e4 /* ns of work that justify waking a worker */
#define LEAST_PIECE 1e3  /* ns; taking shorter pieces would cost more than they save */
#define SHORT_PIECE 5e4  /* ns; wanted for pieces if the time is limited: it ends between pieces */
#define FIRST_PIECE 1e4  /* ns; the first piece of such a job */
#define MOST_PIECE 1e6   /* ns; a cancel is checked between pieces */
#define PER_THREAD 4     /* pieces per thread: slower threads take fewer */
#define SUSPENDED_NS 1e5     /* ns to wait for the last piece before a worker counts as suspended */
#define LEAST_REST 2e6   /* ns without workers after that */
#define MOST_REST 1e8    /* the longest such time */
#define STACK ((size_t)1 << 20) /* bytes of a worker's stack */
#define PIECES_BITS 24   /* low bits of a job's word: pieces left */
#define LANES_BITS 8     /* bits above: threads; the rest is the job's number */
#define MAX_PIECES ((UINT32_C(1) << PIECES_BITS) - 1)

typedef struct job {
  moth_work *work;
  const void *arg;
  int64_t n, piece; /* items in all and in a piece */
  uint32_t pieces;
} job;

static struct {
  pthread_mutex_t busy; /* held while a job runs; a second job runs alone */
  job now;              /* stable while a taken piece is not finished */
  _Atomic uint64_t left; /* job number, number of threads, pieces not taken */
  _Atomic uint32_t done; /* pieces finished */
  _Atomic uint32_t wake; /* the futex: incremented to wake parked workers */
  atomic_int awake;      /* spinning workers */
  atomic_bool eager;     /* MOTH_SPLIT=1, for tests: every job is split and shared */
  int workers;           /* threads that were started */
  uint32_t number;       /* number of the last job */
  double rest_until, rest;
  double missed, last_missed; /* ns of work done alone with parked workers; when that work ended */
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER};

atomic_int moth_pool_lanes; /* 0: not decided yet */
_Thread_local bool moth_on_worker;
static _Thread_local moth_ctx *pausing;

moth_ctx *moth_pause_for(moth_ctx *ctx) {
  moth_ctx *old = pausing;
  pausing = ctx;
  return old;
}

/* Another thread may continue the slice: nothing here may be read after the poll. */
void moth_pause(void) {
  moth_ctx *ctx = pausing;
  if (ctx && ctx->slice_poll) ctx->slice_poll(ctx);
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static double now_ns(void) { return moth_seconds() * 1e9; }

/* -- how many -- */

/* Reads MOTH_NUM_THREADS or OMP_NUM_THREADS; by default the processors of this process. OpenMP's
** variable may be a list, one number for each level. A text that is no number does not count. */
static int default_lanes(void) {
  static const char *const names[] = {"MOTH_NUM_THREADS", "OMP_NUM_THREADS"};
  for (int i = 0; i < 2; i++) {
    const char *text = getenv(names[i]);
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : 0;
    if (end) end += strspn(end, " \t");
    if (n > 0 && (!*end || (i == 1 && *end == ',')))
      return n < MOTH_MAX_LANES ? (int)n : MOTH_MAX_LANES;
  }
  const int n = moth_processors();
  return n < 1 ? 1 : n < MOTH_MAX_LANES ? n : MOTH_MAX_LANES;
}

void moth_set_num_threads(int32_t n) {
  if (moth_on_worker) return;
  atomic_store(&moth_pool_lanes, n < 1 ? 1 : n < MOTH_MAX_LANES ? n : MOTH_MAX_LANES);
}

int32_t moth_get_num_threads(void) {
  int n = atomic_load_explicit(&moth_pool_lanes, memory_order_relaxed), undecided = 0;
  if (n) return moth_on_worker ? 1 : n;
  n = default_lanes();
  return atomic_compare_exchange_strong(&moth_pool_lanes, &undecided, n) ? n : undecided;
}

void moth_pool_ready(moth_ctx *ctx) {
  const char *split = getenv("MOTH_SPLIT");
  if (split && !strcmp(split, "1")) atomic_store(&pool.eager, true);
  ctx->lanes = moth_get_num_threads();
}

/* -- pieces -- */

static uint64_t word_of(uint32_t number, int lanes, uint32_t pieces) {
  return (uint64_t)number << 32 | (uint64_t)lanes << PIECES_BITS | pieces;
}

/* Does the job have a piece for this thread? */
static bool has(uint64_t left, int lane) {
  return (left & MAX_PIECES) && lane < (int)(left >> PIECES_BITS & ((1 << LANES_BITS) - 1));
}

/* Takes a piece of job `number`; 0: of any job. Returns false if none is left. pool.now may be read
** only between taking a piece and finishing it: it is stable then. */
static bool take(uint32_t number, int lane, uint32_t *piece) {
  uint64_t left = atomic_load_explicit(&pool.left, memory_order_acquire);
  while (has(left, lane) && (!number || left >> 32 == number))
    if (atomic_compare_exchange_weak_explicit(&pool.left, &left, left - 1, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *piece = (uint32_t)(left & MAX_PIECES) - 1;
      return true;
    }
  return false;
}

static void run_piece(uint32_t left, int lane) {
  const job *j = &pool.now;
  int64_t first = (int64_t)(j->pieces - 1 - left) * j->piece, last = first + j->piece;
  j->work(first, last < j->n ? last : j->n, lane, j->arg);
  atomic_fetch_add_explicit(&pool.done, 1, memory_order_release);
}

/* -- workers -- */

static void *worker(void *at) {
  int lane = (int)(intptr_t)at;
  uint32_t piece;
  for (;;) {
    uint32_t seen = atomic_load(&pool.wake);
    double until = now_ns() + LINGER;
    atomic_fetch_add(&pool.awake, 1);
    for (unsigned looks = 0;; looks++) {
      if (take(0, lane, &piece)) {
        run_piece(piece, lane);
        while (take(0, lane, &piece)) run_piece(piece, lane);
        until = now_ns() + LINGER;
      }
      relax();
      if (looks % 32 == 31 && now_ns() > until) break;
    }
    atomic_fetch_sub(&pool.awake, 1);
    if (has(atomic_load(&pool.left), lane)) continue;
    moth_word_wait(&pool.wake, seen);
  }
  return NULL;
}

atomic_uint moth_forks;

static void child_after_fork(void) {
  atomic_fetch_add(&moth_forks, 1);
  pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  pool.busy = fresh;
  pool.workers = 0;
  atomic_store(&pool.left, word_of(pool.number, 0, 0));
  atomic_store(&pool.awake, 0);
}

static void watch_forks(void) { moth_at_fork(NULL, NULL, child_after_fork); }

void moth_forks_watch(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
}

/* Starts the missing workers. Fewer than `lanes` - 1 may start. */
static void start(int lanes) {
  moth_forks_watch();
  for (; pool.workers < lanes - 1; pool.workers++)
    if (!moth_thread_start(worker, (void *)(intptr_t)(pool.workers + 1), STACK)) break;
}

/* -- jobs -- */

/* Waits for the pieces that workers have taken. A long wait means that a worker is suspended. */
static void finish(double piece_ns) {
  const job *j = &pool.now;
  double since = 0, now = 0;
  for (unsigned looks = 1; atomic_load_explicit(&pool.done, memory_order_acquire) < j->pieces;
       looks++) {
    relax();
    if (looks % 64) continue;
    now = now_ns();
    if (since == 0) since = now;
    if (now - since > LINGER) sched_yield();
  }
  if (since == 0 || now - since < SUSPENDED_NS + 3 * piece_ns) {
    pool.rest /= 2;
    return;
  }
  pool.rest = pool.rest * 2 < LEAST_REST ? LEAST_REST : pool.rest * 2;
  if (pool.rest > MOST_REST) pool.rest = MOST_REST;
  pool.rest_until = now + pool.rest;
}

static int alone(moth_ctx *ctx, const job *j) {
  for (int64_t first = 0; first < j->n; first += j->piece) {
    if (first && moth_cancelled(ctx)) return moth_stopped(ctx);
    j->work(first, j->n - first < j->piece ? j->n : first + j->piece, 0, j->arg);
  }
  return MOTH_OK;
}

static int together(moth_ctx *ctx, const job *j, int lanes, bool wake, double piece_ns) {
  uint32_t number = ++pool.number ? pool.number : ++pool.number, piece;
  pool.now = *j;
  atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
  atomic_store(&pool.left, word_of(number, lanes, j->pieces));
  if (wake) {
    atomic_fetch_add(&pool.wake, 1);
    moth_word_wake(&pool.wake);
  }
  bool cancelled = false;
  while (!cancelled && take(number, 0, &piece)) {
    run_piece(piece, 0);
    cancelled = moth_cancelled(ctx);
  }
  if (cancelled) { /* pieces that nobody took are not done */
    uint64_t left = atomic_exchange(&pool.left, word_of(number, 0, 0));
    atomic_fetch_add(&pool.done, (uint32_t)(left & MAX_PIECES));
  }
  finish(piece_ns);
  return cancelled ? moth_stopped(ctx) : MOTH_OK;
}

/* Items in a piece: a multiple of grain, near `ns` of work. */
static int64_t piece_of(int64_t n, int64_t grain, double cost, double ns) {
  double items = cost > 0 ? ns / cost : (double)n;
  int64_t grains = items < (double)n ? (int64_t)(items / (double)grain) : (n + grain - 1) / grain;
  return (grains > 0 ? grains : 1) * grain;
}

/* Runs a job in a slice of time or before a deadline. The length of a piece follows from the time
** that the last one took: an estimated cost can be wrong by a factor of ten, as it ignores the
** caches. */
static int in_time(moth_ctx *ctx, const job *j, int64_t grain, double cost) {
  int64_t piece = piece_of(j->n, grain, cost, FIRST_PIECE), last;
  for (int64_t first = 0; first < j->n; first = last) {
    if (first && moth_cancelled(ctx)) return moth_stopped(ctx);
    last = j->n - first < piece ? j->n : first + piece;
    const double start = now_ns();
    j->work(first, last, 0, j->arg);
    const double took = now_ns() - start + 1;
    piece = piece_of(j->n, grain, took / (double)(last - first), SHORT_PIECE);
  }
  return MOTH_OK;
}

/* Should workers take part in a job of `all` ns? Yes if they are awake or the job justifies
** waking. */
static bool worth(double all, bool eager) {
  if (eager) return true;
  bool awake = atomic_load_explicit(&pool.awake, memory_order_relaxed) > 0;
  if (awake && pool.rest_until == 0) return true;
  double now = now_ns();
  if (now < pool.rest_until) return false;
  pool.rest_until = 0;
  if (awake || all >= WORTH_WAKING) return true;
  if (now - pool.last_missed > LINGER) pool.missed = 0;
  pool.missed += all;
  pool.last_missed = now + all;
  return pool.missed >= WORTH_WAKING;
}

int moth_parallel(moth_ctx *ctx, int64_t n, int64_t grain, double cost, moth_work *work,
                  const void *arg) {
  double all = (double)n * cost;
  job j = {.work = work, .arg = arg, .n = n};
  if (n <= 0) return MOTH_OK;
  int lanes = moth_lanes(ctx);
  const bool eager = atomic_load_explicit(&pool.eager, memory_order_relaxed);
  /* A paused job would keep the pool busy, and a forked child would wait for its workers. */
  if (n <= grain || (all < WORTH_AWAKE && !eager) || moth_on_worker || ctx->slice) lanes = 1;
  if (lanes > 1 && pthread_mutex_trylock(&pool.busy)) lanes = 1;
  else if (lanes > 1 && !worth(all, eager)) {
    pthread_mutex_unlock(&pool.busy);
    lanes = 1;
  }
  if (lanes == 1) {
    if (ctx->slice || ctx->deadline > 0) return in_time(ctx, &j, grain, cost);
    j.piece = piece_of(n, grain, cost, MOST_PIECE);
    return alone(ctx, &j);
  }
  if (pool.workers < lanes - 1) start(lanes);
  double ns = all / (lanes * PER_THREAD);
  ns = ns < LEAST_PIECE ? LEAST_PIECE : ns > MOST_PIECE ? MOST_PIECE : ns;
  j.piece = eager ? (n / grain / 7 + 1) * grain : piece_of(n, grain, cost, ns);
  while (j.piece < n && (n - 1) / j.piece >= MAX_PIECES) j.piece *= 2;
  j.pieces = (uint32_t)((n + j.piece - 1) / j.piece);
  bool wake = atomic_load(&pool.awake) < (pool.workers < lanes - 1 ? pool.workers : lanes - 1);
  wake = wake && (all >= WORTH_WAKING || pool.missed >= WORTH_WAKING || eager);
  pool.missed = 0;
  int status = together(ctx, &j, lanes, wake, (double)j.piece * cost);
  pthread_mutex_unlock(&pool.busy);
  return status;
}

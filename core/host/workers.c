/* workers.c -- Lua states on their own threads, and the messages between them and the host.
**
** A message is a text, which Lua writes and reads, and the tokens of its tensors. The host sends
** tasks, the first free worker takes the next task, and the host waits for the answer with the
** number that it needs. The host limits the number of pending tasks.
**
** A handle owns a crew, the workers of one moth_workers_start; a sweep frees it. Then the crew is
** stopped: waiting workers end at once, workers in an op when it is cancelled, others when they ask
** for the next task. Only the end of the host's context and the end of the process wait for them,
** for a limited time. One lock guards all state. It is held briefly, and during a fork; the child
** has no workers.
*/
#include "workers.h"
#include "base/error.h"
#include "base/threads.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "call/observer.h"
#include "base/system.h"

#define END_SECONDS 2.0 /* seconds that an end waits for workers */
#define STACK_PAUSE 0.05 /* seconds until the system has freed a thread's stack */
#define POLL_SECONDS 0.02    /* seconds between two cancel checks of a waiting host */

/* moth_lua with the types of its functions. */
typedef struct lua_State lua_State;
typedef struct lua_functions {
  lua_State *(*newstate)(void);
  void (*openlibs)(lua_State *L);
  int (*cpcall)(lua_State *L, int (*f)(lua_State *L), void *argument);
  int (*loadbuffer)(lua_State *L, const char *text, size_t size, const char *name);
  int (*pcall)(lua_State *L, int nargs, int nresults, int handler);
  const char *(*tolstring)(lua_State *L, int index, size_t *size);
  void (*close)(lua_State *L);
} lua_functions;
_Static_assert(sizeof(lua_functions) == sizeof(moth_lua), "both are pointers in the same order");

typedef struct letter { /* a message; its text is stored after the tokens */
  struct letter *next;
  uint64_t number;
  size_t size;
  uint32_t ntokens;
  uint64_t tokens[];
} letter;

typedef struct queue {
  letter *first, *last;
} queue;

typedef struct worker {
  struct crew *crew;
  moth_ctx *ctx;   /* open on its thread, or NULL */
  letter *program, *held; /* held: the last message it received */
} worker;

typedef struct crew {
  struct crew *next; /* the list of crews with running threads */
  moth_ctx *host;    /* only compared: it may be freed */
  lua_functions lua;
  pthread_cond_t sent, answered;
  queue tasks, answers;
  letter *held;      /* the last message that the host received */
  uint64_t first;    /* answers with smaller numbers are dropped */
  uint32_t running;  /* running threads */
  uint32_t refs;     /* of the handle and of each thread */
  bool stopped;
  bool late;         /* a close has waited for the thread for the full time */
  char problem[960]; /* why a worker failed */
  pid_t process;
  uint32_t n;
  worker workers[];
} crew;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended; /* signaled when a thread ends */
static crew *crews;          /* crews with running threads */
static _Thread_local worker *here;

/* -- letters -- */

static letter *letter_new(const moth_message *m) {
  letter *l = malloc(sizeof *l + m->ntokens * sizeof *l->tokens + m->text.size + 1);
  if (!l) return NULL;
  *l = (letter){.number = m->number, .size = m->text.size, .ntokens = m->ntokens};
  if (m->ntokens) memcpy(l->tokens, m->tokens, m->ntokens * sizeof *l->tokens);
  if (m->text.size) memcpy(l->tokens + m->ntokens, m->text.at, m->text.size);
  return l;
}

static void letters_drop(letter *l) {
  for (letter *next; l; l = next) {
    next = l->next;
    for (uint32_t i = 0; i < l->ntokens; i++) moth_token_discard(l->tokens[i]);
    free(l);
  }
}

static void push(queue *q, letter *l) {
  l->next = NULL;
  if (q->first) q->last->next = l;
  else q->first = l;
  q->last = l;
}

/* Removes the letters whose number is at most this number, and returns them as a chain. */
static letter *cut(queue *q, uint64_t number, bool below) {
  letter *out = NULL, *last = NULL;
  for (letter **at = &q->first; *at;) {
    letter *l = *at;
    if (below ? l->number < number : l->number == number) {
      *at = l->next;
      l->next = out;
      out = l;
    } else {
      last = l;
      at = &l->next;
    }
  }
  q->last = last;
  return out;
}

static letter *pop(queue *q) {
  letter *l = q->first;
  if (!l) return NULL;
  q->first = l->next;
  l->next = NULL;
  return l;
}

static void show(moth_message *m, const letter *l) {
  *m = (moth_message){l->number, {(const char *)(l->tokens + l->ntokens), l->size}, l->tokens,
                      l->ntokens};
}

/* -- time -- */

static struct timespec after(double seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const long ns = t.tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9);
  t.tv_sec += (time_t)seconds + ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  return t;
}

static void cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
}

/* -- stopping -- */

/* Drops the programs of workers without a thread. Called without the lock, as for all letters: a
** deleter of the host may run. */
static void programs_drop(crew *c, uint32_t first) {
  for (uint32_t i = first; i < c->n; i++) letters_drop(c->workers[i].program);
}

static void unref(crew *c) {
  if (--c->refs) return;
  pthread_cond_destroy(&c->sent);
  pthread_cond_destroy(&c->answered);
  free(c);
}

/* Stops a crew. Returns its pending letters, which the caller drops without the lock. */
static letter *stop(crew *c) {
  c->stopped = true;
  for (uint32_t i = 0; i < c->n; i++)
    if (c->workers[i].ctx) moth_cancel(c->workers[i].ctx, 1);
  pthread_cond_broadcast(&c->sent);
  letter *l = cut(&c->tasks, UINT64_MAX, true), *m = cut(&c->answers, UINT64_MAX, true), **end = &l;
  while (*end) end = &(*end)->next;
  *end = m;
  return l;
}

/* The deleter of the handle. A forked child does not free a crew of its parent. */
static void drop(void *at) {
  crew *c = at;
  if (c->process != getpid()) return;
  pthread_mutex_lock(&lock);
  letter *l = stop(c), *held = c->held;
  c->held = NULL;
  unref(c);
  pthread_mutex_unlock(&lock);
  letters_drop(l);
  letters_drop(held);
}

/* Waits for the threads of a host's crews, or of all. Threads that run other code for longer end
** later, or with the process. */
static void wait_for(const moth_ctx *host) {
  const struct timespec until = after(END_SECONDS);
  bool late = false;
  pthread_mutex_lock(&lock);
  for (crew *c = crews; c;) {
    if ((host && c->host != host) || !c->stopped || c->late) {
      c = c->next;
      continue;
    }
    if (late) {
      c->late = true;
      continue;
    }
    late = pthread_cond_timedwait(&ended, &lock, &until) == ETIMEDOUT;
    c = crews; /* the list may have changed */
  }
  pthread_mutex_unlock(&lock);
}

/* The system frees the stack of a thread shortly after the thread has ended. */
static void pause_for_stacks(void) {
  const struct timespec until = after(STACK_PAUSE);
  pthread_mutex_lock(&lock);
  while (pthread_cond_timedwait(&ended, &lock, &until) == 0) {}
  pthread_mutex_unlock(&lock);
}

void moth_workers_close(moth_ctx *ctx) {
  if (here && here->ctx == ctx) {
    pthread_mutex_lock(&lock);
    here->ctx = NULL;
    pthread_mutex_unlock(&lock);
    return;
  }
  if (__atomic_load_n(&crews, __ATOMIC_ACQUIRE)) wait_for(ctx);
}

/* The process unloads libraries when it ends; threads that still used them would crash. */
static void at_exit(void) {
  letter *all = NULL;
  if (here || !__atomic_load_n(&crews, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&lock);
  for (crew *c = crews; c; c = c->next) {
    letter *l = stop(c), **end = &all;
    while (*end) end = &(*end)->next;
    *end = l;
  }
  pthread_mutex_unlock(&lock);
  letters_drop(all);
  wait_for(NULL);
}

static void before_fork(void) {
  pthread_mutex_lock(&lock);
  moth_token_lock();
}

static void after_fork(void) {
  moth_token_unlock();
  pthread_mutex_unlock(&lock);
}

static void child_after_fork(void) {
  crews = NULL;
  here = NULL;
  moth_on_worker = false;
  cond_init(&ended);
  after_fork();
}

static void once_in_a_process(void) {
  cond_init(&ended);
  moth_at_fork(before_fork, after_fork, child_after_fork);
  atexit(at_exit);
}

void moth_workers_can_fork(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, once_in_a_process);
}

/* -- a worker's thread -- */

void moth_workers_opened(moth_ctx *ctx) {
  if (!here) return;
  pthread_mutex_lock(&lock);
  here->ctx = ctx;
  if (here->crew->stopped) moth_cancel(ctx, 1);
  pthread_mutex_unlock(&lock);
}

static void fail(crew *c, const char *text, size_t size) {
  pthread_mutex_lock(&lock);
  if (!c->problem[0] && !c->stopped)
    snprintf(c->problem, sizeof c->problem, "%.*s", (int)(size < 900 ? size : 900), text);
  pthread_mutex_unlock(&lock);
}

static int open_libs(lua_State *L) {
  here->crew->lua.openlibs(L);
  return 0;
}

static void run(worker *w) {
  const lua_functions *lua = &w->crew->lua;
  const letter *program = w->program;
  lua_State *L = lua->newstate();
  if (!L) {
    fail(w->crew, "not enough memory for a Lua state", 33);
    return;
  }
  int status = lua->cpcall(L, open_libs, NULL);
  if (!status)
    status = lua->loadbuffer(L, (const char *)(program->tokens + program->ntokens), program->size,
                             "=[moth.worker]");
  if (!status) status = lua->pcall(L, 0, 0, 0);
  if (status) {
    size_t size = 0;
    const char *text = lua->tolstring(L, -1, &size);
    if (text && size) fail(w->crew, text, size);
    else fail(w->crew, "an error without a message", 26);
  }
  lua->close(L);
}

static void *thread(void *at) {
  worker *w = here = at;
  moth_on_worker = true;
  crew *c = w->crew;
  run(w);
  if (!here) return NULL; /* in a forked child, which has no crews */
  letters_drop(w->program);
  letters_drop(w->held);
  pthread_mutex_lock(&lock);
  if (--c->running == 0) { /* remove it from the list of crews */
    crew **in = &crews;
    while (*in != c) in = &(*in)->next;
    __atomic_store_n(in, c->next, __ATOMIC_RELEASE);
  }
  pthread_cond_broadcast(&c->answered);
  pthread_cond_broadcast(&ended);
  unref(c);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* -- starting -- */

static crew *crew_new(moth_ctx *ctx, const moth_lua *lua, const moth_message *programs,
                      uint32_t n) {
  crew *c = calloc(1, sizeof *c + n * sizeof *c->workers);
  if (!c) return NULL;
  c->host = ctx;
  c->process = getpid();
  c->refs = 1;
  c->n = n;
  memcpy(&c->lua, lua, sizeof c->lua);
  cond_init(&c->sent);
  cond_init(&c->answered);
  for (uint32_t i = 0; i < n; i++) {
    c->workers[i].crew = c;
    c->workers[i].program = letter_new(&programs[i]);
    if (c->workers[i].program) continue;
    programs_drop(c, 0);
    unref(c);
    return NULL;
  }
  return c;
}

/* Starts the threads. Returns false if some could not be started. */
static bool start(crew *c) {
  uint32_t started = 0;
  pthread_mutex_lock(&lock);
  while (started < c->n && moth_thread_start(thread, &c->workers[started], 0)) started++;
  c->running = started;
  c->refs += started;
  if (started) {
    c->next = crews;
    __atomic_store_n(&crews, c, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  programs_drop(c, started);
  return started == c->n;
}

int32_t moth_workers_start(moth_ctx *ctx, const moth_lua *lua, const moth_message *programs,
                           uint32_t n, moth_handle *out) {
  MOTH_NEED(ctx, lua && (programs || !n) && out, MOTH_E_ARG);
  moth_error_clear(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  if (MOTH_NOTICE(ctx, READ, .what = "workers are started")) return ctx->error.code;
  if (here)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a worker cannot have workers of its own");
  moth_workers_can_fork();
  crew *c = crew_new(ctx, lua, programs, n);
  if (!c) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory for %u workers", n);
  moth_tensor *x = moth_tensor_standing(ctx, c, drop);
  if (!x) {
    programs_drop(c, 0);
    drop(c);
    return ctx->error.code;
  }
  const bool all = start(c);
  const int status = moth_hand_out(ctx, x, out);
  if (all || status) return status;
  moth_free(ctx, out);
  wait_for(ctx);
  pause_for_stacks();
  return moth_fail(ctx, MOTH_E_MEM, NULL, "the system would not start %u more threads", n);
}

/* -- sending and receiving -- */

static crew *crew_of(moth_ctx *ctx, const moth_handle *workers) {
  moth_error_clear(ctx);
  if (!workers && here) return here->crew;
  const moth_tensor *x = moth_resolve(ctx, workers, NULL);
  if (!x) return NULL;
  if (x->storage->deleter != drop) {
    moth_fail(ctx, MOTH_E_TYPE, NULL, "a handle of workers is needed");
    return NULL;
  }
  crew *c = x->storage->owner;
  if (c->process == getpid()) return c;
  moth_fail(ctx, MOTH_E_STATE, NULL, "the workers are those of the process that this was forked "
            "from");
  return NULL;
}

int32_t moth_workers_send(moth_ctx *ctx, const moth_handle *workers, const moth_message *message,
                          uint64_t first) {
  MOTH_NEED(ctx, (workers || here) && message, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  crew *c = crew_of(ctx, workers);
  if (!c) return ctx->error.code;
  letter *l = letter_new(message), *old = NULL, *older = NULL;
  if (!l) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory for a message");
  pthread_mutex_lock(&lock);
  if (!workers) {
    const bool wanted = !c->stopped && l->number >= c->first;
    if (wanted) push(&c->answers, l);
    else old = l;
    pthread_cond_broadcast(&c->answered);
  } else {
    if (first > c->first) {
      c->first = first;
      old = cut(&c->tasks, first, true);
      older = cut(&c->answers, first, true);
    }
    push(&c->tasks, l);
    pthread_cond_signal(&c->sent);
  }
  pthread_mutex_unlock(&lock);
  letters_drop(old);
  letters_drop(older);
  return MOTH_OK;
}

static int32_t next_task(worker *w, moth_message *message) {
  crew *c = w->crew;
  letters_drop(w->held);
  pthread_mutex_lock(&lock);
  while (!c->stopped && !c->tasks.first) pthread_cond_wait(&c->sent, &lock);
  w->held = c->stopped ? NULL : pop(&c->tasks);
  pthread_mutex_unlock(&lock);
  if (!w->held) return 0;
  show(message, w->held);
  return 1;
}

/* Checks the answers. Returns 1, 0 or a status. */
static int32_t look(moth_ctx *ctx, crew *c, moth_message *message) {
  c->held = cut(&c->answers, message->number, false);
  if (c->held) {
    show(message, c->held);
    return 1;
  }
  if (c->problem[0]) return moth_fail(ctx, MOTH_E_STATE, NULL, "%s", c->problem);
  if (!c->running) return moth_fail(ctx, MOTH_E_STATE, NULL, "the workers have ended");
  return moth_poll(ctx);
}

int32_t moth_workers_receive(moth_ctx *ctx, const moth_handle *workers, double seconds,
                             moth_message *message) {
  MOTH_NEED(ctx, (workers || here) && message, MOTH_E_ARG);
  crew *c = crew_of(ctx, workers);
  if (!c) return ctx->error.code;
  if (!workers) return next_task(here, message);
  int32_t status = moth_poll(ctx);
  if (status) return status;
  letters_drop(c->held);
  c->held = NULL;
  const double begun = moth_seconds();
  pthread_mutex_lock(&lock);
  while ((status = look(ctx, c, message)) == 0) {
    double left = seconds < 0 ? POLL_SECONDS : begun + seconds - moth_seconds();
    if (left <= 0) break;
    const struct timespec until = after(left < POLL_SECONDS ? left : POLL_SECONDS);
    pthread_cond_timedwait(&c->answered, &lock, &until);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

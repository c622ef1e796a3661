/* notes.c -- what processes ask each other about messages that do not arrive.
**
** A process whose wait takes long asks the other members of the group how many messages they have
** started there. Each process answers at its next poll, with what it waits for. The error names the
** ranks that have not called, those that have ended, and those that do not answer.
*/
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/system.h"
#include "processes.h"
#include "vendor/mpi.h"

#define ANSWER_WITHIN 1.0 /* seconds to wait for answers */

enum { QUESTION = 1, ANSWER = 2 }; /* tags of notes */

enum { NOTE_SIZE = 3, NOTES = 64 };

/* Sent notes; a request of 0 is none. They outlive the context: MPI may still read them. */
static moth_note notes[NOTES];
static uint32_t next_note;

static void send_note(struct moth_processes *p, int to, int tag, int64_t index, int64_t started,
                      int64_t kind) {
  moth_note *n = &notes[next_note++ % NOTES];
  int done = 1, source;
  if (n->request && n->request != p->mpi->no_request) p->mpi->test(&n->request, &done, &source);
  if (!done) return; /* the receiver takes none */
  n->group = index;
  n->started = started;
  n->kind = kind;
  p->mpi->send(n, NOTE_SIZE, p->mpi->types[MOTH_I64], to, tag, p->monitor, &n->request);
}

/* Receives a note with this tag, if there is one. Returns its sender, or -1. */
static int take_note(struct moth_processes *p, int tag, moth_note *n) {
  int found = 0, source = -1, done = 0, ignored;
  if (p->mpi->probe(p->mpi->any_source, tag, p->monitor, &found, &source) || !found) return -1;
  if (p->mpi->receive(n, NOTE_SIZE, p->mpi->types[MOTH_I64], source, tag, p->monitor,
                      &n->request))
    return -1;
  while (!done)
    if (p->mpi->test(&n->request, &done, &ignored)) return -1;
  return source;
}

void moth_notes_answer(struct moth_processes *p) {
  moth_note n;
  if (!p->mpi) return;
  for (int from; (from = take_note(p, QUESTION, &n)) >= 0;) {
    const bool known = n.group >= 0 && n.group < p->ngroups && p->groups[n.group].used;
    send_note(p, from, ANSWER, n.group, known ? p->groups[n.group].started : -1, p->waits_for);
  }
}

/* Does a message wait for this rank of its group? */
static bool concerns(const moth_transfer *m, const moth_group *g, int rank) {
  return rank != g->rank && (m->x.kind < MOTH_TRANSFER_SEND || m->x.peer < 0 || m->x.peer == rank);
}

typedef struct answer {
  int64_t started; /* messages of the group; -1: there is no answer */
  int64_t kind;    /* of the call that waits, MOTH_LEAVING, or -1 */
} answer;

/* Has a rank with this answer called the function of the message? */
static bool has_called(const moth_transfer *m, const answer *a) {
  return a->started >= m->number || (moth_is_leaving(&m->x) && a->kind == MOTH_LEAVING);
}

/* Asks the ranks that the message waits for, and collects what they answer within a second. */
static void collect(moth_ctx *ctx, const moth_transfer *m, answer *answers) {
  struct moth_processes *p = ctx->processes;
  const moth_group *g = &p->groups[m->x.group];
  moth_note n;
  int open = 0;
  while (take_note(p, ANSWER, &n) >= 0) continue; /* late answers to earlier questions */
  for (int i = 0; i < g->n; i++) {
    answers[i] = (answer){concerns(m, g, i) ? -1 : INT64_MAX, -1};
    if (answers[i].started >= 0) continue;
    send_note(p, g->ranks[i], QUESTION, m->x.group, 0, 0);
    open++;
  }
  for (const double until = moth_seconds() + ANSWER_WITHIN;
       open > 0 && !m->done && moth_seconds() < until;) {
    const int from = take_note(p, ANSWER, &n);
    moth_notes_answer(p);
    moth_transfers_progress(ctx);
    for (int i = 0; from >= 0 && i < g->n; i++) {
      if (g->ranks[i] != from || n.group != m->x.group || answers[i].started >= 0) continue;
      answers[i] = (answer){n.started, n.kind};
      open--;
    }
    sched_yield();
  }
}

/* Adds what a rank has answered that has not called. Returns the new length of the text. */
static size_t add_answer(char *text, size_t size, size_t used, const moth_transfer *m, int rank,
                         const answer *a) {
  const bool waits = a->kind >= 0 && a->kind < MOTH_LEAVING;
  const char *lacking = m->x.kind == MOTH_TRANSFER_SEND ? "not received it"
                        : m->x.kind == MOTH_TRANSFER_RECV ? "sent no such message"
                        : "not called it";
  const char *where = waits ? "it waits in " : a->kind == MOTH_LEAVING ? "it has ended"
                      : "it is busy";
  if (used >= size) return used;
  const int n = a->started < 0
    ? snprintf(text + used, size - used, "; rank %d does not answer", rank)
    : snprintf(text + used, size - used, "; rank %d has %s (%s%s)", rank, lacking, where,
               waits ? moth_transfer_names[a->kind] : "");
  return used + (n > 0 ? (size_t)n : 0);
}

bool moth_transfer_missing(moth_ctx *ctx, const moth_transfer *m, char *text, size_t size) {
  const moth_group *g = &ctx->processes->groups[m->x.group];
  bool ended = false;
  size_t used = 0;
  int missing = 0;
  text[0] = 0;
  if (!ctx->processes->mpi) return false;
  answer *answers = calloc((size_t)g->n, sizeof *answers);
  if (!answers) return false;
  collect(ctx, m, answers);
  for (int i = 0; i < g->n; i++) {
    if (has_called(m, &answers[i])) continue;
    if (missing++ < 8) used = add_answer(text, size, used, m, g->ranks[i], &answers[i]);
    ended |= answers[i].started >= 0 && answers[i].kind == MOTH_LEAVING;
  }
  free(answers);
  return ended;
}

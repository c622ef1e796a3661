/* ctc_real.h -- the loops of ctc.c for one REAL and one TARGET: one sample.
**
** A target of S classes has L = 2 S + 1 states: blank, class, blank, ... A row holds, for each
** state, the logarithm of its probability after the steps so far, minus that of the most likely
** state, so that f32 stays accurate for any number of steps. The PAD elements on both sides are
** NONE, which means log 0.
*/
#define NONE ((REAL)-1e30)
#define PAD 2

TARGET INLINED REAL NAME(sum3)(REAL a, REAL b, REAL c) {
  const REAL ab = a > b ? a : b, m = ab > c ? ab : c;
  return m + MATH(log)(MATH(exp)(a - m) + MATH(exp)(b - m) + MATH(exp)(c - m));
}

TARGET static void NAME(clear)(int64_t n, REAL *row) {
  for (int64_t s = -PAD; s < n + PAD; s++) row[s] = NONE;
}

/* e := the log probabilities of the states' classes at step t. */
TARGET static void NAME(emit)(const job *j, const sample *of, int64_t t, REAL *restrict e) {
  const REAL *x = (const REAL *)j->c->log_probs + (t * j->c->samples + of->n) * j->c->classes;
  for (int64_t s = 0; s < of->states; s++) {
    const REAL v = x[of->label[s]];
    e[s] = v < NONE ? NONE : v;
  }
}

/* Subtracts the maximum from a row and returns it; returns 0 if no state is possible. */
TARGET static double NAME(subtract_maximum)(int64_t n, REAL *row) {
  REAL most = NONE;
  for (int64_t s = 0; s < n; s++) most = row[s] > most ? row[s] : most;
  if (!(most > NONE / 2)) return 0;
  for (int64_t s = 0; s < n; s++) row[s] -= most;
  return (double)most;
}

/* skip[s] is 0 if state s can follow state s - 2, else NONE. */
TARGET static void NAME(forward)(int64_t n, const REAL *p, const REAL *skip, const REAL *e,
                                 REAL *restrict row) {
  for (int64_t s = 0; s < n; s++)
    row[s] = NAME(sum3)(p[s], p[s - 1], p[s - 2] + skip[s]) + e[s];
}

TARGET static void NAME(backward)(int64_t n, const REAL *q, const REAL *skip, REAL *restrict row) {
  for (int64_t s = 0; s < n; s++)
    row[s] = NAME(sum3)(q[s], q[s + 1], q[s + 2] + skip[s + 2]);
}

/* Row t of the states. All rows are kept, or only the last two. */
TARGET INLINED REAL *NAME(row_of)(const sample *of, int64_t t) {
  return (REAL *)of->rows + (of->keeps ? t : t & 1) * of->wide + PAD;
}

TARGET static void NAME(layout)(const job *j, sample *of, int thread) {
  char *at = (char *)j->scratch + thread * j->each;
  of->wide = 2 * j->c->longest + 1 + 2 * PAD;
  of->label = (int64_t *)(void *)at;
  at += of->wide * 8;
  of->shift = (double *)(void *)at;
  at += (of->keeps ? j->c->steps : 2) * 8;
  of->skip = (REAL *)(void *)at + PAD;
  of->emits = (REAL *)of->skip + of->wide; /* backward_steps uses this row and the next two */
  of->rows = (REAL *)(void *)at + 4 * of->wide;
}

/* All steps forward. Returns the logarithm of the probability; NONE or less if the probability is
** 0. */
TARGET static double NAME(forward_steps)(const job *j, sample *of) {
  const int64_t n = of->states;
  REAL *skip = of->skip, *e = of->emits;
  double shift = 0;
  NAME(clear)(n, skip);
  for (int64_t s = 3; s < n; s += 2)
    if (of->label[s] != of->label[s - 2]) skip[s] = 0;
  for (int64_t t = 0; t < of->steps; t++) {
    REAL *row = NAME(row_of)(of, t);
    NAME(clear)(n, row);
    NAME(emit)(j, of, t, e);
    if (t == 0) {
      for (int64_t s = 0; s < 2 && s < n; s++) row[s] = e[s];
    } else {
      NAME(forward)(n, NAME(row_of)(of, t - 1), skip, e, row);
    }
    shift += NAME(subtract_maximum)(n, row);
    if (of->keeps) of->shift[t] = shift;
  }
  const REAL *last = NAME(row_of)(of, of->steps - 1);
  const double end = (double)NAME(sum3)(last[n - 1], last[n - 2], NONE);
  return end < (double)NONE / 2 ? (double)NONE : shift + end;
}

/* For large log probabilities, whose sum with `total` would round the states' differences away.
** Returns minus the maximum of row + behind, and divides *by by the sum of the shares. */
TARGET static REAL NAME(shares_apart)(int64_t n, const REAL *row, const REAL *behind, REAL *by) {
  REAL most = row[0] + behind[0], sum = 0;
  for (int64_t s = 1; s < n; s++) {
    const REAL v = row[s] + behind[s];
    most = v > most ? v : most;
  }
  for (int64_t s = 0; s < n; s++) sum += MATH(exp)(row[s] + behind[s] - most);
  *by /= sum;
  return -most;
}

/* All steps backward. Subtracts the share of each state, times `by`, from dx at the state's
** class. */
TARGET static void NAME(backward_steps)(const job *j, sample *of, double total, REAL by) {
  const int64_t n = of->states;
  REAL *e = of->emits, *q = e + of->wide, *behind = q + of->wide;
  const bool large = !(total > -1e8 && total < 1e8);
  double shift = 0;
  NAME(clear)(n, q);
  NAME(clear)(n, behind);
  behind[n - 1] = 0;
  if (n > 1) behind[n - 2] = 0;
  for (int64_t t = of->steps - 1; t >= 0; t--) {
    REAL *dx = (REAL *)j->y + (t * j->c->samples + of->n) * j->c->classes;
    const REAL *row = NAME(row_of)(of, t);
    REAL off = (REAL)(of->shift[t] + shift - total), each = by;
    if (large) off = NAME(shares_apart)(n, row, behind, &each);
    for (int64_t s = 0; s < n; s++) {
      const REAL share = row[s] + behind[s] + off; /* the share can exceed 1 by rounding only */
      q[s] = MATH(exp)(share > 0 ? 0 : share) * each;
    }
    for (int64_t s = 0; s < n; s++) dx[of->label[s]] -= q[s];
    if (t == 0) break;
    NAME(emit)(j, of, t, e);
    for (int64_t s = 0; s < n; s++) q[s] = behind[s] + e[s];
    NAME(backward)(n, q, of->skip, behind);
    shift += NAME(subtract_maximum)(n, behind);
  }
}

TARGET static void NAME(fill)(const job *j, int64_t n, int64_t from, int64_t to, REAL value) {
  const moth_ctc *c = j->c;
  for (int64_t t = from; t < to; t++) {
    REAL *dx = (REAL *)j->y + (t * c->samples + n) * c->classes;
    for (int64_t k = 0; k < c->classes; k++) dx[k] = value;
  }
}

TARGET static void NAME(samples)(int64_t first, int64_t last, int thread, const void *arg) {
  const job *j = arg;
  const moth_ctc *c = j->c;
  sample of = {.keeps = j->y != NULL};
  NAME(layout)(j, &of, thread);
  for (int64_t n = first; n < last; n++) {
    const int64_t *target = c->targets + n * c->longest;
    double total = c->targets_of[n] ? (double)NONE : 0;
    of.n = n, of.steps = c->steps_of[n], of.states = 2 * c->targets_of[n] + 1;
    for (int64_t s = 0; s < of.states; s++) of.label[s] = (s & 1) ? target[s >> 1] : c->blank;
    const REAL by = j->y ? ((const REAL *)j->dloss)[n] : 0;
    if (j->y) NAME(fill)(j, n, 0, c->steps, 0);
    if (j->y && by == 0) continue;
    if (of.steps) total = NAME(forward_steps)(j, &of);
    const bool none = total <= (double)NONE;
    if (!j->y) ((REAL *)j->loss)[n] = none ? (REAL)INFINITY : (REAL)-total;
    else if (none) NAME(fill)(j, n, 0, of.steps, (REAL)NAN);
    else if (of.steps) NAME(backward_steps)(j, &of, total, by);
  }
}

#undef NONE
#undef PAD

/* fused.cu -- several elementwise functions in one pass. The op's program becomes the source of two
** kernels: one whose threads copy up to 16 bytes at a time, and one for any strides. A program is
** compiled at its first use, once for each process and kind of device, and is cached in memory and
** on disk. */
#include "../../core/op/fused.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/expressions.cuh"
#include "host/jit.cuh"
#include "lib/strided.cuh"

enum {
  OPERANDS = FUSED_RESULTS + FUSED_INPUTS,
  VALUES = OPERANDS + FUSED_BETWEEN,
  SOURCE_SIZE = 1 << 16, /* maximal length of a source */
  HEAVY = 64      /* with this many function calls in one thread, threads get no further elements */
};

/* All that a kernel depends on: the program without its numeric arguments. */
typedef struct program {
  int device; /* compute capability: 10 * major + minor */
  int nin, nres, nvalues, nsteps;
  int dtype[VALUES];
  int step[FUSED_STEPS][FUSED_WORDS];
} program;

typedef struct jit_program {
  struct jit_program *next;
  uint64_t hash;
  program of;
  int each;         /* elements of a thread in the vector kernel */
  int status;       /* PENDING: being compiled */
  uint32_t loaded;  /* devices that have loaded it, as a bit mask */
  char why[480];          /* the error message, if compiling failed */
  const void *runs, *any; /* kernels */
} jit_program;

/* The op has checked the arguments. */
static void read_program(const fused_args *a, const moth_queue *q, program *p) {
  memset(p, 0, sizeof *p);
  p->device = 10 * q->major + q->minor;
  p->nin = (int)a->input.n;
  p->nres = (int)a->results;
  p->nvalues = p->nin + (int)a->dtypes.n;
  p->nsteps = (int)(a->steps.n / FUSED_WORDS);
  for (int i = 0; i < p->nvalues; i++) {
    const int64_t given = i < p->nin ? -1 : a->dtypes.at[i - p->nin];
    p->dtype[i] = given < 0 ? a->input.at[i < p->nin ? i : 0]->l.dtype : (int)given;
  }
  for (int i = 0; i < p->nsteps; i++)
    for (int k = 0; k < FUSED_WORDS; k++)
      p->step[i][k] = (int)a->steps.at[i * FUSED_WORDS + k];
  for (int i = 0; i < p->nsteps; i++)
    if (p->step[i][1] < 0) p->step[i][1] = p->dtype[0];
}

/* -- the source -- */

extern const moth_form_text *const __start_moth_forms[] MOTH_LOCAL;
extern const moth_form_text *const __stop_moth_forms[] MOTH_LOCAL;

typedef struct writer {
  char *at;
  size_t used;
  const char *form[FUSED_STEPS]; /* the texts of steps; NULL: not needed */
  enum work { ADDS, MULTIPLIES, CALLS } work[FUSED_STEPS];
  bool product[VALUES]; /* steps that do more than add */
} writer;

static const char *type_name(int dtype) {
  switch (dtype) {
    case MOTH_BOOL: return "bool8";
    case MOTH_U8: return "uint8_t";
    case MOTH_I8: return "int8_t";
    case MOTH_I16: return "int16_t";
    case MOTH_I32: return "int32_t";
    case MOTH_I64: return "int64_t";
    case MOTH_F16: return "f16";
    case MOTH_BF16: return "bf16";
    case MOTH_F32: return "float";
    default: return "double";
  }
}

static void __attribute__((format(printf, 2, 3))) say(writer *w, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsnprintf(w->at + w->used, SOURCE_SIZE - w->used, format, list);
  va_end(list);
  if (n > 0) w->used += (size_t)n;
  if (w->used >= SOURCE_SIZE) w->used = SOURCE_SIZE - 1; /* truncated; the caller checks for it */
}

static const char *form_of(const char *name) {
  for (const moth_form_text *const *at = __start_moth_forms; at < __stop_moth_forms; at++)
    if (!strcmp((*at)->name, name)) return (*at)->text;
  return NULL;
}

/* What the compiler could contract in an expression: products, and calls of functions with
** products. */
static enum writer::work work_of(const char *text) {
  enum writer::work most = writer::ADDS;
  for (const char *c = strchr(text, '(') + 1; *c; c++) {
    const bool call = *c == '(' && (isalnum((unsigned char)c[-1]) || c[-1] == '_');
    if (call && strncmp(c - 4, "WIDE", 4) != 0) return writer::CALLS;
    if (*c == '*' || *c == '/') most = writer::MULTIPLIES;
  }
  return most;
}

/* Writes the functions of the program, each once. */
static void say_forms(writer *w, const program *p) {
  for (int i = 0; i < p->nsteps; i++) {
    const int number = p->step[i][0];
    const char *name = number == FUSED_CONVERT ? NULL : moth_map_name(number);
    bool known = false;
    w->form[i] = name ? form_of(name) : NULL;
    w->work[i] = w->form[i] ? work_of(w->form[i]) : writer::ADDS;
    w->product[p->step[i][3]] = w->work[i] != writer::ADDS;
    for (int k = 0; k < i; k++) known = known || p->step[k][0] == number;
    if (w->form[i] && !known) say(w, "struct %s_form { %s };\n", name, w->form[i]);
  }
}

/* Elements that a thread copies at once: 16 bytes of the widest type, or fewer if that is too much
** work. */
static int each_of(const writer *w, const program *p) {
  int widest = 1, calls = 0;
  for (int i = 0; i < p->nin + p->nres; i++)
    if (moth_dtype_size[p->dtype[i]] > widest) widest = moth_dtype_size[p->dtype[i]];
  for (int i = 0; i < p->nsteps; i++) calls += w->work[i] == writer::CALLS;
  int each = 16 / widest;
  while (each > 1 && each * calls > HEAVY) each /= 2;
  return each;
}

/* Writes "float v3" or "float &v3": parameters and intermediate values. */
static void say_value(writer *w, const program *p, int v, const char *by) {
  say(w, "%s %sv%d", type_name(p->dtype[v]), by, v);
}

static void say_operand(writer *w, const program *p, int step, int v) {
  const bool apart = moth_is_float(p->dtype[v]) && (w->work[step] != writer::ADDS || w->product[v]);
  if (apart) say(w, "apart(v%d, t.zero[%d])", v, step);
  else say(w, "v%d", v);
}

static void say_step(writer *w, const program *p, int i) {
  const int *s = p->step[i], to = s[3];
  const char *name = s[0] == FUSED_CONVERT ? "convert" : moth_map_name(s[0]);
  say(w, "  ");
  if (to >= p->nin + p->nres) say(w, "const ");
  if (to >= p->nin + p->nres) say_value(w, p, to, "");
  else say(w, "v%d", to);
  if (w->form[i])
    say(w, " = step<%s_form, %s, %s>(t.numbers + %d, ", name, type_name(s[1]),
        type_name(p->dtype[to]), 3 * i);
  else say(w, " = %s<%s>(", s[0] == FUSED_CONVERT ? name : "choose", type_name(p->dtype[to]));
  for (int k = 1; k < s[2]; k++) {
    if (k > 1) say(w, ", ");
    say_operand(w, p, i, s[3 + k]);
  }
  say(w, ");\n");
}

static void say_element(writer *w, const program *p) {
  say(w, "\nstatic __device__ inline void element(const given &t");
  for (int v = 0; v < p->nin + p->nres; v++) {
    say(w, ", ");
    say_value(w, p, v, v < p->nin ? "" : "&");
  }
  say(w, ") {\n");
  for (int i = 0; i < p->nsteps; i++) say_step(w, p, i);
  say(w, "}\n");
}

/* The operands of a launch are its results, then its inputs. */
static int operand_of(const program *p, int v) { return v < p->nin ? p->nres + v : v - p->nin; }

static void say_runs(writer *w, const program *p, int each, int capacity) {
  const int outside = p->nin + p->nres;
  say(w,
      "\nMOTH_JIT_KERNEL(fused_runs) {\n"
      "  const int64_t first = thread_number() * %d, left = t.w.n - first;\n"
      "  if (left <= 0) return;\n  int64_t at[%d];\n  offsets(t.w, first, at);\n",
      each, capacity);
  for (int v = 0; v < outside; v++)
    if (v < p->nin)
      say(w, "  const vec<%s, %d> v%d = read_run<%s, %d>(t.w, %d, at[%d], left);\n",
          type_name(p->dtype[v]), each, v, type_name(p->dtype[v]), each, operand_of(p, v),
          operand_of(p, v));
    else say(w, "  vec<%s, %d> v%d;\n", type_name(p->dtype[v]), each, v);
  say(w, "#pragma unroll\n  for (int j = 0; j < %d; j++) element(t", each);
  for (int v = 0; v < outside; v++) say(w, ", v%d.at[j]", v);
  say(w, ");\n");
  for (int v = p->nin; v < outside; v++)
    say(w, "  write_run(t.w, %d, at[%d], left, v%d);\n", operand_of(p, v), operand_of(p, v), v);
  say(w, "}\n");
}

static void say_any(writer *w, const program *p, int capacity) {
  const int outside = p->nin + p->nres;
  say(w, "\nMOTH_JIT_KERNEL(fused_any) {\n  const int64_t i = thread_number();\n"
         "  if (i >= t.w.n) return;\n  int64_t at[%d];\n  offsets(t.w, i, at);\n", capacity);
  for (int v = p->nin; v < outside; v++) {
    say(w, "  ");
    say_value(w, p, v, "");
    say(w, ";\n");
  }
  say(w, "  element(t");
  for (int v = 0; v < p->nin; v++)
    say(w, ", read_one<%s>(t, %d, at)", type_name(p->dtype[v]), operand_of(p, v));
  for (int v = p->nin; v < outside; v++) say(w, ", v%d", v);
  say(w, ");\n");
  for (int v = p->nin; v < outside; v++)
    say(w, "  write_one(t, %d, at, v%d);\n", operand_of(p, v), v);
  say(w, "}\n");
}

/* The operand capacity of a launch: few kernel variants are enough. */
static int operand_capacity(const program *p) {
  const int n = p->nin + p->nres;
  return n <= 4 ? 4 : n <= 8 ? 8 : OPERANDS;
}

/* The caller calls free(); NULL: out of memory. */
static char *source_of(const program *p, int *each) {
  writer w = {};
  w.at = (char *)malloc(SOURCE_SIZE);
  if (!w.at) return NULL;
  say(&w, "\n/* -- fused: %d inputs, %d results -- */\n\n", p->nin, p->nres);
  say_forms(&w, p);
  *each = each_of(&w, p);
  say(&w, "typedef given_of<%d, %d> given;\n", operand_capacity(p), p->nsteps);
  say_element(&w, p);
  say_runs(&w, p, *each, operand_capacity(p));
  say_any(&w, p, operand_capacity(p));
  return w.at;
}

/* -- compiled programs -- */

enum { SHELVES = 256 };
static jit_program *shelf[SHELVES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash_program(const program *p) {
  uint64_t hash = 14695981039346656037u;
  const int n = p->nsteps * FUSED_WORDS, *steps = p->step[0];
  for (int i = 0; i < p->nvalues; i++) hash = (hash ^ (uint64_t)p->dtype[i]) * 1099511628211u;
  for (int i = 0; i < n; i++) hash = (hash ^ (uint64_t)(uint32_t)steps[i]) * 1099511628211u;
  return (hash ^ (uint64_t)p->device) ^ hash >> 29;
}

static int make(const moth_queue *q, jit_program *m) {
  static const char *const kernels[] = {"fused_runs", "fused_any"};
  const void *at[2] = {};
  char *source = source_of(&m->of, &m->each);
  if (!source) return MOTH_E_MEM;
  const int status = moth_jit_compile(q, source, kernels, 2, at, m->why, sizeof m->why);
  free(source);
  m->runs = at[0];
  m->any = at[1];
  return status;
}

enum { PENDING = 1 }; /* error statuses are negative */
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;

static jit_program *find_program(const program *p, uint64_t hash) {
  jit_program *m = shelf[hash % SHELVES];
  while (m && (m->hash != hash || memcmp(&m->of, p, sizeof *p) != 0)) m = m->next;
  return m;
}

/* Compiles without holding the lock, which the caller holds otherwise: only threads that need the
** same program wait. */
static jit_program *new_program(const moth_queue *q, const program *p, uint64_t hash) {
  jit_program *m = (jit_program *)calloc(1, sizeof *m), **at = &shelf[hash % SHELVES];
  if (!m) return NULL;
  m->hash = hash;
  m->of = *p;
  m->status = PENDING;
  m->next = *at;
  *at = m;
  pthread_mutex_unlock(&lock);
  const int status = make(q, m);
  pthread_mutex_lock(&lock);
  m->status = status;
  m->loaded = 1u << q->device;
  pthread_cond_broadcast(&news);
  if (status != MOTH_E_MEM) return m;
  while (*at != m) at = &(*at)->next; /* another thread may have added programs meanwhile */
  *at = m->next;
  free(m);
  return NULL;
}

/* Loads the program on a further device of the same kind; not while a graph is being captured. */
static cudaError_t load_there(const moth_queue *q, jit_program *m) {
  if (m->loaded >> q->device & 1u) return cudaSuccess;
  cudaError_t error = moth_jit_load(m->runs);
  if (!error) error = moth_jit_load(m->any);
  if (!error) m->loaded |= 1u << q->device;
  return error;
}

/* Compiles at the first call; NULL: error set. */
static const jit_program *jit_program_of(moth_ctx *ctx, const moth_queue *q, const fused_args *a) {
  program p;
  read_program(a, q, &p);
  const uint64_t hash = hash_program(&p);
  cudaError_t error = cudaSuccess;
  pthread_mutex_lock(&lock);
  jit_program *m;
  while ((m = find_program(&p, hash)) && m->status == PENDING) pthread_cond_wait(&news, &lock);
  if (!m) m = new_program(q, &p, hash);
  if (m && !m->status) error = load_there(q, m);
  pthread_mutex_unlock(&lock);
  if (!m) moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  else if (m->status) moth_fail(ctx, m->status, NULL, "%s", m->why);
  else if (error) moth_fail_cuda(ctx, "a kernel compiled at run time cannot be loaded", error);
  return m && !m->status && !error ? m : NULL;
}

/* -- launching -- */

template <int N> struct given { /* as given_of in fused_steps.cuh: unused fields are zero */
  strided<N> w;
  uint64_t numbers[4 * FUSED_STEPS];
};

static void fill_numbers(const fused_args *a, const program *p, uint64_t *to) {
  for (int i = 0; a->numbers.at && i < p->nsteps; i++) {
    const int dtype = moth_compute_dtype(p->step[i][1]);
    moth_convert(3, MOTH_F64, (const char *)(a->numbers.at + 3 * i), 8, dtype,
                 (char *)(to + 3 * i), moth_dtype_size[dtype]);
  }
}

template <int N>
static int run(const fused_args *a, const moth_queue *q, const jit_program *m, moth_tensor **out) {
  const program *p = &m->of;
  const moth_tensor *operands[N];
  given<N> t = {};
  int sizes[N];
  for (int k = 0; k < N; k++) { /* operands beyond the last are never read */
    const int v = k - p->nres;
    operands[k] = k < p->nres ? out[k] : v < p->nin ? a->input.at[v] : out[0];
    sizes[k] = moth_dtype_size[operands[k]->l.dtype];
  }
  strided_over<N>(&t.w, a->ctx, operands);
  fill_numbers(a, p, t.numbers);
  const bool packs = strided_packs(t.w, sizes, p->nres, m->each);
  void *at[] = {&t};
  const moth_kernel_call call = {packs ? m->runs : m->any, blocks_for(t.w.n, packs ? m->each : 1),
                                 dim3(BLOCK), 0, at, false};
  return moth_launch(a->ctx, q, &call);
}

MOTH_CUDA(fused) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  const jit_program *m = q ? jit_program_of(a->ctx, q, a) : NULL;
  if (!m) return moth_status(a->ctx);
  switch (operand_capacity(&m->of)) {
    case 4: return run<4>(a, q, m, out);
    case 8: return run<8>(a, q, m, out);
    default: return run<OPERANDS>(a, q, m, out);
  }
}

/* core/op/fused.c calls it: compiles the kernels before a graph that launches them is captured. */
static int fused_ready(const void *args, moth_tensor **) {
  const fused_args *a = (const fused_args *)args;
  int device = 0;
  for (int i = 0; i < a->input.n; i++)
    if (a->input.at[i]->l.device) device = a->input.at[i]->l.device;
  const moth_queue *q = moth_queue_of(a->ctx, device);
  return q && jit_program_of(a->ctx, q, a) ? MOTH_OK : moth_status(a->ctx);
}
MOTH_ENTRY(fused_ready_row, {"fused_ready", fused_ready, NULL})

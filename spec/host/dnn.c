/* dnn.c -- what stands for cuDNN's graph interface in specs: it holds every attribute to its type,
** names engines with notes, and computes convolutions of float32 and float64 on the CPU.
**
** Built as a shared library by spec/cuda_libraries_spec.lua and opened through MOTH_CUDNN. At its
** end it says on standard output what was asked of it. DNN_REFUSES: so many plans do not run.
*/
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAD = 2000, UNSUPPORTED = 3000, MOST = 12, ENGINES = 3 };
enum { IS_INT64 = 3, IS_DESCRIPTOR = 15, NOTE_TENSOR_CORES = 0, NOTE_NOT_REPEATABLE = 4 };
enum { KIND_CONFIG = 3, KIND_PLAN = 5, KIND_FORWARD = 10, KIND_FILTERS = 11, KIND_IMAGES = 12 };

typedef struct attribute {
  int name, n;
  union {
    int64_t number[4];
    void *pointer[4];
    double wide;
    float narrow;
    int whole;
  } to;
} attribute;

typedef struct descriptor {
  int kind, final, engine, count;
  struct descriptor *graph; /* of a configuration */
  attribute set[MOST];
} descriptor;

static struct { int name, type; } types[] = {
  {0, 14}, {1, 1}, {100, 1}, {101, 7}, {102, 3}, {103, 3}, {104, 3}, {105, 3}, {106, 3},
  {200, 8}, {201, 15}, {400, 0}, {401, 15}, {702, 15}, {703, 15}, {704, 15}, {705, 15},
  {708, 15}, {709, 15}, {710, 15}, {711, 15}, {714, 15}, {715, 15}, {716, 15}, {717, 15},
  {750, 15}, {751, 15}, {752, 15}, {753, 15}, {800, 0}, {801, 15}, {900, 3}, {901, 1}, {902, 3},
  {903, 3}, {906, 3}, {907, 2}, {1000, 3}, {1001, 6}, {1003, 6},
};
static const int sizes[16] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8};
static int runs, plans, left, refuses, ran[ENGINES];
static char handle;

static void say(void) {
  printf("runs=%d plans=%d left=%d engines=%d,%d,%d\n", runs, plans, left, ran[0], ran[1], ran[2]);
}

static void wrong(const char *what, int number) {
  printf("WRONG: %s (%d)\n", what, number);
  fflush(stdout);
  _exit(1);
}

static attribute *of(descriptor *d, int name) {
  for (int i = 0; d && i < d->count; i++)
    if (d->set[i].name == name) return &d->set[i];
  wrong("an attribute is missing", name);
  return NULL;
}

static int64_t number(descriptor *d, int name) { return of(d, name)->to.number[0]; }
static descriptor *linked(descriptor *d, int name) { return of(d, name)->to.pointer[0]; }

/* -- the interface -- */

int cudnnCreate(void **to) {
  const char *text = getenv("DNN_REFUSES");
  refuses = text ? atoi(text) : 0;
  atexit(say);
  *to = &handle;
  return 0;
}

size_t cudnnGetVersion(void) { return 91234; }
int cudnnDestroy(void *h) { return h == &handle ? 0 : BAD; }
int cudnnSetStream(void *h, void *stream) { return h == &handle && stream ? 0 : BAD; }

int cudnnBackendCreateDescriptor(int kind, void **to) {
  descriptor *d = calloc(1, sizeof *d);
  d->kind = kind;
  left++;
  *to = d;
  return 0;
}

int cudnnBackendDestroyDescriptor(void *d) {
  left--;
  free(d);
  return 0;
}

int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t n, const void *values) {
  descriptor *d = desc;
  int known = (name >= 700 && name <= 713 && (name - 700) % 6 < 2); /* factors, of two types */
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].name == name) known = types[i].type == type;
  if (!known || d->final || d->count == MOST || n < 1 || n > 4) wrong("an attribute's type", name);
  attribute *a = &d->set[d->count++];
  a->name = name;
  a->n = (int)n;
  memcpy(&a->to, values, (size_t)(sizes[type] * n));
  for (int i = 0; type == IS_DESCRIPTOR && i < n; i++)
    if (!((descriptor *)a->to.pointer[i])->final) wrong("a descriptor is not final", name);
  return 0;
}

int cudnnBackendFinalize(void *desc) {
  descriptor *d = desc;
  d->final = 1;
  plans += d->kind == KIND_PLAN;
  return 0;
}

/* Mode A names three engines, the first of which does not repeat itself and the second of which
** has tensor cores; the other mode names the third. */
int cudnnBackendGetAttribute(void *desc, int name, int type, int64_t most, int64_t *n, void *to) {
  descriptor *d = desc, **list = to;
  if (name == 202 && type == IS_DESCRIPTOR) {
    const int first = of(d, 200)->to.whole == 3 ? 0 : ENGINES - 1;
    for (*n = 0; *n < most && first + *n < ENGINES; ++*n) {
      list[*n]->engine = first + (int)*n;
      list[*n]->graph = linked(d, 201);
      list[*n]->final = 1;
    }
  } else if (name == 300 && type == IS_DESCRIPTOR) {
    list[0]->engine = d->engine;
    list[0]->final = 1;
    *n = 1;
  } else if (name == 1303 && type == 11) {
    *(int *)to = d->engine == 0 ? NOTE_NOT_REPEATABLE : NOTE_TENSOR_CORES;
    *n = d->engine < 2;
  } else if (name == 402 && type == IS_INT64) {
    *(int64_t *)to = 4096;
    *n = 1;
  } else wrong("an unknown attribute is asked for", name);
  return 0;
}

/* -- convolution -- */

typedef struct tensor {
  double *at;
  int64_t shape[4], step[4], n;
  int type;
  off_t there;
} tensor;

static int memory(void) {
  static int file = -1;
  if (file < 0) file = open("/proc/self/mem", O_RDWR);
  return file;
}

static void move(tensor *t, int out) {
  const size_t size = t->type ? 8 : 4;
  char *bytes = malloc((size_t)t->n * size);
  for (int64_t i = 0; out && i < t->n; i++)
    if (t->type) ((double *)(void *)bytes)[i] = t->at[i];
    else ((float *)(void *)bytes)[i] = (float)t->at[i];
  const ssize_t all = (ssize_t)((size_t)t->n * size);
  if ((out ? pwrite(memory(), bytes, (size_t)all, t->there)
           : pread(memory(), bytes, (size_t)all, t->there)) != all)
    wrong("a tensor does not lie on the device", 0);
  for (int64_t i = 0; !out && i < t->n; i++)
    t->at[i] = t->type ? ((double *)(void *)bytes)[i] : ((float *)(void *)bytes)[i];
  free(bytes);
}

static tensor load(descriptor *d, descriptor *variant) {
  tensor t = {.type = of(d, 901)->to.whole, .n = 1};
  attribute *names = of(variant, 1000);
  int i = 0;
  while (i < names->n && names->to.number[i] != number(d, 906)) i++;
  if (i == names->n) wrong("a tensor has no address", (int)number(d, 906));
  t.there = (off_t)of(variant, 1001)->to.number[i];
  if (t.there % number(d, 900)) wrong("a tensor is not aligned as said", i);
  memcpy(t.shape, of(d, 902)->to.number, sizeof t.shape);
  memcpy(t.step, of(d, 903)->to.number, sizeof t.step);
  for (int k = 0; k < 4; k++) t.n *= t.shape[k];
  t.at = malloc((size_t)t.n * sizeof(double));
  move(&t, 0);
  return t;
}

static int64_t place(const tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return a * t->step[0] + b * t->step[1] + c * t->step[2] + d * t->step[3];
}

static void taps(int kind, const tensor *x, const tensor *w, const tensor *y, const int64_t *at,
                 const int64_t *corner, const int64_t *dilation) {
  const int64_t group = at[1] / (w->shape[0] / (x->shape[1] / w->shape[1]));
  const int64_t to = place(y, at[0], at[1], at[2], at[3]);
  for (int64_t c = 0; c < w->shape[1]; c++)
    for (int64_t i = 0; i < w->shape[2] * w->shape[3]; i++) {
      const int64_t r = i / w->shape[3], s = i % w->shape[3];
      const int64_t h = corner[0] + r * dilation[0], v = corner[1] + s * dilation[1];
      if (h < 0 || v < 0 || h >= x->shape[2] || v >= x->shape[3]) continue;
      double *px = x->at + place(x, at[0], group * w->shape[1] + c, h, v);
      double *pw = w->at + place(w, at[1], c, r, s);
      if (kind == KIND_FORWARD) y->at[to] += *px * *pw;
      else if (kind == KIND_IMAGES) *px += y->at[to] * *pw;
      else *pw += y->at[to] * *px;
    }
}

int cudnnBackendExecute(void *h, void *plan, void *variant) {
  descriptor *config = linked(plan, 401), *operation = linked(config->graph, 801);
  attribute *all = of(config->graph, 801);
  const int kind = operation->kind, of_images = kind == KIND_IMAGES ? 706 : 712;
  const int base = kind == KIND_FORWARD ? 700 : of_images;
  descriptor *how = linked(operation, base + 2), *then = all->n > 1 ? all->to.pointer[1] : NULL;
  if (h != &handle || config->kind != KIND_CONFIG || !number(variant, 1003)) return BAD;
  if (refuses > 0) return refuses--, UNSUPPORTED;
  if (then && (linked(operation, base + 5) != linked(then, 751) || !of(linked(then, 751), 907)->n))
    wrong("the bias is added to something else", 751);
  tensor w = load(linked(operation, base + 3), variant);
  tensor x = load(linked(operation, base + 4), variant);
  tensor y = load(then ? linked(then, 753) : linked(operation, base + 5), variant);
  tensor b = then ? load(linked(then, 752), variant) : (tensor){0};
  tensor *to = kind == KIND_FORWARD ? &y : kind == KIND_IMAGES ? &x : &w;
  const int64_t *padding = of(how, 105)->to.number, *stride = of(how, 103)->to.number;
  int64_t at[4];
  memset(to->at, 0, (size_t)to->n * sizeof(double));
  for (int64_t i = 0; i < y.n; i++) {
    at[3] = i % y.shape[3], at[2] = i / y.shape[3] % y.shape[2];
    at[1] = i / (y.shape[2] * y.shape[3]) % y.shape[1];
    at[0] = i / (y.shape[1] * y.shape[2] * y.shape[3]);
    const int64_t corner[2] = {at[2] * stride[0] - padding[0], at[3] * stride[1] - padding[1]};
    taps(kind, &x, &w, &y, at, corner, of(how, 102)->to.number);
    if (then) y.at[place(&y, at[0], at[1], at[2], at[3])] += b.at[at[1]];
  }
  move(to, 1);
  free(w.at), free(x.at), free(y.at), free(b.at);
  runs++;
  ran[config->engine]++;
  return 0;
}

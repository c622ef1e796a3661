/* dnn.c -- a mock of cuDNN's graph interface for specs: it checks the type of every attribute,
** offers engines with notes, and computes on the CPU: convolutions of float32 and float64, and the
** graphs that cuDNN's fused attention accepts, step by step.
**
** spec/cuda/libraries_spec.lua builds it as a shared library, and MOTH_CUDNN opens it. At exit it
** prints the numbers of its calls. DNN_REFUSES: this many plans fail.
** DNN_VERSION: the version that it returns.
*/
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAD = 2000, UNSUPPORTED = 3000, MOST = 12, ENGINES = 3, LONGEST = 32 };
enum { IS_INT64 = 3, IS_DESCRIPTOR = 15, NOTE_TENSOR_CORES = 0, NOTE_NOT_REPEATABLE = 4 };
enum { KIND_CONFIG = 3, KIND_PLAN = 5, KIND_FORWARD = 10, KIND_FILTERS = 11, KIND_IMAGES = 12 };

typedef struct attribute {
  int name, n;
  union {
    int64_t number[LONGEST];
    void *pointer[LONGEST];
    double wide;
    float narrow;
    int whole;
  } to;
} attribute;

typedef struct descriptor {
  int kind, final, engine, count;
  struct descriptor *graph; /* of an engine configuration */
  attribute set[MOST];
} descriptor;

static struct { int name, type; } types[] = {
  {0, 14}, {1, 1}, {100, 1}, {101, 7}, {102, 3}, {103, 3}, {104, 3}, {105, 3}, {106, 3},
  {200, 8}, {201, 15}, {400, 0}, {401, 15}, {702, 15}, {703, 15}, {704, 15}, {705, 15},
  {708, 15}, {709, 15}, {710, 15}, {711, 15}, {714, 15}, {715, 15}, {716, 15}, {717, 15},
  {750, 15}, {751, 15}, {752, 15}, {753, 15}, {800, 0}, {801, 15}, {900, 3}, {901, 1}, {902, 3},
  {903, 3}, {906, 3}, {907, 2}, {1000, 3}, {1001, 6}, {1003, 6},
  {9, 3}, {758, 15}, {908, 2}, {1500, 1}, {1520, 15}, {1521, 15}, {1522, 15}, {1523, 15},
  {1600, 18}, {1601, 1}, {1610, 15}, {1611, 15}, {1612, 15}, {2200, 15}, {2201, 15},
};
static const int sizes[19] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 0, 0, 4};
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

static attribute *maybe(descriptor *d, int name) {
  for (int i = 0; d && i < d->count; i++)
    if (d->set[i].name == name) return &d->set[i];
  return NULL;
}

static attribute *of(descriptor *d, int name) {
  attribute *a = maybe(d, name);
  if (!a) wrong("an attribute is missing", name);
  return a;
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

size_t cudnnGetVersion(void) {
  const char *text = getenv("DNN_VERSION");
  return text ? (size_t)atoi(text) : 91934;
}

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
  if (!known || d->final || d->count == MOST || n < 1 || n > LONGEST)
    wrong("an attribute's type", name);
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

/* Heuristic mode A returns three engines: the first is not deterministic, the second has tensor
** cores. The other mode returns the third. */
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

/* -- graphs, step by step -- */

enum { HALF = 2, BFLOAT16 = 9, KIND_POINTWISE = 13, KIND_MATRICES = 19, KIND_REDUCTION = 22,
       KIND_RESHAPE = 31 };

static struct value {
  descriptor *of;
  double *at;
} known[80];
static int nknown;

static const int64_t *shape(descriptor *t) { return of(t, 902)->to.number; }
static int is_set(descriptor *t, int name) {
  return maybe(t, name) && (maybe(t, name)->to.whole & 0xff);
}

static int64_t count(descriptor *t) {
  const int64_t *s = shape(t);
  return s[0] * s[1] * s[2] * s[3];
}

static double as_type(double x, int type) {
  float f = (float)x;
  uint32_t bits;
  if (type == HALF) return (double)(_Float16)f;
  if (type != BFLOAT16) return type == 0 ? f : x;
  memcpy(&bits, &f, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* Copies a tensor from or to the device, with any strides. */
static void carry(descriptor *t, descriptor *variant, double *at, int out) {
  const int64_t *n = shape(t), *step = of(t, 903)->to.number;
  const int type = of(t, 901)->to.whole, size = type ? 2 : 4;
  attribute *names = of(variant, 1000);
  int64_t span = 1;
  int i = 0;
  while (i < names->n && names->to.number[i] != number(t, 906)) i++;
  if (i == names->n) wrong("a tensor has no address", (int)number(t, 906));
  const int64_t there = of(variant, 1001)->to.number[i];
  if (is_set(t, 908)) { /* a number, on the CPU */
    *at = *(float *)(uintptr_t)there;
    return;
  }
  if (there % number(t, 900) || (type && type != HALF && type != BFLOAT16))
    wrong("a tensor is not as said", i);
  for (int d = 0; d < 4; d++) span += (n[d] - 1) * step[d];
  char *bytes = malloc((size_t)(span * size));
  if (pread(memory(), bytes, (size_t)(span * size), (off_t)there) != span * size)
    wrong("a tensor does not lie on the device", i);
  for (int64_t k = 0; k < count(t); k++) {
    const int64_t a = k / (n[1] * n[2] * n[3]), b = k / (n[2] * n[3]) % n[1];
    char *here = bytes + (a * step[0] + b * step[1] + k / n[3] % n[2] * step[2] +
                          k % n[3] * step[3]) * size;
    float f = (float)at[k];
    _Float16 h = (_Float16)f;
    uint32_t bits = 0;
    memcpy(&bits, &f, 4);
    bits >>= 16;
    void *const one = type == HALF ? (void *)&h : type ? (void *)&bits : (void *)&f;
    memcpy(out ? here : one, out ? one : here, (size_t)size);
    if (out) continue;
    bits <<= 16;
    if (type == BFLOAT16) memcpy(&f, &bits, 4);
    at[k] = type == HALF ? (double)h : (double)f;
  }
  if (out && pwrite(memory(), bytes, (size_t)(span * size), (off_t)there) != span * size)
    wrong("a tensor does not lie on the device", i);
  free(bytes);
}

static double *added(descriptor *t) {
  for (int i = 0; i < nknown; i++)
    if (number(known[i].of, 906) == number(t, 906)) wrong("a name is used twice", 906);
  if (nknown == 80) wrong("too many tensors", nknown);
  known[nknown].of = t;
  return known[nknown++].at = calloc((size_t)count(t), sizeof(double));
}

static double *value_of(descriptor *t, descriptor *variant) {
  for (int i = 0; i < nknown; i++)
    if (known[i].of == t) return known[i].at;
  if (is_set(t, 907)) wrong("a tensor is read before it is computed", (int)number(t, 906));
  double *at = added(t);
  carry(t, variant, at, 0);
  return at;
}

static void keep(descriptor *t, descriptor *variant) {
  double *at = value_of(t, variant);
  for (int64_t i = 0; i < count(t); i++) at[i] = as_type(at[i], of(t, 901)->to.whole);
  if (!is_set(t, 907)) carry(t, variant, at, 1);
}

/* The index in a tensor of shape m for element i of a tensor of shape n. A size of m may be 1 or,
** for heads, a divisor. */
static int64_t spread(int64_t i, const int64_t *n, const int64_t *m) {
  int64_t at = 0, step = 1;
  for (int d = 3; d >= 0; d--) {
    at += i % n[d] / (n[d] / m[d]) * step;
    i /= n[d];
    step *= m[d];
  }
  return at;
}

static double pointwise(int mode, double x, double b, int64_t position, double where) {
  switch (mode) {
    case 0: return x + b;
    case 1: return x * b;
    case 6: return x / b;
    case 9: return x - b;
    case 13: return exp(x);
    case 15: return log(x);
    case 21: return x;
    case 303: return x >= b;
    case 501: return (double)position;
    case 601: return where != 0 ? x : b;
    default: wrong("an unknown mode", mode);
  }
  return 0;
}

static char run_pointwise(descriptor *o, descriptor *variant) {
  static const struct { int mode; char letter; } letters[] = {
    {0, 'a'}, {1, '*'}, {6, '/'}, {9, '-'}, {13, 'e'}, {15, 'l'}, {21, '='}, {303, 'g'},
    {501, 'i'}, {601, 's'},
  };
  descriptor *x = linked(o, 751), *y = linked(o, 753), *how = linked(o, 750);
  descriptor *b = maybe(o, 752) ? linked(o, 752) : NULL, *w = maybe(o, 758) ? linked(o, 758) : NULL;
  const int mode = of(how, 0)->to.whole, wanted = mode == 303 ? 11 : 0;
  const double *px = value_of(x, variant), *pb = b ? value_of(b, variant) : px;
  const double *pw = w ? value_of(w, variant) : px;
  const int64_t *n = shape(y);
  double *to = added(y);
  if (of(how, 1)->to.whole != wanted) wrong("a step is not computed in its type", mode);
  for (int64_t i = 0; i < count(y); i++) {
    int64_t position = 0;
    if (mode == 501) position = number(how, 9) == 2 ? i / n[3] % n[2] : i % n[3];
    to[i] = pointwise(mode, px[spread(i, n, shape(x))], pb[b ? spread(i, n, shape(b)) : 0],
                      position, pw[w ? spread(i, n, shape(w)) : 0]);
  }
  keep(y, variant);
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    if (letters[i].mode == mode) return letters[i].letter;
  return '?';
}

static char run_product(descriptor *o, descriptor *variant) {
  descriptor *a = linked(o, 1520), *b = linked(o, 1521), *c = linked(o, 1522);
  const double *pa = value_of(a, variant), *pb = value_of(b, variant);
  const int64_t *na = shape(a), *nb = shape(b), *n = shape(c), inner = na[3];
  double *to = added(c);
  if (na[2] != n[2] || nb[3] != n[3] || nb[2] != inner || of(linked(o, 1523), 1500)->to.whole)
    wrong("factors that do not fit", 1520);
  for (int64_t i = 0; i < count(c); i++) {
    const int64_t head = i / (n[2] * n[3]) % n[1], batch = i / (n[1] * n[2] * n[3]);
    const int64_t row = ((batch * na[1] + head / (n[1] / na[1])) * na[2] + i / n[3] % n[2]) * inner;
    const int64_t col = (batch * nb[1] + head / (n[1] / nb[1])) * inner * n[3] + i % n[3];
    for (int64_t k = 0; k < inner; k++) to[i] += pa[row + k] * pb[col + k * n[3]];
  }
  keep(c, variant);
  return 'P';
}

static char run_reduction(descriptor *o, descriptor *variant) {
  descriptor *x = linked(o, 1610), *y = linked(o, 1611), *how = linked(o, 1612);
  const int most = of(how, 1600)->to.whole == 3;
  const double *from = value_of(x, variant);
  double *to = added(y);
  if (of(how, 1601)->to.whole || (!most && of(how, 1600)->to.whole))
    wrong("a reduction is not as known", 1600);
  for (int64_t i = 0; most && i < count(y); i++) to[i] = -INFINITY;
  for (int64_t i = 0; i < count(x); i++) {
    double *at = &to[spread(i, shape(x), shape(y))];
    *at = most ? fmax(*at, from[i]) : *at + from[i];
  }
  keep(y, variant);
  return most ? '^' : '+';
}

static char run_reshape(descriptor *o, descriptor *variant) {
  descriptor *x = linked(o, 2200), *y = linked(o, 2201);
  const double *from = value_of(x, variant);
  const int64_t *n = shape(y), *m = shape(x);
  double *to = added(y);
  if (n[0] != m[0] || n[1] != m[1] || n[2] != m[3] || n[3] != m[2] ||
      !(of(y, 903)->to.number[2] < of(y, 903)->to.number[3] || n[2] == m[3]))
    wrong("a reshape is no transposition", 2200);
  for (int64_t i = 0; i < count(y); i++)
    to[i] = from[i / (n[2] * n[3]) * n[2] * n[3] + i % n[3] * n[2] + i / n[3] % n[2]];
  keep(y, variant);
  return 'R';
}

/* Runs a graph, if it has one of the forms of attention. */
static void run_graph(const attribute *all, descriptor *variant) {
  static const char *const forms[] = {
    "P*^-e+la/P", "P*iigs^-e+la/P", "*+*P*-eRPP-**RPRP=", "*+*P*iigs-eRPP-**RPRP=",
    "*+*P*-eRP+P-**RP+RP=", "*+*P*iigs-eRP+P-**RP+RP=",
  };
  char form[LONGEST + 1] = {0};
  int good = 0;
  for (int i = 0; i < all->n; i++) {
    descriptor *o = all->to.pointer[i];
    form[i] = o->kind == KIND_POINTWISE ? run_pointwise(o, variant)
              : o->kind == KIND_MATRICES ? run_product(o, variant)
              : o->kind == KIND_REDUCTION ? run_reduction(o, variant)
              : o->kind == KIND_RESHAPE ? run_reshape(o, variant) : '?';
  }
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) good |= !strcmp(forms[i], form);
  if (!good) printf("%s\n", form), wrong("a graph has a form that no engine knows", 801);
  while (nknown > 0) free(known[--nknown].at);
}

int cudnnBackendExecute(void *h, void *plan, void *variant) {
  descriptor *config = linked(plan, 401), *operation = linked(config->graph, 801);
  attribute *all = of(config->graph, 801);
  const int kind = operation->kind, of_images = kind == KIND_IMAGES ? 706 : 712;
  const int base = kind == KIND_FORWARD ? 700 : of_images;
  if (h != &handle || config->kind != KIND_CONFIG || !number(variant, 1003)) return BAD;
  if (refuses > 0) return refuses--, UNSUPPORTED;
  runs++;
  ran[config->engine]++;
  if (kind < KIND_FORWARD || kind > KIND_IMAGES) return run_graph(all, variant), 0;
  descriptor *how = linked(operation, base + 2), *then = all->n > 1 ? all->to.pointer[1] : NULL;
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
  return 0;
}

/* blaslt.c -- a mock of cuBLASLt for specs: it checks the size of every attribute and the layout of
** every matrix, and multiplies floats of all four types on the CPU.
**
** spec/cuda/libraries_spec.lua builds it as a shared library, and MOTH_CUBLASLT opens it. At exit
** it prints the numbers of its calls. LT_REFUSES: this many products fail.
** LT_ALIGNED: rows must begin at multiples of 16 bytes.
*/
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/half.h"

enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, UNSUPPORTED = 15, EPILOGUE_BIAS = 4,
       EPILOGUE_SUMS_B = 512 };

typedef struct layout {
  int type, batch;
  uint64_t rows, cols;
  int64_t ld, step;
} layout;

typedef struct product {
  int scale, turned[2];
  uint32_t epilogue;
  char *bias; /* or the address for the sums of B */
} product;

typedef struct found {
  uint64_t algorithm[8];
  size_t room;
  int status;
  float waves;
  int reserved[4];
} found;

static int products, asked, left, refuses, summed;
static uint32_t aligned[4], sums; /* from the preference */

static void say(void) {
  printf("products=%d heuristics=%d left=%d sums=%u", products, asked, left, sums);
  printf(summed ? " summed=%d\n" : "\n", summed);
}

static int wrong(const char *what, int number) {
  printf("WRONG: %s (%d)\n", what, number);
  fflush(stdout);
  _exit(1);
}

static void *make(size_t size) {
  left++;
  return calloc(1, size);
}

static int drop(void *at) {
  left--;
  free(at);
  return 0;
}

static int take(void *to, size_t wanted, const void *from, size_t size, int name) {
  if (size != wanted) return wrong("an attribute's size", name);
  memcpy(to, from, size);
  return 0;
}

/* -- the interface -- */

int cublasLtCreate(void **to) {
  const char *text = getenv("LT_REFUSES");
  refuses = text ? atoi(text) : 0;
  atexit(say);
  *to = make(1);
  return 0;
}

int cublasLtDestroy(void *h) { return drop(h); }
int cublasLtMatmulDescDestroy(void *p) { return drop(p); }
int cublasLtMatrixLayoutDestroy(void *l) { return drop(l); }
int cublasLtMatmulPreferenceDestroy(void *p) { return drop(p); }

int cublasLtMatmulDescCreate(void **to, int compute, int scale) {
  product *p = *to = make(sizeof *p);
  if (scale == R_64F ? compute != 70 : compute != 68 && compute != 77)
    wrong("what is computed in", compute);
  p->scale = scale;
  p->epilogue = 1;
  return 0;
}

int cublasLtMatmulDescSetAttribute(void *desc, int name, const void *from, size_t size) {
  product *p = desc;
  if (name == 3 || name == 4) return take(&p->turned[name - 3], 4, from, size, name);
  if (name == 7) return take(&p->epilogue, 4, from, size, name);
  if (name == 8) return take(&p->bias, 8, from, size, name);
  return wrong("an unknown attribute", name);
}

int cublasLtMatrixLayoutCreate(void **to, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  layout *l = *to = make(sizeof *l);
  if (ld < (int64_t)rows) wrong("columns overlap", (int)ld);
  *l = (layout){type, 1, rows, cols, ld, 0};
  return 0;
}

int cublasLtMatrixLayoutSetAttribute(void *desc, int name, const void *from, size_t size) {
  layout *l = desc;
  if (name == 5) return take(&l->batch, 4, from, size, name);
  if (name == 6) return take(&l->step, 8, from, size, name);
  return wrong("an unknown attribute", name);
}

int cublasLtMatmulPreferenceCreate(void **to) {
  *to = make(8);
  return 0;
}

int cublasLtMatmulPreferenceSetAttribute(void *p, int name, const void *from, size_t size) {
  if (name == 1) return take(p, 8, from, size, name);
  if (name == 3) return take(&sums, 4, from, size, name);
  if (name < 5 || name > 8) return wrong("an unknown attribute", name);
  take(&aligned[name - 5], 4, from, size, name);
  const uint32_t a = aligned[name - 5];
  return a == 0 || (a & (a - 1)) ? wrong("an alignment", (int)a) : 0;
}

/* No epilogue in float64, as in NVIDIA's library. */
int cublasLtMatmulAlgoGetHeuristic(void *h, void *desc, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, found *to, int *count) {
  const product *p = desc;
  if (!h || !a || !b || c != d || !preference || wanted != 1) wrong("what is asked", wanted);
  asked++;
  *count = p->scale == R_32F || p->epilogue == 1;
  memset(to, 0, sizeof *to);
  memcpy(to->algorithm, aligned, sizeof aligned);
  return *count ? 0 : UNSUPPORTED;
}

/* -- the product -- */

static int memory(void) {
  static int file = -1;
  if (file < 0) file = open("/proc/self/mem", O_RDWR);
  return file;
}

static size_t size_of(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

static double value(int type, const void *at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  return type == R_16F    ? (double)moth_widen_f16(half)
         : type == R_16BF ? (double)moth_widen_bf16(half)
         : type == R_64F  ? *(const double *)at : (double)*(const float *)at;
}

static double *load(const char *from, int type, int64_t n) {
  const size_t size = (size_t)n * size_of(type);
  char *bytes = malloc(size);
  double *to = malloc((size_t)n * sizeof *to);
  if (pread(memory(), bytes, size, (off_t)(uintptr_t)from) != (ssize_t)size)
    wrong("a matrix does not lie on the device", (int)n);
  for (int64_t i = 0; i < n; i++) to[i] = value(type, bytes + (size_t)i * size_of(type));
  free(bytes);
  return to;
}

static void store(char *to, int type, double v) {
  const float narrow = (float)v;
  const uint16_t half = type == R_16F ? moth_narrow_f16(narrow) : moth_narrow_bf16(narrow);
  const void *from = type == R_64F   ? (const void *)&v
                     : type == R_32F ? (const void *)&narrow : (const void *)&half;
  if (pwrite(memory(), from, size_of(type), (off_t)(uintptr_t)to) != (ssize_t)size_of(type))
    wrong("a result does not lie on the device", 0);
}

static int64_t extent(const layout *l) {
  return ((int64_t)l->cols - 1) * l->ld + (int64_t)l->rows;
}

static double element(const layout *l, const double *at, int turned, uint64_t row, uint64_t col) {
  return turned ? at[(int64_t)row * l->ld + (int64_t)col] : at[(int64_t)col * l->ld + (int64_t)row];
}

static void multiply(const product *p, const double *scale, const layout *const *l, const char *a,
                     const char *b, char *c) {
  const uint64_t depth = p->turned[0] ? l[0]->rows : l[0]->cols;
  double *x = load(a, l[0]->type, extent(l[0])), *y = load(b, l[1]->type, extent(l[1]));
  double *old = load(c, l[2]->type, extent(l[2]));
  const int64_t rows = (int64_t)l[2]->rows;
  double *bias = p->epilogue & EPILOGUE_BIAS ? load(p->bias, l[2]->type, rows) : NULL;
  for (uint64_t col = 0; col < l[2]->cols; col++)
    for (uint64_t row = 0; row < l[2]->rows; row++) {
      double sum = 0;
      for (uint64_t k = 0; k < depth; k++)
        sum += element(l[0], x, p->turned[0], row, k) * element(l[1], y, p->turned[1], k, col);
      const int64_t at = (int64_t)col * l[2]->ld + (int64_t)row;
      sum = scale[0] * sum + (scale[1] != 0 ? scale[1] * old[at] : 0) + (bias ? bias[row] : 0);
      store(c + (size_t)at * size_of(l[2]->type), l[2]->type, sum);
    }
  for (uint64_t col = 0; p->epilogue == EPILOGUE_SUMS_B && col < l[2]->cols; col++) {
    double sum = 0;
    for (uint64_t k = 0; k < depth; k++) sum += element(l[1], y, p->turned[1], k, col);
    store(p->bias + col * size_of(l[2]->type), l[2]->type, sum);
    summed += col == 0;
  }
  free(x), free(y), free(old), free(bias);
}

int cublasLtMatmul(void *h, void *desc, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *d, void *d_layout, const void *algorithm, void *room, size_t size,
                   void *stream) {
  const product *p = desc;
  const layout *const l[3] = {a_layout, b_layout, c_layout};
  const void *const at[4] = {a, b, c, d};
  const double scale[2] = {value(p->scale, alpha), value(p->scale, beta)};
  const size_t each = size_of(l[2]->type);
  if (!h || c != d || c_layout != d_layout || !stream || (size && !room)) wrong("a product", 0);
  for (int i = 0; i < 4; i++)
    if ((uintptr_t)at[i] % ((const uint32_t *)algorithm)[i]) wrong("a matrix is not aligned", i);
  for (int i = 0; getenv("LT_ALIGNED") && i < 3; i++)
    if (l[i]->ld * size_of(l[i]->type) % 16 || ((const uint32_t *)algorithm)[i] % 16)
      wrong("lines are not aligned", (int)l[i]->ld);
  if (p->epilogue != 1 && (uintptr_t)p->bias % ((const uint32_t *)algorithm)[3])
    wrong("a bias is not aligned as its result", (int)p->epilogue);
  if ((p->turned[0] ? l[0]->cols : l[0]->rows) != l[2]->rows ||
      (p->turned[1] ? l[1]->rows : l[1]->cols) != l[2]->cols ||
      (p->turned[0] ? l[0]->rows : l[0]->cols) != (p->turned[1] ? l[1]->cols : l[1]->rows))
    wrong("the sides of a product", 0);
  if (refuses > 0) return refuses--, UNSUPPORTED;
  for (int64_t i = 0; i < l[2]->batch; i++)
    multiply(p, scale, l, (const char *)a + (size_t)(i * l[0]->step) * each,
             (const char *)b + (size_t)(i * l[1]->step) * each,
             (char *)d + (size_t)(i * l[2]->step) * each);
  products++;
  return 0;
}

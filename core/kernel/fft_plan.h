/* fft_plan.h -- how transforms of one length are computed: fft.c makes plans, fft_level.h runs
** them.
**
** A transform of N complex numbers uses vectors of `lanes` numbers, in one of three ways:
**
** - COLUMNS: each lane has one signal. N = r1 r2 ...; a pass for each radix transposes [r][m][s] to
**   [m][r][s], so that nothing needs to be reordered (Stockham 1966).
** - ROWS: N = m lanes. Lane j has column j of a signal's [m][lanes]: passes transform its m
**   numbers, they are multiplied by roots of unity, transposed, and transformed across lanes
**   (Gentleman and Sande 1966). Thus a single signal fills the vectors.
** - CHIRP: if N has a prime factor above MOTH_FFT_PRIME, or a large one and few signals: as
**   a convolution, whose length has only small factors (Bluestein 1970).
**
** A real signal of even length n is transformed as n / 2 complex numbers, and the result is
** separated into that of the real signal.
*/
#ifndef MOTH_KERNEL_FFT_PLAN_H
#define MOTH_KERNEL_FFT_PLAN_H

#include "fft.h"

#define MOTH_FFT_PRIME 255
#define MOTH_FFT_PASSES 64

#if defined(__clang__)
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noinline, noclone))
#endif

enum { MOTH_FFT_COLUMNS, MOTH_FFT_ROWS, MOTH_FFT_CHIRP };

/* Tables have the plan's dtype; complex numbers are stored as (re, im). */
typedef struct moth_fft_plan {
  struct moth_fft_plan *next; /* list of the context, last used first */
  struct moth_fft_plan *wide; /* CHIRP: the plan of the convolution */
  int dtype, way, lanes;
  int users;                  /* transforms that run or are paused */
  bool halved;                /* real signals are computed as half as many complex numbers */
  int64_t n, count, bytes; /* n: numbers of a signal; count: N, complex numbers of the transform */
  int64_t m;                  /* numbers in a lane */
  int passes, radix[MOTH_FFT_PASSES];
  void *root;                 /* for each pass: e^(-2 pi i p k / (r m)), [p < m][0 < k < r] */
  void *unit[MOTH_FFT_PASSES]; /* for odd radices: cosines and sines of 2 pi k / r */
  void *twiddle;              /* ROWS: e^(-2 pi i j k / N), [k / lanes][j][re, im][k % lanes] */
  void *half;                 /* halved: e^(-2 pi i k / n), all the cosines, then the sines */
  void *chirp, *filter;       /* CHIRP: e^(-pi i k k / N), and the transform of its inverse */
} moth_fft_plan;

/* The layout of input or output. Number j of n of signal s is at base + s / inner * outer + s %
** inner * unit + j * step. Its second part is `other` elements later; 0: it has none. */
typedef struct moth_fft_side {
  char *base;
  int64_t n, inner, outer, unit, step, other;
} moth_fft_side;

typedef struct moth_fft_job {
  const moth_fft *f;
  const moth_fft_plan *plan;
  moth_fft_side from, to;
  int64_t signals, scratch_size; /* scratch_size: elements of scratch for each thread */
  char *scratch;
} moth_fft_job;

#endif

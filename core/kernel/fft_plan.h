/* fft_plan.h -- how transforms of one length are computed: fft.c makes plans, fft_level.h runs
** them.
**
** A transform of N complex numbers uses vectors of `lanes` numbers, in one of three ways:
**
** - COLUMNS: each lane has one signal. N = r1 r2 ...; a pass for each radix transposes [r][m][s] to
**   [m][r][s], so that nothing needs to be reordered (Stockham 1966).
** - ROWS: N = m lanes. Lane j has column j of a signal's [m][lanes]: passes transform its m
**   numbers, they are multiplied by roots of unity, transposed, and transformed across lanes
**   (Gentleman and Sande 1966). So a single signal fills the vectors too.
** - CHIRP: if N has a prime factor above MOTH_FFT_PRIME, or a large one and few signals: as
**   a convolution, whose length has only small factors (Bluestein 1970).
**
** A real signal of even length n is transformed as n / 2 complex numbers, and the result is
** untangled.
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

/* Tables are of the plan's dtype; complex numbers in them are pairs. */
typedef struct moth_fft_plan {
  struct moth_fft_plan *next; /* of the context's, the last used first */
  struct moth_fft_plan *wide; /* CHIRP: the plan of the convolution */
  int dtype, way, lanes;
  bool halved;                /* a real signal as half as many pairs */
  int64_t n, count, bytes;    /* numbers of a signal; complex ones of its transform, N */
  int64_t m;                  /* of these in a lane */
  int passes, radix[MOTH_FFT_PASSES];
  void *root;                 /* of each pass: e^(-2 pi i p k / (r m)), [p < m][0 < k < r] */
  void *unit[MOTH_FFT_PASSES]; /* of odd radices: cosines and sines of 2 pi k / r */
  void *twiddle;              /* ROWS: e^(-2 pi i j k / N), [k / lanes][j][re, im][k % lanes] */
  void *half;                 /* halved: e^(-2 pi i k / n), all the cosines, then the sines */
  void *chirp, *filter;       /* CHIRP: e^(-pi i k k / N), and the transform of its inverse */
} moth_fft_plan;

/* One end of the signals: the j-th of n numbers of signal s is at base + s / inner * outer
** + s % inner * unit + j * step, its second half `other` behind it (0: there is none). */
typedef struct moth_fft_side {
  char *base;
  int64_t n, inner, outer, unit, step, other;
} moth_fft_side;

typedef struct moth_fft_job {
  const moth_fft *f;
  const moth_fft_plan *plan;
  moth_fft_side from, to;
  int64_t signals, scratch_size; /* elements of scratch for each thread */
  char *scratch;
} moth_fft_job;

#endif

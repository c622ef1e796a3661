/* sums_real.h -- sums and extremes of contiguous elements in explicit vectors, for one REAL and one
** TARGET. The headers of loops include it. Compilers do not reorder float sums, so these loops have
** four accumulator vectors for blocks of up to SUM_BLOCK elements; block sums are added in double.
*/
typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(loose)
  __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef __typeof__(_Generic((REAL)0, float: (int32_t)0, default: (int64_t)0)) NAME(word);
typedef NAME(word) NAME(vmask) __attribute__((vector_size(VECTOR_BYTES)));

#ifndef SUM_BLOCK
#define SUM_BLOCK 2048
#define SHORT_ROW 128 /* elements; for longer rows, summing several rows together is no faster */
#define VEC NAME(vec)
#define VMASK NAME(vmask)
#define VEC_AT(p) (*(const NAME(loose) *)(const void *)(p))
#define PER ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
/* a[0] := all elements joined: k with k + h. Halves of constant length become vector
** instructions. */
#define HALVE(a, JOIN)                                                       \
  if (PER >= 16) { enum { h = 8 }; for (int k = 0; k < h; k++) a[k % PER] = JOIN; } \
  if (PER >= 8) { enum { h = 4 }; for (int k = 0; k < h; k++) a[k % PER] = JOIN; }  \
  if (PER >= 4) { enum { h = 2 }; for (int k = 0; k < h; k++) a[k % PER] = JOIN; }  \
  if (PER >= 2) { enum { h = 1 }; for (int k = 0; k < h; k++) a[k % PER] = JOIN; }
#define CHOOSE(mask, a, b) ((VEC)(((mask) & (VMASK)(a)) | (~(mask) & (VMASK)(b))))
#endif

/* The sum of a vector's elements, by halves. */
TARGET INLINED REAL NAME(total)(const VEC *v) {
  REAL s[VECTOR_BYTES / sizeof(REAL)];
  memcpy(s, v, VECTOR_BYTES);
  HALVE(s, s[k] + s[k + h])
  return s[0];
}

/* Elements of a and b by number; b continues the count of a. */
TARGET INLINED VEC NAME(of_two)(VEC a, VEC b, VMASK at) {
#ifdef __clang__
  VEC y;
  for (int k = 0; k < PER; k++) y[k] = at[k] < PER ? a[at[k] % PER] : b[at[k] % PER];
  return y;
#else
  return __builtin_shuffle(a, b, at);
#endif
}

/* v[k] of v[0] := the sum of the elements of vector k, for PER vectors, with the same order of
** additions as `total`. */
TARGET INLINED void NAME(totals)(VEC *v) {
#define STEP(h)                                                                            \
  if (PER > h) {                                                                           \
    NAME(vmask) low, high;                                                                 \
    for (int i = 0; i < PER; i++) low[i] = i / h * 2 * h + i % h, high[i] = low[i] + h;     \
    for (int k = 0; k < h; k++) {                                                          \
      const VEC a = v[2 * k % PER], b = v[(2 * k + 1) % PER];                              \
      v[k] = NAME(of_two)(a, b, low) + NAME(of_two)(a, b, high);                           \
    }                                                                                      \
  }
  STEP(8) STEP(4) STEP(2) STEP(1)
#undef STEP
}

/* f(n, x, m): the sum of TERM, which may use m and v, an element. f_rows: the sums of PER rows,
** `step` elements apart, of at most SUM_BLOCK elements each; with the same bits as f. */
#define VECTOR_SUM(f, TERM)                                                              \
  TARGET INLINED VEC NAME(f##_part)(int64_t n, const REAL *x, const REAL m, REAL *left) { \
    VEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                          \
    REAL rest = 0;                                                                       \
    int64_t i = 0;                                                                       \
    (void)m;                                                                             \
    for (; i + 4 * PER <= n; i += 4 * PER) {                                             \
      { const VEC v = VEC_AT(x + i); s0 += TERM; }                                       \
      { const VEC v = VEC_AT(x + i + PER); s1 += TERM; }                                 \
      { const VEC v = VEC_AT(x + i + 2 * PER); s2 += TERM; }                             \
      { const VEC v = VEC_AT(x + i + 3 * PER); s3 += TERM; }                             \
    }                                                                                    \
    for (; i + PER <= n; i += PER) { const VEC v = VEC_AT(x + i); s0 += TERM; }          \
    for (; i < n; i++) { const REAL v = x[i]; rest += TERM; }                            \
    *left = rest;                                                                        \
    return (s0 + s2) + (s1 + s3);                                                        \
  }                                                                                      \
  TARGET INLINED REAL NAME(f##_block)(int64_t n, const REAL *x, const REAL m) {          \
    REAL rest;                                                                           \
    const VEC s = NAME(f##_part)(n, x, m, &rest);                                        \
    return NAME(total)(&s) + rest;                                                       \
  }                                                                                      \
  TARGET INLINED VEC NAME(f##_rows)(int64_t n, const REAL *x, int64_t step, const REAL m) { \
    VEC s[VECTOR_BYTES / sizeof(REAL)], rest;                                            \
    for (int64_t k = 0; k < PER; k++, x += step) {                                       \
      REAL left;                                                                         \
      s[k] = NAME(f##_part)(n, x, m, &left);                                             \
      rest[k] = left;                                                                    \
    }                                                                                    \
    NAME(totals)(s);                                                                     \
    return s[0] + rest;                                                                  \
  }                                                                                      \
  TARGET INLINED double NAME(f)(int64_t n, const REAL *x, const REAL m) {                \
    double sum = 0;                                                                      \
    for (int64_t i = 0; i < n; i += SUM_BLOCK)                                           \
      sum += (double)NAME(f##_block)(n - i < SUM_BLOCK ? n - i : SUM_BLOCK, x + i, m);   \
    return sum;                                                                          \
  }

/* f(n, x): the extreme of n elements by BETTER (> or <); WORST if n is 0. Skips NaN, and sets *nan
** if there is one. */
#define VECTOR_EXTREME(f, BETTER, WORST)                                                 \
  TARGET INLINED REAL NAME(f)(int64_t n, const REAL *x, bool *nan) {                     \
    VEC m0 = (VEC){0} + (REAL)(WORST), m1 = m0, m2 = m0, m3 = m0;                        \
    VMASK odd = {0};                                                                     \
    REAL best = (REAL)(WORST), m[VECTOR_BYTES / sizeof(REAL)];                           \
    bool any = false;                                                                    \
    int64_t i = 0;                                                                       \
    for (; i + 4 * PER <= n; i += 4 * PER) {                                             \
      const VEC a = VEC_AT(x + i), b = VEC_AT(x + i + PER);                              \
      const VEC c = VEC_AT(x + i + 2 * PER), d = VEC_AT(x + i + 3 * PER);                \
      m0 = CHOOSE(a BETTER m0, a, m0);                                                   \
      m1 = CHOOSE(b BETTER m1, b, m1);                                                   \
      m2 = CHOOSE(c BETTER m2, c, m2);                                                   \
      m3 = CHOOSE(d BETTER m3, d, m3);                                                   \
      odd |= (a != a) | (b != b) | (c != c) | (d != d);                                  \
    }                                                                                    \
    for (; i + PER <= n; i += PER) {                                                     \
      const VEC a = VEC_AT(x + i);                                                       \
      m0 = CHOOSE(a BETTER m0, a, m0);                                                   \
      odd |= (a != a);                                                                   \
    }                                                                                    \
    for (; i < n; i++) {                                                                 \
      best = x[i] BETTER best ? x[i] : best;                                             \
      any |= x[i] != x[i];                                                               \
    }                                                                                    \
    m0 = CHOOSE(m1 BETTER m0, m1, m0);                                                   \
    m2 = CHOOSE(m3 BETTER m2, m3, m2);                                                   \
    m0 = CHOOSE(m2 BETTER m0, m2, m0);                                                   \
    memcpy(m, &m0, VECTOR_BYTES);                                                        \
    HALVE(m, m[k + h] BETTER m[k] ? m[k + h] : m[k])                                     \
    best = m[0] BETTER best ? m[0] : best;                                               \
    for (int64_t k = 0; k < PER; k++) any |= odd[k] != 0;                                \
    *nan = any;                                                                          \
    return best;                                                                         \
  }

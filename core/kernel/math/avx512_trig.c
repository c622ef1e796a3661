/* avx512_trig.c -- sin, cos, tan, asin and acos for AVX-512, in explicit vectors. The loops
** compiled from functions.h first search for large angles, and divide and take roots in f64. For
** 400,000 numbers sin and cos are 1.1 times as fast as these loops, tan 1.6, asin and acos 2.2
** times.
**
** sin, cos and tan are computed in f64, as in functions.h; asin and acos in f32 with compensated
** sums. Errors are at most 0.61 units in the last place. Compilers must not fuse products with sums
** here, except FMA (CMakeLists.txt).
*/
#include "avx512_loop.h"

#if MOTH_HAS_LEVELS

#include "functions.h"

/* -- sin, cos, tan -- */

typedef __m512d half; /* half of the elements of a vector, in f64 */
#define EACH_HALF(x) _mm512_set1_pd(x)
#define FMA_HALF(a, b, c) _mm512_fmadd_pd(a, b, c)
#define BITS(x) _mm512_castpd_si512(x)

/* y, but f(x) for x above MOTH_WAVE_FAR in size. */
MOTH_AVX512 INLINED vector with_far(vector y, vector x, float (*f)(float)) {
  const vector bound = EACH(MOTH_WAVE_FAR);
  const __mmask16 far = _mm512_cmp_ps_mask(_mm512_abs_ps(x), bound, _CMP_GT_OQ);
  if (__builtin_expect(far == 0, 1)) return y;
  float from[LANES], to[LANES];
  memcpy(from, &x, sizeof from);
  memcpy(to, &y, sizeof to);
  for (int i = 0; i < LANES; i++)
    if (far >> i & 1) to[i] = f(from[i]);
  memcpy(&y, to, sizeof y);
  return y;
}

/* Applies f(half, ...) to both halves of x. */
#define BY_HALVES(f, x, ...)                                                                   \
  _mm512_insertf32x8(                                                                          \
    _mm512_castps256_ps512(                                                                    \
      _mm512_cvtpd_ps(f(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), __VA_ARGS__))),            \
    _mm512_cvtpd_ps(f(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)), __VA_ARGS__)), 1)

/* Like moth_wide_sine, with pi as a sum of two f64: fused products have no rounding error here. */
MOTH_AVX512 INLINED half sine(half x, double off) {
  const half shift = EACH_HALF(MOTH_SHIFT_F64), per = EACH_HALF(0.31830988618379067154);
  half whole = FMA_HALF(x, per, off == 0.0 ? shift : EACH_HALF(off));
  if (off != 0.0) whole = whole + shift;
  half n = whole - shift;
  if (off != 0.0) n = n - EACH_HALF(off);
  half r = _mm512_fnmadd_pd(n, EACH_HALF(3.14159265358979311600), x);
  r = _mm512_fnmadd_pd(n, EACH_HALF(1.22464679914735317636e-16), r);
  const half s = _mm512_castsi512_pd(
    _mm512_xor_si512(BITS(r), _mm512_slli_epi64(BITS(whole), 63)));
  const half z = r * r;
  half p = FMA_HALF(EACH_HALF(-2.388891234024916e-08), z, EACH_HALF(2.752538477660368e-06));
  p = FMA_HALF(p, z, EACH_HALF(-0.00019840868221527143));
  p = FMA_HALF(p, z, EACH_HALF(0.008333331108739695));
  p = FMA_HALF(p, z, EACH_HALF(-0.1666666662615391));
  return s * FMA_HALF(p, z, EACH_HALF(1.0));
}

/* r P / Q for x = n pi/2 + r, or -Q / (r P) for odd n. Relative errors: P / Q 1e-10, the quotient
** 4e-9. */
MOTH_AVX512 INLINED half tangent(half x, int none) {
  const half shift = EACH_HALF(MOTH_SHIFT_F64), one = EACH_HALF(1.0);
  const half whole = FMA_HALF(x, EACH_HALF(0.63661977236758134308), shift), n = whole - shift;
  half r = _mm512_fnmadd_pd(n, EACH_HALF(1.57079632679489655800), x);
  r = _mm512_fnmadd_pd(n, EACH_HALF(6.12323399573676588180e-17), r);
  const half z = r * r;
  half p = FMA_HALF(z, EACH_HALF(0.0010715004779784855), EACH_HALF(-0.11130841172764785));
  half q = FMA_HALF(z, EACH_HALF(0.015952076077215584), EACH_HALF(-0.4446417449433275));
  p = r * FMA_HALF(z, p, one);
  q = FMA_HALF(z, q, one);
  const __mmask8 odd = _mm512_test_epi64_mask(BITS(whole), _mm512_set1_epi64(1));
  const half over = _mm512_mask_mov_pd(p, odd, q);
  const half under = _mm512_mask_sub_pd(q, odd, _mm512_setzero_pd(), p);
  const half per = _mm512_rcp14_pd(under);
  (void)none;
  return over * FMA_HALF(per, _mm512_fnmadd_pd(under, per, one), per);
}

MOTH_AVX512 INLINED vector wide_sin(vector x) { return with_far(BY_HALVES(sine, x, 0.0), x, sinf); }
MOTH_AVX512 INLINED vector wide_cos(vector x) { return with_far(BY_HALVES(sine, x, 0.5), x, cosf); }
MOTH_AVX512 INLINED vector wide_tan(vector x) {
  return with_far(BY_HALVES(tangent, x, 0), x, tanf);
}

/* -- asin, acos: from asin up to 1/2; above, from asin of half the angle -- */

/* (asin(t) - t) / t^3 of z = t^2 up to 1/4; relative error 3e-10 of asin. */
MOTH_AVX512 INLINED vector arc_series(vector z) {
  vector p = FMA(EACH(0.037516416555557576f), z, EACH(0.014438647438323174f));
  p = FMA(p, z, EACH(0.03180770077480697f));
  p = FMA(p, z, EACH(0.044516958444436615f));
  p = FMA(p, z, EACH(0.07500504155988302f));
  return FMA(p, z, EACH(0.16666659992265997f));
}

/* The square root of z up to 1/4; *low becomes its rounding error. */
MOTH_AVX512 INLINED vector root_of(vector z, vector *low) {
  /* 1 / sqrt(0) is infinite */
  const vector per = _mm512_rsqrt14_ps(_mm512_max_ps(z, EACH(1e-30f)));
  const vector half_per = per * EACH(0.5f), about = z * per;
  const vector t = FMA(about, _mm512_fnmadd_ps(about, half_per, EACH(0.5f)), about);
  *low = _mm512_fnmadd_ps(t, t, z) * half_per;
  return t;
}

/* x^2, or (1 - |x|) / 2 where |x| > 1/2; *far is the mask of these. */
MOTH_AVX512 INLINED vector arc_square(vector x, __mmask16 *far) {
  const vector a = _mm512_abs_ps(x), half_one = EACH(0.5f);
  *far = _mm512_cmp_ps_mask(a, half_one, _CMP_GT_OQ);
  return _mm512_mask_mov_ps(a * a, *far, _mm512_fnmadd_ps(a, half_one, half_one));
}

MOTH_AVX512 INLINED vector wide_asin(vector x) {
  __mmask16 far;
  vector low;
  const vector z = arc_square(x, &far), root = root_of(z, &low), a = _mm512_abs_ps(x);
  const vector t = _mm512_mask_mov_ps(a, far, root), cube = t * z, p = arc_series(z);
  /* pi / 2 - 2 (root + low + cube p) */
  const vector up = EACH(MOTH_PI_2_F32), two = root + root, y = up - two, off = (up - y) - two;
  const vector rest = _mm512_fnmadd_ps(EACH(2.0f), low, off + EACH(MOTH_PI_2_LOW_F32));
  const vector beyond = y + _mm512_fnmadd_ps(cube + cube, p, rest);
  const vector f = _mm512_mask_mov_ps(FMA(cube, p, t), far, beyond);
  return _mm512_or_ps(f, _mm512_and_ps(x, EACH(-0.0f)));
}

/* base - by asin(t): pi / 2 - asin(x), or 2 asin(t) for half the angle. For x < 0 the latter is
** subtracted from pi. */
MOTH_AVX512 INLINED vector wide_acos(vector x) {
  __mmask16 far;
  vector low;
  const vector z = arc_square(x, &far), root = root_of(z, &low);
  const __mmask16 down = _mm512_mask_cmp_ps_mask(far, x, _mm512_setzero_ps(), _CMP_LT_OQ);
  const __mmask16 up = far & (__mmask16)~down;
  const vector by = _mm512_mask_mov_ps(_mm512_mask_mov_ps(EACH(1.0f), up, EACH(-2.0f)), down,
                                       EACH(2.0f));
  const vector twice = EACH(2 * MOTH_PI_2_F32), twice_low = EACH(2 * MOTH_PI_2_LOW_F32);
  const vector base = _mm512_mask_mov_ps(_mm512_maskz_mov_ps((__mmask16)~up, EACH(MOTH_PI_2_F32)),
                                         down, twice);
  const vector base_low = _mm512_mask_mov_ps(
    _mm512_maskz_mov_ps((__mmask16)~up, EACH(MOTH_PI_2_LOW_F32)), down, twice_low);
  const vector t = by * _mm512_mask_mov_ps(x, far, root), y = base - t, off = (base - y) - t;
  const vector rest = (off + base_low) - _mm512_maskz_mul_ps(far, low, by);
  return y + _mm512_fnmadd_ps(t * z, arc_series(z), rest);
}

LOOP(sin)
LOOP(cos)
LOOP(tan)
LOOP(asin)
LOOP(acos)

#endif

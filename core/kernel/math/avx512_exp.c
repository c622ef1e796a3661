/* avx512_exp.c -- exp and tanh for AVX-512, in explicit vectors: compilers do not generate
** AVX-512's instructions for powers of 2 and table lookups from plain code.
*/
#include "avx512_loop.h"

#if MOTH_HAS_LEVELS

typedef int32_t words __attribute__((vector_size(64)));

/* FROM32(t, i): t[i % 32], where t is two vectors. LEAST, MOST: of two vectors; the second if one
** is NaN. POWER(x, n): x times 2 to the integer part of n. */
#define NEAREST 4
#if defined(__clang__)
#define FROM32(t, i) __builtin_ia32_vpermi2varps512(AT(t), i, AT((t) + LANES))
#define LEAST(a, b) __builtin_ia32_minps512(a, b, NEAREST)
#define MOST(a, b) __builtin_ia32_maxps512(a, b, NEAREST)
#define ALL 0xffff
#else
#define FROM32(t, i) __builtin_shuffle(AT(t), AT((t) + LANES), i)
#define LEAST(a, b) __builtin_ia32_minps512_mask(a, b, (vector){0}, ALL, NEAREST)
#define MOST(a, b) __builtin_ia32_maxps512_mask(a, b, (vector){0}, ALL, NEAREST)
#define ALL (short)-1
#endif
#define POWER(x, n) __builtin_ia32_scalefps512_mask(x, n, (vector){0}, ALL, NEAREST)

/* Like moth_full_exp_f32, but the instruction for the power of 2 handles overflow and underflow. */
MOTH_AVX512 INLINED vector wide_exp(vector x) {
  const vector bound = MOST(EACH(-105.0f), LEAST(EACH(89.0f), x));
  const vector whole = bound * 1.44269504f + 12582912.0f - 12582912.0f;
  const vector r = bound - whole * 0.693145751953125f - whole * 1.42860677e-6f;
  vector p = EACH(1.38145813e-3f);
  p = p * r + 8.36872589e-3f;
  p = p * r + 4.1668389e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.9999994e-1f;
  return POWER(p * (r * r) + r + 1.0f, whole);
}

/* Tables for pieces of |x|, four per octave from 1/16 on, indexed by the lower bits of the exponent
** and the upper bits of the fraction. The first piece starts at 0; the last ends at 9.25, where
** tanh rounds to 1 in f32. `places` are points near the middle of each piece where tanh is very
** nearly a float. `powers` are polynomials in the distance from this point, with minimal greatest
** error: 1 unit in the last place in the first piece, 0.7 in the others. */
enum { DEGREE = 5 };
static const float places[32] =
  {2.24957728f, 2.74952292f, 3.24937725f, 3.75070643f, 4.50029421f, 5.49858046f, 6.49897194f,
   7.50143051f, 9.25f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0859252959f, 0.101560496f, 0.117191508f,
   0.140598401f, 0.171887636f, 0.203169137f, 0.234419286f, 0.281213075f, 0.34375155f, 0.406187683f,
   0.468835801f, 0.562405646f, 0.687473178f, 0.812374413f, 0.937449276f, 1.12532592f, 1.37474239f,
   1.62527895f, 1.87465668f};
static const float powers[DEGREE + 1][32] = {
  {0.978007734f, 0.991851985f, 0.996993899f, 0.998896003f, 0.999753356f, 0.999966502f, 0.99999547f,
   0.999999404f, 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.085714452f, 0.101212747f, 0.116657943f,
   0.139679223f, 0.170214579f, 0.200419083f, 0.230217651f, 0.274027437f, 0.330822498f, 0.385230899f,
   0.437258184f, 0.509760141f, 0.596356273f, 0.67089802f, 0.734048128f, 0.809413493f, 0.879768491f,
   0.92538631f, 0.954014421f},
  {0.0435008667f, 0.0162296426f, 0.00600316655f, 0.00220677676f, 0.000493241765f, 6.69962246e-05f,
   9.06012883e-06f, 1.22011272e-06f, 3.69619784e-08f, 0.0f, 0.0f, 0.0f, 1.0f, 0.992653012f,
   0.989755988f, 0.986390948f, 0.980489731f, 0.971027017f, 0.959832191f, 0.946999848f, 0.924908936f,
   0.890556455f, 0.85159713f, 0.808805287f, 0.74014461f, 0.644359171f, 0.549895823f, 0.461173356f,
   0.344849795f, 0.226007402f, 0.143660173f, 0.089856483f},
  {-0.0425429754f, -0.0160964802f, -0.0059847096f, -0.00220417907f, -0.000492503692f,
   -6.69100264e-05f, -9.04871376e-06f, -1.65944971e-06f, -2.49470162e-07f, 0.0f, 0.0f, 0.0f,
   2.90717797e-08f, -0.085084632f, -0.10017582f, -0.115070254f, -0.136954054f, -0.16528295f,
   -0.192368656f, -0.218016103f, -0.253450423f, -0.294616073f, -0.328061521f, -0.353656709f,
   -0.377295971f, -0.384267569f, -0.368924081f, -0.338523537f, -0.279128015f, -0.198835343f,
   -0.132941589f, -0.0857244506f},
  {0.0271088649f, 0.0105559658f, 0.00396585371f, 0.00146618288f, 0.000328142021f, 4.46062731e-05f,
   6.03252965e-06f, 8.07823199e-07f, -4.33801475e-08f, 0.0f, 0.0f, 0.0f, -0.333336681f,
   -0.322588533f, -0.320189446f, -0.316543013f, -0.307896137f, -0.2957986f, -0.28139466f,
   -0.265648156f, -0.238758758f, -0.199319541f, -0.157406077f, -0.114983246f, -0.0543945879f,
   0.014394151f, 0.0642309338f, 0.0947597101f, 0.110979699f, 0.0995929763f, 0.0751367509f,
   0.0518308058f},
  {-0.0123938648f, -0.00515204482f, -0.00198025513f, -0.000738195318f, -0.000171849446f,
   -2.33823521e-05f, -3.16282831e-06f, 1.33080937e-06f, 3.08061317e-07f, 0.0f, 0.0f, 0.0f,
   0.000114424183f, 0.0549556091f, 0.0640921146f, 0.0738522708f, 0.0886526182f, 0.105389424f,
   0.120371021f, 0.133896545f, 0.149862587f, 0.164055035f, 0.169947252f, 0.168081492f, 0.153286174f,
   0.119452983f, 0.0799342245f, 0.0433672294f, 0.00361658703f, -0.021101553f, -0.0251265541f,
   -0.020857932f},
  {0.00397497974f, 0.00191646663f, 0.000771305233f, 0.000292912824f, 6.85886698e-05f,
   9.31895192e-06f, 1.26186058e-06f, 2.09075964e-07f, 1.99265529e-07f, 0.0f, 0.0f, 0.0f,
   0.132030353f, -10.8642616f, 4.61402225f, 12.9398813f, 0.64391762f, 0.856715262f, 0.104672283f,
   0.544944704f, -0.00847381353f, -0.0170699898f, -0.0530044176f, -0.00197244226f, -0.0416417457f,
   -0.0653280616f, -0.0662235543f, -0.0515453927f, -0.0320465267f, -0.00951440819f, 0.00135532592f,
   0.00458025793f},
};

MOTH_AVX512 INLINED vector wide_tanh(vector x) {
  const words bits = (words)x;
  const vector a = LEAST(EACH(9.25f), (vector)(bits & 0x7fffffff));
  const words piece = (words)MOST(EACH(0.0625f), a) >> 21;
  const vector from = a - FROM32(places, piece);
  vector p = FROM32(powers[DEGREE], piece);
  UNROLL for (int i = DEGREE - 1; i >= 0; i--) p = p * from + FROM32(powers[i], piece);
  return (vector)((words)p | (bits & ~0x7fffffff));
}

LOOP(exp)
LOOP(tanh)

#endif

/* bessel_loops.h -- f32 Bessel functions of order 0 and 1, also times exp(-|x|), the Airy function
** and sin(x) / x. They have no branches, so that compilers vectorize loops over them.
**
** Polynomials up to |x| = 8 (Airy: from -5 to 1); for larger x, polynomials of 1 / x times the
** asymptotic form (Abramowitz and Stegun 9.2, 9.7, 10.4). They are computed in f64 and interpolate
** at Chebyshev points; their relative errors are below 1e-10. The zeros of J below 8, and of Ai
** from -5 on, are factors, so that results next to a zero keep their digits.
*/
#ifndef MOTH_KERNEL_BESSEL_LOOPS_H
#define MOTH_KERNEL_BESSEL_LOOPS_H

#include "functions.h"
#include "special_derivatives.h"

/* The f64 function, also for arguments too large for the reduction of the loops. */
static __attribute__((noinline)) double moth_bessel_at(int kind, int n, double x) {
  return moth_bessel_f64(kind, n, x);
}

/* -- polynomials of t from -1 to 1 -- */

MOTH_INLINE double moth_bessel_i0_near(double t) {
  double p = 4.9179807024730725e-05;
  p = p * t - 0.00013592006898095621;
  p = p * t + 0.00010271931878805943;
  p = p * t - 0.00020636329707506994;
  p = p * t + 0.0009352321298116495;
  p = p * t - 0.0020461388965098723;
  p = p * t + 0.0035544414024135983;
  p = p * t - 0.006605936634764051;
  p = p * t + 0.01199119818260163;
  p = p * t - 0.019775351506074058;
  p = p * t + 0.030168286136064423;
  p = p * t - 0.04295725075501792;
  p = p * t + 0.056778814790985566;
  p = p * t - 0.06954651412975588;
  p = p * t + 0.07927504492355045;
  p = p * t - 0.08496284076533661;
  p = p * t + 0.08734342458197082;
  p = p * t - 0.08904346645630873;
  p = p * t + 0.09451562842516041;
  p = p * t - 0.11300432654348828;
  p = p * t + 0.2070019212239867;
  return p;
}

MOTH_INLINE double moth_bessel_i1_near(double t) {
  double p = 5.984122024648426e-06;
  p = p * t - 1.745472071400764e-05;
  p = p * t + 1.7599730578225902e-05;
  p = p * t - 4.077280388096948e-05;
  p = p * t + 0.00015715397534503563;
  p = p * t - 0.0003684467431909782;
  p = p * t + 0.0007375935634886747;
  p = p * t - 0.0015172283196528769;
  p = p * t + 0.0030091916424835638;
  p = p * t - 0.00554530937067591;
  p = p * t + 0.009582902619497388;
  p = p * t - 0.0155679877622009;
  p = p * t + 0.023686213041875678;
  p = p * t - 0.03367197055283874;
  p = p * t + 0.044674552725048805;
  p = p * t - 0.055279976798581335;
  p = p * t + 0.06376740463728496;
  p = p * t - 0.0684826091053086;
  p = p * t + 0.06805759989689755;
  p = p * t - 0.06112433799007499;
  p = p * t + 0.044687709875608835;
  return p;
}

MOTH_INLINE double moth_bessel_i0_far(double t) {
  double p = -7.60447662810952e-09;
  p = p * t + 1.429905261162751e-09;
  p = p * t + 4.8705269932213904e-08;
  p = p * t + 1.0581912143410882e-07;
  p = p * t + 2.945435525855264e-07;
  p = p * t + 1.477903931708675e-06;
  p = p * t + 1.1143357836139172e-05;
  p = p * t + 0.0001362168064093016;
  p = p * t + 0.0033605519772892684;
  p = p * t + 0.4021765094304137;
  return p;
}

MOTH_INLINE double moth_bessel_i1_far(double t) {
  double p = 7.805544285707847e-09;
  p = p * t - 2.336653202496785e-09;
  p = p * t - 5.331069808927334e-08;
  p = p * t - 1.1805819341221696e-07;
  p = p * t - 3.4530445206294154e-07;
  p = p * t - 1.828612640489583e-06;
  p = p * t - 1.5038903140785501e-05;
  p = p * t - 0.00021923654075262867;
  p = p * t - 0.00974957718621761;
  p = p * t + 0.3893984590413608;
  return p;
}

MOTH_INLINE double moth_bessel_i_difference(double t) {
  double p = 3.932219597069769e-08;
  p = p * t + 6.60056161436488e-09;
  p = p * t - 1.957652317958499e-07;
  p = p * t - 1.658219498649492e-07;
  p = p * t + 2.3205062732903502e-07;
  p = p * t + 5.456881581268135e-07;
  p = p * t + 8.581379126833544e-07;
  p = p * t + 2.1480748368547338e-06;
  p = p * t + 8.163312362324103e-06;
  p = p * t + 4.4938287425511535e-05;
  p = p * t + 0.000373969316353447;
  p = p * t + 0.005313260045483403;
  p = p * t + 0.20444880670617724;
  return p;
}

MOTH_INLINE double moth_bessel_j0_near(double t) {
  double p = 3.405352301814927e-13;
  p = p * t - 8.06404153479144e-12;
  p = p * t + 1.627632671125727e-10;
  p = p * t - 2.7948122577318608e-09;
  p = p * t + 3.998839443141658e-08;
  p = p * t - 4.6771283255535413e-07;
  p = p * t + 4.3669323243558085e-06;
  p = p * t - 3.157342539336169e-05;
  p = p * t + 0.00016977200714001403;
  p = p * t - 0.0006415390646417214;
  p = p * t + 0.001563643164593165;
  p = p * t - 0.0021197942894796524;
  p = p * t + 0.0011434937743762545;
  return p;
}

MOTH_INLINE double moth_bessel_j1_near(double t) {
  double p = -2.887262137206692e-13;
  p = p * t + 6.318829643668756e-12;
  p = p * t - 1.1696800544517086e-10;
  p = p * t + 1.8268163875628055e-09;
  p = p * t - 2.3521923230113642e-08;
  p = p * t + 2.442522459828394e-07;
  p = p * t - 1.9890935157538598e-06;
  p = p * t + 1.2242173648349037e-05;
  p = p * t - 5.4080032390868806e-05;
  p = p * t + 0.00015860016799409875;
  p = p * t - 0.0002697522746716366;
  p = p * t + 0.0001949893698589507;
  return p;
}

MOTH_INLINE double moth_bessel_y0_near(double t) {
  double p = 1.648511929726824e-08;
  p = p * t - 3.2435302080560945e-07;
  p = p * t + 5.321189224110633e-06;
  p = p * t - 7.279197530055634e-05;
  p = p * t + 0.0008061586943167506;
  p = p * t - 0.00702574340609073;
  p = p * t + 0.04636704765045012;
  p = p * t - 0.21895747013944325;
  p = p * t + 0.6721770783483223;
  p = p * t - 1.0775477339586625;
  p = p * t + 0.14412632369270253;
  p = p * t + 1.6470964788831137;
  p = p * t - 0.8284358903604555;
  p = p * t - 0.38225065445951245;
  return p;
}

MOTH_INLINE double moth_bessel_y1_near(double t) {
  double p = 6.200348033070887e-10;
  p = p * t - 1.3240629286749096e-08;
  p = p * t + 2.3804508844312395e-07;
  p = p * t - 3.6008797376881145e-06;
  p = p * t + 4.467433300087056e-05;
  p = p * t - 0.00044381742545220867;
  p = p * t + 0.0034224907389127867;
  p = p * t - 0.0196287568044145;
  p = p * t + 0.078547869222593;
  p = p * t - 0.19639839860408562;
  p = p * t + 0.23507209206668706;
  p = p * t + 0.023367571721292436;
  p = p * t - 0.24337743079193103;
  p = p * t + 0.07075985882117701;
  return p;
}

MOTH_INLINE double moth_bessel_cosine_0(double t) {
  double p = -1.251367294085456e-09;
  p = p * t + 1.3044825580272144e-08;
  p = p * t - 2.0525955211005154e-07;
  p = p * t + 6.137324748107839e-06;
  p = p * t - 0.0005363673200444619;
  p = p * t + 0.999457275793335;
  return p;
}

MOTH_INLINE double moth_bessel_sine_0(double t) {
  double p = 1.8966994399525014e-11;
  p = p * t - 1.0259639769518513e-10;
  p = p * t + 6.420257186066579e-10;
  p = p * t - 5.663638019460582e-09;
  p = p * t + 7.106240265103117e-08;
  p = p * t - 1.477139860068556e-06;
  p = p * t + 6.833149098547818e-05;
  p = p * t - 0.015555113879481343;
  return p;
}

MOTH_INLINE double moth_bessel_cosine_1(double t) {
  double p = 1.4031850726242315e-09;
  p = p * t - 1.497475125474849e-08;
  p = p * t + 2.4535135527381807e-07;
  p = p * t - 7.959593848277511e-06;
  p = p * t + 0.0008988049425786962;
  p = p * t + 1.0009070262724695;
  return p;
}

MOTH_INLINE double moth_bessel_sine_1(double t) {
  double p = 1.113360329289693e-10;
  p = p * t - 7.497452100628448e-10;
  p = p * t + 6.416345406086301e-09;
  p = p * t - 8.290194361295775e-08;
  p = p * t + 1.8212023286186803e-06;
  p = p * t - 9.621459044310036e-05;
  p = p * t + 0.04677687402744898;
  return p;
}

MOTH_INLINE double moth_airy_near(double t) {
  double p = 8.897798166941677e-08;
  p = p * t - 1.9204293062473087e-06;
  p = p * t + 3.7308723829810837e-06;
  p = p * t + 1.4874533058438966e-05;
  p = p * t - 6.090414577854645e-05;
  p = p * t + 1.5773063707286536e-05;
  p = p * t + 0.0003478395319932568;
  p = p * t - 0.0007972146942258013;
  p = p * t - 0.00028651389765345625;
  p = p * t + 0.004610538124199501;
  p = p * t - 0.007301260493129289;
  p = p * t - 0.007032960970867755;
  p = p * t + 0.041335324501094006;
  p = p * t - 0.041482500956946666;
  p = p * t - 0.07323750208541786;
  p = p * t + 0.22989563212849248;
  p = p * t - 0.11828830308010597;
  p = p * t - 0.3873264093309131;
  p = p * t + 0.6945999334644981;
  p = p * t - 0.076999316260965;
  p = p * t - 0.9291985198700574;
  p = p * t + 0.9045689782229182;
  p = p * t + 0.14617890578423365;
  p = p * t - 0.6937215895766444;
  p = p * t + 0.322129114211465;
  return p;
}

MOTH_INLINE double moth_airy_right(double t) {
  double p = -7.990331276327128e-07;
  p = p * t + 1.157930535390016e-06;
  p = p * t + 1.8985320158572976e-06;
  p = p * t - 2.692063547289906e-06;
  p = p * t - 2.894866974580387e-06;
  p = p * t + 4.229067470025512e-06;
  p = p * t + 5.409665390085043e-07;
  p = p * t - 3.900617639614811e-07;
  p = p * t - 4.21486993214493e-06;
  p = p * t + 7.692539069797513e-06;
  p = p * t - 1.3383087910459374e-05;
  p = p * t + 2.8169144184925397e-05;
  p = p * t - 6.395962047038021e-05;
  p = p * t + 0.00015889041024765555;
  p = p * t - 0.000453057172282801;
  p = p * t + 0.0016082757481285209;
  p = p * t - 0.00875470435392185;
  p = p * t + 0.27099888553838164;
  return p;
}

MOTH_INLINE double moth_airy_cosine(double t) {
  double p = -6.515772912196351e-10;
  p = p * t + 6.158893095643297e-09;
  p = p * t - 8.699511690850749e-08;
  p = p * t + 2.3292984210413453e-06;
  p = p * t - 0.00018360533788224328;
  p = p * t + 0.5640035551023094;
  return p;
}

MOTH_INLINE double moth_airy_sine(double t) {
  double p = -1.2395420091959812e-11;
  p = p * t + 6.179292274620582e-11;
  p = p * t - 3.5000728485556487e-10;
  p = p * t + 2.814161846461593e-09;
  p = p * t - 3.191081891685158e-08;
  p = p * t + 5.945013938900407e-07;
  p = p * t - 2.4584409763329452e-05;
  p = p * t + 0.0052313120271770385;
  return p;
}

/* -- modified functions: a is |x| -- */

/* t of the polynomials up to 8; *u := 8 / a for the polynomials above 8. */
MOTH_INLINE double moth_bessel_i_size(double a, double *u) {
  *u = 8.0 / (a > 8.0 ? a : 8.0);
  return a < 8.0 ? a * 0.25 - 1.0 : 1.0;
}

#define MOTH_BESSEL_ROOT sqrt(u * 0.125) /* 1 / sqrt(a) */

MOTH_INLINE double moth_wide_i0e(double a) {
  double u, t = moth_bessel_i_size(a, &u);
  const double far = moth_bessel_i0_far(u + u - 1.0) * MOTH_BESSEL_ROOT;
  return a < 8.0 ? moth_bessel_i0_near(t) : far;
}

/* exp(-a) I_1(a) / a, which is 1/2 at 0. */
MOTH_INLINE double moth_wide_i1e_over(double a) {
  double u, t = moth_bessel_i_size(a, &u);
  const double far = moth_bessel_i1_far(u + u - 1.0) * MOTH_BESSEL_ROOT * (u * 0.125);
  return a < 8.0 ? moth_bessel_i1_near(t) : far;
}

/* exp(-a) (I_0(a) - I_1(a)). */
MOTH_INLINE double moth_wide_i_difference(double a) {
  double u, t = moth_bessel_i_size(a, &u);
  const double far = moth_bessel_i_difference(u + u - 1.0) * MOTH_BESSEL_ROOT * (u * 0.125);
  return a < 8.0 ? moth_bessel_i0_near(t) - a * moth_bessel_i1_near(t) : far;
}

/* y for finite x, `end` for infinite x, NaN for NaN. */
#define MOTH_BESSEL_ENDS(y, end) (x - x == 0 ? (float)(y) : x != x ? x : (float)(end))

MOTH_INLINE float moth_i0e_f32(float x) {
  return MOTH_BESSEL_ENDS(moth_wide_i0e(moth_abs_f32(x)), 0);
}
MOTH_INLINE float moth_i1e_f32(float x) {
  return MOTH_BESSEL_ENDS(x * moth_wide_i1e_over(moth_abs_f32(x)), 0);
}
MOTH_INLINE float moth_i0_f32(float x) {
  const double a = moth_abs_f32(x);
  return MOTH_BESSEL_ENDS(moth_wide_i0e(a) * moth_exp_f64(a), INFINITY);
}
MOTH_INLINE float moth_i1_f32(float x) {
  const double a = moth_abs_f32(x);
  return MOTH_BESSEL_ENDS(x * moth_wide_i1e_over(a) * moth_exp_f64(a), x);
}

/* Derivatives. The derivative of exp(-|x|) I_0(x) jumps at 0 and is 0 there. */
MOTH_INLINE float moth_i0e_slope_f32(float x) {
  const double difference = moth_wide_i_difference(moth_abs_f32(x));
  return MOTH_BESSEL_ENDS(x > 0 ? -difference : x < 0 ? difference : 0.0, 0);
}
MOTH_INLINE float moth_i1_slope_f32(float x) {
  const double a = moth_abs_f32(x);
  return MOTH_BESSEL_ENDS((moth_wide_i0e(a) - moth_wide_i1e_over(a)) * moth_exp_f64(a), INFINITY);
}
MOTH_INLINE float moth_i1e_slope_f32(float x) {
  const double a = moth_abs_f32(x);
  return MOTH_BESSEL_ENDS(moth_wide_i_difference(a) - moth_wide_i1e_over(a), 0);
}

/* -- J and Y, up to MOTH_WAVE_FAR -- */

/* The factors of cos (second = 0) and of sin (second = 1) of a - pi/4, or a - 3 pi/4 for n = 1, in
** sqrt(pi a / 2) times J_n or Y_n. */
MOTH_INLINE double moth_bessel_waves(int n, int second, double a) {
  const double u = 8.0 / (a > 8.0 ? a : 8.0), w = 2.0 * (u * u) - 1.0;
  const double p = n ? moth_bessel_cosine_1(w) : moth_bessel_cosine_0(w);
  const double q = u * (n ? moth_bessel_sine_1(w) : moth_bessel_sine_0(w));
  uint64_t turns;
  const double r = moth_wide_turn(a, &turns);
  const double s = moth_wide_wave(r, turns), c = moth_wide_wave(r, turns + 1);
  const double by = sqrt(u * 0.0397887357729738339422); /* 1 / (8 pi) */
  if (n) return second ? by * (q * (s - c) - p * (s + c)) : by * (p * (s - c) + q * (s + c));
  return second ? by * (p * (s - c) + q * (s + c)) : by * (p * (s + c) - q * (s - c));
}

#define MOTH_BESSEL_J0_NEAR(s, t) \
  (((s) - 5.783185962946784) * ((s) - 30.471262343662087) * moth_bessel_j0_near(t))
#define MOTH_BESSEL_J1_NEAR(s, t) /* over x */ \
  (((s) - 14.681970642123893) * ((s) - 49.2184563216946) * moth_bessel_j1_near(t))
#define MOTH_2_OVER_PI 0.63661977236758134308

MOTH_INLINE double moth_wide_j0(double a) {
  const double s = a < 8.0 ? a * a : 64.0, t = s * 0.03125 - 1.0;
  return a < 8.0 ? MOTH_BESSEL_J0_NEAR(s, t) : moth_bessel_waves(0, 0, a);
}

/* J_1(a) / a. */
MOTH_INLINE double moth_wide_j1_over(double a) {
  const double s = a < 8.0 ? a * a : 64.0, t = s * 0.03125 - 1.0;
  const double far = moth_bessel_waves(1, 0, a) / (a < 8.0 ? 8.0 : a);
  return a < 8.0 ? MOTH_BESSEL_J1_NEAR(s, t) : far;
}

/* Y_0 = 2 / pi log(a) J_0 plus a power series; Y_1 = 2 / pi log(a) J_1 - 2 / (pi a) plus a power
** series. */
MOTH_INLINE double moth_wide_y0(double a) {
  const double s = a < 8.0 ? a * a : 64.0, t = s * 0.03125 - 1.0;
  const double log = MOTH_2_OVER_PI * moth_log_f64(a);
  const double near = log * MOTH_BESSEL_J0_NEAR(s, t) + moth_bessel_y0_near(t);
  return a < 8.0 ? near : moth_bessel_waves(0, 1, a);
}
MOTH_INLINE double moth_wide_y1(double a) {
  const double s = a < 8.0 ? a * a : 64.0, t = s * 0.03125 - 1.0;
  const double log = MOTH_2_OVER_PI * moth_log_f64(a);
  const double rest = a * (log * MOTH_BESSEL_J1_NEAR(s, t) + moth_bessel_y1_near(t));
  return a < 8.0 ? rest - MOTH_2_OVER_PI / a : moth_bessel_waves(1, 1, a);
}

MOTH_INLINE float moth_j0_f32(float x) {
  return MOTH_BESSEL_ENDS(moth_wide_j0(moth_abs_f32(x)), 0);
}
MOTH_INLINE float moth_j1_f32(float x) {
  return MOTH_BESSEL_ENDS(x * moth_wide_j1_over(moth_abs_f32(x)), 0);
}
MOTH_INLINE float moth_j0_slope_f32(float x) { return -moth_j1_f32(x); }
MOTH_INLINE float moth_j1_slope_f32(float x) {
  const double a = moth_abs_f32(x);
  return MOTH_BESSEL_ENDS(moth_wide_j0(a) - moth_wide_j1_over(a), 0);
}

/* y for x > 0, `pole` at 0, NaN below 0. */
#define MOTH_BESSEL_ABOVE(y, pole) \
  (x > 0 ? MOTH_BESSEL_ENDS(y, 0) : x == 0 ? (float)(pole) : NAN)

MOTH_INLINE float moth_y0_f32(float x) { return MOTH_BESSEL_ABOVE(moth_wide_y0(x), -INFINITY); }
MOTH_INLINE float moth_y1_f32(float x) { return MOTH_BESSEL_ABOVE(moth_wide_y1(x), -INFINITY); }
MOTH_INLINE float moth_y0_slope_f32(float x) {
  return MOTH_BESSEL_ABOVE(-moth_wide_y1(x), INFINITY);
}
MOTH_INLINE float moth_y1_slope_f32(float x) {
  return MOTH_BESSEL_ABOVE(moth_wide_y0(x) - moth_wide_y1(x) / x, INFINITY);
}

/* sin(x) / x. */
MOTH_INLINE float moth_spherical_j0_f32(float x) {
  uint64_t turns;
  const double v = x, r = moth_wide_turn(v, &turns);
  const double y = moth_wide_wave(r, turns) / (x == 0 ? 1.0 : v);
  return x == 0 ? 1 : MOTH_BESSEL_ENDS(y, 0);
}

/* -- the Airy function -- */

/* From -5 to 1 a polynomial. Above 1 exp(-zeta) times a polynomial, and below -5 a wave of zeta -
** pi/4, where zeta is 2/3 |x|^(3/2). */
MOTH_INLINE float moth_airy_f32(float x) {
  const double v = x, a = moth_abs_f32(x);
  const double b = x > 0 ? a > 1.0 ? a : 1.0 : a > 5.0 ? a : 5.0;
  const double root = sqrt(b), zeta = 0.66666666666666666667 * b * root, by = 1.0 / sqrt(root);
  const double over = 1.0 / zeta, u = over * 0.66666666666666666667, w = over * 7.453559924999299;
  const double right = moth_airy_right(u + u - 1.0) * moth_exp_f64(-zeta);
  const double z = 2.0 * (w * w) - 1.0, p = moth_airy_cosine(z), q = w * moth_airy_sine(z);
  uint64_t turns;
  const double r = moth_wide_turn(zeta, &turns);
  const double s = moth_wide_wave(r, turns), c = moth_wide_wave(r, turns + 1);
  const double left = 0.70710678118654752440 * (p * (c + s) + q * (s - c));
  const double t = v > -5.0 && v < 1.0 ? v : 0.0;
  const double zeros = (t + 2.338107410459767) * (t + 4.08794944413097);
  const double near = zeros * moth_airy_near((t + 2.0) / 3.0);
  const double y = v > -5.0 && v < 1.0 ? near : by * (x > 0 ? right : left);
  return MOTH_BESSEL_ENDS(y, 0);
}

/* -- aliases for f64 -- */

#define MOTH_BESSEL_DOUBLE(name, kind, n) \
  static double moth_##name##_f64(double x) { return moth_bessel_at(kind, n, x); }
MOTH_BESSEL_DOUBLE(j0, 0, 0) MOTH_BESSEL_DOUBLE(j0_slope, 0, 1)
MOTH_BESSEL_DOUBLE(j1, 1, 0) MOTH_BESSEL_DOUBLE(j1_slope, 1, 1)
MOTH_BESSEL_DOUBLE(y0, 2, 0) MOTH_BESSEL_DOUBLE(y0_slope, 2, 1)
MOTH_BESSEL_DOUBLE(y1, 3, 0) MOTH_BESSEL_DOUBLE(y1_slope, 3, 1)
MOTH_BESSEL_DOUBLE(airy, MOTH_BESSEL_AIRY, 0)
MOTH_BESSEL_DOUBLE(i1_slope, MOTH_BESSEL_I1, 1)
MOTH_BESSEL_DOUBLE(i0e_slope, MOTH_BESSEL_I0E, 1)
MOTH_BESSEL_DOUBLE(i1e_slope, MOTH_BESSEL_I1E, 1)
static double moth_spherical_j0_f64(double x) { return moth_sinc_slope_f64(0, 0, x); }

#endif

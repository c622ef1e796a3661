/* real_math.h -- defines exp(x) and related functions, in files that compile a family of
** elementwise functions, as the functions of functions.h for the type `real` of the current loop.
** Functions that are not defined here, such as floor(x), are those of <tgmath.h>.
*/
#ifndef MOTH_KERNEL_REAL_MATH_H
#define MOTH_KERNEL_REAL_MATH_H

#include <tgmath.h>

#include "elementwise.h"
#include "functions.h"

#undef exp
#undef exp2
#undef expm1
#undef log
#undef log1p
#undef log2
#undef log10
#undef sin
#undef cos
#undef tan
#undef asin
#undef acos
#undef atan
#undef sinh
#undef cosh
#undef tanh
#undef asinh
#undef acosh
#undef atanh
#undef erf
#undef erfc
#undef pow
#undef atan2
#undef hypot

#define exp(x) FOR_REAL(moth_full_exp)(x)
#define exp2(x) FOR_REAL(moth_exp2)(x)
#define expm1(x) FOR_REAL(moth_expm1)(x)
#define log(x) FOR_REAL(moth_log)(x)
#define log1p(x) FOR_REAL(moth_log1p)(x)
#define log2(x) FOR_REAL(moth_log2)(x)
#define log10(x) FOR_REAL(moth_log10)(x)
#define sin(x) FOR_REAL(moth_sin)(x)
#define cos(x) FOR_REAL(moth_cos)(x)
#define tan(x) FOR_REAL(moth_tan)(x)
#define asin(x) FOR_REAL(moth_asin)(x)
#define acos(x) FOR_REAL(moth_acos)(x)
#define atan(x) FOR_REAL(moth_atan)(x)
#define sinh(x) FOR_REAL(moth_sinh)(x)
#define cosh(x) FOR_REAL(moth_cosh)(x)
#define tanh(x) FOR_REAL(moth_tanh)(x)
#define asinh(x) FOR_REAL(moth_asinh)(x)
#define acosh(x) FOR_REAL(moth_acosh)(x)
#define atanh(x) FOR_REAL(moth_atanh)(x)
#define erf(x) FOR_REAL(moth_erf)(x)
#define erfc(x) FOR_REAL(moth_erfc)(x)
#define pow(x, y) FOR_REAL(moth_pow)(x, y)
#define atan2(x, y) FOR_REAL(moth_atan2)(x, y)
#define hypot(x, y) FOR_REAL(moth_hypot)(x, y)

#endif

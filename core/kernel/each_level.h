/* each_level.h -- compiles the loops of the header LOOPS for f64 (one level, all levels if
** LEVELS_OF_F64 is defined), and for f32 at every level of instructions. Loops of other types need
** all_levels.h only.
**
**     #define LOOPS "softmax_real.h"
**     #include "each_level.h"
**
** The loops use REAL, the type; TARGET, the attribute of each function; NAME(f), the name of a
** function (f_f64, f_f32, f_avx2, f_avx512); MATH(f), a function of exp.h; and VECTOR_BYTES, the
** size of a register. MOTH_BEST(f) of level.h is the f32 function to call; with LEVELS_OF_F64
** MOTH_BEST(f_f64) is the f64 function.
*/
#include "level.h"

#define TARGET
#define VECTOR_BYTES 16
#define REAL double
#define MATH(f) moth_##f##_f64
#ifdef LEVELS_OF_F64
#define NAME(f) f##_f64_f32 /* the plain level, under the name that MOTH_BEST uses */
#else
#define NAME(f) f##_f64
#endif
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES
#if defined(LEVELS_OF_F64) && MOTH_HAS_LEVELS
#define TARGET MOTH_AVX2
#define VECTOR_BYTES 32
#define NAME(f) f##_f64_avx2
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES
#define TARGET MOTH_AVX512
#define VECTOR_BYTES 64
#define NAME(f) f##_f64_avx512
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES
#endif
#undef REAL
#undef MATH

#define REAL float
#define MATH(f) moth_##f##_f32
#include "all_levels.h"
#undef REAL
#undef MATH

/* all_levels.h -- compiles the loops of the header LOOPS at every level of instructions.
**
**     #define LOOPS "copy_level.h"
**     #include "all_levels.h"
**
** The loops use TARGET, the attribute of each function; NAME(f), the name of a function (f_f32,
** f_avx2, f_avx512); and VECTOR_BYTES, the size of a register. MOTH_BEST(f) of level.h is the
** function to call. each_level.h does the same for two types.
*/
#include "level.h"

#define TARGET
#define VECTOR_BYTES 16
#define NAME(f) f##_f32
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES

#if MOTH_HAS_LEVELS

#define TARGET MOTH_AVX2
#define VECTOR_BYTES 32
#define NAME(f) f##_avx2
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES

#define TARGET MOTH_AVX512
#define VECTOR_BYTES 64
#define NAME(f) f##_avx512
#include LOOPS
#undef NAME
#undef TARGET
#undef VECTOR_BYTES

#endif

#undef LOOPS

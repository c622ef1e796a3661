/* fft_lanes.h -- vector shuffles for fft_level.h, for one number of LANES. */
#if LANES == 2
#define LOW 0, 2
#define HIGH 1, 3
#define EVENS 0, 2
#define ODDS 1, 3
#define BACKWARDS 1, 0
#elif LANES == 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#define EVENS 0, 2, 4, 6
#define ODDS 1, 3, 5, 7
#define BACKWARDS 3, 2, 1, 0
#elif LANES == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#define BACKWARDS 7, 6, 5, 4, 3, 2, 1, 0
#elif LANES == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define BACKWARDS 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
#endif
/* The same shuffles within each 16 bytes of two vectors. PIECES(at, c, from) loads a vector with
** the 16 bytes at `from` of the signals c, c + EACH_LANES, ...; PUT_PIECES stores it. These are
** intrinsics, because gcc would use a full shuffle for each piece. */
#if EACH_LANES == 4
#if LANES == 4
#define LOWS 0, 4, 1, 5
#define HIGHS 2, 6, 3, 7
#define FRONTS 0, 1, 4, 5
#define BACKS 2, 3, 6, 7
#define FIRSTS 0, 2, 4, 6
#define SECONDS 1, 3, 5, 7
#define PIECES(at, c, from) AT((at)[c] + (from))
#define PUT_PIECES(at, c, to, v) TO((at)[c] + (to)) = (v)
#elif LANES == 8
#define LOWS 0, 8, 1, 9, 4, 12, 5, 13
#define HIGHS 2, 10, 3, 11, 6, 14, 7, 15
#define FRONTS 0, 1, 8, 9, 4, 5, 12, 13
#define BACKS 2, 3, 10, 11, 6, 7, 14, 15
#define FIRSTS 0, 2, 8, 10, 4, 6, 12, 14
#define SECONDS 1, 3, 9, 11, 5, 7, 13, 15
#define PIECES(at, c, from)                                                    \
  _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((at)[c] + (from))), \
                       _mm_loadu_ps((at)[(c) + 4] + (from)), 1)
#define PUT_PIECES(at, c, to, v)                                            \
  (_mm_storeu_ps((at)[c] + (to), _mm256_castps256_ps128((__m256)(v))),      \
   _mm_storeu_ps((at)[(c) + 4] + (to), _mm256_extractf128_ps((__m256)(v), 1)))
#elif LANES == 16
#define LOWS 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGHS 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define FRONTS 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define BACKS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define FIRSTS 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define SECONDS 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#define INSERTED(v, at, c, g, from) \
  _mm512_insertf32x4(v, _mm_loadu_ps((at)[(c) + 4 * (g)] + (from)), g)
#define PIECES(at, c, from)                                                                      \
  INSERTED(INSERTED(INSERTED(_mm512_castps128_ps512(_mm_loadu_ps((at)[c] + (from))), at, c, 1,   \
                             from), at, c, 2, from), at, c, 3, from)
#define PUT_PIECE(at, c, g, to, v) \
  _mm_storeu_ps((at)[(c) + 4 * (g)] + (to), _mm512_extractf32x4_ps((__m512)(v), g))
#define PUT_PIECES(at, c, to, v)                                             \
  (PUT_PIECE(at, c, 0, to, v), PUT_PIECE(at, c, 1, to, v),                   \
   PUT_PIECE(at, c, 2, to, v), PUT_PIECE(at, c, 3, to, v))
#endif
#elif LANES == 2
#define LOWS 0, 2
#define HIGHS 1, 3
#define PIECES(at, c, from) AT((at)[c] + (from))
#define PUT_PIECES(at, c, to, v) TO((at)[c] + (to)) = (v)
#elif LANES == 4
#define LOWS 0, 4, 2, 6
#define HIGHS 1, 5, 3, 7
#define PIECES(at, c, from)                                                    \
  _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd((at)[c] + (from))), \
                       _mm_loadu_pd((at)[(c) + 2] + (from)), 1)
#define PUT_PIECES(at, c, to, v)                                            \
  (_mm_storeu_pd((at)[c] + (to), _mm256_castpd256_pd128((__m256d)(v))),     \
   _mm_storeu_pd((at)[(c) + 2] + (to), _mm256_extractf128_pd((__m256d)(v), 1)))
#endif
#include "fft_level.h"

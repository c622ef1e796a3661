/* fft_lanes.h -- fft_level.h for one number of LANES: how two vectors are shuffled. */
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
#include "fft_level.h"

/* equal_runs.cuh -- runs of equal keys in a sorted list; the thread at the first element of a run
** loops over it. A run can be most of a long list. So pieces that have a single key are reduced
** first, by a thread for each piece, and then pieces of such pieces: no thread has a long loop. The
** cuts of a list depend on its length alone, so that sums have a fixed order. */
#ifndef MOTH_CUDA_EQUAL_RUNS_CUH
#define MOTH_CUDA_EQUAL_RUNS_CUH

#include "dtypes.cuh"

enum { RUN_PIECE = 128, RUN_LONG = 2048 }; /* shorter lists are not cut */

/* Pieces of RUN_PIECE keys come first, then pieces of RUN_PIECE pieces. */
HD int64_t small_pieces(int64_t n) { return n < RUN_LONG ? 0 : n / RUN_PIECE; }
HD int64_t all_pieces(int64_t n) { return small_pieces(n) + small_pieces(n) / RUN_PIECE; }

/* Loops from `at` to the end of its run in a list of n: piece(i) for a piece that is entirely in
** the run, each(k) for single elements; same(k): does element k belong to the run? Returns the end.
*/
template <class Same, class Each, class Piece>
static __device__ __forceinline__ int64_t through_run(int64_t at, int64_t n, Same same, Each each,
                                                      Piece piece) {
  const int64_t small = RUN_PIECE, large = small * small;
  const int64_t cut = small_pieces(n), end = cut * small;
  while (at < n && same(at)) {
    if (at % small || at >= end || !same(at + small - 1)) {
      each(at++);
    } else if (at % large || at > end - large || !same(at + large - 1)) {
      piece(at / small);
      at += small;
    } else {
      piece(cut + at / large);
      at += large;
    }
  }
  return at;
}

/* Reduces piece i: calls each(k), or piece(i) for smaller pieces. alike(a, b): do elements a to b
** belong to one run that is needed? If not, returns false. */
template <class Alike, class Each, class Piece>
static __device__ __forceinline__ bool through_piece(int64_t i, int64_t n, Alike alike, Each each,
                                                     Piece piece) {
  const int64_t small = RUN_PIECE, cut = small_pieces(n);
  if (i < cut) {
    if (!alike(i * small, (i + 1) * small - 1)) return false;
#pragma unroll 4
    for (int64_t k = i * small; k < (i + 1) * small; k++) each(k);
  } else {
    const int64_t first = (i - cut) * small, last = first + small - 1;
    if (!alike(first * small, last * small + small - 1)) return false;
#pragma unroll 4
    for (int64_t k = first; k <= last; k++) piece(k);
  }
  return true;
}

/* f(first, count) launches a kernel for `count` pieces of a list of n. */
template <class F> static inline int over_pieces(int64_t n, F f) {
  const int64_t cut = small_pieces(n), rest = all_pieces(n) - cut;
  const int status = cut ? f((int64_t)0, cut) : MOTH_OK;
  return status || !rest ? status : f(cut, rest);
}

#endif

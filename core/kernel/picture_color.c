/* picture_color.c -- brightness, contrast and saturation of pictures in bytes: one pass, where ops
** on f32 read and write four times as many bytes several times.
*/
#include "picture_color.h"
#include "base/threads.h"

#include "level.h"

enum { RUN = 256 };

typedef struct job {
  int what;
  int64_t channels, plane;
  double factor;
  const uint8_t *x;
  uint8_t *y;
} job;

#define TARGET
#define NAME(f) f##_f32
#include "picture_color_level.h"
#undef TARGET
#undef NAME
#if MOTH_HAS_LEVELS
#define TARGET MOTH_AVX2
#define NAME(f) f##_avx2
#include "picture_color_level.h"
#undef TARGET
#undef NAME
#define TARGET MOTH_AVX512
#define NAME(f) f##_avx512
#include "picture_color_level.h"
#undef TARGET
#undef NAME
#endif

int moth_picture_adjust(moth_ctx *ctx, int what, int64_t images, int64_t channels, int64_t plane,
                        double factor, const uint8_t *x, uint8_t *y) {
  const job j = {what, channels, plane, factor, x, y};
  return moth_parallel(ctx, images, 1, (double)(channels * plane) / 4, MOTH_BEST(images), &j);
}

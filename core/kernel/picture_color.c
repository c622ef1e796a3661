/* picture_color.c -- brightness, contrast and saturation of pictures in bytes: one pass, where ops
** on f32 read and write four times as many bytes several times.
*/
#include "picture_color.h"
#include "base/threads.h"

enum { RUN = 256 };

typedef struct job {
  int what;
  int64_t channels, plane;
  double factor;
  const uint8_t *x;
  uint8_t *y;
} job;

#define LOOPS "picture_color_level.h"
#include "all_levels.h"

int moth_picture_adjust(moth_ctx *ctx, int what, int64_t images, int64_t channels, int64_t plane,
                        double factor, const uint8_t *x, uint8_t *y) {
  const job j = {what, channels, plane, factor, x, y};
  return moth_parallel(ctx, images, 1, (double)(channels * plane) / 4, MOTH_BEST(images), &j);
}

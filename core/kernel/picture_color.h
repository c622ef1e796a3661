/* picture_color.h -- brightness, contrast and saturation of pictures in bytes. */
#ifndef MOTH_KERNEL_PICTURE_COLOR_H
#define MOTH_KERNEL_PICTURE_COLOR_H

#include "base/context.h"

enum { MOTH_PICTURE_BRIGHTNESS, MOTH_PICTURE_CONTRAST, MOTH_PICTURE_SATURATION };

/* y := x * factor + other * (1 - factor), clipped and truncated. `other` is 0 for brightness, the
** mean of the grey picture for contrast, the grey picture for saturation. x and y are contiguous,
** (images, channels, plane), with 1 or 3 channels. Polls. */
int moth_picture_adjust(moth_ctx *ctx, int what, int64_t images, int64_t channels, int64_t plane,
                        double factor, const uint8_t *x, uint8_t *y);

#endif

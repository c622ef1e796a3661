/* window.c -- the number of windows that fit, and the errors if no window fits. */
#include "window.h"
#include "tensor/shape.h"
#include "base/error.h"

/* No useful size is larger. Below this limit no sum or product of two sizes overflows. */
#define LARGEST (INT64_C(1) << 30)

static int in_range(const moth_tensor *image, const char *arg, int n, const int64_t *size,
                    int64_t least) {
  moth_ctx *ctx = image->ctx;
  for (int i = 0; i < n; i++)
    if (size[i] < least)
      return moth_fail(ctx, MOTH_E_DOMAIN, arg, "numbers from %d on are needed, got %s",
                       (int)least, moth_str_axes(image, n, size));
  for (int i = 0; i < n; i++)
    if (size[i] > LARGEST)
      return moth_fail(ctx, MOTH_E_DOMAIN, arg, "numbers up to 2^30 are needed, got %s",
                       moth_str_axes(image, n, size));
  return MOTH_OK;
}

static bool all(int n, const int64_t *size, int64_t value) {
  for (int i = 0; i < n; i++)
    if (size[i] != value) return false;
  return true;
}

static int does_not_fit(const moth_window *w, const moth_tensor *image, const char *blame) {
  moth_ctx *ctx = image->ctx;
  const char *kernel = moth_str_axes(image, w->axes, w->kernel);
  const char *dilation = "", *padding = "", *dilated = "", *padded = "";
  if (!all(w->axes, w->dilation, 1)) {
    dilated = " with dilation ";
    dilation = moth_str_axes(image, w->axes, w->dilation);
  }
  if (!all(w->axes, w->padding, 0)) {
    padded = " with padding ";
    padding = moth_str_axes(image, w->axes, w->padding);
  }
  return moth_fail(ctx, MOTH_E_SHAPE, blame, "%s%s%s%s does not fit %s%s%s",
                   strcmp(blame, "weight") ? "" : "a kernel of ", kernel, dilated, dilation,
                   moth_str(image), padded, padding);
}

int moth_window_check(const moth_tensor *image, const moth_window *w, const char *blame) {
  int status = in_range(image, blame, w->axes, w->kernel, 1);
  if (!status) status = in_range(image, "stride", w->axes, w->stride, 1);
  if (!status) status = in_range(image, "padding", w->axes, w->padding, 0);
  if (!status) status = in_range(image, "dilation", w->axes, w->dilation, 1);
  return status;
}

int moth_window_fit(moth_window *w, const moth_tensor *image, const char *blame, bool ceil) {
  moth_ctx *ctx = image->ctx;
  int status = moth_window_check(image, w, blame);
  if (status) return status;
  for (int i = 0; i < w->axes; i++) {
    w->in[i] = image->l.shape[image->l.ndim - w->axes + i];
    if (w->in[i] < 0 || w->in[i] > INT64_MAX / 4)
      return moth_fail(ctx, MOTH_E_SHAPE, "input", "%s has a side %s", moth_str(image),
                       w->in[i] < 0 ? "below 0" : "that is too long");
    int64_t padded = w->in[i] + 2 * w->padding[i] + w->extra[i];
    int64_t span = padded - (w->dilation[i] * (w->kernel[i] - 1) + 1);
    if (ceil) span += w->stride[i] - 1;
    if (span < 0) return does_not_fit(w, image, blame);
    int64_t n = span / w->stride[i] + 1;
    /* the last window must start inside the image or its near padding */
    if (ceil && (n - 1) * w->stride[i] >= w->in[i] + w->padding[i]) n--;
    w->out[i] = n;
  }
  return MOTH_OK;
}

/* conv_buffers.h -- convolution, its gradients and transposed convolution for any number of
** dimensions. conv.c compiles this file for images and conv3d.c for volumes:
**
**     #define DIMS 2
**     #include "conv_buffers.h"
**
** y = conv2d(x, w) is linear in x and in w. With dy the gradient of y, conv2d_input(dy, w) is the
** gradient of x and conv2d_weight(x, dy) the gradient of w. The gradients of these two are again
** among the three ops.
*/
#include "conv_fit.h"
#include "autograd/gradient.h"

#define PASTE(a, n, b) a##n##b
#define PASTED(a, n, b) PASTE(a, n, b)
#define CONV(what) PASTED(conv, DIMS, d##what)
#define TRANSPOSED(what) PASTED(conv_transpose, DIMS, d##what)
#define INTS PASTED(INT, DIMS, )
#define STEPS(a)                                                                         \
  .stride = INTS((a)->stride), .padding = (a)->padding, .dilation = INTS((a)->dilation), \
  .groups = (a)->groups
#define SIZES(x) ((x)->l.shape + (x)->l.ndim - DIMS)
/* GRAD and MOTH_CALL with the macro of the op's name expanded. */
#define FLOW(g, x, op, ...) moth_flow(g, x, GRAD(g, op, __VA_ARGS__))
#define CALL(ctx, out, op, ...) MOTH_CALL(ctx, out, op, __VA_ARGS__)

/* -- convolution -- */

static int CONV(_shape)(const CONV(_args) *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, DIMS), &c);
  return status ? status : moth_conv_result(&c, a->input, y);
}

static int CONV(_cpu)(const CONV(_args) *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, DIMS), &c);
  return status ? status : moth_convolve(FORWARD, &c, a->input, a->weight, a->bias, out[0]);
}

static int CONV(_grad)(const CONV(_args) *a, moth_grad *g) {
  if (moth_wants(g, a->weight))
    FLOW(g, a->weight, CONV(_weight), .input = a->input, .output = g->dy,
         .kernel_size = INTS(a->weight->l.shape + 2), STEPS(a));
  moth_spent(g, a->input);
  if (moth_wants(g, a->input))
    FLOW(g, a->input, CONV(_input), .input = g->dy, .weight = a->weight,
         .size = INTS(SIZES(a->input)), STEPS(a));
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, moth_sum_to_channels(g, g->dy, DIMS));
  return g->status;
}

/* -- the gradient of the images or volumes -- */

static int CONV(_input_shape)(const CONV(_input_args) *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, DIMS), &c);
  return status ? status : moth_conv_images(&c, a->input, y);
}

static int CONV(_input_cpu)(const CONV(_input_args) *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, DIMS), &c);
  return status ? status : moth_convolve(INPUT, &c, a->input, a->weight, NULL, out[0]);
}

static int CONV(_input_grad)(const CONV(_input_args) *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    FLOW(g, a->input, CONV(), .input = g->dy, .weight = a->weight, STEPS(a));
  if (moth_wants(g, a->weight))
    FLOW(g, a->weight, CONV(_weight), .input = g->dy, .output = a->input,
         .kernel_size = INTS(a->weight->l.shape + 2), STEPS(a));
  return g->status;
}

/* -- the gradient of the filters -- */

static int CONV(_weight_shape)(const CONV(_weight_args) *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, DIMS), &c);
  return status ? status : moth_conv_filters(&c, y);
}

static int CONV(_weight_cpu)(const CONV(_weight_args) *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, DIMS), &c);
  return status ? status : moth_convolve(WEIGHT, &c, a->input, a->output, NULL, out[0]);
}

static int CONV(_weight_grad)(const CONV(_weight_args) *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    FLOW(g, a->input, CONV(_input), .input = a->output, .weight = g->dy,
         .size = INTS(SIZES(a->input)), STEPS(a));
  if (moth_wants(g, a->output))
    FLOW(g, a->output, CONV(), .input = a->input, .weight = g->dy, STEPS(a));
  return g->status;
}

/* -- transposed convolution -- */

static int TRANSPOSED(_compose)(const TRANSPOSED(_args) *a, moth_tensor **out) {
  const conv_how how = {DIMS, NUMBERS, a->groups, a->padding, a->stride, a->dilation};
  conv_transposed t;
  moth_tensor *y = NULL;
  int status = moth_conv_transposed_fit(a->input, a->weight, a->bias, &how, a->output_padding, &t);
  if (!status)
    status = CALL(a->ctx, &y, CONV(_input), .input = a->input, .weight = a->weight,
                  .size = INTS(t.size), .stride = INTS(a->stride),
                  .padding = {NUMBERS, INTS(t.padding)}, .dilation = INTS(a->dilation),
                  .groups = a->groups);
  return status ? status : moth_conv_transposed_finish(&t, y, a->bias, DIMS, out);
}

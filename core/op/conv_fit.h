/* conv_fit.h -- code shared by convolutions of images and of volumes: checks of shapes and
** arguments, dtypes of the kernels, biases.
*/
#ifndef MOTH_OP_CONV_FIT_H
#define MOTH_OP_CONV_FIT_H

#include "kernel/conv/conv.h"
#include "call/op.h"

enum { NUMBERS, VALID, SAME }; /* values of `padding` */

/* The strides, dilations, padding and groups of a convolution with `dims` spatial dimensions. The
** lists are borrowed. */
typedef struct conv_how {
  int dims;
  int64_t choice, groups; /* choice: value of `padding`, NUMBERS, VALID or SAME */
  const int64_t *padding, *stride, *dilation;
} conv_how;

#define HOW(a, dims) \
  (&(conv_how){dims, (a)->padding.choice, (a)->groups, (a)->padding.at, (a)->stride, (a)->dilation})

/* -- checks: c := the geometry, or an error; layouts of the results -- */

int moth_conv_fit(const moth_tensor *x, const moth_tensor *weight, const moth_tensor *bias,
                  const conv_how *how, moth_conv *c);
/* For the gradient of images or volumes of `size`; dy is the gradient of the result. */
int moth_conv_input_fit(const moth_tensor *dy, const moth_tensor *weight, const int64_t *size,
                        const conv_how *how, moth_conv *c);
/* For the gradient of the filters, whose sizes are `kernel`. */
int moth_conv_weight_fit(const moth_tensor *x, const moth_tensor *dy, const int64_t *kernel,
                         const conv_how *how, moth_conv *c);

int moth_conv_result(const moth_conv *c, const moth_tensor *x, moth_layout *y);
int moth_conv_images(const moth_conv *c, const moth_tensor *dy, moth_layout *y);
int moth_conv_filters(const moth_conv *c, moth_layout *y);

/* -- running the kernels for images or volumes: out := f(a, b) -- */

enum { FORWARD, INPUT, WEIGHT };

int moth_convolve(int what, const moth_conv *c, const moth_tensor *a, const moth_tensor *b,
                  const moth_tensor *bias, moth_tensor *out);

/* The sum over all dimensions but the channels: the gradient of the bias. */
moth_tensor *moth_sum_to_channels(moth_grad *g, moth_tensor *dy, int dims);

/* -- transposed convolution: the gradient of images of `size` with `padding`. If output_padding is
** greater than the stride, the result is computed for all elements reached, and then cut -- */

typedef struct conv_transposed {
  int64_t size[3], padding[3], cut[6];
  bool cuts;
} conv_transposed;

int moth_conv_transposed_fit(const moth_tensor *x, const moth_tensor *weight,
                             const moth_tensor *bias, const conv_how *how,
                             const int64_t *output_padding, conv_transposed *t);
/* *out := y, cut, with the bias. Takes ownership of y. */
int moth_conv_transposed_finish(const conv_transposed *t, moth_tensor *y, moth_tensor *bias,
                                int dims, moth_tensor **out);

#endif

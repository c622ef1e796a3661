/* conv_fit.h -- code shared by convolutions of images and of volumes: checks of shapes and
** arguments, the dtypes in which kernels run, biases.
*/
#ifndef MOTH_OP_CONV_FIT_H
#define MOTH_OP_CONV_FIT_H

#include "kernel/conv/conv.h"
#include "call/op.h"

enum { NUMBERS, VALID, SAME }; /* values of `padding` */

/* How windows move over images (2 dims) or volumes (3): borrowed lists of `dims` numbers. */
typedef struct conv_how {
  int dims;
  int64_t choice, groups; /* choice: of `padding` */
  const int64_t *padding, *stride, *dilation;
} conv_how;

#define HOW(a, dims) \
  (&(conv_how){dims, (a)->padding.choice, (a)->groups, (a)->padding.at, (a)->stride, (a)->dilation})

/* -- checks: c := the geometry, or an error; layouts of the results -- */

int moth_conv_fit(const moth_tensor *x, const moth_tensor *weight, const moth_tensor *bias,
                  const conv_how *how, moth_conv *c);
/* Of the gradient of images or volumes of `size`, given that of the result. */
int moth_conv_input_fit(const moth_tensor *dy, const moth_tensor *weight, const int64_t *size,
                        const conv_how *how, moth_conv *c);
/* Of the gradient of the filters, of `kernel` sizes. */
int moth_conv_weight_fit(const moth_tensor *x, const moth_tensor *dy, const int64_t *kernel,
                         const conv_how *how, moth_conv *c);

int moth_conv_result(const moth_conv *c, const moth_tensor *x, moth_layout *y);
int moth_conv_images(const moth_conv *c, const moth_tensor *dy, moth_layout *y);
int moth_conv_filters(const moth_conv *c, moth_layout *y);

/* -- running the kernels for images or volumes: out := f(a, b) -- */

enum { FORWARD, INPUT, WEIGHT };

int moth_convolve(int what, const moth_conv *c, const moth_tensor *a, const moth_tensor *b,
                  const moth_tensor *bias, moth_tensor *out);

/* The sum over everything but the channels: the gradient of the bias. */
moth_tensor *moth_sum_to_channels(moth_grad *g, moth_tensor *dy, int dims);

/* -- transposed: the gradient of images of `size` with `padding`. If output_padding exceeds a step,
** it is computed for all elements reached, and then `cut` -- */

typedef struct conv_turned {
  int64_t size[3], padding[3], cut[6];
  bool cuts;
} conv_turned;

int moth_conv_turned_fit(const moth_tensor *x, const moth_tensor *weight, const moth_tensor *bias,
                         const conv_how *how, const int64_t *output_padding, conv_turned *t);
/* *out := y, cut, with the bias; takes y. */
int moth_conv_turned_finish(const conv_turned *t, moth_tensor *y, moth_tensor *bias, int dims,
                            moth_tensor **out);

#endif

/* unary.h -- loops of elementwise functions of one tensor, by dtype of the input. */
#ifndef MOTH_KERNEL_UNARY_H
#define MOTH_KERNEL_UNARY_H

#include "elementwise.h"

/* result, x: the same type */
extern moth_inner_table moth_abs_loops, moth_neg_loops, moth_sign_loops, moth_square_loops;
extern moth_inner_table moth_exp_loops, moth_expm1_loops, moth_log_loops, moth_log1p_loops;
extern moth_inner_table moth_sqrt_loops, moth_rsqrt_loops, moth_reciprocal_loops;
extern moth_inner_table moth_sin_loops, moth_cos_loops, moth_tanh_loops, moth_sigmoid_loops;
extern moth_inner_table moth_relu_loops, moth_erf_loops;
extern moth_inner_table moth_floor_loops, moth_ceil_loops, moth_round_loops, moth_trunc_loops;
/* result (bool), x */
extern moth_inner_table moth_logical_not_loops, moth_isnan_loops, moth_isinf_loops;
extern moth_inner_table moth_isfinite_loops;
/* result, x; arg points at two elements, the bounds */
extern moth_inner_table moth_clamp_loops;
/* result, gradient of y, y */
extern moth_inner_table moth_tanh_back_loops, moth_sigmoid_back_loops, moth_relu_back_loops;

#endif

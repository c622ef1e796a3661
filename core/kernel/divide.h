/* divide.h -- x[i] /= by for contiguous float32 or float64 elements. */
#ifndef MOTH_KERNEL_DIVIDE_H
#define MOTH_KERNEL_DIVIDE_H

#include <stdint.h>

void moth_divide(int dtype, void *x, int64_t n, double by); /* dtype: MOTH_F32 or MOTH_F64 */

#endif

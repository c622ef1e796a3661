/* binary.cu -- further functions of two and three tensors, as core/op/binary.h lists them. */
#include "../../core/op/binary.h"

#include "lib/elementwise.cuh"

struct nextafter_form;
template <> constexpr bool of_halves<nextafter_form> = false;
struct isclose_form;
template <> constexpr bool of_wholes<isclose_form> = false; /* they come as f64 */

#define LISTS(ONE, TWO, THREE) \
  BINARY_REALS(TWO)             \
  BINARY_BITS(TWO)              \
  BINARY_OTHERS(TWO)            \
  BINARY_THREES(THREE)
MOTH_CUDA_FAMILY(LISTS)

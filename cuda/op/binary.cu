/* binary.cu -- further functions of two and three tensors (the list is in core/op/binary.h). */
#include "../../core/op/binary.h"

#include "lib/elementwise.cuh"

struct nextafter_form;
template <> constexpr bool of_halves<nextafter_form> = false;
struct isclose_form;
template <> constexpr bool of_integers<isclose_form> = false; /* the arguments are f64 */

#define LISTS(ONE, TWO, THREE)  \
  BINARY_REALS(TWO)             \
  BINARY_BITS(TWO)              \
  BINARY_OTHERS(TWO)            \
  BINARY_THREES(THREE)
MOTH_CUDA_FAMILY(LISTS)

/* fft.h -- arguments of Fourier transforms. Complex numbers are pairs, real and imaginary part, in
** a last dimension of 2, which `dim` does not count. lua/moth/fft.lua builds moth.fft on these ops.
*/
#ifndef MOTH_OP_FFT_H
#define MOTH_OP_FFT_H

#include "call/op.h"

#define FFT_INVERSE(ARG) \
  ARG(bool,   inverse, false, "use exponents with a positive sign") \
  ARG(float,  scale,   1    , "factor of the results")

#define FFT_C2C(ARG) \
  ARG(tensor, input,        , "complex numbers, (..., 2)") \
  ARG(dim,    dim,     -1   , "dimension of the signals") \
  FFT_INVERSE(ARG)
MOTH_ARGS(fft_c2c, FFT_C2C)

#define FFT_R2C(ARG) \
  ARG(tensor, input,        , "real numbers of any shape") \
  ARG(dim,    dim,     -1   , "dimension of the signals") \
  FFT_INVERSE(ARG) \
  ARG(bool,   twice,   false, "multiply coefficients that have a conjugate by 2")
MOTH_ARGS(fft_r2c, FFT_R2C)

#define FFT_C2R(ARG) \
  ARG(tensor, input,        , "coefficients, (..., n / 2 + 1, ..., 2)") \
  ARG(int,    n,            , "length of the signals") \
  ARG(dim,    dim,     -1   , "dimension of the signals") \
  FFT_INVERSE(ARG) \
  ARG(bool,   twice,   true , "count coefficients that have a conjugate twice")
MOTH_ARGS(fft_c2r, FFT_C2R)

#define FFT_MUL(ARG) \
  ARG(tensor, input, , "complex numbers, (..., 2)") \
  ARG(tensor, other, , "complex numbers, broadcast with the first") \
  ARG(bool,   conj, false, "multiply by the conjugates of other")
MOTH_ARGS(fft_mul, FFT_MUL)

#define FFT_COVERED(ARG) \
  ARG(tensor, input, , "sums of the squared windows")
MOTH_ARGS(fft_covered, FFT_COVERED)

#endif

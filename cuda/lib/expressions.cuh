/* expressions.cuh -- turns a line F(kind, name, expression ...) of core/op's lists into a struct
** with the expressions, each a function of any type. Kernels compiled at run time use the same
** line, which is also stored as text. */
#ifndef MOTH_CUDA_EXPRESSIONS_CUH
#define MOTH_CUDA_EXPRESSIONS_CUH

#include "functions.cuh"

/* -- the expressions: x, y, z are operands, a, b, c numeric arguments of the call, `real` their
** type -- */

#define MOTH_EXPRESSION(name, expression)                                              \
  template <class real> HD auto name(real x, real y, real z, real a, real b, real c) { \
    (void)x, (void)y, (void)z, (void)a, (void)b, (void)c;                              \
    return expression;                                                                 \
  }

enum { OF_REALS = 1, OF_INTEGERS = 2, OF_BOOLS = 4, ASKS = 8 };

#define MOTH_FORM_REAL(f) enum { takes = OF_REALS }; MOTH_EXPRESSION(real_, (real)(f))
#define MOTH_FORM_CURVE MOTH_FORM_REAL
#define MOTH_FORM_PAIR MOTH_FORM_REAL
#define MOTH_FORM_SLOW MOTH_FORM_REAL
#define MOTH_FORM_OWN MOTH_FORM_REAL
#define MOTH_FORM_WAVE(f, far) MOTH_FORM_REAL(f)
#define MOTH_FORM_OWN_WAVE MOTH_FORM_WAVE
#define MOTH_FORM_WHOLE(f) enum { takes = OF_INTEGERS }; MOTH_EXPRESSION(integer_, (real)(f))
#define MOTH_FORM_NUMBER(integer, f)                                                \
  enum { takes = OF_REALS | OF_INTEGERS };                                          \
  MOTH_EXPRESSION(integer_, (real)(integer)) MOTH_EXPRESSION(real_, (real)(f))
#define MOTH_FORM_HEAVY MOTH_FORM_NUMBER
#define MOTH_FORM_QUOTIENT(integer, f, near) MOTH_FORM_NUMBER(integer, f)
#define MOTH_FORM_ANY(boolean, integer, f)                                            \
  enum { takes = OF_REALS | OF_INTEGERS | OF_BOOLS };                                 \
  MOTH_EXPRESSION(bool_, (uint8_t)(boolean))                                          \
  MOTH_EXPRESSION(integer_, (real)(integer)) MOTH_EXPRESSION(real_, (real)(f))
#define MOTH_FORM_JOINT MOTH_FORM_NUMBER
#define MOTH_FORM_JOINED MOTH_FORM_ANY
#define MOTH_FORM_BITS(boolean, integer)                                              \
  enum { takes = OF_INTEGERS | OF_BOOLS };                                            \
  MOTH_EXPRESSION(bool_, (uint8_t)(boolean)) MOTH_EXPRESSION(integer_, (real)(integer))
#define MOTH_FORM_QUESTION(integer, f)                                              \
  enum { takes = OF_REALS | OF_INTEGERS | OF_BOOLS | ASKS };                        \
  MOTH_EXPRESSION(bool_, (uint8_t)((integer) != 0))                                 \
  MOTH_EXPRESSION(integer_, (uint8_t)((integer) != 0)) MOTH_EXPRESSION(real_, (uint8_t)((f) != 0))

/* The value for elements of type T. */
template <class Row, class T> HD auto value_of(real_of<T> x, real_of<T> y, real_of<T> z,
                                               const real_of<T> *n) {
  if constexpr (is_real<T>) return Row::real_(x, y, z, n[0], n[1], n[2]);
  else if constexpr (is_bool<T>)
    return Row::bool_(x, y, z, n[0], n[1], n[2]);
  else return Row::integer_(x, y, z, n[0], n[1], n[2]);
}

#ifndef MOTH_AT_RUN_TIME
/* -- the lines as text; fused.cu finds them by the function's name in a section of the plugin -- */

typedef struct moth_form_text {
  const char *name, *text;
} moth_form_text;

#define MOTH_FORM_TEXT(op, line) /* the line before macro expansion */             \
  static const moth_form_text op##_text = {#op, "MOTH_FORM_" line};                \
  __attribute__((used, section("moth_forms"))) static const moth_form_text *const  \
    op##_text_at = &op##_text;
#endif

#endif

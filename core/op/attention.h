/* attention.h -- arguments of attention: softmax(query key^T) value. */
#ifndef MOTH_OP_ATTENTION_H
#define MOTH_OP_ATTENTION_H

#include "call/op.h"

#define ATTENTION_OF(ARG) \
  ARG(tensor,       query,         , "(..., L, E)") \
  ARG(tensor,       key,           , "(..., S, E); leading dimensions are broadcast") \
  ARG(tensor,       value,         , "(..., S, V)")

#define SCALED_DOT_PRODUCT_ATTENTION(ARG) \
  ATTENTION_OF(ARG) \
  ARG(maybe_tensor, attn_mask, none, "(..., L, S): bool, true where a key is used; or numbers " \
                                     "that are added to the scores") \
  ARG(float,        dropout_p,    0, "probability that an attention weight becomes 0") \
  ARG(bool,         is_causal, false, "query i uses keys 1 to i only") \
  ARG(maybe_float,  scale,     none, "factor of the scores; 1 / sqrt(E) when absent") \
  ARG(bool,         enable_gqa, false, "let several heads of the query (dimension -3) share one " \
                                       "head of key and value")
MOTH_ARGS(scaled_dot_product_attention, SCALED_DOT_PRODUCT_ATTENTION)

#define ATTENTION(ARG) \
  ATTENTION_OF(ARG) \
  ARG(maybe_tensor, bias,      none, "(..., L, S), added to the scores") \
  ARG(bool,         is_causal, false, "query i uses keys 1 to i only") \
  ARG(float,        scale,        1, "factor of the scores") \
  ARG(bool,         heads_last, false, "the result is (..., L, H, V): the heads come after the " \
                                       "rows")
MOTH_ARGS(attention, ATTENTION)

#define ATTENTION_BACK(ARG) \
  ARG(tensor,       grad,          , "gradient of the result") \
  ATTENTION_OF(ARG) \
  ARG(tensor,       output,        , "the result") \
  ARG(tensor,       lse,           , "log of the sum of exp of each row's scores") \
  ARG(maybe_tensor, bias,      none, "(..., L, S), added to the scores") \
  ARG(bool,         is_causal, false, "query i uses keys 1 to i only") \
  ARG(float,        scale,        1, "factor of the scores") \
  ARG(bool,         heads_last, false, "the heads of the result come after the rows")
MOTH_ARGS(attention_back, ATTENTION_BACK)

#endif

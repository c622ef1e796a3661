/* embedding.h -- arguments of embedding: vectors of tokens, read from a table. */
#ifndef MOTH_OP_EMBEDDING_H
#define MOTH_OP_EMBEDDING_H

#include "call/op.h"

#define EMBEDDING(ARG) \
  ARG(index,          input,            , "tokens, any shape") \
  ARG(tensor,         weight,           , "the vectors, (tokens, features)") \
  ARG(maybe_position, padding_idx,  none, "a token whose vector gets no gradient") \
  ARG(maybe_float,    max_norm,     none, "largest norm of a vector: vectors of used tokens that " \
                                          "are longer are scaled in place") \
  ARG(float,          norm_type,       2, "order of the norm") \
  ARG(bool,           scale_grad_by_freq, false, "divide gradients by the number of times the " \
                                                 "token occurs") \
  ARG(bool,           sparse,      false, "the gradient of `weight` is a sparse tensor of the " \
                                          "used rows")
MOTH_ARGS(embedding, EMBEDDING)

#define EMBEDDING_RENORM_(ARG) \
  ARG(tensor,         weight,           , "the vectors, (tokens, features), changed in place") \
  ARG(index,          input,            , "tokens, any shape") \
  ARG(float,          max_norm,         , "largest norm of a vector") \
  ARG(float,          norm_type,       2, "order of the norm")
MOTH_ARGS(embedding_renorm_, EMBEDDING_RENORM_)

/* The factor of a token's gradient: 0 for padding; else 1, or with scale_grad_by_freq 1 / number of
** occurrences. */
#define EMBEDDING_ROWS(ARG) \
  ARG(tensor,         weight,           , "the vectors, (tokens, features)") \
  ARG(index,          input,            , "tokens, any shape") \
  ARG(maybe_position, padding_idx,  none, "a token whose vector gets no gradient") \
  ARG(bool,           scale_grad_by_freq, false, "divide gradients by the number of times the " \
                                                 "token occurs") \
  ARG(bool,           shared,      false, "multiply the rows by these factors in the forward " \
                                          "pass too") \
  ARG(bool,           sparse,      false, "the gradient of `weight` is a sparse tensor of the " \
                                          "used rows")
MOTH_ARGS(embedding_rows, EMBEDDING_ROWS)

#define EMBEDDING_BACK(ARG) \
  ARG(tensor,         input,            , "gradient of the result, (..., features)") \
  ARG(index,          index,            , "tokens, (...)") \
  ARG(int,            num_embeddings,   , "rows of the table") \
  ARG(maybe_position, padding_idx,  none, "a token whose vector gets no gradient") \
  ARG(bool,           scale_grad_by_freq, false, "divide gradients by the number of times the " \
                                                 "token occurs")
MOTH_ARGS(embedding_back, EMBEDDING_BACK)

/* Each token of a bag adds its vector; padding adds nothing. */
#define BAG_SUM(ARG) \
  ARG(index,          input,            , "tokens, (B, N), or (N) with a list") \
  ARG(tensor,         weight,           , "the vectors, (tokens, features)") \
  ARG(maybe_tensor,   per_sample_weights, none, "factor of each token's vector") \
  ARG(maybe_index,    list,         none, "bag of each token, (N), ascending") \
  ARG(int,            bags,            0, "number of bags, with a list") \
  ARG(maybe_position, padding_idx,  none, "a token that is ignored") \
  ARG(bool,           scale_grad_by_freq, false, "divide gradients by the number of times the " \
                                                 "token occurs")
MOTH_ARGS(bag_sum, BAG_SUM)

/* Returns the tokens as a dense list, checked against `rows` rows of the table. Owned; NULL after
** an error. */
moth_tensor *moth_tokens_of(const moth_tensor *index, int64_t rows, const char *arg);
/* *y := the position of the padding token, or -1 without padding. */
int moth_real_padding(moth_ctx *ctx, int64_t padding, int64_t rows, int64_t *y);

#endif

/* recurrent.h -- arguments of recurrent networks: single steps, and sequences through layers in one
** or two directions. The order of the arguments is PyTorch's.
*/
#ifndef MOTH_OP_RECURRENT_H
#define MOTH_OP_RECURRENT_H

#include "call/op.h"

#define RECURRENT_CELL(ARG) \
  ARG(tensor,       input,     , "one step of each sequence, (N, I)") \
  ARG(tensor,       hx,        , "states before this step, (N, H)") \
  ARG(tensor,       w_ih,      , "weights of the input, (gates H, I); gates: 1, or 3 for a GRU") \
  ARG(tensor,       w_hh,      , "weights of the state, (gates H, H)") \
  ARG(maybe_tensor, b_ih,  none, "bias of the input's weights, (gates H,)") \
  ARG(maybe_tensor, b_hh,  none, "bias of the state's weights, (gates H,)")
MOTH_ARGS(rnn_tanh_cell, RECURRENT_CELL)
MOTH_ARGS(rnn_relu_cell, RECURRENT_CELL)
MOTH_ARGS(gru_cell, RECURRENT_CELL)

#define LSTM_CELL(ARG) \
  ARG(tensor,       input,     , "one step of each sequence, (N, I)") \
  ARG(tensors,      hx,        , "states and cells before this step, {(N, H), (N, H)}") \
  ARG(tensor,       w_ih,      , "weights of the input, (4 H, I): gates i, f, g, o") \
  ARG(tensor,       w_hh,      , "weights of the state, (4 H, H)") \
  ARG(maybe_tensor, b_ih,  none, "bias of the input's weights, (4 H,)") \
  ARG(maybe_tensor, b_hh,  none, "bias of the state's weights, (4 H,)")
MOTH_ARGS(lstm_cell, LSTM_CELL)

#define RECURRENT_REST(ARG) \
  ARG(tensors,   params,         , "w_ih, w_hh[, b_ih, b_hh] for each layer and direction") \
  ARG(bool,      has_biases, true, "true if params contain biases") \
  ARG(int,       num_layers,    1, "number of layers; each layer reads the output of the " \
                                   "previous layer") \
  ARG(float,     dropout,       0, "probability that an element between layers becomes 0") \
  ARG(bool,      train,     false, "apply dropout") \
  ARG(bool,      bidirectional, false, "add layers that run backward in time") \
  ARG(bool,      batch_first, false, "input and output are (N, L, ...) instead of (L, N, ...)") \
  ARG(ints,      batch_sizes, none, "number of sequences at each step, descending; all when " \
                                    "absent") \
  ARG(generator, generator,  none, "source of random numbers for dropout")

#define RECURRENT(ARG) \
  ARG(tensor, input, , "sequences, (L, N, I)") \
  ARG(tensor, hx,    , "first states, (layers * directions, N, H)") \
  RECURRENT_REST(ARG)
MOTH_ARGS(rnn_tanh, RECURRENT)
MOTH_ARGS(rnn_relu, RECURRENT)
MOTH_ARGS(gru, RECURRENT)

#define LSTM_LAYERS(ARG) \
  ARG(tensor,  input, , "sequences, (L, N, I)") \
  ARG(tensors, hx,    , "first states and cells, each (layers * directions, N, H)") \
  RECURRENT_REST(ARG)
MOTH_ARGS(lstm, LSTM_LAYERS)

/* The gradient of all recurrent ops. A cell is a sequence of one step. */
#define RECURRENT_BACK(ARG) \
  ARG(tensor,       input,         , "sequences, (L, N, I)") \
  ARG(tensors,      hx,            , "first states, and cells of an LSTM") \
  ARG(tensors,      params,        , "w_ih, w_hh[, b_ih, b_hh] for each layer and direction") \
  ARG(tensor,       reserve,       , "values saved by the forward pass") \
  ARG(maybe_tensor, dy,        none, "gradient of the output") \
  ARG(maybe_tensor, dh,        none, "gradient of the last states") \
  ARG(maybe_tensor, dc,        none, "gradient of the last cells") \
  ARG(enum,         mode,          =tanh|relu|lstm|gru, "kind of network") \
  ARG(bool,         has_biases, true, "true if params contain biases") \
  ARG(int,          num_layers,   1, "number of layers") \
  ARG(bool,         masked,   false, "true if dropout was applied") \
  ARG(bool,         bidirectional, false, "true if the network has two directions") \
  ARG(bool,         batch_first, false, "true if input and dy are (N, L, ...)") \
  ARG(ints,         batch_sizes, none, "number of sequences at each step") \
  ARG(bool,         input_wanted, true, "compute the gradient of the input")
MOTH_ARGS(recurrent_back, RECURRENT_BACK)

#define CELL_BACK(ARG) \
  ARG(tensor,       input,     , "one step of each sequence, (N, I)") \
  ARG(tensors,      hx,        , "states before this step, and cells of an LSTM") \
  ARG(tensor,       w_ih,      , "weights of the input") \
  ARG(tensor,       w_hh,      , "weights of the state") \
  ARG(tensor,       reserve,   , "values saved by the forward pass") \
  ARG(maybe_tensor, dh,    none, "gradient of the state") \
  ARG(maybe_tensor, dc,    none, "gradient of the cell") \
  ARG(enum,         mode,      =tanh|relu|lstm|gru, "kind of network") \
  ARG(bool,         input_wanted, true, "compute the gradient of the input")
MOTH_ARGS(cell_back, CELL_BACK)

#endif

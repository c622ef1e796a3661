/* create.h -- arguments of the ops that create tensors from a shape. */
#ifndef MOTH_OP_CREATE_H
#define MOTH_OP_CREATE_H

#include "call/op.h"

#define CREATE_WHERE(ARG) \
  ARG(dtype,  dtype, none, "element type; the default dtype when absent") \
  ARG(device, device, cpu, "device of the result")
#define CREATE_LIKE(ARG) \
  ARG(tensor, input,     , "tensor with the shape") \
  ARG(dtype,  dtype, none, "element type; the input's when absent") \
  ARG(device, device, cpu, "device of the result") \
  MOTH_FORMAT_ROW(ARG, "order of the dimensions in memory: the input's when absent")

#define ZEROS(ARG) ARG(shape, size, , "sizes") CREATE_WHERE(ARG)
MOTH_ARGS(zeros, ZEROS)
#define ONES(ARG) ARG(shape, size, , "sizes") CREATE_WHERE(ARG)
MOTH_ARGS(ones, ONES)
#define EMPTY(ARG) ARG(shape, size, , "sizes") CREATE_WHERE(ARG)
MOTH_ARGS(empty, EMPTY)

#define FULL(ARG) \
  ARG(shape,  size,      , "sizes") \
  ARG(scalar, fill_value, , "value of every element") \
  ARG(dtype,  dtype, none, "element type; when absent the default dtype for a number, bool for a " \
                           "boolean, i64 for an int64") \
  ARG(device, device, cpu, "device of the result")
MOTH_ARGS(full, FULL)

#define ZEROS_LIKE(ARG) CREATE_LIKE(ARG)
MOTH_ARGS(zeros_like, ZEROS_LIKE)
#define ONES_LIKE(ARG) CREATE_LIKE(ARG)
MOTH_ARGS(ones_like, ONES_LIKE)
#define EMPTY_LIKE(ARG) CREATE_LIKE(ARG)
MOTH_ARGS(empty_like, EMPTY_LIKE)

#define FULL_LIKE(ARG) \
  ARG(tensor, input,     , "tensor with the shape") \
  ARG(scalar, fill_value, , "value of every element") \
  ARG(dtype,  dtype, none, "element type; the input's when absent") \
  ARG(device, device, cpu, "device of the result") \
  MOTH_FORMAT_ROW(ARG, "order of the dimensions in memory: the input's when absent")
MOTH_ARGS(full_like, FULL_LIKE)

#define ARANGE(ARG) \
  ARG(scalar, start,     , "first value") \
  ARG(scalar, stop,      , "end, not included") \
  ARG(scalar, step,     1, "difference of consecutive values, may be negative") \
  ARG(dtype,  dtype, none, "element type; when absent i64 if all three are integers, else the " \
                           "default dtype") \
  ARG(device, device, cpu, "device of the result")
MOTH_ARGS(arange, ARANGE)

#define LINSPACE(ARG) \
  ARG(float,  start,     , "first value") \
  ARG(float,  stop,      , "last value") \
  ARG(int,    steps,     , "number of values") \
  CREATE_WHERE(ARG)
MOTH_ARGS(linspace, LINSPACE)

#define EYE(ARG) \
  ARG(int,    n,         , "rows") \
  ARG(maybe_int, m,  none, "columns; as many as rows when absent") \
  CREATE_WHERE(ARG)
MOTH_ARGS(eye, EYE)

#define TRIANGLE_INDICES(ARG) \
  ARG(int,    row,       , "rows of the matrix") \
  ARG(int,    col,       , "columns") \
  ARG(int,    offset,   0, "diagonal that bounds the triangle; positive: above the main " \
                           "diagonal") \
  ARG(bool,   upper, false, "the upper triangle instead of the lower") \
  ARG(dtype,  dtype, none, "element type; i64 when absent") \
  ARG(device, device, cpu, "device of the result")
MOTH_ARGS(triangle_indices, TRIANGLE_INDICES)

#define TRIL(ARG) \
  ARG(tensor, input,     , "matrices, (..., N, M)") \
  ARG(int,    diagonal, 0, "last diagonal kept; positive: above the main diagonal")
MOTH_ARGS(tril, TRIL)

#define TRIU(ARG) \
  ARG(tensor, input,     , "matrices, (..., N, M)") \
  ARG(int,    diagonal, 0, "first diagonal kept; positive: above the main diagonal")
MOTH_ARGS(triu, TRIU)

#endif

/* strided.h -- arguments of the core's internal ops on layouts: the elements of a base that a view
** contains.
**
** L = (base_size, base_stride, base_offset) is the layout of a base tensor, V = (size, stride,
** offset) is the layout of a view into the same storage; both count in elements. Only elements in
** both L and V are used. The tensor arguments may have any other layout in memory.
*/
#ifndef MOTH_OP_STRIDED_H
#define MOTH_OP_STRIDED_H

#include "call/op.h"

#define STRIDED_GEOMETRY(ARG) \
  ARG(ints, base_size,   , "sizes of the base") \
  ARG(ints, base_stride, , "strides of the base") \
  ARG(int,  base_offset, , "storage offset of the base") \
  ARG(ints, size,        , "sizes of the view") \
  ARG(ints, stride,      , "strides of the view") \
  ARG(int,  offset,      , "offset of the view in the same storage")

#define STRIDED_GET(ARG) \
  ARG(tensor, input,     , "values of the base, of shape base_size") \
  STRIDED_GEOMETRY(ARG)
MOTH_ARGS(strided_get, STRIDED_GET)

#define STRIDED_SUM(ARG) \
  ARG(tensor, input,     , "values of the view, of shape size") \
  STRIDED_GEOMETRY(ARG)
MOTH_ARGS(strided_sum, STRIDED_SUM)

#define STRIDED_PUT(ARG) \
  ARG(tensor, input,     , "values of the base, of shape base_size") \
  ARG(tensor, source,    , "values of the view, of shape size") \
  STRIDED_GEOMETRY(ARG)
MOTH_ARGS(strided_put, STRIDED_PUT)

#endif

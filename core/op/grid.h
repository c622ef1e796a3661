/* grid.h -- arguments of sampling at the points of a grid: grid_sample and the ops of its
** gradients.
*/
#ifndef MOTH_OP_GRID_H
#define MOTH_OP_GRID_H

#include "call/op.h"

#define GRID_HOW(ARG) \
  ARG(enum, mode, bilinear|nearest|bicubic, "interpolation between elements") \
  ARG(enum, padding_mode, zeros|border|reflection, "values outside: zeros, the nearest element, " \
                                                   "or the mirrored image") \
  ARG(bool, align_corners, false, "-1 and 1 are the centres of the corner elements instead of " \
                                  "their outer edges")

#define GRID_SAMPLE(ARG) \
  ARG(tensor, input, , "images, (N, C, H, W), or volumes, (N, C, D, H, W)") \
  ARG(tensor, grid,  , "coordinates of each element of the result, (x, y) or (x, y, z), from -1 " \
                       "to 1: (N, OH, OW, 2) or (N, OD, OH, OW, 3)") \
  GRID_HOW(ARG)
MOTH_ARGS(grid_sample, GRID_SAMPLE)

#define GRID_SAMPLE_BACK(ARG) \
  ARG(tensor, grad, , "gradient of the result") \
  ARG(tensor, grid, , "the coordinates") \
  ARG(shape,  size, , "sizes of the images") \
  GRID_HOW(ARG)
MOTH_ARGS(grid_sample_back, GRID_SAMPLE_BACK)

#define GRID_SAMPLE_TURN(ARG) \
  ARG(tensor, grad,  , "gradient of the result") \
  ARG(tensor, input, , "images") \
  ARG(tensor, grid,  , "the coordinates") \
  GRID_HOW(ARG)
MOTH_ARGS(grid_sample_turn, GRID_SAMPLE_TURN)

/* For each point of the grid: the positions of the K elements that it interpolates, and their
** weights. Outside of the image the position is -1 and the weight 0. */
#define GRID_WEIGHTS(ARG) \
  ARG(tensor, grid,  , "the coordinates") \
  ARG(shape,  size,  , "sizes of the images") \
  GRID_HOW(ARG) \
  ARG(int3,   order, 0, "order of the derivative for x, y and z")
MOTH_ARGS(grid_weights, GRID_WEIGHTS)

#define GRID_POSITIONS(ARG) \
  ARG(tensor, grid,  , "the coordinates") \
  ARG(shape,  size,  , "sizes of the images") \
  GRID_HOW(ARG)
MOTH_ARGS(grid_positions, GRID_POSITIONS)

#endif

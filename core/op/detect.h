/* detect.h -- the face of what detectors of objects need beside what all nets do. */
#ifndef MOTH_OP_DETECT_H
#define MOTH_OP_DETECT_H

#include "call/op.h"

#define NMS_KEPT(ARG) \
  ARG(tensor, boxes,         , "corners x1, y1, x2, y2: (N, 4), the best box first") \
  ARG(float,  iou_threshold, , "a box that overlaps a better one by more than this goes") \
  ARG(maybe_index, idxs, none, "classes, (N): boxes of different ones may overlap")
MOTH_ARGS(nms_kept, NMS_KEPT)

#endif

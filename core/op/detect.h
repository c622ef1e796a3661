/* detect.h -- arguments of ops for object detection. */
#ifndef MOTH_OP_DETECT_H
#define MOTH_OP_DETECT_H

#include "call/op.h"

#define NMS_KEPT(ARG) \
  ARG(tensor, boxes,         , "corners x1, y1, x2, y2: (N, 4), the best box first") \
  ARG(float,  iou_threshold, , "a box is removed if its IoU with a better box is greater") \
  ARG(maybe_index, idxs, none, "classes, (N): boxes of different classes may overlap")
MOTH_ARGS(nms_kept, NMS_KEPT)

#endif

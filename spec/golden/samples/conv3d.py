"""Convolutions of volumes."""

import torch.nn.functional as F

from kit import R, op

X = (3, 3, 4)
K = (2, 1, 2)
LATE = {"tol": {"float16": 4e-3, "bfloat16": 3.2e-2},
        "why": "the bias joins after the product has been rounded"}

f = op("conv3d", "input weight bias stride padding dilation groups", F.conv3d, "matmul")
f(R(2, 2, *X), R(3, 2, *K), R(3))
f("no bias", R(1, 2, *X), R(3, 2, *K))
f("stride", R(1, 2, *X), R(3, 2, *K), R(3), [2, 1, 2])
f("a stride beyond the filters", R(1, 2, 5, 2, 3), R(2, 2, 1, 2, 2), stride=[3, 1, 1])
f("padding", R(1, 2, *X), R(3, 2, *K), R(3), 1, [2, 1, 0])
f("dilation", R(1, 1, *X), R(2, 1, *K), R(2), dilation=[2, 1, 3])
f("groups", R(1, 4, *X), R(2, 2, *K), R(2), groups=2)
f("depthwise", R(1, 3, *X), R(3, 1, *K), R(3), groups=3)
f("all at once", R(1, 2, *X), R(2, 1, *K), R(2), [2, 1, 2], [1, 2, 1], [2, 1, 1], 2)
f("filters of size 1", R(1, 2, *X), R(3, 2, 1, 1, 1), R(3))
f("filters along the depth", R(1, 2, *X), R(3, 2, 2, 1, 1), R(3), [2, 1, 1],
  [1, 0, 0])
f("filters of depth 1", R(1, 2, *X), R(3, 2, 1, 2, 3), R(3))
f("filters as deep as the volume", R(2, 2, *X), R(3, 2, 3, 2, 2), R(3))
f("no batch dimension", R(2, *X), R(3, 2, *K), R(3))
f("no volumes", R(0, 2, *X), R(3, 2, *K), R(3))
f("a repeated volume", R(1, 2, *X).then(lambda x: x.expand(3, *x.shape[1:])), R(3, 2, *K))
f("same", R(1, 1, *X), R(2, 1, 2, 3, 2), padding="same")
f("valid", R(1, 1, *X), R(2, 1, *K), padding="valid")
f.raises("E_SHAPE", "channels differ", R(1, 3, *X), R(3, 2, *K))
f.raises("E_SHAPE", "a filter larger than the volume", R(1, 2, 2, 3, 3), R(3, 2, 3, 3, 3))

f = op("conv_transpose3d", "input weight bias stride padding output_padding groups dilation",
       F.conv_transpose3d, "matmul")
X = (2, 2, 3)
f(R(2, 2, *X), R(2, 3, *K), R(3), **LATE)
f("no bias", R(1, 2, *X), R(2, 3, *K), **LATE)
f("stride", R(1, 2, *X), R(2, 3, *K), R(3), [2, 1, 2], **LATE)
f("padding", R(1, 2, *X), R(2, 3, *K), R(3), 1, [1, 0, 1], [0, 0, 0], **LATE)
f("output padding", R(1, 2, *X), R(2, 3, *K), R(3), [2, 2, 1], [1, 0, 1], [1, 1, 0], **LATE)
f("groups", R(1, 2, *X), R(2, 2, *K), R(4), groups=2, **LATE)
f("dilation", R(1, 1, *X), R(1, 2, *K), R(2), dilation=[2, 1, 2], **LATE)
f("no batch dimension", R(2, *X), R(2, 3, *K), R(3), **LATE)
f("filters of size 1", R(1, 2, *X), R(2, 3, 1, 1, 1), **LATE)
f.raises("E_SHAPE", "channels differ", R(1, 3, *X), R(2, 3, *K))

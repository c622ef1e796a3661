"""Sampling at the positions of a grid."""

import torch
import torch.nn.functional as F

from kit import R, S, T, V, inf, nan, op

f = op("grid_sample", "input grid mode padding_mode align_corners",
       lambda x, g, mode="bilinear", padding_mode="zeros", align_corners=False:
       F.grid_sample(x, g, mode, padding_mode, align_corners), "composed", second=False)


def far(*shape):
    """Positions, also outside, without kinks: odd multiples of 1/32 are no centres of elements."""
    return S(*shape).then(lambda x: (x * 16 * 2 + 1) / 32)


PLACES = "a place of half types is too coarse"
ONLY = {"dtypes": ["float64", "float32"], "why": PLACES}
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            f(f"{mode}, {padding}, {align}", R(2, 3, 5, 7), far(2, 3, 4, 2), mode, padding, align,
              **ONLY)
for padding in ("zeros", "border", "reflection"):
    f(f"a volume, {padding}", R(1, 2, 3, 5, 7), far(1, 2, 3, 2, 3), "bilinear", padding, **ONLY)
f("a volume, nearest", R(1, 2, 3, 5, 7), far(1, 2, 3, 2, 3), "nearest", "border", True, **ONLY)
f("a volume, bicubic", R(1, 2, 3, 5, 4), far(1, 2, 2, 1, 3), "bicubic", "reflection", **ONLY)
f("half types, too", R(1, 2, 4, 4), V(1, 2, 3, 2).then(lambda x: (x * 4).round() / 4))
f("one pixel", R(1, 2, 1, 1), far(1, 2, 2, 2), padding_mode="reflection", align_corners=True,
  **ONLY)
f("far away", R(1, 1, 3, 3), T([[[[1e6, 0.25], [0.125, -1e9], [2e20, 2e20]]]]), **ONLY)
f("not a number", R(1, 1, 3, 3), T([[[[nan, 0.25], [0.125, 0.25]]]]), grad=False, **ONLY)
f("no places", R(1, 2, 3, 3), far(1, 0, 2, 2))
f("no samples", R(0, 2, 3, 3), far(0, 2, 2, 2))
f("no channels", R(1, 0, 3, 3), far(1, 2, 2, 2), grad=False)
f.raises("E_SHAPE", R(1, 2, 3, 3), far(2, 2, 2, 2))
f.raises("E_SHAPE", R(1, 2, 3, 3), far(1, 2, 2, 3))
f.raises("E_SHAPE", R(1, 2, 0, 3), far(1, 2, 2, 2))

f = op("affine_grid", "theta size align_corners", F.affine_grid, "composed")
f(R(2, 2, 3), [2, 3, 4, 5])
f(R(2, 2, 3), [2, 3, 4, 5], True)
f("a volume", R(1, 3, 4), [1, 2, 3, 2, 4])
f("a volume, aligned", R(1, 3, 4), [1, 2, 3, 2, 4], align_corners=True)
f("one pixel", R(1, 2, 3), [1, 1, 1, 1])
f("a row", R(1, 2, 3), [1, 1, 1, 4], align_corners=True)
f.raises("E_SHAPE", R(2, 2, 3), [1, 3, 4, 5])
f.raises("E_SHAPE", R(2, 3, 3), [2, 3, 4, 5])

"""Composite functions: diagflat, interpolate with antialias, and others."""

import torch
import torch.nn.functional as F

from kit import I, R, exempt, op

exempt("fractional_max_pool3d", "random: spec/nn/rare_spec.lua has PyTorch's numbers for given draws")

f = op("diagflat", "input offset", torch.diagflat)
f(R(3))
f("a matrix", R(2, 3), 1)
f("below", R(2, 2), -2)
f("0-d", R())
f("empty", R(0, 2))
f("int64", I(2, 2))

f = op("interpolate", "input size scale_factor mode align_corners recompute_scale_factor antialias",
       F.interpolate, "soft")
for mode in ("bilinear", "bicubic"):
    options = {"mode": mode, "antialias": True}
    f(f"{mode}, smaller", R(2, 2, 9, 11), [4, 5], **options)
    f(f"{mode}, larger", R(1, 2, 3, 4), [5, 7], **options)
    f(f"{mode}, one side alone", R(1, 2, 7, 6), [3, 6], **options)
    f(f"{mode}, to one", R(1, 2, 5, 7), [1, 1], **options)
    f(f"{mode}, corners", R(1, 2, 9, 7), [4, 3], align_corners=True, **options)
    f(f"{mode}, corners, to one", R(1, 2, 4, 3), [1, 2], align_corners=True, **options)
    f(f"{mode}, by factors", R(1, 2, 7, 10), scale_factor=[0.45, 0.62], **options)
    f(f"{mode}, by factors, recomputed", R(1, 2, 7, 10), scale_factor=[0.45, 0.62],
      recompute_scale_factor=True, **options)
    f(f"{mode}, of none", R(0, 2, 5, 5), [2, 3], **options)

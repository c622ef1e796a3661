"""Volumes: pools, padding and interpolation in three dimensions."""

import torch.nn.functional as F

from kit import R, T, inf, nan, op


def named(fn):
    """PyTorch's pools with positional and named arguments alike."""
    return lambda *args, **kw: fn(*args, **kw)


X = (3, 4, 5)
SPECIAL = T([nan, 1.0, inf, -inf, 2.0, -inf, nan, nan, -inf, -inf, -inf, -inf]).reshape(
    1, 1, 3, 2, 2)

f = op("max_pool3d", "input kernel_size stride padding dilation ceil_mode return_indices",
       named(F.max_pool3d), returns=(1,))
g = op("avg_pool3d", "input kernel_size stride padding ceil_mode count_include_pad",
       named(F.avg_pool3d), "soft")
for h in (f, g):
    h(R(2, 2, *X), 2)
    h("overlapping", R(1, 2, *X), [2, 3, 2], 1)
    h("padding", R(1, 1, *X), [3, 2, 3], padding=[1, 0, 1], stride=2)
    h("ceil_mode", R(1, 1, *X), 2, ceil_mode=True)
    h("ceil_mode and padding", R(1, 1, *X), 2, [2, 3, 2], 1, ceil_mode=True)
    h("no batch dimension", R(2, *X), 2)
    h("windows of size 1", R(1, 1, *X), 1)
    h("windows of one row", R(1, 1, *X), [1, 1, 3])
    h("windows along the depth", R(1, 1, *X), [3, 1, 1])
    h("no volumes", R(0, 2, *X), 2)
    h("stride 0", R(1, 1, *X).then(lambda x: x.expand(2, 2, *x.shape[2:])), 2)
    h("special values", SPECIAL, [2, 1, 2], 1, grad=False)
    h.raises("E_SHAPE", "a window larger than the volume", R(1, 1, 2, 3, 3), 3)
    h.raises("E_SHAPE", "an image", R(3, 4, 5), 2)
    h.raises("E_DOMAIN", "padding beyond half the window", R(1, 1, *X), 2, 1, [0, 0, 2])
f("dilation", R(1, 1, 4, 4, 5), 2, 1, dilation=[2, 1, 3])
f("dilation and padding", R(1, 1, *X), [2, 2, 3], 1, 1, dilation=[1, 1, 2])
f("ties", T([1.0] * 12).reshape(1, 1, 2, 2, 3), 2, 1)
f("positions", R(2, 2, *X), [2, 3, 2], [1, 1, 2], 1, return_indices=True)
f("positions of ties", T([1.0] * 12).reshape(1, 1, 2, 2, 3), 2, 1, return_indices=True)
f("positions of special values", SPECIAL, 2, 1, 1, return_indices=True, grad=False)
g("padding does not count", R(1, 1, *X), [3, 2, 3], padding=1, count_include_pad=False)
g("padding does not count in ceil_mode", R(1, 1, *X), 2, 2, 1, True, False)
g("another divisor", R(1, 1, *X), 2, divisor_override=3)
g("another divisor in ceil_mode", R(1, 1, *X), [2, 3, 2], 2, 1, True, divisor_override=-2)

f = op("adaptive_max_pool3d", "input output_size return_indices", F.adaptive_max_pool3d,
       returns=(1,))
g = op("adaptive_avg_pool3d", "input output_size", F.adaptive_avg_pool3d, "soft")
for h in (f, g):
    h(R(2, 2, *X), 2)
    h("to one", R(2, 2, *X), 1)
    h("the same size", R(1, 2, *X), list(X))
    h("larger", R(1, 1, *X), [5, 3, 7])
    h("no batch dimension", R(2, *X), 2)
    h("seventeen", R(1, 1, 2, 2, 17), [1, 2, 5])
    h("deep", R(1, 1, 17, 2, 2), [5, 1, 2])
    h("stride 0", R(1, 1, *X).then(lambda x: x.expand(2, 2, *x.shape[2:])), 2)
f("special values", SPECIAL, [2, 1, 2], return_indices=True, grad=False)
f("positions", R(2, 2, *X), [2, 3, 2], return_indices=True)
f("positions of ties", T([1.0] * 12).reshape(1, 1, 3, 2, 2), 2, return_indices=True)

f = op("pad", "input pad mode value", F.pad)
f("volumes", R(1, 2, 2, 3, 2), [1, 2, 0, 1, 1, 0])
f("volumes cut and filled", R(1, 1, 3, 3, 4), [-1, 2, 1, -1, 2, 0], "constant", -1.5)
for mode in ("reflect", "replicate", "circular"):
    f(mode + " volumes", R(1, 2, 3, 2, 4), [2, 1, 1, 0, 1, 2], mode)
    f(mode + " volumes without a batch", R(2, 3, 2, 4), [1, 2, 0, 1, 2, 1], mode)
f.raises("E_SHAPE", "reflects beyond the depth", R(1, 1, 2, 3, 3), [0, 0, 0, 0, 2, 0], "reflect")

f = op("interpolate", "input size scale_factor mode align_corners", F.interpolate, "soft")
for mode in ("nearest", "nearest-exact", "area", "trilinear"):
    f(mode + " volumes", R(1, 2, 2, 3, 2), [3, 5, 4], mode=mode)
    f(mode + " volumes, smaller", R(2, 1, 5, 4, 3), [2, 3, 1], mode=mode)
    f(mode + " volumes by a factor", R(1, 1, 2, 3, 4), scale_factor=2, mode=mode)
    f(mode + " volumes by a factor of each", R(1, 1, 3, 2, 4), scale_factor=[1.4, 2.0, 0.6],
      mode=mode)
f("trilinear by corners", R(1, 1, 2, 3, 2), [4, 5, 3], mode="trilinear", align_corners=True)
f("trilinear by a factor that is worked out anew", R(1, 1, 2, 3, 2), scale_factor=1.75,
  mode="trilinear", recompute_scale_factor=True)
f("trilinear of the same size", R(1, 1, 2, 3, 2), [2, 3, 2], mode="trilinear")
f("no volumes", R(0, 2, 2, 3, 2), [3, 3, 3], mode="trilinear", grad=False)
f.raises("E_SHAPE", "trilinear images", R(1, 1, 3, 3), [3, 3], mode="trilinear")

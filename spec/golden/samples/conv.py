"""Convolutions, pools, padding, interpolation."""

import torch
import torch.nn.functional as F

from kit import B, I, N, P, R, S, T, U, V, inf, nan, op

X = {1: (5,), 2: (5, 3), 3: (3, 2, 3)}     # sizes of images
K = {1: (3,), 2: (3, 2), 3: (2, 1, 2)}     # and of filters


LATE = {"tol": {"float16": 4e-3, "bfloat16": 3.2e-2},
        "why": "the bias joins after the product has been rounded"}


def each(d, *values):
    """One value for all dimensions, or a value for each."""
    return list(values[:d])


for d in (1, 2):
    f = op(f"conv{d}d", "input weight bias stride padding dilation groups",
           getattr(F, f"conv{d}d"), "matmul")
    x, k = X[d], K[d]
    f(R(2, 2, *x), R(3, 2, *k), R(3))
    f("no bias", R(1, 2, *x), R(3, 2, *k))
    f("stride", R(1, 2, *x), R(3, 2, *k), R(3), each(d, 2, 1))
    f("padding", R(1, 2, *x), R(3, 2, *k), R(3), 1, each(d, 2, 1))
    f("dilation", R(1, 1, *x), R(2, 1, *k), R(2), dilation=each(d, 2, 1))
    f("groups", R(1, 4, *x), R(2, 2, *k), R(2), groups=2)
    f("depthwise", R(1, 3, *x), R(3, 1, *k), R(3), groups=3)
    f("all at once", R(1, 2, *x), R(2, 1, *k), R(2), 2, 2, 1, 2)
    f("filters of size 1", R(1, 2, *x), R(3, 2, *([1] * d)), R(3))
    f("no batch dimension", R(2, *x), R(3, 2, *k), R(3))
    f("no images", R(0, 2, *x), R(3, 2, *k), R(3))
    f("seventeen", R(1, 1, *([2] * (d - 1)), 17), R(1, 1, *([1] * (d - 1)), 5))
    f("a repeated image", R(1, 2, *x).then(lambda x: x.expand(3, *x.shape[1:])), R(3, 2, *k))
    f("same", R(1, 1, *x), R(2, 1, *k), padding="same")
    f("valid", R(1, 1, *x), R(2, 1, *k), padding="valid")
    f.raises("E_SHAPE", "channels differ", R(1, 3, *x), R(3, 2, *k))
    f.raises("E_SHAPE", "a filter larger than the image", R(1, 2, *([2] * d)), R(3, 2, *([3] * d)))

    f = op(f"conv_transpose{d}d", "input weight bias stride padding output_padding groups dilation",
           getattr(F, f"conv_transpose{d}d"), "matmul")
    x = (3,) if d == 1 else (3, 2)
    f(R(2, 2, *x), R(2, 3, *k), R(3), **LATE)
    f("no bias", R(1, 2, *x), R(2, 3, *k), **LATE)
    f("stride", R(1, 2, *x), R(2, 3, *k), R(3), each(d, 2, 1), **LATE)
    f("padding", R(1, 2, *x), R(2, 3, *k), R(3), 1, each(d, 1, 0), **LATE)
    f("output padding", R(1, 2, *x), R(2, 3, *k), R(3), 2, 1, each(d, 1, 1), **LATE)
    f("groups", R(1, 2, *x), R(2, 2, *k), R(4), groups=2, **LATE)
    f("dilation", R(1, 1, *x), R(1, 2, *k), R(2), dilation=each(d, 2, 2), **LATE)
    f("no batch dimension", R(2, *x), R(2, 3, *k), R(3), **LATE)
    f("filters of size 1", R(1, 2, *x), R(2, 3, *([1] * d)), **LATE)
    f.raises("E_SHAPE", "channels differ", R(1, 3, *x), R(2, 3, *k))


def named(fn):
    """PyTorch's pools with positional and named arguments alike."""
    return lambda *args, **kw: fn(*args, **kw)


for d in (1, 2):
    x = X[d]
    f = op(f"max_pool{d}d", "input kernel_size stride padding dilation ceil_mode",
           named(getattr(F, f"max_pool{d}d")))
    g = op(f"avg_pool{d}d", "input kernel_size stride padding ceil_mode count_include_pad",
           named(getattr(F, f"avg_pool{d}d")), "soft")
    for h in (f, g):
        h(R(2, 2, *x), 2)
        h("overlapping", R(1, 2, *x), each(d, 3, 2), 1)
        h("padding", R(1, 1, *x), 3 if d == 1 else [3, 2], padding=1, stride=2)
        h("ceil_mode", R(1, 1, *x), 2, ceil_mode=True)
        h("ceil_mode and padding", R(1, 1, *x), 2, 2, 1, ceil_mode=True)
        h("no batch dimension", R(2, *x), 2)
        h("windows of size 1", R(1, 1, *x), 1)
        h("seventeen", R(1, 1, *([2] * (d - 1)), 17), each(d, 2, 3) if d == 2 else 3)
        h("no images", R(0, 2, *x), 2)
        h("stride 0", R(1, 1, *x).then(lambda x: x.expand(2, 2, *x.shape[2:])), 2)
        h("special values", T([nan, 1.0, inf, -inf, 2.0, -inf]).reshape(
            (1, 1, 6) if d == 1 else (1, 1, 2, 3)), 2 if d == 1 else [1, 2], 1, grad=False)
        h.raises("E_SHAPE", "a window larger than the image", R(1, 1, *([2] * d)), 3)
    f("dilation", R(1, 1, *x), 2, 1, dilation=each(d, 2, 1))
    f("ties", T([1.0] * 6).reshape((1, 1, 6) if d == 1 else (1, 1, 2, 3)), 2)
    g("padding does not count", R(1, 1, *x), each(d, 3, 2), padding=1, count_include_pad=False)
    g("padding does not count in ceil_mode", R(1, 1, *x), 2, 2, 1, True, False)
g("another divisor", R(1, 1, 5, 3), 2, divisor_override=3)

for d in (1, 2):
    x = X[d]
    f = op(f"adaptive_avg_pool{d}d", "input output_size", getattr(F, f"adaptive_avg_pool{d}d"),
           "soft")
    g = op(f"adaptive_max_pool{d}d", "input output_size", getattr(F, f"adaptive_max_pool{d}d"))
    for h in (f, g):
        h(R(2, 2, *x), 2)
        h("to one", R(2, 2, *x), 1)
        h("the same size", R(1, 2, *x), list(x))
        h("larger", R(1, 1, *x), each(d, 7, 4))
        h("no batch dimension", R(2, *x), 2)
        h("seventeen", R(1, 1, *([2] * (d - 1)), 17), each(d, 2, 5) if d == 2 else 5)
        h("stride 0", R(1, 1, *x).then(lambda x: x.expand(2, 2, *x.shape[2:])), 2)

f = op("pad", "input pad mode value", F.pad)
f(R(2, 3), [1, 2])
f("two dims", R(2, 3), [1, 0, 2, 1])
f("a value", R(2, 3), [1, 2], "constant", 1.5)
f("cut", R(2, 5), [-1, 2])
f("cut all round", R(3, 5), [-1, -2, -1, 0])
f("nothing", R(2, 3), [0, 0])
f("empty", R(0, 3), [1, 1])
f("one element", R(1), [2, 3])
f("int64", I(2, 3), [1, 1], value=7)
for mode in ("reflect", "replicate", "circular"):
    f(mode, R(1, 2, 5), [2, 1], mode)
    f(mode + " images", R(1, 1, 3, 5), [2, 1, 1, 2], mode)
    f(mode + " without a batch", R(2, 5), [1, 3], mode)
f.raises("E_SHAPE", "reflects beyond itself", R(1, 1, 3), [3, 0], "reflect")

f = op("interpolate", "input size scale_factor mode", F.interpolate, "soft")
f("nearest", R(1, 2, 2, 3), [4, 6])
f("nearest to odd sizes", R(1, 1, 3, 5), [5, 2])
f("by a factor", R(1, 1, 2, 3), scale_factor=2)
f("by a factor of each", R(1, 1, 2, 3), scale_factor=[2.0, 1.5])
f("nearest lines", R(1, 2, 5), [3])
f("smaller", R(1, 1, 5, 5), [2, 3])
f("bilinear", R(1, 2, 2, 3), [4, 6], mode="bilinear")
f("bilinear by corners", R(1, 1, 2, 3), [4, 5], mode="bilinear", align_corners=True)
f("bilinear smaller", R(1, 1, 5, 5), [3, 2], mode="bilinear")
f("bilinear by a factor", R(1, 1, 2, 3), scale_factor=1.5, mode="bilinear")
f("bilinear by a factor that is worked out anew", R(1, 1, 2, 3), scale_factor=1.75,
  mode="bilinear", recompute_scale_factor=True)
f("bilinear from one", R(1, 1, 1, 1), [2, 3], mode="bilinear")
f("one row by corners", R(1, 1, 3, 3), [1, 2], mode="bilinear", align_corners=True)
f("linear", R(1, 2, 3), [5], mode="linear")
f("the same size", R(1, 1, 2, 3), [2, 3], mode="bilinear")

for name, factor, args in (("pixel_shuffle", "upscale_factor", (1, 4, 2, 3)),
                           ("pixel_unshuffle", "downscale_factor", (1, 1, 4, 2))):
    f = op(name, "input " + factor, getattr(F, name))
    f(R(*args), 2)
    f("two images", R(2, *args[1:]), 2)
    f("by one", R(*args), 1)
    f("no images", R(0, *args[1:]), 1, grad=False)
    f("stride 0", R(*args).then(lambda x: x.expand(3, *x.shape[1:])), 2)
    f("int64", I(*args), 2)

for name in ("unfold", "im2col"):  # one op, two names
    f = op(name, "input kernel_size dilation padding stride", F.unfold)
    f(R(1, 2, 3, 5), 2)
    f(R(2, 1, 5, 5), [2, 3], 1, 0, 2)
    f("padding", R(1, 1, 3, 3), 2, padding=1)
    f("dilation", R(1, 1, 5, 5), 2, dilation=2)
    f("no batch dimension", R(2, 3, 5), 2)
    f("windows of size 1", R(1, 2, 2, 2), 1)
f = op("fold", "input output_size kernel_size dilation padding stride", F.fold, "reduce")
f(R(1, 8, 8), [3, 5], 2)
f("stride", R(1, 4, 4), [4, 4], 2, stride=2)
f("padding", R(1, 4, 16), [3, 3], 2, padding=1)
f("dilation", R(1, 4, 9), [5, 5], 2, dilation=2)
f("no batch dimension", R(4, 8), [3, 5], 2)
f("windows of size 1", R(1, 2, 4), [2, 2], 1)

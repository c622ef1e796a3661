"""Activations, and the softmaxes."""

import torch
import torch.nn.functional as F

from kit import I, P, R, S, T, inf, nan, op

SPECIAL = T([nan, inf, -inf, 0.0, -0.0, 30.0, -30.0])


def samples(f, draw, special=SPECIAL, zero=True, tol=None, why=None):
    f(draw(2, 3), tol=tol, why=why)
    f("0-d", draw(), tol=tol, why=why)
    f("empty", draw(0, 3))
    f("one element", draw(1), tol=tol, why=why)
    f("seventeen", draw(2, 17), tol=tol, why=why)
    f("a repeated row", draw(1, 5).then(lambda x: x.expand(3, 5)), tol=tol, why=why)
    f("special values", special, grad=False)
    if zero:
        f("zero", T([0.0, 1.0, -1.0]), tol=tol, why=why)


for name in ("silu", "gelu", "softplus", "logsigmoid", "leaky_relu", "hardtanh", "relu6", "mish",
             "softsign", "tanhshrink"):
    # NaN in PyTorch (-inf * 0, inf / inf), here the limit of the function
    ends = {"silu": [inf], "gelu": [inf], "mish": [inf], "softsign": []}.get(name, [inf, -inf])
    samples(op(name, "input", getattr(F, name), "soft"), R,
            special=T([nan, *ends, 0.0, -0.0, 30.0, -30.0]))
# at 0 the second derivative jumps; PyTorch uses the other one-sided value
for name in ("elu", "selu", "celu"):
    samples(op(name, "input", getattr(F, name), "soft"), R, zero=False)
samples(op("hardsigmoid", "input", F.hardsigmoid, "soft"), R, tol=1e-8,
        why="PyTorch's gradient has 1/6 as a float32")
# -inf is NaN in PyTorch (-inf * 0), here 0 as for every number below -3
samples(op("hardswish", "input", F.hardswish, "soft"), R,
        special=T([nan, inf, 0.0, -0.0, 30.0, -30.0]))


f = op("gelu", "input", F.gelu, "soft")
f(R(2, 5), approximate="tanh")
f("0-d by tanh", R(), approximate="tanh")
f("special values by tanh", T([nan, inf, 0.0, -0.0, 30.0, -30.0]), approximate="tanh", grad=False)

f = op("elu", "input alpha", F.elu, "soft")
f(R(2, 5), 0.5)
f(R(5), alpha=2.0)
f = op("leaky_relu", "input negative_slope", F.leaky_relu, "soft")
f(R(2, 5), 0.25)
f("negative slope below 0", R(5), negative_slope=-0.5)
f = op("softplus", "input beta threshold", F.softplus, "soft")
f(R(2, 5), 2.0)
f(R(2, 5), beta=0.5, threshold=2.0)
f("beyond the threshold", T([19.0, 20.0, 21.0, 100.0]))
f = op("hardtanh", "input min_val max_val", F.hardtanh, "soft")
f(R(2, 5), -2.0, 3.0)
f(R(5), min_val=0.0, max_val=6.0)
f("at the bounds", T([-1.0, 1.0, 0.5]))
f("int64", I(5), -2, 3)

f = op("prelu", "input weight", F.prelu, "soft")
f(R(2, 3), T([0.25]))
f("a weight of each channel", R(2, 3), R(3))
f("channels of an image", R(2, 3, 2, 2), R(3))
f("0-d input", R(), R(1))
f("empty", R(0, 3), R(3))
f("one row", R(5), R(1))
f("special values", T([[nan, inf, -inf, 0.0]]), T([0.5]), grad=False)
f.raises("E_SHAPE", "a weight too many", R(2, 3), R(4))

for name in ("softmax", "log_softmax"):
    f = op(name, "input dim", getattr(torch, name), "soft")
    f(R(2, 3), 1)
    f(R(2, 3), 0)
    f("an inner dimension", R(2, 3, 5), 1)
    f("negative dim", R(2, 3, 5), -2)
    f("0-d", R(), 0)
    f("one element", R(1), 0)
    f("of integers", I(2, 3), 1, dtype=torch.float64)
    f("a dimension of size 1", R(3, 1), 1)
    f("seventeen", R(3, 17), -1)
    f("empty rows", R(0, 3), 1)
    f("empty slices", R(3, 0), 1)
    f("large values", T([[1024.0, 1024.0, 1020.0], [-1024.0, -1024.0, -1020.0]]), 1)
    f("ties", T([[1.0, 1.0, 1.0]]), 1)
    f("masked by -inf", T([[1.0, -inf, 2.0], [-inf, -inf, 0.0]]), 1, grad=False)
    f("special values", T([[nan, 1.0], [inf, 1.0], [-inf, -inf]]), 1, grad=False)
    f.raises("E_INDEX", "no such dim", R(2, 3), 2)

f = op("softmin", "input dim", F.softmin, "soft")
f(R(2, 3), 1)
f(R(2, 3), 0)
f("negative dim", R(2, 3, 5), -2)
f("one element", R(1), 0)
f("empty rows", R(0, 3), 1)
f("ties", T([[1.0, 1.0, 1.0]]), 1)

f = op("glu", "input dim", F.glu, "soft")
f(R(2, 4))
f(R(4, 3), 0)
f("negative dim", R(2, 4, 3), -2)
f("one pair", R(2))
f("empty", R(0, 4))
f("special values", T([[1.0, inf, nan, 2.0]]), grad=False)

for name in ("hardshrink", "softshrink"):
    samples(op(name, "input lambd", getattr(F, name), "soft"), R, zero=False,
            special=T([nan, inf, -inf, 0.0, 30.0]))
    f = op(name, "input lambd", getattr(F, name), "soft")
    f(R(2, 5), 2.0)
    f("at the threshold", T([0.5, -0.5, 0.75]))

f = op("threshold", "input threshold value", F.threshold)
f(R(2, 5), 0.5, -1.0)
f("0-d", R(), 0.5, -1.0)
f("empty", R(0, 3), 0.5, -1.0)
f("one element", R(1), 0.5, 7.0)
f("at the threshold", T([0.5, 0.25, 1.0]), 0.5, 2.0)
f("special values", SPECIAL, 0.5, 2.0, grad=False)

"""erfinv, lgamma and its derivatives."""

import torch

from kit import P, V, I, T, inf, nan, op

# half types are too coarse for arguments near a pole or near 1
for name, draw, special in (
        ("erfinv", V, T([nan, inf, 0.0, 1.0, -1.0, 1.5, 0.9921875, -0.9921875])),
        ("lgamma", P, T([nan, inf, 0.0, -0.0, 1.0, 2.0, -1.0, -2.5, -0.5, 40.0])),
        ("digamma", P, T([nan, inf, 0.0, -0.0, 1.0, 2.0, -1.0, -2.5, -0.75, 40.0]))):
    f = op(name, "input", getattr(torch, name), "soft")
    f(draw(2, 3))
    f("0-d", draw())
    f("empty", draw(0, 3))
    f("a repeated row", draw(1, 5).then(lambda x: x.expand(3, 5)))
    f("seventeen", draw(2, 17))
    f("special values", special, grad=False)
    f("int64", I(5, low=1) if name != "erfinv" else I(3, low=-1, high=2))

# PyTorch's trigamma ends its series early, and has errors up to 2e-9
COARSE = {"tol": {"float64": 2e-9}, "why": "PyTorch's is less exact"}
f = op("polygamma", "n input", torch.polygamma, "soft")
f(0, P(2, 3))
f(1, P(2, 3), **COARSE)
f(2, P(4))
f(3, P(5), grad=False)
f("0-d", 1, P(), **COARSE)
f("empty", 2, P(0, 3))
f("of both signs", 1, T([-2.5, -0.5, 0.5, 2.0, 30.0]), grad=False, **COARSE)
f("at the poles", 2, T([nan, 0.25, 17.0]), grad=False)

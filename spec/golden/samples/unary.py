"""Functions of each element of one tensor."""

import torch

from kit import B, I, P, R, S, T, U, V, exempt, inf, nan, op

SPECIAL = T([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 2.5])


def samples(f, draw, ints=True, special=SPECIAL, floats_of_ints=False):
    """The samples of every elementwise function."""
    f(draw(2, 3))
    f("0-d", draw())
    f("empty", draw(0, 3))
    f("one element", draw(1))
    f("a repeated row", draw(1, 5).then(lambda x: x.expand(3, 5)))
    f("seventeen", draw(2, 17))
    if special is not None:
        f("special values", special, grad=False)
    if ints:
        f("int64", I(2, 5, low=1 if floats_of_ints else -9))
        f("int8", I(5, low=1 if floats_of_ints else -9, dtype=torch.int8))
        f("uint8", I(3, low=1, high=200, dtype=torch.uint8))
    if floats_of_ints:
        f("bool", T([True], torch.bool))


# exact on the grid
for name, kind in (("abs", "copy"), ("neg", "copy"), ("floor", "copy"), ("ceil", "copy"),
                   ("round", "copy"), ("trunc", "copy"), ("square", "arith"), ("relu", "copy")):
    samples(op(name, "input", getattr(torch, name), kind), R)

sign = op("sign", "input", torch.sign)
samples(sign, R, special=T([inf, -inf, 0.0, -0.0, 1.0]))  # the sign of NaN is NaN here

for name in ("isnan", "isinf", "isfinite"):
    f = op(name, "input", getattr(torch, name))
    samples(f, R)
f = op("logical_not", "input", torch.logical_not)
samples(f, R)
f("bool", B(2, 3))
f("zeros among them", T([[0.0, 1.0], [nan, -0.0]]))

f = op("bitwise_not", "input", torch.bitwise_not)
f(I(2, 3))
f("0-d", I())
f("empty", I(0, 2))
f("one element", I(1))
f("bool", B(5))
f("uint8", I(5, low=0, high=255, dtype=torch.uint8))
f("int8", I(5, dtype=torch.int8))
f.raises("E_DTYPE", R(2))

for name, draw in (("exp", R), ("expm1", S), ("log", P), ("log1p", P), ("log2", P),
                   ("sqrt", P), ("rsqrt", P), ("reciprocal", R), ("sin", R), ("cos", R),
                   ("tan", V), ("tanh", S), ("sigmoid", R), ("erf", S)):
    kind = "arith" if name in ("sqrt", "reciprocal") else "math"
    f = op(name, "input", getattr(torch, name), kind)
    samples(f, draw, floats_of_ints=True)

f = op("clamp", "input min max", torch.clamp)
f(R(2, 5), -1.5, 2.0)
f("only min", R(5), 0.5)
f("only max", R(5), max=0.5)
f("0-d", R(), -1.0, 1.0)
f("empty", R(0, 2), -1.0, 1.0)
f("min above max", R(5), 2.0, -1.0, grad=False)
f("at the bounds", T([-1.0, 0.0, 1.0]), -1.0, 1.0)
f("special values", SPECIAL, -1.0, 1.0, grad=False)
f("int64", I(2, 5), -3, 4)
f("uint8", I(5, low=0, high=255, dtype=torch.uint8), 10, 100)
f.raises("E_ARG", R(2))
f("tensors", R(2, 5), R(5), R(2, 1))
f("a tensor as min", R(5), R(2, 1))
f("a tensor as max", R(5), max=R(5))
f("tensors that are met", T([1.0, 2.0, 3.0, 0.0, 5.0, 4.0]), T([1.0, 3.0, 1.0, 1.0, 1.0, 5.0]),
  T([4.0, 4.0, 3.0, 1.0, 4.0, 2.0]))
f("tensors, special values", SPECIAL, T(-1.0), T(1.0), grad=False)
f("tensors of int64", I(2, 5), I(5), I(5))
f("an empty tensor", R(0, 2), R(2))

for name in ("clamp_min", "clamp_max"):
    f = op(name, "input " + name[6:], getattr(torch, name))
    f(R(2, 5), 0.5)
    f("a tensor", R(2, 5), R(5))
    f("0-d", R(), -1.0)
    f("empty", R(0, 2), -1.0)
    f("one element", R(1), T([0.5]))
    f("special values", SPECIAL, 1.0, grad=False)
    f("int64", I(2, 5), I(5))

for name in ("clamp_min_", "clamp_max_"):
    exempt(name, "clamp_ with one bound: spec/face/calls_spec.lua calls it")

for name, draw in (("acos", V), ("asin", V), ("atan", R), ("acosh", P), ("asinh", R), ("atanh", V),
                   ("cosh", S), ("sinh", S), ("erfc", S), ("exp2", S), ("log10", P), ("sinc", U),
                   ("deg2rad", R), ("rad2deg", R), ("logit", U)):
    change = (lambda d: lambda *s: d(*s).then(lambda x: x + 1))(draw) if name == "acosh" else draw
    f = op(name, "input", getattr(torch, name), "soft" if name in ("logit", "sinc") else "math")
    whole = name not in ("acos", "asin", "acosh", "atanh", "logit", "sinc")
    samples(f, change, floats_of_ints=whole, ints=whole,
            special=T([nan, 0.0, 0.5]) if name == "sinc" else SPECIAL)
f = op("logit", "input eps", torch.logit, "soft")
f("clamped", T([0.0, 0.125, 0.5, 1.0]), 0.25, grad=False)

for name in ("frac", "positive", "sgn"):
    f = op(name, "input", getattr(torch, name))
    samples(f, R, ints=name != "frac",
            special=T([inf, -inf, 0.0, -0.0, 1.0]) if name == "sgn" else SPECIAL)
for name in ("isneginf", "isposinf", "signbit"):
    f = op(name, "input", getattr(torch, name))
    samples(f, R, special=SPECIAL if name != "signbit" else T([inf, -inf, 0.0, -0.0, 1.0]))

f = op("nan_to_num", "input nan posinf neginf", torch.nan_to_num)
f(R(2, 3))
f("special values", T([nan, 1.0, -1.0]), grad=False)
f("replaced", T([nan, inf, -inf, 1.0]), 0.5, 2.0, -2.0)
f("0-d", R())
f("empty", R(0, 3))
f("one element", T([nan]), 1.5)
f("int64", I(3))

f = op("round", "input", torch.round)
f("half to even", T([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]))
f("decimals", T([1.25, -2.75, 3.0625]), decimals=1, grad=False, tol=1e-2,
  why="scaled by a power of ten")
f("tens", T([15.0, -25.0, 34.0]), decimals=-1, grad=False)

"""Functions of each element of two or three tensors: arithmetic, comparison, logic, bits."""

import torch

from kit import B, I, P, R, S, T, U, V, inf, nan, op

I64 = torch.int64

AWKWARD = (T([nan, 1.0, inf, -inf, inf, 0.0, -0.0, 2.0]),
           T([1.0, nan, inf, inf, 0.0, -0.0, 0.0, -inf]))


def pairs(f, left, right=None, number=1.5, ints=True):
    """The samples of every function of two tensors."""
    right = right or left
    f(left(2, 3), right(2, 3))
    f("rows and columns", left(3, 1), right(5))
    f("a leading dimension more", left(2, 1, 3), right(3))
    f("0-d", left(), right())
    f("0-d beside a vector", left(), right(5))
    f("empty", left(0, 3), right(3))
    f("one element", left(1), right(1))
    f("stride 0", left(3, 1).then(lambda x: x.expand(3, 5)), right(3, 5))
    if number is not None:
        f("a number", left(2, 3), number)
    f("special values", *AWKWARD, grad=False)
    if ints:
        f("int64", I(2, 5, low=1), I(5, low=1))
        if number is not None:
            f("int64 and a number", I(5, low=1), 2)
        f("uint8", I(5, low=1, high=9, dtype=torch.uint8), I(5, low=1, high=5, dtype=torch.uint8))
        f("int32 beside int64", I(3, low=1, dtype=torch.int32), I(3, low=1))
    f.raises("E_SHAPE", R(2), R(3))


for name, kind in (("add", "arith"), ("sub", "arith"), ("mul", "arith")):
    f = op(name, "input other", getattr(torch, name), kind)
    pairs(f, R)
    f("f32 beside f64", R(3), T([1.5, 2.5, 3.5], torch.float32), fixed=True)
    f("f16 beside bf16", T([1.5, -2.0], torch.float16), T([0.5, 4.0], torch.bfloat16))
    f("int64 beside f32", I(3), T([1.5, 2.5, 3.5], torch.float32))
    f("0-d f64 beside f32", R(), T([1.5, 2.5, 3.5], torch.float32), fixed=True)
for name in ("add", "sub"):
    f = op(name, "input other", getattr(torch, name), "arith")
    f(R(2, 3), R(3), alpha=2)
    f("fractional alpha", R(5), R(5), alpha=-0.5)
    f("int64 with alpha", I(5), I(5), alpha=3)
op("add", "input other", torch.add)("bool", B(5), B(5))
op("mul", "input other", torch.mul)("bool", B(5), B(5))
op("sub", "input other", torch.sub).raises("E_DTYPE", "bool", B(5), B(5))

f = op("div", "input other", torch.div, "arith")
pairs(f, R, P)
f("trunc", R(2, 5), P(5), rounding_mode="trunc")
f("floor", R(2, 5), P(5), rounding_mode="floor")
f("floor by negatives", R(2, 5), R(5), rounding_mode="floor")
f("floor by a number", R(5), -0.75, rounding_mode="floor")
f("int64 trunc", I(2, 5), I(5, low=1), rounding_mode="trunc")
f("int64 floor", I(2, 5), T([2, -2, 3, -3, -4], torch.int64), rounding_mode="floor")
f("special values floor", *AWKWARD, rounding_mode="floor", grad=False)
f.raises("E_DOMAIN", "int64 by zero", I(3), 0, rounding_mode="floor")

for name in ("remainder", "fmod"):
    f = op(name, "input other", getattr(torch, name), "arith")
    pairs(f, R, P, number=0.75)
    f("negative divisors", R(2, 5), R(5))
    f("int64 of both signs", I(2, 5), T([2, -2, 3, -3, -4], torch.int64))
    f.raises("E_DOMAIN", "int64 by zero", I(3), 0)

f = op("pow", "input exponent", torch.pow, "math")
pairs(f, P, S, number=2.5)
f("squares", R(2, 5), 2)
f("cubes", R(5), 3)
f("inverse", R(5), -1)
f("roots", P(5), 0.5)
f("exponent 0", T([0.0, 1.0, -2.0, 3.0]), 0)
f("a number to tensors", 2, S(5))
f("zero to the two", T([0.0, 1.0]), 2)
f("negative bases", T([-2.0, -0.5, -3.0]), T([3.0, 2.0, -1.0]), grad=False)
f("int64 exponents", I(5), I(5, low=0, high=5))

for name in ("maximum", "minimum"):
    f = op(name, "input other", getattr(torch, name))
    pairs(f, R, number=None)
    f("ties share the gradient", T([1.0, 2.0, 3.0]), T([1.0, 1.0, 4.0]))
    f("bool", B(5), B(5))

f = op("atan2", "input other", torch.atan2, "math")
pairs(f, R, number=None)
f("all quadrants", T([1.0, 1.0, -1.0, -1.0]), T([1.0, -1.0, 1.0, -1.0]))
f("axes", T([0.0, 0.0, 1.0, -1.0]), T([1.0, -1.0, 0.0, 0.0]))

for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    f = op(name, "input other", getattr(torch, name))
    pairs(f, R)
    f("ties", T([1.0, 2.0, nan]), T([1.0, 3.0, nan]))
    f("bool", B(5), B(5))
    f("int64 beside a fraction", I(5), 1.5)

for name in ("logical_and", "logical_or", "logical_xor"):
    f = op(name, "input other", getattr(torch, name))
    pairs(f, R, number=None)
    f("bool", B(2, 5), B(5))
    f("zeros", T([0.0, -0.0, 1.0, nan]), T([0.0, 1.0, 0.0, 0.0]))

for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    f = op(name, "input other", getattr(torch, name))
    f(I(2, 5), I(5))
    f("0-d", I(), I())
    f("empty", I(0, 5), I(5))
    f("one element", I(1), I(1))
    f("bool", B(5), B(5))
    f("uint8", I(5, low=0, high=256, dtype=torch.uint8), I(5, low=0, high=256, dtype=torch.uint8))
    f("a number", I(5), 6)
    f("int8 beside int32", I(5, dtype=torch.int8), I(5, dtype=torch.int32))
    f.raises("E_DTYPE", R(2), R(2))

f = op("lerp", "input end weight", torch.lerp, "soft")
f(R(2, 3), R(2, 3), 0.25)
f("weights of each element", R(2, 3), R(3), U(2, 3))
f("weights beyond 1", R(5), R(5), 1.5)
f("negative weights", R(5), R(5), -0.5)
f("0-d", R(), R(), 0.75)
f("empty", R(0, 3), R(0, 3), 0.5)
f("one element", R(1), R(1), U(1))
f("infinite ends", T([inf, 1.0, nan]), T([1.0, -inf, 1.0]), 0.5, grad=False)

for name, third in (("addcmul", R), ("addcdiv", P)):
    f = op(name, "input tensor1 tensor2", getattr(torch, name), "soft")
    f(R(2, 3), R(2, 3), third(2, 3))
    f(R(2, 3), R(2, 3), third(2, 3), value=-0.5)
    f("broadcast", R(3, 1), R(5), third(1), value=2)
    f("0-d", R(), R(), third())
    f("empty", R(0, 3), R(3), third(1, 3))
    f("one element", R(1), R(1), third(1), value=3)
    f("special values", T([nan, 1.0, inf]), T([1.0, inf, 1.0]), T([1.0, 2.0, 4.0]), grad=False)
op("addcmul", "input tensor1 tensor2", torch.addcmul)("int64", I(5), I(5), I(5), value=2)

f = op("where", "condition input other", torch.where)
f(B(2, 3), R(2, 3), R(2, 3))
f("broadcast", B(3, 1), R(5), R(3, 5))
f("numbers", B(5), 1.5, R(5))
f("a number on the right", B(2, 5), R(5), -2.0)
f("0-d", T(True, torch.bool), R(), R())
f("empty", B(0, 3), R(3), R(1))
f("NaN where not chosen", T([True, False], torch.bool), T([1.0, nan]), T([nan, 2.0]))
f("int64", B(2, 5), I(5), I(2, 1))
f("bool", B(5), B(5), B(5))
f("int64 beside f32", B(3), I(3), T([0.5, 1.5, 2.5], torch.float32))

for name in ("fmax", "fmin"):
    f = op(name, "input other", getattr(torch, name))
    pairs(f, R, number=None)
    f("ties share the gradient", T([1.0, 2.0, 3.0]), T([1.0, 1.0, 4.0]))

f = op("floor_divide", "input other", torch.floor_divide, "arith")
pairs(f, R, P)
f("both signs", R(2, 5), R(5))
f.raises("E_DOMAIN", "int64 by zero", I(3), 0)

f = op("copysign", "input other", torch.copysign)
pairs(f, R, ints=False)
f("signs of zero", R(3), T([0.0, -0.0, 1.0]))
f = op("hypot", "input other", torch.hypot, "math")
pairs(f, R, number=None, ints=False)
f = op("logaddexp", "input other", torch.logaddexp, "soft")
pairs(f, R, number=None, ints=False)
f("far apart", T([32.0, -32.0]), T([0.0, 0.0]))
f = op("xlogy", "input other", torch.xlogy, "math")
pairs(f, R, P)
f("zero times anything", T([0.0, 0.0, 0.0]), T([0.0, 2.0, nan]), grad=False)
f = op("heaviside", "input values", torch.heaviside)
f(R(2, 3), R(2, 3), grad=False)
f("at zero", T([0.0, -0.0, 1.0, -1.0]), T([0.5, 0.25, 0.5, 0.5]), grad=False)
f("broadcast", R(3, 1), R(5), grad=False)
f("0-d", R(), R(), grad=False)
f("empty", R(0, 3), R(3), grad=False)
f("int64", T([-1, 0, 1], torch.int64), T([7, 7, 7], torch.int64))

for name in ("bitwise_left_shift", "bitwise_right_shift"):
    f = op(name, "input other", getattr(torch, name))
    f(I(2, 5), I(5, low=0, high=8))
    f("0-d", I(), T(2, torch.int64))
    f("empty", I(0, 5), I(5))
    f("one element", I(1), T([1], torch.int64))
    f("a number", I(5), 2)
    f("uint8", I(5, low=0, high=256, dtype=torch.uint8), T([0, 1, 2, 3, 4], torch.uint8))
    f("int32", I(5, dtype=torch.int32), T([0, 1, 2, 3, 4], torch.int32))

f = op("isclose", "input other rtol atol equal_nan", torch.isclose)
f("int64 beyond 2^53, exactly", T([2**53 + 1, 2**53, -2**63], I64), T([2**53, 2**53, 2**63 - 1], I64),
  0.0, 0.0)
g = op("allclose", "input other rtol atol equal_nan", torch.allclose)
NEAR = T([1.0, 2.0, 4.0])
for h in (f, g):
    h("equal", NEAR, NEAR.clone(), grad=False)
    h("not", NEAR, T([1.0, 2.5, 4.0]), grad=False)
    h("within rtol", NEAR, T([1.0, 2.0625, 4.0]), 0.125, grad=False)
    h("within atol", NEAR, T([1.0, 2.0625, 4.0]), 0.0, 0.125, grad=False)
    h("NaN", T([nan, inf]), T([nan, inf]), grad=False)
    h("NaN as equal", T([nan, -inf]), T([nan, -inf]), equal_nan=True, grad=False)
    h("empty", R(0), R(0), grad=False)

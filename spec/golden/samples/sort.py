"""Sorting, extremes, counting, searching."""

import torch

from kit import B, I, N, P, R, S, T, U, V, inf, nan, op

MIXED = T([[2.0, nan, -inf, inf, 0.0], [inf, 1.0, nan, -1.0, nan]])

f = op("sort", "input dim descending", torch.sort, returns=(1,))
g = op("argsort", "input dim descending", torch.argsort, returns=(0,))
for h in (f, g):
    h(R(2, 5))
    h(R(5, 3), 0)
    h("descending", R(2, 5), 1, True)
    h("negative dim", R(2, 3, 5), -2)
    h("0-d", R())
    h("one element", R(1))
    h("empty", R(0, 3))
    h("empty rows", R(3, 0))
    h("seventeen", R(3, 17))
    h("stride 0", R(3, 1).then(lambda x: x.expand(3, 5)), 0)
    h("special values", MIXED, stable=True, grad=False)
    h("int64", I(2, 5))
    h("uint8", I(5, low=0, high=255, dtype=torch.uint8), descending=True)
    h("ties are stable", T([2.0, 1.0, 2.0, 1.0, 1.0]), stable=True)
    h("ties are stable descending", T([2.0, 1.0, 2.0, 1.0, 1.0]), descending=True, stable=True)
    h("bool", T([True, False, True, False], torch.bool), stable=True)
    h.raises("E_INDEX", "no such dim", R(2, 3), 2)

f = op("msort", "input", torch.msort)
f(R(5, 2))
f("a vector", R(5))
f("one element", R(1))
f("empty", R(0, 3))
f("seventeen", R(17))
f("int64", I(5, 2))

f = op("topk", "input k dim largest sorted", torch.topk, returns=(1,))
f(R(2, 5), 2)
f(R(5, 3), 3, 0)
f("smallest", R(2, 5), 3, 1, False)
f("negative dim", R(2, 3, 5), 2, -2)
f("all", R(5), 5)
f("none", R(5), 0)
f("0-d", R(), 1)
f("one element", R(1), 1)
f("seventeen", R(3, 17), 5)
f("NaN is largest", T([1.0, nan, inf, 2.0]), 2, grad=False)
f("int64", I(7, low=-50, high=50), 3)
f.raises("E_ARG", "more than there is", R(3), 4)

f = op("kthvalue", "input k dim", torch.kthvalue, returns=(1,))
f(R(2, 5), 2)
f(R(5, 3), 3, 0)
f("keepdim", R(2, 5), 1, 1, keepdim=True)
f("negative dim", R(2, 3, 5), 2, -2)
f("0-d", R(), 1)
f("seventeen", R(3, 17), 9)
f("int64", I(7, low=-50, high=50), 3)

f = op("median", "input dim", torch.median, returns=(1,))
f(R(2, 5))
f(R(2, 5), 1)
f(R(5, 3), 0, keepdim=True)
f("of an even number the lower", R(4))
f("negative dim", R(2, 3, 5), -2)
f("0-d", R())
f("NaN", T([1.0, nan, 2.0]), grad=False)
f("int64", I(5, low=-50, high=50), 0)

f = op("nanmedian", "input dim", torch.nanmedian, returns=(1,))
f(R(2, 5))
f(R(2, 5), 1)
f(R(5, 3), 0, keepdim=True)
f("of an even number the lower", R(4))
f("0-d", R())
f("NaN", T([[1.0, nan, 2.0, nan], [4.0, 3.0, nan, 5.0]]), 1, grad=False)
f("of all with NaN", T([[1.0, nan, 2.0], [4.0, 3.0, nan]]), grad=False)
f("int64", I(5, low=-50, high=50), 0)


def quantile(input, q, dim=None, **more):
    return torch.quantile(input, q if isinstance(q, float) else torch.tensor(q, dtype=input.dtype),
                          dim, **more)


WIDE = {"dtypes": ["float64", "float32"], "why": "PyTorch has it of f32 and f64"}
f = op("quantile", "input q dim", quantile, "soft")
f(R(2, 5), 0.25, **WIDE)
f(R(2, 5), 0.5, 1, **WIDE)
f(R(5, 3), 0.75, 0, keepdim=True, **WIDE)
f("keepdim of all", R(5, 3), 0.75, keepdim=True, **WIDE)
f("several", R(2, 5), [0.25, 0.5, 0.625], 1, **WIDE)
f("between", R(2, 6), 0.375, 1, **WIDE)
f("the ends", R(2, 6), [0.0, 1.0], 1, **WIDE)
for how in ("lower", "higher", "midpoint", "nearest"):
    f(how, R(2, 6), [0.25, 0.375, 0.5, 0.625], -1, interpolation=how, **WIDE)
f("NaN", T([[1.0, nan, 2.0], [4.0, 3.0, 5.0]]), 0.5, 1, grad=False, **WIDE)
f("one element", R(1), 0.25, **WIDE)

f = op("unique", "input", torch.unique, returns=(1,))
f(T([3.0, 1.0, 3.0, -2.0]), grad=False)
f("with positions and counts", T([3.0, 1.0, 3.0, -2.0]), return_inverse=True, return_counts=True,
  grad=False)
f("a matrix", T([[1.0, 2.0], [2.0, 1.0]]), return_inverse=True, grad=False)
f("one element", R(1), grad=False)
f("empty", R(0), grad=False)
f("int64", I(9, low=0, high=4), return_inverse=True)
f("bool", B(5))
f("rows", T([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]]), dim=0, return_inverse=True, grad=False)

f = op("unique_consecutive", "input", torch.unique_consecutive, returns=(1,))
f(T([1.0, 1.0, 2.0, 1.0]), grad=False)
f("with positions and counts", T([1.0, 1.0, 2.0, 1.0]), return_inverse=True, return_counts=True,
  grad=False)
f("one element", R(1), grad=False)
f("empty", R(0), grad=False)
f("int64", I(9, low=0, high=2), return_inverse=True)
f("a matrix", T([[1.0, 1.0], [2.0, 1.0]]), grad=False)

f = op("bincount", "input weights minlength", torch.bincount)
f(T([0, 2, 2, 1], torch.int64))
f("weights", T([0, 2, 2, 1], torch.int64), R(4), grad=False, fixed=True)
f("a least length", T([0, 1], torch.int64), minlength=5)
f("empty", I(0))
f("empty with a least length", I(0), minlength=3)
f("one element", T([3], torch.int64))
f("uint8", T([1, 1, 4], torch.uint8))
f.raises("E_DOMAIN", "negative", T([-1], torch.int64))

for name, names in (("searchsorted", "sorted_sequence input"), ("bucketize", "input boundaries")):
    f = op(name, names, getattr(torch, name), returns=(0,))

    def ask(label, edges, values, f=f, name=name, **named):
        pair = (edges, values) if name == "searchsorted" else (values, edges)
        f(label, *pair, grad=False, **named)
    EDGES = T([-2.0, 0.0, 0.0, 1.5])
    ask("between", EDGES, R(2, 3))
    ask("at the edges", EDGES, T([-2.0, 0.0, 1.5]))
    ask("from the right", EDGES, T([-2.0, 0.0, 1.5]), right=True)
    ask("beyond the ends", EDGES, T([-9.0, 9.0, inf]))
    ask("0-d", EDGES, T(0.5))
    ask("empty", EDGES, R(0))
    ask("no edges", R(0), R(3))
    ask("int64", T([1, 3, 5], torch.int64), T([1, 2, 6], torch.int64))

f = op("isin", "elements test_elements", torch.isin)
f(T([1.0, 2.0, 3.0]), T([2.0, 5.0]), grad=False)
f("a matrix", I(2, 3, low=0, high=4), T([1, 2], torch.int64))
f("inverted", I(5, low=0, high=4), T([1, 2], torch.int64), invert=True)
f("of nothing", R(3), R(0), grad=False)
f("empty", R(0), R(2), grad=False)
f("NaN is in nothing", T([nan, 1.0]), T([nan, 1.0]), grad=False)
f("0-d", T(2.0), T([2.0]), grad=False)

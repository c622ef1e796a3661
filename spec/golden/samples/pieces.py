"""Functions that join and split tensors, and windows."""

import torch

from kit import I, N, P, R, S, T, U, inf, nan, op

f64 = torch.float64
COARSE = {"dtypes": ["float64", "float32"], "why": "what half types take off goes for good"}

for n, name in enumerate(("atleast_1d", "atleast_2d", "atleast_3d")):
    f = op(name, "input", getattr(torch, name))
    f(R())
    f(R(3))
    f(R(2, 3))
    f(R(2, 1, 3))
    f("empty", R(0))
    f("int64", I(2))

f = op("column_stack", "tensors", torch.column_stack)
f([R(3), R(3, 2)])
f([R(2), R(2)])
f([R(2, 1), R(2, 3), R(2)])
f("0-d", [R(), R()])
f("one", [R(3)])
f("int64", [I(2), I(2, 2)])

f = op("block_diag", "tensors", lambda tensors: torch.block_diag(*tensors))
f([R(2, 3), R(2)])
f([R(1, 1), R(2, 2), R(1, 3)])
f("0-d", [R(), R(2, 2)])
f("one", [R(2, 3)])
f("an empty one", [R(2, 2), R(0, 2)])
f("int64", [I(2, 2), I(1, 2)])

f = op("cartesian_prod", "tensors", lambda tensors: torch.cartesian_prod(*tensors))
f([R(2), R(3)])
f([R(2), R(1), R(2)])
f("one", [R(3)])
f("empty", [R(2), R(0)])
f("int64", [I(2), I(3)])
f("repeated", [T([1.0, 1.0]), R(2)])

f = op("combinations", "input r with_replacement", torch.combinations)
f(R(4))
f(R(4), r=3)
f(R(3), with_replacement=True)
f(R(3), 3, True)
f("too many", R(2), r=3)
f("int64", I(4))

f = op("vander", "x N increasing", torch.vander, "math")
# PyTorch overwrites a tensor that its gradient needs; coverage_spec checks Moth's gradient
f(P(3), grad=False)
f(P(3), N=4, increasing=True, grad=False)
f(R(3), N=2, grad=False)
f("one", R(2), N=1)
f("int64", I(3))
f("a single element", R(1))

for name, dim in (("hsplit", 1), ("vsplit", 0), ("dsplit", 2)):
    f = op(name, "input indices_or_sections", getattr(torch, name))
    f(R(4, 4, 4), 2)
    f(R(4, 4, 4), [1, 3])
    f(R(2, 4, 6).then(lambda x, d=dim: x.movedim(2, d)), 3)
    f("beyond the end", R(2, 2, 2), [1, 5])
    f("one piece", R(2, 2, 2), 1)
    f.raises("E_SHAPE", "no divisor", R(4, 4, 4), 3)

f = op("select_scatter", "input src dim index", torch.select_scatter, positions={"index"})
f(R(2, 3), R(2), 1, 0)
f(R(2, 3), R(3), 0, -1)
f(R(2, 3, 2), R(2, 2), 1, 2)
f("a vector", R(4), R(), 0, 2)
f("int64", I(2, 3), I(3), 0, 1)
f("one row", R(1, 3), R(3), 0, 0)
f.raises("E_SHAPE", R(2, 3), R(3), 1, 0)

f = op("diagonal_scatter", "input src offset dim1 dim2", torch.diagonal_scatter)
f(R(3, 3), R(3))
f(R(3, 4), R(3), offset=1)
f(R(3, 3), R(2), -1)
f(R(2, 3, 4), R(3, 2), 1, 0, 2)
f("int64", I(2, 2), I(2))
f("one element", R(1, 1), R(1))
f.raises("E_SHAPE", R(3, 3), R(2))

f = op("pdist", "input p", torch.pdist, "composed", second=False)
f(R(4, 3))
f(R(3, 2), p=1.0)
f(R(3, 2), p=3.0)
f("one row", R(1, 2), grad=False)
f("no columns", R(3, 0), grad=False)
f("many", R(7, 4))

f = op("trapezoid", "y x dx dim",
       lambda y, x=None, dx=None, dim=-1: torch.trapezoid(y, dim=dim) if x is None and dx is None
       else torch.trapezoid(y, x, dim=dim) if dx is None else torch.trapezoid(y, dx=dx, dim=dim),
       "composed")
f(R(2, 4))
f(R(2, 4), R(4), **COARSE)
f(R(4, 2), R(4), dim=0, **COARSE)
f(R(4, 2), dx=0.5, dim=0)
f(R(2, 3), R(2, 3), **COARSE)
f("a vector", R(5))
f("one value", R(2, 1))

f = op("cov", "input correction fweights aweights",
       lambda x, correction=1, fweights=None, aweights=None: torch.cov(
           x, correction=correction, fweights=fweights, aweights=aweights), "composed")
f(S(3, 5), **COARSE)
f(S(3, 5), 0, **COARSE)
f("a vector", S(5), **COARSE)
f("counts", S(2, 3), fweights=T([1, 3, 2], torch.int64), **COARSE)
f("weights", S(2, 3), aweights=U(3), **COARSE)
f("both", S(2, 3), fweights=T([1, 3, 2], torch.int64), aweights=U(3), **COARSE)
f("both, uncorrected", S(2, 3), 0, T([1, 3, 2], torch.int64), U(3), **COARSE)

f = op("corrcoef", "input", torch.corrcoef, "composed")
f(S(3, 5), grad=False, **COARSE)
f(S(2, 9), grad=False, **COARSE)
f("a vector", S(5), grad=False, **COARSE)
f("three", S(3, 4), grad=False, **COARSE)
f("all alike", T([[1.0, 2, 3], [2, 4, 6]]), grad=False, **COARSE)
f("opposite", T([[1.0, 2, 3], [-1, -2, -4]]), grad=False, **COARSE)

f = op("logaddexp2", "input other", torch.logaddexp2, "composed")
f(S(2, 3), S(3))
f("far apart", T([100.0, -100.0, 0.5]), T([-100.0, 100.0, 0.25]))
f("0-d", S(), S())
f("empty", S(0, 3), S(3))
f("infinities", T([inf, -inf, inf, -inf, nan]), T([inf, -inf, -inf, 1.0, 1.0]), grad=False)
f("a column and a row", S(3, 1), S(2))

FULL = {"dtypes": ["float64"], "why": "it computes in float64"}
f = op("float_power", "input exponent", torch.float_power, "math")
f(P(2, 3), 1.5, **FULL)
f(P(2, 3), S(3), **FULL)
f("squares", R(4), 2.0, **FULL)
f("int64", I(4, low=1), 2.0)
f("0-d", P(), -1.0, **FULL)
f("empty", P(0), 2.0, **FULL)

for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window",
             "kaiser_window"):
    f = op(name, "window_length periodic", getattr(torch, name), "soft")
    f(5)
    f(8, False)
    f("f64", 9, dtype=f64, fixed=True)
    f("f64, once", 9, False, dtype=f64, fixed=True)
    f("none", 0)
    f("one", 1)
f = op("kaiser_window", "window_length periodic beta", torch.kaiser_window, "soft")
f("less steep", 7, False, 3.0)
f = op("hamming_window", "window_length periodic alpha beta", torch.hamming_window, "soft")
f("other numbers", 7, True, 0.5, 0.4)

"""Functions of numbers: special functions, logcumsumexp, gradient, statistics, positions."""

import torch
from torch import special

from kit import I, N, P, R, S, T, U, exempt, inf, nan, op

WIDE = {"dtypes": ["float64", "float32"], "why": "half types are too coarse for what comes of it"}
f64 = torch.float64

SPECIALS = T([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 25.0, -25.0, 700.0])
for name, draw, some in (
        ("i0", S, T([nan, 0.0, -0.0, 1.0, -25.0, 25.0, 80.0])), ("special.i0e", S, SPECIALS),
        ("special.i1", S, T([nan, 0.0, -0.0, 1.0, -25.0, 25.0, 80.0])),
        ("special.i1e", S, SPECIALS),
        ("special.erfcx", S, T([nan, inf, 0.0, 1.0, -1.0, 25.0, -5.0, 700.0, 11.9, 12.1])),
        ("special.log_ndtr", S, T([nan, inf, -inf, 0.0, 1.0, -1.0, 25.0, -25.0, -700.0])),
        ("special.ndtri", U, T([nan, 0.0, 1.0, -0.5, 1.5, 2.0 ** -100, 0.99609375, 0.015625, 0.0234375])),
        ("special.ndtr", S, SPECIALS),
        ("special.entr", P, T([nan, inf, -1.0, 0.0, 1.0, 0.25]))):
    f = op(name, "input", torch.i0 if name == "i0" else getattr(special, name[8:]), "soft")
    f(draw(2, 3), **WIDE)
    f("0-d", draw(), **WIDE)
    f("empty", draw(0, 3))
    f("a repeated row", draw(1, 5).then(lambda x: x.expand(3, 5)), **WIDE)
    f("special values", some, grad=False, **WIDE)
    f("int64", I(2, low=0, high=2))

for name, fn in (("expit", special.expit), ("gammaln", special.gammaln), ("psi", special.psi),
                 ("erf", special.erf), ("logit", special.logit)):
    f = op("special." + name, "input", fn, "soft")
    for shape in ((2, 3), (5,), (), (0, 2), (1, 4), (2, 17)):
        f(U(*shape), **WIDE)

a = torch.tensor([0.5, 1.0, 2.5, 7.0, 30.0, 100.0, 0.0, 3.0, 3.0, -1.0, 2.0], dtype=f64)
b = torch.tensor([0.25, 3.0, 2.0, 9.0, 33.0, 70.0, 1.0, 0.0, inf, 1.0, nan], dtype=f64)
for name in ("igamma", "igammac"):
    f = op(name, "input other", getattr(torch, name), "soft", constants={"input"})
    f(P(2, 3), P(3), **WIDE)
    f("special values", a, b, grad=False, tol={"float64": 1e-9, "float32": 2e-6},
      why="PyTorch's is less exact", dtypes=WIDE["dtypes"])
    f("0-d", P(), P(), **WIDE)
    f("empty", P(0, 3), P(3))
    f("a column and a row", P(3, 1), P(4), **WIDE)
    f("seventeen", P(17), P(17), **WIDE)
f = op("special.gammainc", "input other", special.gammainc, "soft", constants={"input"})
for shape in ((2, 3), (5,), (), (0, 2), (1, 4), (2, 17)):
    f(P(*shape), P(*shape), **WIDE)
f = op("special.gammaincc", "input other", special.gammaincc, "soft", constants={"input"})
for shape in ((2, 3), (5,), (), (0, 2), (1, 4), (2, 17)):
    f(P(*shape), P(*shape), **WIDE)
f = op("special.zeta", "input other", special.zeta, "soft", constants={"input"})
for shape in ((2, 3), (5,), (), (0, 2), (1, 4)):
    f(I(*shape, low=2, high=7).then(lambda x: x.to(f64)), P(*shape), **WIDE)
f("special values", T([1.0, 0.5, 2.0, 2.0, 3.0, 2.5, 2.0, nan]),
  T([2.0, 2.0, 0.0, -1.5, -2.5, -0.5, 1e4, 1.0]), grad=False, **WIDE)
f = op("special.xlog1py", "input other", special.xlog1py, "composed")
f(R(2, 3), P(3), **WIDE)
f("a number", 2.0, P(2), **WIDE)
f("0-d", R(), P(), **WIDE)
f("empty", R(0, 3), P(3))
f("a column and a row", R(3, 1), P(4), **WIDE)
f("special values", T([0.0, 0.0, 0.0, 1.0, nan]), T([-1.0, nan, inf, -1.0, 0.0]), grad=False)
for name in ("mvlgamma", "special.multigammaln"):
    f = op(name, "input p", torch.mvlgamma, "soft")
    f(P(2, 3).then(lambda x: x + 2), 3, **WIDE)
    for shape, p in (((4,), 1), ((), 2), ((0, 2), 3), ((2, 9), 4), ((3, 1), 1)):
        f(P(*shape).then(lambda x: x + 2), p, **WIDE)

f = op("nextafter", "input other", torch.nextafter)
f("both ways", torch.tensor([1.0, 1.0, 0.0, -1.0, inf, nan], dtype=torch.float32),
  torch.tensor([2.0, 0.0, -1.0, -1.0, 0.0, 1.0], dtype=torch.float32), fixed=True, grad=False)
f("f64", T([1.0, -0.5]), T([2.0, -1.0]), fixed=True, grad=False)
f("a column and a row", R(3, 1), R(4), fixed=True, grad=False)
f("0-d", R(), R(), fixed=True, grad=False)
f("empty", R(0), R(0), fixed=True, grad=False)
f("the least", T([0.0, -0.0, 5e-324]), T([1.0, -1.0, 0.0]), fixed=True, grad=False)
for name in ("gcd", "lcm"):
    f = op(name, "input other", getattr(torch, name))
    f(I(3, 4, low=-30, high=31), I(4, low=-30, high=31))
    f("zeros", torch.tensor([0, 0, 6]), torch.tensor([0, 4, 0]))
    f("0-d", I(), I())
    f("empty", I(0, 2), I(2))
    f("int32", I(5, dtype=torch.int32), I(5, dtype=torch.int32))
    f("uint8", torch.tensor([12, 200], dtype=torch.uint8), torch.tensor([18, 60], dtype=torch.uint8))
f = op("ldexp", "input other", torch.ldexp, "math")
f(R(2, 3), I(3))
f("0-d", R(), I())
f("empty", R(0, 2), I(2))
f("a column and a row", R(3, 1), I(4))
f("none", R(3), T([0, 0, 0], torch.int64))
f("whole numbers", I(3), I(3, low=0), **WIDE)
f = op("angle", "input", torch.angle)
f("both signs", R(2, 3))
f("0-d", R())
f("empty", R(0, 2))
f("special values", T([0.0, -0.0, nan, inf, -inf]), grad=False)
f("int64", I(4, low=-3, high=3), grad=False)
f("a column", R(3, 1))
f = op("isreal", "input", torch.isreal)
f(R(2, 3), grad=False)
f("0-d", R(), grad=False)
f("empty", R(0, 2), grad=False)
f("special values", T([0.0, nan, inf]), grad=False)
f("int64", I(4), grad=False)
f("a column", R(3, 1), grad=False)
f = op("rsub", "input other alpha", lambda x, y, alpha=1: torch.rsub(x, y, alpha=alpha), "arith")
f(R(2, 3), R(3))
f("a factor", R(2, 3), R(2, 1), 2.5)
f("a number", R(4), 3.0)
f("a number and a factor", R(4), 3.0, 2)
f("0-d", R(), R())
f("empty", R(0, 2), R(2))
f("int64", I(3), I(3), 2)
f = op("frexp", "input", torch.frexp)
f("both signs", R(2, 3), grad=False)
f("powers of 2", T([1.0, 0.5, 2.0, -4.0, 0.25, 0.0, -0.0]), grad=False)
f("far out", torch.tensor([1e-310, 1e300, 5e-324, -1e-300], dtype=f64), grad=False, fixed=True)
f("0-d", R(), grad=False)
f("empty", R(0, 2), grad=False)
f("neighbours of powers", torch.nextafter(torch.tensor([1.0, 2.0, 8.0], dtype=f64),
                                           torch.tensor(0.0, dtype=f64)), grad=False, fixed=True)

f = op("renorm", "input p dim maxnorm", torch.renorm, "composed", second=False)
f(R(3, 4), 2.0, 0, 5.0)
f(R(2, 3, 2), 1.0, -1, 4.0)
f("p of a half", R(3, 2), 0.5, 0, 6.0, **WIDE)
f("three dimensions", R(2, 2, 3), 3.0, 1, 2.0, **WIDE)
f("to nothing", R(2, 3), 2.0, 0, 0.0, grad=False)
f("none is longer", R(2, 2), 2.0, 1, 1000.0)
f = op("logcumsumexp", "input dim", torch.logcumsumexp, "composed", second=False)
f(S(2, 5), 1)
f(S(4, 2), 0)
f("far apart", T([0.0, 500.0, -500.0, 499.0, -1000.0]), 0)
f("infinities", T([-inf, -inf, 1.0, inf, 2.0]), 0, grad=False)
f("NaN", T([1.0, nan, 2.0]), 0, grad=False)
f("one", S(3, 1), 1)
f("0-d", S(), 0)
f("empty", S(0, 3), 0)
f = op("cumulative_trapezoid", "y x dx dim",
       lambda y, x=None, dx=None, dim=-1: torch.cumulative_trapezoid(y, x, dim=dim)
       if x is not None else torch.cumulative_trapezoid(y, dx=dx or 1, dim=dim), "composed")
f(R(2, 4))
f(R(2, 4), R(4), **WIDE)
f(R(4, 2), dx=0.5, dim=0)
f(R(2, 3), R(2, 3), **WIDE)
f("a vector", R(5))
f("one value", R(2, 1))
f = op("gradient", "input spacing dim edge_order",
       lambda x, spacing=1, dim=None, edge_order=1: torch.gradient(
           x, spacing=spacing, dim=dim, edge_order=edge_order) if dim is not None
       else torch.gradient(x, spacing=spacing, edge_order=edge_order), "composed")
f(R(4, 5))
f(R(4, 5), 0.5, 1, 2, **WIDE)
f("places", R(3, 4), [T([0.0, 1.0, 3.0]), T([0.0, 2.0, 3.0, 7.0])], **WIDE)
f("places, edges of three", R(5), [T([0.0, 1.0, 3.0, 3.5, 9.0])], 0, 2, **WIDE)
f("two values", R(2, 3), 2.0, 0)
f("three dimensions", R(2, 3, 2), dim=1)

f = op("mode", "input dim keepdim", torch.mode, second=False, returns={1})
f(R(2, 3), grad=False)
f("repeated", T([[1.0, 2, 2, 1, 3], [3, 3, 1, 1, 1]]), 1)
f("repeated, down", T([[1.0, 2], [2, 2], [1, 4]]), 0, True)
f("int64", torch.tensor([5, 4, 4, 5]))
f("three dimensions", I(2, 3, 2, low=0, high=2), 1)
f("one", R(2, 1), 1, grad=False)
f = op("nanquantile", "input q dim keepdim interpolation",
       lambda x, q, dim=None, keepdim=False, interpolation="linear": torch.nanquantile(
           x, torch.tensor(q, dtype=x.dtype) if isinstance(q, list) else q, dim, keepdim,
           interpolation=interpolation), "composed", second=False)
GAPS = T([[1.0, nan, 3.0, 2.0, 7.0], [nan, nan, nan, 5.0, 4.0], [nan] * 5])
f(R(3, 5), 0.3, **WIDE)
f("of NaN", GAPS, 0.4, 1, grad=False, **WIDE)
f("several", GAPS, [0.0, 0.25, 1.0], 1, True, grad=False, **WIDE)
for how in ("lower", "higher", "nearest", "midpoint"):
    f(how, GAPS, 0.4, 1, False, how, grad=False, **WIDE)
f = op("histogram", "input bins range weight density",
       lambda x, bins=100, range=None, weight=None, density=False: torch.histogram(
           x, bins, range=range and tuple(range), weight=weight, density=density)
       if not isinstance(bins, torch.Tensor) else torch.histogram(
           x, bins, weight=weight, density=density), "composed", second=False)
f(R(20), 4, grad=False, **WIDE)
f(R(4, 5), 5, [-1.0, 2.0], grad=False, **WIDE)
f("ends", R(9), T([-4.0, 0.0, 1.0, 6.0]), weight=U(9), grad=False, **WIDE)
f("density", R(9), 3, density=True, grad=False, **WIDE)
f("none", R(0), 3, grad=False, **WIDE)
f("all alike", T([2.0, 2.0]), 2, grad=False, **WIDE)

f = op("index_reduce", "input dim index source reduce include_self", torch.index_reduce,
       "composed", positions={"index"}, second=False)
for how in ("prod", "mean", "amax", "amin"):
    f(how, R(3, 4), 0, T([2, 0, 2], torch.int64), R(3, 4), how)
    f(how + ", alone", R(2, 5), 1, T([4, 4, 1], torch.int64), R(2, 3), how, include_self=False)
f = op("put", "input index source accumulate", torch.Tensor.put, positions={"index"})
f(R(2, 3), T([0, 5], torch.int64), R(2))
f(R(2, 3), T([[4, 4], [1, 0]], torch.int64), R(2, 2), True)
f(R(2, 3).then(lambda x: x.mT), T([1, -1], torch.int64), R(2))
f("none", R(2, 3), T([], torch.int64), R(0))
f("int64", I(4), T([3, 0], torch.int64), I(2), True)
f("all", R(2, 2), N(4, 4), R(4), True)
f = op("slice_scatter", "input src dim start stop step", lambda x, src, dim=0, start=0, stop=None,
       step=1: torch.slice_scatter(x, src, dim, start, None if stop is None else stop + 1, step),
       positions={"start", "stop"})
f(R(4, 3), R(2, 3), 0, 1, 2)
f(R(2, 5), R(2, 3), 1, 0, 4, 2)
f("to the end", R(4), R(3), start=1)
f("from the end", R(4), R(2), start=-2)
f("int64", I(3, 2), I(1, 2), 0, 1, 1)
f("all of it", R(2, 2), R(2, 2))
f = op("unravel_index", "indices shape", torch.unravel_index, positions={"indices"},
       returns={0, 1, 2})
f(N(24, 5), [2, 3, 4])
f(N(6, 2, 2), [6])
f("0-d", N(6), [2, 3])
f("none", N(6, 0), [2, 3])
f("ones", N(4, 4), [1, 4, 1])
f("many", N(60, 9), [5, 4, 3])
f = op("narrow_copy", "input dim start length", torch.narrow_copy, positions={"start"})
f(R(2, 5), 1, 1, 3)
f(R(4), 0, 0, 4)
f("none", R(2, 3), 0, 1, 0)
f("int64", I(3, 2), 0, 1, 1)
f("one position", R(1, 5), 1, 4, 1)
f("three dimensions", R(2, 3, 2), 1, 0, 2)
f = op("sum_to_size", "input size", torch.Tensor.sum_to_size, "reduce")
f(R(2, 3), [1, 3])
f(R(4, 2, 3), [3])
f(R(2, 3), [2, 3])
f("to one", R(2, 3), [1])
f("int64", I(2, 3), [2, 1])
f.raises("E_SHAPE", R(2, 3), [2])
f = op("split_with_sizes", "input split_sizes dim", torch.split_with_sizes)
f(R(5, 2), [2, 3])
f(R(2, 4), [1, 0, 3], 1)
f("from the end", R(2, 4), [2, 2], -1)
f("one piece", R(3), [3])
f("int64", I(4, 2), [3, 1])
f("three dimensions", R(2, 3, 2), [1, 2], 1)

LAPACK = {"dtypes": ["float64", "float32"], "why": "LAPACK computes in these"}
f = op("linalg.polar", "A", torch.linalg.polar, "linalg", second=False)
f(R(4, 3), **LAPACK)
f(R(2, 3, 3), **LAPACK)
f(R(5, 2), **LAPACK)
f("one", R(1, 1), **LAPACK)
f("a column", R(4, 1), **LAPACK)
f("many", R(3, 2, 2), **LAPACK)
f = op("linalg.householder_product", "A tau", torch.linalg.householder_product, "linalg",
       second=False)
f(S(4, 3), U(2), **LAPACK)
f(S(2, 3, 3), U(2, 3), **LAPACK)
f("a column", S(4, 1), U(1), **LAPACK)
f("square", S(4, 4), U(4), **LAPACK)
f("fewer factors", S(5, 4), U(2), **LAPACK)
f("no factor", S(3, 2), U(0), grad=False, **LAPACK)
f = op("linalg.diagonal", "A offset dim1 dim2", lambda A, offset=0, dim1=-2, dim2=-1:
       torch.linalg.diagonal(A, offset=offset, dim1=dim1, dim2=dim2), dims={"dim1", "dim2"})
f(R(2, 3, 3))
f(R(2, 3, 4), 1, 0, 2)
f(R(4, 2), -1)
f("none", R(2, 2), 3)
f("int64", I(3, 3))
f("four dimensions", R(2, 2, 2, 3), 0, -2, -1)

for name in ("index_reduce_", "put_", "renorm_"):
    exempt(name, "as without _, copied into the input: spec/ops/numbers_spec.lua")
for name in ("float_power_", "igamma_", "igammac_", "ldexp_", "mvlgamma_", "polygamma_"):
    exempt(name, "as without _, copied into the input: spec/cases/accepts_spec.lua")
exempt("chain_matmul", "it is linalg.multi_dot")
exempt("trapz", "it is trapezoid")
exempt("special.polygamma", "it is polygamma")
exempt("svd_lowrank", "random: spec/ops/numbers_spec.lua multiplies the factors")
exempt("pca_lowrank", "random: spec/ops/numbers_spec.lua multiplies the factors")
exempt("binomial", "random: spec/ops/rejection_sampling_spec.lua checks its distribution")
exempt("poisson", "random: spec/ops/rejection_sampling_spec.lua checks its distribution")

"""Creation functions, and random tensors."""

import torch

from kit import B, I, N, P, R, S, T, U, V, exempt, inf, nan, op

f32, f64, i64 = torch.float32, torch.float64, torch.int64

for name in ("zeros", "ones"):
    f = op(name, "size", getattr(torch, name))
    f([2, 3])
    f("0-d", [])
    f("empty", [0, 3])
    f("one element", [1])
    f("f64", [2], dtype=f64, fixed=True)
    f("int64", [2, 3], dtype=i64)
    f("bool", [3], dtype=torch.bool)
    f.raises("E_SHAPE", "a negative size", [-1])

f = op("full", "size fill_value", torch.full)
f([2, 3], 1.5)
f("0-d", [], 2.5)
f("empty", [0, 3], 1.5)
f("one element", [1], inf)
f("NaN", [2], nan)
f("f64", [2], 0.1, dtype=f64, fixed=True)
f("int64", [2, 3], 7, dtype=i64)
f("bool", [3], True)

f = op("arange", "start stop step", torch.arange)
f(0, 5)
f(1, 4)
f(0, 1, 0.25)
f(5, 0, -2)
f("nothing", 3, 3)
f("f64", 0, 1, 0.1, dtype=f64, fixed=True)
f("one element", 2, 3)
f("fractions", 0.5, 3.0)
f("int64 of whole numbers", -3, 4, 2)
f.raises("E_ARG", "never reached", 0, 5, -1)

f = op("range", "first last step", lambda first, last, step=1, dtype=None: torch.arange(
    first, last + (1e-9 if step > 0 else -1e-9) if isinstance(step, float) else
    last + (1 if step > 0 else -1), step, dtype=dtype))
f(1, 5)
f(1, 6, 2)
f(5, 1, -2)
f("one element", 3, 3)
f("fractions", 0, 1, 0.25)
f("f64", 1, 4, dtype=f64, fixed=True)

f = op("linspace", "start stop steps", torch.linspace, "math")
f(0, 1, 5)
f(-2.5, 2.5, 17)
f("down", 3, -1, 3)
f("one step", 2, 7, 1)
f("none", 0, 1, 0)
f("two", 0, 1, 2)
f("f64", 0, 1, 3, dtype=f64, fixed=True)
f.raises("E_ARG", "a negative number", 0, 1, -1)
f = op("logspace", "start stop steps base", torch.logspace, "soft")
f(0, 2, 5)
f("another base", -1, 2, 4, 2.0)
f("one step", 2, 7, 1)
f("none", 0, 1, 0)
f("down", 1, -1, 3)
f("f64", 0, 1, 3, dtype=f64, fixed=True)

f = op("eye", "n m", torch.eye)
f(3)
f(2, 3)
f(3, 2)
f("nothing", 0)
f("no columns", 2, 0)
f("f64", 2, dtype=f64, fixed=True)
f("bool", 2, dtype=torch.bool)

f = op("tril_indices", "row col offset", torch.tril_indices, returns=(0,))
g = op("triu_indices", "row col offset", torch.triu_indices, returns=(0,))
for h in (f, g):
    h(3, 3)
    h(2, 3)
    h(3, 3, 1)
    h(3, 3, -1)
    h("nothing", 0, 0)
    h("one", 1, 1)

f = op("equal", "input other", torch.equal)
f(T([1.0, 2.0]), T([1.0, 2.0]), grad=False)
f("a difference", T([1.0, 2.0]), T([1.0, 2.5]), grad=False)
f("NaN", T([nan]), T([nan]), grad=False)
f("other sizes", R(2), R(3), grad=False)
f("empty", R(0), R(0), grad=False)
f("0-d", T(1.0), T(1.0), grad=False)
f("int64", T([1, 2], i64), T([1, 2], i64))

# ---- like another tensor ----

for name in ("new_zeros", "new_ones"):
    f = op(name, "input size", lambda x, size, name=name, **o: getattr(x, name)(size, **o))
    f(R(2), [2, 3], grad=False)
    f("0-d", R(2), [], grad=False)
    f("empty", R(2), [0, 3], grad=False)
    f("one element", R(0), [1], grad=False)
    f("of int64", T([1, 2], i64), [2])
    f("of bool", T([True], torch.bool), [2])

f = op("new_full", "input size fill_value", lambda x, size, v, **o: x.new_full(size, v, **o))
f(R(2), [2, 3], 1.5, grad=False)
f("0-d", R(2), [], 2.5, grad=False)
f("empty", R(2), [0, 3], 1.5, grad=False)
f("infinity", R(2), [1], inf, grad=False)
f("of int64", T([1, 2], i64), [2], 7)
f("of bool", T([True], torch.bool), [2], True)

f = op("new_tensor", "input data", lambda x, data, **o: x.new_tensor(data, **o))
f(R(2), [1.5, 2.0], grad=False)
f("nested", R(2), [[1.0, 2.0], [3.0, 4.0]], grad=False)
f("a number", R(2), 2.5, grad=False)
f("of int64", T([1], i64), [1, 2])
f("of uint8", T([1], torch.uint8), [1, 2])
f("of bool", T([True], torch.bool), [True, False])

f = op("fill_diagonal_", "input fill_value wrap", lambda x, *a, **o: x.fill_diagonal_(*a, **o),
       mutates=True)
f(R(3, 3), 1.5)
f("wide", R(2, 5), 0.0)
f("tall", R(5, 2), -1.0)
f("tall, wrapped", R(7, 2), 2.5, wrap=True)
f("a cube", R(3, 3, 3), 0.5)
f("int64", T([[1, 2], [3, 4]], i64), 9)

DRAWS = "random: spec/ops/random_spec.lua and distribution_spec.lua check the distribution"
for name in ("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm",
             "normal_", "uniform_", "normal", "bernoulli", "bernoulli_", "multinomial",
             "exponential_", "geometric_", "cauchy_", "log_normal_", "random_", "poisson"):
    exempt(name, DRAWS)
for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
             "feature_alpha_dropout", "gumbel_softmax"):
    exempt(name, "random: a spec of its own checks rate, scale and gradient of the mask")
for name in ("empty", "empty_like", "new_empty", "empty_strided"):
    exempt(name, "its elements are whatever lies in memory")

"""Composite layers: lp_pool, max_unpool, local_response_norm, channel_shuffle."""

import torch.nn.functional as F

from kit import I, P, R, T, exempt, inf, nan, op

X = {1: (6,), 2: (4, 5), 3: (2, 4, 3)}

for d in (1, 2, 3):
    x = X[d]
    f = op(f"lp_pool{d}d", "input norm_type kernel_size stride ceil_mode",
           getattr(F, f"lp_pool{d}d"), "composed")
    f(R(2, 2, *x), 2, 2)
    f("a cube", P(1, 2, *x), 3.0, 2, 1)
    f("of one", P(1, 2, *x), 1.0, [2, 1, 2][:d] if d > 1 else 2)
    f("ceil_mode", P(1, 1, *x), 2.0, 2, 2, True)
    f("no batch dimension", P(2, *x), 2, 2)
    f("nothing", T([0.0] * 8).reshape(1, 1, *([1] * (d - 1)), 8), 2,
      [1, 1, 2][-d:] if d > 1 else 2)
    f("special values", T([nan, 1.0, inf, -inf]).reshape(1, 1, *([1] * (d - 1)), 4), 2,
      [1, 1, 2][-d:] if d > 1 else 2, grad=False)

    def positions(*shape, **how):
        found = getattr(F, f"max_pool{len(shape)}d")(P(2, 2, *shape).make(f"at {shape}"),
                                                     return_indices=True, **how)[1]
        return found

    f = op(f"max_unpool{d}d", "input indices kernel_size stride padding output_size",
           getattr(F, f"max_unpool{d}d"), positions=("indices",))
    even = [4, 2, 6][:d]
    half = [n // 2 for n in even]
    f(R(2, 2, *half), positions(*even, kernel_size=2), 2)
    f("a size", R(2, 2, *half), positions(*[n + 1 for n in even], kernel_size=2), 2,
      output_size=[n + 1 for n in even])
    f("a whole size", R(2, 2, *half), positions(*[n + 1 for n in even], kernel_size=2), 2,
      output_size=[2, 2] + [n + 1 for n in even])
    odd = [5, 4, 4][:d]
    at = positions(*odd, kernel_size=2, stride=3, padding=1)
    f("apart", R(*at.shape), at, 2, 3, 1, odd)
    f("one window", R(2, 2, *[1] * d), positions(*[2] * d, kernel_size=2), 2)
    f("no batch dimension", R(2, *half), positions(*even, kernel_size=2)[0], 2)
    f.raises("E_SHAPE", "other positions", R(2, 1, *half), positions(*even, kernel_size=2), 2)
    f.raises("E_SHAPE", "a size too large", R(2, 2, *half), positions(*even, kernel_size=2), 2,
             output_size=[n + 2 for n in even])

f = op("local_response_norm", "input size alpha beta k", F.local_response_norm, "composed")
f(R(2, 5, 3), 3)
f("two neighbours", R(2, 5, 3), 2, 0.5, 0.5, 2.0)
f("images", R(1, 4, 2, 3), 4, 0.25)
f("volumes", R(1, 3, 2, 2, 2), 5, 0.5, 0.75, 0.5)
f("itself", R(1, 3, 4), 1, 2.0)
f("zeros", T([0.0] * 6).reshape(1, 3, 2), 3)
f("nothing", R(0, 3, 2), 3)
f.raises("E_SHAPE", "two dimensions", R(2, 3), 3)

f = op("channel_shuffle", "input groups", F.channel_shuffle)
f(R(2, 4, 3), 2)
f("images", R(1, 6, 2, 2), 3)
f("volumes", R(1, 6, 2, 1, 2), 2)
f("one group", R(1, 4, 2), 1)
f("as many groups as channels", R(1, 4, 2), 4)
f("int64", I(2, 4, 3), 2)
f.raises("E_SHAPE", "groups that do not fit", R(1, 4, 2), 3)

f = op("rrelu", "input lower upper training inplace", F.rrelu, "composed")
f(R(2, 3))
f("other slopes", R(2, 3), 0.25, 0.5)
f("one slope", R(4), 0.5, 0.5)
f("slopes below zero", R(2, 3), -0.5, 0.25)
f("a number", R())
f("nothing", R(0, 3))
f("special values", T([inf, -inf, nan, 0.0, -0.0]), grad=False)
exempt("fractional_max_pool2d", "random: spec/nn/rare_spec.lua has PyTorch's numbers for given draws")

"""Bessel's and Airy's functions, orthogonal polynomials."""

import torch
from torch import special

from kit import I, P, S, T, V, inf, nan, op

WIDE = {"dtypes": ["float64", "float32"], "why": "half types are too coarse for what comes of it"}
# PyTorch's functions have no gradients; some of J and Y have errors up to 1e-6, and are NaN at
# infinity (spec/ops/bessel_spec.lua has exact values)
CLOSE = {"tol": {"float64": 1e-13, "float32": 2e-6}, "grad": False, **WIDE}
COARSE = {**CLOSE, "tol": {"float64": 1e-6, "float32": 2e-6}, "why": "PyTorch's is less exact"}
EVEN = [nan, 0.0, -0.0, 1.0, -1.0, 1.9921875, 2.0, 5.0, -5.0, 25.0, 700.0]
ODD = [nan, 0.0, 1e-3, 1.0, 1.9921875, 2.0, 5.0, 25.0, 700.0]
for name, draw, some in (
        ("bessel_j0", S, EVEN), ("bessel_j1", S, EVEN),
        ("bessel_y0", P, [*ODD, -1.0]), ("bessel_y1", P, [*ODD, -1.0]),
        ("modified_bessel_i0", S, EVEN[1:-1]), ("modified_bessel_i1", S, EVEN[1:-1]),
        ("modified_bessel_k0", P, [*ODD, -1.0]), ("modified_bessel_k1", P, [*ODD, -1.0]),
        ("scaled_modified_bessel_k0", P, ODD), ("scaled_modified_bessel_k1", P, ODD),
        ("airy_ai", S, [nan, 0.0, 0.9921875, 1.0, 2.5, 7.0, 30.0, -0.9921875, -1.0, -4.0, -20.0]),
        ("spherical_bessel_j0", S, EVEN)):
    f = op("special." + name, "input", getattr(special, name), "soft")
    close = COARSE if name.startswith(("bessel", "airy")) else CLOSE
    f(draw(2, 3), **close)
    f("0-d", draw(), **close)
    f("empty", draw(0, 3), grad=False)
    f("a repeated row", draw(1, 5).then(lambda x: x.expand(3, 5)), **close)
    f("seventeen", draw(2, 17), **close)
    f("special values", T(some), **close)
    f("int64", I(3, low=1, high=5), grad=False)

for name in ("chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
             "chebyshev_polynomial_w shifted_chebyshev_polynomial_t "
             "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
             "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
             "laguerre_polynomial_l legendre_polynomial_p").split():
    f = op("special." + name, "input n", getattr(special, name), "soft")
    f(V(2, 3), 3, **CLOSE)
    for n in (-1, 0, 1, 2, 7):
        f("degree %d" % n, V(5), n, **CLOSE)
    f("beyond 1", S(7), 4, **CLOSE)
    f("degrees of each", V(2, 4), T([0.0, 1.0, 2.0, 5.0]), **CLOSE)
    f("a column and a row", V(3, 1), T([0, 3, 4, 9], torch.int64), **CLOSE)
    f("0-d", V(), 2, **CLOSE)
    f("empty", V(0, 3), 2, grad=False)
    f("int64", I(3, low=1, high=5), 2, grad=False)

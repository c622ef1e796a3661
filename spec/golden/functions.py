"""Writes functions.json: values and derivatives of functions of one and two numbers, by mpmath.

    python3 spec/golden/functions.py > spec/golden/functions.json      (minutes)

Each row: `lua` is the call in Lua (x, y are float64 tensors), `at` its arguments, and `want` lists
the value, the first and the second derivative at each point; for two arguments the value, both
first derivatives and the three second ones. null is a number that is not compared: a derivative
that does not exist, or a derivative of a step function. "nan", "inf" and "-inf" are strings. A
derivative without a formula here is mpmath's difference quotient, with enough digits that two
precisions agree.
"""

import json
import math
import sys

import mpmath
from mpmath import mp, mpf

inf, nan = math.inf, math.nan
AGREE = mpf(10) ** -22

TINY = [5e-324, 1e-310, 1e-300, 1e-100, 1e-30, 1e-9, 1e-5]
SMALL = [0.001, 0.03, 0.1, 0.5, 0.7, 0.9, 0.999]
MIDDLE = [1.0, 1.5, 2.0, 3.7, 8.0, 12.3, 27.0]
LARGE = [38.0, 100.0, 700.0, 1e4, 1e9]
HUGE = [1e16, 1e20, 1e100, 1e200, 1e300, 1.7e308]
POSITIVE = TINY + SMALL + MIDDLE + LARGE + HUGE


def both(points):
    return [-v for v in reversed(points)] + points


REAL = both(POSITIVE)                          # without 0, where kinks are
ALL = both(POSITIVE) + [0.0]
UNIT = both(TINY + SMALL + [1 - 1e-10, 1 - 2 ** -53])
PART = TINY + SMALL + [1 - 1e-10, 1 - 2 ** -53]  # between 0 and 1
MODEST = both(TINY + SMALL + MIDDLE + LARGE[:3])
WAVES = both(TINY + SMALL + MIDDLE + LARGE[:4])
ENDS = [inf, -inf]

ROWS = []


def number(v):
    """A result for JSON: rounded to float64."""
    if v is None:
        return None
    if isinstance(v, mpmath.mpc):
        if v.imag != 0:
            return "nan"
        v = v.real
    if mpmath.isnan(v):
        return "nan"
    f = float(v)
    return ("inf" if f > 0 else "-inf") if math.isinf(f) else f


def derivative(f, x, n):
    last, digits = None, 50
    while digits <= 6000:
        with mp.workdps(digits):
            x0 = mpf(x)
            mag = mp.mag(x0) if x0 != 0 else 0
            h = mp.ldexp(1, -int(digits * 3.32 / (n + 2)) + min(mag, 0))
            try:
                with mp.workdps(digits + int(abs(mag) * 0.302 * (n + 2)) + 20):
                    if n == 1:
                        v = (f(x0 + h) - f(x0 - h)) / (2 * h)
                    else:
                        v = (f(x0 + h) - 2 * f(x0) + f(x0 - h)) / (h * h)
            except (ValueError, ZeroDivisionError, mpmath.libmp.NoConvergence):
                return None
            if isinstance(v, mpmath.mpc):
                return None
            if last is not None and (abs(v - last) <= AGREE * abs(v)
                                     or abs(v) < mpf(10) ** -330 and abs(last) < mpf(10) ** -330):
                return v
            last = v
        digits *= 2
    return None


def value(f, *x):
    with mp.workdps(60):
        try:
            return f(*[mpf(v) for v in x])
        except ZeroDivisionError:
            return mpf("inf")


def one(lua, f, points, d1=None, d2=None, ends=None):
    """A function of one number. `ends`: the value at inf and -inf, each None or with derivatives."""
    at, want = [], [[], [], []]
    for x in points:
        at.append(x)
        want[0].append(number(value(f, x)))
        for n, d in ((1, d1), (2, d2)):
            want[n].append(number(value(d, x) if d else derivative(f, x, n)))
    for x, wanted in zip(ENDS, ends or []):
        if wanted is not None:
            at.append("inf" if x > 0 else "-inf")
            for n in range(3):
                v = wanted[n]
                want[n].append(v if v is None else number(mpf(v)))
    ROWS.append({"lua": lua, "at": [at], "want": want})
    print(lua, len(at), file=sys.stderr, flush=True)


def two(lua, points, *functions):
    """A function of two numbers, and its derivatives by x, y, xx, xy and yy, or None."""
    want = [[number(value(f, *p)) if f else None for p in points] for f in functions]
    ROWS.append({"lua": lua, "at": [[p[0] for p in points], [p[1] for p in points]],
                 "want": want})
    print(lua, len(points), file=sys.stderr, flush=True)


log, exp, sqrt = mpmath.log, mpmath.exp, mpmath.sqrt
rpi = lambda: 1 / sqrt(mp.pi)
r2pi = lambda: 1 / sqrt(2 * mp.pi)


# ---- exponentials, logarithms, circles ----

one("x:exp()", exp, MODEST + [709.0, -740.0, 709.7], exp, exp, ends=[(inf, inf, inf), (0, 0, 0)])
L2 = lambda: log(mpf(2))
one("x:exp2()", lambda x: mpf(2) ** x, MODEST + [1023.5, -1070.5], lambda x: mpf(2) ** x * L2(),
    lambda x: mpf(2) ** x * L2() ** 2, ends=[(inf, inf, inf), (0, 0, 0)])
one("x:expm1()", mpmath.expm1, MODEST + [0.0], exp, exp, ends=[(inf, inf, inf), (-1, 0, 0)])
one("x:log()", log, POSITIVE, lambda x: 1 / x, lambda x: -1 / x ** 2, ends=[(inf, 0, 0)])
one("x:log2()", lambda x: log(x) / L2(), POSITIVE, lambda x: 1 / x / L2(),
    lambda x: -1 / x ** 2 / L2(), ends=[(inf, 0, 0)])
L10 = lambda: log(mpf(10))
one("x:log10()", lambda x: log(x) / L10(), POSITIVE, lambda x: 1 / x / L10(),
    lambda x: -1 / x ** 2 / L10(), ends=[(inf, 0, 0)])
one("x:log1p()", lambda x: mpmath.log1p(x), POSITIVE + [-v for v in PART] + [0.0],
    lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2, ends=[(inf, 0, 0)])
one("x:sqrt()", sqrt, POSITIVE, lambda x: 1 / (2 * sqrt(x)), lambda x: -1 / (4 * x * sqrt(x)),
    ends=[(inf, 0, 0)])
one("x:rsqrt()", lambda x: 1 / sqrt(x), POSITIVE, lambda x: -1 / (2 * x * sqrt(x)),
    lambda x: 3 / (4 * x ** 2 * sqrt(x)), ends=[(0, 0, 0)])
one("x:reciprocal()", lambda x: 1 / x, REAL, lambda x: -1 / x ** 2, lambda x: 2 / x ** 3,
    ends=[(0, 0, 0), (0, 0, 0)])
one("x:square()", lambda x: x * x, ALL, lambda x: 2 * x, lambda x: mpf(2))
ONE = {"sin": (mpmath.sin, mpmath.cos, lambda x: -mpmath.sin(x)),
       "cos": (mpmath.cos, lambda x: -mpmath.sin(x), lambda x: -mpmath.cos(x)),
       "tan": (mpmath.tan, lambda x: mpmath.sec(x) ** 2,
               lambda x: 2 * mpmath.sec(x) ** 2 * mpmath.tan(x)),
       "sinh": (mpmath.sinh, mpmath.cosh, mpmath.sinh),
       "cosh": (mpmath.cosh, mpmath.sinh, mpmath.cosh)}
for name, (f, d1, d2) in ONE.items():
    one(f"x:{name}()", f, (ALL if name in ("sin", "cos", "tan") else MODEST + [0.0, 710.0]), d1, d2)
one("x:tanh()", mpmath.tanh, ALL, lambda x: mpmath.sech(x) ** 2,
    lambda x: -2 * mpmath.sech(x) ** 2 * mpmath.tanh(x), ends=[(1, 0, 0), (-1, 0, 0)])
q1 = lambda x: (1 - x) * (1 + x)
one("x:asin()", mpmath.asin, UNIT + [0.0], lambda x: 1 / sqrt(q1(x)), lambda x: x / q1(x) ** 1.5)
one("x:acos()", mpmath.acos, UNIT + [0.0], lambda x: -1 / sqrt(q1(x)), lambda x: -x / q1(x) ** 1.5)
one("x:atan()", mpmath.atan, ALL, lambda x: 1 / (1 + x * x),
    lambda x: -2 * x / (1 + x * x) ** 2)
one("x:asinh()", mpmath.asinh, ALL, lambda x: 1 / sqrt(1 + x * x),
    lambda x: -x / sqrt(1 + x * x) ** 3)
one("x:acosh()", mpmath.acosh, [1 + 2 ** -52, 1 + 1e-10] + [v for v in POSITIVE if v > 1],
    lambda x: 1 / sqrt((x - 1) * (x + 1)), lambda x: -x / sqrt((x - 1) * (x + 1)) ** 3)
one("x:atanh()", mpmath.atanh, UNIT + [0.0], lambda x: 1 / q1(x), lambda x: 2 * x / q1(x) ** 2)


def sphere(x, n, k):
    """The n-th derivative of sin(k x) / (k x), n up to 2, with digits for the difference."""
    if x == 0:
        return (mpf(1), mpf(0), -k * k / 3)[n]
    with mp.workdps(60 + 5 * max(0, -int(mpmath.log10(abs(x))))
                    + int(max(0, mpmath.log10(abs(x))))):
        z = (mp.pi if k != 1 else mpf(1)) * x
        s, c = (mpmath.sinpi(x), mpmath.cospi(x)) if k != 1 else (mpmath.sin(z), mpmath.cos(z))
        return (s / z, k * (c / z - s / z ** 2),
                k * k * (-s / z - 2 * c / z ** 2 + 2 * s / z ** 3))[n]


one("x:sinc()", lambda x: sphere(x, 0, +mp.pi), WAVES + [0.0], lambda x: sphere(x, 1, +mp.pi),
    lambda x: sphere(x, 2, +mp.pi))
one("S.spherical_bessel_j0(x)", lambda x: sphere(x, 0, 1), WAVES + [0.0],
    lambda x: sphere(x, 1, 1), lambda x: sphere(x, 2, 1))

# ---- probability ----



def erfc(x):
    """mpmath's erfc, which does not accept large numbers."""
    return mpf(0) if x > 1e4 else mpf(2) if x < -1e4 else mpmath.erfc(x)


gauss = lambda x: 2 * rpi() * exp(-x * x)
one("x:erf()", mpmath.erf, ALL, gauss, lambda x: -2 * x * gauss(x), ends=[(1, 0, 0), (-1, 0, 0)])
one("x:erfc()", erfc, ALL, lambda x: -gauss(x), lambda x: 2 * x * gauss(x),
    ends=[(0, 0, 0), (2, 0, 0)])


def erfcx(x):
    with mp.workdps(60 + int(min(x * x, 4000) * 0.45)):
        if x > 1e4:  # the asymptotic series
            return sum((-1) ** k * mpmath.fac2(2 * k - 1) / (2 * x * x) ** k
                       for k in range(12)) / (x * sqrt(mp.pi))
        return exp(x * x) * erfc(x)


def scaled_tail(x, n):
    if x > 1e4:
        series = [(-1) ** k * mpmath.fac2(2 * k - 1) / mpf(2) ** k for k in range(12)]
        power = lambda k: -(2 * k + 1)
        return sum(c * (power(k) if n > 0 else 1) * (power(k) - 1 if n > 1 else 1)
                   * x ** (power(k) - n) for k, c in enumerate(series)) / sqrt(mp.pi)
    with mp.workdps(120):
        f = erfcx(x)
        f1 = 2 * x * f - 2 * rpi()
        return (f, f1, 2 * f + 2 * x * f1)[n]


TAIL = [-v for v in TINY + SMALL + MIDDLE if v < 26] + POSITIVE + [0.0]
one("S.erfcx(x)", lambda x: scaled_tail(x, 0), TAIL, lambda x: scaled_tail(x, 1),
    lambda x: scaled_tail(x, 2), ends=[(0, 0, 0)])
one("S.ndtr(x)", lambda x: erfc(-x / sqrt(mpf(2))) / 2, ALL,
    lambda x: r2pi() * exp(-x * x / 2), lambda x: -x * r2pi() * exp(-x * x / 2),
    ends=[(1, 0, 0), (0, 0, 0)])


def log_ndtr(x, n):
    if x < -1e5:
        t = x * x
        if n == 0:
            return -t / 2 - log(-x) - log(2 * mp.pi) / 2 - 1 / t
        return -x - 1 / x if n == 1 else -1 + 1 / t
    with mp.workdps(80 if x < 0 else 60):
        p = erfc(-x / sqrt(mpf(2))) / 2
        r = r2pi() * exp(-x * x / 2) / p
        return (mpmath.log1p(-erfc(x / sqrt(mpf(2))) / 2) if x > 0 else log(p),
                r, -r * (x + r))[n]


one("S.log_ndtr(x)", lambda x: log_ndtr(x, 0), [v for v in ALL if abs(v) <= 1e160],
    lambda x: log_ndtr(x, 1), lambda x: log_ndtr(x, 2), ends=[(0, 0, 0), (-inf, inf, -1)])


def erfinv(y):
    """By Newton's method from the float64 guess of bisection, on the smaller tail."""
    if y == 0:
        return mpf(0)
    if y < 0:
        return -erfinv(-y)
    if y < 1e-8:
        with mp.workdps(40):
            z = y * sqrt(mp.pi) / 2
            return z + z ** 3 / 3 + 7 * z ** 5 / 30
    with mp.workdps(80):
        y = mpf(y)
        low, high = mpf(0), mpf(40)
        tail = 1 - y
        for _ in range(60):
            mid = (low + high) / 2
            if erfc(mid) > tail:
                low = mid
            else:
                high = mid
        z = low
        for _ in range(4):
            z -= (tail - erfc(z)) / (2 * rpi() * exp(-z * z))
        return z


one("x:erfinv()", erfinv, UNIT + [0.0], lambda y: exp(erfinv(y) ** 2) / (2 * rpi()),
    lambda y: 2 * erfinv(y) * (exp(erfinv(y) ** 2) / (2 * rpi())) ** 2)


def ndtri(p):
    if p > 0.5:
        return -ndtri_low(1 - mpf(p))
    return ndtri_low(mpf(p))


def ndtri_low(p):
    with mp.workdps(80):
        if p == 0.5:
            return mpf(0)
        low, high = mpf(-40), mpf(0)
        for _ in range(60):
            mid = (low + high) / 2
            if erfc(-mid / sqrt(mpf(2))) / 2 < p:
                low = mid
            else:
                high = mid
        z = low
        for _ in range(4):
            q = erfc(-z / sqrt(mpf(2))) / 2
            z -= q * log(q / p) / (r2pi() * exp(-z * z / 2))
        return z


steep = lambda p: exp(ndtri(p) ** 2 / 2) / r2pi()
one("S.ndtri(x)", ndtri, PART, steep, lambda p: ndtri(p) * steep(p) ** 2)
sig = lambda x: 1 / (1 + exp(-x))
one("x:sigmoid()", sig, ALL, lambda x: sig(x) * sig(-x),
    lambda x: -sig(x) * sig(-x) * mpmath.tanh(x / 2), ends=[(1, 0, 0), (0, 0, 0)])
one("x:logit()", lambda p: log(p) - mpmath.log1p(-p), PART, lambda p: 1 / (p * (1 - p)),
    lambda p: (2 * p - 1) / (p * (1 - p)) ** 2)
one("S.entr(x)", lambda p: -p * log(p), POSITIVE, lambda p: -log(p) - 1, lambda p: -1 / p)

# ---- the gamma function ----

REST = [-0.5, -0.25, -1e-5, -1e-10, -1e-30, -1e-300, -1.5, -2.25, -3.75, -10.5, -20.3, -50.1,
        1.46163, 1.0000001, 1.9999999]
GAMMA = POSITIVE + REST
one("x:lgamma()", lambda x: log(abs(mpmath.gamma(x))) if x < 0 else mpmath.loggamma(x), GAMMA,
    lambda x: mpmath.psi(0, x), lambda x: mpmath.psi(1, x), ends=[(inf, inf, 0)])
one("x:digamma()", lambda x: mpmath.psi(0, x), GAMMA, lambda x: mpmath.psi(1, x),
    lambda x: mpmath.psi(2, x), ends=[(inf, 0, 0)])
for n in (1, 2, 3, 6):
    one(f"S.polygamma({n}, x)", lambda x: mpmath.psi(n, x), GAMMA,
        lambda x: mpmath.psi(n + 1, x), lambda x: mpmath.psi(n + 2, x), ends=[(0, 0, 0)])
one("S.multigammaln(x, 3)", lambda x: 1.5 * log(mp.pi) + sum(mpmath.loggamma(x - mpf(j) / 2)
                                                         for j in range(3)),
    [1.0000001, 1.01, 1.1] + [v for v in POSITIVE if v > 1.2],
    lambda x: sum(mpmath.psi(0, x - mpf(j) / 2) for j in range(3)),
    lambda x: sum(mpmath.psi(1, x - mpf(j) / 2) for j in range(3)))

# ---- Bessel's functions ----


def bessel(kind, order):
    return lambda x: kind(order, x)


def by_recurrence(name, lua, sign, points, kind):
    """J, Y (sign -1) and I, K with their derivatives; K's recurrence has -1 throughout."""
    up = {"j": -1, "y": -1, "i": 1, "k": -1}[name]
    c0 = lambda x: kind(0, x)
    c1 = lambda x: kind(1, x)

    def digits(x, times):  # of small x the terms of J and I cancel
        return 60 + (times * max(0, -int(mpmath.log10(abs(x)))) if x and name in "ij" else 0)

    def first(n):
        def d(x):
            with mp.workdps(digits(x, 4)):
                return up * c1(x) if n == 0 else (c0(x) * (1 if name in "ijy" else -1)
                                                  - (c1(x) / x if x else mpf("0.5")))
        return d

    def second(n):  # x^2 f'' = -x f' + sign (x^2 + sign n^2) f
        def d(x):
            if x == 0:
                return {"j": (-0.5, 0), "i": (0.5, 0)}[name][n]
            with mp.workdps(digits(x, 6)):
                x = mpf(x)
                f = c1(x) if n else c0(x)
                return -first(n)(x) / x + (sign + n * n / x ** 2) * f
        return d

    for n in (0, 1):
        one(lua % n, lambda x: kind(n, x), points, first(n), second(n))


FAR = [30.0, 100.0, 1000.0, 1e4, 1e6]
by_recurrence("j", "S.bessel_j%d(x)", -1, both(TINY + SMALL + MIDDLE + FAR) + [0.0], mpmath.besselj)
by_recurrence("y", "S.bessel_y%d(x)", -1, TINY + SMALL + MIDDLE + FAR, mpmath.bessely)
by_recurrence("i", "S.modified_bessel_i%d(x)", 1,
              both(TINY + SMALL + MIDDLE + [38.0, 100.0, 350.0, 700.0]) + [0.0], mpmath.besseli)
by_recurrence("k", "S.modified_bessel_k%d(x)", 1,
              TINY + SMALL + MIDDLE + [38.0, 100.0, 350.0, 700.0], mpmath.besselk)


def series_far(mu, x, alternate):
    """Hankel's asymptotic series of exp(-x) I or exp(x) K, with derivatives by powers of x."""
    out = [mpf(0)] * 3
    c = mpf(1)
    for k in range(20):
        p = -mpf(k) - mpf(1) / 2
        out[0] += c * x ** p
        out[1] += c * p * x ** (p - 1)
        out[2] += c * p * (p - 1) * x ** (p - 2)
        c *= (mu - (2 * k + 1) ** 2) / (8 * mpf(k + 1)) * (-1 if alternate else 1)
    return out


def scaled(name, lua, points):
    for n in (0, 1):
        def parts(x):
            x = mpf(x)
            size = abs(x)
            mu = 4 * n * n
            if size > 300:
                out = series_far(mu, size, name == "i")
                out = [v * (r2pi() if name == "i" else sqrt(mp.pi / 2)) for v in out]
                if x < 0:
                    out = [out[0], -out[1], out[2]] if n == 0 else [-out[0], out[1], -out[2]]
                return out
            digits = 80
            if size and name == "i":
                digits += 6 * max(0, -int(mpmath.log10(size)))
            with mp.workdps(digits + int(size)):
                kind = mpmath.besseli if name == "i" else mpmath.besselk
                f0, f1 = kind(0, size), kind(1, size)
                e = exp(-size) if name == "i" else exp(size)
                s = 1 if name == "i" else -1
                d0 = s * f1
                d1 = s * f0 - (f1 / size if size else mpf(1) / 2)
                dd0 = -d0 / size + f0 if size else mpf(1) / 2
                dd1 = -d1 / size + (1 + 1 / size ** 2) * f1 if size else mpf(0)
                f, d, dd = (f1, d1, dd1) if n else (f0, d0, dd0)
                out = [e * f, e * (d - s * f), e * (dd - 2 * s * d + f)]
                if x < 0:
                    out = [out[0], -out[1], out[2]] if n == 0 else [-out[0], out[1], -out[2]]
                return out
        one(lua % n, lambda x: parts(x)[0], points, lambda x: parts(x)[1], lambda x: parts(x)[2])


scaled("i", "S.i%de(x)", REAL)
scaled("k", "S.scaled_modified_bessel_k%d(x)", POSITIVE)
AIRY = both(TINY + SMALL + MIDDLE + [38.0, 100.0]) + [0.0]
one("S.airy_ai(x)", mpmath.airyai, AIRY, lambda x: mpmath.airyai(x, derivative=1),
    lambda x: x * mpmath.airyai(x))

# ---- polynomials ----

POLY = both(TINY[-4:] + SMALL + [1.0, 1.1, 1.5, 2.0, 3.7, 12.3, 100.0, 1e4, 1e9, 1e20]) + [0.0]


def polynomial(lua, n, start, step):
    """By the recurrence of coefficients: step(k, P(k), P(k-1)) -> P(k+1)."""
    a, b = [mpf(1)], start
    if n == 0:
        b = a
    for k in range(1, n):
        a, b = b, step(k, b, a)
    c = b
    d = [k * v for k, v in enumerate(c)][1:] or [mpf(0)]
    dd = [k * v for k, v in enumerate(d)][1:] or [mpf(0)]
    at = lambda cs: lambda x: mpmath.polyval(cs[::-1], x)
    one(lua % n, at(c), POLY, at(d), at(dd))


def plus(*terms):
    out = [mpf(0)] * max(len(p) + up for _, p, up in terms)
    for factor, p, up in terms:
        for k, v in enumerate(p):
            out[k + up] += factor * v
    return out


cheb = lambda k, p, q: plus((2, p, 1), (-1, q, 0))
for n in (2, 7):
    polynomial("S.chebyshev_polynomial_t(x, %d)", n, [mpf(0), mpf(1)], cheb)
    polynomial("S.chebyshev_polynomial_u(x, %d)", n, [mpf(0), mpf(2)], cheb)
    polynomial("S.chebyshev_polynomial_v(x, %d)", n, [mpf(-1), mpf(2)], cheb)
    polynomial("S.chebyshev_polynomial_w(x, %d)", n, [mpf(1), mpf(2)], cheb)
    shift = lambda k, p, q: plus((4, p, 1), (-2, p, 0), (-1, q, 0))
    polynomial("S.shifted_chebyshev_polynomial_t(x, %d)", n, [mpf(-1), mpf(2)], shift)
    polynomial("S.shifted_chebyshev_polynomial_u(x, %d)", n, [mpf(-2), mpf(4)], shift)
    polynomial("S.shifted_chebyshev_polynomial_v(x, %d)", n, [mpf(-3), mpf(4)], shift)
    polynomial("S.shifted_chebyshev_polynomial_w(x, %d)", n, [mpf(-1), mpf(4)], shift)
    polynomial("S.hermite_polynomial_h(x, %d)", n, [mpf(0), mpf(2)],
               lambda k, p, q: plus((2, p, 1), (-2 * k, q, 0)))
    polynomial("S.hermite_polynomial_he(x, %d)", n, [mpf(0), mpf(1)],
               lambda k, p, q: plus((1, p, 1), (-k, q, 0)))
    polynomial("S.laguerre_polynomial_l(x, %d)", n, [mpf(1), mpf(-1)],
               lambda k, p, q: plus((mpf(2 * k + 1) / (k + 1), p, 0), (-mpf(1) / (k + 1), p, 1),
                                    (-mpf(k) / (k + 1), q, 0)))
    polynomial("S.legendre_polynomial_p(x, %d)", n, [mpf(0), mpf(1)],
               lambda k, p, q: plus((mpf(2 * k + 1) / (k + 1), p, 1),
                                    (-mpf(k) / (k + 1), q, 0)))

# ---- activations ----


def softplus(x):
    return mpmath.log1p(exp(x)) if x < 0 else x + mpmath.log1p(exp(-x))


s1 = lambda x: sig(x) * sig(-x)
s2 = lambda x: -s1(x) * mpmath.tanh(x / 2)
ONE_ZERO = [(inf, 1, 0), (0, 0, 0)]
one("F.softplus(x)", softplus, [v for v in ALL if v <= 20], sig, s1, ends=[None, (0, 0, 0)])
one("F.logsigmoid(x)", lambda x: -softplus(-x), ALL, lambda x: sig(-x), lambda x: -s1(x),
    ends=[(0, 0, 0), (-inf, 1, 0)])
one("F.silu(x)", lambda x: x * sig(x), ALL, lambda x: sig(x) + x * s1(x),
    lambda x: 2 * s1(x) + x * s2(x), ends=ONE_ZERO)
one("F.gelu(x)", lambda x: x * erfc(-x / sqrt(mpf(2))) / 2, ALL,
    lambda x: erfc(-x / sqrt(mpf(2))) / 2 + x * r2pi() * exp(-x * x / 2),
    lambda x: (2 - x * x) * r2pi() * exp(-x * x / 2), ends=ONE_ZERO)
GC = lambda: sqrt(2 / mp.pi)
GA = mpf("0.044715")


def gelu_tanh(x, n):
    u, u1, u2 = GC() * (x + GA * x ** 3), GC() * (1 + 3 * GA * x * x), GC() * 6 * GA * x
    s, d, dd = sig(2 * u), 2 * s1(2 * u) * u1, 4 * s2(2 * u) * u1 ** 2 + 2 * s1(2 * u) * u2
    return (x * s, s + x * d, 2 * d + x * dd)[n]


one("F.gelu(x, 'tanh')", lambda x: gelu_tanh(x, 0), ALL, lambda x: gelu_tanh(x, 1),
    lambda x: gelu_tanh(x, 2), ends=ONE_ZERO)


def mish(x, n):
    p = softplus(x)
    t = mpmath.tanh(p)
    t1 = mpmath.sech(p) ** 2 * sig(x)
    t2 = mpmath.sech(p) ** 2 * s1(x) - 2 * t * mpmath.sech(p) ** 2 * sig(x) ** 2
    return (x * t, t + x * t1, 2 * t1 + x * t2)[n]


one("F.mish(x)", lambda x: mish(x, 0), ALL, lambda x: mish(x, 1), lambda x: mish(x, 2),
    ends=ONE_ZERO)


def tanhshrink(x, n):
    with mp.workdps(60 + 3 * max(0, -int(mpmath.log10(abs(x)))) if x else 60):
        t = mpmath.tanh(mpf(x))
        return (x - t, t * t, 2 * t * mpmath.sech(mpf(x)) ** 2)[n]


one("F.tanhshrink(x)", lambda x: tanhshrink(x, 0), ALL, lambda x: tanhshrink(x, 1),
    lambda x: tanhshrink(x, 2))
one("F.softsign(x)", lambda x: x / (1 + abs(x)), REAL, lambda x: 1 / (1 + abs(x)) ** 2,
    lambda x: -2 * mpmath.sign(x) / (1 + abs(x)) ** 3)
step = lambda low, mid, high, a, b: lambda x: (low if x < a else mid if x < b else high)(x)
zero, unit = lambda x: mpf(0), lambda x: mpf(1)
one("F.hardswish(x)", step(zero, lambda x: x * (x + 3) / 6, lambda x: x, -3, 3), REAL,
    step(zero, lambda x: (2 * x + 3) / 6, unit, -3, 3), step(zero, lambda x: mpf(1) / 3, zero, -3, 3))
one("F.hardsigmoid(x)", step(zero, lambda x: (x + 3) / 6, unit, -3, 3), REAL,
    step(zero, lambda x: mpf(1) / 6, zero, -3, 3), zero)
one("F.hardtanh(x)", step(lambda x: mpf(-1), lambda x: x, unit, -1, 1),
    [v for v in REAL if abs(v) != 1], step(zero, unit, zero, -1, 1), zero)
one("F.relu6(x)", step(zero, lambda x: x, lambda x: mpf(6), 0, 6), REAL,
    step(zero, unit, zero, 0, 6), zero)
for lua, a, s in (("F.elu(x)", mpf(1), mpf(1)),
                  ("F.selu(x)", mpf("1.6732632423543772848170429916717"),
                   mpf("1.0507009873554804934193349852946"))):
    one(lua, step(lambda x: s * a * mpmath.expm1(x), lambda x: s * x, None, 0, inf), REAL,
        step(lambda x: s * a * exp(x), lambda x: s, None, 0, inf),
        step(lambda x: s * a * exp(x), zero, None, 0, inf))
one("F.celu(x, 2)", step(lambda x: 2 * mpmath.expm1(x / 2), lambda x: x, None, 0, inf), REAL,
    step(lambda x: exp(x / 2), unit, None, 0, inf), step(lambda x: exp(x / 2) / 2, zero, None, 0, inf))
one("F.softshrink(x)", step(lambda x: x + 0.5, zero, lambda x: x - 0.5, -0.5, 0.5),
    [v for v in REAL if abs(v) != 0.5], step(unit, zero, unit, -0.5, 0.5), zero)
one("F.hardshrink(x)", step(lambda x: x, zero, lambda x: x, -0.5, 0.5),
    [v for v in REAL if abs(v) != 0.5], step(unit, zero, unit, -0.5, 0.5), zero)
one("F.leaky_relu(x)", step(lambda x: x * mpf(0.01), lambda x: x, None, 0, inf), REAL,
    step(lambda x: mpf(0.01), unit, None, 0, inf), zero)

# ---- functions of two ----

SOME = [1e-310, 1e-300, 1e-160, 1e-100, 1e-30, 1e-9, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.7, 12.3, 100.0,
        1e4, 1e9, 1e20, 1e100, 1e160, 1e300]
PAIRS = [(SOME[i], SOME[(i * 8 + k) % 21]) for k in (0, 11) for i in range(21)]
NEAR = [(v, v) for v in SOME] + [(v, v * 1.5) for v in SOME]
SIGNED = [(x * (-1) ** i, y * (-1) ** (i // 2)) for i, (x, y) in enumerate(PAIRS + NEAR)]

two("x:atan2(y)", SIGNED, mpmath.atan2, lambda x, y: y / (x * x + y * y),
    lambda x, y: -x / (x * x + y * y), lambda x, y: -2 * x * y / (x * x + y * y) ** 2,
    lambda x, y: None if abs(x) == abs(y) else (x * x - y * y) / (x * x + y * y) ** 2,
    lambda x, y: 2 * x * y / (x * x + y * y) ** 2)
hyp = lambda x, y: sqrt(x * x + y * y)
two("x:hypot(y)", SIGNED, hyp, lambda x, y: x / hyp(x, y), lambda x, y: y / hyp(x, y),
    lambda x, y: y * y / hyp(x, y) ** 3, lambda x, y: -x * y / hyp(x, y) ** 3,
    lambda x, y: x * x / hyp(x, y) ** 3)
lse = lambda x, y: max(x, y) + mpmath.log1p(exp(-abs(x - y)))
w = lambda x, y: s1(x - y)
two("x:logaddexp(y)", SIGNED, lse, lambda x, y: sig(x - y), lambda x, y: sig(y - x), w,
    lambda x, y: -w(x, y), w)
two("moth.logaddexp2(x, y)", SIGNED, lambda x, y: lse(x * L2(), y * L2()) / L2(),
    lambda x, y: sig((x - y) * L2()), lambda x, y: sig((y - x) * L2()),
    lambda x, y: w(x * L2(), y * L2()) * L2(), lambda x, y: -w(x * L2(), y * L2()) * L2(),
    lambda x, y: w(x * L2(), y * L2()) * L2())
HALF = [(x * (-1) ** i, y) for i, (x, y) in enumerate(PAIRS + NEAR)]
two("x:xlogy(y)", HALF, lambda x, y: x * log(y), lambda x, y: log(y), lambda x, y: x / y,
    zero2 := (lambda x, y: mpf(0)), lambda x, y: 1 / y, lambda x, y: -x / y ** 2)
two("S.xlog1py(x, y)", HALF, lambda x, y: x * mpmath.log1p(y), lambda x, y: mpmath.log1p(y),
    lambda x, y: x / (1 + y), zero2, lambda x, y: 1 / (1 + y), lambda x, y: -x / (1 + y) ** 2)
BASE = [1e-300, 1e-100, 1e-9, 0.1, 0.5, 0.999, 1.001, 1.5, 3.7, 100.0, 1e9, 1e100, 1e300]
POWER = [(b, e) for b in BASE for e in (-2.5, -0.3, 0.5, 1.0, 2.0, 7.3)]
two("x:pow(y)", POWER, lambda x, y: x ** y, lambda x, y: y * x ** (y - 1),
    lambda x, y: log(x) * x ** y, lambda x, y: y * (y - 1) * x ** (y - 2),
    lambda x, y: x ** (y - 1) * (1 + y * log(x)), lambda x, y: log(x) ** 2 * x ** y)
ZETA = [(s, q) for s in (1.1, 1.5, 2.0, 3.0, 5.5, 12.0, 40.0)
        for q in (1e-9, 0.1, 0.5, 1.0, 2.3, 10.0, 50.0, 1e3, 1e6)]


def zeta(s, q):
    with mp.workdps(250):  # its digits are absolute
        return mpmath.zeta(s, q)


two("S.zeta(x, y)", ZETA, zeta, None, lambda s, q: -s * zeta(s + 1, q), None, None,
    lambda s, q: s * (s + 1) * zeta(s + 2, q))
GA2 = [(a, x) for a in (1e-9, 0.01, 0.5, 1.0, 1.5, 3.7, 10.0, 100.0, 1e4)
       for x in (1e-300, 1e-30, 1e-9, 0.01, 0.5, 1.0, 3.0, 9.0, 30.0, 99.0, 700.0, 1e4)]
dens = lambda a, x: exp((a - 1) * log(x) - x - mpmath.loggamma(a))
grow = lambda a, x: dens(a, x) * ((a - 1) / x - 1)


def lower(a, x):
    with mp.workdps(50):
        return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a, x):
    with mp.workdps(50):
        if x < 1e-5 * a or x < a < 1:
            with mp.workdps(400):
                return 1 - mpmath.gammainc(a, 0, x, regularized=True)
        return mpmath.gammainc(a, x, mpf("inf"), regularized=True)


two("S.gammainc(x, y)", GA2, lower, None, dens, None, None, grow)
two("S.gammaincc(x, y)", GA2, upper, None, lambda a, x: -dens(a, x), None, None,
    lambda a, x: -grow(a, x))

text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in ROWS)
print(f'{{"made": {{"mpmath": "{mpmath.__version__}"}},\n"rows": [\n{text}]}}')

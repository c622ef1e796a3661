"""Fourier transforms. Complex numbers are pairs in a last dimension of 2."""

import torch

from kit import P, R, T, U, V, I, op

C, pairs = torch.view_as_complex, torch.view_as_real


def of_pairs(fn):
    return lambda x, *args, **named: fn(C(x), *args, **named)


def to_pairs(fn):
    return lambda *args, **named: pairs(torch.resolve_conj(fn(*args, **named)))


def single(name, fn, draw):
    f = op("fft." + name, "input n dim norm", fn, "matmul")
    f(draw(6))
    f(draw(2, 7))
    f(draw(3, 4), 5)
    f("cut", draw(2, 8), n=5)
    f("along the first", draw(5, 3), dim=0)
    f("an inner dimension", draw(2, 4, 3), dim=-2)
    for norm in ("backward", "ortho", "forward"):
        f(draw(4), norm=norm)
        f(f"longer, {norm}", draw(2, 4), 7, 1, norm)
    f("prime", draw(37))
    f("sixty-four", draw(64))
    f("none", draw(0, 4))
    f("two", draw(2, 2))
    f.raises("E_INDEX", "no such dim", draw(3, 3), dim=2)


def several(name, fn, draw, any_number):
    f = op("fft." + name, "input s dim norm", fn, "matmul")
    f(draw(4, 6))
    f(draw(2, 3, 4))
    f("sizes", draw(3, 4), [5, 3])
    f("one as it is", draw(3, 4), s=[5, -1])
    for norm in ("backward", "ortho", "forward"):
        f("dims, " + norm, draw(3, 2, 4), dim=[0, 2], norm=norm)
    f("other order", draw(3, 4, 4), [4, 3], [2, 0])
    if any_number:
        f("the last", draw(2, 3, 4), s=[5])
        f("three", draw(3, 2, 4), dim=[2, 0, 1])
    f("none", draw(0, 3, 4), dim=[1, 2])
    f.raises("E_INDEX", "no such dim", draw(3, 3), dim=[0, 2])


def Z(*shape):
    return V(*shape, 2)


for name in ("fft", "ifft"):
    single(name, to_pairs(of_pairs(getattr(torch.fft, name))), Z)
for name in ("rfft", "ihfft"):
    single(name, to_pairs(getattr(torch.fft, name)), V)
for name in ("irfft", "hfft"):
    single(name, of_pairs(getattr(torch.fft, name)), Z)
for end in ("2", "n"):
    for name in ("fft", "ifft"):
        several(name + end, to_pairs(of_pairs(getattr(torch.fft, name + end))), Z, end == "n")
    for name in ("rfft", "ihfft"):
        several(name + end, to_pairs(getattr(torch.fft, name + end)), V, end == "n")
    for name in ("irfft", "hfft"):
        several(name + end, of_pairs(getattr(torch.fft, name + end)), Z, end == "n")

for name in ("fftshift", "ifftshift"):
    f = op("fft." + name, "input dim", getattr(torch.fft, name))
    f(R(5))
    f(R(4, 3))
    f(R(4, 3), 0)
    f(R(4, 3, 2), dim=[0, 1])
    f("int64", I(4, 5), [-1])
    f("empty", R(0, 3))

f = op("fft.abs", "input", of_pairs(torch.abs), "composed")
f(R(3, 2))
f(R(2, 3, 2))
f("one", R(2))
f("empty", R(0, 2))
f("3, 4, 5", T([[3.0, 4.0], [0.0, -2.0]]))
f("of real length", T([[1.0, 0.0], [-2.0, 0.0]]))

f = op("fft.angle", "input", of_pairs(torch.angle), "composed", second=False)
f(R(3, 2))
f(R(2, 3, 2))
f("one", R(2))
f("empty", R(0, 2))
f("quarters", T([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]))
f("diagonals", T([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]))

ONCE = {"dtypes": ["float64", "float32"], "why": "half types are rounded at each step"}
f = op("fft.mul", "input other", to_pairs(lambda a, b: C(a) * C(b)), "matmul")
f(Z(3), Z(3), **ONCE)
f(Z(2, 3), Z(3), **ONCE)
f("a column and a row", Z(2, 1), Z(3), **ONCE)
f("one", Z(), Z(), **ONCE)
f("empty", Z(0), Z(1))
f("i times i", T([0.0, 1.0]), T([0.0, 1.0]))

f = op("fft.polar", "abs angle", to_pairs(torch.polar), "composed")
f(P(3), V(3))
f(P(2, 3), V(2, 3))
f("0-d", P(), V())
f("empty", P(0), V(0))
f("a quarter", T([2.0]), T([0.5]))
f("of length 0", T([0.0, 1.0]), T([0.5, 0.0]), grad=False)


def stft(x, n_fft, *args, **named):
    return pairs(torch.stft(x, n_fft, *args, return_complex=True, **named))


SHORT = {"dtypes": ["float64", "float32"], "why": "windows of half types take digits off"}
f = op("stft", "input n_fft hop_length win_length window center pad_mode normalized onesided",
       stft, "matmul")
f(V(20), 8, window=T([1.0] * 8))
f(V(2, 30), 8, 3, window=U(8), **SHORT)
f("a short window", V(24), 8, 4, 5, U(5), **SHORT)
f("not centred", V(24), 7, 3, 7, U(7), False, **SHORT)
f("all frequencies", V(18), 6, 2, 6, U(6), onesided=False, **SHORT)
f("normalized", V(18), 6, window=U(6), normalized=True, **SHORT)
for mode in ("constant", "replicate", "circular"):
    f("padded: " + mode, V(2, 14), 6, window=U(6), pad_mode=mode, **SHORT)
f.raises("E_SHAPE", "too short", V(4), 8, window=U(8), center=False)
f.raises("E_SHAPE", "another window", V(20), 8, window=U(7))


def istft(x, *args, **named):
    return torch.istft(C(x), *args, **named)


f = op("istft", "input n_fft hop_length win_length window center normalized onesided length",
       istft, "composed", second=False)
f(Z(5, 6), 8, window=T([1.0] * 8), **SHORT)
f(Z(2, 5, 6), 8, 3, window=U(8), **SHORT)
f("a short window", Z(5, 9), 8, 2, 5, U(5), length=14, **SHORT)
f("not centred", Z(4, 5), 7, 3, 7, U(7), False, **SHORT)
f("all frequencies", Z(6, 7), 6, 2, 6, U(6), onesided=False, **SHORT)
f("normalized", Z(4, 8), 6, window=U(6), normalized=True, **SHORT)
f("a length beyond the end", Z(4, 8), 6, window=U(6), length=40, **SHORT)
f.raises("E_DOMAIN", "windows that do not overlap", Z(5, 6), 8, 8, window=T([0.0] + [1.0] * 7))
f.raises("E_SHAPE", "other frequencies", Z(6, 6), 8, window=U(8))

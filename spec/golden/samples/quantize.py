"""Fake quantization. Scales are powers of two, so that halves occur."""

import torch

from kit import R, T, exempt, inf, op


def whole(input, scale, zero_point, quant_min, quant_max):
    return torch.fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)


def each(input, scale, zero_point, axis, quant_min, quant_max):
    return torch.fake_quantize_per_channel_affine(
        input, scale.float(), zero_point.int(), axis, quant_min, quant_max)


STEPS = "input scale zero_point quant_min quant_max"
f = op("fake_quantize_per_tensor_affine", STEPS, whole)
f(R(3, 4), 0.125, 0, -128, 127)
f("some clamped", R(3, 4), 0.5, 3, 0, 15)
f("halves", T([-1.5, -0.5, 0.5, 1.5, 2.5]), 1.0, 2, 0, 7)
f("one value", R(5), 0.25, 2, 2, 2)
f("infinities", T([inf, -inf, 1.0]), 0.25, 0, -8, 7, grad=False)
f("0-d", R(), 0.25, -3, -16, 16)
f("empty", R(0, 2), 0.25, 0, 0, 255)

INTS = {"dtype": torch.int32}
f = op("fake_quantize_per_channel_affine", "input scale zero_point axis quant_min quant_max", each,
       dims={"axis"}, constants={"scale"})
f(R(2, 3), T([0.5, 0.25]), T([0, 1], **INTS), 0, -128, 127)
f("some clamped", R(2, 3), T([0.5, 0.25, 0.125]), T([0, 1, 2], **INTS), 1, 0, 15)
f("two values", R(3, 2), T([0.5, 0.25]), T([200, 201], **INTS), 1, 200, 201)
f("halves", T([[-1.5, 0.5], [1.5, 2.5]]), T([1.0, 0.5]), T([2, 2], **INTS), 1, 0, 7)
f("filters", R(3, 2, 2, 2), T([0.5, 0.25, 0.5]), T([0, 0, 0], **INTS), 0, -8, 7)
f("one channel", R(1, 5), T([0.5]), T([0], **INTS), 0, -8, 7)

for name in ("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"):
    exempt(name, "a step function, whose gradient is meant not to be its derivative")

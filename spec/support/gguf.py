"""Writes spec/support/tiny.gguf: a tensor of each type, and its values from the gguf package.

    python3 spec/support/gguf.py        # needs gguf and NumPy; the specs need neither

Tensor TYPE has blocks of random bytes with small float16 scales; want.TYPE has its values.
"""

import pathlib

import numpy

import sys

sys.path = [p for p in sys.path if p != str(pathlib.Path(__file__).parent)]
import gguf

HERE = pathlib.Path(__file__).parent
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2],
          "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "Q5_K": [0, 2]}

rng = numpy.random.Generator(numpy.random.PCG64(7))
writer = gguf.GGUFWriter(HERE / "tiny.gguf", "tiny")
writer.add_uint8("a.u8", 200)
writer.add_int8("a.i8", -5)
writer.add_uint16("a.u16", 60000)
writer.add_int16("a.i16", -30000)
writer.add_uint32("a.u32", 4000000000)
writer.add_int32("a.i32", -2000000000)
writer.add_uint64("a.u64", 2 ** 40)
writer.add_int64("a.i64", -2 ** 60 - 1)
writer.add_float32("a.f32", 0.5)
writer.add_float64("a.f64", 0.1)
writer.add_bool("a.bool", True)
writer.add_string("a.text", "moth \u00e9")
writer.add_array("a.list", [1, 2, 3])
writer.add_array("a.texts", ["x", "", "yz"])
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (3, 2, size), dtype=numpy.uint8)
    for at in halves:
        scale = rng.uniform(-2, 2, (3, 2)).astype("<f2")
        blocks[..., at:at + 2] = scale[..., None].view(numpy.uint8)
    rows = blocks.reshape(3, 2 * size)
    writer.add_tensor(name, rows, raw_dtype=kind)
    writer.add_tensor("want." + name, gguf.dequantize(rows, kind))
for name, kind in (("F32", "<f4"), ("F16", "<f2"), ("F64", "<f8"), ("I8", "i1"), ("I16", "<i2"),
                   ("I32", "<i4"), ("I64", "<i8")):
    writer.add_tensor(name, (numpy.arange(6).reshape(2, 3) - 2).astype(kind))
bf16 = ((numpy.arange(6, dtype="<f4") - 2).view("<u4") >> 16).astype("<u2").reshape(2, 3)
writer.add_tensor("BF16", bf16.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

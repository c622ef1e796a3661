"""Writes data/arrays.npz and data/deflated.npz: NumPy's arrays of every type, and their values.

    python3 spec/golden/arrays.py        (with NumPy)

The array `values` of arrays.npz is a JSON text: name -> [dtype in Moth, shape, values].
"""
import json
import pathlib

import numpy

FOLDER = pathlib.Path(__file__).parent / "data"
MOTH = {"?": "bool", "i1": "int8", "u1": "uint8", "i2": "int16", "i4": "int32", "i8": "int64",
        "f2": "float16", "f4": "float32", "f8": "float64", "u2": "int32", "u4": "int64",
        "u8": "int64", "c8": "float32", "c16": "float64", "M8[ns]": "int64", "m8[s]": "int64"}


def numbers(code):
    x = numpy.arange(6).reshape(2, 3) * 37 - 50
    if code == "?":
        return x % 2 == 0
    if code[0] == "u":
        return abs(x) * {"1": 1, "2": 400, "4": 30000000, "8": 10 ** 16}[code[1]]
    return x * (1 + 2j) if code[0] == "c" else x


def plain(x):
    if x.dtype.kind == "c":
        x = numpy.stack([x.real, x.imag], -1)
    if x.dtype.kind in "Mm":
        x = x.astype("i8")
    return x


arrays, values = {}, {}


def add(name, x, kind):
    arrays[name] = x
    y = plain(x)
    values[name] = [MOTH[kind], list(y.shape), y.reshape(-1).tolist()]


for kind in MOTH:
    for order, word in (("<", "little"), (">", "big")):
        if kind in ("?", "i1", "u1") and order == ">":
            continue
        x = numbers(kind).astype(kind if kind == "?" else order + kind)
        name = f"{kind[:2]}_{word}"
        add(name, x, kind)
        if kind in ("f4", "i8", "c8"):
            add(name + "_fortran", numpy.asfortranarray(x), kind)
cube = numpy.arange(24.0).reshape(2, 3, 4)
add("cube", cube, "f8")
add("cube_fortran", numpy.asfortranarray(cube), "f8")
add("swapped_fortran", numpy.asfortranarray(cube.astype(">f8")), "f8")
add("single", numpy.float32(3.5), "f4")
add("empty", numpy.zeros((0, 3), "f4"), "f4")
add("empty_fortran", numpy.asfortranarray(numpy.zeros((3, 0, 2), ">i4")), "i4")

unusual = {
    "text": numpy.array([["ab", "c"], ["é€😀", ""]]),
    "text_big": numpy.array(["ab", "é€😀"]).astype(">U3"),
    "text_fortran": numpy.asfortranarray([["a", "b", "c"], ["d", "e", "f"]]),
    "bytes": numpy.array([b"ab", b"c\0d"]),
    "word": numpy.array("moth"),
    "records": numpy.array([(1, 2.5, b"x", (1, 2)), (3, 4.5, b"yy", (3, 4))],
                           [("a", "<i4"), ("b", ">f8"), ("n", "S3"), ("v", "<f4", (2,))]),
    "aligned": numpy.array([(1, 2.5)], numpy.dtype([("a", "i1"), ("é", "f8")], align=True)),
    "beyond": numpy.array(2 ** 63 + 5, "u8"), "objects": numpy.array([1, None], object),
    "long": numpy.longdouble(1),
}
text = numpy.array(json.dumps(values).encode())
numpy.savez(FOLDER / "arrays.npz", values=text, **arrays, **unusual)
numpy.savez_compressed(FOLDER / "deflated.npz", cube=cube, many=numpy.arange(5000, dtype=">i4"),
                       single=numpy.float32(3.5), empty=numpy.zeros((0, 3), "f4"))

"""Writes torch_objects.pth: a checkpoint with weights and other values of training scripts.

    python3 spec/support/torch_objects.py        (with PyTorch and NumPy)
"""
import argparse
import collections
import pathlib
import types

import numpy
import torch

path = pathlib.Path(__file__).with_suffix(".pth")
counted = collections.defaultdict(list)
counted["a"].append(1)
counted["a"].append(2)
torch.save({
    "weight": torch.arange(4.0).view(2, 2),
    "args": argparse.Namespace(lr=0.1, layers=[2, 3], name="net", out=pathlib.PurePosixPath("a/b")),
    "simple": types.SimpleNamespace(depth=3),
    "best": numpy.float64(0.75), "count": numpy.int64(-3), "small": numpy.float32(1.5),
    "flag": numpy.bool_(True), "half": numpy.float16(0.25), "byte": numpy.uint8(200),
    "seen": {3}, "fixed": frozenset({"x"}),
    "by_name": counted, "recent": collections.deque([1, 2, 3], maxlen=3),
    "words": collections.Counter({"the": 2, "a": 1}),
    "raw": b"\x00\xff\x41", "array": bytearray(b"\x01\x80"),
    "device": torch.device("cuda", 1), "cpu": torch.device("cpu"),
    "turn": 1 + 2j,
}, path)

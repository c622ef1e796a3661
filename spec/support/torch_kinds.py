"""Writes torch_kinds.pth: a checkpoint with dtypes that Moth lacks, arrays of NumPy and large numbers.

    python3 spec/support/torch_kinds.py        (with PyTorch and NumPy)
"""
import pathlib

import numpy
import torch

path = pathlib.Path(__file__).with_suffix(".pth")
torch.save({
    "weight": torch.arange(4.0).view(2, 2),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "uint32": torch.tensor([[1], [2**32 - 1]], dtype=torch.uint32),
    "uint64": torch.tensor([2**63 - 1], dtype=torch.uint64),
    "large64": torch.tensor([2**64 - 1], dtype=torch.uint64),
    "e4m3": torch.tensor([1.5, -448.0, 2.0**-9]).to(torch.float8_e4m3fn),
    "e5m2": torch.tensor([1.5, float("inf")]).to(torch.float8_e5m2),
    "complex": torch.tensor([[1 + 2j, 3 - 1j], [0j, 1j]]).t(),
    "conjugated": torch.tensor([1 + 2j]).conj(),
    "large": 2**70, "negative": -(2**70),
    "array": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
    "fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    "scalar": numpy.complex128(1 + 2j),
    "words": numpy.array(["a", "b"]),
    "sparse": torch.eye(2).to_sparse(),
    "rows": torch.eye(2).to_sparse_csr(),
    "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
}, path)

"""Sparse tensors. Other samples compare their parts."""

from kit import exempt

exempt("sparse_coo_tensor", "its result is no dense tensor: spec/ops/sparse_spec.lua holds gradients "
       "like it, and what optimizers make of them, to PyTorch's")

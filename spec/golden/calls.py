"""Writes calls.json: PyTorch's results and gradients of functions with inputs of all kinds.

    python3 spec/golden/calls.py > spec/golden/calls.json

A row is the inputs, the call, and optionally the results that are positions, which count from 0
here, and a call that PyTorch needs instead because it lacks a kernel. The default dtype is float64.
"""

import json
import math
import sys
import warnings

import torch
from torch.nn import functional as F

from calls_kit import DIMS, B, I, L, N, P, T, U, X, flat, shown, sines, translate

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)

i8, i16, i32, i64 = "int8", "int16", "int32", "int64"
u8, f32 = "uint8", "float32"


def J(*shape):
    return N(i64, *shape)


ALL = (0, 1, 2)

ROWS = [
    # integers in float kernels
    ([J(2, 4, 7), J(6, 4, 3)], "F.conv1d(n1, n2)"),
    ([J(4, 7), J(6, 2, 3), J(6)], "F.conv1d(n1, n2, n3, 2, 1, 2, 2)"),
    ([J(2, 4, 7), J(2, 4, 4)], "F.conv1d(n1, n2, padding='same')"),
    ([J(2, 2, 5, 6), J(4, 1, 3, 2), J(4)],
     "F.conv2d(n1, n2, n3, (2, 1), (1, 2), (1, 2), 2)"),
    ([J(2, 5, 6), J(3, 2, 2, 3)], "F.conv2d(n1, n2, padding='valid')"),
    ([N(i32, 1, 2, 4, 3, 5), N(i32, 2, 2, 2, 1, 3)], "F.conv3d(n1, n2, padding=(0, 1, 2))"),
    ([J(2, 4, 5), J(4, 3, 3), J(6)], "F.conv_transpose1d(n1, n2, n3, 2, 1, 1, 2, 2)"),
    ([J(2, 3, 4), J(2, 3, 2, 3)], "F.conv_transpose2d(n1, n2, stride=(2, 3), padding=(1, 0))"),
    ([J(2, 3, 8)], "F.avg_pool1d(n1, 3, 2, 1)"),
    ([J(2, 3, 8)], "F.avg_pool1d(n1, 3, 2, 1, True, False)"),
    ([J(2, 3, 7, 6)], "F.avg_pool2d(n1, (3, 2), (2, 1), (1, 0), True)"),
    ([J(3, 7, 6)], "F.avg_pool2d(n1, 3, divisor_override=5)"),
    ([J(1, 2, 3, 4, 4)], "F.avg_pool3d(n1, (2, 1, 3), count_include_pad=False, padding=(1, 0, 1))"),
    ([J(2, 3, 8)], "F.max_pool1d(n1, 3, 2, 1, 1, True)"),
    ([J(2, 3, 8)], "F.max_pool1d(n1, 2, dilation=3)"),
    ([N(u8, 3, 7, 6)], "F.max_pool2d(n1, 2, (2, 1), 1, (1, 2), True)"),
    ([N(i16, 2, 3, 7, 6)], "F.max_pool2d(n1, (3, 2), padding=(1, 0), return_indices=True)", (1,)),
    ([J(1, 2, 3, 4, 4)], "F.max_pool3d(n1, (2, 1, 3))"),
    ([I(4, 3, 2), J(4, 3)], "F.embedding(i1, n2)"),
    ([J(2, 3), J(2, 3)], "F.l1_loss(n1, n2, reduction='sum')"),
    ([J(2, 3), J(2, 3)], "F.l1_loss(n1, n2, reduction='none')"),
    ([N(u8, 1, 2, 3, 4)], "F.interpolate(n1, scale_factor=2)"),
    ([B(4, 3)], "b1.sign()"), ([B(4, 3)], "b1.square()"),
    ([B(2, 3), B(2, 2)], "torch.kron(b1, b2)"), ([B(2, 3), J(2, 2)], "torch.kron(b1, n2)"),
    ([J(2, 3), X(3, 2)], "torch.kron(n1, x2)"),
    ([X(3), J(3)], "torch.inner(x1, n2)", (), "torch.inner(x1, n2.double())"),
    ([J(), X(2, 3)], "torch.inner(n1, x2)"), ([J(2, 3), N(i32)], "torch.inner(n1, n2)"),
    ([B(3, 4)], "b1.clamp(0, 1)"), ([B(3, 4)], "b1.clamp(0.25)"), ([B(3, 4)], "b1.clamp(max=0)"),
    ([B(2, 3), B(2), B(3)], "torch.addr(b1, b2, b3)"),
    ([B(2, 3), B(2), B(3)], "torch.addr(b1, b2, b3, beta=False)"),
    ([B(2, 3), B(2), B(3)], "torch.addr(b1, b2, b3, alpha=False)"),
    ([B(2, 3), B(2), B(3)], "torch.addr(b1, b2, b3, beta=0)"),
    ([B(2, 3), B(2), B(3)], "torch.addr(b1, b2, b3, beta=2, alpha=0)"),
    ([J(2, 3), N(i32, 2), N(i16, 3)], "torch.addr(n1, n2, n3)"),
    # windows of vectors and of numbers
    ([X()], "torch.nonzero(x1)", (0,)), ([B()], "torch.nonzero(b1, as_tuple=True)", (0,)),
    ([B(3, 4)], "torch.where(b1)", ALL), ([J(3, 4)], "torch.nonzero(n1)", (0,)),
    ([B(3, 1), X(4), X(3, 4)], "torch.where(b1, x2, x3)"),
    ([B(3), N(i32, 3), J(3)], "torch.where(b1, n2, n3)"), ([B(3), X(3)], "torch.where(b1, x2, 2)"),
    ([X()], "torch.median(x1, 0)", (1,)), ([X()], "torch.median(x1)"),
    ([X()], "torch.nanmedian(x1, 0)", (1,)), ([X()], "torch.nanmedian(x1, 0, True)", (1,)),
    ([X(4, 3)], "torch.nanmedian(x1, 0, True)", (1,)), ([X(4, 3)], "torch.nanmedian(x1)"),
    ([X()], "torch.quantile(x1, 0.3)"), ([X()], "torch.quantile(x1, 0.3, dim=0)"),
    ([X()], "torch.quantile(x1, 0.3, dim=0, keepdim=True)"),
    ([X(4, 3)], "torch.quantile(x1, 0.3, keepdim=True)"),
    ([X(4, 3)], "torch.quantile(x1, 0.4, dim=0, interpolation='lower')"),
    ([X(4, 3)], "torch.quantile(x1, 0.4, dim=-1, interpolation='higher', keepdim=True)"),
    ([X(4, 3)], "torch.quantile(x1, 0.4, dim=0, interpolation='midpoint')"),
    ([X(4, 3)], "torch.quantile(x1, 0.4, dim=0, interpolation='nearest')"),
    ([X(3, 2)], "torch.quantile(x1, 0.25, dim=0, interpolation='nearest')"),
    ([X(3, 2)], "torch.quantile(x1, 0.75, dim=0, interpolation='nearest')"),
    ([X(4, 3)], "torch.quantile(x1, 1.0, dim=0)"), ([X(4, 3)], "torch.quantile(x1, 0.0, dim=1)"),
    ([X(4, 3)], "torch.quantile(x1, torch.tensor([0.1, 0.5, 1.0]), dim=1, keepdim=True)"),
    ([X()], "torch.nanquantile(x1, 0.3, dim=0, keepdim=True)"),
    ([X(4, 3)], "torch.nanquantile(x1, 0.4, keepdim=True)"),
    ([X(4, 3)], "torch.nanquantile(x1, 0.4, dim=0, interpolation='nearest')"),
    ([X(4, 3)], "torch.nanquantile(x1, 0.4, dim=0, interpolation='midpoint', keepdim=True)"),
    ([X()], "torch.mode(x1)", (1,)), ([J(4, 3)], "torch.mode(n1, 0, True)", (1,)),
    ([X(2, 3, 4)], "torch.std_mean(x1, dim=(0, 2))"), ([X(2, 3)], "torch.var(x1, 1, False)"),
    ([X(2, 3)], "torch.var_mean(x1, False)"), ([X(2, 3)], "torch.std(x1, 0, True, True)"),
    ([X(2, 3, 4)], "torch.var(x1, (0, 1), correction=0, keepdim=True)"),
    ([X(2, 3)], "x1.sum_to_size((1, 3))"), ([X(4, 2, 3)], "x1.sum_to_size((3,))"),
    ([X(4, 2, 3)], "x1.sum_to_size((2, 1))"), ([X(2)], "x1.sum_to_size(())"),
    ([J(3, 4)], "torch.unique(n1)"), ([J(3, 4)], "torch.unique(n1, return_inverse=True)", (1,)),
    ([B(3, 4)], "torch.unique(b1, return_counts=True)"),
    ([N(i8, 3, 4)], "torch.unique(n1, return_inverse=True, return_counts=True)", (1,)),
    ([N(u8, 5, 2)], "torch.unique(n1, dim=0)"),
    ([B(6)], "torch.unique_consecutive(b1, return_inverse=True, return_counts=True)", (1,)),
    ([B(4, 2)], "torch.unique_consecutive(b1, dim=0)"),
    # joining and splitting
    ([X(), X(3), X(2, 3)], "torch.atleast_1d(x1, x2, x3)"),
    ([X(), X(3)], "torch.atleast_2d(x1, x2)"),
    ([X(), X(3), X(2, 3), X(1, 2, 3)], "torch.atleast_3d(x1, x2, x3, x4)"),
    ([X(3), X(3, 2), X(3, 1)], "torch.column_stack((x1, x2, x3))"),
    ([X(2, 3), X(2), J(1, 2), X()], "torch.block_diag(x1, x2, n3, x4)"),
    ([X(2), X(3)], "torch.cartesian_prod(x1, x2)"), ([X(2)], "torch.cartesian_prod(x1)"),
    ([X(4)], "torch.combinations(x1)"), ([X(4)], "torch.combinations(x1, 3)"),
    ([X(4)], "torch.combinations(x1, 3, True)"), ([X(3)], "torch.combinations(x1, 2, True)"),
    ([X(3)], "torch.combinations(x1, 0)"), ([X(3)], "torch.combinations(x1, 4)"),
    ([X(3)], "torch.combinations(x1, 1)"), ([J(3)], "torch.combinations(n1, 4, True)"),
    ([X(2), X(3)], "torch.meshgrid(x1, x2, indexing='xy')"),
    ([X(2), X(3), X()], "torch.meshgrid((x1, x2, x3), indexing='ij')"),
    ([X(2, 1), X(3)], "torch.broadcast_tensors(x1, x2)"),
    ([X(7, 2)], "torch.tensor_split(x1, 3)"), ([X(7, 2)], "torch.tensor_split(x1, (2, 5))"),
    ([X(7, 2)], "torch.tensor_split(x1, (-3, 9))"), ([X(7, 2)], "torch.tensor_split(x1, (5, 2))"),
    ([X(2, 7)], "torch.tensor_split(x1, torch.tensor(4), dim=1)"),
    ([X(2, 7)], "torch.tensor_split(x1, torch.tensor([1, 3]), dim=-1)"),
    ([X(6)], "torch.hsplit(x1, 3)"), ([X(2, 6)], "torch.hsplit(x1, (1, 4))"),
    ([X(6, 2)], "torch.vsplit(x1, 2)"), ([X(1, 2, 6)], "torch.dsplit(x1, 3)"),
    ([X(5, 2)], "x1.split_with_sizes((2, 0, 3))"), ([X(2, 5)], "x1.split_with_sizes((5,), dim=-1)"),
    # written copies
    ([X(4, 3), X(3)], "torch.select_scatter(x1, x2, 0, -1)"),
    ([X(4, 3), X(4)], "torch.select_scatter(x1, x2, dim=1, index=-3)"),
    ([X(3, 4), X(3)], "torch.diagonal_scatter(x1, x2, 1)"),
    ([X(2, 3, 4), X(2, 3)], "torch.diagonal_scatter(x1, x2, offset=-1, dim1=2, dim2=1)"),
    ([X(4, 3), X(2, 3)], "torch.slice_scatter(x1, x2, start=-2)"),
    ([X(4, 5)], "x1.unfold(1, 2, 2)"), ([X(7)], "x1.unfold(-1, 3, 1)"),
    ([X(3, 4), L(0, 2), X(2, 4)], "x1.index_reduce(0, l2 + 1, x3, 'mean')", (),
     "x1.index_reduce(0, l2, x3, 'mean')"),
    ([P(4, 3), L(0, 0), P(4, 2)], "p1.index_reduce(1, l2 + 1, p3, 'prod', include_self=False)", (),
     "p1.index_reduce(1, l2, p3, 'prod', include_self=False)"),
    ([X(3, 4), L(0, 2), X(2, 4)], "x1.index_reduce(0, l2 + 1, x3, 'amin')", (),
     "x1.index_reduce(0, l2, x3, 'amin')"),
    ([X(3, 4), L(0, 5, 0), X(3)], "x1.put(l2 + 1, x3, True)", (), "x1.put(l2, x3, True)"),
    ([X(3, 4), L(-1, -12, -5), X(3)], "x1.put(l2, x3)"),
    # calculus and series
    ([X(2, 4)], "torch.trapezoid(x1)"), ([X(2, 4), X(4)], "torch.trapezoid(x1, x2)"),
    ([X(4, 2), X(4)], "torch.trapezoid(x1, x2, dim=0)"),
    ([X(4, 2), X(4, 2)], "torch.trapezoid(x1, x2, dim=0)"),
    ([X(4, 2)], "torch.trapezoid(x1, dx=0.5, dim=0)"),
    ([X(2, 4)], "torch.cumulative_trapezoid(x1, dx=0.5)"),
    ([X(4, 2), X(4)], "torch.cumulative_trapezoid(x1, x2, dim=0)"),
    ([X(2, 4), X(2, 4)], "torch.cumulative_trapezoid(x1, x2)"),
    ([J(2, 4)], "torch.trapezoid(n1)"), ([X(4, 5)], "torch.gradient(x1)"),
    ([X(4, 5)], "torch.gradient(x1, spacing=0.5, dim=1, edge_order=2)"),
    ([X(4, 5)], "torch.gradient(x1, spacing=(0.5, 2.0), edge_order=2)"),
    ([X(3, 4)], "torch.gradient(x1, spacing=(torch.tensor([0., 1., 3.]), "
     "torch.tensor([0., 2., 3., 7.])), edge_order=2)"),
    ([X(3, 4)], "torch.gradient(x1, spacing=(torch.tensor([0., 1., 3.]),), dim=0)"),
    ([X(2, 4)], "torch.logcumsumexp(x1, 1)"), ([X()], "torch.logcumsumexp(x1, 0)"),
    ([J(2, 5)], "torch.diff(n1)"), ([B(2, 5)], "torch.diff(b1)"),
    ([X(2, 5)], "torch.diff(x1, 2, 1)"), ([X(2, 5), X(1, 5), X(2, 5)],
                                         "torch.diff(x1, 1, 0, x2, x3)"),
    ([X(2, 5), X(2)], "torch.diff(x1, prepend=x2.view(2, 1))"),
    # distances and norms
    ([X(4, 3)], "torch.pdist(x1)"), ([X(4, 3)], "torch.pdist(x1, 1)"),
    ([X(4, 3)], "torch.pdist(x1, 3)"), ([X(4, 3)], "torch.pdist(x1, math.inf)"),
    ([X(4, 3), X(2, 3)], "torch.cdist(x1, x2, 0)"),
    ([X(4, 3), X(2, 3)], "torch.cdist(x1, x2, 1.5)"),
    ([X(2, 4, 3), X(5, 3)], "torch.cdist(x1, x2)"),
    ([X(2, 4, 3), X(2, 5, 3)], "torch.cdist(x1, x2, math.inf)"),
    ([X(27, 3), X(2, 3)], "torch.cdist(x1, x2, compute_mode='use_mm_for_euclid_dist')"),
    ([X(3, 4)], "torch.renorm(x1, 2, 0, 1)"), ([X(3, 4)], "torch.renorm(x1, 1, -1, 1.5)"),
    ([X(2, 3, 4)], "torch.linalg.vector_norm(x1, 3, dim=(0, 2))"),
    ([X(2, 3)], "torch.linalg.vector_norm(x1, 0)"), ([X()], "torch.linalg.vector_norm(x1, 3)"),
    ([X(2, 3)], "torch.linalg.vector_norm(x1, -math.inf, dim=1, keepdim=True)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, 1, dim=(0, 2))"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, -1, dim=(2, 0), keepdim=True)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, math.inf)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, -math.inf, dim=(0, 1))"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, 2, dim=(0, 2), keepdim=True)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, -2)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_norm(x1, 'nuc', dim=(1, 0))"),
    ([X(2, 3)], "torch.linalg.norm(x1, 1)"), ([X(2, 3)], "torch.linalg.norm(x1, 1, dim=1)"),
    ([X(2, 3, 4)], "torch.linalg.norm(x1)"), ([X(2, 3, 4)], "torch.linalg.norm(x1, 1, dim=(0, 1))"),
    ([X(3, 3)], "torch.linalg.cond(x1 + torch.eye(3), 1)"),
    ([X(3, 3)], "torch.linalg.cond(x1 + torch.eye(3), 'nuc')"),
    ([X(2, 3)], "torch.linalg.cond(x1)"), ([X(2, 3)], "torch.linalg.cond(x1, -2)"),
    ([X(3, 3)], "torch.linalg.cond(x1 + torch.eye(3), -math.inf)"),
    ([X(2, 3), X(2, 3)], "torch.linalg.cross(x1, x2)"),
    ([X(3, 2), X(3, 1)], "torch.linalg.cross(x1, x2, dim=0)"),
    ([X(2, 3), X(3)], "torch.linalg.vecdot(x1, x2)"), ([X(3), X(3)], "torch.linalg.vecdot(x1, x2)"),
    ([X(3, 2), X(3, 2)], "torch.linalg.vecdot(x1, x2, dim=0)"),
    ([J(2, 3), J(2, 3)], "torch.linalg.vecdot(n1, n2)"),
    ([X(3, 3)], "torch.linalg.matrix_power(x1, 0)"),
    ([X(3, 3)], "torch.linalg.matrix_power(x1, 1)"),
    ([X(3, 3)], "torch.linalg.matrix_power(x1, 6)"),
    ([X(3, 3)], "torch.linalg.matrix_power(x1, 7)"),
    ([X(3, 3)], "torch.linalg.matrix_power(x1 + torch.eye(3), -2)"),
    ([X(3), X(3, 4), X(4, 2), X(2)], "torch.linalg.multi_dot((x1, x2, x3, x4))"),
    ([X(2, 5), X(5, 1), X(1, 7)], "torch.linalg.multi_dot((x1, x2, x3))"),
    ([X(4, 2), X(2, 3)], "torch.linalg.multi_dot((x1, x2))"),
    ([X(3, 4)], "torch.linalg.pinv(x1)"), ([X(2, 3, 4)], "torch.linalg.pinv(x1, atol=0.5)"),
    ([X(2, 3, 4)], "torch.linalg.pinv(x1, atol=torch.tensor([0.1, 5.0]), rtol=torch.tensor(0.25))"),
    ([X(3, 3)], "torch.linalg.pinv(x1 + x1.t(), hermitian=True)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_rank(x1, atol=1.5)"),
    ([X(2, 3, 4)], "torch.linalg.matrix_rank(x1, atol=torch.tensor([0.1, 5.0]))"),
    ([X(2, 3, 4)], "torch.linalg.matrix_rank(x1, rtol=0.5, atol=0.1)"),
    ([X(3, 3)], "torch.linalg.matrix_rank(x1 + x1.t(), hermitian=True)"),
    ([X(2, 3, 4)], "torch.linalg.diagonal(x1)"),
    ([X(2, 3, 4)], "torch.linalg.diagonal(x1, offset=1, dim1=0, dim2=2)"),
    ([X(3)], "torch.linalg.vander(x1)"), ([X(2, 3)], "torch.linalg.vander(x1, N=4)"),
    ([X(3)], "torch.vander(x1)"), ([X(3)], "torch.vander(x1, N=2, increasing=True)"),
    ([X(3, 3)], "torch.linalg.matrix_exp(x1)"),
    ([X(2, 3, 2, 3)], "torch.linalg.tensorinv(x1 + torch.eye(6).view(2, 3, 2, 3))"),
    ([X(6, 2, 3)], "torch.linalg.tensorinv(x1 + torch.eye(6).view(6, 2, 3), ind=1)"),
    ([X(2, 3, 6), X(2, 3)], "torch.linalg.tensorsolve(x1 + torch.eye(6).view(2, 3, 6), x2)"),
    ([X(3, 3), X(3, 2)], "torch.linalg.solve(x1 + torch.eye(3), x2)"),
    ([X(3, 3), X(3)], "torch.linalg.solve(x1 + torch.eye(3), x2)"),
    ([X(3, 3), X(2, 3)], "torch.linalg.solve(x1 + torch.eye(3), x2, left=False)"),
    ([X(3, 3)], "torch.linalg.lu(x1 + torch.eye(3))"),
    # contractions
    ([X(2, 3), X(3, 4)], "torch.einsum('ij,jk->ik', x1, x2)"),
    ([X(2, 3), X(3, 4)], "torch.einsum('ij,jk', x1, x2)"), ([X(3, 3)], "torch.einsum('ii', x1)"),
    ([X(3, 3)], "torch.einsum('ii->i', x1)"), ([X(2, 3)], "torch.einsum('ba', x1)"),
    ([X(2, 3, 3, 3)], "torch.einsum('aiii->ai', x1)"), ([X(2, 3)], "torch.einsum('ij->', x1)"),
    ([X(2, 1), X(3, 4)], "torch.einsum('ij,jk->ik', x1, x2)"),
    ([X(2, 3), X(1, 4)], "torch.einsum('ij,jk->ik', x1, x2)"),
    ([X(5, 2, 3), X(3, 4)], "torch.einsum('...ij,...jk->...ik', x1, x2)"),
    ([X(5, 2, 3), X(1, 3, 4)], "torch.einsum('...ij,...jk', x1, x2)"),
    ([X(2, 3), X(4), X(3, 4, 2)], "torch.einsum('ij,k,jki->ik', x1, x2, x3)"),
    ([X(2, 3), X(2, 3)], "torch.einsum('ij,ij->ij', x1, x2)"),
    ([X(3), X(4)], "torch.einsum('i,j->ji', x1, x2)"), ([J(2, 3), J(3, 2)],
                                                       "torch.einsum('ij,jk->ki', n1, n2)"),
    ([X(2, 3, 4), X(3, 4, 5)], "torch.tensordot(x1, x2)"),
    ([X(2, 3, 4), X(4, 5)], "torch.tensordot(x1, x2, 1)"),
    ([X(2, 3), X(2, 2)], "torch.tensordot(x1, x2, 0)"),
    ([X(2, 3, 4), X(4, 2, 5)], "torch.tensordot(x1, x2, dims=((0, 2), (1, 0)))"),
    ([X(2, 3, 4), X(4, 2, 5)], "torch.tensordot(x1, x2, dims=((-1, 0), (0, 1)))"),
    ([J(2, 3), J(3, 2)], "torch.tensordot(n1, n2, dims=((1,), (0,)))"),
    ([X(1, 3), X(3, 2)], "torch.tensordot(x1, x2, dims=((0, 1), (1, 0)))"),
    # elements
    ([J(3), J(3)], "torch.ldexp(n1, n2)"), ([X(3), J(3)], "torch.ldexp(x1, n2)"),
    ([X(2, 3)], "torch.frexp(x1)"), ([X(3)], "torch.rsub(x1, 2, alpha=3)"),
    ([X(3), J(3)], "torch.rsub(x1, n2, alpha=2)"), ([J(3)], "torch.rsub(n1, 2)"),
    ([P(3)], "torch.mvlgamma(p1 + 2, 3)"), ([P(3)], "torch.polygamma(2, p1)"),
    ([P(3), X(2, 3)], "torch.float_power(p1, x2)"), ([J(3)], "torch.float_power(n1, 2)"),
    ([X(3)], "torch.float_power(2, x1)"), ([X(3), X(3)], "torch.clamp_min(x1, x2)"),
    ([X(3)], "torch.clamp_max(x1, 0.25)"), ([J(3)], "torch.clamp_min(n1, 2)"),
    ([X(3), X(3)], "torch.nextafter(x1.detach(), x2.detach())"), ([X(2, 3)], "torch.isreal(x1)"),
    ([X(2, 3)], "torch.fake_quantize_per_tensor_affine(x1, 0.125, 10, 8, 13)"),
    ([X(2, 3)], "torch.fake_quantize_per_channel_affine(x1, torch.tensor([0.1, 0.25]).float(), "
     "torch.tensor([0, 1]), axis=0, quant_min=-3, quant_max=4)", (),
     "torch.fake_quantize_per_channel_affine(x1, torch.tensor([0.1, 0.25]).float(), "
     "torch.tensor([0, 1], dtype=torch.int32), 0, -3, 4)"),
    # tensors without elements
    *[([X(*shape)], f"torch.linalg.matrix_norm(x1, {order})")
      for shape in ((0, 3), (3, 0), (2, 0, 3), (0, 3, 3), (2, 3, 0))
      for order in ("'fro'", "'nuc'", "1", "-1", "2", "-2", "math.inf", "-math.inf")],
    *[([X(*shape)], f"torch.linalg.{call}")
      for shape in ((0, 0), (0, 3, 3), (2, 0, 0))
      for call in ("det(x1)", "inv(x1)", "cond(x1)", "cond(x1, -2)", "cond(x1, 1)",
                   "matrix_power(x1, 2)", "matrix_power(x1, 0)", "eigvalsh(x1)", "svdvals(x1)",
                   "pinv(x1)", "matrix_rank(x1)", "slogdet(x1)", "matrix_exp(x1)", "cholesky(x1)",
                   "solve(x1, x1)", "qr(x1)")],
    *[([X(*shape)], call)
      for shape in ((0,), (0, 3), (3, 0))
      for call in ("x1.sum()", "x1.sum(0)", "x1.sum(-1)", "x1.mean()", "x1.mean(0)", "x1.mean(-1)",
                   "x1.prod()", "x1.prod(0)", "x1.prod(-1)", "x1.std()", "x1.std(0)", "x1.var(-1)",
                   "x1.logsumexp(0)", "x1.logsumexp(-1)", "x1.norm()", "x1.norm(dim=0)",
                   "x1.amax(-1)", "x1.amax(0)", "x1.cumsum(0)", "x1.cumsum(-1)", "x1.cumprod(-1)",
                   "x1.sort(-1)", "x1.all()", "x1.any(0)", "x1.nansum(-1)", "x1.softmax(-1)",
                   "x1.flip(0)", "x1.median()", "x1.nanmedian()", "x1.count_nonzero(0)",
                   "x1.diff()", "x1.unique()", "torch.trapezoid(x1)",
                   "torch.cumulative_trapezoid(x1)", "torch.logcumsumexp(x1, -1)",
                   "torch.linalg.vector_norm(x1)", "torch.linalg.vector_norm(x1, 0, dim=0)",
                   "torch.atleast_3d(x1)", "torch.tensor_split(x1, 2)", "torch.nonzero(x1)",
                   "torch.cummax(x1, -1)", "torch.renorm(x1, 2, 0, 1)", "torch.block_diag(x1, x1)",
                   "F.normalize(x1, dim=-1)", "F.gelu(x1)", "F.mse_loss(x1, x1)",
                   "F.mse_loss(x1, x1, reduction='sum')", "F.layer_norm(x1, x1.shape)",
                   "F.one_hot(x1.long(), 4)", "F.pad(x1, (1, 0))", "torch.column_stack((x1, x1))",
                   "torch.tensordot(x1, x1.t(), 1)", "torch.cdist(x1, x1)",
                   "torch.einsum('i...->...', x1)", "torch.kron(x1, x1)")],
    ([X(3, 0)], "torch.pdist(x1)"), ([X(0, 3), X(3, 2)], "torch.matmul(x1, x2)"), ([X(2, 0), X(0, 3)], "torch.matmul(x1, x2)"),
    ([X(2, 0), X(0, 3)], "torch.einsum('ij,jk->ik', x1, x2)"),
    ([X(2, 0), X(0)], "torch.matmul(x1, x2)"), ([X(2, 0, 3), X(3, 4)], "torch.matmul(x1, x2)"),
    ([X(2, 3), X(2, 0), X(0, 3)], "torch.addmm(x1, x2, x3)"),
    ([X(0, 2, 5), X(3, 2, 3)], "F.conv1d(x1, x2)"),
    *[([X(3, 2)], f"torch.{name}(x1 * 0, 1, correction={n})")
      for name in ("std", "var", "std_mean", "var_mean") for n in (1, 2)],
    # creation and search
    ([X(3)], "torch.diagflat(x1, -1)"), ([X(2, 2)], "torch.diagflat(x1, 2)"),
    ([L(1)], "torch.tril_indices(3, 4, -1)", (0,)), ([L(1)], "torch.triu_indices(4, 3, 1)", (0,)),
    ([L(1)], "torch.triu_indices(2, 3)", (0,)), ([L(1)], "torch.logspace(-1, 2, 4)"),
    ([L(1)], "torch.logspace(0, 3, 4, base=2)"), ([L(1)], "torch.logspace(3, 0, 1)"),
    ([X(3)], "torch.searchsorted(torch.tensor([-0.5, 0.0, 0.5]), x1)", (0,)),
    ([J(2, 3)], "torch.bucketize(n1, torch.tensor([-3, 0, 4]))", (0,)),
    ([J(2, 3)], "torch.bucketize(n1, torch.tensor([-3, 0, 4]), right=True)", (0,)),
    ([J(2, 3)], "torch.bucketize(n1, torch.tensor([-3, 0, 4]), right=True, out_int32=True)", (0,)),
    ([X(3)], "torch.searchsorted(torch.tensor([[-0.5, 0.0], [0.25, 0.5], [-1, 1]]), "
     "x1.view(3, 1), side='right')", (0,)),
    ([J(6)], "torch.cov(n1.double())"), ([X(3, 5)], "torch.cov(x1)"),
    ([X(3, 5)], "torch.cov(x1, correction=0)"), ([X(3, 5)], "torch.corrcoef(x1)"),
    ([X(3, 5), L(1, 2, 1, 3, 1), P(5)], "torch.cov(x1, fweights=l2, aweights=p3)"),
    ([X(3, 5), L(1, 2, 1, 3, 1)], "torch.cov(x1, correction=0, fweights=l2)"),
    ([X(20)], "torch.histc(x1, 4, -0.5, 0.75)"), ([X(20)], "torch.histc(x1, 5)"),
    ([X(20)], "torch.histogram(x1, 4, range=(-0.5, 0.75), density=True)", (),
     "torch.histogram(x1.detach(), 4, range=(-0.5, 0.75), density=True)"),
    ([I(4, 9)], "torch.bincount(i1 - 1)", (), "torch.bincount(i1)"),
    ([I(4, 9), U(9)], "torch.bincount(i1 - 1, u2, 6)", (), "torch.bincount(i1, u2, 6)"),
]

DIMS.update({
    "torch.select_scatter": (None, None, "dim", None), "torch.mode": (None, "dim"),
    "torch.median": (None, "dim"), "torch.nanmedian": (None, "dim"),
    "torch.logcumsumexp": (None, "dim"), "torch.diff": (None, None, "dim"),
    "torch.var": (None, "dim"), "torch.std": (None, "dim"),
    "torch.var_mean": (None, "dim"), "torch.std_mean": (None, "dim"),
    "torch.renorm": (None, None, "dim"), "torch.fake_quantize_per_channel_affine": (),
})
METHODS = ("sum mean prod std var logsumexp amax cumsum cumprod sort any nansum softmax flip "
           "count_nonzero").split()
DIMS.update({f"x1:{name}": ("dim",) for name in METHODS})
DIMS.update({"torch.cummax": (None, "dim")})
for kind in "xpn":
    for number in "123":
        DIMS[f"{kind}{number}:unfold"] = ("dim",)
        DIMS[f"{kind}{number}:index_reduce"] = ("dim",)
for name in list(DIMS):
    DIMS[name.replace("torch.", "moth.")] = DIMS[name]


ERRORS = (RuntimeError, IndexError, TypeError, ValueError, AttributeError, NotImplementedError)


def computed(call, given):
    results = flat(eval(call, given))
    loss = sum((y * torch.arange(1, y.numel() + 1).double().cos().view(y.shape)).sum()
               for y in results if y.requires_grad)
    if torch.is_tensor(loss) and loss.requires_grad:
        loss.backward()
    return results


def measured(inputs, call, positions=(), instead=None):
    given, leaves = {"torch": torch, "F": F, "math": math}, []
    for k, (kind, shape, *n) in enumerate(inputs):
        x = torch.tensor(shape) if kind == "l" else sines(kind, shape, 50 * k + 7, *n)
        if kind in "xpu":
            leaves.append(x.requires_grad_())
        given[f"{kind}{k + 1}"] = x
    try:
        results = computed(instead or call, given)
    except ERRORS as first:  # integers without a kernel: computed in float64
        wide = {k: v.double() if k[0] == "n" else v for k, v in given.items()}
        try:
            results = computed(instead or call, wide)
        except ERRORS:  # PyTorch has no gradient
            for x in leaves:
                x.requires_grad_(False)
            leaves = None
            try:
                results = computed(instead or call, given)
            except ERRORS:
                print(call, first, file=sys.stderr)
                return None
        if inputs[0][0] == "n":
            dtype = getattr(torch, inputs[0][2])
            results = [y.trunc().to(dtype) if y.dtype == torch.float64 else y for y in results]
    return {"call": translate(call).replace("math.inf", "math.huge"),
            "inputs": [[kind, list(shape), *n] for kind, shape, *n in inputs],
            "positions": positions, "results": [shown(y) for y in results],
            "input_grads": leaves and [shown(torch.zeros(x.shape) if x.grad is None else x.grad)
                                       for x in leaves]}


def main():
    rows = [json.dumps(row) for row in (measured(*row) for row in ROWS) if row]
    made = torch.__version__.split("+")[0]
    print(f'{{"made": {{"torch": "{made}"}},\n"cases": [\n' + ",\n".join(rows) + "]}")


main()

"""Eigenvalues of general matrices, Householder reflections, and functions of factors."""

import torch
import torch.linalg as la

from kit import R, T, V, op

LAPACK = {"dtypes": ["float64", "float32"], "why": "LAPACK computes in these"}


def M(*shape):
    """A matrix that is far from singular, with well separated eigenvalues."""
    n = torch.arange(1.0, 1 + min(shape[-2:]), dtype=torch.float64)

    def separated(x):
        x = x / 4
        x.diagonal(dim1=-2, dim2=-1).add_(n)
        return x
    return V(*shape).then(separated)


def D(*shape):
    """A symmetric positive-definite matrix."""
    return M(*shape).then(lambda x: (x + x.mT) / 2)


def C(*shape):
    """A matrix with complex eigenvalues, well separated."""
    def rotated(x):
        x = x / 4
        for i in range(0, shape[-1] - 1, 2):
            x[..., i, i + 1] += i + 1
            x[..., i + 1, i] -= i + 2
        return x
    return M(*shape).then(rotated)


def linalg(name, params, fn, space="linalg.", **options):
    f = op(space + name, params, fn, "linalg", **options)

    def sample(*args, **named):
        f(*args, **{**LAPACK, **named})
    sample.raises = f.raises
    return sample


def eig(A):
    """The first entry of a vector above a tenth of its largest is positive."""
    values, v = la.eig(A)
    if v.shape[-1]:
        size = v.detach().abs()
        counts = size > 0.1 * size.amax(-2, keepdim=True)
        entry = v.gather(-2, counts.to(torch.int64).argmax(-2, keepdim=True))
        v = v * entry.conj() / entry.abs()
    return torch.view_as_real(values), torch.view_as_real(v)


f = linalg("eig", "A", eig)
g = linalg("eigvals", "A", lambda A: torch.view_as_real(la.eigvals(A)))
for h in (f, g):
    h(M(3, 3))
    h("complex ones", C(4, 4))
    h("a stack", C(2, 2, 3, 3))
    h("a rotation", T([[0.0, -1.0], [1.0, 0.0]]))
    h("one element", T([[-4.0]]))
    h("empty", M(0, 0), grad=False)
    h("no matrices", M(0, 3, 3), grad=False)
    h.raises("E_SHAPE", R(2, 3))

f = linalg("matrix_sqrth", "A", lambda A: la.matrix_sqrth(A))
f(D(3, 3))
f("a stack", D(2, 2, 2))
f("the lower triangle", M(3, 3), grad=False)
f("one element", T([[4.0]]))
f("seventeen", D(17, 17))
f("no matrices", M(0, 3, 3), grad=False)
f.raises("E_SHAPE", R(2, 3))


def solve_ex(A, B, left=True):
    y, info = la.solve_ex(A, B, left=left)
    gone = info.reshape(info.shape + (1,) * (y.dim() - info.dim())) != 0
    return torch.where(gone, torch.nan, y), info


f = linalg("solve_ex", "A B left", solve_ex)
f(M(3, 3), R(3, 2))
f("right", M(3, 3), R(2, 3), left=False)
f("vectors", M(2, 3, 3), R(2, 3))
f("singular", T([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]]), R(2, 2, 1), grad=False)
f("a vector", M(3, 3), R(3))
f("broadcast", M(2, 1, 3, 3), R(4, 3, 2))
f.raises("E_SHAPE", M(3, 3), R(2, 2))


def lu_factor_ex(A):
    both, pivots, info = la.lu_factor_ex(A)
    return both, pivots.long() - 1, info


f = linalg("lu_factor_ex", "A", lu_factor_ex, returns=(1,))
f(M(3, 3))
f("singular", T([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]]]), grad=False)
f("tall", M(2, 4, 3), grad=False)
f("wide", M(2, 3), grad=False)
f("one element", T([[4.0]]))
f("seventeen", M(17, 17))
f.raises("E_SHAPE", R(3))

f = linalg("orgqr", "input tau", torch.orgqr, space="")
f(R(4, 3), R(2))
f("a stack", R(2, 3, 3), R(2, 3))
f("one column", R(3, 1), R(1))
f("no reflections", R(3, 2), R(0), grad=False)
f("square", R(3, 3), R(3))
f("as many", R(5, 2), R(2))
f.raises("E_SHAPE", R(3, 4), R(3))

f = linalg("ormqr", "input tau other left transpose", torch.ormqr, space="")
f(R(4, 3), R(3), R(4, 2))
f("transposed", R(4, 3), R(3), R(4, 2), transpose=True)
f("right", R(4, 3), R(3), R(2, 4), left=False)
f("right, transposed", R(2, 4, 3), R(2, 3), R(2, 2, 4), False, True, tol={"float32": 2e-5},
  why="LAPACK computes in these; the gradient is 1e3 times the input")
f("square", R(3, 3), R(3), R(3, 3))
f("one column", R(3, 1), R(1), R(3, 1))
f.raises("E_SHAPE", R(4, 3), R(3), R(3, 2))

f = linalg("lu_unpack", "LU_data LU_pivots", lambda LU, pivots: torch.lu_unpack(
    LU, (pivots + 1).int()), positions=("LU_pivots",), space="")
f(M(3, 3), T([1, 2, 2], torch.int64))
f("tall", M(2, 4, 3), T([[3, 1, 2], [0, 1, 3]], torch.int64))
f("wide", M(2, 3), T([1, 1], torch.int64))
f("one element", T([[4.0]]), T([0], torch.int64))
f("a stack", M(2, 2, 2), T([[1, 1], [0, 1]], torch.int64))
f("seventeen", M(17, 17), T([16] * 17, torch.int64))

"""Linear algebra: factorizations, systems of equations, norms of matrices."""

import torch
import torch.linalg as la

from kit import I, R, T, V, inf, nan, op

LAPACK = {"dtypes": ["float64", "float32"], "why": "LAPACK computes in these"}


def M(*shape):
    """A matrix that is far from singular, with well separated singular values."""
    n = torch.arange(1.0, 1 + min(shape[-2:]), dtype=torch.float64)

    def separated(x):
        x = x / 4
        x.diagonal(dim1=-2, dim2=-1).add_(n)
        return x
    return V(*shape).then(separated)


def D(*shape):
    """A symmetric positive-definite matrix."""
    return M(*shape).then(lambda x: (x + x.mT) / 2)


def signs(v):
    """The sign of each column: with it the first entry above a tenth of the largest is positive."""
    v = v.detach()
    if v.shape[-2] == 0:
        return torch.ones_like(v.sum(-2, keepdim=True))
    counts = v.abs() > 0.1 * v.abs().amax(-2, keepdim=True)
    first = counts.to(torch.int64).argmax(-2, keepdim=True)
    return torch.where(v.gather(-2, first) < 0, -1.0, 1.0).to(v.dtype)


def eigh(A, UPLO="L"):
    values, vectors = la.eigh(A, UPLO=UPLO)
    return values, vectors * signs(vectors)


def svd(A, full_matrices=True):
    u, s, vh = la.svd(A, full_matrices=full_matrices)
    k, own = s.shape[-1], signs(u)
    rest = signs(vh.mT)[..., k:].mT
    return u * own, s, vh * torch.cat([own[..., :k].mT, rest], -2)


def linalg(name, params, fn, space="linalg.", **options):
    f = op(space + name, params, fn, "linalg", **options)

    def sample(*args, **named):
        f(*args, **LAPACK, **named)
    sample.raises = f.raises
    return sample


f = linalg("cholesky", "A upper", la.cholesky)
f(D(3, 3))
f("upper", D(2, 4, 4), upper=True)
f("one element", T([[4.0]]))
f("seventeen", D(17, 17))
f("empty", M(0, 0))
f("no matrices", M(0, 3, 3))
f.raises("E_SHAPE", R(2, 3))
f.raises("E_DOMAIN", "not positive-definite", T([[1.0, 2.0], [2.0, 1.0]]))
f.raises("E_DOMAIN", "not finite", T([[nan, 2.0], [2.0, 1.0]]))

f = linalg("inv", "A", la.inv)
f(M(3, 3))
f("a stack", M(2, 3, 2, 2))
f("one element", T([[4.0]]))
f("seventeen", M(17, 17))
f("empty", M(0, 0))
f.raises("E_SHAPE", R(2, 3))
f.raises("E_SHAPE", "a vector", R(3))
f.raises("E_DOMAIN", "singular", T([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]]))

for name, fn in (("det", la.det), ("slogdet", la.slogdet)):
    f = linalg(name, "A", fn)
    f(M(3, 3))
    f("a stack", M(2, 3, 2, 2))
    f("negative", T([[0.0, 1.0], [2.0, 3.0]]))
    f("empty", M(0, 0))
    f("no matrices", M(0, 2, 2))
    f("seventeen", M(17, 17))
    f("singular", T([[1.0, 2.0], [2.0, 4.0]]), grad=False)
    f.raises("E_SHAPE", R(2, 3))

f = linalg("logdet", "A", torch.logdet, space="")
f(M(3, 3))
f("a stack", M(2, 2, 2))
f("one element", T([[4.0]]))
f("empty", M(0, 0))
f("seventeen", M(17, 17))
f("negative and singular", T([[[0.0, 1.0], [2.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]]]), grad=False)
f.raises("E_SHAPE", R(2, 3))

f = linalg("solve", "A B left", lambda A, B, left=True: la.solve(A, B, left=left))
f(M(3, 3), R(3, 2))
f("a vector", M(3, 3), R(3))
f("vectors", M(2, 3, 3), R(2, 3))
f("a matrix for all", M(3, 3), R(2, 3, 2))
f("broadcast", M(2, 1, 3, 3), R(4, 3, 2))
f("right", M(3, 3), R(2, 3), left=False)
f("no right sides", M(3, 3), R(3, 0))
f("seventeen", M(17, 17), R(17, 5))
f.raises("E_SHAPE", M(3, 3), R(2, 2))
f.raises("E_SHAPE", "not square", R(2, 3), R(2))
f.raises("E_DOMAIN", "singular", T([[0.0, 1.0], [0.0, 1.0]]), R(2))

f = linalg("solve_triangular", "A B", lambda A, B, **k: la.solve_triangular(A, B, **k))
f(M(3, 3), R(3, 2), upper=True)
f("lower", M(3, 3), R(3, 2), upper=False)
f("right", M(2, 3, 3), R(4, 3), upper=True, left=False)
f("unit", M(3, 3), R(3, 1), upper=False, unitriangular=True)
f("unit on the right", M(3, 3), R(2, 3), upper=True, left=False, unitriangular=True)
f("broadcast", M(2, 1, 3, 3), R(4, 3, 2), upper=False)
f("empty", M(0, 0), R(0, 2), upper=False)
f.raises("E_SHAPE", M(3, 3), R(2, 2), upper=True)

f = linalg("qr", "A mode", la.qr)
f(M(4, 3))
f("square", M(2, 3, 3))
f("wide", M(3, 5))
f("complete", M(3, 4), mode="complete")
f("a complete tall one", M(4, 3), mode="complete", grad=False)
f("no Q", M(4, 3), mode="r", grad=False)
f("seventeen", M(17, 17))
f("no columns", M(3, 0), grad=False)
f("a complete Q of no columns", M(3, 0), mode="complete", grad=False)
f.raises("E_SHAPE", R(3))

f = linalg("eigh", "A UPLO", eigh)
g = linalg("eigvalsh", "A UPLO", lambda A, UPLO="L": la.eigvalsh(A, UPLO=UPLO))
for h in (f, g):
    h(D(3, 3))
    h("the upper triangle", M(3, 3), UPLO="U", grad=False)
    h("the lower triangle", M(3, 3), grad=False)
    h("a stack", D(2, 2, 2))
    h("one element", T([[4.0]]))
    h("seventeen", D(17, 17))
    h("empty", M(0, 0))
    h.raises("E_SHAPE", R(2, 3))

f = linalg("svd", "A full_matrices", svd)
g = linalg("svdvals", "A", la.svdvals)
for h in (f, g):
    h(M(3, 3))
    h("tall", M(4, 3))
    h("wide", M(2, 2, 3))
    h("one element", T([[-4.0]]))
    h("seventeen", M(17, 17))
    h("empty", M(0, 0), grad=False)
    h.raises("E_SHAPE", R(3))
f("tall, reduced", M(5, 3), False)
f("wide, reduced", M(2, 3, 5), full_matrices=False)
f("no columns", M(3, 0), grad=False)

f = linalg("pinv", "A", lambda A, **k: la.pinv(A, **k))
f(M(3, 3))
f("tall", M(4, 2))
f("wide", M(2, 2, 3))
f("of rank 1", T([[1.0, 2.0], [2.0, 4.0]]), grad=False)
f("a large threshold", M(3, 3), atol=1.5, grad=False)
f("a relative one", M(3, 3), rtol=0.5, grad=False)
f("symmetric", D(3, 3), hermitian=True, grad=False)
f("empty", M(0, 3))

def lstsq(A, B, rcond=None):
    x = la.lstsq(A, B, rcond=rcond).solution
    if A.shape[-2] <= A.shape[-1]:
        return x
    return x, (A @ x - B).square().sum(-2)  # PyTorch does not compute them with its default driver


f = linalg("lstsq", "A B", lstsq)
f(M(4, 2), R(4, 3))
f("wide", M(2, 3), R(2, 1))
f("square", M(2, 3, 3), R(2, 3, 2))
f("a threshold", M(4, 2), R(4, 1), rcond=1e-3)
f("wide stacks", M(2, 2, 3), R(2, 2, 1))
f("of rank 1", T([[1.0, 2.0], [2.0, 4.0]]), R(2, 1), grad=False)
f.raises("E_SHAPE", M(4, 2), R(3, 1))

def lu_factor(A):
    both, pivots = la.lu_factor(A)
    return both, pivots.long() - 1


f = linalg("lu_factor", "A", lu_factor, returns=(1,))
f(M(3, 3))
f("rows are swapped", T([[[0.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]]))
f("tall", M(4, 3), grad=False)
f("wide", M(2, 3, 4), grad=False)

f("one element", T([[4.0]]))
f("seventeen", M(17, 17))

f = linalg("lu", "A", la.lu)
f(M(3, 3))
f("one element", T([[4.0]]))
f("seventeen", M(17, 17))
f("rows are swapped", T([[0.0, 1.0, 2.0], [1.0, 2.0, 1.0], [3.0, 4.0, 6.0]]))
f("tall", M(4, 3), grad=False)
f("wide", M(2, 3, 4), grad=False)

f = op("linalg.vector_norm", "x ord dim keepdim", la.vector_norm, "reduce")
f(R(2, 3))
f("of rows", R(2, 3), 1.0, 1, True)
f("largest", R(2, 3), inf, 0)
f("smallest", R(2, 3), -inf)
f("a power between", R(2, 3), 2.5)
f("a count", T([[0.0, 1.0], [2.0, 0.0]]), 0.0, grad=False)

f = linalg("matrix_norm", "A ord", lambda A, ord="fro", **k: la.matrix_norm(A, ord, **k))
for order in ("fro", "nuc", inf, -inf, 1, -1, 2, -2):
    f(f"order {order}", M(2, 3, 3), order)
f("other dimensions", R(3, 2, 4), 1, dim=(0, 2), keepdim=True)

f = linalg("norm", "A ord dim", lambda A, ord=None, dim=None, **k: la.norm(A, ord, dim, **k))
f(R(2, 3, 2))
f("of a vector", R(5), 3.0)
f("of a matrix", M(3, 3), "nuc")
f("along one", R(2, 3), 1.0, 1)
f("along all", R(2, 3), 3.0, (0,))
f("along two", R(2, 3, 4), 1, (0, 2), keepdim=True)

f = linalg("cond", "A p", la.cond)
f(M(3, 3))
f("tall", M(2, 4, 3))
f("by columns", M(2, 3, 3), 1, grad=False)  # PyTorch has none
f("the smallest", M(3, 3), -2)
f("by rows", M(3, 3), inf, grad=False)
f("singular", T([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]]), "fro", grad=False)

f = linalg("matrix_rank", "A", lambda A, **k: la.matrix_rank(A, **k))
f(M(2, 4, 3))
f("of rank 1", T([[1.0, 2.0], [2.0, 4.0]]))
f("a threshold", M(3, 3), atol=2.5)
f("one of each", M(2, 3, 3), atol=T([0.5, 2.5]))
f("zeros", T([[0.0, 0.0], [0.0, 0.0]]))
f("a relative one", D(3, 3), rtol=0.5, hermitian=True)

for f in (linalg("matrix_power", "A n", la.matrix_power),
          linalg("matrix_power", "A n", la.matrix_power, space="")):
    f(M(3, 3), 5)
    f("none", M(2, 3, 3), 0, grad=False)
    f("one", M(2, 3, 3), 1)
    f("negative", M(2, 3, 3), -3)
    f("the inverse", M(3, 3), -1)
    f.raises("E_SHAPE", R(2, 3), 2)

f = op("linalg.multi_dot", "tensors", la.multi_dot, "matmul")
f([R(2, 3), R(3, 5), R(5, 2)])
f([R(3), R(3, 2), R(2, 4), R(4)])
f([R(3), R(3, 2)])
f([R(2, 5), R(5)])
f([R(5, 1), R(1, 4), R(4, 2), R(2, 7), R(7, 3)])
f.raises("E_SHAPE", [R(2, 3), R(2, 3)])

f = op("linalg.cross", "input other dim", lambda a, b, dim=-1: la.cross(a, b, dim=dim),
       "composed")
f(R(2, 3), R(2, 3))
f("columns", R(3, 2), R(3, 2), 0)
f("broadcast", R(4, 1, 3), R(1, 2, 3))
f("int64", I(3), I(3))
f.raises("E_SHAPE", R(2), R(2))

f("none", R(0, 3), R(0, 3))

f = op("cross", "input other dim", lambda a, b, dim=None: torch.cross(a, b, dim), "composed")
f(R(3, 2), R(3, 2))
f("rows", R(2, 3), R(2, 3))
f("the first", R(3, 3), R(3, 3))
f("the last", R(3, 3), R(3, 3), 1, dtypes=["float64", "float32"], why="differences cancel")
f("int64", I(3), I(3))
f.raises("E_SHAPE", R(2), R(2))

f = op("linalg.vecdot", "x y dim", lambda x, y, dim=-1: la.vecdot(x, y, dim=dim), "matmul")
f(R(2, 3), R(2, 3))
f("broadcast", R(4, 1, 3), R(2, 3))
f("columns", R(3, 2), R(3, 2), 0)
f("nothing to sum", R(2, 0), R(2, 0))
f("one element", R(1), R(1))
f.raises("E_SHAPE", R(2), R(3))

f = linalg("lu_solve", "LU pivots B left adjoint", lambda LU, pivots, B, left=True, adjoint=False:
           la.lu_solve(LU, (pivots + 1).int(), B, left=left, adjoint=adjoint),
           positions=("pivots",))
AT = T([1, 2, 2], torch.int64)
f(M(3, 3), AT, R(3, 2))
f("adjoint", M(3, 3), AT, R(3, 2), adjoint=True)
f("right", M(3, 3), AT, R(2, 3), left=False)
f("right, adjoint", M(3, 3), AT, R(2, 3), False, True)
f("a stack", M(2, 2, 2), T([[1, 1], [0, 1]], torch.int64), R(2, 2, 1))
f("one for all", M(3, 3), AT, R(2, 3, 1))
f.raises("E_SHAPE", M(3, 3), AT, R(2, 2))

# -- the top level, and methods --

f = linalg("qr", "input some", lambda x, some=True: la.qr(x, "reduced" if some else "complete"),
           space="")
f(M(4, 3))
f("square", M(2, 3, 3))
f("wide", M(3, 5))
f("complete", M(3, 3), some=False)
f("a complete tall one", M(4, 3), False, grad=False)
f("one element", T([[-4.0]]))


def old_svd(x, some=True, compute_uv=True):
    if not compute_uv:
        return torch.svd(x, some, False)
    u, s, vh = svd(x, not some)
    return u, s, vh.mT


f = linalg("svd", "input some compute_uv", old_svd, space="")
f(M(3, 3))
f("tall", M(4, 3))
f("wide", M(2, 2, 3))
f("all vectors", M(4, 3), some=False)
f("values alone", M(2, 4, 3), compute_uv=False, grad=False)
f("one element", T([[-4.0]]))

f = linalg("pinverse", "input rcond", torch.pinverse, space="")
f(M(3, 3))
f("tall", M(4, 2))
f("wide", M(2, 2, 3))
f("a threshold", M(3, 3), 0.5, grad=False)
f("of rank 1", T([[1.0, 2.0], [2.0, 4.0]]), 1e-3, grad=False)
f("one element", T([[-4.0]]))

def triangle(L, upper):
    """The triangle that is read: PyTorch has a gradient for the rest as well."""
    return L.triu() if upper else L.tril()


f = linalg("cholesky_solve", "B L upper", lambda B, L, upper=False:
           torch.cholesky_solve(B, triangle(L, upper), upper), space="")
f(R(3, 2), M(3, 3))
f("upper", R(3, 2), M(3, 3), True)
f("a stack", R(2, 3, 1), M(2, 3, 3))
f("one for all", R(2, 3, 1), M(3, 3))
f("one element", R(1, 1), T([[2.0]]))
f("no right sides", R(3, 0), M(3, 3))

f = linalg("cholesky_inverse", "L upper", lambda L, upper=False:
           torch.cholesky_inverse(triangle(L, upper), upper), space="")
f(M(3, 3))
f("upper", M(3, 3), True)
f("a stack", M(2, 3, 3))
f("one element", T([[2.0]]))
f("seventeen", M(17, 17))
f("empty", M(0, 0))

f = linalg("lu_solve", "B LU pivots", lambda B, LU, pivots: torch.lu_solve(
    B, LU, (pivots + 1).int()), positions=("pivots",), space="")
f(R(3, 2), M(3, 3), AT)
f("one", R(3, 1), M(3, 3), AT)
f("none", R(3, 0), M(3, 3), AT)
f("a stack", R(2, 2, 1), M(2, 2, 2), T([[1, 1], [0, 1]], torch.int64))
f("one element", R(1, 1), T([[2.0]]), T([0], torch.int64))
f("one for all", R(2, 3, 1), M(3, 3), AT)

for f in (linalg("matrix_exp", "A", la.matrix_exp),
          linalg("matrix_exp", "A", torch.matrix_exp, space="")):
    f(V(3, 3))
    f("a stack", V(2, 2, 2))
    f("large", M(4, 4).then(lambda x: x * 2), tol={"float64": 1e-9, "float32": 1e-3}, layouts=[])
    f("small", V(3, 3).then(lambda x: x / 64))
    f("nilpotent", T([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]]))
    f("one element", T([[1.5]]))
    f("empty", M(0, 0))
    f.raises("E_SHAPE", R(2, 3))

f = linalg("vander", "x N", lambda x, N=None: la.vander(x, N=N))
f(V(3))
f("two powers", V(2, 3), 2)
f("three powers", V(4), 3)
f("five", V(3), 5)
f("a stack", V(2, 4))
f("one number", V(1), N=3)

f = linalg("tensorinv", "A ind", la.tensorinv)
f(M(4, 4).then(lambda x: x.reshape(2, 2, 4)))
f("the first", M(4, 4).then(lambda x: x.reshape(4, 2, 2)), ind=1)
f("a matrix", M(3, 3), 1)
f("two and two", M(6, 6).then(lambda x: x.reshape(2, 3, 3, 2)))
f("three", M(6, 6).then(lambda x: x.reshape(2, 3, 1, 6)), ind=3)
f("one element", T([[[2.0]]]))
f.raises("E_SHAPE", M(3, 3), 2)

f = linalg("tensorsolve", "A B dims", la.tensorsolve)
f(M(4, 4).then(lambda x: x.reshape(2, 2, 4)), R(2, 2))
f("two and two", M(6, 6).then(lambda x: x.reshape(2, 3, 3, 2)), R(2, 3))
f("a matrix", M(3, 3), R(3))
f("moved", M(4, 4).then(lambda x: x.reshape(4, 2, 2)), R(2, 2), (0,))
f("both moved", M(4, 4).then(lambda x: x.reshape(2, 2, 4)), R(4), (0, 1))
f("one element", T([[2.0]]), R(1))
f.raises("E_SHAPE", M(3, 3), R(2))


def cholesky_ex(A):
    L, info = la.cholesky_ex(A)
    bad = (info != 0)[..., None, None]
    return torch.where(bad & torch.ones_like(A, dtype=torch.bool).tril(), nan, L), info


f = linalg("cholesky_ex", "A", cholesky_ex)
f(D(3, 3))
f("some are not positive-definite", T([[[4.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 1.0]]]),
  grad=False)
g = linalg("inv_ex", "A", la.inv_ex)
g(M(3, 3))
for h in (f, g):
    h("a stack", D(2, 3, 2, 2))
    h("one element", T([[4.0]]))
    h("seventeen", D(17, 17))
    h("empty", M(0, 0))
    h("no matrices", M(0, 3, 3))
    h.raises("E_SHAPE", R(2, 3))

"""Products of matrices."""

import torch
import torch.nn.functional as F

from kit import B, I, P, R, T, V, inf, nan, op

f = op("mm", "input mat2", torch.mm, "matmul")
f(R(2, 3), R(3, 5))
f("one element", R(1, 1), R(1, 1))
f("a row by a column", R(1, 17), R(17, 1))
f("a column by a row", R(5, 1), R(1, 3))
f("no rows", R(0, 3), R(3, 5))
f("nothing to sum", R(2, 0), R(0, 3))
f("seventeen", R(5, 17), R(17, 17))
f("a transposed matrix", R(2, 3), R(5, 3).then(lambda x: x.t()))
f("stride 0", R(3, 1).then(lambda x: x.expand(3, 5)), R(5, 2))
f("special values", T([[nan, 1.0], [inf, 0.0]]), T([[1.0, 0.0], [0.0, 1.0]]), grad=False)
f("int64", I(2, 3), I(3, 2))
f.raises("E_SHAPE", R(2, 3), R(2, 3))
f.raises("E_SHAPE", "three dimensions", R(2, 3, 3), R(3, 3))

f = op("bmm", "input mat2", torch.bmm, "matmul")
f(R(2, 2, 3), R(2, 3, 5))
f("one of each", R(1, 1, 1), R(1, 1, 1))
f("no batch", R(0, 2, 3), R(0, 3, 2))
f("nothing to sum", R(2, 3, 0), R(2, 0, 3))
f("seventeen", R(3, 2, 17), R(3, 17, 5))
f("a repeated matrix", R(1, 2, 3).then(lambda x: x.expand(3, 2, 3)), R(3, 3, 2))
f("int64", I(2, 2, 3), I(2, 3, 2))
f.raises("E_SHAPE", R(2, 2, 3), R(3, 3, 5))

f = op("matmul", "input other", torch.matmul, "matmul")
f("vectors", R(3), R(3))
f("matrix by vector", R(2, 3), R(3))
f("vector by matrix", R(3), R(3, 2))
f("matrices", R(2, 3), R(3, 5))
f("batches by a matrix", R(2, 2, 3), R(3, 5))
f("a matrix by batches", R(2, 3), R(5, 3, 2))
f("broadcast batches", R(2, 1, 2, 3), R(3, 3, 2))
f("batches by a vector", R(2, 3, 5), R(5))
f("a vector by batches", R(3), R(2, 3, 5))
f("one element", R(1), R(1))
f("empty vectors", R(0), R(0))
f("empty batches", R(0, 2, 3), R(3, 2))
f("seventeen", R(3, 17), R(17, 5))
f("int64", I(2, 3), I(3))
f.raises("E_SHAPE", R(2, 3), R(2))

f = op("mv", "input vec", torch.mv, "matmul")
f(R(2, 3), R(3))
f("one element", R(1, 1), R(1))
f("no rows", R(0, 3), R(3))
f("nothing to sum", R(2, 0), R(0))
f("seventeen", R(5, 17), R(17))
f("stride 0", R(2, 1).then(lambda x: x.expand(2, 3)), R(3))
f("int64", I(2, 3), I(3))
f.raises("E_SHAPE", R(2, 3), R(2))

f = op("dot", "input tensor", torch.dot, "matmul")
f(R(3), R(3))
f("one element", R(1), R(1))
f("nothing to sum", R(0), R(0))
f("seventeen", R(17), R(17))
f("stride 0", R(1).then(lambda x: x.expand(5)), R(5))
f("special values", T([inf, 1.0]), T([1.0, nan]), grad=False)
f("int64", I(5), I(5))
f.raises("E_SHAPE", R(3), R(2))

f = op("outer", "input vec2", torch.outer, "arith")
f(R(2), R(3))
f("one element", R(1), R(1))
f("nothing", R(0), R(3))
f("seventeen", R(3), R(17))
f("stride 0", R(1).then(lambda x: x.expand(5)), R(3))
f("int64", I(3), I(2))
f.raises("E_SHAPE", R(2, 2), R(3))

f = op("addmm", "input mat1 mat2", torch.addmm, "matmul")
f(R(2, 5), R(2, 3), R(3, 5))
f("a bias of rows", R(5), R(2, 3), R(3, 5))
f("a column", R(2, 1), R(2, 3), R(3, 5), beta=0.5, alpha=2)
f("0-d", R(), R(2, 3), R(3, 2), beta=-1, alpha=0.5)
f("one element", R(1, 1), R(1, 1), R(1, 1))
f("nothing to sum", R(2, 3), R(2, 0), R(0, 3), beta=0.5)
f("no rows", R(3), R(0, 2), R(2, 3))
f("beta 0 drops NaN", T([[nan]]), R(1, 2), R(2, 1), beta=0, grad=False)
f("int64", I(2, 2), I(2, 3), I(3, 2), beta=2, alpha=3)
f.raises("E_SHAPE", R(3), R(2, 3), R(3, 5))

f = op("baddbmm", "input batch1 batch2", torch.baddbmm, "matmul")
f(R(2, 2, 5), R(2, 2, 3), R(2, 3, 5))
f("a bias of rows", R(5), R(2, 2, 3), R(2, 3, 5), beta=0.5, alpha=2)
f("one matrix", R(1, 2, 2), R(3, 2, 3), R(3, 3, 2), alpha=-1)
f("one element", R(1, 1, 1), R(1, 1, 1), R(1, 1, 1))
f("no batch", R(0, 2, 2), R(0, 2, 3), R(0, 3, 2))
f("nothing to sum", R(2, 2, 2), R(2, 2, 0), R(2, 0, 2))
f("beta 0 drops NaN", T([[[nan]]]), R(1, 1, 2), R(1, 2, 1), beta=0, grad=False)
f.raises("E_SHAPE", R(2, 2, 5), R(2, 2, 3), R(3, 3, 5))


def linear(input, weight, bias=None, activation="none"):
    y = F.linear(input, weight, bias)
    return F.relu(y) if activation == "relu" else y


f = op("linear", "input weight bias activation", linear, "matmul")
f(R(2, 3), R(5, 3), R(5))
f("no bias", R(2, 3), R(5, 3))
f("one row", R(3), R(2, 3), R(2))
f("leading sizes", R(2, 1, 2, 3), R(2, 3), R(2))
f("one element", R(1, 1), R(1, 1), R(1))
f("no rows", R(0, 3), R(2, 3), R(2))
f("nothing to sum", R(2, 0), R(3, 0), R(3))
f("seventeen", R(5, 17), R(3, 17), R(3))
f("stride 0", R(1, 3).then(lambda x: x.expand(5, 3)), R(2, 3), R(2))
f("relu", R(5, 3), R(5, 3), R(5), activation="relu")
f("relu without bias", R(2, 2, 17), R(5, 17), activation="relu")
f("relu of NaN", T([[nan, 1.0], [inf, -1.0]]), T([[1.0, 0.0], [0.0, 1.0]]), activation="relu",
  grad=False)
f.raises("E_SHAPE", R(2, 3), R(5, 2))
f.raises("E_SHAPE", "a bias too long", R(2, 3), R(5, 3), R(4))


def einsum(equation, *operands):
    return torch.einsum(equation, *(operands[0] if isinstance(operands[0], list) else operands))


TWICE = {"tol": {"float16": 2e-3, "bfloat16": 1.6e-2},
         "why": "of three operands the product of two is rounded"}

f = op("einsum", "equation operands", einsum, "matmul")
f("ij,jk->ik", "ij,jk->ik", [R(2, 3), R(3, 5)])
f("implicit", "ij,jk", [R(2, 3), R(3, 2)])
f("transpose", "ij->ji", [R(2, 3)])
f("sum", "ij->", [R(2, 3)])
f("row sums", "ij->i", [R(2, 3)])
f("trace", "ii->", [R(3, 3)])
f("diagonal", "ii->i", [R(3, 3)])
f("outer", "i,j->ij", [R(2), R(3)])
f("batched", "bij,bjk->bik", [R(2, 2, 3), R(2, 3, 2)])
f("attention", "bhqd,bhkd->bhqk", [R(1, 2, 3, 2), R(1, 2, 3, 2)])
f("three operands", "ij,jk,kl->il", [V(2, 3), V(3, 2), V(2, 2)], **TWICE)
f("ellipsis", "...ij,...jk->...ik", [R(2, 2, 3), R(3, 2)])
f("ellipsis transposed", "...ij->...ji", [R(2, 2, 3)])
f("bilinear", "bn,anm,bm->ba", [V(2, 3), V(2, 3, 2), V(2, 2)], **TWICE)
f("elementwise", "ij,ij->ij", [R(2, 3), R(2, 3)])
f("empty", "ij,jk->ik", [R(0, 3), R(3, 2)])
f("size 1 broadcasts", "ij,jk->ik", [R(2, 1), R(3, 2)])
f.raises("E_SHAPE", "sizes differ", "ij,jk->ik", [R(2, 3), R(2, 3)])

SUMMED = {"tol": {"float16": 6e-3, "bfloat16": 5e-2},
          "why": "each product of a batch is rounded before they are summed"}
for name, params, shapes in (("addmv", "input mat vec", ((2,), (2, 3), (3,))),
                             ("addr", "input vec1 vec2", ((2, 3), (2,), (3,))),
                             ("addbmm", "input batch1 batch2", ((2, 5), (3, 2, 3), (3, 3, 5)))):
    f = op(name, params, getattr(torch, name), "matmul")
    late = SUMMED if name == "addbmm" else {}
    f(*[R(*s) for s in shapes], **late)
    f("scaled", *[R(*s) for s in shapes], beta=0.5, alpha=2, **late)
    f("a number to add to", R(1), *[R(*s) for s in shapes[1:]], alpha=-1, **late)
    f("one element", *[R(*([1] * len(s))) for s in shapes])
    f("beta 0 drops NaN", T([nan]), *[R(*s) for s in shapes[1:]], beta=0, grad=False)
    f("int64", *[I(*s) for s in shapes], beta=2, alpha=3)

f = op("vdot", "input other", torch.vdot, "matmul")
f(R(3), R(3))
f("one element", R(1), R(1))
f("nothing", R(0), R(0))
f("seventeen", R(17), R(17))
f("stride 0", R(1).then(lambda x: x.expand(5)), R(5))
f("int64", I(5), I(5))

f = op("inner", "input other", torch.inner, "matmul")
f(R(3), R(3))
f(R(2, 3), R(3))
f(R(2, 3), R(5, 3))
f("0-d", R(), R(2, 3))
f("one element", R(1), R(1))
f("empty", R(0, 3), R(2, 3))
f("int64", I(2, 3), I(3))

f = op("kron", "input other", torch.kron, "arith")
f(R(2, 3), R(3, 2))
f(R(3), R(2))
f("other dims", R(2), R(2, 3))
f("0-d", R(), R(3))
f("one element", R(1, 1), R(2, 2))
f("empty", R(0, 2), R(2, 2))
f("int64", I(2, 2), I(2, 2))

f = op("tensordot", "a b dims", torch.tensordot, "matmul", dims=())
f(R(2, 3), R(3, 5), 1)
f(R(2, 3, 5), R(3, 5, 2), 2)
f("nothing summed", R(2), R(3), 0)
f("one element", R(1), R(1), 1)
f("empty", R(0, 3), R(3, 2), 1)
f("int64", I(2, 3), I(3, 2), 1)
f = op("tensordot", "a b dims", lambda a, b, dims: torch.tensordot(a, b, dims), "matmul",
       dims=("dims",))
f("named dims", R(2, 3, 5), R(5, 2, 2), [[0, 2], [1, 0]])
f("negative dims", R(2, 3), R(2, 3), [[-1], [-1]])

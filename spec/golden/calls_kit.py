"""Inputs, results and the translation to Lua for modules.py and calls.py.

Inputs are named by their kind and their position: x floats of both signs, p positive, u between 0
and 1, t -1 or 1, b booleans, i integers from 0 to n - 1 (in Lua from 1 on), l given integers, n
integers of both signs of a given dtype. Tensors are written as their dtype, their shape and the sum
of the elements times cosines of their positions, so that an element at another position changes
the number.
"""

import ast

import torch

FROM_ONE = {"dim", "dim0", "dim1", "dim2", "dims", "start_dim", "end_dim", "padding_idx",
            "ignore_index", "source", "destination", "axis", "dimension"}


def X(*shape):
    return ("x", shape)


def P(*shape):
    return ("p", shape)


def U(*shape):
    return ("u", shape)


def T(*shape):
    return ("t", shape)


def B(*shape):
    return ("b", shape)


def I(n, *shape):
    return ("i", shape, n)


def L(*values):
    return ("l", values)


def N(dtype, *shape):
    return ("n", shape, dtype)


def sines(kind, shape, start, n=None):
    count = 1
    for size in shape:
        count *= size
    x = torch.arange(start, count + start).double().sin().view(shape)
    if kind == "p":
        return x.square() + 0.125
    if kind == "u":
        return x / 2.5 + 0.5
    if kind == "t":
        return torch.where(x > 0, 1.0, -1.0)
    if kind == "b":
        return x > 0.75
    if kind == "i":
        return ((x + 1) * n / 2).floor().long()
    if kind == "n":
        return (x * 9).floor().abs().to(getattr(torch, n)) if n == "uint8" else (
            x * 9).floor().to(getattr(torch, n))
    return x


def weighed(x):
    x = x.detach().double().reshape(-1)
    return (x * torch.arange(1, x.numel() + 1).double().cos()).sum().item()


def shown(x):
    return [str(x.dtype)[6:], list(x.shape), weighed(x)]


def flat(value):
    if isinstance(value, (tuple, list)):
        return [x for part in value for x in flat(part)]
    return [] if value is None else [value]


def lua(node, name=None):
    """The Lua text of an expression; name: the argument that it is."""
    if isinstance(node, ast.Expression):
        return lua(node.body)
    if isinstance(node, ast.Constant):
        if node.value is None:
            return "moth.none"
        if isinstance(node.value, bool):
            return str(node.value).lower()
        if isinstance(node.value, str):
            return f'"{node.value}"'
        return repr(node.value + 1 if name in FROM_ONE and node.value >= 0 else node.value)
    if isinstance(node, ast.BinOp):
        sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(node.op)]
        return f"{lua(node.left)} {sign} {lua(node.right)}"
    if isinstance(node, ast.UnaryOp):
        return "-" + lua(node.operand)
    if isinstance(node, (ast.Tuple, ast.List)):
        return "{" + ", ".join(lua(x, name) for x in node.elts) + "}"
    if isinstance(node, ast.Attribute):
        return ("moth" if lua(node.value) == "torch" else lua(node.value)) + "." + node.attr
    if isinstance(node, ast.Name):
        return node.id
    function = lua(node.func)
    if isinstance(node.func, ast.Attribute) and root_of(node.func) not in SPACES:
        function = lua(node.func.value) + ":" + node.func.attr
    first = DIMS.get(function, ())
    args = [lua(x, first[i] if i < len(first) else None) for i, x in enumerate(node.args)]
    named = ", ".join(f"{k.arg} = {lua(k.value, k.arg)}" for k in node.keywords)
    return f"{function}({', '.join(args + ([f'{{{named}}}'] if named else []))})"


SPACES = ("torch", "nn", "F")  # other functions with a dot are methods


def root_of(node):
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


# The arguments in position that are dimensions.
DIMS = {}


def translate(text):
    return lua(ast.parse(text, mode="eval"))

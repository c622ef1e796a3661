"""The functions that the files under samples/ call, and the evaluation of a sample.

    add = op("add", "input other", torch.add, "arith")
    add(R(2, 3), R(3), alpha=2)                     # one sample: inputs are drawn from a grid
    add("infinities", T([inf, -inf]), 1.0, grad=False)
    add.raises("E_SHAPE", R(2), R(3))
    exempt("randn", "random: spec/ops/random_spec.lua checks its distribution")

Positional arguments get the names of the second argument of op(). Dimensions and positions are
written as in PyTorch, from 0, and converted here to count from 1. Inputs are on a grid that f16 and
bf16 represent exactly, so one f64 sample is enough for all four floating dtypes.
"""

import math
import zlib

import numpy
import torch

inf, nan = math.inf, math.nan
SEED = 20250
FAMILIES = {}      # family -> {"ops": {name: [samples]}, "exempt": {name: why}}
PROBLEMS = []      # samples that PyTorch could not compute, or not twice alike
_current = [None]
DIM_NAMES = {"dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim", "source",
             "destination"}
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def family(name):
    _current[0] = FAMILIES.setdefault(name, {"ops": {}, "exempt": {}})


def exempt(name, why):
    _current[0]["exempt"][name] = why


# ---- inputs ----

class Draw:
    """A tensor that is drawn when its sample's name is known, so that samples do not depend on
    their order."""

    def __init__(self, shape, low, high, step, dtype=torch.float64, change=None):
        self.shape, self.low, self.high, self.step = tuple(shape), low, high, step
        self.dtype, self.change = dtype, change

    def then(self, change):
        """The drawn tensor, changed: R(3, 3).then(lambda x: x @ x.T)."""
        before = self.change or (lambda x: x)
        return Draw(self.shape, self.low, self.high, self.step, self.dtype,
                    lambda x: change(before(x)))

    def make(self, key):
        rng = numpy.random.Generator(numpy.random.PCG64([SEED, zlib.crc32(key.encode())]))
        n = math.prod(self.shape)
        many = n > self.high - self.low  # distinct as long as there are enough numbers
        drawn = rng.choice(numpy.arange(self.low, self.high), size=n, replace=many)
        x = torch.tensor(drawn, dtype=torch.float64) / self.step
        x = x.to(self.dtype).reshape(self.shape)
        return self.change(x) if self.change else x


def R(*shape):
    """Numbers of both signs, k/16 with |k| <= 127, never 0, distinct up to 254 elements."""
    return Draw(shape, -127, 127, 16, change=lambda x: torch.where(x >= 0, x + 1 / 16, x))


def S(*shape):
    """Small numbers of both signs: |k| <= 32, for functions that grow fast."""
    return Draw(shape, -32, 33, 16)


def P(*shape):
    """Positive numbers, 1/16 ... 127/16."""
    return Draw(shape, 1, 128, 16)


def U(*shape):
    """Numbers inside (0, 1): probabilities."""
    return Draw(shape, 4, 125, 128)


def V(*shape):
    """Numbers inside (-1, 1)."""
    return Draw(shape, -120, 121, 128)


def I(*shape, low=-9, high=10, dtype=torch.int64):
    return Draw(shape, low, high, 1, dtype)


def N(n, *shape):
    """Positions below n, repeated if there are more than n."""
    return Draw(shape, 0, n, 1, torch.int64)


def B(*shape):
    return Draw((*shape,), 0, 2, 1, torch.bool)


def T(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


# ---- samples ----

def cotangent(y, j):
    k = torch.arange(y.numel(), dtype=torch.int64)
    return (((7 * (k + 3 * j)) % 11 - 5) / 8).to(y.dtype).reshape(y.shape)


def direction(x, i):
    k = torch.arange(x.numel(), dtype=torch.int64)
    return (((5 * (k + 2 * i)) % 13 - 6) / 8).to(x.dtype).reshape(x.shape)


def drawn(value, key):
    if isinstance(value, Draw):
        return value.make(key)
    if isinstance(value, (list, tuple)):
        return [drawn(v, f"{key}.{i}") for i, v in enumerate(value)]
    return value


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in tensors_of(v)]
    return []


def shown(value):
    """A short text of an argument, for the sample's name."""
    if isinstance(value, Draw):
        value = value.make("")
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype)[6:].replace("float64", "f").replace("int64", "i")
        return f"{kind}({','.join(map(str, value.shape))})"
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(shown(v) for v in value) + "}"
    return str(value).replace("torch.", "")


class Op:
    def __init__(self, name, params, fn, kind, positions=(), returns=(), dims=None,
                 mutates=False, second=True, constants=()):
        self.name, self.params, self.fn, self.kind = name, params.split(), fn, kind
        self.positions, self.returns, self.mutates = set(positions), set(returns), mutates
        self.dims = DIM_NAMES if dims is None else set(dims)
        self.second, self.constants = second, set(constants)  # constants have no gradient
        self.samples = _current[0]["ops"].setdefault(name, [])

    def arguments(self, label, args, named):
        """[(name, value)] in order, values drawn."""
        pairs = list(zip(self.params, args)) + list(named.items())
        assert len(args) <= len(self.params), f"{self.name}: more arguments than names"
        return [(k, drawn(v, f"{self.name}/{label}/{k}")) for k, v in pairs if v is not None]

    def label(self, args, named):
        if args and isinstance(args[0], str):
            return args[0], args[1:]
        text = [shown(a) for a in args] + [f"{k}={shown(v)}" for k, v in named.items()]
        return ", ".join(text), args

    def __call__(self, *args, grad=True, layouts=None, tol=None, why=None, fixed=False,
                 dtypes=None, **named):
        assert (tol is None and dtypes is None) or why, f"{self.name}: an override needs a reason"
        label, args = self.label(args, named)
        pairs = self.arguments(label, args, named)
        sample = {"name": label, "fixed": fixed, "layouts": layouts, "tol": tol, "why": why,
                  "dtypes": dtypes, "kind": self.kind, "constants": self.constants}
        try:
            runs = [self.run(pairs, len(args), grad) for _ in range(3)]
        except Exception as problem:
            PROBLEMS.append(f"{self.name} [{label}]: {problem}")
            return
        if not all(same(runs[0], other) for other in runs[1:]):
            PROBLEMS.append(f"{self.name} [{label}] is not stable")
        sample["args"] = [(k, self.shifted(k, v)) for k, v in pairs]
        sample.update(runs[0])
        # in the order of golden_run.lua: leaves are the floating tensors among the arguments
        self.samples.append(sample)

    def raises(self, code, *args, **named):
        label, args = self.label(args, named)
        pairs = self.arguments(label, args, named)
        try:
            self.call(pairs, len(args))
        except Exception:
            sample = {"name": label, "error": code, "kind": self.kind,
                      "args": [(k, self.shifted(k, v)) for k, v in pairs]}
            self.samples.append(sample)
            return
        PROBLEMS.append(f"{self.name} [{label}] did not raise in PyTorch")

    def call(self, pairs, n):
        if self.mutates:
            pairs = [(pairs[0][0], pairs[0][1].clone())] + pairs[1:]
        return self.fn(*[v for _, v in pairs[:n]], **dict(pairs[n:]))

    def run(self, pairs, n, grad):
        leaves = []

        def leaf(v):
            if isinstance(v, torch.Tensor) and v.dtype in FLOATS:
                v = v.detach().requires_grad_(grad)
                leaves.append(v)
                return v
            if isinstance(v, list) and tensors_of(v):
                return [leaf(x) for x in v]
            return v

        y = self.call([(k, v if k in self.constants else leaf(v)) for k, v in pairs], n)
        outputs = tensors_of(y)
        result = {"y": [v.detach() + 1 if j in self.returns and v.dtype == torch.int64
                        else v.detach() for j, v in enumerate(outputs)]}
        if not outputs:
            result["value"] = y
        result["scale"] = scales(self, pairs, n, outputs)
        flowing = [(v, cotangent(v, j)) for j, v in enumerate(outputs) if v.requires_grad]
        if grad and flowing:
            total = sum((v * c).sum() for v, c in flowing)
            try:
                grads = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
            except RuntimeError as problem:
                if "not impl" in str(problem):  # a step function without a derivative there
                    return result
                raise
            result["grads"] = [None if g is None else g.detach() for g in grads]
            if self.second:
                result["second"] = second(grads, leaves)
        return result

    def shifted(self, name, v):
        """Dimensions and positions, counted from 1 as in Lua."""
        def up(x):
            if isinstance(x, torch.Tensor):
                return torch.where(x >= 0, x + 1, x) if x.dtype == torch.int64 else x
            if isinstance(x, (list, tuple)):
                return [up(e) for e in x]
            return x + 1 if type(x) is int and x >= 0 else x
        if name in self.positions:
            return up(v)
        if name in self.dims and not tensors_of(v):
            return up(v)
        return v


def second(grads, leaves):
    """d/dx of sum(grad_x * v), or None if the gradients do not depend on the inputs."""
    parts = [(g * direction(g, i)).sum() for i, g in enumerate(grads)
             if g is not None and g.requires_grad]
    if not parts:
        return None
    try:
        found = torch.autograd.grad(sum(parts), leaves, allow_unused=True)
    except RuntimeError as problem:
        if "not impl" in str(problem):  # some functions of PyTorch have only a first derivative
            return None
        raise
    return [None if g is None else g.detach() for g in found]


def scales(op, pairs, n, outputs):
    """The scale of errors: |A||B| for products, the sum of |x| of one result for reductions."""
    if op.kind == "matmul":
        def positive(v):
            if isinstance(v, torch.Tensor):
                return v.detach().abs() if v.dtype in FLOATS else v
            return [positive(x) for x in v] if isinstance(v, list) and tensors_of(v) else v
        y = tensors_of(op.call([(k, positive(v)) for k, v in pairs], n))
        return [float(torch.nan_to_num(v.double(), 0, 0, 0).max()) if v.numel() else 0.0
                for v in y]
    if op.kind == "reduce":
        xs = [x for _, v in pairs for x in tensors_of(v) if x.dtype in FLOATS and x.numel()]
        total = max([float(torch.nan_to_num(x.detach(), 0, 0, 0).abs().sum()) for x in xs] + [0.0])
        return [max(1.0, total / max(1, v.numel())) for v in outputs]
    return [1.0 for _ in outputs]


def same(a, b):
    """Bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
            torch.nan_to_num(a.double(), 7e77), torch.nan_to_num(b.double(), 7e77))
    if isinstance(a, dict):
        return all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b))
    return a == b


def op(name, params, fn, kind="copy", **options):
    return Op(name, params, fn, kind, **options)

"""PyTorch's side of the rows that are generated from Moth's records: spec/bench/records.lua writes
the call as JSON, spec/bench/values.lua explains the descriptions of tensors."""
import json

import torch
import torch.nn.functional as F


def matrix(shape):
    x = torch.randn(shape)
    if len(shape) < 2:
        return x
    return x / shape[-1] ** 0.5 + 2 * torch.eye(*shape[-2:])


def symmetric(shape):
    x = torch.randn(shape)
    if len(shape) < 2:
        return x
    return x @ x.mT / shape[-1] + torch.eye(shape[-1])


DRAWS = {
    "normal": lambda v, shape: torch.randn(shape),
    "uniform": lambda v, shape: torch.rand(shape) * (v["high"] - v["low"]) + v["low"],
    "ordered": lambda v, shape: torch.rand(shape).sort()[0],
    "integers": lambda v, shape: torch.randint(int(v["low"]), int(v["high"]) + 1, shape),
    "ids": lambda v, shape: torch.randint(0, int(v["high"]), shape),
    "constant": lambda v, shape: torch.full(shape, float(v["low"])),
    "matrix": lambda v, shape: matrix(shape),
    "symmetric": lambda v, shape: symmetric(shape),
    "triangle": lambda v, shape: matrix(shape).tril(),
    "pairs": lambda v, shape: torch.view_as_complex(torch.randn(shape)),
}


def drawn(v, leaves):
    """A tensor of a description."""
    x = DRAWS[v["draw"]](v, v["shape"])
    if v["draw"] != "pairs":
        x = x.to(getattr(torch, v["dtype"])).contiguous()
    if v["grad"]:
        leaves.append(x.requires_grad_())
    return x


def decoded(v, leaves):
    """A value of the call; tensors that require a gradient are added to the leaves."""
    if isinstance(v, list):
        return [decoded(part, leaves) for part in v]
    if isinstance(v, dict):
        if "number" in v:
            return float(v["number"])
        if "constant" in v:
            return getattr(torch, v["constant"])
        return drawn(v, leaves)
    return v


# ---- functions with another form in Python ----

def index_put(x, indices, values, accumulate=False):
    return x.index_put(tuple(indices), values, accumulate)


def slice_scatter(x, src, start, stop):
    return torch.slice_scatter(x, src, 0, start, stop + 1)


OWN = {
    "bench.slice_scatter": slice_scatter,
    "signal.windows.general_cosine": lambda n, a: torch.signal.windows.general_cosine(n, a=a),
    "bench.index": lambda x, indices: x[tuple(indices)],
    "bench.index_put": index_put,
    "batch_norm": lambda x, training: F.batch_norm(x, None, None, training=training),
    "block_diag": lambda tensors: torch.block_diag(*tensors),
    "broadcast_tensors": lambda tensors: torch.broadcast_tensors(*tensors),
    "cartesian_prod": lambda *tensors: torch.cartesian_prod(*tensors),
    "chain_matmul": lambda tensors: torch.linalg.multi_dot(tensors),
    "rnn_tanh": lambda x, h, params: torch.rnn_tanh(x, h, params, True, 1, 0.0, False, False, False),
    "rnn_relu": lambda x, h, params: torch.rnn_relu(x, h, params, True, 1, 0.0, False, False, False),
    "gru": lambda x, h, params: torch.gru(x, h, params, True, 1, 0.0, False, False, False),
    "lstm": lambda x, h, params: torch.lstm(x, h, params, True, 1, 0.0, False, False, False),
    "zero_": torch.Tensor.zero_,
}


def function_of(path):
    """The function of that name in torch.nn.functional, else in torch, else the method."""
    if path in OWN:
        return OWN[path]
    name = path.split(".")[-1]
    if "." in path and not path.startswith("nn.functional."):
        value = torch
        for part in path.split("."):
            value = getattr(value, part)
        return value
    for place in (F, torch, torch.Tensor, torch.special):
        if callable(getattr(place, name, None)):
            return getattr(place, name)
    raise AttributeError(f"PyTorch has no {path}")


def outputs(y):
    """The tensors of a result that have a gradient."""
    if isinstance(y, torch.Tensor):
        return [y] if y.requires_grad else []
    return [x for part in y for x in outputs(part)] if isinstance(y, (list, tuple)) else []


def record(text):
    """The step of a row: a call, or a call and its backward pass."""
    row, leaves = json.loads(text), []
    fn = function_of(row["fn"])
    args = [decoded(v, leaves) for v in row["args"]]
    named = {name: decoded(v, leaves) for name, v in row["named"].items()}
    if not row["backward"]:
        fn(*args, **named)  # errors are raised during the setup
        return lambda: fn(*args, **named)
    first = fn(*args, **named)
    grads = [torch.randn_like(y) for y in outputs(first)]
    if isinstance(first, torch.Tensor):
        grad = grads[0]

        def single():
            for x in leaves:
                x.grad = None
            fn(*args, **named).backward(grad)
        return single

    def step():
        for x in leaves:
            x.grad = None
        torch.autograd.backward(outputs(fn(*args, **named)), grads)
    return step

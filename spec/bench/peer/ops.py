"""The single operations of workloads.txt: the meaning of `fn` on PyTorch's side."""
import re

import torch
import torch.nn.functional as F

# Functions of the inputs.
PLAIN = {
    "add": torch.add,
    "add16": torch.add,
    "add16_inplace": torch.Tensor.add_,
    "mul": torch.mul,
    "chain16_grad": lambda a, b, c: ((a + c) * b).sum(),
    "square0": lambda x: x * x,
    "matmul": torch.matmul,
    "bmm": torch.bmm,
    "view": lambda x: x[3],
    "list_item": lambda: torch.tensor([0.1, 0.2, 0.3, 0.4])[0].item(),
    "relu": torch.relu,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "dropout": F.dropout,
    "sum_all": torch.sum,
    "cumsum": lambda x: x.cumsum(1),
    "sort": torch.sort,
    "topk": lambda x: x.topk(10),
    "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
    "batch_norm": lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, training=True),
    "cross_entropy": F.cross_entropy,
    "sdpa_causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
    "upsample_bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "embedding": F.embedding,
    "index_select": lambda x, ids: x.index_select(0, ids),
    "gather": lambda x, ids: x.gather(1, ids),
    "masked_select": torch.masked_select,
    "mask_write": lambda x, mask: x.__setitem__(mask, 0),
    "cat": lambda *parts: torch.cat(parts, 1),
    "transpose_copy": lambda x: x.t().contiguous(),
    "randn": lambda: torch.randn(10**6),
}

# Functions of the inputs and of the row's options.
WITH_OPTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "max": lambda x, dim: x.max(dim)[0],
    "conv2d": F.conv2d,
    "conv_transpose2d": F.conv_transpose2d,
    "conv3d": F.conv3d,
}


DTYPES = {"bf16": torch.bfloat16, "f16": torch.half}


def tensor_of(spec, gradients, dtype):
    """The input that a shape such as *[2,3], ids[5]<9 or mask[5] describes."""
    kind, sizes, bound = re.fullmatch(r"([*a-z]*)\[([\d,]*)\]<?(\d*)", spec).groups()
    shape = [int(size) for size in sizes.split(",") if size]
    if kind == "ids":
        return torch.randint(int(bound), shape)
    if kind in ("mask", "bits"):
        chosen = torch.rand(shape) < 0.5
        return chosen if kind == "mask" else chosen.float()
    return torch.randn(shape, requires_grad=gradients and kind == "*", dtype=dtype)


def inputs(row, gradients=False):
    kind = row.options.get("dtype", "f32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
    return [tensor_of(spec, gradients, DTYPES.get(kind, torch.float)) for spec in row.inputs]


def function_of(row):
    if row.fn in PLAIN:
        return PLAIN[row.fn]
    fn = WITH_OPTIONS[row.fn]
    options = {key: value for key, value in row.options.items() if key not in ("fn", "dtype")}
    return lambda *xs: fn(*xs, **options)


def call(row):
    """One call; nothing is recorded unless an input requires a gradient."""
    fn, xs = function_of(row), inputs(row, row.kind == "graph")
    return lambda: fn(*xs)


def op(row):
    """Forward, or forward and backward."""
    if not row.backward:
        return call(row)
    fn, xs = function_of(row), inputs(row, True)
    leaves = [x for x in xs if x.requires_grad]
    out_grad = torch.randn_like(fn(*xs))

    def step():
        for x in leaves:
            x.grad = None
        fn(*xs).backward(out_grad)
    return step

"""The single calls of `moth bench cuda` on PyTorch's side, as in spec/bench/gpu/ops.lua.

Two additional rows have attention kernels that are selected by name.
"""
import operator
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_measure import GPU
from gpu_rows import DEVICE, DRY, add, cap, op, traffic

# ---- launch: overhead per call, L2 warm ----

launch = partial(op, l2="warm", work=lambda xs, results: {})
launch("launch/add16", "a + b", "[16] [16]", operator.add)
launch("launch/matmul4", "a @ b", "[4,4] [4,4]", operator.matmul)
launch("launch/square0", "x * x, zero-dimensional: the smallest graph", "*[]", lambda x: x * x)
launch("launch/item", "read one number from the device", "[]", torch.Tensor.item)


# ---- gemm: L2 warm ----

def product_flop(xs, results):
    return {"flop": 2 * results[0].numel() * xs[0].shape[-1]}


product = partial(op, l2="warm", both=3, work=product_flop)
SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (128, 512, 512),
          (64, 784, 128), (8192, 8192, 64))
for kind in ("f32", "tf32", "bf16", "f16"):
    for m, k, n in SHAPES:
        product(f"gemm/{m}x{k}x{n}", "a @ b", f"[{m},{k}] [{k},{n}]", torch.matmul, kind)
    product("gemm/batch64_256x256x256", "a @ b", "[64,256,256] [64,256,256]", torch.bmm, kind)
product("gemm/linear_gelu_8192x1024x4096", "gelu, exact (erf), of x @ w.t() + b",
        "*[8192,1024] *[4096,1024] *[4096]", lambda x, w, b: F.gelu(F.linear(x, w, b)), "bf16")


# ---- memory: bound by memory, L2 cold ----

def passes(n):
    """Bytes of n passes over the result."""
    return lambda xs, results: {"bytes": n * results[0].nbytes}


for size in ("1e7", "1e8"):
    one = f"[{int(float(size))}]"
    for kind in ("f32", "bf16"):
        op(f"memory/add/{size}", "a + b", f"{one} {one}", torch.add, kind)
        op(f"memory/gelu/{size}", "gelu, exact (erf)", one, F.gelu, kind)
        op(f"memory/relu/{size}", "relu", one, torch.relu, kind)
        op(f"memory/exp/{size}", "exp", one, torch.exp, kind)
for d in (0, 1):
    op(f"memory/sum/dim{d}", f"over dimension {d}", "[8192,8192]", partial(torch.sum, dim=d))
    op(f"memory/max/dim{d}", "values and indices", "[8192,8192]", partial(torch.max, dim=d))
for shape in ("8192,8192", "65536,64"):
    for fn in (torch.softmax, torch.log_softmax):
        op(f"memory/{fn.__name__}/{shape.replace(',', 'x')}", "over dimension 1; fwdbwd: 5 passes",
           f"*[{shape}]", partial(fn, dim=1), both=2.5)
op("memory/layer_norm/16384x1024", "of each row, affine; fwdbwd: 5 passes",
   "*[16384,1024] *[1024] *[1024]", lambda x, w, b: F.layer_norm(x, w.shape, w, b), both=2.5)
op("memory/batch_norm/256x64x56x56", "training, affine; moves the last two inputs; 3 passes, "
   "both 8", "*[256,64,56,56] *[64] *[64] [64] [64]",
   lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, training=True),
   work=passes(3), both=8 / 3)
op("memory/dropout/1e8", "p 0.5, training", "*[100000000]", F.dropout)
op("memory/randn/1e8", "as many fresh normal numbers", "[100000000]", torch.randn_like,
   work=passes(1))
op("memory/transpose_copy/16384", "contiguous", "[16384,16384]", lambda x: x.t().contiguous())
op("memory/cross_entropy/8192x50257", "mean; fwdbwd: 3 passes", "*[8192,50257] ids[8192]<50257",
   F.cross_entropy, both=3)
op("memory/embedding/50257x768", "rows of x; dense gradient, written once",
   "*[50257,768] ids[16384]<50257", lambda x, ids: F.embedding(ids, x), work=passes(2), both=3.03)
op("memory/index_select/50257x768", "rows of x; dense gradient, written once",
   "*[50257,768] ids[16384]<50257", lambda x, ids: x.index_select(0, ids), work=passes(2),
   both=3.03)
op("memory/gather/8192x8192", "dimension 1", "*[8192,8192] ids[8192,8192]<8192",
   lambda x, ids: x.gather(1, ids))
op("memory/scatter_add/1e7", "x.scatter_add_(0, ids, y)",
   "[1000000] ids[10000000]<1000000 [10000000]", lambda x, ids, y: x.scatter_add_(0, ids, y))
op("memory/masked_select/1e7", "x[mask]", "*[10000000] mask[10000000]", torch.masked_select)
op("memory/sort/1e7", "values and indices, ascending", "[10000000]", torch.sort)
op("memory/topk/4096x4096_k10", "of each row, sorted, indices", "[4096,4096]",
   partial(torch.topk, k=10))
op("memory/cumsum/4096x4096", "dimension 1", "*[4096,4096]", partial(torch.cumsum, dim=1))
op("memory/copy/8GB", "x.copy_(y): 8 GB read, 8 GB written", "[2000000000] [2000000000]",
   torch.Tensor.copy_, work=passes(2))


def host_copy(mode):
    host = torch.randn(cap(2**26), device="cpu", pin_memory=GPU is torch.cuda)
    there = host.to(DEVICE)
    target, source = (there, host) if mode == "to" else (host, there)
    return partial(target.copy_, source), traffic([host], ())


add("memory/host_copy", "Blocking copy of 256 MiB to or from the device.", host_copy, "cold",
    ("to", "from"))


# ---- conv: L2 warm ----

def conv(name, x, weight, fn=F.conv2d, **options):
    """x and weight are sizes; the bias has an element for each channel."""
    transposed = fn is F.conv_transpose2d
    bias = weight.split(",")[1 if transposed else 0]
    if "groups" in options:
        options["groups"] = cap(options["groups"])

    def flop(xs, results):
        places = (xs[0] if transposed else results[0]).numel()
        return {"flop": 2 * places * xs[1][0].numel()}
    for variant in ("tf32", "bf16", "bf16_cl"):
        op(f"conv/{name}", f"x, weight, bias; {options}", f"*[{x}] *[{weight}] *[{bias}]",
           partial(fn, **options), variant, "warm", flop, 3)


conv("256x64x56x56_k3", "256,64,56,56", "64,64,3,3", padding=1)
conv("256x128x28x28_k3", "256,128,28,28", "128,128,3,3", padding=1)
conv("256x3x224x224_k7s2", "256,3,224,224", "64,3,7,7", stride=2, padding=3)
conv("256x256x14x14_k1", "256,256,14,14", "1024,256,1,1")
conv("depthwise_256x128x28x28_k3", "256,128,28,28", "128,1,3,3", padding=1, groups=128)
conv("transpose_64x256x16x16_k4s2", "64,256,16,16", "256,128,4,4", F.conv_transpose2d, stride=2,
     padding=1)
conv("3d_8x16x32x64x64_k3", "8,16,32,64,64", "32,16,3,3,3", F.conv3d, padding=1)


# ---- attention: L2 warm ----

def attention_flop(xs, results):
    """Only the causal half counts."""
    return {"flop": 2 * results[0].numel() * xs[0].shape[2]}


NAMED = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
for length in (1024, 4096):
    for name, kind in (("sdpa", "bf16"), ("sdpa", "f32"), ("flash", "bf16"), ("cudnn", "bf16")):
        plain = DRY or name == "sdpa"
        op(f"attention/{name}_8x16x{length}x64", "causal; q, k, v: [B,H,T,D]; flop of the causal "
           "half, fwdbwd 3.5 times fwd; flash and cudnn: that kernel",
           " ".join([f"*[8,16,{length},64]"] * 3),
           partial(F.scaled_dot_product_attention, is_causal=True), kind, "warm", attention_flop,
           3.5, nullcontext if plain else partial(sdpa_kernel, NAMED[name]))

"""The whole steps of `moth bench cuda` on PyTorch's side, as in spec/bench/gpu/train.lua.

More modes than Moth's show PyTorch at its best: `compile` (forward and loss by torch.compile),
`fused` and `foreach` (the optimizer), and a fused optimizer under `graph` (a CUDA graph).
"""
import json
import subprocess
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import nets
from gpu_measure import GPU, captured, now
from gpu_rows import DEVICE, DRY, add, cap, channels_last, tensor
from train import dcgan_step, every_token, lstmcell_loop, trainer

EAGER_AND_GRAPH = ("eager", "graph")
# Adam's options in a mode; a captured Adam keeps its step count on the device.
ADAM = {"eager": {}, "compile": {}, "fused": {"fused": True},
        "graph": {"fused": True, "capturable": not DRY}}


def in_mode(step, mode):
    return captured(step) if mode == "graph" else step


def train(name, text, build, inputs, loss, optim, settings, variant="", clip=None, unit=None,
          flop=None, fixed=True, modes=EAGER_AND_GRAPH):
    """Adds NAME/VARIANT/MODE: zero_grad, forward, loss, backward, optimizer step on a fixed batch.

    `unit` is an element of y, flop(net) the operations of each; not `fixed`: a dry run may shrink
    all of the inputs."""
    def setup(mode):
        net, (x, y) = build(), (tensor(spec, fixed=fixed) for spec in inputs.split())
        if variant.endswith("_cl"):
            net, x = net.to(memory_format=torch.channels_last), channels_last(x)
        more = {} if optim == "SGD" else ADAM[mode]
        optimizer = getattr(torch.optim, optim)(net.parameters(), **settings, **more)

        def forward():
            return loss(net(x), y)
        if mode == "compile":
            torch.compiler.reset()
            forward = torch.compile(forward, backend="aot_eager" if DRY else "inductor")
        if variant.startswith("bf16"):
            forward = torch.autocast(DEVICE, torch.bfloat16)(forward)
        amounts = {unit: y.numel()} if unit else {}
        if flop:
            amounts |= dict.fromkeys(("flop", "mfu"), flop(net) * y.numel())
        return in_mode(trainer(optimizer, forward, clip), mode), amounts
    add(f"{name}/{variant}" if variant else name, f"Train step: {text} Inputs {inputs}.", setup,
        modes=modes)


# ---- launch: small steps ----

train("launch/xor_step", "MLP 2-8-1, tanh (XOR), SGD.", partial(nets.mlp, 2, 8, 1, act=nn.Tanh),
      "[4,2] [4,1]", F.mse_loss, "SGD", {"lr": 0.1})
train("launch/agent_step", "MLP 4-64-64-2, relu, Adam.", partial(nets.mlp, 4, 64, 64, 2),
      "[32,4] [32,2]", F.mse_loss, "Adam", {"lr": 1e-3}, modes=("eager", "fused", "graph"))


def agent_infer(mode):
    net, state = nets.mlp(4, 64, 64, 2), torch.randn(1, 4, device="cpu")
    there = state.to(DEVICE)

    def act():
        return net(state.to(DEVICE)).argmax().item()
    return in_mode(torch.inference_mode()(act if mode == "act" else partial(net, there)), mode), {}


add("launch/agent_infer", "Inference: MLP 4-64-64-2, input [1,4] on the device; act: copied from "
    "the CPU, the place of the largest output read back.", agent_infer,
    modes=("eager", "graph", "act"))
add("launch/lstmcell_loop", "LSTMCell 64-64, batch 1, 32 steps in a loop of Python, backward of "
    "the sum of the last h.", lambda mode: (in_mode(lstmcell_loop(None), mode), {}),
    modes=EAGER_AND_GRAPH)


# ---- a GPT whose head shares the weights of its embedding ----

class TiedGpt(nets.Gpt):
    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__(cap(vocabulary), cap(context), cap(width, 8 * heads), heads,
                         cap(layers, 2))
        nn.init.normal_(self.token.weight, 0, 0.02)
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.place.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def gpt_flop(net):
    """Flop per token: 6 a parameter (without positions), 12 * layers * width * T for attention."""
    size, places = sum(p.numel() for p in net.parameters()), net.place.weight.numel()
    return 6 * (size - places) + 12 * len(net.blocks) * places


GPT2 = 50257, 1024, 768, 12, 12  # 124 million parameters


def adam_step(mode):
    parameters = list(TiedGpt(*GPT2).parameters())
    for p in parameters:
        p.grad = torch.randn_like(p)
    options = {} if mode == "default" else {mode: True}
    optimizer = torch.optim.Adam(parameters, lr=1e-3, **options)
    return optimizer.step, {"bytes": 7 * sum(p.nbytes for p in parameters)}


add("memory/adam_step_124M", "One update of the parameters of train/gpt124m, lr 1e-3, fixed "
    "gradients. 7 passes: 4 read, 3 written.", adam_step, "cold", ("default", "foreach", "fused"))


# ---- train ----

for batch in (64, 1024):
    train(f"train/mnist_net_b{batch}", "the classic network of MNIST examples, SGD.",
          nets.mnist_net, f"[{batch},1,28,28] ids[{batch}]<10", F.nll_loss, "SGD",
          {"lr": 0.01, "momentum": 0.5}, "tf32", unit="images")
train("train/mlp784", "MLP 784-512-512-10, relu, Adam.", partial(nets.mlp, 784, 512, 512, 10),
      "[128,784] ids[128]<10", F.cross_entropy, "Adam", {"lr": 1e-3}, "tf32", unit="images")
for kind in ("tf32", "bf16"):
    train("train/resnet18", "ResNet-18 for 3x32x32, SGD.", nets.resnet18,
          "[128,3,32,32] ids[128]<10", F.cross_entropy, "SGD",
          {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
          "bf16_cl" if kind == "bf16" else kind, unit="images")
    train("train/char_lstm", "Embedding 65-512, two LSTM layers of 512, Linear 512-65, Adam.",
          partial(nets.char_lstm, 512), "ids[64,128]<65 ids[64,128]<65", every_token, "Adam",
          {"lr": 1e-3}, kind, unit="tokens")
for name, batch, sizes in (("gpt10m", 64, (65, 256, 384, 6, 6)), ("gpt124m", 16, GPT2)):
    ids = f"ids[{batch},{sizes[1]}]<{sizes[0]}"
    train(f"train/{name}", f"GPT, tied weights; vocabulary, context, width, heads, blocks {sizes}; "
          "AdamW (fused), clip 1.", partial(TiedGpt, *sizes), f"{ids} {ids}", every_token, "AdamW",
          {"lr": 3e-4, "weight_decay": 0.1, "fused": True}, "bf16", 1, "tokens", gpt_flop, False,
          ("eager", "compile"))
add("train/dcgan/tf32", "DCGAN 3x64x64, batch 128, ngf = ndf = 64, Adam on both.",
    lambda mode: (in_mode(dcgan_step(cap(128, 4), 64, **ADAM[mode]), mode),
                  {"images": cap(128, 4)}), modes=EAGER_AND_GRAPH)


# ---- process ----

CHILD = """
import time
begin = time.perf_counter()
import json, torch
imported = time.perf_counter()
F, x = torch.nn.functional, torch.ones(1, 1, 64, 64, device=DEVICE)
y = (CALL).cpu()
done = time.perf_counter()
free = torch.cuda.mem_get_info()[0] if x.is_cuda else 0
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        peak = int(line.split()[1])
print(json.dumps([(imported - begin) * 1e6, (done - imported) * 1e6, peak / 1024, free / 2**20]))
"""
CALLS = {"add": "x + 1", "matmul": "x @ x", "conv": "F.conv2d(x, x[:, :, :3, :3])"}


def fresh(call):
    """One new process: seconds from start to exit, its output, and its peak of device memory."""
    code = CHILD.replace("DEVICE", repr(DEVICE)).replace("CALL", CALLS[call])
    free, begin = GPU.mem_get_info()[0] / 2**20, now()
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    wall = (now() - begin) * 1e6
    *figures, left = json.loads(out)
    return wall, *figures, free - left


def first(call):
    fresh(call)  # fills the caches
    columns = zip(*[fresh(call) for _ in range(1 if DRY else 3)])
    units = {"wall": "us", "import": "us", "first_op": "us", "peak_rss": "MiB",
             "device_memory": "MiB"}
    return None, {part: (unit, list(column))
                  for (part, unit), column in zip(units.items(), columns)}


add("process/first", "A fresh process loads PyTorch, puts 64x64 ones on the device, calls once, "
    "reads the result. wall: start to exit; device_memory: context included.", first,
    modes=("add", "matmul", "conv"))

#!/usr/bin/env python3
"""PyTorch's side of `moth bench small`: the same names, the same work, the same timing.

    python peer.py [--only PATTERN] [--threads N] [--seconds S]

Prints one JSON line for each workload, in microseconds a call. --only is a Lua pattern of plain
characters, `.` and anchors, or a regular expression: for these two both read it alike.
"""
import argparse
import json
import re
import statistics
import timeit

import torch
from torch import nn

ROWS = {}


def row(name):
    """Registers a setup function that returns the callable to time."""
    def register(setup):
        ROWS[name] = setup
        return setup
    return register


def measure(step, seconds):
    """Microseconds per call, one sample for each batch: see spec/bench/timing.lua."""
    batch = timeit.Timer(step, "import gc; gc.enable()").timeit
    batch(2)
    calls, samples = 1, []
    while batch(calls) < seconds / 20:
        calls *= 2
    while len(samples) < 5 or sum(samples) < seconds:
        samples.append(batch(calls))
    return [took / calls * 1e6 for took in samples]


@row("small/add16")
def add16():
    a, b = torch.randn(16), torch.randn(16)
    return lambda: a + b


@row("small/add16_grad")
def add16_grad():
    a, b = (torch.randn(16, requires_grad=True) for _ in range(2))
    return lambda: a + b


@row("small/add16_inplace")
def add16_inplace():
    a, b = torch.randn(16), torch.randn(16)
    return lambda: a.add_(b)


@row("small/matmul4")
def matmul4():
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    return lambda: a @ b


@row("small/view")
def view():
    x = torch.randn(16, 16)
    return lambda: x[3]


@row("small/sum16")
def sum16():
    x = torch.randn(16)
    return lambda: x.sum()


@row("small/list_item")
def list_item():
    return lambda: torch.tensor([0.1, 0.2, 0.3, 0.4])[0].item()


@row("op/square0/fwd")
def square0():
    x = torch.randn(())
    return lambda: x * x


@row("op/square0/fwdbwd")
def square0_back():
    x, grad = torch.randn((), requires_grad=True), torch.randn(())

    def step():
        x.grad = None
        (x * x).backward(grad)
    return step


def mlp(sizes, act):
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n_in, n_out), act()]
    return nn.Sequential(*layers[:-1])


def trainer(net, optimizer, x, y):
    def step():
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return step


@row("small/xor_step")
def xor_step():
    net = mlp((2, 8, 1), nn.Tanh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return trainer(net, optimizer, torch.randn(4, 2), torch.randn(4, 1))


@row("small/agent_infer")
def agent_infer():
    net, x = mlp((4, 64, 64, 2), nn.ReLU).eval(), torch.randn(1, 4)

    @torch.inference_mode()
    def step():
        net(x)
    return step


@row("small/agent_step")
def agent_step():
    net = mlp((4, 64, 64, 2), nn.ReLU)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    return trainer(net, optimizer, torch.randn(32, 4), torch.randn(32, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, setup in ROWS.items():
        if re.search(options.only, name):
            torch.manual_seed(0)
            samples = measure(setup(), options.seconds)
            print(json.dumps({
                "name": name, "unit": "us", "median": round(statistics.median(samples), 4),
                "min": round(min(samples), 4), "threads": options.threads, "n": len(samples)}),
                flush=True)


if __name__ == "__main__":
    main()

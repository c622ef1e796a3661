"""The table of the workloads of `moth bench cuda` on PyTorch's side, and functions to fill it.

Names, inputs and amounts are the same as in spec/bench/gpu/rows.lua. A dry run uses small tensors
on the CPU.
"""
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Callable

import torch

import ops

DRY = "--dry" in sys.argv
DEVICE = "cpu" if DRY else "cuda"


@dataclass
class Row:
    """setup() returns the step and the work of a call: {"flop": n, "bytes": n, "images": n,
    "tokens": n, "mfu": n}; or no step, and {suffix: (unit, samples)}. The row is measured inside
    context()."""
    text: str
    setup: Callable
    l2: str = "warm"
    context: Callable = nullcontext


TABLE = {}  # name -> Row, in order


def add(name, text, setup, l2="warm", modes=None, context=nullcontext):
    """Adds a row; setup(mode) for each mode, if there are modes."""
    for mode in modes or ():
        TABLE[f"{name}/{mode}"] = Row(text, partial(setup, mode), l2, context)
    if not modes:
        TABLE[name] = Row(text, setup, l2, context)


def cap(n, most=16):
    """A size: n, but at most `most` in a dry run."""
    return min(n, most) if DRY else n


def channels_last(x):
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=layouts[x.dim()]) if x.dim() in layouts else x


def shrunk(spec, fixed):
    """The spec of a dry run; with `fixed` (input of a network) only the first dimension shrinks."""
    sizes, bound = re.search(r"\[(.*)\](?:<(\d+))?", spec).groups()
    sizes = [int(size) for size in sizes.split(",") if size]
    small = [cap(n) for n in sizes]
    if fixed:
        small = [cap(n, 4) for n in sizes[:1]] + sizes[1:]
    text = spec[:spec.index("[")] + f"[{','.join(map(str, small))}]"
    return f"{text}<{bound if fixed else cap(int(bound))}" if bound else text


def tensor(spec, gradients=False, variant="", fixed=False):
    """The input that a spec such as *[2,3], ids[5]<9 or mask[5] describes, in a variant's dtype
    and layout."""
    dtype = ops.DTYPES.get(variant.removesuffix("_cl"), torch.float)
    x = ops.tensor_of(shrunk(spec, fixed) if DRY else spec, False, dtype)
    if variant.endswith("_cl"):
        x = channels_last(x)
    return x.requires_grad_(gradients and spec[0] == "*")


def traffic(inputs, results):
    """Bytes of all inputs and results, once."""
    return {"bytes": sum(x.nbytes for x in (*inputs, *results))}


def both_ways(fn, xs, result):
    """Forward and backward from a fixed gradient; first clears the gradients of the last call."""
    leaves, out_grad = [x for x in xs if x.requires_grad], torch.randn_like(result)

    def step():
        for x in leaves:
            x.grad = None
        fn(*xs).backward(out_grad)
    return step


def op(name, text, inputs, fn, variant="", l2="cold", work=traffic, both=0,
       context=nullcontext):
    """Adds NAME/VARIANT or, if an input requires a gradient, NAME/VARIANT/fwd and /fwdbwd.
    work(inputs, results) is the work of a forward call; fwdbwd has `both` times as much."""
    def setup(mode="fwd"):
        xs = [tensor(spec, mode == "fwdbwd", variant) for spec in inputs.split()]
        with torch.no_grad():
            results = fn(*xs)
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        amounts = work(xs, results)
        if mode == "fwd":
            return partial(fn, *xs), amounts
        amounts = {key: n * both for key, n in amounts.items() if both}
        return both_ways(fn, xs, results[0]), amounts
    add(f"{name}/{variant}" if variant else name, f"{text}. Inputs {inputs}", setup, l2,
        ("fwd", "fwdbwd") if "*" in inputs else None, context)

"""What `moth bench cuda` times, on PyTorch's side: the table, and the words to fill it with.

Names, inputs and amounts are those of spec/bench/gpu/rows.lua. A dry run makes everything small
and puts it on the CPU.
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
    """setup() gives the step and what a call of it does: {"flop": n, "bytes": n, "images": n,
    "tokens": n, "mfu": n}; or no step, and {suffix: (unit, samples)}. The row is measured inside
    context()."""
    text: str
    setup: Callable
    l2: str = "warm"
    context: Callable = nullcontext


TABLE = {}  # name -> Row, in order


def add(name, text, setup, l2="warm", modes=None, context=nullcontext):
    """Adds a row; setup(mode), for each of the modes if there are any."""
    for mode in modes or ():
        TABLE[f"{name}/{mode}"] = Row(text, partial(setup, mode), l2, context)
    if not modes:
        TABLE[name] = Row(text, setup, l2, context)


def cap(n, most=16):
    """A size: n, but in a dry run no more than `most`."""
    return min(n, most) if DRY else n


def channels_last(x):
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=layouts[x.dim()]) if x.dim() in layouts else x


def shrunk(spec, fixed):
    """The spec of a dry run; `fixed` (by a network): only the first dimension is smaller."""
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
    """The step of forward and backward, from a fixed gradient; those of the call before go."""
    leaves, out_grad = [x for x in xs if x.requires_grad], torch.randn_like(result)

    def step():
        for x in leaves:
            x.grad = None
        fn(*xs).backward(out_grad)
    return step


def op(name, text, inputs, fn, variant="", l2="cold", work=traffic, both=0,
       context=nullcontext):
    """Adds NAME/VARIANT or, if an input takes a gradient, that /fwd and /fwdbwd. work(inputs,
    results) is what a forward call does; forward and backward do `both` times as much."""
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

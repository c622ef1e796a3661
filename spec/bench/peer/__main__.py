#!/usr/bin/env python3
"""PyTorch's side of `moth bench`: reads requests from standard input, answers on standard output.

spec/bench/side.lua explains the protocol, spec/bench/timing.lua the timing.
    python spec/bench/peer [THREADS] [wall|cpu] [cpu|cuda]
"""
import gc
import sys
import time
import timeit
import warnings

import torch

import data
import ops
import records
import train
import whole
import workloads

KINDS = {"call": ops.call, "graph": ops.call, "op": ops.op, "train": train.train,
         "infer": train.infer}
ROWS = workloads.read()
RECORD = workloads.Row("record", "", "op", "")
CLOCK = time.process_time if sys.argv[2:3] == ["cpu"] else time.perf_counter
CYCLES, MOST = 10, 20  # as in side.lua and timing.lua
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "cpu"
if DEVICE != "cpu":  # all tensors are on the GPU, and a batch ends with a synchronization
    torch.set_default_device(DEVICE)
    torch.backends.cudnn.benchmark = True

    def CLOCK():
        torch.cuda.synchronize()
        return time.perf_counter()


def setup_of(row):
    if row.kind in KINDS:
        return KINDS[row.kind]
    if row.kind == "step":
        return getattr(data if row.group in ("data", "io") else train, row.fn)
    return {"import": whole.import_, "memory": whole.memory}.get(
        row.fn if row.group == "process" else row.group) or getattr(whole, row.fn)


def collections():
    """The number of finished cycles of Python's garbage collector."""
    return sum(generation["collections"] for generation in gc.get_stats())


class Side:
    """The current workload."""

    def __init__(self):
        self.row = self.step = self.batch = self.calls = None

    def drop(self, *_):
        self.row = self.step = self.batch = self.calls = None
        gc.collect()

    def setup(self, name):
        self.drop()
        torch.manual_seed(0)
        self.row = ROWS[name]
        self.step = setup_of(self.row)(self.row)

    def record(self, text):
        self.drop()
        torch.manual_seed(0)
        self.row = RECORD
        self.step = records.record(text)

    def warm_up(self, seconds):
        self.batch = timeit.Timer(self.step, "import gc; gc.enable()", CLOCK).timeit
        self.calls = 1
        while min(self.batch(self.calls), self.batch(self.calls)) < seconds / 20:
            self.calls *= 2

    def mean(self, seconds, cycles):
        """Microseconds per call: the mean of a run of batches, like timing.mean of timing.lua.

        With reference counting, freed objects start no cycle of the collector.
        """
        before = collections()
        total = n = 0
        while total < seconds or (0 < collections() - before < cycles
                                  and total < MOST * seconds):
            total += self.batch(self.calls)
            n += 1
        return total / (n * self.calls) * 1e6

    def time(self, _, seconds, round_):
        seconds = float(seconds)
        if self.row.kind == "whole":
            parts = self.step(int(round_))
        else:
            if not self.batch:
                self.warm_up(seconds)
            parts = {"-": ("us", self.mean(seconds, CYCLES if self.row.group == "small" else 0))}
        for part, (unit, value) in parts.items():
            print("part", part, unit, repr(value))

    def version(self):
        place = "" if DEVICE == "cpu" else f", {torch.cuda.get_device_name()}"
        return f"PyTorch {torch.__version__}, Python {sys.version.split()[0]}{place}"


def main():
    warnings.simplefilter("ignore")
    gc.freeze()  # the collector does not traverse objects of the modules
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    side = Side()
    for line in sys.stdin:
        command, *words = line.split()
        try:
            print("done", getattr(side, command)(*words) or "", flush=True)
        except Exception as error:  # a failed row is reported
            print("error", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""PyTorch's side of `moth bench cuda --peer PYTHON`: one line of JSON for each workload.

    python gpu.py [--names FILE] [--seconds S] [--list] [--dry]

The rows have the names and the fields of spec/bench/gpu/main.lua, measured the same way. A row that
fails has `error`, and the other rows still run.
"""
import argparse
import gc
import json
import statistics
import sys

import torch

from gpu_measure import GPU, fields
from gpu_rows import DEVICE, TABLE, cap
import gpu_ops  # noqa: F401 (fills the table)
import gpu_train  # noqa: F401

# an amount -> the field for its rate, and the unit
RATES = {"flop": ("tflop_s", 1e6), "mfu": ("mfu", 989e6), "bytes": ("gb_s", 1e3),
         "images": ("images_s", 1e-6), "tokens": ("tokens_s", 1e-6)}
GROUPS = ("launch", "gemm", "memory", "conv", "attention", "train", "process")


def part_rows(name, parts):
    """The results of a workload of new processes: a row for each figure."""
    return [{"name": f"{name}/{suffix}", "unit": unit,
             "median": round(statistics.median(values), 3), "min": round(min(values), 3),
             "n": len(values)} for suffix, (unit, values) in parts.items()]


def run(name, seconds):
    """The rows of one workload."""
    row, tf32 = TABLE[name], "/tf32" in name
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    gc.collect()
    GPU.empty_cache()
    flush = torch.ones(cap(2**28), device=DEVICE).sum if row.l2 == "cold" else None
    GPU.reset_peak_memory_stats()
    before = GPU.memory_allocated()
    with row.context():
        # a default device slows each call under it, so it is set only for the setup
        with torch.device(DEVICE):
            step, amounts = row.setup()
        if not step:
            return part_rows(name, amounts)
        found = {"name": name, **fields(step, seconds, flush), "l2": row.l2, "tf32": tf32}
    took = found["wall_us" if name.startswith("train") else "device_us"]
    for amount, n in amounts.items():
        field, unit = RATES[amount]
        found[field] = round(n / took / unit, 3)
    peak = (GPU.max_memory_allocated() - before) / 2**20
    return [found | {"peak_mib": round(peak, 1)}]


def machine(seconds):
    return {"name": "machine", "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "python": sys.version.split()[0],
            "gpu": GPU.get_device_name(), "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description="PyTorch's side of `moth bench cuda`.")
    parser.add_argument("--names", metavar="FILE", help="only the workloads that it names, a line")
    parser.add_argument("--seconds", type=float, default=0.3, help="timed seconds of a workload")
    parser.add_argument("--list", action="store_true", help="print names and descriptions only")
    parser.add_argument("--dry", action="store_true", help="each workload once, tiny, on the CPU")
    options = parser.parse_args()
    chosen = sorted(TABLE, key=lambda name: GROUPS.index(name.split("/")[0]))
    if options.names:
        with open(options.names, encoding="utf-8") as file:
            wanted = set(file.read().split())
        chosen = [name for name in chosen if name in wanted]
    if options.list:
        for name in chosen:
            print(f"{name}: {TABLE[name].text}")
        return 0
    print(json.dumps(machine(options.seconds)), flush=True)
    failed = 0
    for name in chosen:
        try:
            rows = run(name, 0 if options.dry else options.seconds)
        except Exception as error:  # no memory, no compiler: the other workloads still run
            failed, text = failed + 1, " ".join(f"{type(error).__name__}: {error}".split())
            rows = [{"name": name, "error": text[:300]}]
        for row in rows:
            print(json.dumps(row), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

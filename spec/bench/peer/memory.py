#!/usr/bin/env python3
"""The program of the memory rows: memory.py train/mlp784 STEPS, in a separate process.

Prints JSON. peak_tensors is the peak of the allocations and frees that the profiler saw in one run
of the steps; peak_rss is from another run, without the profiler.
"""
import json
import os
import sys

import torch
from torch.profiler import ProfilerActivity, profile

import train
import workloads


def status(key):
    """The current or the peak memory of the process in kilobytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def resident(step, steps):
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = status("VmRSS")
    for _ in range(steps):
        step()
    return (status("VmHWM") - before) / 1024


def in_tensors(step):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        for _ in range(3):
            step()
    live = peak = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak / 2**20


def main():
    torch.manual_seed(0)
    row = workloads.read()[sys.argv[1]]
    pid = os.fork()  # each measurement has a new process
    if pid == 0:
        peak = resident(train.train(row), int(sys.argv[2]))
        print(json.dumps({"peak_rss": ("MiB", peak)})[:-1], end=", ", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(f'"peak_tensors": ["MiB", {in_tensors(train.train(row))}]}}')


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    main()

"""Workloads of new processes on PyTorch's side: start, size, a whole program, peak memory.

Each returns a function of the round, which returns {part: (unit, value)}.
"""
import json
import pathlib
import re
import subprocess
import sys
import time

import torch

HERE = pathlib.Path(__file__).parent
IMPORT = "import torch; torch.ones(1) + 1; print(open('/proc/self/status').read())"


def child(*words, **options):
    """Starts this Python with some arguments."""
    words = [sys.executable, *map(str, words)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options)


def import_(_):
    def once(_=None):
        start = time.perf_counter()
        status = child("-c", IMPORT).communicate()[0]
        wall = (time.perf_counter() - start) * 1e6
        peak = int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024
        return {"wall": ("us", wall), "peak_rss": ("MiB", peak)}
    once()  # fills the caches
    return once


def disk(_):
    package = pathlib.Path(torch.__file__).parent
    own, cuda = (sum(path.lstat().st_size for path in folder.rglob("*")) / 2**20
                 for folder in (package, package.parent / "nvidia"))
    return lambda _: {"package": ("MiB", own), "with_nvidia": ("MiB", own + cuda)}


def fashion_mnist(_):
    """The first round trains three epochs, later rounds one."""
    def program(round_):
        parts, start = {}, time.perf_counter()
        process = child(HERE / "fashion_mnist.py", round_, 3 if round_ == 1 else 1)
        for epoch, line in enumerate(process.stdout, 1):
            seconds, accuracy = map(float, line.split())
            if epoch == 1:
                wall = (time.perf_counter() - start) * 1e6
                parts = {"wall_1_epoch": ("us", wall), "epoch": ("us", seconds * 1e6),
                         "accuracy_1": ("%", accuracy)}
            elif epoch == 3:
                parts["accuracy_3"] = ("%", accuracy)
        process.wait()
        return parts
    return program


def memory(row):
    def program(_):
        process = child(HERE / "memory.py", row.options["net"], row.options["steps"],
                        stderr=subprocess.DEVNULL)
        return json.loads(process.communicate()[0])
    return program

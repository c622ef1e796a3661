"""The timing fields of a row of `moth bench cuda` on PyTorch's side.

They are measured as in spec/bench/gpu/measure.lua, which explains each field.
"""
import ctypes
import statistics
import time
import timeit

import torch

from gpu_rows import DRY

now = time.perf_counter


class Nothing:
    """Replaces torch.cuda in a dry run: the CPU, without asynchronous work."""

    class Event:
        def __init__(self, **_):
            self.at = 0

        def record(self):
            self.at = now()

        def elapsed_time(self, end):
            return max(end.at - self.at, 1e-9) * 1e3

    synchronize = empty_cache = reset_peak_memory_stats = staticmethod(lambda: None)
    memory_allocated = max_memory_allocated = staticmethod(lambda: 0)
    mem_get_info = staticmethod(lambda: (0, 0))
    get_device_name = staticmethod(lambda: "none: a dry run on the CPU")


GPU = Nothing if DRY else torch.cuda


def clock():
    """The clock of the multiprocessors in MHz, from the driver's NVML; None without NVML."""
    try:
        nvml, card, mhz = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint()
    except OSError:
        return None
    failed = (nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))
              or nvml.nvmlDeviceGetClockInfo(card, 1, ctypes.byref(mhz)))
    return None if failed else mhz.value


def captured(step):
    """The step as a CUDA graph: captured once, replayed by each call."""
    if DRY:
        return step
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # creates lazy states and plans before the capture
            step()
    side.synchronize()
    with torch.cuda.graph(graph, stream=side):
        step()
    graph.of = step  # keeps the tensors that the graph reads alive
    return graph.replay


def gather(sample, seconds):
    """Calls sample() for some seconds, at least five times (dry: once). Returns the columns."""
    samples, end = [], now() + seconds
    while len(samples) < (5 if seconds else 1) or now() < end:
        samples.append(sample())
    return zip(*samples)


def samplers(step, flush):
    """issue(calls); batch(calls): device, wall and host time of a call; alone(): a single call."""
    issue = timeit.Timer(step, "import gc; gc.enable()").timeit
    start, finish = (GPU.Event(enable_timing=True) for _ in range(2))

    def batch(calls):
        GPU.synchronize()
        if flush:
            flush()
        begin = now()
        start.record()
        host = issue(calls)
        finish.record()
        GPU.synchronize()
        wall = now() - begin
        return start.elapsed_time(finish) / calls * 1e3, wall / calls * 1e6, host / calls * 1e6

    def alone():
        if flush:
            flush()
        GPU.synchronize()
        begin = now()
        issued = issue(1)
        GPU.synchronize()
        return (now() - begin) * 1e6, issued * 1e6

    return issue, batch, alone


def fields(step, seconds, flush=None):
    """The timing fields of step(). flush() empties the L2 cache; None: it stays warm."""
    issue, batch, alone = samplers(step, flush)
    first, calls = alone()[0], 1
    if seconds:
        batch(2)
    while not flush and batch(calls)[1] * calls < seconds / 20 * 1e6:
        calls *= 2
    device, wall, host = gather(lambda: batch(calls), seconds)
    sync, sync_host = gather(alone, seconds / 4)
    if flush:
        wall, host = sync, sync_host
    medians = {"device_us": device, "wall_us": wall, "host_us": host, "sync_us": sync}
    row = {key: round(statistics.median(samples), 3) for key, samples in medians.items()}
    row |= {"device_min": round(min(device), 3), "wall_min": round(min(wall), 3),
            "first_ms": round(first / 1e3, 3), "n": len(device), "calls": calls}
    issue(calls)
    mhz = clock()
    GPU.synchronize()
    return row | ({"sm_mhz": mhz} if mhz else {})

"""The peer of spec/bench/tensorboard.lua.

event_files.py time/CALLS FOLDER   prints the microseconds of one add_scalar of PyTorch's writer
event_files.py count FOLDER        prints what TensorBoard's reader counts in FOLDER/moth
"""

import sys
import time


def seconds_of(calls, folder):
    """Times one round, after a warm-up."""
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(f"{folder}/peer")
    for i in range(1000):
        writer.add_scalar("warm", i, i)
    writer.flush()
    start = time.perf_counter()
    for i in range(calls):
        writer.add_scalar("loss/train", i * 0.5, i)
    writer.flush()
    return (time.perf_counter() - start) / calls * 1e6


def counts(folder):
    """Counts all events of each kind."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    kinds = ["scalars", "histograms", "images"]
    run = EventAccumulator(f"{folder}/moth", size_guidance=dict.fromkeys(kinds, 0))
    run.Reload()
    tags = run.Tags()
    read = {"scalars": run.Scalars, "histograms": run.Histograms, "images": run.Images}
    return ", ".join(f"{sum(len(read[kind](tag)) for tag in tags[kind])} {kind}" for kind in kinds)


if sys.argv[1].startswith("time/"):
    print(seconds_of(int(sys.argv[1][5:]), sys.argv[2]))
else:
    print(counts(sys.argv[2]))

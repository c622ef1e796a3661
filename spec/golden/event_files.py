"""Writes event_files.json: the records of event files that PyTorch's SummaryWriter wrote, in hex.

    python3 spec/golden/event_files.py > spec/golden/event_files.json

Each case is the name of a method, its arguments and the record. All are written at step 7 and at
time 1.5. Values are multiples of 1/8, so that sums are exact in any order.
"""

import json
import os
import tempfile

import torch
from torch.utils.tensorboard import SummaryWriter

STEP, TIME = 7, 1.5

X = [(7 * i % 23 - 9) / 8 for i in range(40)]
LABELS = [i * 5 % 3 % 2 for i in range(30)]
PREDICTIONS = [(i * 7 % 32) / 32 for i in range(30)]


def calls(writer):
    """Yields the name, the arguments as JSON and the call of each case."""
    def case(name, kwargs, **other):
        method = getattr(writer, name)
        return name, kwargs, lambda: method(global_step=STEP, walltime=TIME, **kwargs, **other)
    yield case("add_scalar", {"tag": "loss/train", "scalar_value": 0.1})
    yield case("add_scalar", {"tag": "x" * 200, "scalar_value": -3.0})
    yield case("add_scalar", {"tag": "new", "scalar_value": 0.1, "new_style": True})
    yield case("add_scalar", {"tag": "double", "scalar_value": 0.1, "new_style": True,
                              "double_precision": True})
    yield case("add_text", {"tag": "note", "text_string": "a **b**"})
    x = torch.tensor(X)
    for bins in ["tensorflow", "auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt",
                 5, [-1.0, 0.0, 0.5, 2.0]]:
        kwargs = {"tag": "h", "bins": bins}
        method = writer.add_histogram
        yield ("add_histogram", kwargs, lambda kwargs=kwargs: method(
            values=x, global_step=STEP, walltime=TIME, **kwargs))
    yield ("add_histogram", {"tag": "few", "max_bins": 30}, lambda: writer.add_histogram(
        "few", x, STEP, walltime=TIME, max_bins=30))
    yield ("add_histogram_raw", {"tag": "raw", "min": -1, "max": 2, "num": 3, "sum": 2.5,
                                 "sum_squares": 5.25, "bucket_limits": [-0.5, 0.5, 2],
                                 "bucket_counts": [1, 0, 2]},
           lambda: writer.add_histogram_raw("raw", -1, 2, 3, 2.5, 5.25, [-0.5, 0.5, 2], [1, 0, 2],
                                            STEP, TIME))
    for thresholds in [127, 9]:
        yield ("add_pr_curve", {"tag": "pr", "num_thresholds": thresholds},
               lambda n=thresholds: writer.add_pr_curve(
                   "pr", torch.tensor(LABELS), torch.tensor(PREDICTIONS), STEP, n, None, TIME))


def records(path):
    """The Events of a file with their frames."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 8], "little") + 16
        yield data[at:at + size].hex()
        at += size


def main():
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        for name, kwargs, call in calls(writer):
            call()
            cases.append({"name": name, "arguments": kwargs})
        writer.close()
        path = os.path.join(folder, os.listdir(folder)[0])
        for case, record in zip(cases, list(records(path))[1:], strict=True):
            case["record"] = record
    print(json.dumps({"x": X, "labels": LABELS, "predictions": PREDICTIONS, "cases": cases},
                     indent=0))


main()

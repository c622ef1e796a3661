"""Epochs over data in memory and files of tensors, on PyTorch's side."""
import atexit
import os
import tempfile

import torch
from torch.utils.data import DataLoader, TensorDataset

from train import many_parameters

SAMPLES, BATCH = 60000, 64


def samples():
    return torch.randn(SAMPLES, 784), torch.randint(10, (SAMPLES,))


def index_batches(_):
    x, y = samples()

    def step():
        for ids in torch.randperm(SAMPLES).split(BATCH):
            _ = x[ids], y[ids]
    return step


def loader(row):
    batches = DataLoader(TensorDataset(*samples()), BATCH, shuffle=True,
                         num_workers=row.options["workers"])

    def step():
        for _ in batches:
            pass
    return step


def functions(row):
    if row.options.get("format") != "safetensors":
        return torch.save, torch.load
    from safetensors.torch import load_file, save_file
    return save_file, load_file


def content(row):
    """The state, the functions that save and load it, and a path."""
    handle, path = tempfile.mkstemp()
    os.close(handle)
    atexit.register(os.remove, path)
    return {f"p{i}": p for i, p in enumerate(many_parameters())}, *functions(row), path


def save(row):
    state, write, _, path = content(row)
    return lambda: write(state, path)


def load(row):
    state, write, read, path = content(row)
    write(state, path)
    return lambda: read(path)

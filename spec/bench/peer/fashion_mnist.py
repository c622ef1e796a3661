#!/usr/bin/env python3
"""The program of process/fashion_mnist: fashion_mnist.py [SEED] [EPOCHS].

Loads Fashion-MNIST, trains the classic network, prints the seconds of training and the accuracy
after each epoch.
"""
import gzip
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import nets
import train

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def idx(name, header):
    with gzip.open(next(FOLDER.glob(f"{name}*.gz"))) as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=header).copy())


def load(name):
    images = idx(f"{name}-images", 16).view(-1, 1, 28, 28).float()
    return (images / 255 - 0.286) / 0.353, idx(f"{name}-labels", 8).long()


def main():
    seed, epochs = (int(word) for word in [*sys.argv[1:], "1", "1"][:2])
    torch.manual_seed(seed)
    net, learned, (x, y) = nets.mnist_net(), TensorDataset(*load("train")), load("t10k")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, **train.FUSED)
    for _ in range(epochs):
        start = time.perf_counter()
        net.train()
        for inputs, labels in DataLoader(learned, 64, shuffle=True):
            train.trainer(optimizer, lambda: F.nll_loss(net(inputs), labels))()
        seconds = time.perf_counter() - start
        with torch.no_grad():
            net.eval()
            right = sum((net(a).argmax(1) == b).sum() for a, b in zip(x.split(1000), y.split(1000)))
        print(f"{seconds:.6f} {right.item() / 100:.2f}", flush=True)


if __name__ == "__main__":
    main()

"""The peer of spec/bench/arrays.lua.

arrays.py write FOLDER   writes the files that both sides read
arrays.py time FOLDER    prints "name<tab>seconds" for each row: CPU time of a call
"""

import sys
import time

import numpy


def total(path):
    """Reads each array of an archive, and sums it."""
    with numpy.load(path) as arrays:
        return sum(float(arrays[name].sum()) for name in arrays)


def every(path):
    """Reads each array of an archive."""
    with numpy.load(path) as arrays:
        return [arrays[name] for name in arrays]


def write(folder):
    random = numpy.random.default_rng(1)
    large = random.random(2 ** 23, "f4")
    many = {f"a{i}": random.random(2 ** 20, "f4") for i in range(8)}
    numpy.save(f"{folder}/large.npy", large)
    numpy.save(f"{folder}/big.npy", large.astype(">f4"))
    numpy.save(f"{folder}/small.npy", large[:1000])
    numpy.savez(f"{folder}/many.npz", **many)
    numpy.savez_compressed(f"{folder}/packed.npz", **many)


def measure(folder):
    random = numpy.random.default_rng(1)
    large = random.random(2 ** 23, "f4")
    many = {f"a{i}": random.random(2 ** 20, "f4") for i in range(8)}
    rows = [
        ("npy 32 MiB, read", 3, lambda: numpy.load(f"{folder}/large.npy")),
        ("npy 32 MiB, mapped, sum", 3,
         lambda: float(numpy.load(f"{folder}/large.npy", mmap_mode="c").sum())),
        ("npy 32 MiB of the other byte order", 3,
         lambda: numpy.load(f"{folder}/big.npy").astype("<f4")),
        ("npy 4 KiB, read", 300, lambda: numpy.load(f"{folder}/small.npy")),
        ("npz 32 MiB, read, sum", 3, lambda: total(f"{folder}/many.npz")),
        ("npz 32 MiB, written by Moth, read, sum", 3, lambda: total(f"{folder}/own.npz")),
        ("npz 32 MiB, compressed, read", 1, lambda: every(f"{folder}/packed.npz")),
        ("npy 32 MiB, write", 3, lambda: numpy.save(f"{folder}/out.npy", large)),
        ("npz 32 MiB, write", 3, lambda: numpy.savez(f"{folder}/out.npz", **many)),
    ]
    for name, count, run in rows:
        run()
        start = time.process_time()
        for _ in range(count):
            run()
        print(f"{name}\t{(time.process_time() - start) / count}")


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    measure(sys.argv[2])

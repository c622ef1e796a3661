"""PyTorch's and mpi4py's side of spec/bench/distributed.lua: prints NAME<tab>MILLISECONDS.

    python distributed.py alone | gloo RANKS | mpi4py (under mpirun)
"""
import os
import statistics
import sys
import time

SIZES = [("all_reduce/4KB", 1024, 400), ("all_reduce/25MB", 6553600, 20)]
TRAINED = [("train/mlp", 512, 30), ("train/resnet18", 64, 5)]


def timed(call, times, barrier=lambda: None, worst=lambda ms: ms):
    """The median time of call in milliseconds, of the slowest rank."""
    found = []
    for k in range(times + 3):
        barrier()
        began = time.perf_counter()
        call()
        if k > 2:
            found.append(time.perf_counter() - began)
    return worst(statistics.median(found) * 1e3)


def training(name, samples, ranks):
    import torch
    from torch import nn
    import torch.nn.functional as F
    import nets
    torch.manual_seed(1)
    image = "resnet" in name
    net = nets.resnet18() if image else nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    if ranks > 1:
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    n = samples // ranks
    x = torch.randn(n, 3, 32, 32) if image else torch.randn(n, 784)
    y = torch.randint(0, 10, (n,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return step


def one_rank(rank, ranks):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    barrier, worst = (lambda: None), (lambda ms: ms)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        barrier = dist.barrier

        def worst(ms):
            x = torch.tensor([ms])
            dist.all_reduce(x, dist.ReduceOp.MAX)
            return x.item()
        for name, size, times in SIZES:
            x = torch.ones(size)
            ms = timed(lambda: dist.all_reduce(x, dist.ReduceOp.MAX), times, barrier, worst)
            if rank == 0:
                print("%s\t%.4f" % (name, ms), flush=True)
    for name, samples, times in TRAINED:
        ms = timed(training(name, samples, ranks), times, barrier, worst)
        if rank == 0:
            print("%s\t%.4f" % (name, ms), flush=True)


def with_mpi4py():
    import numpy
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    for name, size, times in SIZES:
        x = numpy.ones(size, numpy.float32)
        ms = timed(lambda: world.Allreduce(MPI.IN_PLACE, x, MPI.MAX), times, world.Barrier,
                   lambda found: world.allreduce(found, MPI.MAX))
        if world.rank == 0:
            print("%s\t%.4f" % (name, ms), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "mpi4py":
        with_mpi4py()
    elif sys.argv[1] == "gloo":
        import torch.multiprocessing
        torch.multiprocessing.spawn(one_rank, (int(sys.argv[2]),), int(sys.argv[2]))
    else:
        one_rank(0, 1)

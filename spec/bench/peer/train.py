"""Training and inference on PyTorch's side: `train` and `infer` rows and the named steps."""
import os

import torch
import torch.nn.functional as F
from torch import nn

import nets
import ops

# The best setting: fused optimizers.
FUSED = {"fused": True} if os.environ.get("MOTH_BENCH_BEST") else {}


def every_token(scores, ids):
    """Cross entropy over all positions of a batch of texts."""
    return F.cross_entropy(scores.flatten(0, 1), ids.flatten())


def trainer(optimizer, loss, clip=None):
    """One step: loss() runs the forward pass; clip is the largest norm of the gradients."""
    def step():
        optimizer.zero_grad()
        loss().backward()
        if clip:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], clip)
        optimizer.step()
    return step


def adam(net, **options):
    return torch.optim.Adam(net.parameters(), **{**FUSED, **options})


def train(row):
    options = row.options
    net, (x, y) = nets.build(options), ops.inputs(row)
    loss = every_token if options["loss"] == "every_token" else getattr(F, options["loss"])
    chosen = {key: options[key] for key in ("lr", "momentum", "weight_decay") if key in options}
    optimizer = getattr(torch.optim, options["optim"])(net.parameters(), **FUSED, **chosen)
    return trainer(optimizer, lambda: loss(net(x), y), options.get("clip"))


def infer(row):
    net, (x,) = nets.build(row.options).eval(), ops.inputs(row)
    return torch.inference_mode()(lambda: net(x))


def lstmcell_loop(_):
    cell, x = nn.LSTMCell(64, 64), torch.randn(32, 1, 64)

    def step():
        cell.zero_grad()
        h = c = torch.zeros(1, 64, device=x.device)
        for t in range(32):
            h, c = cell(x[t], (h, c))
        h.sum().backward()
    return step


def many_parameters():
    """30 matrices and 30 vectors: 60 tensors, 10,998,000 numbers."""
    return [torch.randn(shape) * 0.01 for _ in range(30) for shape in ((600, 610), (600,))]


def optim_step(row):
    parameters = many_parameters()
    for p in parameters:
        p.requires_grad_()
        p.grad = torch.randn_like(p)
    options = {"momentum": row.options["momentum"]} if "momentum" in row.options else {}
    if "mode" in row.options:
        options[row.options["mode"]] = True
    algorithm = getattr(torch.optim, row.options["optim"])
    return algorithm(parameters, lr=1e-3, **options).step


def vae(_):
    net, x = nets.Vae(), torch.rand(128, 784)

    def loss():
        y, mean, logvar = net(x)
        bce = F.binary_cross_entropy(y, x, reduction="sum")
        return bce - 0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum()
    return trainer(adam(net), loss)


def dcgan(_):
    return dcgan_step(16, 32)


def dcgan_step(n, width, **options):
    """A step of both nets on n images; width is their ngf and ndf; options are Adam's."""
    generator, judge = nets.generator(width), nets.discriminator(width)
    of_generator, of_judge = (adam(net, lr=2e-4, betas=(0.5, 0.999), **options)
                              for net in (generator, judge))
    real, ones, zeros = torch.randn(n, 3, 64, 64), torch.ones(n), torch.zeros(n)

    def step():
        of_judge.zero_grad()
        F.binary_cross_entropy(judge(real), ones).backward()
        fake = generator(torch.randn(n, 100, 1, 1, device=real.device))
        F.binary_cross_entropy(judge(fake.detach()), zeros).backward()
        of_judge.step()
        of_generator.zero_grad()
        F.binary_cross_entropy(judge(fake), ones).backward()
        of_generator.step()
    return step


def dqn(_):
    policy, target = nets.mlp(4, 128, 128, 2), nets.mlp(4, 128, 128, 2)
    state, after, reward = torch.randn(64, 4), torch.randn(64, 4), torch.randn(64)
    action, done = torch.randint(2, (64, 1)), torch.randint(2, (64,)).float()

    def loss():
        with torch.no_grad():
            wanted = reward + 0.99 * (1 - done) * target(after).max(1)[0]
        return F.smooth_l1_loss(policy(state).gather(1, action).squeeze(1), wanted)
    return trainer(adam(policy, lr=1e-3), loss)


def generate(row):
    net, prompt = nets.gpt().eval(), torch.randint(65, (1, 64))

    @torch.inference_mode()
    def step():
        caches = [{}, {}, {}, {}] if row.options.get("cache") else None
        ids, start = prompt, 0
        for _ in range(64):
            new = net(ids, caches, start)[:, -1:].argmax(2)
            if caches:
                ids, start = new, start + ids.shape[1]
            else:
                ids = torch.cat((ids, new), 1)
    return step

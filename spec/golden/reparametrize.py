"""Writes reparametrize.json: a weight with PyTorch's weight_norm, spectral_norm and prune.

    python3 spec/golden/reparametrize.py > spec/golden/reparametrize.json

All in float64, for a Linear(3, 2) and a Conv2d(2, 3, 2) whose parameters are sines. A case has the
weight, the gradients of its original parameters for the loss sum(y^2), and the state dict, all as
flat lists; dimensions count from 1.
"""

import json
import warnings

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
import torch.nn.utils as U

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)


def sines(shape, start=1):
    n = 1
    for size in shape:
        n *= size
    return torch.arange(start, n + start).double().sin().view(shape)


def linear():
    net = nn.Linear(3, 2)
    return with_sines(net), sines((4, 3), 50)


def conv():
    net = nn.Conv2d(2, 3, 2)
    return with_sines(net), sines((1, 2, 3, 3), 50)


def with_sines(net):
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(sines(p.shape))
    return net


def flat(tensors):
    return {name: x.detach().reshape(-1).tolist() for name, x in tensors}


def measured(name, layer, net, x, steps=1):
    for _ in range(steps):
        net.zero_grad()
        (net(x) ** 2).sum().backward()
    return {"name": name, "layer": layer, "steps": steps,
            "grads": flat((k, p.grad) for k, p in net.named_parameters()),
            "state": flat(net.state_dict().items()),
            "weight": net.eval().weight.detach().reshape(-1).tolist()}


def norms():
    for layer, make in (("linear", linear), ("conv", conv)):
        for dim in (0, 1, None):
            text = "moth.none" if dim is None else dim + 1
            net, x = make()
            yield measured(f"U.weight_norm(net, {{dim = {text}}})", layer,
                           U.weight_norm(net, dim=dim), x)
            net, x = make()
            yield measured(f"U.parametrizations.weight_norm(net, {{dim = {text}}})", layer,
                           parametrizations.weight_norm(net, dim=dim), x)


def spectral():
    for layer, make in (("linear", linear), ("conv", conv)):
        net, x = make()
        net = U.spectral_norm(net, n_power_iterations=2)
        net.weight_u.copy_(nn.functional.normalize(sines(net.weight_u.shape, 9), dim=0))
        net.weight_v.copy_(nn.functional.normalize(sines(net.weight_v.shape, 9), dim=0))
        yield measured("U.spectral_norm(net, {n_power_iterations = 2})", layer, net, x, 3)
        net, x = make()
        net = parametrizations.spectral_norm(net, n_power_iterations=2)
        part = net.parametrizations.weight[0]
        part._u.copy_(nn.functional.normalize(sines(part._u.shape, 9), dim=0))
        part._v.copy_(nn.functional.normalize(sines(part._v.shape, 9), dim=0))
        yield measured("U.parametrizations.spectral_norm(net, {n_power_iterations = 2})", layer,
                       net, x, 3)


PRUNED = [
    ("linear", "P.l1_unstructured(net, 'weight', 0.5)",
     lambda net: prune.l1_unstructured(net, "weight", 0.5)),
    ("linear", "P.l1_unstructured(net, 'weight', 2) P.l1_unstructured(net, 'weight', 0.5)",
     lambda net: (prune.l1_unstructured(net, "weight", 2),
                  prune.l1_unstructured(net, "weight", 0.5))),
    ("conv", "P.ln_structured(net, 'weight', 1, 2, 1)",
     lambda net: prune.ln_structured(net, "weight", 1, 2, 0)),
    ("conv", "P.ln_structured(net, 'weight', 0.5, 1)",
     lambda net: prune.ln_structured(net, "weight", 0.5, 1, -1)),
    ("conv", "P.ln_structured(net, 'weight', 1, math.huge, 2) "
     "P.l1_unstructured(net, 'weight', 0.25)",
     lambda net: (prune.ln_structured(net, "weight", 1, float("inf"), 1),
                  prune.l1_unstructured(net, "weight", 0.25))),
    ("linear", "P.global_unstructured({{net, 'weight'}, {net, 'bias'}}, P.l1_unstructured, 3)",
     lambda net: prune.global_unstructured([(net, "weight"), (net, "bias")],
                                           prune.L1Unstructured, amount=3)),
]


def cuts():
    for layer, text, run in PRUNED:
        net, x = linear() if layer == "linear" else conv()
        run(net)
        yield measured(text, layer, net, x)


def main():
    cases = ",\n".join(json.dumps(case) for part in (norms, spectral, cuts) for case in part())
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

"""Writes orthogonal.json: a weight with PyTorch's parametrizations.orthogonal.

    python3 spec/golden/orthogonal.py > spec/golden/orthogonal.json

In float64, for a Linear without bias. A case has the initial weight, its parametrization
(`original`, and `base`, with some random columns), and, after three steps of SGD on the mean of (y
- x.sum())^2, the losses and the weight, all as flat lists.
"""

import json

import torch
from torch import nn
from torch.nn.utils import parametrizations

torch.set_default_dtype(torch.float64)
torch.manual_seed(1)


def sines(shape, start):
    n = shape[0] * shape[1]
    return torch.arange(start, n + start).double().sin().view(shape)


def flat(x):
    return x.detach().reshape(-1).tolist()


def orthonormal(w):
    tall = w.shape[0] >= w.shape[1]
    q = torch.linalg.qr(w if tall else w.T)[0]
    return q if tall else q.T.contiguous()


def case(rows, columns, how, trivial):
    net = nn.Linear(columns, rows, bias=False)
    weight = sines((rows, columns), 1)
    net.weight.data = weight.clone() if trivial or how != "householder" else orthonormal(weight)
    made = {"rows": rows, "columns": columns, "map": how, "trivial": trivial,
            "weight": flat(net.weight)}
    parametrizations.orthogonal(net, orthogonal_map=how, use_trivialization=trivial)
    part = net.parametrizations.weight
    made["original"], made["first"] = flat(part.original), flat(net.weight)
    if trivial:
        made["base"] = flat(part[0].base)
    x = sines((5, columns), 50)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    made["losses"] = []
    for _ in range(3):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        made["losses"].append(loss.item())
    made["last"] = flat(net.weight)
    return json.dumps(made)


def main():
    cases = ",\n".join(case(rows, columns, how, trivial)
                       for rows, columns in ((3, 3), (4, 2), (2, 4))
                       for how in ("matrix_exp", "cayley", "householder")
                       for trivial in (True, False))
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

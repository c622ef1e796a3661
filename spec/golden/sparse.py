"""Writes sparse.json: an embedding table after steps with PyTorch's sparse gradients, 6 steps.

    python3 spec/golden/sparse.py > spec/golden/sparse.json

The table is w[i][j] = (7(i + 3j) mod 11 - 5) / 8, of 6 vectors of 2, in float64. A step looks up
TOKENS[step] (counted from 0), by Embedding with padding_idx 2 or by EmbeddingBag. The loss is the
sum of (j + 1) x^2 over all results x; j is the feature, counted from 0. Recorded are the table
after steps 1, 3 and 6, the coalesced gradient of step 2, its norm, and the state dict after step 3.
Names of the options are the same in Lua and in Python.
"""

import json

import torch

torch.set_default_dtype(torch.float64)

TOKENS = [[[0, 3, 3]], [[3, 5, 0], [3, 3, 1]], [[1]], [[4, 2, 4]], [[0, 1], [3, 4]], [[5, 3, 5]]]
EMBEDDING = {"padding_idx": 2}
CASES = [
    ("SGD", {"lr": 0.0625}, "Embedding", EMBEDDING),
    ("SGD", {"lr": 0.0625, "maximize": True}, "EmbeddingBag", {"mode": "sum"}),
    ("Adagrad", {"lr": 0.125}, "Embedding", EMBEDDING),
    ("Adagrad", {"lr": 0.125, "lr_decay": 0.25, "eps": 0.03125, "maximize": True,
                 "initial_accumulator_value": 0.5}, "EmbeddingBag", {"mode": "mean"}),
    ("SparseAdam", {}, "Embedding", EMBEDDING),
    ("SparseAdam", {"lr": 0.125, "betas": (0.5, 0.75), "eps": 0.0625}, "EmbeddingBag",
     {"mode": "mean"}),
    ("SparseAdam", {"lr": 0.125, "maximize": True}, "EmbeddingBag", {"mode": "sum"}),
]


def plain(value):
    """A tensor as a table, for json."""
    return {"tensor": value.tolist()}


def run(name, options, layer, how):
    w = torch.tensor([[(7 * (i + 3 * j) % 11 - 5) / 8 for j in range(2)] for i in range(6)])
    net = getattr(torch.nn, layer)(6, 2, sparse=True, _weight=w, **how)
    opt = getattr(torch.optim, name)(net.parameters(), **options)
    case = {"optimizer": name, "options": options, "layer": layer, "how": how, "tokens": TOKENS,
            "rows": []}
    for i, tokens in enumerate(TOKENS):
        opt.zero_grad()
        y = net(torch.tensor(tokens))
        (y * y * torch.tensor([1.0, 2.0])).sum().backward()
        if i == 1:
            grad = net.weight.grad.coalesce()
            case["grad"] = [plain(grad.indices()), plain(grad.values())]
            case["norm"] = grad.values().norm().item()
        opt.step()
        if i in (0, 2, 5):
            case["rows"].append(plain(net.weight.detach()))
        if i == 2:
            case["state"] = json.loads(json.dumps(opt.state_dict(), default=plain))
    return case


def main():
    cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

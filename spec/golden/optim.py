"""Makes optim.json: what PyTorch's optimizers do to two parameters in 20 steps, and their
state dict after the first ten.

    python3 spec/golden/optim.py > spec/golden/optim.json

The loss is sum(p^3) / 8, from the third step on + sum(q^2) / 2, in float64; the parameters are
recorded after steps 1, 10 and 20. Names of the options are the same in Lua and in Python.
In the state dict a tensor is {"tensor": its numbers}, and the keys of `state` are strings.
"""

import json

import torch

torch.set_default_dtype(torch.float64)

CASES = [
    ("SGD", {"lr": 0.0625}),
    ("SGD", {"lr": 0.0625, "momentum": 0.5, "dampening": 0.25, "weight_decay": 0.125}),
    ("SGD", {"lr": 0.0625, "momentum": 0.5, "weight_decay": 0.125, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.125, "betas": (0.5, 0.75), "eps": 0.0625, "weight_decay": 0.5}),
    ("Adam", {"lr": 0.125, "amsgrad": True, "betas": (0.5, 0.625)}),
    ("Adam", {"lr": 0.125, "weight_decay": 0.25, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.125}),
    ("AdamW", {"lr": 0.125, "weight_decay": 0.5, "amsgrad": True, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.125, "betas": (0.75, 0.5), "eps": 0.03125, "weight_decay": 0.25,
               "momentum_decay": 0.125}),
    ("NAdam", {"lr": 0.125, "weight_decay": 0.25, "decoupled_weight_decay": True,
               "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.125, "betas": (0.75, 0.875), "eps": 0.03125, "weight_decay": 0.25}),
    ("RAdam", {"lr": 0.125, "weight_decay": 0.25, "decoupled_weight_decay": True,
               "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.125, "betas": (0.75, 0.5), "eps": 0.03125, "weight_decay": 0.25,
                "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.0625, "alpha": 0.75, "eps": 0.03125, "weight_decay": 0.25,
                 "momentum": 0.5}),
    ("RMSprop", {"lr": 0.0625, "centered": True, "momentum": 0.25, "maximize": True}),
    ("RMSprop", {"lr": 0.0625, "centered": True, "eps": 0.125}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.125, "lr_decay": 0.25, "weight_decay": 0.25, "eps": 0.03125,
                 "initial_accumulator_value": 0.5, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.75, "eps": 0.03125, "weight_decay": 0.25,
                  "maximize": True}),
]


def plain(value):
    """A tensor as a table, for json."""
    return {"tensor": value.tolist()}


def run(name, options):
    p = torch.nn.Parameter(torch.tensor([0.5, -1.5, 2.0]))
    q = torch.nn.Parameter(torch.tensor([[0.25, 1.0]]))
    opt = getattr(torch.optim, name)([p, q], **options)
    case = {"optimizer": name, "options": options, "rows": []}
    for i in range(1, 21):
        opt.zero_grad()
        loss = (p ** 3).sum() / 8
        if i > 2:
            loss = loss + (q * q).sum() / 2
        loss.backward()
        opt.step()
        if i in (1, 10, 20):
            case["rows"].append(p.tolist() + q.view(-1).tolist())
        if i == 10:
            case["state"] = json.loads(json.dumps(opt.state_dict(), default=plain))
    return case


def main():
    cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

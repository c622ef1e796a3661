"""Writes optim.json: two parameters after steps of PyTorch's optimizers, and their state dict
halfway.

    python3 spec/golden/optim.py > spec/golden/optim.json

The loss is sum(p^3) / 8, from the third step on + sum(q^2) / 2, in float64; the parameters are
recorded after steps 1, 10 and 20. LBFGS would have converged by then, so it makes 4 steps with the
loss sum((p^2 - 1)^2 + p) + 2 sum(q^2) + q0 p1, recorded after 1, 2 and 4. Muon accepts only
matrices, so its p is a column. Names of the options are the same in Lua and in Python.
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
    ("Rprop", {}),
    ("Rprop", {"lr": 0.125, "etas": (0.25, 1.5), "step_sizes": (0.03125, 0.25),
               "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.125, "lambd": 0.125, "alpha": 0.5, "t0": 4, "weight_decay": 0.25,
              "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.125, "beta2_decay": -0.5, "eps": (0.03125, 0.25), "d": 1.5,
                   "weight_decay": 0.25, "maximize": True}),
    ("Muon", {}),
    ("Muon", {"lr": 0.125, "weight_decay": 0.25, "momentum": 0.5, "nesterov": False,
              "ns_coefficients": (2, -1.5, 0.5), "eps": 0.03125, "ns_steps": 3,
              "adjust_lr_fn": "match_rms_adamw"}),
    ("Muon", {"lr": 0.125, "adjust_lr_fn": "spectral_unclamped"}),
    ("LBFGS", {"max_iter": 3}),
    ("LBFGS", {"lr": 0.125, "max_iter": 4, "max_eval": 4, "tolerance_grad": 0.03125,
               "tolerance_change": 0.0078125, "history_size": 2}),
    ("LBFGS", {"max_iter": 3, "line_search_fn": "strong_wolfe"}),
    ("LBFGS", {"lr": 4, "max_iter": 2, "history_size": 2, "line_search_fn": "strong_wolfe"}),
]


def plain(value):
    """A tensor as a table, for json."""
    return {"tensor": value.tolist()}


def loss_of(name, p, q, i):
    if name == "LBFGS":
        return ((p * p - 1) ** 2 + p).sum() + 2 * (q * q).sum() + q[0, 0] * p[1]
    loss = (p ** 3).sum() / 8
    return loss + (q * q).sum() / 2 if i > 2 else loss


def run(name, options):
    p = torch.tensor([0.5, -1.5, 2.0])
    p = torch.nn.Parameter(p.view(3, 1) if name == "Muon" else p)
    q = torch.nn.Parameter(torch.tensor([[0.25, 1.0]]))
    opt = getattr(torch.optim, name)([p, q], **options)
    marks = (1, 2, 4) if name == "LBFGS" else (1, 10, 20)
    case = {"optimizer": name, "options": options, "marks": marks, "rows": []}
    for i in range(1, marks[2] + 1):
        def closure():
            opt.zero_grad()
            loss = loss_of(name, p, q, i)
            loss.backward()
            return loss
        opt.step(closure)
        if i in marks:
            case["rows"].append(p.view(-1).tolist() + q.view(-1).tolist())
        if i == marks[1]:
            case["state"] = json.loads(json.dumps(opt.state_dict(), default=plain))
    return case


def main():
    cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

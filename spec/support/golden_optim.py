"""Makes golden_optim.lua: what PyTorch's optimizers do to two parameters in 20 steps, and their
state dict after the first ten.

    python3 spec/support/golden_optim.py > spec/support/golden_optim.lua

The loss is sum(p^3) / 8, from the third step on + sum(q^2) / 2, in float64; the parameters are
recorded after steps 1, 10 and 20. Names of the options are the same in Lua and in Python.
"""

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


def wrapped(values, start, end):
    lines, line = [], start
    for i, value in enumerate(values):
        text = repr(value) + ("," if i + 1 < len(values) else end)
        if len(line) + len(text) > 98:
            lines.append(line.rstrip())
            line = "     "
        line += text + " "
    return "\n".join(lines + [line.rstrip()])


def lua(value):
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, torch.Tensor):
        return f"T({lua(value.tolist())})"
    if isinstance(value, (tuple, list)):
        return "{" + ", ".join(lua(v) for v in value) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{k}] = {lua(v)}" if isinstance(k, int) else f"{k} = {lua(v)}"
                               for k, v in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def broken(text, indent):
    """The same over lines of at most 100 columns, broken after commas."""
    lines, line = [], indent
    for part in text.split(", "):
        if len(line) + len(part) > 96:
            lines.append(line.rstrip())
            line = indent + "  "
        line += part + ", "
    return "\n".join(lines + [line.rstrip(", ")])


def main():
    print("-- Made by golden_optim.py with PyTorch", torch.__version__.split("+")[0])
    print("-- optimizer, options, {p, q} after steps 1, 10 and 20, PyTorch's state dict after 10")
    print("return function(T, none) return {")
    for name, options in CASES:
        p = torch.nn.Parameter(torch.tensor([0.5, -1.5, 2.0]))
        q = torch.nn.Parameter(torch.tensor([[0.25, 1.0]]))
        opt = getattr(torch.optim, name)([p, q], **options)
        rows = []
        for i in range(1, 21):
            opt.zero_grad()
            loss = (p ** 3).sum() / 8
            if i > 2:
                loss = loss + (q * q).sum() / 2
            loss.backward()
            opt.step()
            if i in (1, 10, 20):
                rows.append(p.tolist() + q.view(-1).tolist())
            if i == 10:
                state = lua(opt.state_dict())
        print(broken(f'{{"{name}", {lua(options)}', "  ") + ", {")
        for row in rows:
            print(wrapped(row, "    {", "},"))
        print("  },\n" + broken(state, "    ") + "},")
    print("} end")


main()

"""Writes schedules.json: the learning rates that PyTorch's schedules set in 50 steps.

    python3 spec/golden/schedules.py > spec/golden/schedules.json

Each case is a schedule as written in Lua and in Python, for an SGD with momentum and two groups, or
an Adam. Every rate of the first group is recorded, every tenth rate of the second group, and the
momentum of schedules that change it.
"""

import json
import warnings

import torch
from torch.optim import lr_scheduler as S
from torch.optim import swa_utils as A

warnings.simplefilter("ignore")
STEPS = 50


def optimizer(kind):
    p, q = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    groups = [{"params": [p]}, {"params": [q], "lr": 0.75}]
    if kind == "Adam":
        return torch.optim.Adam(groups, lr=0.5)
    return torch.optim.SGD(groups, lr=0.5, momentum=0.9)


def measure(i):
    """A loss that falls, stays, rises and falls again."""
    return [3, 2, 1.5, 1.5, 1.5, 1.5, 1.7, 1.6, 1.5, 1.25][i % 10] - (0.5 if i > 30 else 0)


CASES = [
    ("StepLR", "S.StepLR(o, 7, 0.5)", lambda o: S.StepLR(o, 7, 0.5)),
    ("MultiStepLR", "S.MultiStepLR(o, {milestones = {20, 5, 5, 33}, gamma = 0.3})",
     lambda o: S.MultiStepLR(o, [20, 5, 5, 33], 0.3)),
    ("ConstantLR", "S.ConstantLR(o)", lambda o: S.ConstantLR(o)),
    ("ConstantLR, long", "S.ConstantLR(o, {factor = 0.3, total_iters = 17})",
     lambda o: S.ConstantLR(o, 0.3, 17)),
    ("LinearLR", "S.LinearLR(o)", lambda o: S.LinearLR(o)),
    ("LinearLR down", "S.LinearLR(o, {start_factor = 0.9, end_factor = 0.1, total_iters = 23})",
     lambda o: S.LinearLR(o, 0.9, 0.1, 23)),
    ("ExponentialLR", "S.ExponentialLR(o, 0.93)", lambda o: S.ExponentialLR(o, 0.93)),
    ("PolynomialLR", "S.PolynomialLR(o, {total_iters = 30, power = 1.7})",
     lambda o: S.PolynomialLR(o, 30, 1.7)),
    ("LambdaLR", "S.LambdaLR(o, function(epoch) return 0.95 ^ epoch end)",
     lambda o: S.LambdaLR(o, lambda epoch: 0.95 ** epoch)),
    ("LambdaLR of a list", "S.LambdaLR(o, {function(e) return 1 / (1 + e) end, "
     "function(e) return 0.9 ^ e end})",
     lambda o: S.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 0.9 ** e])),
    ("MultiplicativeLR", "S.MultiplicativeLR(o, function(epoch) return 1 - 0.5 / epoch end)",
     lambda o: S.MultiplicativeLR(o, lambda epoch: 1 - 0.5 / epoch)),
    ("CosineAnnealingLR", "S.CosineAnnealingLR(o, 13)", lambda o: S.CosineAnnealingLR(o, 13)),
    ("CosineAnnealingLR above 0", "S.CosineAnnealingLR(o, {T_max = 50, eta_min = 0.03})",
     lambda o: S.CosineAnnealingLR(o, 50, 0.03)),
    ("CosineAnnealingWarmRestarts", "S.CosineAnnealingWarmRestarts(o, 5)",
     lambda o: S.CosineAnnealingWarmRestarts(o, 5)),
    ("CosineAnnealingWarmRestarts, longer each time",
     "S.CosineAnnealingWarmRestarts(o, {T_0 = 4, T_mult = 2, eta_min = 0.01})",
     lambda o: S.CosineAnnealingWarmRestarts(o, 4, 2, 0.01)),
    ("OneCycleLR", "S.OneCycleLR(o, {max_lr = 1, total_steps = 51})",
     lambda o: S.OneCycleLR(o, 1, total_steps=51)),
    ("OneCycleLR in three phases", "S.OneCycleLR(o, {max_lr = {1, 2}, epochs = 5, "
     "steps_per_epoch = 11, anneal_strategy = 'linear', three_phase = true, pct_start = 0.4, "
     "base_momentum = 0.7, max_momentum = 0.97, div_factor = 10, final_div_factor = 100})",
     lambda o: S.OneCycleLR(o, [1, 2], epochs=5, steps_per_epoch=11, anneal_strategy="linear",
                            three_phase=True, pct_start=0.4, base_momentum=0.7,
                            max_momentum=0.97, div_factor=10, final_div_factor=100)),
    ("OneCycleLR for Adam", "S.OneCycleLR(o, {max_lr = 1, total_steps = 51})",
     lambda o: S.OneCycleLR(o, 1, total_steps=51)),
    ("OneCycleLR with the momentum left alone",
     "S.OneCycleLR(o, {max_lr = 1, total_steps = 51, cycle_momentum = false})",
     lambda o: S.OneCycleLR(o, 1, total_steps=51, cycle_momentum=False)),
    ("CyclicLR", "S.CyclicLR(o, {base_lr = 0.1, max_lr = 1, step_size_up = 6})",
     lambda o: S.CyclicLR(o, 0.1, 1, 6)),
    ("CyclicLR, each half as high", "S.CyclicLR(o, {0.1, 0.2}, {1, 2}, {step_size_up = 6, "
     "step_size_down = 9, mode = 'triangular2', base_momentum = 0.5, max_momentum = 0.75})",
     lambda o: S.CyclicLR(o, [0.1, 0.2], [1, 2], 6, 9, "triangular2", base_momentum=0.5,
                          max_momentum=0.75)),
    ("CyclicLR that decays",
     "S.CyclicLR(o, {0.1, 0.1}, 1, {step_size_up = 6, mode = 'exp_range', gamma = 0.97})",
     lambda o: S.CyclicLR(o, [0.1, 0.1], 1, 6, mode="exp_range", gamma=0.97)),
    ("CyclicLR by a function", "S.CyclicLR(o, {base_lr = 0.1, max_lr = 1, step_size_up = 6, "
     "scale_fn = function(x) return 0.9 ^ x end, cycle_momentum = false})",
     lambda o: S.CyclicLR(o, 0.1, 1, 6, scale_fn=lambda x: 0.9 ** x, cycle_momentum=False)),
    ("ReduceLROnPlateau", "S.ReduceLROnPlateau(o, {patience = 2, factor = 0.5})",
     lambda o: S.ReduceLROnPlateau(o, patience=2, factor=0.5)),
    ("ReduceLROnPlateau with all its options", "S.ReduceLROnPlateau(o, {mode = 'max', "
     "factor = 0.7, patience = 1, threshold = 0.3, threshold_mode = 'abs', cooldown = 3, "
     "min_lr = {0.05, 0.2}, eps = 0.01})",
     lambda o: S.ReduceLROnPlateau(o, "max", 0.7, 1, 0.3, "abs", 3, [0.05, 0.2], 0.01)),
    ("ReduceLROnPlateau up", "S.ReduceLROnPlateau(o, {mode = 'max', patience = 4})",
     lambda o: S.ReduceLROnPlateau(o, "max", patience=4)),
    ("SequentialLR", "S.SequentialLR(o, {S.LinearLR(o, 0.1, {total_iters = 5}), "
     "S.CosineAnnealingLR(o, 30), S.ExponentialLR(o, 0.8)}, {5, 35})",
     lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, total_iters=5), S.CosineAnnealingLR(o, 30),
                                  S.ExponentialLR(o, 0.8)], [5, 35])),
    ("SequentialLR of others", "S.SequentialLR(o, {schedulers = {S.ConstantLR(o), "
     "S.StepLR(o, 4, 0.7), S.MultiStepLR(o, {3, 8}), S.PolynomialLR(o, 9), "
     "S.CosineAnnealingWarmRestarts(o, 3)}, milestones = {3, 13, 25, 36}})",
     lambda o: S.SequentialLR(o, [S.ConstantLR(o), S.StepLR(o, 4, 0.7), S.MultiStepLR(o, [3, 8]),
                                  S.PolynomialLR(o, 9), S.CosineAnnealingWarmRestarts(o, 3)],
                              [3, 13, 25, 36])),
    ("SWALR", "A.SWALR(o, 0.05)", lambda o: A.SWALR(o, 0.05)),
    ("SWALR in a line", "A.SWALR(o, {0.05, 2}, {anneal_epochs = 30, anneal_strategy = 'linear'})",
     lambda o: A.SWALR(o, [0.05, 2], 30, "linear")),
    ("SWALR at once", "A.SWALR(o, {swa_lr = 0.05, anneal_epochs = 0})",
     lambda o: A.SWALR(o, 0.05, 0)),
    ("ChainedScheduler", "S.ChainedScheduler {S.ConstantLR(o, 0.1, 4), S.ExponentialLR(o, 0.9), "
     "S.StepLR(o, 10)}",
     lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 4), S.ExponentialLR(o, 0.9),
                                   S.StepLR(o, 10)])),
]


def momentum(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def run(name, lua, make):
    kind = "Adam" if "Adam" in name else "SGD"
    opt = optimizer(kind)
    schedule = make(opt)
    case = {"name": name, "optimizer": kind, "schedule": lua, "first": [], "second": [],
            "momentum": []}
    for i in range(STEPS + 1):
        case["first"].append(opt.param_groups[0]["lr"])
        if i % 10 == 0:
            case["second"].append(opt.param_groups[1]["lr"])
            case["momentum"].append(momentum(opt.param_groups[0]))
        opt.step()
        if i < STEPS:
            if isinstance(schedule, S.ReduceLROnPlateau):
                schedule.step(measure(i))
            else:
                schedule.step()
    return case


def main():
    cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
    made = {"torch": torch.__version__.split("+")[0]}
    print(f'{{"made": {json.dumps(made)},\n"cases": [\n{cases}]}}')


main()

"""Writes spec/golden/refusals.json: changes to the samples of spec/golden/samples/ for which
PyTorch raises, and the sizes of the first result for the other changes.

    python3 spec/golden/refusals.py        # needs PyTorch and NumPy

Each of the first samples of an op is changed in one argument at a time. A trial is
[argument, change, value, outcome]; the outcome is "raises" or sizes. Changes:

    more, less         a tensor has one dimension more, in front, or one less
    short, empty       dimension `value` (from 1) of a tensor loses one element, or all
    is                 a number is `value`
    longer, shorter    a list of numbers repeats its last one, or loses it
"""

import importlib
import json
import os
import pathlib
import resource
import sys
import warnings

import torch

import kit

HERE = pathlib.Path(__file__).parent
SAMPLES = 2  # of an op
MEMORY = 8 << 30
LARGE = 10**6  # elements: larger trials are left out
CALLS = {}   # op -> [(label, pairs, count)]
OPS = {}


def remember(self, *args, grad=True, layouts=None, tol=None, why=None, fixed=False, dtypes=None,
             **named):
    label, args = self.label(args, named)
    calls = CALLS.setdefault(self.name, [])
    OPS[self.name] = self
    if len(calls) < SAMPLES:
        calls.append((label, self.arguments(label, args, named), len(args)))


def number(v):
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def changes(op, name, v):
    """(change, value as written in Lua, changed argument)"""
    if isinstance(v, torch.Tensor):
        yield "more", None, v.unsqueeze(0)
        if v.dim():
            yield "less", None, v.select(0, 0) if v.shape[0] else v.sum(0)
        for d in range(v.dim()):
            if v.shape[d] > 1:
                yield "short", d + 1, v.narrow(d, 0, v.shape[d] - 1)
            if v.shape[d]:
                yield "empty", d + 1, v.narrow(d, 0, 0)
    elif isinstance(v, int) and number(v):
        for n in (-1000, -1, 0, 1, 1000):
            if n != v:
                yield "is", op.shifted(name, n), n
    elif isinstance(v, float):
        for x in (-1.0, 0.0, 2.0, kit.nan):
            if x != v:
                yield "is", str(x) if x != x else x, x
    elif isinstance(v, (list, tuple)) and v and all(number(e) for e in v):
        v = list(v)
        yield "longer", None, v + v[-1:]
        yield "shorter", None, v[:-1]


def outcome(op, pairs, count):
    try:
        y = op.call(pairs, count)
        for x in kit.tensors_of(y):
            x.sum() if x.dtype != torch.bool else x.any()
    except Exception as problem:  # an exception of any class counts
        return None if "memory" in str(problem) else "raises"
    first = kit.tensors_of(y)
    if first and first[0].numel() > LARGE:
        return None
    return "x".join(map(str, first[0].shape)) if first else "value"


def apart(work):
    """The result of work() in a separate process; None if it crashes, as PyTorch may."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        with os.fdopen(write, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 and text else None


def trials_of(op, pairs, count):
    list_ = []
    for i, (argument, v) in enumerate(pairs):
        for change, value, other in changes(op, argument, v):
            changed = pairs[:i] + [(argument, other)] + pairs[i + 1:]
            list_.append(([argument, change, value], changed))

    def run(part):
        return [head + [outcome(op, changed, count)] for head, changed in part]
    done = apart(lambda: run(list_))
    if done is None:
        done = [apart(lambda: run([one])) for one in list_]
        done = [one[0] for one in done if one]
    return [trial for trial in done if trial[3] is not None]


def main():
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(HERE))
    kit.Op.__call__ = remember
    kit.Op.raises = lambda self, *args, **named: None
    cases = []
    for path in sorted((HERE / "samples").glob("*.py")):
        kit.family(path.stem)
        CALLS.clear()
        importlib.import_module(f"samples.{path.stem}")
        for name, calls in sorted(CALLS.items()):
            op = OPS[name]
            for label, pairs, count in calls:
                if outcome(op, pairs, count) == "raises":
                    continue
                trials = trials_of(op, pairs, count)
                cases.append({"family": path.stem, "op": name, "sample": label, "trials": trials})
    rows = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    made = json.dumps({"torch": torch.__version__.split("+")[0]})
    (HERE / "refusals.json").write_text(f'{{"made": {made},\n"cases": [\n{rows}\n]}}\n')
    print(len(cases), sum(len(c["trials"]) for c in cases))


if __name__ == "__main__":
    main()

"""Writes metrics.json: values of torchmetrics for two batches of several inputs.

    python3 spec/golden/metrics.py > spec/golden/metrics.json      # needs torchmetrics

"data" has the batches by name: a list of two lists of arguments of `update`. Each case has the
class, its arguments, the name of its data, the value of the first batch (a call) and of both
(compute). Targets, labels and ignored labels of multiclass tasks are stored from 1 on. Scores have
two decimals, so that some are equal; class 5 of the multiclass inputs is absent.
"""

import json
import math
import sys
import warnings

import numpy
import torch
import torchmetrics
import torchmetrics.classification as C

warnings.simplefilter("ignore")
rng = numpy.random.default_rng(7)
DATA, CASES = {}, []
IGNORED = -7


def scores(*shape, logits=False):
    x = rng.normal(0, 2, shape) if logits else rng.uniform(0, 1, shape)
    return torch.tensor(numpy.round(x, 2), dtype=torch.float32)


def labels(high, *shape, low=0):
    return torch.tensor(rng.integers(low, high, shape))


def ignoring(target, value, every=5):
    flat = target.clone().flatten()
    flat[::every] = value
    return flat.reshape(target.shape)


def put(name, make):
    DATA[name] = [make(), make()]


# binary
put("b", lambda: [scores(12), labels(2, 12)])
put("b_logits", lambda: [scores(12, logits=True), labels(2, 12)])
put("b_labels", lambda: [labels(2, 12), labels(2, 12)])
put("b_ignore", lambda: [scores(12), ignoring(labels(2, 12), IGNORED)])
put("b_many", lambda: [scores(3, 2, 4), labels(2, 3, 2, 4)])
put("b_ones", lambda: [scores(6), torch.ones(6, dtype=torch.long)])
put("b_zeros", lambda: [scores(6), torch.zeros(6, dtype=torch.long)])
# multiclass, 5 classes, the last of them absent among the targets
put("m", lambda: [scores(14, 5).softmax(1).mul(100).round().div(100), labels(4, 14)])
put("m_logits", lambda: [scores(14, 5, logits=True), labels(4, 14)])
put("m_labels", lambda: [labels(4, 14), labels(4, 14)])
put("m_outside", lambda: [scores(14, 5), ignoring(labels(4, 14), IGNORED)])
put("m_many", lambda: [scores(3, 5, 4), labels(4, 3, 4)])
put("m_distinct", lambda: [torch.tensor(rng.permutation(70).reshape(14, 5) / 70,
                                        dtype=torch.float32), labels(4, 14)])
# multilabel, 3 labels
put("l", lambda: [scores(9, 3), labels(2, 9, 3)])
put("l_ignore", lambda: [scores(9, 3), ignoring(labels(2, 9, 3), IGNORED)])
put("l_many", lambda: [scores(3, 3, 4), labels(2, 3, 3, 4)])


def plain(x):
    if isinstance(x, torch.Tensor):
        return plain(x.tolist())
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, float):
        return str(x) if not math.isfinite(x) else float(f"{x:.8g}")
    return x


def case(name, data, **arguments):
    made = getattr(torchmetrics, name, None) or getattr(C, name)
    first = made(**arguments)(*DATA[data][0])
    metric = made(**arguments)
    for batch in DATA[data]:
        metric.update(*batch)
    if data[0] == "m" and arguments.get("ignore_index", -1) >= 0:
        arguments["ignore_index"] += 1
    if isinstance(arguments.get("thresholds"), torch.Tensor):
        arguments["thresholds"] = plain(arguments["thresholds"])
    CASES.append({"name": name, "data": data, "args": arguments, "first": plain(first),
                  "all": plain(metric.compute())})


AVERAGES = ["micro", "macro", "weighted", "none"]
COUNTED = ["Accuracy", "Precision", "Recall", "Specificity", "F1Score", "FBetaScore", "StatScores"]

for name in COUNTED:
    beta = {"beta": 0.5} if name == "FBetaScore" else {}
    for data in ["b", "b_logits", "b_labels", "b_ones", "b_zeros"]:
        case("Binary" + name, data, **beta)
    case("Binary" + name, "b_ignore", ignore_index=IGNORED, threshold=0.3, **beta)
    case("Binary" + name, "b_many", multidim_average="samplewise", **beta)
    for average in AVERAGES:
        for data in ["m", "m_labels", "m_many"]:
            case("Multiclass" + name, data, num_classes=5, average=average, **beta)
        case("Multiclass" + name, "m", num_classes=5, average=average, ignore_index=1, **beta)
        case("Multiclass" + name, "m_outside", num_classes=5, average=average,
             ignore_index=IGNORED, **beta)
        case("Multiclass" + name, "m_distinct", num_classes=5, average=average, top_k=2, **beta)
        case("Multiclass" + name, "m_many", num_classes=5, average=average,
             multidim_average="samplewise", **beta)
        case("Multilabel" + name, "l", num_labels=3, average=average, **beta)
        case("Multilabel" + name, "l_ignore", num_labels=3, average=average, threshold=0.4,
             ignore_index=IGNORED, **beta)
    case("Multilabel" + name, "l_many", num_labels=3, average="macro",
         multidim_average="samplewise", **beta)
    if name in ("Precision", "Recall", "F1Score", "FBetaScore"):
        case("Binary" + name, "b_zeros", zero_division=1, threshold=1.0, **beta)
        case("Multiclass" + name, "m", num_classes=5, average="none", zero_division=1, **beta)
case("Accuracy", "m", task="multiclass", num_classes=5)
case("Precision", "l", task="multilabel", num_labels=3, average="macro")
case("F1Score", "b", task="binary")
case("FBetaScore", "m", task="multiclass", num_classes=5, beta=2.0)


def stored(name, batch):
    """A batch as it is written: labels of the multiclass task count from 1."""
    if name[0] != "m":
        return [plain(x) for x in batch]
    return [plain(torch.where(x == IGNORED, x, x + 1) if x.dtype == torch.long else x)
            for x in batch]


text = {
    "dtypes": {k: [str(x.dtype)[6:] for x in v[0]] for k, v in DATA.items()},
    "data": {k: [stored(k, batch) for batch in v] for k, v in DATA.items()},
    "cases": CASES,
}
for key in ("dtypes", "data"):
    text[key] = {k: v for k, v in text[key].items()}
out = ['{"dtypes": ' + json.dumps(text["dtypes"]) + ","]
out.append('"data": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}"
                                     for k, v in text["data"].items()) + "\n},")
out.append('"cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES)
           + "\n]}")
sys.stdout.write("\n".join(out) + "\n")

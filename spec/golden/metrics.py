"""Writes metrics.json: values of torchmetrics and scikit-learn for two batches of several inputs.

    python3 spec/golden/metrics.py > spec/golden/metrics.json

It needs torchmetrics, pycocotools and scikit-learn. "data" has the batches by name: a list of two
lists of arguments of `update`. Each case has the class, its arguments, the name of its data, the
value of the first batch (a call), if it is short, and of both (compute). Targets, labels and
ignored labels of multiclass tasks are stored from 1 on. Scores have two decimals, so that some are
equal; class 5 of the multiclass inputs is absent.
"""

import json
import math
import sys
import warnings

import numpy
import sklearn.metrics as S
import torch
import torchmetrics
import torchmetrics.classification as C
import torchmetrics.detection
import torchmetrics.text

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
        return str(x) if not math.isfinite(x) else float(f"{x:.7g}")
    return x


def case(name, data, **arguments):
    made = getattr(torchmetrics, name, None) or getattr(C, name, None)
    made = made or getattr(torchmetrics.detection, name)
    first = made(**arguments)(*DATA[data][0])
    metric = made(**arguments)
    for batch in DATA[data]:
        metric.update(*batch)
    if data[0] == "m" and arguments.get("ignore_index", -1) >= 0:
        arguments["ignore_index"] += 1
    if arguments.get("average", "") is None:
        del arguments["average"]
    CASES.append({"name": name, "data": data, "args": arguments, "first": plain(first),
                  "all": plain(metric.compute())})
    if len(json.dumps(CASES[-1]["first"])) > 600:
        del CASES[-1]["first"]


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

for normalize in ["none", "true", "pred", "all"]:
    case("BinaryConfusionMatrix", "b", normalize=normalize)
    case("MulticlassConfusionMatrix", "m", num_classes=5, normalize=normalize)
    case("MultilabelConfusionMatrix", "l", num_labels=3, normalize=normalize)
case("ConfusionMatrix", "m_labels", task="multiclass", num_classes=5)
case("BinaryJaccardIndex", "b_logits")
case("BinaryJaccardIndex", "b_ignore", ignore_index=IGNORED, threshold=0.4)
case("JaccardIndex", "b_zeros", task="binary", threshold=1.0)
for average in AVERAGES:
    case("MulticlassJaccardIndex", "m", num_classes=5, average=average)
    case("MulticlassJaccardIndex", "m_many", num_classes=5, average=average, ignore_index=1)
    case("MulticlassJaccardIndex", "m_outside", num_classes=5, average=average,
         ignore_index=IGNORED)
    case("MultilabelJaccardIndex", "l", num_labels=3, average=average)
case("ConfusionMatrix", "m_outside", task="multiclass", num_classes=5, ignore_index=IGNORED)

BINS = [{}, {"thresholds": 5}, {"thresholds": [0.75, 0.2, 0.5]}]
for name in ["PrecisionRecallCurve", "ROC", "AUROC", "AveragePrecision"]:
    for bins in BINS:
        for data in ["b", "b_logits", "b_ones", "b_zeros"]:
            if (name, data, bool(bins)) != ("AveragePrecision", "b_zeros", False):
                case("Binary" + name, data, **bins)
        case("Binary" + name, "b_ignore", ignore_index=IGNORED, **bins)
        for average in [None, "macro", "micro"] if name in ("PrecisionRecallCurve", "ROC") else [
                "macro", "weighted", "none"]:
            if average == "micro" and bins:  # torchmetrics raises
                continue
            for data in ["m"] if name in ("PrecisionRecallCurve", "ROC") else [
                    "m", "m_logits", "m_many"]:
                if (average, name) != ("macro", "PrecisionRecallCurve"):
                    case("Multiclass" + name, data, num_classes=5, average=average, **bins)
            case("Multiclass" + name, "m_outside", num_classes=5, average=average,
                 ignore_index=IGNORED, **bins)
        for average in AVERAGES if name in ("AUROC", "AveragePrecision") else [""]:
            more = {"average": average} if average else {}
            case("Multilabel" + name, "l", num_labels=3, **more, **bins)
            case("Multilabel" + name, "l_ignore", num_labels=3, ignore_index=IGNORED, **more,
                 **bins)
case("BinaryAUROC", "b", max_fpr=0.5)
case("BinaryAUROC", "b_many", max_fpr=0.3, thresholds=9)
case("BinaryAUROC", "b_ones", max_fpr=0.3)
case("AUROC", "m", task="multiclass", num_classes=5)
case("ROC", "b", task="binary")

put("r", lambda: [scores(7, logits=True), scores(7, logits=True)])
put("r_two", lambda: [scores(7, 2, logits=True), scores(7, 2, logits=True)])
put("r_close", lambda: (lambda x: [x + scores(9) / 4, x])(scores(9, logits=True)))
for name in ["MeanAbsoluteError", "MeanSquaredError"]:
    case(name, "r")
    case(name, "r_two")
    case(name, "r_two", num_outputs=2)
case("MeanSquaredError", "r", squared=False)
for data in ["r", "r_close"]:
    case("R2Score", data)
    case("R2Score", data, adjusted=2)
for multioutput in ["uniform_average", "raw_values", "variance_weighted"]:
    case("R2Score", "r_two", multioutput=multioutput)
case("MeanMetric", "r")
put("r_one", lambda: [scores(3, 3, logits=True)])
for name in ["SumMetric", "MaxMetric", "MinMetric", "CatMetric"]:
    case(name, "r_one")

put("m_text", lambda: [scores(2, 4, 5, logits=True), labels(5, 2, 4)])
put("m_text_ignore", lambda: [scores(2, 4, 5, logits=True), ignoring(labels(5, 2, 4), IGNORED)])
case("Perplexity", "m_text")
case("Perplexity", "m_text_ignore", ignore_index=IGNORED)

DATA["words"] = [
    [["the cat is on the mat", "a dog runs"],
     [["there is a cat on the mat", "a cat is on the mat"], ["the dog runs fast", "a dog runs"]]],
    [["she reads books in the garden every day", ""],
     [["she reads a book in the garden every day"], ["an empty line"]]],
]
case("BLEUScore", "words")
case("BLEUScore", "words", n_gram=2)
case("BLEUScore", "words", smooth=True)
case("BLEUScore", "words", n_gram=3, weights=[0.5, 0.25, 0.25])


def image(crowded=False, size=100, empty=False):
    n, m = (0, 2) if empty else (int(rng.integers(2, 7)), int(rng.integers(1, 5)))
    corner = rng.uniform(0, size, (m, 2))
    extent = rng.uniform(2, size, (m, 2))
    boxes = torch.tensor(numpy.round(numpy.hstack([corner, corner + extent]), 1),
                         dtype=torch.float32)
    noise = torch.tensor(numpy.round(rng.normal(0, 4, (n, 4)), 1), dtype=torch.float32)
    found = boxes[torch.tensor(rng.integers(0, m, n), dtype=torch.long)] + noise
    wanted = {"boxes": boxes, "labels": labels(3, m)}
    if crowded:
        wanted["iscrowd"] = torch.tensor([1] + [0] * (m - 1))
        wanted["area"] = torch.tensor([0.0] * (m - 1) + [500.0])
    return {"boxes": found, "scores": scores(n).mul(10).round().div(10),
            "labels": labels(3, n)}, wanted


def images(n, **options):
    rows = [image(**options) for _ in range(n)] + [image(empty=True)]
    return [[row[0] for row in rows], [row[1] for row in rows]]


DATA["d"] = [images(3), images(2, size=30)]
DATA["d_crowd"] = [images(2, crowded=True), images(2, crowded=True, size=200)]
for options in [{}, {"class_metrics": True}, {"average": "micro"},
                {"iou_thresholds": [0.3, 0.5], "max_detection_thresholds": [1, 2, 100]},
                {"rec_thresholds": [0.0, 0.5, 1.0]}]:
    case("MeanAveragePrecision", "d", **options)
case("MeanAveragePrecision", "d_crowd", class_metrics=True)
case("MeanAveragePrecision", "d_crowd", box_format="cxcywh")
case("MeanAveragePrecision", "d_crowd", box_format="xywh")
masks = [({"masks": labels(2, 2, 4, 5).bool(), "scores": scores(2), "labels": labels(2, 2)},
          {"masks": labels(2, 3, 4, 5).bool(), "labels": labels(2, 3)}) for _ in range(4)]
DATA["d_masks"] = [[[masks[i][0], masks[i + 1][0]], [masks[i][1], masks[i + 1][1]]]
                   for i in (0, 2)]
case("MeanAveragePrecision", "d_masks", iou_type="segm")


def sklearn_case(name, data, function, labels=False, **arguments):
    """scikit-learn's value of both batches."""
    preds, target = (torch.cat([b[i] for b in DATA[data]]).numpy() for i in (0, 1))
    if labels:
        preds = preds.argmax(1) if preds.ndim > target.ndim else preds > 0.5
    CASES.append({"name": name, "data": data, "args": arguments,
                  "all": plain(torch.as_tensor(function(target, preds)))})


for average in ["micro", "macro", "weighted"]:
    for name, function in [("Precision", S.precision_score), ("Recall", S.recall_score),
                           ("F1Score", S.f1_score), ("JaccardIndex", S.jaccard_score)]:
        sklearn_case("Multiclass" + name, "m", lambda y, p, f=function, a=average: f(
            y, p, average=a), True, num_classes=5, average=average)
    for name, function in [("AUROC", S.roc_auc_score),
                           ("AveragePrecision", S.average_precision_score)]:
        sklearn_case("Multilabel" + name, "l", lambda y, p, f=function, a=average: f(
            y, p, average=a), num_labels=3, average=average)
sklearn_case("MulticlassAccuracy", "m", S.accuracy_score, True, num_classes=5, average="micro")
sklearn_case("MulticlassConfusionMatrix", "m", lambda y, p: S.confusion_matrix(
    y, p, labels=range(5)), True, num_classes=5)
sklearn_case("BinaryAccuracy", "b", S.accuracy_score, True)
sklearn_case("BinaryFBetaScore", "b", lambda y, p: S.fbeta_score(y, p, beta=2), True, beta=2.0)
sklearn_case("BinaryAUROC", "b", S.roc_auc_score)
sklearn_case("BinaryAUROC", "b", lambda y, p: S.roc_auc_score(y, p, max_fpr=0.4), max_fpr=0.4)
sklearn_case("BinaryAveragePrecision", "b", S.average_precision_score)
sklearn_case("MeanAbsoluteError", "r", S.mean_absolute_error)
sklearn_case("MeanSquaredError", "r", S.mean_squared_error)
sklearn_case("R2Score", "r_close", S.r2_score)


def stored(name, batch):
    """A batch as it is written: labels of the multiclass task count from 1."""
    if name[0] != "m":
        return [plain(x) for x in batch]
    return [plain(torch.where(x == IGNORED, x, x + 1) if x.dtype == torch.long else x)
            for x in batch]


def dtypes(value):
    """The dtypes of tensors, in the same lists and tables; false for other values."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype)[6:]
    if isinstance(value, dict):
        return {k: dtypes(v) for k, v in value.items()}
    return [dtypes(v) for v in value] if isinstance(value, list) else False


text = {
    "dtypes": {k: [dtypes(batch) for batch in v] if k[0] == "d" else dtypes(v[0])
               for k, v in DATA.items()},
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

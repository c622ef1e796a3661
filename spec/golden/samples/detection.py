"""Boxes: torchvision's functions, written here from their definitions."""

import math

import torch
import torch.nn.functional as F

from kit import I, P, R, T, U, exempt, op


def boxes(*shape):
    """Boxes as corners, with a width and a height above 0."""
    return P(*shape, 4).then(lambda x: torch.cat([x[..., :2], x[..., :2] + x[..., 2:] / 4], -1))


def overlap(a, b):
    a, b = a.unbind(-1), b.unbind(-1)
    w = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    h = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return (w * h, union, torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0]),
            torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1]))


def iou(a, b):
    inter, union, _, _ = overlap(a[:, None], b[None])
    return inter / union


def giou(a, b):
    inter, union, w, h = overlap(a[:, None], b[None])
    return inter / union - (w * h - union) / (w * h)


def diou(a, b, eps=1e-7):
    a, b = a[:, None], b[None]
    inter, union, w, h = overlap(a, b)
    return inter / union - centres(a, b, w, h, eps)


def ciou(a, b, eps=1e-7):
    p, q = (a[:, 2:] - a[:, :2])[:, None], (b[:, 2:] - b[:, :2])[None]
    v = 4 / math.pi ** 2 * (torch.atan(p[..., 0] / p[..., 1])
                            - torch.atan(q[..., 0] / q[..., 1])) ** 2
    with torch.no_grad():
        alpha = v / (1 - iou(a, b) + v + eps)
    return diou(a, b, eps) - alpha * v


def around(masks):
    if masks.numel() == 0:
        return torch.zeros(0, 4)
    rows = []
    for mask in masks:
        y, x = torch.where(mask != 0)
        rows.append([x.min(), y.min(), x.max(), y.max()] if len(y) else [0, 0, 0, 0])
    return torch.tensor(rows, dtype=torch.float32)


def reduce(loss, how):
    return loss if how == "none" else getattr(loss, how)()


def giou_loss(a, b, reduction="none", eps=1e-7):
    inter, union, w, h = overlap(a, b)
    return reduce(1 - inter / (union + eps) + (w * h - union) / (w * h + eps), reduction)


def centres(a, b, w, h, eps):
    return (((a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2) ** 2).sum(-1) / (
        w ** 2 + h ** 2 + eps)


def diou_loss(a, b, reduction="none", eps=1e-7):
    inter, union, w, h = overlap(a, b)
    return reduce(1 - inter / (union + eps) + centres(a, b, w, h, eps), reduction)


def ciou_loss(a, b, reduction="none", eps=1e-7):
    inter, union, w, h = overlap(a, b)
    share = inter / (union + eps)
    p, q = a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    v = 4 / math.pi ** 2 * (torch.atan(q[..., 0] / q[..., 1])
                            - torch.atan(p[..., 0] / p[..., 1])) ** 2
    with torch.no_grad():
        alpha = v / (1 - share + v + eps)
    return reduce(1 - share + centres(a, b, w, h, eps) + alpha * v, reduction)


def focal(x, t, alpha=0.25, gamma=2.0, reduction="none"):
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    loss = loss * (1 - (p * t + (1 - p) * (1 - t))) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * t + (1 - alpha) * (1 - t))
    return reduce(loss, reduction)


def convert(x, in_fmt, out_fmt):
    a, b, c, d = x.unbind(-1)
    if in_fmt == "xywh":
        c, d = a + c, b + d
    if in_fmt == "cxcywh":
        a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
    if out_fmt == "xywh":
        c, d = c - a, d - b
    if out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return torch.stack((a, b, c, d), -1)


def clip(x, size):
    return torch.stack((x[..., 0].clamp(0, size[1]), x[..., 1].clamp(0, size[0]),
                        x[..., 2].clamp(0, size[1]), x[..., 3].clamp(0, size[0])), -1)


def large(x, min_size):
    w, h = x[:, 2] - x[:, 0], x[:, 3] - x[:, 1]
    return torch.where((w >= min_size) & (h >= min_size))[0]


def batched_nms(x, scores, idxs, iou_threshold):
    order, keep = torch.sort(scores, descending=True, stable=True)[1].tolist(), []
    shares = iou(x, x) if len(x) else x
    for i in order:
        if all(idxs[i] != idxs[j] or not shares[j, i] > iou_threshold for j in keep):
            keep.append(i)
    return torch.tensor(keep, dtype=torch.int64)


def nms(x, scores, iou_threshold):
    return batched_nms(x, scores, [0] * len(x), iou_threshold)


WIDE = {"dtypes": ["float64", "float32"], "why": "halves are widened: results are f32"}
f = op("ops.box_area", "boxes", lambda x: (x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]),
       "composed")
for shape in ((5,), (1,), (17,), (0,)):
    f(boxes(*shape), **WIDE)
f("empty boxes", T([[1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]), **WIDE)
f("turned", T([[2.0, 2.0, 1.0, 4.0]]), **WIDE)

f = op("ops.box_convert", "boxes in_fmt out_fmt", convert, "composed")
FORMATS = ("xyxy", "xywh", "cxcywh")
for before in FORMATS:
    for after in FORMATS:
        f(f"{before} to {after}", boxes(3), before, after)
f("of several images", boxes(2, 3), "xywh", "xyxy")
f("none", boxes(0), "xywh", "xyxy")

f = op("ops.clip_boxes_to_image", "boxes size", clip, "composed")
f(R(4, 4), [3, 2])
f(R(1, 4), [1, 7])
f("of several images", R(2, 3, 4), [5, 4])
f("inside", boxes(3), [20, 30])
f("no image", R(3, 4), [0, 0])
f("none", boxes(0), [3, 2])

f = op("ops.remove_small_boxes", "boxes min_size", large, returns=(0,))
for least in (0.0, 0.5, 0.75, 1.5, 9.0):
    f(boxes(9), least)
f("none", boxes(0), 0.75)

for name, fn in (("box_iou", iou), ("generalized_box_iou", giou)):
    f = op("ops." + name, "boxes1 boxes2", fn, "composed")
    f(boxes(5), boxes(4), **WIDE)
    f("one", boxes(1), boxes(1), **WIDE)
    f("seventeen", boxes(17), boxes(2), **WIDE)
    f("around each other", T([[0.0, 0.0, 4.0, 4.0]]), T([[1.0, 1.5, 2.0, 2.0]]), **WIDE)
    f("none", boxes(0), boxes(3), **WIDE)
    f("of none", boxes(2), boxes(0), **WIDE)

for name, fn in (("distance_box_iou", diou), ("complete_box_iou", ciou)):
    f = op("ops." + name, "boxes1 boxes2 eps", fn, "composed")
    f(boxes(5), boxes(4), **WIDE)
    f("one", boxes(1), boxes(1), 1e-3, **WIDE)
    f("seventeen", boxes(17), boxes(2), **WIDE)
    f("around each other", T([[0.0, 0.0, 4.0, 4.5]]), T([[1.0, 1.5, 2.0, 2.0]]), **WIDE)
    f("none", boxes(0), boxes(3), **WIDE)
    f("of none", boxes(2), boxes(0), **WIDE)

f = op("ops.masks_to_boxes", "masks", around, "composed")
MASK = {"grad": False, "dtypes": ["float64"], "why": "masks have no gradient"}
f(I(3, 5, 6, low=0, high=2), **MASK)
f("one element", I(2, 4, 7, low=0, high=1).then(lambda x: x.index_put(
    (torch.tensor([0]), torch.tensor([3]), torch.tensor([5])), torch.tensor(2))), **MASK)
f("booleans", I(4, 2, 3, low=0, high=2).then(lambda x: x.bool()), **MASK)
f("floats", T([[[0.0, -0.5, 0.0], [0.0, 0.0, 3.0]]]), **MASK)
f("empty masks", I(2, 3, 3, low=0, high=1), **MASK)
f("none", I(0, 3, 4, low=0, high=2), **MASK)

for name, fn in (("generalized_box_iou_loss", giou_loss), ("distance_box_iou_loss", diou_loss),
                 ("complete_box_iou_loss", ciou_loss)):
    f = op("ops." + name, "boxes1 boxes2 reduction eps", fn, "composed")
    f(boxes(5), boxes(5), **WIDE)
    f("mean", boxes(6), boxes(6), "mean", **WIDE)
    f("sum", boxes(3), boxes(3), reduction="sum", eps=0.125, **WIDE)
    f("one", boxes(1), boxes(1), **WIDE)
    f("around each other", T([[0.0, 0.0, 4.0, 4.5]]), T([[1.0, 1.5, 2.0, 2.0]]), **WIDE)
    f("none", boxes(0), boxes(0), **WIDE)

exempt("ops.complete_box_iou_loss", "its weight of the ratios is a constant to gradients, as the "
       "paper has it, so finite differences differ: the samples above hold it to PyTorch")

exempt("ops.complete_box_iou", "its weight of the ratios is a constant to gradients, as the paper "
       "has it, so finite differences differ: the samples above hold it to PyTorch")
for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
    exempt("ops." + name, "spec/ops/regions_spec.lua holds it to torchvision and checks its gradients")
for name in ("stochastic_depth", "drop_block2d", "drop_block3d"):
    exempt("ops." + name, "random: spec/ops/regions_spec.lua checks it")

f = op("ops.sigmoid_focal_loss", "inputs targets alpha gamma reduction", focal, "composed",
       constants=("targets",))
f(R(2, 3), U(2, 3))
f("no weight", R(4), T([0.0, 1.0, 1.0, 0.0]), -1.0, 1.0)
f("mean", R(2, 3), U(2, 3), alpha=0.75, gamma=3.0, reduction="mean")
f("sum", R(2, 3), U(2, 3), reduction="sum")
f("no gamma", R(5), U(5), gamma=0.0)
f("none", R(0, 3), U(0, 3))

f = op("ops.nms", "boxes scores iou_threshold", nms, returns=(0,))
FLAT = {"dtypes": ["float64", "float32"], "why": "halves round shares over the threshold"}
f(boxes(20), R(20), 0.25, **FLAT)
f("many", boxes(70), R(70), 0.125, **FLAT)
f("the same box", T([[0.0, 0.0, 1.0, 1.0]]).expand(4, 4), R(4), 0.5)
f("scores alike", boxes(7), T([1.0] * 7), 0.25, **FLAT)
f("the threshold itself", T([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.0]]), U(2), 0.5)
f("empty boxes", T([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]), U(2), 0.5)
f("none", boxes(0), R(0), 0.5)

f = op("ops.batched_nms", "boxes scores idxs iou_threshold", batched_nms, returns=(0,))
f(boxes(40), R(40), I(40, low=0, high=3), 0.125, **FLAT)
f("one class", boxes(30), R(30), I(30, low=4, high=5), 0.125, **FLAT)
f("all different", boxes(8), R(8), I(8), 0.0, **FLAT)
f("far classes", boxes(9), R(9), I(9, low=0, high=2).then(lambda x: x * 2 ** 40), 0.0, **FLAT)
f("one box", boxes(1), R(1), I(1), 0.5)
f("none", boxes(0), R(0), I(0, low=0, high=2), 0.5)

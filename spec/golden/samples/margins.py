"""Losses with margins, of several classes and of triplets."""

import torch
import torch.nn.functional as F

from kit import N, P, R, T, op

HOW = ("mean", "sum", "none")
I64 = torch.int64

f = op("multi_margin_loss", "input target p margin weight", F.multi_margin_loss, "composed",
       positions=("target",), constants=("weight",))
for how in HOW:
    f(R(3, 5), N(5, 3), reduction=how)
    f("squares, " + how, R(3, 5), N(5, 3), 2, 0.5, reduction=how)
    f("weights, " + how, R(3, 5), N(5, 3), weight=P(5), reduction=how)
f("one sample", R(5), T(3, I64))
f("one sample, kept", R(5), T(3, I64), reduction="none")
f("squares and weights", R(3, 5), N(5, 3), 2, 2.0, P(5))
f.raises("E_INDEX", "an unknown class", R(2, 3), T([0, 3], I64))
f.raises("E_SHAPE", "a target too many", R(2, 3), T([0, 1, 2], I64))

f = op("multilabel_margin_loss", "input target", F.multilabel_margin_loss, "composed",
       positions=("target",))
LABELS = T([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]], I64)
for how in HOW:
    f(R(3, 5), LABELS.clone(), reduction=how)
f("one sample", R(5), LABELS[0].clone())
f("one sample, kept", R(5), LABELS[0].clone(), reduction="none")
f("twice the same", R(1, 3), T([[1, 1, -1]], I64))
f.raises("E_SHAPE", "fewer targets", R(2, 3), T([[0, 1], [0, 1]], I64))

f = op("multilabel_soft_margin_loss", "input target weight", F.multilabel_soft_margin_loss,
       "composed", constants=("target", "weight"))
RIGHT = T([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
for how in HOW:
    f(R(2, 3), RIGHT.clone(), reduction=how)
    f("weights, " + how, R(2, 3), RIGHT.clone(), P(3), reduction=how)
f("one sample", R(3), RIGHT[0].clone())

f = op("triplet_margin_with_distance_loss", "anchor positive negative",
       F.triplet_margin_with_distance_loss, "composed")
for how in HOW:
    f(R(3, 5), R(3, 5), R(3, 5), reduction=how)
    f("swapped, " + how, R(3, 5), R(3, 5), R(3, 5), margin=4.0, swap=True, reduction=how)

"""Losses: of classes, of numbers, of probabilities."""

import torch
import torch.nn.functional as F

from kit import B, I, N, P, R, S, T, U, V, inf, nan, op


HOW = ("mean", "sum", "none")
I64 = torch.int64


def signs(*shape):
    return B(*shape).then(lambda x: x.double() * 2 - 1)


for name in ("nll_loss", "cross_entropy"):
    f = op(name, "input target weight", getattr(F, name), "soft",
           positions=("target", "ignore_index"), constants=("weight",))
    for how in HOW:
        f(R(3, 5), N(5, 3), reduction=how)
        f(f"weights, {how}", R(3, 5), N(5, 3), P(5), reduction=how)
        f(f"ignored targets, {how}", R(3, 5), T([1, -100, 4], I64), reduction=how)
        f(f"images, {how}", R(2, 3, 2, 2), N(3, 2, 2, 2), reduction=how)
    f("another ignored class", R(3, 5), T([1, 2, 4], I64), ignore_index=2)
    f("weights and ignored targets", R(3, 5), T([1, -100, 4], I64), P(5))
    f("one sample", R(5), T(3, I64))
    f("one class", R(3, 1), T([0, 0, 0], I64))
    f("seventeen", R(2, 17), N(17, 2))
    f("sequences", R(2, 3, 5), N(3, 2, 5))
    f("stride 0", R(1, 5).then(lambda x: x.expand(3, 5)), N(5, 3))
    f("no samples", R(0, 3), N(3, 0), reduction="sum")
    f("the mean of none", R(0, 3), N(3, 0), grad=False)
    f("all ignored", R(2, 3), T([-100, -100], I64), reduction="sum")
    f.raises("E_INDEX", "an unknown class", R(2, 3), T([0, 3], I64))
    f.raises("E_SHAPE", "a target too few", R(2, 3), T([0], I64))
for how in HOW:
    f(f"smoothed, {how}", R(3, 5), N(5, 3), reduction=how, label_smoothing=0.25)
    f(f"smoothed with weights, {how}", R(3, 5), T([1, -100, 4], I64), P(5), reduction=how,
      label_smoothing=0.25)
f("large values", T([[1024.0, 0.0], [-1024.0, 0.0]]), T([0, 1], I64))

for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
    f = op(name, "input target", getattr(F, name), "soft",
           constants=("target",) if name == "soft_margin_loss" else ())
    other = R if name != "soft_margin_loss" else signs
    for how in HOW:
        f(R(2, 3), other(2, 3), reduction=how)
    f("0-d", R(), other())
    f("one element", R(1), other(1))
    f("seventeen", R(2, 17), other(2, 17))
    f("no elements", R(0, 3), other(0, 3), reduction="sum")
    f("stride 0", R(1, 3).then(lambda x: x.expand(2, 3)), other(2, 3))
    f("special values", T([nan, inf, 1.0]), T([1.0, 1.0, -1.0]), reduction="none", grad=False)
f = op("smooth_l1_loss", "input target", F.smooth_l1_loss, "soft")
f(R(2, 5), R(2, 5), beta=2.5)
f("beta 0", R(5), R(5), beta=0.0)
f("inside", V(5), V(5), beta=2.0, reduction="none")
f = op("huber_loss", "input target", F.huber_loss, "soft")
f(R(2, 5), R(2, 5), delta=2.5)
f("inside", V(5), V(5), delta=2.0, reduction="none")

f = op("binary_cross_entropy", "input target weight", F.binary_cross_entropy, "soft",
       constants=("weight",))
for how in HOW:
    f(U(2, 3), U(2, 3), reduction=how)
f("weights", U(2, 3), U(2, 3), P(2, 3), reduction="sum")
f("broadcast weights", U(2, 3), U(2, 3), P(3))
f("0-d", U(), U())
f("one element", U(1), U(1))
f("seventeen", U(17), U(17))
f("no elements", U(0), U(0), reduction="sum")
f("certain and right", T([0.0, 1.0]), T([0.0, 1.0]), reduction="none", grad=False)
f("certain and wrong", T([0.0, 1.0]), T([1.0, 0.0]), reduction="none", grad=False)

f = op("binary_cross_entropy_with_logits", "input target weight",
       F.binary_cross_entropy_with_logits, "soft", constants=("weight", "pos_weight"))
for how in HOW:
    f(R(2, 3), U(2, 3), reduction=how)
f("weights", R(2, 3), U(2, 3), P(2, 3), reduction="sum")
f("broadcast weights", R(2, 3), U(2, 3), P(3))
f("weights of the positive", R(2, 3), U(2, 3), pos_weight=P(3))
f("both weights", R(2, 3), U(2, 3), P(3), pos_weight=P(3), reduction="none")
f("0-d", R(), U())
f("one element", R(1), U(1))
f("seventeen", R(17), U(17))
f("no elements", R(0), U(0), reduction="sum")
f("large values", T([1024.0, -1024.0]), T([0.0, 1.0]), reduction="none")
f("NaN", T([nan, 1.0]), T([1.0, 0.5]), reduction="none", grad=False)

f = op("kl_div", "input target", F.kl_div, "soft")
for how in (*HOW, "batchmean"):
    f(R(2, 3), U(2, 3), reduction=how)
    f(f"logarithms, {how}", R(2, 3), S(2, 3), reduction=how, log_target=True)
f("0-d", R(), U())
f("one element", R(1), U(1))
f("no elements", R(0), U(0), reduction="sum")
f("a target of 0", R(3), T([0.0, 0.5, 1.0]), reduction="none", grad=False)

f = op("hinge_embedding_loss", "input target", F.hinge_embedding_loss, "composed")
g = op("margin_ranking_loss", "input1 input2 target", F.margin_ranking_loss, "composed")
c = op("cosine_embedding_loss", "input1 input2 target", F.cosine_embedding_loss, "composed")
SIGNS = T([1.0, -1.0, 1.0])
for how in HOW:
    f(R(3), SIGNS.clone(), reduction=how)
    g(R(3), R(3), SIGNS.clone(), reduction=how, margin=0.5)
    c(R(3, 5), R(3, 5), SIGNS.clone(), reduction=how, margin=0.25)
    f("margin " + how, R(3), SIGNS.clone(), margin=2.5, reduction=how)
    g("no margin " + how, R(3), R(3), SIGNS.clone(), reduction=how)
    c("no margin " + how, R(3, 5), R(3, 5), SIGNS.clone(), reduction=how)

t = op("triplet_margin_loss", "anchor positive negative", F.triplet_margin_loss, "composed")
for how in HOW:
    t(R(3, 5), R(3, 5), R(3, 5), reduction=how)
    t("margin " + how, R(3, 5), R(3, 5), R(3, 5), margin=4.0, p=2.0, reduction=how)
p = op("poisson_nll_loss", "input target", F.poisson_nll_loss, "composed")
for how in HOW:
    p(S(2, 3), P(2, 3), reduction=how)
    p("no logarithm " + how, P(2, 3), P(2, 3), log_input=False, reduction=how)
p("full", S(5), P(5), full=True)
n = op("gaussian_nll_loss", "input target var", F.gaussian_nll_loss, "composed")
for how in HOW:
    n(R(2, 3), R(2, 3), P(2, 3), reduction=how)
n("full", R(5), R(5), P(5), full=True)
n("one variance a row", R(2, 3), R(2, 3), P(2, 1))
n("seventeen", R(17), R(17), P(17))

f = op("pairwise_distance", "x1 x2 p", F.pairwise_distance, "soft")
f(R(3, 5), R(3, 5))
f("1", R(3, 5), R(3, 5), 1.0)
f("another eps", R(3, 5), R(3, 5), eps=0.5, keepdim=True)
f("vectors", R(5), R(5))
f("one of one", R(1, 1), R(1, 1))
f("no rows", R(0, 3), R(0, 3), grad=False)

f = op("bilinear", "input1 input2 weight bias", F.bilinear, "composed")
f(V(3, 2), V(3, 5), V(2, 2, 5))
f("bias", V(3, 2), V(3, 5), V(2, 2, 5), R(2))
f("more dimensions", V(2, 3, 2), V(2, 3, 5), V(1, 2, 5), R(1))
f("one row", V(2), V(3), V(5, 2, 3), R(5))
f("no rows", V(0, 2), V(0, 3), V(5, 2, 3), grad=False)
f.raises("E_SHAPE", V(3, 2), V(3, 5), V(2, 3, 5))

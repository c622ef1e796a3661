"""Normalization and attention."""

import torch
import torch.nn.functional as F

from kit import B, I, N, P, R, S, T, U, V, inf, nan, op

f = op("layer_norm", "input normalized_shape weight bias", F.layer_norm, "soft")
f(R(2, 3), [3])
f("weight and bias", R(2, 5), [5], R(5), R(5))
f("two dims", R(2, 3, 5), [3, 5], R(3, 5), R(3, 5))
f("weight alone", R(2, 5), [5], R(5))
f("another eps", R(2, 5), [5], eps=0.5)
f("one element", R(3, 1), [1])
f("no rows", R(0, 3), [3], R(3), R(3))
f("one row", R(17), [17], R(17), R(17))
f("equal elements", T([[2.0, 2.0, 2.0]]), [3], grad=False)
f("stride 0", R(1, 5).then(lambda x: x.expand(3, 5)), [5])
f("special values", T([[nan, 1.0], [inf, 1.0]]), [2], grad=False)
f.raises("E_SHAPE", R(2, 3), [2])

f = op("rms_norm", "input normalized_shape weight", F.rms_norm, "soft")
f(R(2, 3), [3], eps=0.25)
f("weight", R(2, 5), [5], R(5), eps=1e-5)
f("two dims", R(2, 3, 5), [3, 5], R(3, 5), eps=1e-5)
f("one element", R(3, 1), [1], eps=1e-5)
f("no rows", R(0, 3), [3], R(3), eps=1e-5)
f("one row", R(17), [17], R(17), eps=1e-5)
f("eps of the dtype", R(2, 5), [5])
f("stride 0", R(1, 5).then(lambda x: x.expand(3, 5)), [5], eps=1e-5)
f.raises("E_SHAPE", R(2, 3), [2])

f = op("group_norm", "input num_groups weight bias", F.group_norm, "soft")
f(R(2, 4), 2)
f("images", R(2, 4, 2, 3), 2, R(4), R(4))
f("one group", R(2, 3, 5), 1, R(3), R(3))
f("a group of each channel", R(2, 3, 5), 3, R(3), R(3))
f("weight alone", R(2, 4, 3), 2, R(4))
f("another eps", R(2, 4, 3), 2, eps=0.5)
f("no images", R(0, 4, 3), 2, R(4), R(4))
f("stride 0", R(1, 4, 3).then(lambda x: x.expand(2, 4, 3)), 2)
f.raises("E_ARG", "groups that do not fit", R(2, 3, 5), 2)


def batch_norm(x, running_mean=None, running_var=None, weight=None, bias=None, training=False,
               momentum=0.1, eps=1e-5):
    keep = [None if r is None else r.detach().clone() for r in (running_mean, running_var)]
    return F.batch_norm(x, *keep, weight, bias, training, momentum, eps)


f = op("batch_norm", "input running_mean running_var weight bias training momentum eps",
       batch_norm, "soft", constants=("running_mean", "running_var"))
f("training", R(5, 3), training=True)
f("weight and bias", R(5, 3), weight=R(3), bias=R(3), training=True)
f("images", R(2, 3, 2, 2), weight=R(3), bias=R(3), training=True)
f("sequences", R(3, 2, 5), weight=R(2), bias=R(2), training=True)
f("volumes", R(2, 2, 2, 1, 3), training=True)
f("another eps", R(5, 3), training=True, eps=0.5)
f("seventeen", R(17, 2), weight=R(2), training=True)
f("stride 0", R(1, 3).then(lambda x: x.expand(5, 3)), weight=R(3), bias=R(3), training=True,
  grad=False)
f.raises("E_SHAPE", "one value a channel", R(1, 3), training=True)
f("evaluating", R(5, 3), R(3), P(3))
f("evaluating with weight and bias", R(2, 3, 2, 2), R(3), P(3), R(3), R(3))
f("evaluating with another eps", R(5, 3), R(3), P(3), eps=0.5)
f("evaluating one row", R(1, 3), R(3), P(3), R(3), R(3))
f("evaluating no rows", R(0, 3), R(3), P(3), R(3), R(3))

f = op("instance_norm", "input", F.instance_norm, "soft")
f(R(2, 3, 5))
f("images", R(2, 3, 2, 3), weight=R(3), bias=R(3))
f("another eps", R(2, 3, 5), eps=0.5)
f("one image", R(1, 2, 5), weight=R(2), bias=R(2))
f("seventeen", R(1, 2, 17))
f("stride 0", R(1, 2, 5).then(lambda x: x.expand(3, 2, 5)))

f = op("normalize", "input p dim eps", F.normalize, "composed")
f(R(2, 3))
f(R(2, 3), 1.0, 0)
f("negative dim", R(2, 3, 5), 2.0, -2)
f("a zero row", T([[0.0, 0.0], [3.0, 4.0]]), grad=False)
f("a large eps", R(2, 3), 2.0, 1, 16.0)
f("no rows", R(0, 3))
f = op("cosine_similarity", "x1 x2 dim eps", F.cosine_similarity, "composed")
f(R(2, 5), R(2, 5))
f(R(2, 5), R(2, 5), 0)
f("broadcast", R(3, 1, 5), R(2, 5), -1)
f("vectors", R(5), R(5), 0)
f("a zero row", T([[0.0, 0.0], [3.0, 4.0]]), T([[1.0, 2.0], [3.0, -4.0]]), grad=False)
f("no rows", R(0, 5), R(0, 5))


def attention(query, key, value, attn_mask=None, **named):
    return F.scaled_dot_product_attention(query, key, value, attn_mask, **named)


f = op("scaled_dot_product_attention", "query key value attn_mask", attention, "soft")
f(V(2, 3, 5), V(2, 3, 5), V(2, 3, 5))
f("heads", V(1, 2, 3, 5), V(1, 2, 3, 5), V(1, 2, 3, 5))
f("other lengths", V(2, 2, 5), V(2, 3, 5), V(2, 3, 2))
f("causal", V(2, 3, 5), V(2, 3, 5), V(2, 3, 5), is_causal=True)
f("causal with other lengths", V(2, 2, 5), V(2, 3, 5), V(2, 3, 5), is_causal=True)
f("a mask", V(1, 2, 3, 5), V(1, 2, 3, 5), V(1, 2, 3, 5),
  T([[True, False, True], [True, True, False], [False, True, True]], torch.bool))
f("a bias", V(1, 2, 3, 5), V(1, 2, 3, 5), V(1, 2, 3, 5), V(3, 3))
f("another scale", V(2, 3, 5), V(2, 3, 5), V(2, 3, 5), scale=0.5)
f("one position", V(1, 1, 5), V(1, 1, 5), V(1, 1, 5))
f("matrices", V(3, 5), V(3, 5), V(3, 5))
f("seventeen", V(1, 2, 17, 3), V(1, 2, 17, 3), V(1, 2, 17, 3))
f("grouped heads", V(1, 4, 3, 2), V(1, 2, 3, 2), V(1, 2, 3, 2), enable_gqa=True)
f.raises("E_SHAPE", V(2, 3, 5), V(2, 3, 2), V(2, 3, 5))

"""A linear layer and the cross entropy of its results, in parts."""

import torch.nn.functional as F

from kit import N, R, S, U, op

f = op("linear_cross_entropy", "input linear_weight target linear_bias weight reduction "
       "ignore_index label_smoothing", lambda input, linear_weight, target, linear_bias=None, **o:
       F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, **o), "composed",
       positions={"target", "ignore_index"}, constants={"target", "weight"})
WIDE = {"dtypes": ["float64", "float32"], "why": "half types round the scores"}
f(S(4, 3), S(5, 3), N(5, 4), **WIDE)
f("bias", S(4, 3), S(5, 3), N(5, 4), S(5), **WIDE)
f("sum", S(6, 2), S(3, 2), N(3, 6), S(3), reduction="sum", **WIDE)
f("none", S(4, 2), S(3, 2), N(3, 4), reduction="none", **WIDE)
f("weights", S(6, 2), S(3, 2), N(3, 6), S(3), weight=U(3), label_smoothing=0.25, **WIDE)
f("an ignored class", S(6, 2), S(3, 2), N(3, 6), ignore_index=1, **WIDE)
f("one row", S(3), S(4, 3), N(4), **WIDE)
f("one row of one", S(1, 3), S(4, 3), N(4, 1), S(4), reduction="none", **WIDE)
f("probabilities", S(4, 3), S(5, 3), U(4, 5).then(lambda x: x / x.sum(-1, keepdim=True)), **WIDE)
f("smoothed probabilities", S(4, 3), S(2, 3), U(4, 2), label_smoothing=0.5, reduction="sum",
  **WIDE)
f.raises("E_SHAPE", S(4, 3), S(5, 2), N(5, 4))

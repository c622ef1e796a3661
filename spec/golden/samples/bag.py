"""Bags of tokens."""

import torch
import torch.nn.functional as F

from kit import N, P, R, T, op

I64 = torch.int64

f = op("embedding_bag", "input weight offsets", F.embedding_bag, "reduce",
       positions=("input", "padding_idx"))
TOKENS, BAGS = T([0, 3, 3, 1, 4, 2, 0], I64), T([0, 2, 2, 5], I64)
for mode in ("mean", "sum", "max"):
    f(mode, N(5, 2, 3), R(5, 2), mode=mode)
    f(mode + " by offsets", TOKENS.clone(), R(5, 3), BAGS.clone(), mode=mode)
    f(mode + " with padding", TOKENS.clone(), R(5, 3), BAGS.clone(), mode=mode, padding_idx=3)
    f(mode + " of padding alone", T([[0, 0], [1, 0]], I64), R(5, 3), mode=mode, padding_idx=0)
    f(mode + " with an end", TOKENS.clone(), R(5, 3), T([0, 3, 7], I64), mode=mode,
      include_last_offset=True)
    f(mode + " of one token", T([2], I64), R(5, 3), T([0], I64), mode=mode)
f("padding from the end", TOKENS.clone(), R(5, 3), BAGS.clone(), padding_idx=-1)
f("weighted", TOKENS.clone(), R(5, 3), BAGS.clone(), mode="sum", per_sample_weights=P(7))
f("weighted rows", N(5, 2, 3), R(5, 2), mode="sum", per_sample_weights=P(2, 3))
f("frequencies scale gradients", TOKENS.clone(), R(5, 3), BAGS.clone(), mode="sum",
  scale_grad_by_freq=True)
f.raises("E_ARG", "tokens in a row without offsets", N(5, 3), R(5, 2))
f.raises("E_SHAPE", "rows with offsets", N(5, 2, 3), R(5, 2), T([0], I64))
f.raises("E_ARG", "weights of a mean", N(5, 2, 3), R(5, 2), mode="mean", per_sample_weights=P(2, 3))
f.raises("E_ARG", "frequencies of the largest", N(5, 2, 3), R(5, 2), mode="max",
         scale_grad_by_freq=True)

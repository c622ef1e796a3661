"""ctc_loss. Gradients are those of the sum over all paths, computed here, because PyTorch's
gradient for log_probs assumes that they are results of log_softmax. The values are compared with
PyTorch's."""

import torch
import torch.nn.functional as F

from kit import R, S, T, inf, op

NONE = -1e30


def one(x, target, blank):
    """Minus the log probability of one target, from x (T, C)."""
    label = [blank]
    for c in target:
        label += [c, blank]
    row = [x.new_tensor(NONE)] * len(label)
    for t in range(len(x)):
        new = []
        for s, c in enumerate(label):
            ways = [row[s]] + row[max(s - 1, 0):s]
            if s > 1 and c != blank and c != label[s - 2]:
                ways.append(row[s - 2])
            if t == 0:
                ways = [x.new_tensor(0.0 if s < 2 else NONE)]
            new.append(torch.logsumexp(torch.stack(ways), 0) + x[t, c])
        row = new
    if len(x) == 0:
        return x.sum() + (inf if target else 0)
    total = torch.logsumexp(torch.stack(row[-2:]), 0)
    return -total if total > NONE / 2 else inf + 0 * total


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
             zero_infinity=False):
    x = log_probs if log_probs.dim() == 3 else log_probs[:, None]
    steps = [input_lengths] if isinstance(input_lengths, int) else list(input_lengths)
    sizes = [target_lengths] if isinstance(target_lengths, int) else list(target_lengths)
    losses, at = [], 0
    for n in range(x.shape[1]):
        k = int(sizes[n])
        part = targets[n, :k] if targets.dim() == 2 else targets[at:at + k]
        at += k
        losses.append(one(x[:int(steps[n]), n], part.tolist(), blank))
    y = torch.stack(losses)
    if zero_infinity:
        y = torch.where(torch.isinf(y), 0.0, y)
    if reduction == "mean":
        y = (y / torch.tensor([max(1, int(k)) for k in sizes])).mean()
    elif reduction == "sum":
        y = y.sum()
    elif log_probs.dim() == 2:
        y = y[0]
    as_tensor = lambda v: torch.tensor(v) if not isinstance(v, int) else torch.tensor(v)
    wanted = F.ctc_loss(log_probs.detach(), targets, as_tensor(input_lengths),
                        as_tensor(target_lengths), blank, reduction, zero_infinity)
    assert torch.allclose(y.detach(), wanted, rtol=1e-12), (y, wanted)
    return y


def logs(*shape):
    return S(*shape).then(lambda x: (x * 16).round() / 16)


f = op("ctc_loss", "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
       ctc_loss, "soft", positions={"targets", "blank"})
PADDED = T([[1, 2, 2], [3, 1, -1]], torch.int64)
f("padded", logs(7, 2, 4), PADDED, [7, 5], [3, 2])
f("none", logs(7, 2, 4), PADDED, [7, 5], [3, 2], reduction="none")
f("sum, another blank", logs(7, 2, 4), T([[1, 2, 0], [2, 1, 1]], torch.int64), [6, 7], [3, 3],
  blank=3, reduction="sum")
f("one after another", logs(6, 3, 3), T([1, 2, 1, 2, 2], torch.int64), [6, 4, 6], [2, 1, 2])
f("one sequence", logs(6, 4), T([1, 2, 3], torch.int64), 6, 3)
f("one sequence, none", logs(6, 4), T([1, 2, 3], torch.int64), 6, 3, reduction="none")
f("an empty target", logs(4, 2, 3), T([[1, 2], [1, 1]], torch.int64), [4, 4], [2, 0],
  reduction="none")
f("no targets at all", logs(3, 2, 3), T([[], []], torch.int64), [3, 2], [0, 0])
f("more targets than steps", logs(4, 2, 3), T([[1, 1, 1], [1, 2, 1]], torch.int64), [4, 4],
  [3, 3], reduction="none", zero_infinity=True)
f("no way", logs(4, 1, 3), T([[1, 1, 1]], torch.int64), [4], [3], reduction="none", grad=False)
f("many steps", R(60, 2, 5).then(lambda x: torch.log_softmax(x / 4, 2)),
  T([[1, 2, 3, 4, 4, 1, 2, 3], [4, 3, 2, 1, 1, 2, 3, 4]], torch.int64), [60, 41], [8, 6],
  reduction="none")

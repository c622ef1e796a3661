"""Writes torch.pth, a file of torch.save, and the same file in the format before PyTorch 1.6.

    python3 spec/support/torch_pth.py spec/support/torch.pth spec/support/torch_old.pth
"""

import sys

import torch

torch.manual_seed(1)
net = torch.nn.Linear(3, 2)
with torch.no_grad():
    net.weight.copy_(torch.arange(6.0).reshape(2, 3) / 4)
    net.bias.copy_(torch.tensor([-1.0, 1.0]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.75)
net(torch.ones(1, 3)).sum().backward()
optimizer.step()
base = torch.arange(12.0).reshape(3, 4)
saved = {
    "epoch": 3, "big": 2**62, "negative": -70000, "third": 1 / 3, "infinite": float("inf"),
    "nothing": None, "list": [1, None, "a", (2, 3)], "text": "\u00e4", "size": torch.Size([2, 3]),
    "model": net.state_dict(), "optimizer": optimizer.state_dict(),
    "base": base, "turned": base.t(), "row": base[1], "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(5), "truth": torch.tensor([True, False]),
    "half": torch.ones(2, dtype=torch.float16), "brain": torch.ones(2, dtype=torch.bfloat16),
    "parameter": torch.nn.Parameter(torch.ones(2)), "bytes": torch.arange(3, dtype=torch.uint8),
}
for path in sys.argv[1:]:
    torch.save(saved, path, _use_new_zipfile_serialization="old" not in path)

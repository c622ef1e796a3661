"""Writes the ONNX files that spec/io/onnx_load_spec.lua reads, as PyTorch's exporters write them.

    python3 spec/golden/onnx_files.py

Each net is written to data/onnx/NAME.onnx. Its inputs and PyTorch's results are in
data/onnx/values.safetensors, as NAME/in/0 and NAME/out/0. Needs PyTorch, onnx and onnxscript.
"""

import json
import pathlib
import struct
import sys
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional as F

DATA = pathlib.Path(__file__).parent / "data" / "onnx"
NAMES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}


class Block(nn.Module):
    """A block of a ResNet: two convolutions, and a shortcut with a third one."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(6)
        self.down = nn.Sequential(nn.Conv2d(4, 6, 1, stride=2, bias=False), nn.BatchNorm2d(6))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.down(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = Block()
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        y = self.layer1(self.pool(self.stem(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class MobileNet(nn.Module):
    """Depthwise convolution, squeeze and excitation, hard swish."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(3, 8, 1)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.squeeze = nn.Conv2d(8, 2, 1)
        self.excite = nn.Conv2d(2, 8, 1)
        self.project = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        y = F.hardswish(self.norm(self.depth(F.relu6(self.expand(x)))))
        s = F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return x + self.project(y * s)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, 8))
        self.position = nn.Parameter(torch.randn(1, 5, 8))
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 5)

    def attend(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, length, width))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.position
        x = x + self.attend(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, 0])


class Bert(nn.Module):
    """Token ids, positions and a mask, with PyTorch's own encoder."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(12, 8)
        self.norm = nn.LayerNorm(8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 20)

    def forward(self, ids, mask):
        at = torch.arange(ids.shape[1]).unsqueeze(0)
        x = self.norm(self.words(ids) + self.places(at))
        return self.head(self.layer(x, src_key_padding_mask=mask == 0))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.lstm = nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(6, 3)
        self.rnn = nn.RNN(3, 2)

    def forward(self, ids):
        y, (h, c) = self.lstm(self.words(ids))
        y, g = self.gru(y.transpose(0, 1))
        y, r = self.rnn(y)
        return y, h, c, g, r


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Conv2d(6, 1, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        y = F.silu(self.norm(self.down(x)))
        wide = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([x, self.up(y), wide[:, :2]], 1)).sigmoid()


class Odds(nn.Module):
    """Slices, masks, maxima and sums as users write them."""

    def forward(self, x, i):
        y = x[:, 1:, ::2].clamp(min=-1, max=1)
        z = torch.where(x > 0, x, 0.1 * x).masked_fill(x > 1, 2.0)
        values, at = x.topk(2, dim=-1)
        picked = x.gather(1, i) + x[:, i[0]].sum() + x.std(-1, keepdim=True)[:, :2, :3]
        return y, z.cumsum(1), values, at, picked, x.argmax(-1), F.one_hot(i, 4), x.flip(1).tril()


def images(*sizes):
    return (torch.randn(*sizes),)


BATCH = {"x": {0: "batch"}}
NETS = [  # name, net, inputs, their names, dynamic axes, opset, by the newer exporter?
    ("resnet", ResNet(), images(2, 3, 17, 17), ["x"], BATCH, 17, False),
    ("resnet_11", ResNet(), images(1, 3, 17, 17), ["x"], None, 11, False),
    ("resnet_new", ResNet(), images(2, 3, 17, 17), ["x"], BATCH, 18, True),
    ("mobilenet", MobileNet(), images(2, 3, 6, 6), ["x"], BATCH, 13, False),
    ("mobilenet_new", MobileNet(), images(2, 3, 6, 6), ["x"], None, 20, True),
    ("vit", ViT(), images(2, 3, 8, 8), ["x"], BATCH, 17, False),
    ("vit_new", ViT(), images(2, 3, 8, 8), ["x"], BATCH, 21, True),
    ("bert", Bert(), (torch.randint(20, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])),
     ["ids", "mask"], {"ids": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}}, 14, False),
    ("bert_new", Bert(), (torch.randint(20, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])),
     ["ids", "mask"], None, 18, True),
    ("recurrent", Recurrent(), (torch.randint(10, (2, 5)),), ["x"],
     {"x": {0: "batch", 1: "time"}}, 17, False),
    ("recurrent_new", Recurrent(), (torch.randint(10, (2, 5)),), ["x"], None, 18, True),
    ("unet", UNet(), images(1, 2, 8, 8), ["x"], BATCH, 16, False),
    ("unet_new", UNet(), images(1, 2, 8, 8), ["x"], None, 18, True),
    ("odds", Odds(), (torch.randn(2, 4, 5), torch.randint(4, (2, 2, 3))), ["x", "i"], None, 16,
     False),
    ("odds_new", Odds(), (torch.randn(2, 4, 5), torch.randint(4, (2, 2, 3))), ["x", "i"], None, 18,
     True),
]


def strip(path):
    """Removes data about the machine: stack traces, docs."""
    model = onnx.load(path)
    del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
    for part in [*model.graph.node, *model.graph.input, *model.graph.output]:
        part.doc_string = ""
        del part.metadata_props[:]
    for node in model.graph.node:
        for attribute in node.attribute:
            attribute.doc_string = ""
    for tensor in model.graph.initializer:
        tensor.doc_string = ""
        del tensor.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    del model.functions[:]
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_values(path, tensors):
    header, bytes_ = {}, b""
    for name, x in tensors.items():
        raw = x.contiguous().numpy().tobytes()
        header[name] = {"dtype": NAMES[x.dtype], "shape": list(x.shape),
                        "data_offsets": [len(bytes_), len(bytes_) + len(raw)]}
        bytes_ += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes_)


def main():
    torch.manual_seed(3)
    warnings.filterwarnings("ignore")
    DATA.mkdir(exist_ok=True)
    values = {}
    for name, net, inputs, names, axes, opset, newer in NETS:
        with torch.no_grad():
            for p in net.modules():
                if isinstance(p, nn.BatchNorm2d):
                    p.running_mean.normal_()
                    p.running_var.uniform_(0.5, 2)
            net.eval()
            outputs = net(*inputs)
        more = {}
        if axes and newer:
            more["dynamic_shapes"] = tuple(
                {d: torch.export.Dim(n) for d, n in axes.get(i, {}).items()} for i in names)
        elif axes:
            more["dynamic_axes"] = axes
        if newer:
            more["external_data"] = False
        torch.onnx.export(net, inputs, DATA / f"{name}.onnx", input_names=names,
                          opset_version=opset, dynamo=newer, verbose=False, **more)
        strip(DATA / f"{name}.onnx")
        for i, x in enumerate(inputs):
            values[f"{name}/in/{i}"] = x
        for i, y in enumerate([outputs] if isinstance(outputs, torch.Tensor) else outputs):
            values[f"{name}/out/{i}"] = y
        print(name, (DATA / f"{name}.onnx").stat().st_size, file=sys.stderr)
    write_values(DATA / "values.safetensors", values)


if __name__ == "__main__":
    main()

"""Writes models.json: what spec/models/models_spec.lua compares with moth.models.

    python3 spec/golden/models.py > spec/golden/models.json

"state": for each model the number of its parameters, of the tensors of its state dict, and a hash
of their sorted names and shapes. "outputs": the configuration of a small or usual model, and some
elements of its result with weights that are a function of name and position (pseudo), computed in
float64. The spec computes the same weights. U-Net and the audio net are not torchvision's: UNet
below has the names of milesial/Pytorch-UNet, and the audio net is a ResNet with one input channel.
Needs torchvision and transformers; run by hand.
"""

import json
import math

import torch
import torchvision
from torch import nn
from torchvision.models import vision_transformer
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

P = 10007
BASE = torch.tensor([(i * i * 31 + i * 7919) % P / P - 0.5 for i in range(P)], dtype=torch.float64)


# ---- U-Net ----

class DoubleConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(n_in, n_out))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(n_in, n_in // 2, 2, stride=2)
        self.conv = DoubleConv(n_in, n_out)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        x = nn.functional.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], 1))


class OutConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_in=3, n_out=2, base=64):
        super().__init__()
        self.inc = DoubleConv(n_in, base)
        for i in range(1, 5):
            setattr(self, f"down{i}", Down(base * 2 ** (i - 1), base * 2 ** i))
        for i in range(1, 5):
            setattr(self, f"up{i}", Up(base * 2 ** (5 - i), base * 2 ** (4 - i)))
        self.outc = OutConv(base, n_out)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x = self.up2(self.up1(self.down4(x4), x4), x3)
        return self.outc(self.up4(self.up3(x, x2), x1))


def audio(name, **options):
    net = torchvision.models.get_model(name.removeprefix("audio_"), **options)
    net.conv1 = nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    return net


# ---- weights ----

def text_hash(text, modulus):
    h = 7
    for byte in text.encode():
        h = (h * 31 + byte) % modulus
    return h


def pseudo(name, shape):
    """Numbers in [-0.5, 0.5) that depend on a name and on the position."""
    n, start = math.prod(shape), text_hash(name, P)
    return BASE.roll(-start).repeat(-(-n // P))[:n].reshape(shape)


def fill(net):
    done = {}
    for name, x in net.state_dict().items():
        if x.dtype == torch.int64:
            continue
        if x.data_ptr() in done:  # a tied weight
            continue
        done[x.data_ptr()] = name
        u = pseudo(name, tuple(x.shape))
        if name.endswith("running_var") or (x.dim() == 1 and name.endswith("weight")):
            u = 1 + u
        elif x.dim() < 2:
            u = 0.5 * u
        else:
            u = u * math.sqrt(24 / (x.numel() / x.shape[0]))
        x.copy_(u)
    return net


# ---- what is recorded ----

def state_of(net):
    rows = sorted(f"{k} {','.join(map(str, v.shape))}" for k, v in net.state_dict().items())
    return {"parameters": sum(p.numel() for p in net.parameters()), "tensors": len(rows),
            "hash": text_hash("\n".join(rows), 2 ** 31 - 1)}


def elements(y, count=12):
    flat = y.reshape(-1)
    step = max(1, flat.numel() // count)
    return [float(f"{v:.9g}") for v in flat[::step][:count].tolist()], step


VISION = ("resnet18 resnet34 resnet50 resnet101 resnet152 mobilenet_v3_small mobilenet_v3_large "
          "efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 "
          "efficientnet_b5 efficientnet_b6 efficientnet_b7 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 "
          "vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_l_16 vit_l_32 vit_h_14").split()
GPT2 = {"gpt2": (768, 12, 12), "gpt2_medium": (1024, 24, 16), "gpt2_large": (1280, 36, 20),
        "gpt2_xl": (1600, 48, 25)}
BERT = {"bert_base": (768, 12, 12), "bert_large": (1024, 24, 16)}


def states():
    out = {}
    with torch.device("meta"):
        for name in VISION:
            out[name] = state_of(torchvision.models.get_model(name))
        for name in "audio_resnet18", "audio_resnet34", "audio_resnet50":
            out[name] = state_of(audio(name))
        for name, (size, layers, heads) in GPT2.items():
            out[name] = state_of(GPT2LMHeadModel(GPT2Config(n_embd=size, n_layer=layers,
                                                            n_head=heads)))
        for name, (size, layers, heads) in BERT.items():
            out[name] = state_of(BertModel(BertConfig(
                hidden_size=size, num_hidden_layers=layers, num_attention_heads=heads,
                intermediate_size=4 * size)))
        out["unet"] = state_of(UNet())
    return out


def ids(n, length, most):
    return torch.tensor([[(37 * i + 101 * j + 5) % most for j in range(length)] for i in range(n)])


def cases():
    """name of the case, net, input, and which of its results"""
    for name in ["resnet18", "resnet50", "mobilenet_v3_small", "mobilenet_v3_large",
                 "efficientnet_b0"]:
        yield name, torchvision.models.get_model(name, num_classes=10), (2, 3, 64, 64)
    yield "audio_resnet18", audio("audio_resnet18", num_classes=10), (2, 1, 40, 50)
    yield "vgg11_features", torchvision.models.vgg11(num_classes=1).features, (2, 3, 64, 64)
    yield "vgg11_bn_features", torchvision.models.vgg11_bn(num_classes=1).features, (2, 3, 64, 64)
    vit = vision_transformer.VisionTransformer(64, 16, 3, 4, 48, 96, num_classes=10)
    yield "vision_transformer", vit, (2, 3, 64, 64)
    yield "unet", UNet(3, 4, 8), (2, 3, 40, 56)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=32, n_embd=48, n_layer=3,
                                             n_head=4)), ids(2, 20, 97)
    yield "bert_base", BertModel(BertConfig(vocab_size=97, hidden_size=48, num_hidden_layers=3,
                                            num_attention_heads=4, intermediate_size=192,
                                            max_position_embeddings=32)), ids(2, 20, 97)


def outputs():
    out = {}
    for name, net, given in cases():
        net = fill(net.double()).eval()
        more = {}
        if name == "bert_base":
            more = {"attention_mask": torch.tensor([[1] * 20, [1] * 13 + [0] * 7]),
                    "token_type_ids": ids(2, 20, 2)}
        x = 2 * pseudo("input", given) if isinstance(given, tuple) else given
        with torch.no_grad():
            y = net(x, **more)
        if name == "gpt2":
            y = y.logits
        results = [y.last_hidden_state, y.pooler_output] if name == "bert_base" else [y]
        out[name] = []
        for result in results:
            values, step = elements(result)
            out[name].append({"shape": list(result.shape), "step": step, "values": values,
                              "scale": float(f"{result.abs().max().item():.6g}")})
    return out


with torch.no_grad():
    torch.manual_seed(0)
    print(json.dumps({"state": states(), "outputs": outputs()}, indent=1))

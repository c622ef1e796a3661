"""Writes torchvision's and transformers' models with their initial weights, an input and the
result, for check_models.lua.

    python3 spec/golden/check_models.py FOLDER [NAME...]
    ./moth spec/golden/check_models.lua FOLDER

Each model is written as FOLDER/NAME.safetensors, in evaluation mode; its input and result are in
FOLDER/NAME.io. Weights that are initially 0 (the head of vit_b_16) and statistics get random
values. Needs torchvision, transformers and 2 GB in FOLDER; run by hand.
"""

import sys

import torch
import torchvision
from safetensors.torch import save_file, save_model
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

VISION = ("resnet18 resnet34 resnet50 mobilenet_v3_small mobilenet_v3_large efficientnet_b0 vgg11 "
          "vgg11_bn vit_b_16").split()


def disturbed(net):
    """The net in evaluation mode; constant weights and statistics have random values."""
    with torch.no_grad():
        for name, x in net.state_dict().items():
            if x.is_floating_point() and x.dim() > 0 and not x.any():
                x.normal_(0, 0.1)
            elif name.endswith("running_var"):
                x.uniform_(0.5, 2)
    return net.eval()


def write(folder, name, net, x):
    net = disturbed(net)
    with torch.no_grad():
        y = net(x)
    if name == "gpt2":
        y = y.logits[:, :, ::100]
    elif name == "bert_base":
        y = y.last_hidden_state
    save_model(net, f"{folder}/{name}.safetensors")
    save_file({"input": x + 1 if x.dtype == torch.int64 else x, "output": y.contiguous()},
              f"{folder}/{name}.io")


def main(folder, *names):
    torch.manual_seed(0)
    for name in names or [*VISION, "gpt2", "bert_base"]:
        if name == "gpt2":
            write(folder, name, GPT2LMHeadModel(GPT2Config()), torch.randint(50257, (2, 40)))
        elif name == "bert_base":
            write(folder, name, BertModel(BertConfig()), torch.randint(30522, (2, 40)))
        else:
            write(folder, name, torchvision.models.get_model(name), torch.randn(2, 3, 224, 224))


main(*sys.argv[1:])

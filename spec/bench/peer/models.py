#!/usr/bin/env python3
"""PyTorch's side of spec/bench/models.lua: torchvision's and transformers' models, one thread.

Requests: `setup NAME BATCH`, `forward` (done SECONDS), `load PATH` (done SECONDS).
"""
import sys
import time

import torch
import torchvision
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
CLOCK = time.process_time if "cpu" in sys.argv else time.perf_counter


def make(name):
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(use_cache=False))
    if name == "bert_base":
        return BertModel(BertConfig())
    return torchvision.models.get_model(name)


def given(name, batch):
    if name in ("gpt2", "bert_base"):
        return torch.ones(batch, 64, dtype=torch.int64)
    return torch.randn(batch, 3, 224, 224)


def load(name, path):
    """Returns the seconds to make a model with the weights of a file."""
    start = CLOCK()
    net = make(name)
    net.load_state_dict(load_file(path), strict=name != "gpt2")  # the file has the tied weight once
    return CLOCK() - start


name = net = x = None
for line in sys.stdin:
    words = line.split()
    try:
        with torch.inference_mode():
            if words[0] == "setup":
                name, batch = words[1], int(words[2])
                net, x = make(name).eval(), given(name, batch)
                net(x)
                print("done", flush=True)
            elif words[0] == "forward":
                start = CLOCK()
                net(x)
                print("done", CLOCK() - start, flush=True)
            else:
                print("done", load(name, words[1]), flush=True)
    except Exception as problem:  # the request's sender decides
        print("error", type(problem).__name__, str(problem).replace("\n", " "), flush=True)

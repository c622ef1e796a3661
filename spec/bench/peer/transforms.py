"""The times of torchvision.transforms.v2 for spec/bench/transforms.lua: a line for each run."""

import time

import torch
from torchvision.transforms import v2 as T
from torchvision.transforms.v2 import functional as F

CALLS = 30

torch.set_num_threads(1)
torch.manual_seed(1)


def both(shape):
    x = torch.randint(0, 256, shape, dtype=torch.uint8)
    return x, x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


BIG, SMALL = both((3, 375, 500)), both((3, 224, 224))
CHAIN = T.Compose([
    T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True),
    T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
JITTER, POLICY = T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandAugment()

RUNS = {
    "crop, flip, normalize": (BIG, CHAIN),
    "resize to 224": (BIG, lambda x: F.resize(x, [224, 224])),
    "resize to 224, bicubic": (BIG, lambda x: F.resize(x, [224, 224], "bicubic")),
    "rotate": (SMALL, lambda x: F.rotate(x, 33)),
    "affine, bilinear": (SMALL, lambda x: F.affine(x, 23, [2, -1], 1.3, [5, -7], "bilinear", 0)),
    "brightness": (SMALL, lambda x: F.adjust_brightness(x, 1.3)),
    "contrast": (SMALL, lambda x: F.adjust_contrast(x, 1.3)),
    "saturation": (SMALL, lambda x: F.adjust_saturation(x, 1.3)),
    "hue": (SMALL, lambda x: F.adjust_hue(x, 0.1)),
    "ColorJitter": (SMALL, JITTER),
    "gaussian_blur 5": (SMALL, lambda x: F.gaussian_blur(x, [5, 5], [1.0, 1.0])),
    "equalize": (SMALL, F.equalize),
    "RandAugment": (SMALL, POLICY),
}


def measured(f, x):
    f(x)
    start = time.process_time()
    for _ in range(CALLS):
        f(x)
    return (time.process_time() - start) / CALLS * 1e3


for name, (pictures, f) in RUNS.items():
    print(f"{name}\t{min(measured(f, x) for x in pictures)}")

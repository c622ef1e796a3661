"""The peer of spec/bench/pictures.lua.

pictures.py make FOLDER   writes files of pictures, in two classes, for each size
pictures.py time FOLDER   prints pictures for each second of CPU time: decoding, and an epoch of
                          torchvision's ImageFolder, with its default loader and with torchvision.io
"""

import os
import sys
import time

COUNT = {"500x375": 60, "2000x1500": 12}


def make(folder):
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_image
    rng = np.random.default_rng(1)
    for size, count in COUNT.items():
        w, h = map(int, size.split("x"))
        for name in ["china", "flower"]:
            os.makedirs(f"{folder}/{size}/{name}")
            photo = Image.fromarray(load_sample_image(f"{name}.jpg"))
            for i in range(count // 2):
                x, y = int(rng.integers(0, 140)), int(rng.integers(0, 52))
                part = photo.crop((x, y, x + 500, y + 375))
                if w > 500:
                    part = part.resize((w, h), Image.BICUBIC)
                    grain = rng.normal(0, 4, (h, w, 1))
                    part = Image.fromarray((np.asarray(part) + grain).clip(0, 255).astype("uint8"))
                part.save(f"{folder}/{size}/{name}/{i}.jpg", quality=90)


def report(name, count, run):
    start = time.process_time()
    for i in range(count):
        run(i)
    print(f"{name} {count / (time.process_time() - start)}", flush=True)


def measure(folder):
    import torch
    import torchvision
    from torchvision import datasets, io
    from torchvision.transforms import v2
    torch.set_num_threads(1)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    with_pil = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(),
                           torchvision.transforms.ToTensor(), v2.Normalize(mean, std)])
    with_io = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
                          v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])

    def load(path):
        return io.read_image(path, io.ImageReadMode.RGB)

    pil = datasets.ImageFolder(folder, with_pil)
    tensors = datasets.ImageFolder(folder, with_io, loader=load)
    n = len(pil)
    for _ in range(2):
        pil[0], tensors[0]
    report("decode/PIL", n, lambda i: pil.loader(pil.samples[i][0]))
    report("decode/io", n, lambda i: load(pil.samples[i][0]))
    report("epoch/PIL", n, lambda i: pil[i])
    report("epoch/io", n, lambda i: tensors[i])


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    measure(sys.argv[2])

"""Writes transforms.json and transforms.safetensors: results of torchvision.transforms.v2.functional.

    python3 spec/golden/transforms.py    # needs PyTorch, torchvision and safetensors

A case is {"f": function, "x": input, "args": {...}, "y": output}. Positions of channels count from
1. Inputs of boxes are {"boxes": tensor, "format": , "canvas_size": }, of masks {"mask": tensor}.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

HERE = pathlib.Path(__file__).parent
CASES, TENSORS = [], {}


def smooth(channels, height, width):
    """A picture without noise, with edges."""
    x = F.resize(torch.randint(0, 256, (channels, 5, 6), dtype=torch.uint8), [height, width],
                 antialias=False)
    x[:, 2:6, 3:9] = 255 - x[:, 2:6, 3:9]
    return x


def inputs():
    torch.manual_seed(0)
    return {
        "u8": smooth(3, 12, 14), "noise": torch.randint(0, 256, (3, 11, 9), dtype=torch.uint8),
        "grey": smooth(1, 10, 9), "square": smooth(3, 8, 8),
        "batch": torch.stack([smooth(3, 6, 7), smooth(3, 6, 7)]),
        "f32": smooth(3, 8, 7).float() / 255, "f64": smooth(1, 7, 8).double() / 255,
        "i16": smooth(3, 6, 5).to(torch.int16) * 128,
        "mask": (smooth(1, 12, 14) // 64),
        "flat": torch.randint(0, 3, (9, 8), dtype=torch.int64),
        "corners": torch.tensor([[2., 3, 9, 8], [0, 0, 14, 12], [8.5, 4.25, 13, 11]]),
        "sizes": torch.tensor([[2, 3, 9, 8], [0, 0, 14, 12], [7, 4, 5, 3]]),
        "centres": torch.tensor([[6., 7, 9, 8], [7, 6, 14, 12]], dtype=torch.float64),
    }


INPUTS = inputs()
CANVAS = [12, 14]
FORMATS = {"corners": "XYXY", "sizes": "XYWH", "centres": "CXCYWH"}


def plain(v):
    if isinstance(v, torch.dtype):
        return {"dtype": str(v)[6:]}
    if isinstance(v, torch.Tensor):
        name = f"t{len(TENSORS)}"
        TENSORS[name] = v.detach().clone().contiguous()
        return {"tensor": name}
    if isinstance(v, (list, tuple)):
        return [plain(e) for e in v]
    return v


def case(f, x, shifted=None, **args):
    given = INPUTS[x]
    entry = {"f": f, "x": x, "args": {k: plain(v) for k, v in args.items() if v is not None}}
    if shifted:
        entry["args"][shifted] = [v + 1 for v in args[shifted]]
    if x in FORMATS:
        given = tv_tensors.BoundingBoxes(given, format=FORMATS[x], canvas_size=CANVAS)
        entry["format"], entry["canvas_size"] = FORMATS[x], CANVAS
    elif x in ("mask", "flat"):
        given = tv_tensors.Mask(given)
        entry["mask"] = True
    y = getattr(F, f)(given, **args)
    if isinstance(y, tv_tensors.BoundingBoxes):
        entry["new_format"], entry["new_canvas"] = y.format.name, list(y.canvas_size)
    if isinstance(y, (list, tuple)):
        entry["y"] = [plain(v.as_subclass(torch.Tensor))["tensor"] for v in y]
    else:
        entry["y"] = plain(y.as_subclass(torch.Tensor).clone())["tensor"]
    CASES.append(entry)


PICTURES = ("u8", "f32", "batch")
PLACES = PICTURES + ("mask", "flat", "corners", "sizes", "centres")

for x in ("u8", "noise", "f32", "f64", "i16", "batch"):
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        case("resize", x, size=[5, 13], interpolation=mode)
    case("resize", x, size=[7, 6], antialias=False)
    case("resize", x, size=[17, 8], interpolation="bicubic", antialias=False)
for x in PLACES:
    case("resize", x, size=[5])
    case("resize", x, size=[10, 19], interpolation="nearest-exact" if x == "mask" else "bilinear")
    case("resize", x, size=[9], max_size=10)
    case("resize", x, size=None, max_size=8)
    case("crop", x, top=2, left=3, height=5, width=7)
    case("crop", x, top=-2, left=5, height=9, width=20)
    case("center_crop", x, output_size=[6, 5])
    case("center_crop", x, output_size=[8, 17])
    case("resized_crop", x, top=1, left=2, height=8, width=6, size=[5, 12])
    case("horizontal_flip", x)
    case("vertical_flip", x)
    case("pad", x, padding=[1, 2, 3, 4])
    case("pad", x, padding=[2, -1], fill=7 if x in ("mask", "flat") else 0.25 if x == "f32" else 9)
    case("affine", x, angle=23, translate=[2, -1], scale=1.3, shear=[5, -7])
    case("affine", x, angle=-100, translate=[0, 3], scale=0.7, shear=[0, 0], fill=1,
         center=[3, 4], interpolation="bilinear")
    case("rotate", x, angle=33)
    case("rotate", x, angle=90, expand=True)
    case("rotate", x, angle=-70.5, expand=True, fill=2)
    case("rotate", x, angle=180)
    points = [[[0, 0], [8, 0], [8, 7], [0, 7]], [[1, 0], [7, 2], [9, 5], [-1, 8]]]
    case("perspective", x, startpoints=points[0], endpoints=points[1])
    case("perspective", x, startpoints=None, endpoints=None,
         coefficients=[1.1, .1, -2, .05, .9, 1, .01, -.005], fill=3)
for x in PICTURES + ("mask", "flat"):
    for mode in ("edge", "reflect", "symmetric"):
        case("pad", x, padding=[3, 1, 0, 4], padding_mode=mode)
for x in ("u8", "f32"):
    case("pad", x, padding=2, fill=[0.1, 0.5, 0.75] if x == "f32" else [1, 200, 30])
    case("five_crop", x, size=[5, 4])
    case("ten_crop", x, size=[5, 4], vertical_flip=True)
    case("rotate", x, angle=33, interpolation="bilinear", fill=[0.1, 0.5, 0.75])
    case("affine", x, angle=10, translate=[1, 0], scale=2, shear=[3], interpolation="bilinear")
    h, w = INPUTS[x].shape[-2:]
    wave = torch.stack([torch.sin(torch.arange(h * w) / 9.0), torch.cos(torch.arange(h * w) / 7.0)],
                       -1).view(1, h, w, 2) * 0.2
    case("elastic", x, displacement=wave)
    case("elastic", x, displacement=wave, interpolation="nearest", fill=[0.1, 0.5, 0.75])
wave = torch.sin(torch.arange(12 * 14 * 2) / 9.0).view(1, 12, 14, 2) * 0.2
for x in ("mask", "corners", "sizes"):
    case("elastic", x, displacement=wave)
case("rotate", "square", angle=90)
case("rotate", "square", angle=270)

for x in ("u8", "noise", "grey", "f32", "batch"):
    for factor in (0, 0.6, 1, 1.7):
        case("adjust_brightness", x, brightness_factor=factor)
        case("adjust_contrast", x, contrast_factor=factor)
        case("adjust_saturation", x, saturation_factor=factor)
        case("adjust_sharpness", x, sharpness_factor=factor)
    for factor in (-0.5, -0.2, 0, 0.1, 0.45):
        case("adjust_hue", x, hue_factor=factor)
    case("adjust_gamma", x, gamma=0.5)
    case("adjust_gamma", x, gamma=2.2, gain=1.4)
    case("rgb_to_grayscale", x)
    case("rgb_to_grayscale", x, num_output_channels=3)
    case("grayscale_to_rgb", x)
    case("invert", x)
    case("autocontrast", x)
    case("equalize", x)
    case("solarize", x, threshold=0.4 if x == "f32" else 100)
    case("posterize", x, bits=0)
    case("posterize", x, bits=3)
    case("gaussian_blur", x, kernel_size=[3, 5])
    case("gaussian_blur", x, kernel_size=7, sigma=[1.5, 0.7])
    case("erase", x, i=1, j=2, h=4, w=3, v=torch.tensor(0.5 if x == "f32" else 77))
    case("to_dtype", x, dtype=torch.float64, scale=True)
    case("to_dtype", x, dtype=torch.uint8, scale=True)
    case("to_dtype", x, dtype=torch.int16, scale=True)
    case("to_dtype", x, dtype=torch.float32)
case("permute_channels", "u8", permutation=[2, 0, 1], shifted="permutation")
case("to_dtype", "i16", dtype=torch.uint8, scale=True)
case("to_dtype", "i16", dtype=torch.int32, scale=True)
case("invert", "i16")
case("posterize", "i16", bits=3)
case("normalize", "f32", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
case("normalize", "f64", mean=[0.5], std=[0.25])
for x in ("corners", "sizes", "centres"):
    for new in ("XYXY", "XYWH", "CXCYWH"):
        case("convert_bounding_box_format", x, new_format=new)
    case("clamp_bounding_boxes", x)

# odd sizes, other angles and centers, other options than the defaults
for x in ("u8", "f64", "flat", "corners", "sizes", "centres"):
    for size in ([3, 4], [7, 7], [12, 14], [13, 3], [1, 1]):
        case("center_crop", x, output_size=size)
    case("crop", x, top=11, left=13, height=3, width=2)
    case("pad", x, padding=[0, 1], fill=2 if x == "flat" else 0.5 if x == "f64" else 6)
    for angle in (0, -90, 270, 450, 180.5, -0.25):
        case("rotate", x, angle=angle, expand=True)
    for center in ([0, 0], [5, 2.5]):
        case("rotate", x, angle=30, center=center)
        case("affine", x, angle=-15, translate=[0, 0], scale=1, shear=[4, 0], center=center)
    case("rotate", x, angle=90, center=[3, 3])
    case("rotate", x, angle=180, center=[4, 4])
    case("affine", x, angle=0, translate=[-3, 2], scale=1, shear=[0, 0])
    case("affine", x, angle=0, translate=[0, 0], scale=2.5, shear=[0, 0])
    case("affine", x, angle=0, translate=[0, 0], scale=1, shear=[20, 0])
    case("affine", x, angle=0, translate=[0, 0], scale=1, shear=[0, 20])
    case("perspective", x, startpoints=points[1], endpoints=points[0], fill=1)
    case("resized_crop", x, top=-1, left=0, height=5, width=3, size=[4, 7], antialias=False)
for x in ("u8", "f32", "f64", "batch"):
    for mode in ("nearest", "bilinear"):
        case("rotate", x, angle=41, interpolation=mode, expand=True, fill=1)
        case("affine", x, angle=5, translate=[1, 1], scale=0.5, shear=[1, 2], interpolation=mode)
        case("perspective", x, startpoints=points[0], endpoints=points[1], interpolation=mode)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        case("resize", x, size=[2, 2], interpolation=mode)
        case("resize", x, size=[3], max_size=4, interpolation=mode)
        case("resized_crop", x, top=2, left=1, height=3, width=4, size=[7, 5], interpolation=mode)
for size in ([5, 4], [8, 7], [1, 1]):
    case("five_crop", "f32", size=size)
    case("ten_crop", "f32", size=size)


def main():
    for name, x in INPUTS.items():
        TENSORS[name] = x
    same = {}
    for name in list(TENSORS):  # equal results are stored once
        x = TENSORS[name]
        key = (x.dtype, tuple(x.shape), x.numpy().tobytes())
        if key in same:
            for entry in CASES:
                y = entry["y"]
                entry["y"] = ([same[key] if v == name else v for v in y] if isinstance(y, list)
                              else same[key] if y == name else y)
            if not any({"tensor": name} in c["args"].values() for c in CASES) and name not in INPUTS:
                del TENSORS[name]
        else:
            same[key] = name
    save_file(TENSORS, HERE / "transforms.safetensors")
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES)
    (HERE / "transforms.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

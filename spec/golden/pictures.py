"""Writes pictures.bin and pictures.json: small files of pictures, and their pixels.

    python3 spec/golden/pictures.py

Files are made with PIL, or written here where PIL cannot. Pixels are torchvision's where its
decoder takes the mode, else PIL's. pictures.json has, for each file, its bytes in pictures.bin
{at, size} and a list of {mode, upright, shape, wide, at}: bytes, or 16-bit little-endian numbers
(wide), in the order channels, rows, columns. `drawn` has the results of torchvision.utils.
"""

import io
import json
import struct
import warnings
import zlib

import numpy as np
import torch
import torchvision.io as tio
import torchvision.utils as U
from PIL import Image

warnings.simplefilter("ignore")
rng = np.random.default_rng(7)
H, W = 9, 13
blob, index = bytearray(), {"files": {}, "drawn": {}}


def store(data):
    at = len(blob)
    blob.extend(data)
    return {"at": at, "size": len(data)}


def picture(channels, h=H, w=W):
    y, x = np.mgrid[0:h, 0:w]
    planes = [(x * 17 + y * 9 + 50 * k + rng.integers(0, 30, (h, w))) % 256 for k in range(channels)]
    return np.stack(planes, -1).astype(np.uint8)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(w, h, bits, color, rows, interlace=0):
    head = struct.pack(">IIBBBBB", w, h, bits, color, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def plain(a):
    return b"".join(b"\0" + np.ascontiguousarray(row).tobytes() for row in a)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2)]


def interlaced(a):
    parts = [a[y::dy, x::dx] for x, y, dx, dy in ADAM7]
    return b"".join(plain(part) for part in parts if part.size)


def exif(orientation):
    data = Image.Exif()
    data[0x112] = orientation
    return data


rgb, rgba = picture(3), picture(4)
color, clear = Image.fromarray(rgb), Image.fromarray(rgba)
palette = color.convert("P", palette=Image.ADAPTIVE, colors=60)
small = color.convert("P", palette=Image.ADAPTIVE, colors=12)
frames = [Image.fromarray(picture(3)) for _ in range(2)]
moving = [Image.fromarray(picture(4)) for _ in range(2)]
wide = rng.integers(0, 65536, (5, 6, 4)).astype(">u2")
two_bits = rng.integers(0, 256, (5, 3)).astype(np.uint8)

FILES = {
    "420.jpg": saved(color, "JPEG", quality=90),
    "444.jpg": saved(color, "JPEG", subsampling=0),
    "422.jpg": saved(color, "JPEG", subsampling=1),
    "progressive.jpg": saved(color, "JPEG", progressive=True),
    "gray.jpg": saved(color.convert("L"), "JPEG"),
    "cmyk.jpg": saved(color.convert("CMYK"), "JPEG"),
    "rgb.png": saved(color, "PNG"),
    "rgba.png": saved(clear, "PNG"),
    "gray.png": saved(color.convert("L"), "PNG"),
    "gray_alpha.png": saved(clear.convert("LA"), "PNG"),
    "palette.png": saved(palette, "PNG"),
    "palette4.png": saved(small, "PNG", bits=4),
    "palette_clear.png": saved(small, "PNG", transparency=3),
    "rgb_clear.png": saved(color, "PNG", transparency=tuple(int(v) for v in rgb[3, 4])),
    "one_bit.png": saved(color.convert("1"), "PNG"),
    "two_bits.png": png(11, 5, 2, 0, plain(two_bits)),
    "gray16.png": png(6, 5, 16, 0, plain(wide[..., :1])),
    "rgb16.png": png(6, 5, 16, 2, plain(wide[..., :3])),
    "rgba16.png": png(6, 5, 16, 6, plain(wide)),
    "interlaced.png": png(W, H, 8, 2, interlaced(rgb), 1),
    "lossy.webp": saved(color, "WEBP", quality=80),
    "lossless.webp": saved(color, "WEBP", lossless=True),
    "rgba.webp": saved(clear, "WEBP", quality=70),
    "moving.webp": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], quality=60),
    "moving_alpha.webp": saved(moving[0], "WEBP", save_all=True, append_images=moving[1:],
                               lossless=True),
    "rgb.gif": saved(palette, "GIF"),
    "interlaced.gif": saved(palette, "GIF", interlace=1),
    "clear.gif": saved(small, "GIF", transparency=5),
    "moving.gif": saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
}
for i in range(1, 9):
    FILES[f"exif{i}.jpg"] = saved(color, "JPEG", exif=exif(i))
FILES["exif6.png"] = saved(color, "PNG", exif=exif(6))

PIL_MODES = {"gray": "L", "gray_alpha": "LA", "rgb": "RGB", "rgb_alpha": "RGBA"}


def by_pil(data, mode):
    a = np.asarray(Image.open(io.BytesIO(data)).convert(PIL_MODES[mode]))
    return torch.from_numpy(a.copy()).reshape(*a.shape[:2], -1).permute(2, 0, 1)


def by_torchvision(data, mode, upright):
    x = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return tio.decode_image(x, mode=mode.upper(), apply_exif_orientation=upright)


CHANNELS = {"gray": 1, "gray_alpha": 2, "rgb": 3, "rgb_alpha": 4}


def expected(name, data, mode, upright):
    """The pixels, or None where neither library has this mode."""
    kind = name.split(".")[1]
    if kind == "jpg" and mode == "gray_alpha":  # PIL's gray is of the colors, not the luma
        return None
    has_palette = "palette" in name
    if kind == "png" and mode == "unchanged" and has_palette:  # torchvision returns indices
        return by_pil(data, "rgb_alpha" if "clear" in name else "rgb")
    if kind == "gif" and "clear" in name:  # torchvision fills with the background
        return by_pil(data, "rgb" if mode == "unchanged" else mode)
    if kind == "png" and mode.endswith("alpha") and (
            has_palette or "clear" in name or "bit" in name):  # torchvision's alpha is 0 or 1
        gray = mode == "gray_alpha" and (has_palette or "rgb" in name)  # PIL rounds gray
        return None if gray else by_pil(data, mode)
    try:
        x = by_torchvision(data, mode, upright)
        if x.ndim == 3 and x.shape[0] == CHANNELS.get(mode, x.shape[0]):
            return x
    except RuntimeError:
        pass
    return by_pil(data, mode if mode != "unchanged" else "rgb_alpha" if "alpha" in name else "rgb")


for name, data in FILES.items():
    row = store(data)
    row["pixels"] = []
    exact = name.startswith("exif")
    modes = ["rgb"] if exact else ["unchanged", "gray", "gray_alpha", "rgb", "rgb_alpha"]
    for mode in modes:
        x = expected(name, data, mode, exact)
        if x is None:
            continue
        is_wide = x.dtype == torch.uint16
        array = x.contiguous().numpy()
        at = store((array.astype("<u2") if is_wide else array).tobytes())
        row["pixels"].append({"mode": mode, "upright": exact, "shape": list(x.shape),
                              "wide": is_wide, "at": at["at"], "size": at["size"]})
    index["files"][name] = row

# Results of torchvision.utils on the picture `base`.
base = torch.from_numpy(picture(3, 14, 18)).permute(2, 0, 1).contiguous()
boxes = torch.tensor([[2, 3, 15, 12], [5, 5, 40, 11], [-4, 0, 3, 3], [7, 8, 7, 8]])
masks = torch.from_numpy(rng.integers(0, 2, (3, 14, 18)).astype(bool))
batch = torch.from_numpy(picture(3, 5, 28).reshape(5, 7, 4, 3)).permute(1, 3, 0, 2) / 255
DRAWN = {
    "base": base, "boxes": boxes.to(torch.int16), "masks": masks.to(torch.uint8), "batch": batch,
    "grid": U.make_grid(batch),
    "grid_normalized": U.make_grid(batch, nrow=3, padding=1, normalize=True, pad_value=0.5),
    "grid_range": U.make_grid(batch, normalize=True, value_range=(0.2, 0.7), scale_each=True),
    "boxes_plain": U.draw_bounding_boxes(base, boxes),
    "boxes_filled": U.draw_bounding_boxes(base, boxes, colors="red", fill=True, width=2),
    "boxes_gray": U.draw_bounding_boxes(base[:1] / 255, boxes, width=3,
                                        colors=["#0f0", "Blue", (1, 2, 3), "crimson"]),
    "masks_plain": U.draw_segmentation_masks(base, masks),
    "masks_named": U.draw_segmentation_masks(base / 255, masks, 0.5, ["red", "green", "blue"]),
}
for name, x in DRAWN.items():
    array = x.contiguous().numpy()
    at = store(array.tobytes())
    index["drawn"][name] = {"dtype": str(x.dtype)[6:], "shape": list(x.shape), **at}

with open("spec/golden/pictures.bin", "wb") as out:
    out.write(blob)
with open("spec/golden/pictures.json", "w") as out:
    json.dump(index, out, separators=(",", ":"))
    out.write("\n")

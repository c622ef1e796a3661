"""Writes regions.json: torchvision's functions of regions and boxes at borders, ties and ends.

    python3 spec/golden/regions.py > spec/golden/regions.json      # needs torchvision

Maps are ((3k^2 + 7k) mod 101 - 50) / 64 of element k, from 0. Boxes have the position of their
image from 1, as in Moth. A case of a region has the function, the shape of the map, the size of
the result, its options and the result; `gradient` is the map's, for the sum of the result times
its positions mod 7. It is left out for ps_roi_pool: torchvision's backward pass includes a row and
a column that its forward pass does not.
"""

import itertools
import json

import torch
import torchvision.ops as O

BOXES = [[1, 0, 0, 5, 4], [1, -2, -1.5, 2.5, 9], [2, 6, 6, 9, 9], [1, -5, -5, -2, -2],
         [2, 1, 1, 1, 1], [1, 3, 3, 1, 1], [2, 0.5, 1.5, 2.5, 3.5], [1, 4, 3, 6, 5],
         [2, -0.5, -0.5, 0.5, 0.5], [1, 2.25, 0.75, 2.5, 4.75]]


def numbers(*shape):
    k = torch.arange(torch.Size(shape).numel())
    return (((3 * k * k + 7 * k) % 101 - 50) / 64).double().reshape(shape)


def flat(x):
    return [v if abs(v) < float("inf") else str(v) for v in
            (float(f"{v:.11g}") for v in x.detach().double().flatten().tolist())]


def weights(y):
    return (torch.arange(y.numel()) % 7).double().reshape(y.shape)


def regions():
    boxes = torch.tensor(BOXES, dtype=torch.float64)
    boxes[:, 0] -= 1
    plain = [("roi_pool", dict(spatial_scale=s)) for s in (1.0, 0.5, 0.3)]
    plain += [("ps_roi_pool", dict(spatial_scale=s)) for s in (1.0, 0.5, 0.3)]
    plain += [("ps_roi_align", dict(spatial_scale=s, sampling_ratio=r))
              for s, r in ((1.0, -1), (0.5, 0), (0.5, 1), (1.0, 3))]
    plain += [("roi_align", dict(spatial_scale=s, sampling_ratio=r, aligned=a))
              for s, r in ((1.0, -1), (0.5, 0), (0.5, 1), (1.0, 3)) for a in (False, True)]
    for (name, options), size in itertools.product(plain, ([1, 1], [2, 3], [3, 1])):
        channels = size[0] * size[1] * 2 if name.startswith("ps") else 2
        x = numbers(2, channels, 5, 6).requires_grad_()
        y = getattr(O, name)(x, boxes, size, **options)
        gradient, = torch.autograd.grad((y * weights(y)).sum(), x)
        case = {"name": name, "shape": list(x.shape), "size": size, "options": options,
                "values": flat(y)}
        if name != "ps_roi_pool":
            case["gradient"] = flat(gradient)
        yield case


def levels():
    sides = [1, 3, 5.65, 5.66, 7.99, 8, 11.3, 11.32, 15.99, 16, 22.6, 22.7, 31.99, 32, 40]
    boxes = torch.tensor([[0, 0, s, s] for s in sides])
    for scale, level in ((16, 4), (8, 3), (32, 4)):
        pool = O.MultiScaleRoIAlign(["a", "b", "c"], 1, 1, canonical_scale=scale,
                                    canonical_level=level)
        x = {name: numbers(1, 1, 48 // step, 48 // step).float() + 100 * step
             for name, step in zip("abc", (4, 8, 16))}
        yield {"canonical_scale": scale, "canonical_level": level, "sides": sides,
               "values": flat(pool(x, [boxes], [(48, 48)]))}


def kept():
    boxes = [[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 2, 2], [1, 0, 3, 2], [2, 0, 4, 2], [0, 0, 0, 0],
             [0, 0, 0, 0], [5, 5, 6, 6], [2, 0, 4, 2.0001]]
    scores = [0.5, 0.9, 0.5, 0.5, 0.7, 0.9, 0.8, -1, 0.7]
    classes = [0, 0, 1, 1, 0, 1, 1, -3, 0]
    for share in (0.0, 1 / 3, 0.3333, 0.4999, 0.5, 0.9, 1.0):
        b, s = torch.tensor(boxes, dtype=torch.float32), torch.tensor(scores)
        yield {"boxes": boxes, "scores": scores, "classes": classes, "threshold": share,
               "nms": (O.nms(b, s, share) + 1).tolist(),
               "batched_nms": (O.batched_nms(b, s, torch.tensor(classes), share) + 1).tolist()}


def deformed():
    for stride, padding, dilation, groups, moves, mask in (
            ([1, 1], [0, 0], [1, 1], 1, 1, False), ([2, 1], [1, 2], [1, 1], 1, 1, True),
            ([1, 2], [2, 0], [2, 1], 2, 1, False), ([1, 1], [1, 1], [1, 2], 2, 2, True),
            ([2, 2], [0, 1], [1, 1], 1, 4, True)):
        x, w = numbers(2, 4, 6, 7), numbers(4, 4 // groups, 3, 2)
        h = (6 + 2 * padding[0] - dilation[0] * 2 - 1) // stride[0] + 1
        v = (7 + 2 * padding[1] - dilation[1] - 1) // stride[1] + 1
        offset = numbers(2, moves * 12, h, v) * 4
        m = numbers(2, moves * 6, h, v) + 1 if mask else None
        y = O.deform_conv2d(x, offset, w, numbers(4), stride, padding, dilation, m)
        yield {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
               "moves": moves, "mask": mask, "shape": list(y.shape), "values": flat(y)}


def lines(rows):
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)


parts = {"regions": regions, "levels": levels, "kept": kept, "deformed": deformed}
print(f'{{"boxes":{json.dumps(BOXES)}')
for key, rows in parts.items():
    print(f',"{key}":[\n{lines(rows())}\n]')
print("}")

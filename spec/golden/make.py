"""Writes spec/golden/data/: PyTorch's results for the samples in spec/golden/samples/.

    python3 spec/golden/make.py            # needs PyTorch and NumPy; the specs need neither

Each family has FAMILY.json (samples, arguments, offsets of their tensors) and FAMILY.bin (the
elements, little-endian, NaNs canonical). A second run writes the same bytes. A tensor in the JSON
is {"t": dtype, "s": sizes, "o": offset in bytes}. It has "e" for the dimensions of stride 0 (one
element is stored for each), and "c" if it requires no gradient. Fields of a sample:

    args      [[name, value], ...]; leaves are the floating tensors without "c", in this order
    y         results; cotangent of element k of result j (from 0): (7(k + 3j) mod 11 - 5) / 8
    grads     the gradients of sum(y * cotangent) for each leaf
    second    gradients of sum(grads * v) for each leaf, v = (5(k + 2i) mod 13 - 6) / 8 of leaf i
    error     the class of error that the call raises
    kind      class of tolerance; `tol` replaces it, `why` says why
    fixed     dtypes are as stored (else f64 means f64, f32, f16 and bf16)
    layouts   layouts of the inputs in the test, in addition to contiguous
"""

import hashlib
import importlib
import json
import math
import pathlib
import sys

import numpy
import torch

import kit

HERE = pathlib.Path(__file__).parent
LAYOUTS = ("transposed", "offset", "strided")
NUMPY = {torch.bfloat16: torch.int16}


class Blob:
    """The bytes of a family's tensors; equal tensors are stored once."""

    def __init__(self):
        self.bytes, self.at = bytearray(), {}

    def put(self, x):
        x = x.detach()
        repeated = [d for d, (n, s) in enumerate(zip(x.shape, x.stride())) if s == 0 and n > 1]
        entry = {"t": str(x.dtype)[6:], "s": list(x.shape)}
        if repeated:
            entry["e"] = [d + 1 for d in repeated]
            for d in repeated:
                x = x.narrow(d, 0, 1)
        x = x.contiguous()
        if x.is_floating_point():
            x = torch.where(torch.isnan(x), torch.tensor(kit.nan, dtype=x.dtype), x)
        data = x.view(NUMPY.get(x.dtype, x.dtype)) if x.dim() else x.reshape(1)
        if data.dtype == torch.bfloat16:
            data = data.view(torch.int16)
        data = data.numpy().tobytes()
        if data not in self.at:
            self.bytes.extend(b"\0" * (-len(self.bytes) % 8))
            self.at[data] = len(self.bytes)
            self.bytes.extend(data)
        entry["o"] = self.at[data]
        return entry


def plain(v, blob):
    """A value for JSON."""
    if isinstance(v, torch.Tensor):
        return blob.put(v)
    if isinstance(v, torch.dtype):
        return {"dtype": str(v)[6:]}
    if isinstance(v, float) and not math.isfinite(v):
        return {"number": str(v)}
    if isinstance(v, (list, tuple)):
        return [plain(x, blob) for x in v]
    if v is None or isinstance(v, (bool, int, float, str)):
        return v
    raise TypeError(f"a {type(v)} in a sample")


def layouts(sample, index):
    """The layouts take turns, unless the sample names its own."""
    if sample.get("layouts") is not None:
        return list(sample["layouts"])
    tensors = [x for _, v in sample["args"] for x in kit.tensors_of(v)]
    if not any(x.dim() for x in tensors):
        return []
    return [LAYOUTS[index % len(LAYOUTS)]]


def rounded(values):
    return [float(f"{v:.3g}") for v in values]


def record(sample, index, blob):
    entry = {"name": sample["name"], "kind": sample["kind"],
             "args": [[k, plain(v, blob)] for k, v in sample["args"]]}
    for name, value in entry["args"]:
        if name in sample.get("constants", ()) and isinstance(value, dict):
            value["c"] = True
    if "error" in sample:
        entry["error"] = sample["error"]
        return entry
    entry["layouts"] = layouts(sample, index)
    for key in ("y", "grads", "second"):
        if sample.get(key) is not None:
            entry[key] = plain(sample[key], blob)
    if "value" in sample:
        entry["value"] = plain(sample["value"], blob)
    if any(s != 1 for s in sample["scale"]):
        entry["scale"] = rounded(sample["scale"])
    for key in ("tol", "why", "fixed", "dtypes"):
        if sample.get(key):
            entry[key] = sample[key]
    return entry


def digest(family):
    """A hash of the files that determine a family's data."""
    total = hashlib.sha256()
    for path in (HERE / "kit.py", HERE / "make.py", HERE / "samples" / f"{family}.py"):
        total.update(path.read_bytes())
    return total.hexdigest()


def write(name, family):
    blob, count = Blob(), 0
    rows = []
    for op, samples in sorted(family["ops"].items()):
        entries = [record(s, i, blob) for i, s in enumerate(samples)]
        count += len(entries)
        lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
        rows.append(f"{json.dumps(op)}: [\n{lines}]")
    data = bytes(blob.bytes)
    made = {"torch": torch.__version__.split("+")[0], "numpy": numpy.__version__,
            "seed": kit.SEED, "generator": digest(name), "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "note": "computed by us; no sample code copied"}
    text = (f'{{"made": {json.dumps(made)},\n"exempt": {json.dumps(family["exempt"], indent=1)},\n'
            '"ops": {' + ",\n".join(rows) + "}}\n")
    folder = HERE / "data"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text)
    (folder / f"{name}.bin").write_bytes(data)
    print(f"{name:12} {len(family['ops']):4} ops {count:5} samples "
          f"{(len(text) + len(data)) // 1024:5} KB")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(kit.SEED)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(HERE))
    for path in sorted((HERE / "samples").glob("*.py")):
        kit.family(path.stem)
        importlib.import_module(f"samples.{path.stem}")
    if kit.PROBLEMS:
        sys.exit("\n".join(kit.PROBLEMS))
    for name, family in sorted(kit.FAMILIES.items()):
        write(name, family)
    wanted = {f"{n}.{end}" for n in kit.FAMILIES for end in ("json", "bin")}
    for path in (HERE / "data").iterdir():
        if path.is_file() and path.name not in wanted:
            path.unlink()


if __name__ == "__main__":
    main()

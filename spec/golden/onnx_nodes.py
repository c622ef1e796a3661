"""Writes data/onnx/nodes.npz, the models of spec/io/onnx_nodes_spec.lua: one small model for each
form of each ONNX operator.

    python3 spec/golden/onnx_nodes.py

The models are those of the standard's test cases (onnx.backend.test). The inputs are drawn here,
from the range of the test case's inputs; the results are those of onnx.reference, for test cases
whose own results it gives. The file has one array, the bytes of a safetensors file: NAME/model is a
file of bytes, NAME/in/0 and NAME/out/0 are tensors. Needs onnx and NumPy.
"""

import json
import pathlib
import struct
import warnings
import zlib

import numpy as np
from onnx import checker, defs
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

PATH = pathlib.Path(__file__).parent / "data" / "onnx" / "nodes.npz"
DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
MOST_BYTES = 6000  # of a case
MOST_CASES = 24  # of an operator
MOST_OLDER = 2  # of an operator in an earlier opset
OLDEST = 7  # opset
# Random results, formats of strings and pictures, training.
LEFT_OUT = ("Bernoulli", "Random", "Dropout", "ImageDecoder", "String", "Regex", "TfIdf", "Label",
            "TreeEnsemble", "Momentum", "Adagrad", "Adam", "Multinomial")


def arrays(values):
    return all(isinstance(x, np.ndarray) and str(x.dtype) in DTYPES for x in values)


def same(a, b, scale=1.0):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-4 * scale, atol=1e-5 * scale, equal_nan=True)


def drawn(rng, x):
    """Values of the same range. Integers stay: they may be sizes, axes or positions."""
    if x.dtype.kind != "f" or x.size < 2 or not np.isfinite(x).all():
        return x
    low, high = float(x.min()), float(x.max())
    if np.array_equal(x, np.round(x)) and (low >= 0 or x.size < 8):
        return x  # sizes, scales or boxes
    values = low + (high - low) * rng.random(x.shape)
    return np.clip(np.round(values * 64) / 64, low, high).astype(x.dtype)


def results_of(model, inputs):
    names = [i.name for i in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))


def safetensors(store):
    header, data = {}, b""
    for name, x in store.items():
        header[name] = {"dtype": DTYPES[str(x.dtype)], "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def older(model):
    """The model with the opsets of the operator's earlier forms, where it is valid there."""
    op = model.graph.node[0].op_type
    if len(model.opset_import) > 1 or model.opset_import[0].domain:
        return
    if op == "BatchNormalization":  # the reference trains in opset 9 to 13
        return
    now = model.opset_import[0].version
    since = {s.since_version for s in defs.get_all_schemas_with_history()
             if s.name == op and not s.domain and OLDEST < s.since_version <= now}
    for version in sorted(since):
        copy = type(model)()
        copy.CopyFrom(model)
        copy.opset_import[0].version = version - 1
        try:
            checker.check_model(copy, full_check=True)
            yield version - 1, copy
        except Exception:
            pass


def add(store, seen, name, model, inputs, results):
    """Adds a case; returns False if an equal one is there."""
    copy = type(model)()
    copy.CopyFrom(model)
    copy.producer_name = ""
    copy.graph.name = "g"
    data = copy.SerializeToString()
    key = data + b"".join(np.asarray(x).tobytes() for x in results)
    if key in seen:
        return False
    seen.add(key)
    store[name + "/model"] = np.frombuffer(data, np.uint8)
    for i, x in enumerate(inputs):
        store[f"{name}/in/{i}"] = x
    for i, x in enumerate(results):
        store[f"{name}/out/{i}"] = np.asarray(x)
    return True


def main():
    warnings.filterwarnings("ignore")
    store, count, seen = {}, {}, set()
    for case in collect_testcases(None):
        model, op = case.model, case.model.graph.node[0].op_type
        if "expanded" in case.name or any(word in op for word in LEFT_OUT):
            continue
        inputs, wanted = case.data_sets[0]
        if not arrays(inputs) or not arrays(wanted) or count.get(op, 0) >= MOST_CASES:
            continue
        inputs = [np.asarray(x) for x in inputs]
        size = sum(x.nbytes for x in inputs) + sum(x.nbytes for x in wanted)
        size += model.ByteSize()
        if size > MOST_BYTES:
            continue
        rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        own = [drawn(rng, x) for x in inputs]
        try:
            right = all(same(a, b) for a, b in zip(results_of(model, inputs), wanted))
            got = results_of(model, own) if right else None
        except Exception:  # the reference lacks some forms
            continue
        if not right or not arrays(got):
            continue
        add(store, seen, case.name.removeprefix("test_"), model, own, got)
        count[op] = count.get(op, 0) + 1
        for version, model in older(case.model):
            if count.get((op, version), 0) < MOST_OLDER:
                try:
                    got = results_of(model, own)
                except Exception:
                    continue
                name = f"{case.name.removeprefix('test_')}_opset_{version}"
                if arrays(got) and add(store, seen, name, model, own, got):
                    count[op, version] = count.get((op, version), 0) + 1
    np.savez_compressed(PATH, bytes=np.frombuffer(safetensors(store), np.uint8))
    models = [name for name in store if name.endswith("/model")]
    old = [name for name in models if "_opset_" in name]
    print(len(models), "models,", len(old), "of earlier opsets,", PATH.stat().st_size, "bytes")


if __name__ == "__main__":
    main()

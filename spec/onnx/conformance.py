"""conformance.py -- the node cases of the onnx package, through moth.onnx.load.

    PYTHON spec/onnx/conformance.py [--all] [--op NAME] [--keep FOLDER] [WORDS in names of cases]

PYTHON needs onnx and numpy; the project needs neither, and CI does not run this. Each case has a
model, inputs and outputs. conformance.lua loads the models, runs them and compares, in one process
(another process continues after a crash). The script prints the failed cases with the reason, the
number of cases for each outcome, and the cases out of scope with the reason. It exits with 1 if a
case has wrong numbers, or if less than 95 % of the cases in scope agree.

The scope: the default domain at opset 13 and later; tensors of floats, integers and booleans; no
ops of training, strings, sequences, optional values and random numbers; no element types that Moth
lacks. `--all` prints also why each case outside of the scope fails.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy
import onnx
from onnx import TensorProto as T

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Element types that a safetensors file and Moth have.
NAMES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32",
         "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
HELD = {T.BOOL, T.UINT8, T.INT8, T.INT16, T.INT32, T.INT64, T.FLOAT16, T.BFLOAT16, T.FLOAT,
        T.DOUBLE}
FAMILIES = [
    ("strings", {T.STRING}),
    ("complex numbers", {T.COMPLEX64, T.COMPLEX128}),
    ("float8", {t for name, t in T.DataType.items() if name.startswith("FLOAT8")}),
    ("numbers of 2 and 4 bits", {t for name, t in T.DataType.items()
                                 if name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")}),
    ("unsigned integers of 16, 32 and 64 bits", {T.UINT16, T.UINT32, T.UINT64}),
]
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
          "Multinomial"}
IMAGES = {"ImageDecoder"}


def graphs(graph):
    """The graph and those within its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def types(model):
    """Element types of all values that the file declares, and of the constants in it."""
    for graph in graphs(model.graph):
        for info in [*graph.input, *graph.output, *graph.value_info]:
            kind = info.type.WhichOneof("value")
            yield info.type.tensor_type.elem_type if kind == "tensor_type" else kind
        for tensor in graph.initializer:
            yield tensor.data_type
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    yield attribute.t.data_type
                if attribute.name == "to" or attribute.name.endswith("dtype"):
                    yield attribute.i
                if attribute.name == "value_string" or attribute.name == "value_strings":
                    yield T.STRING


def outside(case):
    """Why a case is out of scope, or None."""
    model = case.model
    version = {o.domain: o.version for o in model.opset_import}
    for domain in version:
        if domain not in ("", "ai.onnx"):
            return "training" if domain.endswith("training") else "domain " + domain
    found = set(types(model))
    for kind in found:
        if isinstance(kind, str):
            return "optional values" if "optional" in kind else "sequences"
    for name, family in FAMILIES:
        if found & family:
            return name
    ops = {node.op_type for graph in graphs(model.graph) for node in graph.node}
    if any("Sequence" in op and op != "ReverseSequence" for op in ops):
        return "sequences"
    if ops & RANDOM or "training_dropout" in case.name and "zero_ratio" not in case.name:
        return "random numbers"
    if version.get("", 1) < 13:
        return "opset below 13"
    return None


def array(x):
    """A value of a case as an array; None if it is none."""
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return numpy.asarray(x) if isinstance(x, numpy.ndarray | numpy.generic) else None


def runnable(case):
    """Can its values be given to Moth?"""
    values = [array(x) for inputs, outputs in case.data_sets for x in [*inputs, *outputs]]
    return all(x is not None and x.dtype.name in NAMES for x in values)


def write_tensors(path, tensors):
    """A safetensors file."""
    header, parts, at = {}, [], 0
    for name, x in tensors.items():
        x = array(x)
        data = numpy.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": NAMES[x.dtype.name], "shape": list(x.shape),
                        "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


def write(case, folder):
    place = os.path.join(folder, case.name)
    os.mkdir(place)
    with open(os.path.join(place, "model.onnx"), "wb") as file:
        file.write(case.model.SerializeToString())
    for i, (inputs, outputs) in enumerate(case.data_sets):
        tensors = {f"in{k}": x for k, x in enumerate(inputs)}
        tensors.update({f"out{k}": x for k, x in enumerate(outputs)})
        write_tensors(os.path.join(place, f"set{i}.safetensors"), tensors)
    return f"{case.name}\t{len(case.data_sets)}\t{case.rtol}\t{max(case.atol, 1e-5)}"


def run(lines, folder):
    """name -> (outcome, reason)."""
    results, rest = {}, lines
    while rest:
        with open(os.path.join(folder, "list"), "w") as file:
            file.write("".join(line + "\n" for line in rest))
        done = subprocess.run([os.path.join(ROOT, "moth"), os.path.join(HERE, "conformance.lua"),
                               folder], stdout=subprocess.PIPE, text=True)
        for line in done.stdout.splitlines():
            outcome, name, reason = line.split("\t", 2)
            results[name] = (outcome, reason)
        left = [line for line in rest if line.split("\t")[0] not in results]
        if left:
            results[left[0].split("\t")[0]] = ("error", f"the process ended: {done.returncode}")
        rest = left[1:]
    return results


def main():
    parser = argparse.ArgumentParser(description="Runs ONNX's node cases through moth.onnx.load.")
    parser.add_argument("words", nargs="*", help="run the cases whose name contains one of these")
    parser.add_argument("--all", action="store_true", help="print failures out of scope, too")
    parser.add_argument("--op", help="run the cases of one op")
    parser.add_argument("--keep", help="a new folder that keeps the cases")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    numpy.seterr(all="ignore")
    from onnx.backend.test.case.node import collect_testcases
    cases = [case for case in collect_testcases(options.op)
             if not options.words or any(word in case.name for word in options.words)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        os.makedirs(folder, exist_ok=True)
        reasons = {case.name: outside(case) for case in cases}
        lines = [write(case, folder) for case in cases if runnable(case)]
        results = run(lines, folder)
    inside = [case.name for case in cases if reasons[case.name] is None]
    counts, beyond = collections.Counter(), collections.defaultdict(collections.Counter)
    for case in cases:
        outcome, text = results.get(case.name, ("values that Moth lacks", ""))
        reason = reasons[case.name]
        if outcome == "wrong" and reason == "random numbers":
            outcome = "other numbers drawn"
        if reason is None:
            counts[outcome] += 1
        else:
            beyond[reason][outcome] += 1
        if outcome != "agree" and text and (reason is None or options.all or outcome == "wrong"):
            print(f"{outcome:18} {case.name:60} {text}")
    print(f"\nonnx {onnx.__version__}: {len(cases)} cases, {len(inside)} in scope")
    for outcome, count in counts.most_common():
        print(f"{count:6}  {100 * count / max(len(inside), 1):5.1f} %  {outcome}")
    print("\nOut of scope (also run, where Moth has the element types):")
    for reason, outcomes in sorted(beyond.items(), key=lambda item: -sum(item[1].values())):
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        print(f"{sum(outcomes.values()):6}  {reason}: {told}")
    wrong = counts["wrong"] + sum(outcomes["wrong"] for outcomes in beyond.values())
    sys.exit(0 if wrong == 0 and counts["agree"] >= 0.95 * len(inside) else 1)


if __name__ == "__main__":
    main()

"""Checks the ONNX files that Moth writes with onnx.checker and with onnxruntime.

    ./moth spec/golden/write_onnx.lua FOLDER && python3 spec/golden/check_onnx.py FOLDER

The first command writes each net of spec/support/onnx_cases.lua as FOLDER/N.onnx, with its inputs,
other inputs if axes are dynamic, and Moth's results for both. Needs onnx and onnxruntime; run by
hand.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

RTOL, ATOL = 1e-4, 1e-5


def tensor(record, folder):
    bytes_ = (folder / record["file"]).read_bytes()
    return np.frombuffer(bytes_, dtype=record["dtype"]).reshape(record["shape"])


def check(folder, row, worst):
    path = folder / row["model"]
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for run in row["runs"]:
        names = [x.name for x in session.get_inputs()]
        given = {n: tensor(x, folder) for n, x in zip(row["inputs"], run["inputs"])}
        results = session.run(None, {n: given[n] for n in names})
        for got, record in zip(results, run["outputs"], strict=True):
            wanted = tensor(record, folder)
            assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got, wanted)
            np.testing.assert_allclose(got, wanted, RTOL, ATOL)
            if got.dtype.kind == "f" and got.size:
                worst[0] = max(worst[0], float(np.abs(got - wanted).max()))


def main():
    folder = pathlib.Path(sys.argv[1])
    onnxruntime.set_default_logger_severity(3)
    bad, rows, worst = 0, json.loads((folder / "cases.json").read_text()), [0.0]
    for row in rows:
        try:
            check(folder, row, worst)
        except Exception as problem:  # the next case is checked as well
            bad += 1
            print(f"{row['model']} {row['name']}: {str(problem)[:400]}")
    print(f"{len(rows) - bad} of {len(rows)} nets agree, the largest difference is {worst[0]:.2g}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

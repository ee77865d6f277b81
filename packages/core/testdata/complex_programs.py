"""Runs the programs of src/test/complex-programs.ts with NumPy: a JSON list on stdin, their results as JSON on stdout.

    WEFT_FUZZ=2000 node --test packages/engine/dist/test/complex-programs.test.js
"""
import json
import sys

import numpy as np


def run(program):
    values = []
    dtype = np.dtype("complex128" if program["dtype"].startswith("complex") else "float64")
    for s in program["steps"]:
        op = s["op"]
        if op == "input":
            z = np.array(s["re"], float) + (1j * np.array(s["im"], float) if dtype.kind == "c" else 0)
            values.append(z.astype(dtype).reshape(s["shape"]))
            continue
        if op == "concat":
            values.append(np.concatenate([values[k] for k in s["xs"]], s["axis"]))
            continue
        x = values[s["x"]]
        if op == "pad":
            y = np.pad(x, s["widths"])
        elif op == "roll":
            y = np.roll(x, s["by"], s["axis"])
        elif op == "slice":
            y = x[tuple(slice(a, b, c) for a, b, c in zip(s["start"], s["stop"], s["step"]))]
        elif op == "flip":
            y = np.flip(x, s["axis"])
        elif op == "take":
            y = np.take(x, s["ids"], s["axis"])
        elif op == "permute":
            y = np.transpose(x, s["axes"])
        elif op == "reshape":
            y = np.reshape(x, s["shape"])
        elif op == "sum":
            y = np.sum(x, s["axis"])
        elif op in ("add", "sub", "mul"):
            y = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op](x, values[s["y"]])
        elif op == "conj":
            y = np.conj(x)
        elif op == "neg":
            y = -x
        elif op == "swap":
            y = x.imag + 1j * x.real if dtype.kind == "c" else x
        elif op == "where":
            y = np.where(values[s["c"]].real > 0, x, values[s["y"]])
        elif op == "scatter":
            y = np.zeros(s["size"], dtype)
            np.add.at(y, s["ids"], x)
        values.append(y)
    return [
        {"shape": list(y.shape), "re": [int(v) for v in y.real.ravel()], "im": [int(v) for v in y.imag.ravel()]}
        for y in (values[k] for k in program["results"])
    ]


json.dump([run(p) for p in json.load(sys.stdin)], sys.stdout, separators=(",", ":"))

"""Writes complex-edges.json: complex functions of NumPy (C99, annex G) at every pair of special and extreme parts.

    python3 packages/core/testdata/complex_edges.py

Results of complex64 are those of complex128, rounded once. A zero or an infinity whose sign C99 leaves open is written as 0? or inf?.
"""
import json
from pathlib import Path

import numpy as np

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "abs": np.abs, "angle": np.angle,
}
SPECIAL = [-np.inf, -1.0, -0.0, 0.0, 1.0, 20.0, np.inf, np.nan]
PARTS = {"complex64": [-1e38, -89.0, *SPECIAL, 89.0, 1e38], "complex128": [-1e300, -710.0, *SPECIAL, 710.0, 1e300]}
ALONG_IMAGINARY = ("exp", "exp2", "sinh", "cosh", "tanh")
ALONG_REAL = ("sin", "cos", "tan")


def is_open(name, z):
    if np.isnan(z.real) or np.isnan(z.imag):
        return True
    return (name in ALONG_IMAGINARY and np.isinf(z.imag)) or (name in ALONG_REAL and np.isinf(z.real))


def text(x, digits, is_open):
    if is_open and (x == 0 or np.isinf(x)):
        return f"{abs(x):g}?"
    return f"{x:.{digits}g}"


def table(dtype):
    parts = np.array(PARTS[dtype]).astype(np.float32 if dtype == "complex64" else np.float64).astype(np.float64)
    digits = 9 if dtype == "complex64" else 17
    z = np.array([complex(a, b) for a in parts for b in parts])
    lines = {"parts": " ".join(text(x, digits, False) for x in parts)}
    for name, f in FUNCTIONS.items():
        y = f(z)
        if dtype == "complex64":
            y = y.astype(np.complex64 if y.dtype.kind == "c" else np.float32)
        rows = y.view(y.real.dtype).reshape(len(z), -1)
        lines[name] = " ".join(text(x, digits, is_open(name, at)) for at, row in zip(z, rows) for x in row)
    return lines


with np.errstate(all="ignore"):
    tables = {dtype: table(dtype) for dtype in PARTS}
Path(__file__).with_name("complex-edges.json").write_text(json.dumps(tables, indent=2) + "\n")

#!/usr/bin/env python3
"""Writes src/test/testdata/edges.ts: exact answers to the engine's edge values (src/test/cases/edges.ts).

Build the engine first; needs NumPy 2, SciPy and mpmath. Finite results of functions come from mpmath and are rounded once;
arithmetic, orders and special values are NumPy's. One line per edge: name, digest, results as [shape, numbers].
"""
import json
import subprocess
from pathlib import Path

import mpmath as mp
import numpy as np
from scipy import special

package = Path(__file__).resolve().parent.parent
mp.mp.prec = 1400
np.seterr(all="ignore")

root2 = mp.sqrt(2)
functions = {
    "rsqrt": (lambda x: 1 / mp.sqrt(x), lambda a: 1 / np.sqrt(a)),
    "reciprocal": (lambda x: 1 / x, lambda a: 1 / a),
    "log2": (lambda x: mp.log(x) / mp.log(2), np.log2),
    "log10": (mp.log10, np.log10),
    "asin": (mp.asin, np.arcsin),
    "acos": (mp.acos, np.arccos),
    "atan": (mp.atan, np.arctan),
    "erf": (mp.erf, special.erf),
    "erfc": (mp.erfc, special.erfc),
    "sigmoid": (lambda x: 1 / (1 + mp.exp(-x)), special.expit),
    # At -infinity the product of infinity and 0, as PyTorch and JAX have it.
    "silu": (lambda x: x / (1 + mp.exp(-x)), lambda a: a * special.expit(a)),
    "gelu": (lambda x: x * mp.erfc(-x / root2) / 2, lambda a: a * (special.erfc(-a) / 2)),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), lambda a: np.logaddexp(a, 0)),
    "logSigmoid": (lambda x: -mp.log1p(mp.exp(-x)), lambda a: -np.logaddexp(-a, 0)),
}
exact = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc}
growing = {"exp", "expm1", "sinh", "cosh", "tanh", "sigmoid", "silu", "softplus", "logSigmoid", "erf", "erfc", "gelu"}


def precise(name, a):
    if name in exact:
        return exact[name](a)
    exactly, plain = functions.get(name, (getattr(mp, name, None), getattr(np, name, None)))
    out = np.empty_like(a)
    for i, x in enumerate(a):
        # Zeros keep NumPy's signs; what has left every range needs no digits.
        if not np.isfinite(x) or x == 0 or (name in growing and abs(x) > 2000):
            out[i] = plain(a[i : i + 1].astype(np.float64))[0]
            continue
        try:
            value = exactly(mp.mpf(float(x)))
            out[i] = float(value) if isinstance(value, mp.mpf) else np.nan
        except (ValueError, ZeroDivisionError):
            out[i] = plain(a[i : i + 1])[0]
    return out


complex_functions = {
    "abs": lambda z: mp.mpc(abs(z)),
    "sign": lambda z: z / abs(z) if z else z,
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "reciprocal": lambda z: 1 / z,
}


def rounded_complex(z, dtype):
    part = np.float32 if dtype == np.complex64 else np.float64
    return complex(part(float(z.real)), part(float(z.imag)))


def precise_complex(name, a):
    exactly = complex_functions.get(name, getattr(mp, name, None))
    out = np.empty_like(a)
    for i, z in enumerate(a):
        z = complex(z)
        # An argument that large has its result in no range: 0, 1 or infinite parts of one sign each.
        x, y = (z.imag, z.real) if name in ("sin", "cos") else (z.real, z.imag)
        if name in ("exp", "sin", "cos", "sinh", "cosh", "tanh") and abs(x) > 3000:
            x = np.copysign(3000.0, x)
        z = mp.mpc(y, x) if name in ("sin", "cos") else mp.mpc(x, y)
        try:
            out[i] = rounded_complex(exactly(z), a.dtype)
        except (ZeroDivisionError, ValueError):
            w = a[i : i + 1]
            out[i] = {"log": np.log, "reciprocal": lambda v: 1 / v, "rsqrt": lambda v: 1 / np.sqrt(v)}[name](w)[0]
    return out.real if name == "abs" else out


def precise_quotient(a, b):
    pairs = zip(a, b)
    return np.array(
        [rounded_complex(mp.mpc(complex(x)) / mp.mpc(complex(y)), a.dtype) if y else x / y for x, y in pairs], a.dtype
    )


def halves(x):
    return x // 2**32, x % 2**32


ends = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")}


def converted(a, dtype):
    """Floats truncate into integers and saturate, NaN becomes 0; integers wrap; complex numbers lose their imaginary part."""
    if np.iscomplexobj(a) and not dtype.startswith("complex") and dtype != "bool":
        a = a.real
    if dtype not in ends or a.dtype.kind in "iub":
        return a.astype(dtype)
    low, high = ends[dtype]
    return np.array([0 if np.isnan(x) else min(high, max(low, int(x))) if np.isfinite(x) else high if x > 0 else low for x in a], dtype)


def load(host):
    numbers = [float(x) for x in host["data"]]
    kind = host["dtype"]
    if kind.startswith("complex"):
        return np.array([complex(re, im) for re, im in zip(numbers[::2], numbers[1::2])]).astype(kind)
    if kind in ("int64", "uint64"):
        return np.array([int(x) for x in numbers], kind)
    return np.array(numbers, np.float64).astype(kind)


def plain(x):
    if isinstance(x, (np.integer, np.bool_)):
        return str(int(x))
    if not np.isfinite(x):
        return "NaN" if np.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    return str(int(x)) if float(x).is_integer() and abs(x) < 2**53 and not (x == 0 and np.signbit(x)) else repr(float(x))


def flat(result):
    result = np.asarray(result)
    values = result.reshape(-1)
    if np.iscomplexobj(result):
        values = np.stack([values.real, values.imag], -1).reshape(-1)
    return f"[[{','.join(map(str, result.shape))}],[{','.join(plain(x) for x in values)}]]"


dump = json.loads(subprocess.check_output(["node", package / "dist/test/golden.js", "edges"]))
lines = []
for case in dump:
    scope = {**globals(), **dict(zip("abcd", map(load, case["inputs"])))}
    result = eval(case["np"], scope)
    results = result if isinstance(result, (tuple, list)) else (result,)
    lines.append(f"{json.dumps(case['name'])}: [{json.dumps(case['digest'])},[{','.join(flat(r) for r in results)}]],")
out = package / "src/test/testdata/edges.ts"
out.write_text(
    "// Generated by make_edges.py: exact answers to the edge values, one per line. Do not edit.\n"
    "export const edgeAnswers: Record<string, [string, [number[], number[]][]]> = {\n" + "\n".join(lines) + "\n};\n"
)
print(f"{len(lines)} edges")

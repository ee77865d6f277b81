"""What random programs of mixed dtypes compute, by NumPy: values in float64, complex128 or the integer dtype itself, beside the name of
the dtype. The rules of dtypes are written here from docs/tensors.md, not taken from the engine."""
import json
from math import inf, nan
import numpy as np

np.seterr(all="ignore")
results = []
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def kind(d):
    return 0 if d == "bool" else 1 if d in INTS else 2 if d in FLOATS else 3


def held(d):
    return [np.bool_, np.dtype(d) if d in INTS else None, np.float64, np.complex128][kind(d)]


class V:
    def __init__(self, a, d):
        self.a, self.d = np.asarray(a).astype(held(d)), d


def promote(p, q):
    if kind(p) > kind(q):
        p, q = q, p
    if kind(p) != kind(q):
        return "complex128" if q == "complex64" and p == "float64" else q
    if kind(p) == 2:
        if {p, q} == {"float16", "bfloat16"}:
            return "float32"
        return max(p, q, key=lambda d: int("".join(c for c in d if c.isdigit())))
    return str(np.result_type(np.dtype(p), np.dtype(q)))


def given(data, shape, d):
    if kind(d) == 3:
        data = np.array(data[0::2], np.float64) + 1j * np.array(data[1::2], np.float64)
    return V(np.array(data, np.float64 if kind(d) == 2 else None).reshape(shape), d)


def as_type(v, d):
    return v.a.astype(held(d))


def promoted(fn, x, y):
    d = promote(x.d, y.d)
    return V(fn(as_type(x, d), as_type(y, d)), d)


def compared(fn, x, y):
    return V(fn(x.a, y.a), "bool")


def scaled(fn, x, c):
    d = "float32" if kind(x.d) == 1 and c != int(c) else x.d
    return V(fn(as_type(x, d), np.asarray(c).astype(held(d))), d)


def chosen(test, x, y):
    d = promote(x.d, y.d)
    return V(np.where(test, as_type(x, d), as_type(y, d)), d)


def joined(fn, values, axis):
    d = values[0].d
    for v in values:
        d = promote(d, v.d)
    return V(fn([as_type(v, d) for v in values], axis), d)


def converted(x, d):
    return V(x.a.astype(held(d)), d)


def one(x):
    return np.ones((), x.a.dtype)


def part(x, name):
    return V(getattr(x.a, name), "float32" if x.d == "complex64" else "float64")


def total(d):
    return d if kind(d) > 1 else "uint64" if d.startswith("u") else "int64"


def summed(x, axis, keep):
    return V(np.sum(x.a, axis=axis, keepdims=keep, dtype=held(total(x.d))), total(x.d))


def accumulated(x, axis):
    return V(np.cumsum(x.a, axis, dtype=held(total(x.d))), total(x.d))


def tame(x):
    def half(a):
        return np.floor(np.clip(a, -8, 8) * 2) / 2

    if kind(x.d) == 3:
        return V(half(x.a.real) + 1j * half(x.a.imag), x.d)
    if kind(x.d) == 2:
        return V(half(x.a), x.d)
    return x if x.d == "bool" else V(np.mod(x.a, np.array(9, x.a.dtype)), x.d)


def text(x):
    return "nan" if x != x else str(float(x) + 0.0)


def show(v):
    flat = v.a.reshape(-1)
    if kind(v.d) == 3:
        flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
    return [v.d, list(v.a.shape), [text(x) for x in flat.tolist()]]

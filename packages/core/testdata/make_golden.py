#!/usr/bin/env python3
"""Writes src/test/testdata/golden.ts: NumPy's and SciPy's answers to the engine's test cases.

Build the engine first; needs NumPy 2 and SciPy. One line a case: name, digest of expression and inputs, results as
[shape, numbers], complex numbers as interleaved pairs.
"""
import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
from scipy import linalg, special

package = Path(__file__).resolve().parent.parent


def ct(x):
    return np.conj(np.swapaxes(x, -1, -2))


def add_along(base, index, updates, axis):
    out = base.copy()
    for at in np.ndindex(index.shape):
        i = index[at] + (base.shape[axis] if index[at] < 0 else 0)
        if 0 <= i < base.shape[axis]:
            out[at[:axis] + (i,) + at[axis + 1:]] += updates[at]
    return out


def add_rows(base, index, updates):
    out = base.copy()
    np.add.at(out, index, updates)
    return out


def scatter(base, index, updates, mode):
    """Updates along the last axis, one after the other; indices out of range are dropped."""
    out = base.copy()
    n = base.shape[-1]
    combine = {"set": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: old * new,
               "min": np.minimum, "max": np.maximum}[mode]
    for at in np.ndindex(index.shape):
        i = index[at] + n if index[at] < 0 else index[at]
        if 0 <= i < n:
            out[at[:-1] + (i,)] = combine(out[at[:-1] + (i,)], updates[at])
    return out


def segment(x, ids, count, mode):
    start = {"add": 0.0, "mul": 1.0, "min": np.inf, "max": -np.inf}[mode]
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
    out = np.full((count, *x.shape[1:]), start)
    for row, i in zip(x, ids):
        if 0 <= i < count:
            out[i] = combine(out[i], row)
    return out


def cosine(a, b):
    return np.sum(a * b, -1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def ctc(logits, labels, frames, counts):
    """All alignments one by one: a path is a label sequence once repetitions and then blanks (class 0) are removed."""
    p = special.log_softmax(logits, -1)
    losses = []
    for b in range(logits.shape[1]):
        wanted = tuple(labels[b, :counts[b]])
        total = -np.inf
        for path in np.ndindex(*[logits.shape[2]] * int(frames[b])):
            merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
            if tuple(c for c in merged if c != 0) == wanted:
                total = np.logaddexp(total, sum(p[t, b, c] for t, c in enumerate(path)))
        losses.append(-total)
    losses = np.array(losses)
    return losses, np.mean(losses / np.maximum(counts, 1))


def one_hot(classes, count):
    return (classes[..., None] == np.arange(count)).astype(np.float64)


def layer_norm(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def conv(x, w, stride=1, padding=0, dilation=1, groups=1):
    spatial = x.ndim - 2
    spread = lambda v: [v] * spatial if np.isscalar(v) else list(v)
    stride, dilation = spread(stride), spread(dilation)
    if padding == "same":
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:])]
        totals = [max(0, (-(-n // s) - 1) * s + span - n) for n, s, span in zip(x.shape[2:], stride, spans)]
        around = [(t // 2, t - t // 2) for t in totals]
    elif padding == "valid":
        around = [(0, 0)] * spatial
    else:
        around = [(p, p) if np.isscalar(p) else tuple(p) for p in spread(padding)]
    x = np.pad(x, [(0, 0), (0, 0)] + around)
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilation, w.shape[2:], stride)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    per_group = w.shape[0] // groups
    for b, o in np.ndindex(x.shape[0], w.shape[0]):
        first = (o // per_group) * w.shape[1]
        for at in np.ndindex(*sizes):
            for c in range(w.shape[1]):
                for k in np.ndindex(*w.shape[2:]):
                    where = tuple(a * s + i * d for a, s, i, d in zip(at, stride, k, dilation))
                    out[(b, o, *at)] += x[(b, first + c, *where)] * w[(o, c, *k)]
    return out


def conv_transpose(x, w, stride=1, padding=0, outputPadding=0, dilation=1, groups=1):
    """Every input element adds its multiple of the kernel to the result."""
    spatial = x.ndim - 2
    spread = lambda v: [v] * spatial if np.isscalar(v) else list(v)
    stride, dilation, extra = spread(stride), spread(dilation), spread(outputPadding)
    around = [(p, p) if np.isscalar(p) else tuple(p) for p in spread(padding)]
    whole = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(x.shape[2:], stride, dilation, w.shape[2:], extra)]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *whole), x.dtype)
    per_group = w.shape[0] // groups
    for b, c in np.ndindex(*x.shape[:2]):
        first = (c // per_group) * w.shape[1]
        for at in np.ndindex(*x.shape[2:]):
            for o in range(w.shape[1]):
                for k in np.ndindex(*w.shape[2:]):
                    where = tuple(a * s + i * d for a, s, i, d in zip(at, stride, k, dilation))
                    out[(b, first + o, *where)] += x[(b, c, *at)] * w[(c, o, *k)]
    return out[(slice(None), slice(None), *(slice(l, n - h) for (l, h), n in zip(around, whole)))]


def last(fn, x, *args, **options):
    """A function of images with channels second, for images with channels last."""
    return np.moveaxis(fn(np.moveaxis(x, -1, 1), *args, **options), 1, -1)


def spatial_list(value, count):
    return [value] * count if np.isscalar(value) else list(value)


def pool(x, kind, options):
    """Every window by itself, from the definition of PyTorch's documentation."""
    if options.pop("channelsLast", False):
        return np.moveaxis(pool(np.moveaxis(x, -1, 1), kind, options), 1, -1)
    count = x.ndim - 2
    k = spatial_list(options["kernel"], count)
    s = spatial_list(options.get("stride", k), count)
    p = spatial_list(options.get("padding", 0), count)
    d = spatial_list(options.get("dilation", 1), count)
    up = options.get("ceilMode", False)
    sizes = []
    for n, kk, ss, pp, dd in zip(x.shape[2:], k, s, p, d):
        steps = (n + 2 * pp - dd * (kk - 1) - 1) / ss
        out = int(np.ceil(steps) if up else np.floor(steps)) + 1
        if up and (out - 1) * ss >= n + pp:
            out -= 1
        sizes.append(out)
    out = np.zeros((*x.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        inside = [[a * ss - pp + i * dd for i in range(kk)] for a, ss, pp, kk, dd in zip(at, s, p, k, d)]
        kept = [[i for i in line if 0 <= i < n] for line, n in zip(inside, x.shape[2:])]
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *kept)].reshape(*x.shape[:2], -1)
        if kind == "max":
            out[(slice(None), slice(None), *at)] = window.max(-1)
        else:
            whole = [sum(1 for i in line if i < n + pp) for line, n, pp in zip(inside, x.shape[2:], p)]
            area = np.prod(whole) if options.get("countIncludePad", True) else window.shape[-1]
            out[(slice(None), slice(None), *at)] = window.sum(-1) / area
    return out


def adaptive_pool(x, kind, size):
    sizes = spatial_list(size, x.ndim - 2)
    out = np.zeros((*x.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        cut = tuple(slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(at, x.shape[2:], sizes))
        window = x[(slice(None), slice(None), *cut)].reshape(*x.shape[:2], -1)
        out[(slice(None), slice(None), *at)] = window.max(-1) if kind == "max" else window.mean(-1)
    return out


def interpolate(x, options):
    if options.pop("channelsLast", False):
        return np.moveaxis(interpolate(np.moveaxis(x, -1, 1), options), 1, -1)
    count = x.ndim - 2
    mode, align = options.get("mode", "nearest"), options.get("alignCorners", False)
    scale = spatial_list(options["scale"], count) if "scale" in options else None
    sizes = spatial_list(options["size"], count) if scale is None else [int(n * f) for n, f in zip(x.shape[2:], scale)]
    for i, out in enumerate(sizes):
        n = x.shape[2 + i]
        ratio = n / out if scale is None else 1 / scale[i]
        matrix = np.zeros((out, n))
        for o in range(out):
            if mode == "nearest":
                matrix[o, min(int(o * ratio), n - 1)] = 1
                continue
            at = (o * (n - 1) / (out - 1) if out > 1 else 0) if align else (o + 0.5) * ratio - 0.5
            if mode == "linear":
                at = max(at, 0)
            low = int(np.floor(at))
            reach = range(low, low + 2) if mode == "linear" else range(low - 1, low + 3)
            for j in reach:
                t = abs(at - j)
                if mode == "linear":
                    w = 1 - t
                else:
                    w = 1.25 * t**3 - 2.25 * t**2 + 1 if t <= 1 else -0.75 * t**3 + 3.75 * t**2 - 6 * t + 3
                matrix[o, min(max(j, 0), n - 1)] += w
        x = np.moveaxis(np.tensordot(x, matrix, ([2 + i], [1])), -1, 2 + i)
    return x


def fold(x, kernel, height, width):
    n, channels = x.shape[0], x.shape[1] // kernel**2
    out = np.zeros((n, channels, height, width))
    across = width - kernel + 1
    for c, i, j, at in np.ndindex(channels, kernel, kernel, x.shape[2]):
        out[:, c, at // across + i, at % across + j] += x[:, (c * kernel + i) * kernel + j, at]
    return out


def max_unpool2d(x):
    """Places of the maxima of windows of two by two elements, and the maxima at their places."""
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    at = parts.argmax(-1)
    rows, columns = np.meshgrid(np.arange(h // 2) * 2, np.arange(w // 2) * 2, indexing="ij")
    places = ((rows + at // 2) * w + columns + at % 2).astype(np.int32)
    out = np.zeros((n, c, h * w), x.dtype)
    np.put_along_axis(out, places.reshape(n, c, -1), parts.max(-1).reshape(n, c, -1), -1)
    return places, out.reshape(x.shape)


def grid_sample(x, grid, padding, align, nearest):
    def pixel(image, row, column):
        inside = 0 <= row < image.shape[1] and 0 <= column < image.shape[2]
        return image[:, int(row), int(column)] if inside else np.zeros(image.shape[0])

    def place(g, n):
        at = (g + 1) / 2 * (n - 1) if align else ((g + 1) * n - 1) / 2
        low, high = (0, n - 1) if align else (-0.5, n - 0.5)
        while padding == "reflection" and not low <= at <= high:
            at = 2 * low - at if at < low else 2 * high - at
        return at if padding == "zeros" else min(max(at, 0), n - 1)

    out = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:3]))
    for n, i, j in np.ndindex(*grid.shape[:3]):
        column, row = place(grid[n, i, j, 0], x.shape[3]), place(grid[n, i, j, 1], x.shape[2])
        if nearest:
            out[n, :, i, j] = pixel(x[n], np.round(row), np.round(column))
            continue
        top, left = np.floor(row), np.floor(column)
        for r, c in ((top, left), (top + 1, left), (top, left + 1), (top + 1, left + 1)):
            out[n, :, i, j] += pixel(x[n], r, c) * (1 - abs(row - r)) * (1 - abs(column - c))
    return out


def triangles(a, lower):
    t = np.tril(a) if lower else np.triu(a)
    unit = (np.tril(a, -1) if lower else np.triu(a, 1)) + np.eye(a.shape[-1])
    return t, unit


def fixed_phase(v):
    """Each column turned so that its first component of nearly largest size is real and positive."""
    size = np.abs(v)
    pivot = np.argmax(size >= 0.999 * size.max(-2, keepdims=True), axis=-2)
    chosen = np.take_along_axis(v, pivot[..., None, :], -2)
    return v * np.conj(chosen) / np.abs(chosen)


def positive_qr(a):
    q, r = np.linalg.qr(a)
    d = np.diagonal(r, axis1=-2, axis2=-1)
    phase = d / np.abs(d)
    return q * phase[..., None, :], np.conj(phase)[..., :, None] * r


def svd_parts(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return s, (u * (s * s)[..., None, :]) @ vh, u @ ct(u), ct(vh) @ vh


def lu_parts(a):
    flat = a.reshape(-1, *a.shape[-2:])
    parts = []
    for x in flat:
        p, l, u = linalg.lu(x)
        parts.append((l, u, np.argmax(np.abs(p), axis=0).astype(float), l @ u))
    return tuple(np.stack(v).reshape(*a.shape[:-2], *v[0].shape) for v in zip(*parts))


def eig_parts(a):
    powers = [np.trace(np.linalg.matrix_power(a, k), axis1=-2, axis2=-1) + 0j for k in (1, 2, 3)]
    return (*powers, a @ a + 0j, np.ones(a.shape[:-1]))


def full_svd_parts(a):
    u, s, vh = np.linalg.svd(a)
    thin = u[..., :s.shape[-1]]
    return s, ct(u) @ u, vh @ ct(vh), thin @ ct(thin)


def complete_r(a):
    r = positive_qr(a)[1]
    return np.concatenate([r, np.zeros((a.shape[0] - r.shape[0], r.shape[1]), r.dtype)])


def lstsq_parts(a, b, v, w):
    x, residuals, rank, s = np.linalg.lstsq(a, b, rcond=None)
    return x, residuals, rank, s, np.linalg.lstsq(a, v, rcond=None)[0], np.linalg.lstsq(w, np.ones(2), rcond=None)[0]


storage = {"float16": np.float64, "bfloat16": np.float64, "bool": np.bool_}


def load(host):
    numbers = [float(x) for x in host["data"]]
    kind = host["dtype"]
    if kind.startswith("complex"):
        flat = np.array([complex(re, im) for re, im in zip(numbers[::2], numbers[1::2])], np.complex128)
    else:
        flat = np.array(numbers, np.float64).astype(storage.get(kind, kind))
    return flat.reshape(host["shape"])


def plain(x):
    """The shortest text that still tells apart what float64 tells apart here: 15 digits."""
    if not np.isfinite(x):
        return "NaN" if np.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    short = float(f"{x:.15g}")
    return str(int(x)) if float(x).is_integer() and abs(x) < 2**53 else repr(short if np.isfinite(short) else float(x))


def flat(result):
    result = np.asarray(result)
    values = result.reshape(-1)
    if np.iscomplexobj(result):
        values = np.stack([values.real, values.imag], -1).reshape(-1)
    return f"[[{','.join(map(str, result.shape))}],[{','.join(plain(x) for x in values)}]]"


np.seterr(all="ignore")
dump = json.loads(subprocess.check_output(["node", package / "dist/test/golden.js"]))
lines = []
for case in dump:
    scope = {"np": np, "linalg": linalg, "special": special, **globals(), **dict(zip("abcd", map(load, case["inputs"])))}
    result = eval(case["np"], scope)
    results = result if isinstance(result, (tuple, list)) else (result,)
    lines.append(f"{json.dumps(case['name'])}: [{json.dumps(case['digest'])},[{','.join(flat(r) for r in results)}]],")
out = package / "src/test/testdata/golden.ts"
out.write_text(
    "// Generated by make_golden.py: NumPy's answers, one case a line. Do not edit.\n"
    "export const golden: Record<string, [string, [number[], number[]][]]> = {\n" + "\n".join(lines) + "\n};\n"
)
print(f"{len(lines)} cases")

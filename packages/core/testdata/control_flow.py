"""Values and derivatives of the programs of src/test/control-programs.ts, computed by jax.lax.

    python packages/core/testdata/control_flow.py > packages/core/testdata/control-flow.json
"""
import json
import sys

import jax
import jax.numpy as jnp
from jax import lax

jax.config.update("jax_enable_x64", True)


def newton(a):
    def far(c):
        return jnp.abs(c * c - a) > 1e-13 * a

    return lax.while_loop(far, lambda c: 0.5 * (c + a / c), jnp.maximum(a, 1.0))


def collatz(x, n):
    def step(c):
        k, acc = c
        k = jnp.where(k % 2 == 0, k // 2, 3 * k + 1)
        return k, acc * 0.9 + jnp.sin(x * k)

    return lax.while_loop(lambda c: c[0] != 1, step, (n, x))[1]


def power(x, n):
    return lax.fori_loop(0, n, lambda i, c: c * x + i * 0.1, jnp.ones_like(x))


def choose(x, y):
    return lax.cond(jnp.sum(x) > 0, lambda u, v: jnp.sin(u) * v, lambda u, v: u * v * v + jnp.exp(v), x, y)


def table(x, n):
    return lax.switch(n, [lambda u: u + 1, lambda u: u * u * u, lambda u: jnp.cos(u) * jnp.sum(u)], x)


def until(x, limit):
    def step(c, v):
        run = c < limit
        new = c + v * v
        return jnp.where(run, new, c), jnp.where(run, new * v, 0.0)

    last, ys = lax.scan(step, jnp.zeros(()), x)
    return last + jnp.sum(ys * jnp.arange(1, ys.shape[0] + 1))


def nested(x, n):
    def outer(i, c):
        def body(s):
            return s[0] + 1, s[1] * 0.5 + jnp.sin(s[1] * x)

        inner = lax.while_loop(lambda s: s[0] < i, body, (jnp.zeros((), jnp.int32), c))[1]
        return lax.cond(jnp.sum(inner) > 1.0, lambda v: jnp.cos(v), lambda v: v + 0.3, inner)

    return lax.fori_loop(0, n, outer, x)


def cache(x, y, n):
    # JAX counts negative starts from the end; Weft clamps them to 0.
    at = lambda k: jnp.maximum(k, 0)
    moved = lax.dynamic_update_slice(x, y * y, (at(n), at(n - 1)))
    row = lax.dynamic_slice(moved, (at(n + 1), jnp.int32(0)), (2, 3))
    return moved * 0.5 + lax.dynamic_update_slice(x, jnp.sin(row), (0, 1))


def filled(x, n):
    step = lambda i, c: lax.dynamic_update_slice(c, lax.dynamic_slice(c, (i,), (1,)) * x[1:2] + i, (i + 1,))
    return lax.fori_loop(0, n, step, jnp.concatenate([x, jnp.zeros(4)]))


f = jnp.float64
i32 = lambda *v: jnp.array(v[0] if len(v) == 1 else v, jnp.int32)
# name: (function, [argument lists], argument axes of the batch)
vec = jnp.array([0.3, -0.7, 1.1], f)
programs = {
    "newton": (newton, [(jnp.array(2.0),), (jnp.array(0.04),), (jnp.array(1e6),)]),
    "collatz": (collatz, [(jnp.array(0.7), i32(6)), (jnp.array(-0.2), i32(1)), (jnp.array(1.3), i32(27))]),
    "power": (power, [(vec, i32(4)), (vec * 0.5, i32(0)), (vec + 0.1, i32(-3)), (vec * 1.1, i32(7))]),
    "choose": (choose, [(vec, vec * 2), (-vec, vec + 0.5), (vec * 0.1, -vec)]),
    "table": (table, [(vec, i32(0)), (vec, i32(1)), (vec * 2, i32(2)), (vec, i32(-5)), (vec + 1, i32(9))]),
    "until": (until, [(jnp.array([0.5, 1.0, 0.2, 2.0, 0.3], f), jnp.array(v)) for v in (1.2, -1.0, 0.1, 99.0)]),
    "cache": (cache, [(jnp.arange(20.0).reshape(4, 5) / 7, jnp.ones((2, 3)) * 0.3 + k, i32(k)) for k in (0, 1, -2, 9)]),
    "filled": (filled, [(vec, i32(0)), (vec + 1, i32(3)), (vec, i32(5))]),
    "nested": (nested, [(vec, i32(5)), (vec * 0.2, i32(1)), (-vec, i32(8)), (vec, i32(0))]),
}


def flat(x):
    return [float(v) for v in jnp.ravel(x)]


result = {}
for name, (fn, cases) in programs.items():
    rows = []
    for args in cases:
        weight = lambda *a, fn=fn: jnp.sum(fn(*a) * jnp.cos(jnp.arange(jnp.size(fn(*a)))).reshape(jnp.shape(fn(*a))))
        floats = [k for k, a in enumerate(args) if a.dtype == f]
        grads = {str(k): flat(jax.jacfwd(weight, k)(*args)) for k in floats}
        rows.append(
            {
                "args": [{"dtype": str(a.dtype), "shape": list(a.shape), "data": flat(a)} for a in args],
                "value": flat(fn(*args)),
                "grads": grads,
            }
        )
    result[name] = rows
json.dump(result, sys.stdout, indent=1)

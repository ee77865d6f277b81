"""JAX as a peer of the quantum suite: the Pauli chain as a scan over time steps, complex128. A row is pauli-chain-N-STEPS; rows
fluxonium-N-STEPS are those of jax_fluxonium.py."""
import functools

import jax
import jax.numpy as jnp

import jax_fluxonium
from peer import serve

jax.config.update("jax_enable_x64", True)
total = 50.0
paulis = {
    "X": jnp.array([[0, 1], [1, 0]], complex),
    "Y": jnp.array([[0, -1j], [1j, 0]]),
    "Z": jnp.array([[1, 0], [0, -1]], complex),
}


def rotation(matrix, angle):
    return jnp.cos(angle) * jnp.eye(len(matrix)) - 1j * jnp.sin(angle) * matrix


def on(state, gate, first, count):
    gate = gate.reshape([2] * (2 * count))
    axes = list(range(first, first + count))
    moved = jnp.tensordot(gate, state, axes=[list(range(count, 2 * count)), axes])
    return jnp.moveaxis(moved, list(range(count)), axes)


def loss(p, n, steps):
    size = 2**n
    h = total / steps
    frequencies = 2 * jnp.pi * (0.5 + 0.08 * jnp.arange(n))
    single = [rotation(paulis["Z"], -w * h / 4) for w in frequencies]
    yy = rotation(jnp.kron(paulis["Y"], paulis["Y"]), p["jc"] * h / 2)
    xx = rotation(jnp.kron(paulis["X"], paulis["X"]), p["jl"] * h / 2)
    fixed = [(g, i, 1) for i, g in enumerate(single)] + [(g, i, 2) for i in range(n - 1) for g in (yy, xx)]

    def step(u, k):
        t = (k + 0.5) * h
        envelope = 0.5 * (1 - jnp.cos(2 * jnp.pi * t / total))
        for gate, first, count in fixed:
            u = on(u, gate, first, count)
        for i in range(n):
            u = on(u, rotation(paulis["X"], p["amp"][i] * envelope * jnp.cos(frequencies[i] * t) * h), i, 1)
        for gate, first, count in reversed(fixed):
            u = on(u, gate, first, count)
        return u, None

    u, _ = jax.lax.scan(step, jnp.eye(size, dtype=complex).reshape([2] * n + [size]), jnp.arange(steps))
    target = functools.reduce(jnp.kron, [paulis["X"]] * n)
    return 1 - jnp.abs(jnp.trace(target.conj().T @ u.reshape(size, size))) ** 2 / size**2


def make(row):
    if row.startswith("fluxonium-"):
        return jax_fluxonium.make(row)
    n, steps = map(int, row.split("-")[-2:])
    p = dict(amp=jnp.full(n, 0.13), jc=jnp.array(0.02), jl=jnp.array(-0.01))
    both = jax.jit(jax.value_and_grad(lambda p: loss(p, n, steps)))
    value, _ = jax.block_until_ready(both(p))
    return {"call": lambda: jax.block_until_ready(both(p)), "check": [float(value)]}


serve(make, {"jax": jax.__version__, "device": str(jax.devices()[0])})

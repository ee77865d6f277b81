"""W4's peer: the chain as a JAX scan over time steps, complex128. python3 jax_chain.py N STEPS prints one JSON line."""
import functools, json, statistics, sys, time

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(3)
jax.config.update("jax_enable_x64", True)
n, steps = int(sys.argv[1]), int(sys.argv[2])
total = 50.0
h = total / steps
paulis = {
    "X": jnp.array([[0, 1], [1, 0]], complex),
    "Y": jnp.array([[0, -1j], [1j, 0]]),
    "Z": jnp.array([[1, 0], [0, -1]], complex),
}
frequencies = 2 * jnp.pi * (0.5 + 0.08 * jnp.arange(n))


def rotation(matrix, angle):
    return jnp.cos(angle) * jnp.eye(len(matrix)) - 1j * jnp.sin(angle) * matrix


def on(state, gate, first, count):
    gate = gate.reshape([2] * (2 * count))
    axes = list(range(first, first + count))
    moved = jnp.tensordot(gate, state, axes=[list(range(count, 2 * count)), axes])
    return jnp.moveaxis(moved, list(range(count)), axes)


def loss(p):
    size = 2**n
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


p = dict(amp=jnp.full(n, 0.13), jc=jnp.array(0.02), jl=jnp.array(-0.01))
both = jax.jit(jax.value_and_grad(loss))
start = time.perf_counter()
value, _ = jax.block_until_ready(both(p))
first = time.perf_counter() - start
samples = []
for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(both(p))
    samples.append((time.perf_counter() - start) * 1e3)
print(json.dumps(dict(peer="jax " + jax.__version__, device=str(jax.devices()[0]), loss=float(value), ms=statistics.median(samples), firstMs=first * 1e3)))

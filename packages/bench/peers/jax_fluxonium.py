"""JAX on a chain of fluxonium qubits: eigenstates of the circuits on a grid of 400 phases, charge and phase couplings, cosine pulses,
process infidelity of X on every qubit, and its gradient in all parameters, complex128. A row fluxonium-N-STEPS is a scan over the steps;
with -tree all steps are matrices that are multiplied pairwise, in parallel over time."""
import functools

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
POINTS, RANGE, LEVELS = 400, 5 * np.pi, 2


def phase_grid():
    largest = np.pi * POINTS / (2 * RANGE)
    charges = -largest + 2 * largest * np.arange(POINTS) / POINTS
    points = -RANGE + 2 * RANGE * np.arange(POINTS) / POINTS
    waves = np.exp(1j * np.outer(points, charges)) / np.sqrt(POINTS)
    charge = (waves * charges) @ waves.conj().T
    return jnp.asarray(((waves * charges**2) @ waves.conj().T).real), jnp.asarray(charge), jnp.asarray(points)


KINETIC, CHARGE, PHASES = phase_grid()


def circuit(ec, ej, el, flux):
    """Energies above the ground state, charge and phase operators of the lowest levels."""
    potential = 0.5 * el * (PHASES + flux) ** 2 - ej * jnp.cos(PHASES)
    values, vectors = jnp.linalg.eigh(4 * ec * KINETIC + jnp.diag(potential))
    v = vectors[:, :LEVELS]
    n = v.T @ (CHARGE @ v)
    phi = (v.T @ ((PHASES + flux)[:, None] * v)).astype(complex)
    # The charge between neighboring levels is real and positive.
    steps = jnp.angle(jnp.array([n[k, k + 1] for k in range(LEVELS - 1)]))
    turn = jnp.exp(-1j * jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)]))
    around = lambda m: turn.conj()[:, None] * m * turn[None, :]
    return 2 * jnp.pi * (values[:LEVELS] - values[0]), around(n), around(phi)


def on_whole(n, operators):
    eye = jnp.eye(LEVELS, dtype=complex)
    return functools.reduce(jnp.kron, [operators.get(k, eye) for k in range(n)])


def loss(p, n, steps, in_parallel):
    size = LEVELS**n
    energies, charges, phases = jax.vmap(circuit)(p["ec"], p["ej"], p["el"], p["phiExt"])
    h0 = sum(on_whole(n, {k: jnp.diag(energies[k]).astype(complex)}) for k in range(n))
    for k in range(n - 1):
        h0 = h0 + 2 * jnp.pi * p["jc"][k] * on_whole(n, {k: charges[k], k + 1: charges[k + 1]})
        h0 = h0 + 2 * jnp.pi * p["jl"][k] * on_whole(n, {k: phases[k], k + 1: phases[k + 1]})
    total = p["length"]
    h = total / steps
    values, vectors = jnp.linalg.eigh(h0)
    half = (vectors * jnp.exp(-0.5j * h * values)) @ vectors.conj().T
    t = (jnp.arange(steps) + 0.5) * h
    envelope = 0.5 * (1 - jnp.cos(2 * jnp.pi * t / total))
    drives = p["amplitude"] * envelope[:, None] * jnp.cos(t[:, None] * p["omega"] + p["phase"])
    # Drives act on one qubit each: their exponentials are products of small ones.
    small, bases = jax.vmap(jnp.linalg.eigh)(phases)
    frame = functools.reduce(jnp.kron, list(bases))
    angles = sum(
        (drives[:, k, None] * small[k])[:, jnp.arange(size) // LEVELS ** (n - 1 - k) % LEVELS] for k in range(n)
    )
    turns = jnp.exp(-1j * h * angles)
    left, right = half @ frame, frame.conj().T @ half
    if in_parallel:
        maps = jnp.einsum("ab,sb,bc->sac", left, turns, right)
        while maps.shape[0] > 1:
            even = maps.shape[0] // 2 * 2
            pairs = maps[1:even:2] @ maps[0:even:2]
            maps = pairs if even == maps.shape[0] else jnp.concatenate([pairs, maps[even:]])
        u = maps[0]
    else:
        between = right @ left
        step = lambda x, turn: (between @ (turn[:, None] * x), None)
        x, _ = jax.lax.scan(step, right, turns)
        u = jnp.linalg.solve(right, x)
    target = on_whole(n, {k: jnp.array([[0, 1], [1, 0]], complex) for k in range(n)})
    return 1 - jnp.abs(jnp.trace(target.conj().T @ u)) ** 2 / size**2


def parameters(n):
    el = np.array([0.9, 1.0, 1.1])[np.arange(n) % 3]
    p = {
        "ec": np.full(n, 1.0), "ej": np.full(n, 4.0), "el": el, "phiExt": np.full(n, np.pi),
        "jc": np.full(n - 1, 0.02), "jl": np.full(n - 1, -0.002), "length": np.array(50.0), "phase": np.zeros(n),
    }
    energies, _, phases = jax.vmap(circuit)(*(jnp.asarray(p[k]) for k in ("ec", "ej", "el", "phiExt")))
    p["omega"] = np.asarray(energies[:, 1])
    p["amplitude"] = np.asarray(2 * np.pi / (50.0 * jnp.abs(phases[:, 0, 1])))
    return {k: jnp.asarray(v) for k, v in p.items()}


def make(row):
    n, steps = map(int, row.split("-")[1:3])
    p = parameters(n)
    both = jax.jit(jax.value_and_grad(lambda p: loss(p, n, steps, row.endswith("-tree"))))
    value, slopes = jax.block_until_ready(both(p))
    check = [float(value), float(slopes["el"][0]), float(slopes["amplitude"][0])]
    return {"call": lambda: jax.block_until_ready(both(p)), "check": check}


if __name__ == "__main__":
    from peer import serve

    serve(make, {"jax": jax.__version__, "device": str(jax.devices()[0])})

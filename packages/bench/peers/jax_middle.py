"""JAX as a peer of the suite quantum-middle: coupled three-level cavities with dense matrices, complex128, 100 RK4 steps, and
diffusive trajectories of a qubit. Rows: cavities-D, gradient-D, batch-D-COUNT, diffusive-COUNT."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

from peer import serve

STEPS, DT = 100, 0.1
AMPLITUDES = jnp.array([0.2 * np.sin(0.1 * k) for k in range(STEPS)])


def model(size):
    count = round(np.log(size) / np.log(3))
    a, eye = np.diag(np.sqrt(np.arange(1, 3)), 1), np.eye(3)
    n = a.T @ a

    def on(operators):
        result = np.eye(1)
        for i in range(count):
            result = np.kron(result, operators.get(i, eye))
        return result

    h = sum(on({i: (0.3 + 0.05 * i) * n - 0.1 * (n @ n - n)}) for i in range(count))
    h = h + sum(0.2 * (on({i: a, i + 1: a.T}) + on({i: a.T, i + 1: a})) for i in range(count - 1))
    jumps = [np.sqrt(0.05) * on({i: a}) for i in range(count)]
    psi = np.eye(1)
    for _ in range(count):
        psi = np.kron(psi, eye[:, [1]])
    generator = -1j * h - 0.5 * sum(jump.T @ jump for jump in jumps)
    as_complex = lambda x: jnp.asarray(x, jnp.complex128)
    return as_complex(generator), as_complex(on({0: a + a.T})), as_complex(np.stack(jumps)), as_complex(psi @ psi.T)


def evolution(size):
    generator, drive, jumps, start = model(size)

    def slope(rho, u):
        half = (generator - 1j * u * drive) @ rho
        return half + half.conj().T + jnp.einsum("iab,bc,idc->ad", jumps, rho, jumps)

    def step(rho, u):
        k1 = slope(rho, u)
        k2 = slope(rho + DT / 2 * k1, u)
        k3 = slope(rho + DT / 2 * k2, u)
        k4 = slope(rho + DT * k3, u)
        return rho + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return lambda amplitudes, rho: jax.lax.scan(step, rho, amplitudes)[0], start


def diffusion(count, steps):
    """Homodyne trajectories of a decaying, driven qubit by Euler-Maruyama steps, complex64."""
    h = jnp.array([[0.3, 0.5], [0.5, -0.3]], jnp.complex64)
    lower = jnp.array([[0, 1], [0, 0]], jnp.complex64) * np.float32(np.sqrt(0.4))
    loss = -1j * h - 0.5 * lower.conj().T @ lower
    dt = np.float32(1 / steps)

    def one(key):
        def step(psi, k):
            dw = jnp.sqrt(dt) * jax.random.normal(jax.random.fold_in(key, k), dtype=jnp.float32)
            lowered = lower @ psi
            e = 2 * jnp.real(jnp.vdot(psi, lowered))
            drift = loss @ psi + e / 2 * lowered - e * e / 8 * psi
            after = psi + drift * dt + (lowered - e / 2 * psi) * dw
            return after / jnp.linalg.norm(after), None

        psi = jax.lax.scan(step, jnp.array([1, 0], jnp.complex64), jnp.arange(steps))[0]
        return jnp.abs(psi[0]) ** 2 - jnp.abs(psi[1]) ** 2

    return jax.jit(lambda keys: jax.vmap(one)(keys).mean()), jax.random.split(jax.random.key(0), count)


def make(row):
    kind, *numbers = row.split("-")
    size = int(numbers[0])
    if kind == "diffusive":
        fn, keys = diffusion(size, int(numbers[1]))
        return {"call": lambda: fn(keys).block_until_ready(), "check": [float(fn(keys))]}
    run, start = evolution(size)
    if kind == "gradient":
        fn = jax.jit(jax.value_and_grad(lambda amplitudes: run(amplitudes, start)[0, 0].real))
        value, slopes = fn(AMPLITUDES)
        check = [float(value), float(jnp.sqrt((slopes**2).sum()))]
        return {"call": lambda: jax.block_until_ready(fn(AMPLITUDES)), "check": check}
    if kind == "batch":
        count = int(numbers[1])
        scales = jnp.linspace(0.5, 1.5, count)
        fn = jax.jit(lambda s: jax.vmap(lambda x: run(AMPLITUDES * x, start)[0, 0].real)(s))
        return {"call": lambda: fn(scales).block_until_ready(), "check": [float(fn(scales).sum())]}
    fn = jax.jit(run)
    final = fn(AMPLITUDES, start)
    return {"call": lambda: fn(AMPLITUDES, start).block_until_ready(), "check": [float(final[0, 0].real), float(final[1, 1].real)]}


serve(make, {"name": f"JAX {jax.__version__}", "device": str(jax.devices()[0])})

"""JAX on the single-qubit ensemble (60 RK4 steps of a Lindblad equation, value and gradient), for the batch sizes given.

Large sizes take seconds per run: one run compiles, two are timed, the better one counts. Prints one JSON object per line.
"""
import json
import math
import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp

STEPS = 60
DT = 1.0 / STEPS
X, Y, Z, LOWER = (jnp.array(m, jnp.complex64) for m in ([[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]], [[0, 1], [0, 0]]))
RAISE = LOWER.conj().T
EXCITED = RAISE @ LOWER


def slope(rho, drive, dephasing, decay):
    coherent = -1j * (drive @ rho - rho @ drive)
    lost = LOWER @ rho @ RAISE - 0.5 * (EXCITED @ rho + rho @ EXCITED)
    return coherent + decay * lost + dephasing * (Z @ rho @ Z - rho)


def infidelity(controls, dephasing, decay):
    def step(rho, u):
        drive = u[0] * X + u[1] * Y
        a = slope(rho, drive, dephasing, decay)
        b = slope(rho + DT / 2 * a, drive, dephasing, decay)
        c = slope(rho + DT / 2 * b, drive, dephasing, decay)
        d = slope(rho + DT * c, drive, dephasing, decay)
        return rho + DT / 6 * (a + 2 * b + 2 * c + d), None

    start = jnp.array([[1, 0], [0, 0]], jnp.complex64)
    return 1 - jax.lax.scan(step, start, controls)[0][1, 1].real


program = jax.jit(jax.value_and_grad(lambda *args: jax.vmap(infidelity)(*args).mean()))
for size in map(int, sys.argv[1:]):
    args = jnp.full((size, STEPS, 2), math.pi / 2), jnp.full((size,), 0.05), jnp.full((size,), 0.025)
    value = float(jax.block_until_ready(program(*args))[0])
    times = []
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready(program(*args))
        times.append((time.perf_counter() - start) * 1e3)
    row = {"peer": "jax jit vmap scan", "work": f"lindblad d2 60xRK4 value+grad B={size}", "ms": min(times), "value": value}
    print(json.dumps(row), flush=True)

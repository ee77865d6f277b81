"""dynamiqs as a peer of the quantum-peers suite: the problems of several sizes by their ids, compiled before they are timed, as lines of JSON."""
import json
import math
import sys
import time

import jax.numpy as jnp
import dynamiqs as dq

dq.set_precision("double")
dq.set_progress_meter(False)
method = dq.method.Tsit5(rtol=1e-8, atol=1e-10, max_steps=1_000_000)


def values(result):
    return result.expects.real.reshape(-1)


def kerr(n):
    a = dq.destroy(n)
    drive = dq.modulated(lambda t: jnp.cos(0.3 * t), 0.8 * (a + a.dag()))
    h = 0.1 * a.dag() @ a.dag() @ a @ a + drive
    jumps = [math.sqrt(0.2) * a]
    times = jnp.linspace(0, 10, 11)
    return lambda: values(dq.mesolve(h, jumps, dq.fock(n, 0), times, exp_ops=[a.dag() @ a], method=method))


def chain(levels, sites):
    def on(operator, k):
        return dq.tensor(*[operator if i == k else dq.eye(levels) for i in range(sites)])

    a = dq.destroy(levels)
    up = a.dag()
    h = sum(0.3 * on(up @ up @ a @ a, k) for k in range(sites))
    h += sum(0.2 * (on(up, k) @ on(a, k + 1) + on(a, k) @ on(up, k + 1)) for k in range(sites - 1))
    start = dq.tensor(*[dq.fock(levels, 1 if k == 0 else 0) for k in range(sites)])
    jumps = [math.sqrt(0.1) * on(a, k) for k in range(sites)]
    photons = [on(up @ a, k) for k in range(sites)]
    times = jnp.linspace(0, 5, 6)
    return lambda: values(dq.mesolve(h, jumps, start, times, exp_ops=photons, method=method))


problems = {
    **{f"kerr-{n}": (lambda n=n: kerr(n)) for n in (16, 32, 64)},
    **{f"chain-{3 ** n}": (lambda n=n: chain(3, n)) for n in (2, 3, 4)},
}


def main():
    request = json.load(sys.stdin)
    print(json.dumps({"dynamiqs": dq.__version__}), flush=True)
    for name in request["ids"]:
        if name not in problems:
            continue
        solve = problems[name]()
        found = solve().tolist()
        times = []
        while len(times) < request["repeats"] or (request["repeats"] > 0 and sum(times) < 300 and len(times) < 300):
            start = time.perf_counter()
            solve().block_until_ready()
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps({"id": name, "values": found, "ms": times}), flush=True)


main()

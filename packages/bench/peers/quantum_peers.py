"""QuTiP as a peer of the quantum-peers suite: every problem by its id, to a given tolerance, as lines of JSON."""
import json
import math
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import qutip as q  # noqa: E402

TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}


def options(count=None):
    return {**TOLERANCE, "nsteps": 1_000_000, "method": "adams", "progress_bar": ""}


def se(h, psi, times, observables):
    return q.sesolve(h, psi, times, e_ops=observables, options=options()).expect


def me(h, rho, times, jumps, observables):
    return q.mesolve(h, rho, times, jumps, e_ops=observables, options=options()).expect


def flat(values):
    out = []
    for x in np.ravel(np.asarray(values)):
        out += [float(x.real), float(x.imag)] if np.iscomplexobj(values) else [float(x)]
    return out


def grid(end, count):
    return np.linspace(0, end, count)


up, down = q.basis(2, 0), q.basis(2, 1)
lower = q.sigmam()


def rabi():
    return se(math.pi * 0.2 * q.sigmax(), up, grid(10, 21), [q.sigmaz(), q.sigmay()])


def detuned_rabi():
    return se(0.5 * q.sigmaz() + 0.3 * q.sigmax(), up, grid(8, 17), [q.sigmaz()])


def decay():
    return me(0.5 * q.sigmaz(), up, grid(10, 11), [math.sqrt(0.3) * lower], [q.sigmaz()])


def dephasing():
    return me(0.5 * q.sigmaz(), (up + down).unit(), grid(6, 13), [math.sqrt(0.1) * q.sigmaz()], [q.sigmax(), q.sigmay()])


def driven_qubit():
    return me(0.4 * q.sigmax(), up, grid(12, 13), [math.sqrt(0.2) * lower], [q.sigmaz(), q.sigmay()])


def cavity_decay(n=12):
    return me(q.num(n), q.coherent(n, 1.2), grid(5, 11), [math.sqrt(0.4) * q.destroy(n)], [q.num(n)])


def cavity_field(n=14):
    a = q.destroy(n)
    return flat(me(0.7 * a.dag() * a + 0.5 * (a + a.dag()), q.basis(n, 0), grid(6, 7), [math.sqrt(0.5) * a], [a]))


def jaynes_cummings(n=8):
    a, s = q.tensor(q.destroy(n), q.qeye(2)), q.tensor(q.qeye(n), lower)
    h = 2 * math.pi * (a.dag() * a + s.dag() * s + 0.05 * (a.dag() * s + a * s.dag()))
    return se(h, q.tensor(q.basis(n, 0), up), grid(25, 26), [a.dag() * a, s.dag() * s])


def jaynes_cummings_open(n=8):
    a, s = q.tensor(q.destroy(n), q.qeye(2)), q.tensor(q.qeye(n), lower)
    h = 2 * math.pi * (a.dag() * a + s.dag() * s + 0.05 * (a.dag() * s + a * s.dag()))
    jumps = [math.sqrt(0.005 * 1.63) * a, math.sqrt(0.005 * 0.63) * a.dag(), math.sqrt(0.05) * s]
    return me(h, q.tensor(q.basis(n, 0), up), grid(25, 11), jumps, [a.dag() * a, s.dag() * s])


def kerr_revival(n=16):
    a = q.destroy(n)
    return flat(se(0.5 * a.dag() * a.dag() * a * a, q.coherent(n, 1.5, method="analytic").unit(), grid(2 * math.pi, 9), [a]))


def driven_kerr(n=16):
    a = q.destroy(n)
    h = 0.1 * a.dag() * a.dag() * a * a - 0.4 * a.dag() * a + 0.6 * (a + a.dag())
    return me(h, q.basis(n, 0), grid(5, 11), [math.sqrt(0.3) * a], [a.dag() * a])


def thermal_bath(n=14):
    a = q.destroy(n)
    jumps = [math.sqrt(0.2 * 1.5) * a, math.sqrt(0.2 * 0.5) * a.dag()]
    return me(q.num(n), q.basis(n, 3), grid(10, 11), jumps, [q.num(n)])


def landau_zener():
    h = [0.25 * q.sigmax(), [0.5 * q.sigmaz(), lambda t: 1.5 * (t - 10)]]
    return se(h, up, grid(20, 11), [q.sigmaz()])


def cosine_drive():
    h = [0.5 * q.sigmaz(), [0.3 * q.sigmax(), lambda t: math.cos(1.1 * t)]]
    return se(h, up, grid(10, 11), [q.sigmaz()])


def rotating_drive(n=10):
    a = q.destroy(n)
    h = [q.num(n), [0.2 * a, lambda t: np.exp(1j * 0.9 * t)], [0.2 * a.dag(), lambda t: np.exp(-1j * 0.9 * t)]]
    return se(h, q.basis(n, 0), grid(8, 9), [q.num(n)])


def gaussian_pulse():
    h = [[0.5 * q.sigmax(), lambda t: math.sqrt(math.pi / 2) * math.exp(-((t - 5) ** 2) / 2)]]
    return me(h, up, grid(10, 11), [math.sqrt(0.02) * lower], [q.sigmaz()])


def decay_in_time():
    return me(0.5 * q.sigmaz(), up, grid(6, 7), [[lower, lambda t: math.sqrt(0.3 * math.exp(-0.5 * t))]], [q.sigmaz()])


def site(operator, k, n):
    return q.tensor([operator if i == k else q.qeye(2) for i in range(n)])


def heisenberg(n=4):
    h = 0
    for k in range(n - 1):
        for s in (q.sigmax(), q.sigmay(), q.sigmaz()):
            h += 0.25 * site(s, k, n) * site(s, k + 1, n)
    start = q.tensor([down if k == 0 else up for k in range(n)])
    return se(h, start, grid(10, 11), [site(q.sigmaz(), k, n) for k in range(n)])


def ising_dephasing(n=3):
    h = 0
    for k in range(n):
        h += 0.7 * site(q.sigmax(), k, n)
        if k + 1 < n:
            h += 0.4 * site(q.sigmaz(), k, n) * site(q.sigmaz(), k + 1, n)
    jumps = [math.sqrt(0.05) * site(q.sigmaz(), k, n) for k in range(n)]
    return me(h, q.tensor([up] * n), grid(5, 6), jumps, [site(q.sigmaz(), k, n) for k in range(n)])


def steady_qubit():
    rho = q.steadystate(0.4 * q.sigmax() + 0.1 * q.sigmaz(), [math.sqrt(0.3) * lower])
    return flat(rho.full())


def steady_kerr(n=14):
    a = q.destroy(n)
    h = 0.2 * a.dag() * a.dag() * a * a - 0.3 * a.dag() * a + 0.5 * (a + a.dag())
    rho = q.steadystate(h, [math.sqrt(0.5) * a])
    return [q.expect(q.num(n), rho), q.expect(a + a.dag(), rho), (rho * rho).tr().real]


def unitary_propagator():
    h = [0.5 * q.sigmaz(), [0.3 * q.sigmax(), lambda t: math.cos(1.1 * t)]]
    return flat(q.propagator(h, 4.0, options=options()).full())


def open_propagator():
    h = 0.4 * q.sigmax() + 0.2 * q.sigmaz()
    return flat(q.propagator(h, 2.0, [math.sqrt(0.3) * lower], options=options()).full())


def emission_correlation():
    h = 0.5 * q.sigmax()
    times = grid(10, 11)
    return flat(
        q.correlation_2op_1t(h, None, times, [math.sqrt(0.4) * lower], lower.dag(), lower, options=options())
    )


def entanglement(n=6):
    a, s = q.tensor(q.destroy(n), q.qeye(2)), q.tensor(q.qeye(n), lower)
    h = 0.3 * (a.dag() * s + a * s.dag())
    states = q.sesolve(h, q.tensor(q.coherent(n, 0.6), up), grid(6, 7), options=options()).states
    return [q.entropy_vn(state.ptrace(1)) for state in states]


def cat_wigner(n=20):
    cat = (q.coherent(n, 1.5, method="analytic") + q.coherent(n, -1.5, method="analytic")).unit()
    return flat(q.wigner(cat, np.linspace(-3, 3, 13), np.linspace(-2, 2, 9)))


def husimi(n=16):
    state = q.coherent(n, 0.8 + 0.3j, method="analytic")
    return flat(q.qfunc(state, np.linspace(-2, 2, 7), np.linspace(-2, 2, 7)))


def squeezing(n=40):
    state = q.squeeze(n, 0.4) * q.displace(n, 0.5) * q.basis(n, 0)
    return [q.variance(q.position(n), state), q.variance(q.momentum(n), state), q.expect(q.num(n), state)]


def mixed_measures():
    a = 0.7 * q.ket2dm(up) + 0.3 * q.ket2dm((up + 1j * down).unit())
    b = q.Qobj([[0.6, 0.2], [0.2, 0.4]])
    return [q.fidelity(a, b), q.tracedist(a, b), q.entropy_vn(a), q.entropy_linear(b), (a * b).tr().real]


def werner():
    bell = q.bell_state("11")
    rho = 0.8 * q.ket2dm(bell) + 0.2 * q.tensor(q.qeye(2), q.qeye(2)) / 4
    return [q.concurrence(rho), q.negativity(rho, 0)]


def one_axis_twisting(j=5):
    jx, jy, jz = (q.jmat(j, k) for k in "xyz")
    start = q.spin_coherent(j, math.pi / 2, 0)
    return se(0.1 * jz * jz, start, grid(6, 7), [jx, jy * jy, jy * jz + jz * jy])


def floquet():
    h = [0.5 * q.sigmaz(), [0.4 * q.sigmax(), lambda t: math.cos(1.7 * t)]]
    period = 2 * math.pi / 1.7
    basis = q.FloquetBasis(h, period, options=options())
    return sorted(float(x) for x in basis.e_quasi)


def optomechanics(n=5, m=8):
    a, b = q.tensor(q.destroy(n), q.qeye(m)), q.tensor(q.qeye(n), q.destroy(m))
    h = 0.5 * a.dag() * a + b.dag() * b - 0.2 * a.dag() * a * (b + b.dag()) + 0.3 * (a + a.dag())
    jumps = [math.sqrt(0.3) * a, math.sqrt(0.05) * b]
    return me(h, q.tensor(q.basis(n, 0), q.basis(m, 0)), grid(6, 7), jumps, [a.dag() * a, b.dag() * b])


def stirap():
    k01 = q.basis(3, 0) * q.basis(3, 1).dag()
    k12 = q.basis(3, 1) * q.basis(3, 2).dag()
    h = [
        [k01 + k01.dag(), lambda t: 3 * math.exp(-(((t - 6) / 2) ** 2))],
        [k12 + k12.dag(), lambda t: 3 * math.exp(-(((t - 4) / 2) ** 2))],
    ]
    return se(h, q.basis(3, 0), grid(10, 6), [q.ket2dm(q.basis(3, k)) for k in range(3)])


def cat_stabilization(n=16):
    a = q.destroy(n)
    return me(0 * a, q.basis(n, 0), grid(3, 7), [a * a - 2 * q.qeye(n)], [a.dag() * a, (1j * math.pi * a.dag() * a).expm()])


def kerr(n):
    a = q.destroy(n)
    h = [0.1 * a.dag() * a.dag() * a * a, [0.8 * (a + a.dag()), lambda t: math.cos(0.3 * t)]]
    return me(h, q.basis(n, 0), grid(10, 11), [math.sqrt(0.2) * a], [a.dag() * a])


def chain(levels, sites):
    def on(operator, k):
        return q.tensor([operator if i == k else q.qeye(levels) for i in range(sites)])

    a = q.destroy(levels)
    h = 0
    for k in range(sites):
        h += 0.3 * on(a.dag() * a.dag() * a * a, k)
        if k + 1 < sites:
            h += 0.2 * (on(a.dag(), k) * on(a, k + 1) + on(a, k) * on(a.dag(), k + 1))
    start = q.tensor([q.basis(levels, 1 if k == 0 else 0) for k in range(sites)])
    return me(h, start, grid(5, 6), [math.sqrt(0.1) * on(a, k) for k in range(sites)], [on(a.dag() * a, k) for k in range(sites)])


sized = {
    **{f"kerr-{n}": (lambda n=n: kerr(n)) for n in (16, 32, 64)},
    **{f"chain-{3 ** n}": (lambda n=n: chain(3, n)) for n in (2, 3, 4)},
}
problems = {
    f.__name__.replace("_", "-"): f
    for f in (
        rabi, detuned_rabi, decay, dephasing, driven_qubit, cavity_decay, cavity_field, jaynes_cummings,
        jaynes_cummings_open, kerr_revival, driven_kerr, thermal_bath, landau_zener, cosine_drive, rotating_drive,
        gaussian_pulse, decay_in_time, heisenberg, ising_dephasing, steady_qubit, steady_kerr, unitary_propagator,
        open_propagator, emission_correlation, entanglement, cat_wigner, husimi, squeezing, mixed_measures, werner,
        one_axis_twisting, floquet, optomechanics, stirap, cat_stabilization,
    )
}


def main():
    global TOLERANCE
    request = json.load(sys.stdin)
    print(json.dumps({"qutip": q.__version__, "numpy": np.__version__}), flush=True)
    for name in request["ids"]:
        solve = {**problems, **sized}[name]
        out = {"id": name}
        TOLERANCE = {"rtol": 1e-11, "atol": 1e-13}
        out["exact"] = flat(solve())
        TOLERANCE = {"rtol": 1e-8, "atol": 1e-10}
        out["values"] = flat(solve())
        times = []
        while len(times) < request["repeats"] or (request["repeats"] > 0 and sum(times) < 300 and len(times) < 300):
            start = time.perf_counter()
            solve()
            times.append(1e3 * (time.perf_counter() - start))
        out["ms"] = times
        print(json.dumps(out), flush=True)


main()

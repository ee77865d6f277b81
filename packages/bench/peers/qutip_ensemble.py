"""QuTiP as a peer of the quantum suite: one task after another, forward only (it has no gradient), its default method."""
import math

import numpy as np
import qutip

from peer import serve

SEGMENTS = 60
EDGES = np.linspace(0, 1, SEGMENTS + 1)


def pulse(offset):
    k = 2 * math.pi * np.arange(SEGMENTS) / SEGMENTS
    return math.pi / 2 * (1 + 0.1 * np.sin(k + offset)), 0.2 * np.cos(k + offset)


def task(i):
    ux, uy = pulse(0.0 if i == 0 else 0.1 * i)
    gd, gr = (0.05, 0.025) if i == 0 else (0.02 + 0.008 * (i % 16), 0.01 + 0.004 * (i % 16))
    at = lambda values: (lambda t, args=None: values[min(int(t * SEGMENTS), SEGMENTS - 1)])
    h = [[qutip.sigmax(), at(ux)], [qutip.sigmay(), at(uy)]]
    lower = qutip.basis(2, 0) * qutip.basis(2, 1).dag()
    jumps = [math.sqrt(gr) * lower, math.sqrt(gd / 2) * qutip.sigmaz()]
    return h, jumps


def solve(i):
    h, jumps = task(i)
    start = qutip.basis(2, 0) * qutip.basis(2, 0).dag()
    # The solver must not step over a jump of the pulse.
    options = qutip.Options(max_step=1 / SEGMENTS) if hasattr(qutip, "Options") else {"max_step": 1 / SEGMENTS}
    states = qutip.mesolve(h, start, [0, 1], jumps, options=options).states
    return float(qutip.expect(qutip.basis(2, 1) * qutip.basis(2, 1).dag(), states[-1]))


def make(row):
    """Tasks are independent and run one after another: four are timed, and the time is scaled to the tasks of the row."""
    count = int(row.split("-")[-1])
    tasks = min(4, count)

    def call():
        for i in range(tasks):
            solve(i)

    return {"call": call, "check": [solve(0)], "scale": count / tasks}


serve(make, {"name": f"qutip {qutip.__version__}"})

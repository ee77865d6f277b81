"""PyTorch as a peer of the quantum suite, tasks batched: the same Bloch equations, the same steps, the same numbers.

Two ways through time: step by step, and all steps as 4x4 matrices multiplied in a tree (rows that end in "-tree"). On a GPU
rows that end in "-graph" run as one CUDA graph.
"""
import math
import os
import re
import sys

import torch

from hashed import uniform
from peer import serve

DEVICE = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cpu"
if DEVICE == "cpu":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
SEGMENTS = 60
H = 1.0 / SEGMENTS


def ensemble(b):
    u = torch.stack([math.pi / 2 * (1 + 0.1 * uniform(b * SEGMENTS, 1)), 0.2 * uniform(b * SEGMENTS, 2)], -1)
    u = u.reshape(b, SEGMENTS, 2)
    k = torch.arange(SEGMENTS, dtype=torch.float64) * 2 * math.pi / SEGMENTS
    u[0] = torch.stack([math.pi / 2 * (1 + 0.1 * torch.sin(k)), 0.2 * torch.cos(k)], -1).float()
    g = torch.stack([uniform(b, 3, 0.02, 0.15), uniform(b, 4, 0.01, 0.08)], -1)
    g[0] = torch.tensor([0.05, 0.025])
    return u.to(DEVICE), g.to(DEVICE)


def fidelity_steps(u, g):
    """[b, 60, 2], [b, 2] -> [b]; one RK4 step per segment (Horner's form, as constant segments allow)."""
    u = u.clamp(-10, 10)
    gd, gr = g[:, 0], g[:, 1]
    g2 = gd + gr / 2
    decay = torch.stack([g2, g2, gr], -1)
    feed = torch.zeros_like(decay)
    feed = torch.stack([feed[:, 0], feed[:, 0], gr], -1)
    w = torch.cat([2 * u, torch.zeros_like(u[..., :1])], -1)
    r = torch.zeros_like(decay)
    r = torch.cat([r[:, :2], torch.ones_like(gr)[:, None]], -1)
    for k in range(SEGMENTS):
        wk = w[:, k]
        slope = torch.linalg.cross(wk, r) - decay * r + feed
        s = slope
        for c in (4, 3, 2):
            s = slope + (H / c) * (torch.linalg.cross(wk, s) - decay * s)
        r = r + H * s
    return (1 - r[:, 2]) / 2


def fidelity_tree(u, g):
    """The same steps as matrices on (r, 1), all at once, then a tree of products."""
    u = u.clamp(-10, 10)
    b = u.shape[0]
    gd, gr = g[:, :1].expand(b, SEGMENTS), g[:, 1:].expand(b, SEGMENTS)
    g2 = gd + gr / 2
    wx, wy = 2 * u[..., 0], 2 * u[..., 1]
    o = torch.zeros_like(wx)
    a = torch.stack([-g2, o, wy, o, o, -g2, -wx, o, -wy, wx, -gr, gr, o, o, o, o], -1).reshape(b, SEGMENTS, 4, 4) * H
    eye = torch.eye(4, device=u.device)
    m = eye + a / 4
    for c in (3, 2, 1):
        m = eye + (a @ m) / c
    while m.shape[1] > 1:
        if m.shape[1] % 2:
            m = torch.cat([m, eye.expand(b, 1, 4, 4)], 1)
        m = m[:, 1::2] @ m[:, 0::2]
    z = m[:, 0, 2, 2] + m[:, 0, 2, 3]
    return (1 - z) / 2


def lindblad_ensemble(b, fidelity):
    u, g = ensemble(b)
    u.requires_grad_(True)
    g.requires_grad_(True)

    def run():
        f = fidelity(u, g)
        du, dg = torch.autograd.grad(f.sum(), (u, g))
        return f.detach(), du, dg

    def call():
        f = run()[0]
        return f[0].item()

    f, du, dg = run()
    check = [f[0].item(), f.mean().item(), du.square().sum().sqrt().item(), *dg.mean(0).tolist()]
    return {"call": call, "check": check}


def two_qubits():
    """Operators of the controlled-Z, the twelve product states and their targets."""
    c = torch.complex64
    eye = torch.eye(2, dtype=c)
    x = torch.tensor([[0, 1], [1, 0]], dtype=c)
    y = torch.tensor([[0, -1j], [1j, 0]], dtype=c)
    z = torch.tensor([[1, 0], [0, -1]], dtype=c)
    lower = torch.tensor([[0, 1], [0, 0]], dtype=c)
    controls = [torch.kron(a, b) for a, b in [(x, eye), (y, eye), (eye, x), (eye, y), (z, eye), (eye, z)]]
    jumps = [[torch.kron(m, eye), torch.kron(eye, m)] for m in (z / math.sqrt(2), lower)]
    r = math.sqrt(0.5)
    single = [torch.tensor(s, dtype=c) for s in ([1, 0], [0, 1], [r, r], [r, 1j * r])]
    psi = torch.stack([torch.kron(a, b) for i, a in enumerate(single) for j, b in enumerate(single) if i + j != 3])
    target = psi * torch.tensor([1, 1, 1, -1], dtype=c)
    density = lambda v: v[:, :, None] @ v[:, None, :].conj()
    move = lambda list_: torch.stack(list_).to(DEVICE)
    return move(controls), [move(j) for j in jumps], torch.kron(z, z).to(DEVICE), density(psi).to(DEVICE), density(target).to(DEVICE)


def controlled_z(b):
    """Complex 4x4 matrices, tasks and states batched, two RK4 steps per segment."""
    controls, (zs, lowers), zz, start, target = two_qubits()
    u = uniform(b * 30 * 6, 20, -2.0, 2.0).reshape(b, 30, 6).to(DEVICE).requires_grad_(True)
    g = torch.stack([uniform(b, 3, 0.02, 0.15), uniform(b, 4, 0.01, 0.08)], -1).to(DEVICE).requires_grad_(True)
    h = math.pi / 4 / 60
    squares = [(m.mH @ m).sum(0) for m in (zs, lowers)]

    def fidelity():
        ham = zz + torch.einsum("bsk,kij->bsij", u.clamp(-10, 10).to(torch.complex64), controls)
        loss = (g[:, 0, None, None] * squares[0] + g[:, 1, None, None] * squares[1]) / 2
        left = torch.cat([torch.sqrt(g[:, :1, None, None]) * zs, torch.sqrt(g[:, 1:, None, None]) * lowers], 1)[:, None]
        right = left.mH
        generator = (-1j * ham - loss[:, None])[:, :, None]
        rho = start.expand(b, 12, 4, 4)

        def slope(m, k):
            half = generator[:, k] @ m
            return half + half.mH + (left @ m[:, :, None] @ right).sum(2)

        for k in range(30):
            for _ in range(2):
                k1 = slope(rho, k)
                k2 = slope(rho + h / 2 * k1, k)
                k3 = slope(rho + h / 2 * k2, k)
                k4 = slope(rho + h * k3, k)
                rho = rho + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return torch.einsum("bsij,sji->bs", rho, target).real.mean(1)

    def run():
        f = fidelity()
        du, dg = torch.autograd.grad(f.sum(), (u, g))
        return f.detach(), du, dg

    f, du, dg = run()
    check = [f[0].item(), f.mean().item(), du.square().sum().sqrt().item(), *dg.mean(0).tolist()]
    return {"call": lambda: run()[0][0].item(), "check": check}


SIZES = [3, 128, 128, 128, 120]


def task_batch(n, i):
    d, r = uniform(n, 100 + 2 * i, 0.02, 0.15), uniform(n, 101 + 2 * i, 0.01, 0.08)
    return torch.stack([d, r], -1).to(DEVICE), torch.stack([d / 0.1, r / 0.05, (d + r) / 0.15], -1).to(DEVICE)


def maml(n, fidelity, inner_steps=5, graph=False):
    """First-order MAML with a copy of the weights per task: batched products, one autograd call per step for all tasks."""
    params = []
    for i, out in enumerate(SIZES[1:]):
        bound = 1 / math.sqrt(SIZES[i])
        params += [
            uniform(out * SIZES[i], 50 + i, -bound, bound).reshape(out, SIZES[i]).to(DEVICE),
            torch.zeros(out, device=DEVICE),
        ]
    optimizer = torch.optim.Adam(params, lr=1e-3, **({"capturable": True, "fused": True} if graph else {}))
    batches = [task_batch(n, i) for i in range(10)]
    rates, features = [t.clone() for t in batches[0]]

    def losses(fast):
        x = features[:, :, None]
        for i in range(0, 8, 2):
            x = torch.baddbmm(fast[i + 1][:, :, None], fast[i], x)
            if i < 6:
                x = torch.tanh(x)
        return 1 - fidelity(x.reshape(n, SEGMENTS, 2), rates)

    def iteration():
        fast = [p.detach().expand(n, *p.shape).clone().requires_grad_(True) for p in params]
        for _ in range(inner_steps):
            grads = torch.autograd.grad(losses(fast).sum(), fast)
            fast = [(p - 0.01 * g).detach().requires_grad_(True) for p, g in zip(fast, grads)]
        query = losses(fast)
        grads = torch.autograd.grad(query.sum(), fast)
        mean = [g.mean(0) for g in grads]
        norm = torch.sqrt(sum(g.square().sum() for g in mean))
        factor = torch.clamp(1 / (norm + 1e-6), max=1.0)
        for p, g in zip(params, mean):
            p.grad = g * factor if p.grad is None else p.grad.copy_(g * factor)
        optimizer.step()
        return query.detach().mean()

    at = [0]

    def load():
        for into, t in zip((rates, features), batches[at[0] % 10]):
            into.copy_(t)
        at[0] += 1

    run = iteration
    if graph:
        start = [p.clone() for p in params]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                iteration()
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            result = iteration()
        for p, s in zip(params, start):
            p.copy_(s)
        for s in optimizer.state.values():
            for v in s.values():
                v.zero_()

        def run():
            captured.replay()
            return result

    def call():
        load()
        return run().item()

    check = [call() for _ in range(10)]
    return {"call": call, "check": check}


def make(row):
    """A row by name: lindblad-ensemble-16[-tree], maml-32[-tree][-graph], controlled-z-16."""
    kind, size, tree, graph = re.fullmatch(r"([a-z-]+?)-(\d+)(-tree)?(-graph)?", row).groups()
    fidelity = fidelity_tree if tree else fidelity_steps
    if kind == "lindblad-ensemble":
        return lindblad_ensemble(int(size), fidelity)
    if kind == "maml":
        return maml(int(size), fidelity, graph=graph is not None)
    if kind == "controlled-z":
        return controlled_z(int(size))
    raise ValueError(f"no row {row}")


serve(make, {"name": f"torch {torch.__version__}", "threads": torch.get_num_threads()})

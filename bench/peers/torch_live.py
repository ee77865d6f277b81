"""PyTorch's products, networks and end-to-end rows, one round at a time on demand, so that both sides of a ratio see the
same clock.

Reads one JSON object a line from standard input: {"id", "kind", "precision", "shape", "inner"} and answers {"id", "ms"}: the
milliseconds of one run in a round of `inner`. What is asked for the first time is made and warmed up before; an `inner` of 0
stops there. {"kind": "drop"} frees everything. What goes wrong is answered as {"id", "error"}. The definitions of the rows are
those of gpu_peers.py; WEFT_LIVE_DEVICE=cpu exercises the protocol where there is no GPU.
"""
import json
import os
import sys
import time

# Compilers print what they like on standard output, JSON among it: the answers have a way of their own.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch

device = os.environ.get("WEFT_LIVE_DEVICE", "cuda")
on_gpu = device == "cuda"
synchronize = torch.cuda.synchronize if on_gpu else lambda: None
torch.backends.cuda.matmul.allow_tf32 = True
DTYPES = {"tf32": torch.float32, "bf16": torch.bfloat16}


def product(m, k, n, precision):
    a = torch.randn(m, k, device=device, dtype=DTYPES[precision])
    b = torch.randn(k, n, device=device, dtype=DTYPES[precision])
    return lambda: a @ b


def whole(m, k, n, precision):
    return lambda: (torch.randn(m, k, device=device) @ torch.randn(k, n, device=device)).cpu()


def pinned(m, k, n, precision):
    kept = torch.empty(m, n, pin_memory=on_gpu)

    def run():
        kept.copy_(torch.randn(m, k, device=device) @ torch.randn(k, n, device=device), non_blocking=True)
        synchronize()

    return run


def network(batch, *widths, precision, compiled=False):
    layers = []
    for i, (x, y) in enumerate(zip(widths, widths[1:])):
        layers += [torch.nn.Linear(x, y)] + ([torch.nn.ReLU()] if i < len(widths) - 2 else [])
    net = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(batch, widths[0], device=device)
    if compiled:
        torch._dynamo.reset()  # Otherwise the second shape is compiled for shapes that change.
        net = torch.compile(net, mode="max-autotune-no-cudagraphs")

    def run():
        with torch.no_grad():
            net(x)

    return run


KINDS = {
    "matmul": product,
    "whole": whole,
    "pinned": pinned,
    "mlp": lambda *shape: network(*shape[:-1], precision=shape[-1]),
    "mlp compiled": lambda *shape: network(*shape[:-1], precision=shape[-1], compiled=True),
}


def warm_up(run):
    """As long as Weft is warmed up: three runs, then a hundred or a fifth of a second. The first, which compiles, apart."""
    run()
    synchronize()
    start, runs = time.perf_counter(), 0
    while runs < 3 or (runs < 100 and time.perf_counter() - start < 0.2):
        run()
        runs += 1
    synchronize()


known = {}


def answer(job):
    if job["kind"] == "drop":
        known.clear()
        if on_gpu:
            torch.cuda.empty_cache()
        return {"ms": 0}
    key = (job["kind"], job["precision"], tuple(job["shape"]))
    if key not in known:
        known[key] = KINDS[job["kind"]](*job["shape"], job["precision"])
        warm_up(known[key])
    run, inner = known[key], job["inner"]
    if inner > 1:  # The other side had the GPU until now: one run to get it back, as Weft has.
        run()
        synchronize()
    start = time.perf_counter()
    for _ in range(inner):
        run()
    synchronize()
    return {"ms": (time.perf_counter() - start) * 1e3 / max(1, inner)}


for line in sys.stdin:
    job = json.loads(line)
    try:
        reply = answer(job)
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:300]}
    answers.write(json.dumps({"id": job.get("id"), **reply}) + "\n")
    answers.flush()

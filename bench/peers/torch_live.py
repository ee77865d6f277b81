"""PyTorch's products and end-to-end rows, one round at a time on demand, so that both sides of a ratio see the same clock.

Reads one JSON object a line from standard input: {"kind", "precision", "shape": [m, k, n], "inner"}; answers each with
{"ms"}: the milliseconds of one run in a round of `inner`. A new kind or shape is warmed up first; {"kind": "drop"} frees.
"""
import json
import sys
import time

import torch

torch.backends.cuda.matmul.allow_tf32 = True
DTYPES = {"tf32": torch.float32, "bf16": torch.bfloat16}


def product(m, k, n, precision):
    a = torch.randn(m, k, device="cuda", dtype=DTYPES[precision])
    b = torch.randn(k, n, device="cuda", dtype=DTYPES[precision])
    return lambda: a @ b


def whole(m, k, n, precision):
    return lambda: (torch.randn(m, k, device="cuda") @ torch.randn(k, n, device="cuda")).cpu()


def pinned(m, k, n, precision):
    kept = torch.empty(m, n, pin_memory=True)

    def run():
        kept.copy_(torch.randn(m, k, device="cuda") @ torch.randn(k, n, device="cuda"), non_blocking=True)
        torch.cuda.synchronize()

    return run


KINDS = {"matmul": product, "whole": whole, "pinned": pinned}
known, run = None, None
for line in sys.stdin:
    job = json.loads(line)
    if job["kind"] == "drop":
        known, run = None, None
        torch.cuda.empty_cache()
        print(json.dumps({"ms": 0}), flush=True)
        continue
    key = (job["kind"], job["precision"], tuple(job["shape"]))
    if key != known:
        run = None
        torch.cuda.empty_cache()
        known, run = key, KINDS[job["kind"]](*job["shape"], job["precision"])
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(job["inner"]):
        run()
    torch.cuda.synchronize()
    print(json.dumps({"ms": (time.perf_counter() - start) * 1e3 / job["inner"]}), flush=True)

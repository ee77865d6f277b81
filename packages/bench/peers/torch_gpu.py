"""PyTorch as a peer of the GPU suite: products, networks and end-to-end rows, round by round in turns with Weft.

A row is "KIND PRECISION SIZE SIZE ...", such as "matmul tf32 4096 4096 4096". --device cpu exercises the script without a GPU.
"""
import sys

from peer import serve

import torch

device = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cuda"
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
    target = torch.empty(m, n, pin_memory=on_gpu)

    def run():
        target.copy_(torch.randn(m, k, device=device) @ torch.randn(k, n, device=device), non_blocking=True)
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
    "mlp-compiled": lambda *shape: network(*shape[:-1], precision=shape[-1], compiled=True),
}


def make(row):
    kind, precision, *shape = row.split()
    return {"call": KINDS[kind](*map(int, shape), precision), "finish": synchronize}


serve(make, {"torch": torch.__version__}, torch.cuda.empty_cache if on_gpu else lambda: None)

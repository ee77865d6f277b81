"""What the rows of torch_general.py, torch_arrays.py and torch_images.py share: sizes, operands and digests, as in
src/suites/general-row.ts."""
import math
import sys

import torch


def _option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


device = _option("--device", "cuda")
_divide, _floor = int(_option("--divide", 1)), int(_option("--floor", 64))
on_gpu = device == "cuda"
synchronize = torch.cuda.synchronize if on_gpu else lambda: None
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True


def s(n):
    """The size of this run for a size of a large GPU."""
    return n if n <= _floor else max(_floor, n // _divide)


def numbers(shape, salt, dtype=torch.float32):
    count = math.prod(shape)
    h = (torch.arange(count, dtype=torch.int64, device=device) * 2654435761 + salt * 40503) % 2**32
    return (h.double() * 2**-31 - 1).float().to(dtype).reshape(shape)


def indices(shape, salt, below):
    return ((numbers(shape, salt) + 1) * (below / 2)).to(torch.int32).clamp(0, below - 1).long()


def digest(result):
    found = []
    results = result if isinstance(result, (tuple, list)) else [result]
    for t in [part for t in results for part in ([t.real, t.imag] if t.is_complex() else [t])]:
        flat = t.detach().double().reshape(-1)
        n = flat.numel()
        found += [flat.mean().item(), flat.square().mean().item()] + [flat[i].item() for i in (0, min(1, n - 1), n // 3, n // 2, n - 1)]
    return found


def gradient(f):
    """The gradients of the sum of squares of f with respect to all operands."""

    def run(*args):
        args = [x.detach().requires_grad_() for x in args]
        found = torch.autograd.grad(f(*args).float().square().sum(), args)
        return found if len(args) > 1 else found[0]

    return run

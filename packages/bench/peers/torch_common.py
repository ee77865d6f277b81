"""What the rows of torch_general.py and its parts share: sizes, operands, digests and training steps, as in
src/suites/general-row.ts and general-training.ts."""
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


def few(n):
    """A number that shrinks with the sizes of a run though it is below the floor, such as a batch of images."""
    return max(1, s(64 * n) // 64)


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


def parameters(shapes, scale=0.035):
    made = {}
    for i, (name, shape) in enumerate(shapes.items()):
        if name.endswith("gain") or name.endswith("bias"):
            made[name] = torch.full(shape, 1.0 if name.endswith("gain") else 0.0, device=device)
        else:
            made[name] = numbers(shape, i + 1) * scale
    return {name: torch.nn.Parameter(p) for name, p in made.items()}


def training(shapes, loss, bf16, compiled, channels_last=False, scale=0.035, sgd=None, adopt=None):
    """A training step with AdamW, or with SGD of a rate; the numbers to compare are the losses of the first three steps."""
    p = parameters(shapes, scale)
    if adopt:
        adopt(p)  # parameters that a module owns
    for weight in p.values() if channels_last else []:
        if weight.dim() == 4:
            weight.data = weight.data.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(p.values(), lr=sgd) if sgd else torch.optim.AdamW(p.values(), lr=1e-5, fused=on_gpu)
    f = torch.compile(loss) if compiled else loss
    last = [None]

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            value = f(p)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last[0] = value.detach()

    check = []
    for _ in range(3):
        step()
        check.append(last[0].item())
    return {"call": step, "finish": synchronize, "check": check}


def linear(h, p, name):
    return torch.nn.functional.linear(h, p[name], p.get(f"{name}.bias"))


def norm(h, p, name):
    return torch.nn.functional.layer_norm(h, h.shape[-1:], p[f"{name}.gain"], p[f"{name}.bias"])


def layer(name, shape, to=None):
    return {name: shape, f"{name}.bias": (to or shape[0],)}


def norm_shapes(name, width):
    return {f"{name}.gain": (width,), f"{name}.bias": (width,)}

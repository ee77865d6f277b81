"""PyTorch as a peer of the general GPU suite (src/suites/general-rows.ts and general-models.ts).

A row is a name and numbers, such as "attention bf16 4 16 16 4096 64 1 1 0"; "compiled" at its end compiles the function.
Inputs and numbers for comparison are computed as the suite computes them.
"""
import math
import sys

from peer import serve

import torch
import torch.nn.functional as F

device = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cuda"
on_gpu = device == "cuda"
synchronize = torch.cuda.synchronize if on_gpu else lambda: None
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True


def numbers(shape, salt, dtype=torch.float32):
    count = math.prod(shape)
    h = (torch.arange(count, dtype=torch.int64, device=device) * 2654435761 + salt * 40503) % 2**32
    return (h.double() * 2**-31 - 1).float().to(dtype).reshape(shape)


def indices(shape, salt, below):
    return ((numbers(shape, salt) + 1) * (below / 2)).to(torch.int32).clamp(0, below - 1).long()


def digest(result):
    found = []
    for t in result if isinstance(result, (tuple, list)) else [result]:
        flat = t.detach().double().reshape(-1)
        n = flat.numel()
        found += [flat.mean().item(), flat.square().mean().item()] + [flat[i].item() for i in (0, min(1, n - 1), n // 3, n // 2, n - 1)]
    return found


def row(f, args, compiled=False):
    call = torch.compile(f) if compiled else f
    return {"call": lambda: call(*args), "finish": synchronize, "check": digest(f(*args))}


def attention(kind, b, h, kv, t, d, causal, backward, window):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, kv, t, d, causal, backward, window = map(int, (b, h, kv, t, d, causal, backward, window))
    dtype = torch.bfloat16 if kind == "bf16" else torch.float16
    q, k, v = numbers((b, h, t, d), 1, dtype), numbers((b, kv, t, d), 2, dtype), numbers((b, kv, t, d), 3, dtype)
    for x in (q, k, v):
        x.requires_grad_(bool(backward))
    mask = None
    if window:
        i = torch.arange(t, device=device)
        distance = i[:, None] - i[None, :]
        mask = (distance >= 0) & (distance <= window)

    def run():
        how = {"attn_mask": mask} if window else {"is_causal": bool(causal)}
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=h != kv, **how)
        return torch.autograd.grad(out.float().sum(), [q, k, v]) if backward else out

    def under(backend):
        def call():
            with sdpa_kernel(backend):
                return run()

        return call

    # The fastest backend that takes the row.
    best = None
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        call = under(backend)
        try:
            for _ in range(3):
                call()
            synchronize()
            import time

            start = time.perf_counter()
            for _ in range(5):
                call()
            synchronize()
            took = time.perf_counter() - start
        except RuntimeError:
            continue
        if best is None or took < best[0]:
            best = (took, call, str(backend))
    return {"call": best[1], "finish": synchronize, "check": digest(best[1]()), "info": {"backend": best[2]}}


SQUARE, LINE = (8192, 8192), (1 << 24,)


def rmsnorm(x):
    x = x.detach().requires_grad_()
    w = x.float()
    y = (w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16).float().square().sum()
    return torch.autograd.grad(y, x)[0]


SINGLES = {
    "softmax": (lambda x: torch.softmax(x, -1), SQUARE),
    "softmax-odd": (lambda x: torch.softmax(x, -1), (4096, 5003), torch.bfloat16),
    "layernorm": (lambda x: F.layer_norm(x, [x.shape[-1]]), SQUARE),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (8192, 50304), torch.bfloat16),
    "gelu": (F.gelu, SQUARE, torch.bfloat16),
    "sum": (lambda x: x.sum(), SQUARE),
    "sum-prime": (lambda x: x.square().sum(), (67108859,)),
    "sum-columns": (lambda x: x.sum(0), SQUARE),
    "max-long": (lambda x: x.max(), (16777213,)),
    "argmax": (lambda x: x.argmax(-1), SQUARE),
    "argmax-long": (lambda x: x.argmax(0), LINE),
    "transpose": (lambda x: x.t().contiguous() * 1.5, SQUARE),
    "transpose-odd": (lambda x: x.t().contiguous() * 1.5, (5003, 9001)),
    "transpose-half": (lambda x: x.t().contiguous() * 1.5, SQUARE, torch.bfloat16),
    "permute": (lambda x: x.permute(3, 1, 2, 0).contiguous() + 1, (128, 64, 64, 128)),
    "concat": (lambda x: torch.cat([x, x * 2], 1), (4096, 8192)),
    "cumsum": (lambda x: x.cumsum(-1), SQUARE),
    "cumsum-columns": (lambda x: x.cumsum(0), SQUARE),
    "cumsum-line": (lambda x: x.cumsum(0), LINE),
    "sort": (lambda x: x.sort(-1).values, SQUARE),
    "sort-short": (lambda x: x.sort(-1).values, (1 << 20, 64)),
    "sort-line": (lambda x: x.sort(-1).values, LINE),
    "argsort-half": (lambda x: torch.argsort(x, dim=-1, stable=True), (4096, 4096), torch.bfloat16),
    "topk": (lambda x: tuple(x.topk(50)), SQUARE),
    "randn": (lambda x: torch.randn_like(x), SQUARE),
    "rand": (lambda x: torch.rand_like(x), SQUARE),
    "rmsnorm": (rmsnorm, (16384, 4096), torch.bfloat16),
}


def embedding(w, i):
    w = w.detach().requires_grad_()
    return torch.autograd.grad(F.embedding(i, w).square().sum(), w)[0]


def cross_entropy(x, y):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x.float(), y), x)[0]


def symmetric(n, f):
    def make():
        a = numbers((n, n), 1)
        return f, [a @ a.t() + n * torch.eye(n, device=device), a + a.t()]

    return make


OTHERS = {
    "gather": lambda: (lambda w, i: w[i], [numbers((50304, 256), 1), indices((262144,), 2, 50304)]),
    "embedding-gradient": lambda: (embedding, [numbers((50304, 768), 1), indices((16384,), 2, 50304)]),
    "cross-entropy": lambda: (cross_entropy, [numbers((8192, 50304), 1, torch.bfloat16), indices((8192,), 2, 50304)]),
    "conv": lambda: (
        lambda x, w: F.conv2d(x, w, padding=1),
        [numbers((64, 64, 56, 56), 1), numbers((64, 64, 3, 3), 2)],
    ),
    "cholesky": symmetric(8192, lambda p, s: torch.linalg.cholesky(p)),
    "solve": symmetric(4096, lambda p, s: torch.linalg.solve(p, s)),
    "eigh": symmetric(2048, lambda p, s: torch.linalg.eigh(s).eigenvalues),
}


def parameters(shapes):
    made = {}
    for i, (name, shape) in enumerate(shapes.items()):
        if name.endswith("gain") or name.endswith("bias"):
            made[name] = torch.full(shape, 1.0 if name.endswith("gain") else 0.0, device=device)
        else:
            made[name] = numbers(shape, i + 1) * 0.035
    return {name: torch.nn.Parameter(p) for name, p in made.items()}


def training(shapes, loss, bf16, compiled):
    p = parameters(shapes)
    optimizer = torch.optim.AdamW(p.values(), lr=1e-4, fused=on_gpu)
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


def gpt2(batch, precision, compiled=False):
    L, D, H, T, B, V = 12, 768, 12, 1024, int(batch), 50304
    shapes = {"wte": (V, D), "wpe": (T, D), "last.gain": (D,), "last.bias": (D,)}
    for i in range(L):
        shapes |= {f"{i}.n1.gain": (D,), f"{i}.n1.bias": (D,), f"{i}.qkv": (3 * D, D), f"{i}.qkv.bias": (3 * D,)}
        shapes |= {f"{i}.out": (D, D), f"{i}.out.bias": (D,), f"{i}.n2.gain": (D,), f"{i}.n2.bias": (D,)}
        shapes |= {f"{i}.up": (4 * D, D), f"{i}.up.bias": (4 * D,), f"{i}.down": (D, 4 * D), f"{i}.down.bias": (D,)}
    x, y = indices((B, T), 101, V), indices((B, T), 102, V)

    def loss(p):
        linear = lambda h, name: F.linear(h, p[name], p[f"{name}.bias"])
        norm = lambda h, name: F.layer_norm(h, [D], p[f"{name}.gain"], p[f"{name}.bias"])
        h = F.embedding(x, p["wte"]) + p["wpe"]
        for i in range(L):
            q, k, v = linear(norm(h, f"{i}.n1"), f"{i}.qkv").view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            h = h + linear(seen, f"{i}.out")
            h = h + linear(F.gelu(linear(norm(h, f"{i}.n2"), f"{i}.up")), f"{i}.down")
        logits = norm(h, "last") @ p["wte"].t()
        return F.cross_entropy(logits.float().view(-1, V), y.view(-1))

    return training(shapes, loss, precision == "bf16", compiled)


def llama(compiled=False):
    L, D, H, G, W, T, B = 8, 2048, 16, 4, 5632, 2048, 4
    size = D // H
    shapes = {}
    for i in range(L):
        shapes |= {f"{i}.n1.gain": (D,), f"{i}.q": (D, D), f"{i}.k": (G * size, D), f"{i}.v": (G * size, D)}
        shapes |= {f"{i}.o": (D, D), f"{i}.n2.gain": (D,), f"{i}.gate": (W, D), f"{i}.up": (W, D), f"{i}.down": (D, W)}
    x = numbers((B, T, D), 77, torch.bfloat16)
    half = size // 2
    rates = torch.exp(torch.arange(half, device=device) * (-math.log(10000) / half))
    angles = torch.arange(T, device=device)[:, None] * rates
    c, s = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def rotate(t):
        a, b = t[..., :half], t[..., half:]
        return torch.cat([a * c - b * s, a * s + b * c], -1)

    def norm(h, gain):
        w = h.float()
        return (w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-6)).to(h.dtype) * gain.to(h.dtype)

    def loss(p):
        h = x
        for i in range(L):
            n = norm(h, p[f"{i}.n1.gain"])
            q, k, v = (F.linear(n, p[f"{i}.{name}"]).view(B, T, -1, size).transpose(1, 2) for name in "qkv")
            seen = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=True)
            h = h + F.linear(seen.transpose(1, 2).reshape(B, T, D), p[f"{i}.o"])
            m = norm(h, p[f"{i}.n2.gain"])
            h = h + F.linear(F.silu(F.linear(m, p[f"{i}.gate"])) * F.linear(m, p[f"{i}.up"]), p[f"{i}.down"])
        return h.float().square().mean()

    return training(shapes, loss, True, compiled)


def lstm():
    T, B, D = 256, 128, 512
    wx, wh, xs = numbers((4 * D, D), 1), numbers((4 * D, D), 2), numbers((T, B, D), 3)
    net = torch.nn.LSTM(D, D, bias=False).to(device)
    with torch.no_grad():
        net.weight_ih_l0.copy_(wx * 0.05)
        net.weight_hh_l0.copy_(wh * 0.05)

    def run():
        loss = net(xs)[0].square().mean()
        # The gradients with respect to wx and wh, which are scaled by 0.05.
        return [g * 0.05 for g in torch.autograd.grad(loss, [net.weight_ih_l0, net.weight_hh_l0])]

    return {"call": run, "finish": synchronize, "check": digest(run())}


def make(name):
    kind, *rest = name.split()
    if kind == "attention":
        return attention(*rest)
    if kind.startswith("gpt2"):
        return gpt2(*rest, compiled=kind.endswith("compiled"))
    if kind.startswith("llama"):
        return llama(compiled=kind.endswith("compiled"))
    if kind == "lstm":
        return lstm()
    compiled = rest == ["compiled"]
    if compiled:
        torch._dynamo.reset()  # Otherwise the second shape is compiled for shapes that change.
    if kind in SINGLES:
        f, shape, *dtype = SINGLES[kind]
        return row(f, [numbers(shape, 1, *dtype)], compiled)
    return row(*OTHERS[kind](), compiled)


serve(make, {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}, torch.cuda.empty_cache if on_gpu else lambda: None)

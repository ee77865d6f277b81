"""PyTorch as a peer of the general suite (src/suites/general-rows.ts and general-models.ts; torch_arrays.py,
torch_images.py, torch_more.py, torch_classes.py, torch_programs.py, torch_rarer.py, torch_windows.py and torch_nets.py have further
rows).

A row is a name and numbers, such as "attention bf16 4 16 16 4096 64 1 1 0"; "compiled" at its end compiles the function.
Inputs and numbers for comparison are computed as the suite computes them.
"""
import math

from peer import serve

import torch
import torch.nn.functional as F

from torch_common import device, digest, indices, numbers, on_gpu, s, synchronize, training

from torch_arrays import ARRAYS, EXACT, adamw
from torch_classes import CLASSES
from torch_images import IMAGES
from torch_more import MORE
from torch_nets import NETS
from torch_programs import PROGRAMS
from torch_rarer import RARER
from torch_windows import WINDOWS


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


SQUARE, LINE = (s(8192), s(8192)), (s(1 << 24),)


def rmsnorm(x):
    x = x.detach().requires_grad_()
    w = x.float()
    y = (w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16).float().square().sum()
    return torch.autograd.grad(y, x)[0]


SINGLES = {
    "softmax": (lambda x: torch.softmax(x, -1), SQUARE),
    "softmax-odd": (lambda x: torch.softmax(x, -1), (s(4096), s(5003)), torch.bfloat16),
    "layernorm": (lambda x: F.layer_norm(x, [x.shape[-1]]), SQUARE),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (s(8192), s(50304)), torch.bfloat16),
    "gelu": (F.gelu, SQUARE, torch.bfloat16),
    "sum": (lambda x: x.sum(), SQUARE),
    "sum-prime": (lambda x: x.square().sum(), (s(67108859),)),
    "sum-columns": (lambda x: x.sum(0), SQUARE),
    "max-long": (lambda x: x.max(), (s(16777213),)),
    "argmax": (lambda x: x.argmax(-1), SQUARE),
    "argmax-long": (lambda x: x.argmax(0), LINE),
    "transpose": (lambda x: x.t().contiguous() * 1.5, SQUARE),
    "transpose-odd": (lambda x: x.t().contiguous() * 1.5, (s(5003), s(9001))),
    "transpose-half": (lambda x: x.t().contiguous() * 1.5, SQUARE, torch.bfloat16),
    "permute": (lambda x: x.permute(3, 1, 2, 0).contiguous() + 1, (s(128), s(64), s(64), s(128))),
    "concat": (lambda x: torch.cat([x, x * 2], 1), (s(4096), s(8192))),
    "cumsum": (lambda x: x.cumsum(-1), SQUARE),
    "cumsum-columns": (lambda x: x.cumsum(0), SQUARE),
    "cumsum-line": (lambda x: x.cumsum(0), LINE),
    "sort": (lambda x: x.sort(-1).values, SQUARE),
    "sort-short": (lambda x: x.sort(-1).values, (s(1 << 20), 64)),
    "sort-line": (lambda x: x.sort(-1).values, LINE),
    "argsort-half": (lambda x: torch.argsort(x, dim=-1, stable=True), (s(4096), s(4096)), torch.bfloat16),
    "topk": (lambda x: tuple(x.topk(min(50, x.shape[-1]))), SQUARE),
    "randn": (lambda x: torch.randn_like(x), SQUARE),
    "rand": (lambda x: torch.rand_like(x), SQUARE),
    "rmsnorm": (rmsnorm, (s(16384), s(4096)), torch.bfloat16),
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


V = s(50304)
OTHERS = {
    "gather": lambda: (lambda w, i: w[i], [numbers((V, s(256)), 1), indices((s(262144),), 2, V)]),
    "embedding-gradient": lambda: (embedding, [numbers((V, s(768)), 1), indices((s(16384),), 2, V)]),
    "cross-entropy": lambda: (cross_entropy, [numbers((s(8192), V), 1, torch.bfloat16), indices((s(8192),), 2, V)]),
    "conv": lambda: (
        lambda x, w: F.conv2d(x, w, padding=1),
        [numbers((s(64), s(64), s(56), s(56)), 1), numbers((s(64), s(64), 3, 3), 2)],
    ),
    "cholesky": symmetric(s(8192), lambda p, s: torch.linalg.cholesky(p)),
    "solve": symmetric(s(4096), lambda p, s: torch.linalg.solve(p, s)),
    "eigh": symmetric(s(2048), lambda p, s: torch.linalg.eigh(s).eigenvalues),
}


def gpt2(batch, precision, compiled=False):
    L, D, T, B, V = s(12), s(768), s(1024), s(int(batch)), s(50304)
    H = max(1, D // 64)
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
    L, D, W, T, B = s(8), s(2048), s(5632), s(2048), s(4)
    H = max(1, D // 128)
    G = max(1, H // 4)
    size = D // H
    shapes = {}
    for i in range(L):
        shapes |= {f"{i}.n1.gain": (D,), f"{i}.q": (D, D), f"{i}.k": (G * size, D), f"{i}.v": (G * size, D)}
        shapes |= {f"{i}.o": (D, D), f"{i}.n2.gain": (D,), f"{i}.gate": (W, D), f"{i}.up": (W, D), f"{i}.down": (D, W)}
    x = numbers((B, T, D), 77, torch.bfloat16)
    half = size // 2
    rates = torch.exp(torch.arange(half, device=device) * (-math.log(10000) / half))
    angles = torch.arange(T, device=device)[:, None] * rates
    cosine, sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def rotate(t):
        a, b = t[..., :half], t[..., half:]
        return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)

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


def resnet50(precision, compiled=False):
    B, size, classes = s(128), s(224), s(1000)
    blocks = [1, 1, 1, 1] if s(16) < 16 else [3, 4, 6, 3]
    widths = [s(w) for w in (64, 128, 256, 512)]
    shapes = {}

    def conv(name, source, to, kernel):
        shapes.update({name: (to, source, kernel, kernel), f"{name}.gain": (to,), f"{name}.bias": (to,)})

    conv("stem", 3, widths[0], 7)
    channels = widths[0]
    for stage, count in enumerate(blocks):
        for i in range(count):
            name, width = f"{stage}.{i}", widths[stage]
            conv(f"{name}.a", channels, width, 1)
            conv(f"{name}.b", width, width, 3)
            conv(f"{name}.c", width, 4 * width, 1)
            if i == 0:
                conv(f"{name}.d", channels, 4 * width, 1)
            channels = 4 * width
    shapes |= {"head": (classes, channels), "head.bias": (classes,)}
    x = numbers((B, size, size, 3), 201, torch.bfloat16 if precision == "bf16" else torch.float32).permute(0, 3, 1, 2)
    y = indices((B,), 202, classes)

    def loss(p):
        def layer(h, name, stride=1):
            kernel = shapes[name][2]
            h = F.conv2d(h, p[name], stride=stride, padding=(kernel - 1) // 2)
            return F.batch_norm(h, None, None, p[f"{name}.gain"], p[f"{name}.bias"], training=True)

        h = F.max_pool2d(F.relu(layer(x, "stem", 2)), 3, 2, 1)
        for stage, count in enumerate(blocks):
            for i in range(count):
                name, stride = f"{stage}.{i}", 2 if i == 0 and stage > 0 else 1
                inner = F.relu(layer(F.relu(layer(h, f"{name}.a")), f"{name}.b", stride))
                h = F.relu(layer(inner, f"{name}.c") + (layer(h, f"{name}.d", stride) if i == 0 else h))
        logits = F.linear(h.mean((2, 3)), p["head"], p["head.bias"])
        return F.cross_entropy(logits.float(), y)

    return training(shapes, loss, precision == "bf16", compiled, channels_last=True)


def lstm():
    T, B, D = s(256), s(128), s(512)
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
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind not in EXACT
    if kind == "attention":
        return attention(*rest)
    if kind.startswith("gpt2"):
        return gpt2(*rest, compiled=kind.endswith("compiled"))
    if kind.startswith("llama"):
        return llama(compiled=kind.endswith("compiled"))
    if kind.startswith("resnet50"):
        return resnet50(*rest, compiled=kind.endswith("compiled"))
    if kind == "lstm":
        return lstm()
    if kind == "adamw":
        return adamw()
    compiled = rest == ["compiled"]
    if compiled:
        torch._dynamo.reset()  # Otherwise the second shape is compiled for shapes that change.
    if kind in NETS:
        return NETS[kind](compiled)
    if kind in SINGLES:
        f, shape, *dtype = SINGLES[kind]
        return row(f, [numbers(shape, 1, *dtype)], compiled)
    return row(*(OTHERS | ARRAYS | IMAGES | MORE | CLASSES | PROGRAMS | RARER | WINDOWS)[kind](), compiled)


serve(make, {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}, torch.cuda.empty_cache if on_gpu else lambda: None)

"""Rows of the general suite that no list asked for (src/suites/general-more.ts): each is a function and its operands."""
import torch
import torch.nn.functional as F

from torch_common import device, indices, numbers, s

HALF = torch.bfloat16
N, LINE, PLACES, UPDATES = s(4096), s(1 << 24), s(1 << 20), s(1 << 22)
WIDTH, INNER, KEYS, LENGTH = s(4096), s(14336), s(4096), s(2048)
PICTURES = (s(64), 64, s(224), s(224))


def unary(f, shape, dtype=torch.float32):
    return lambda: (f, [numbers(shape, 1, dtype)])


def padded(mode):
    return unary(lambda x: F.pad(x, (3, 3, 3, 3), mode=mode), PICTURES)


def scatter(how):
    return lambda: (
        lambda x, i, u: x.scatter_reduce(0, i, u, how),
        [numbers((PLACES,), 1), indices((UPDATES,), 2, PLACES).long(), numbers((UPDATES,), 3)],
    )


def rotated(x):
    length, size = x.shape[-2:]
    angle = torch.arange(length, device=x.device)[:, None] * torch.exp(torch.arange(size // 2, device=x.device) * -0.14)
    c, d = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : size // 2], x[..., size // 2 :]
    return torch.cat([a * c - b * d, b * c + a * d], -1)


def single():
    q = numbers((16, 32, 1, 128), 1, HALF)
    k, v = numbers((16, 8, KEYS, 128), 2, HALF), numbers((16, 8, KEYS, 128), 3, HALF)
    mask = torch.arange(KEYS, device=device) < indices((16, 1, 1, 1), 5, KEYS) + 1
    return (lambda *a: F.scaled_dot_product_attention(*a, attn_mask=mask, enable_gqa=True)), [q, k, v]


def biased():
    return [numbers((4, 16, LENGTH, 64), salt, HALF) for salt in (1, 2, 3)] + [numbers((1, 16, LENGTH, LENGTH), 4)]


def attend(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(HALF))


def attend_gradient(*args):
    args = [x.detach().requires_grad_() for x in args]
    return torch.autograd.grad(attend(*args).float().sum(), args)


MORE = {
    "cumprod": unary(lambda x: (x * 0.01 + 1).cumprod(-1), (N, N)),
    "cumprod-columns": unary(lambda x: (x * 0.01 + 1).cumprod(0), (N, N)),
    "scatter-max": scatter("amax"),
    "scatter-min": scatter("amin"),
    "histogram": unary(lambda x: torch.histc(x, 100, -1, 1), (LINE,)),
    "pad-reflect": padded("reflect"),
    "pad-edge": padded("replicate"),
    "pad-wrap": padded("circular"),
    "sort-half": unary(lambda x: x.sort(-1).values, (N, N), HALF),
    "sort-double": unary(lambda x: x.sort(-1).values, (UPDATES,), torch.float64),
    "attention-single": single,
    "attention-bias": lambda: (attend, biased()),
    "attention-bias-gradient": lambda: (attend_gradient, biased()),
    "vector-rows": lambda: (lambda x, w: x @ w.t(), [numbers((1, WIDTH), 1, HALF), numbers((INNER, WIDTH), 2, HALF)]),
    "vector-columns": lambda: (torch.matmul, [numbers((1, WIDTH), 1, HALF), numbers((WIDTH, INNER), 2, HALF)]),
    "swiglu": lambda: (lambda a, b: F.silu(a) * b, [numbers((s(8192), INNER), salt, HALF) for salt in (1, 2)]),
    "rotary": unary(rotated, (4, 32, s(4096), 128), HALF),
}

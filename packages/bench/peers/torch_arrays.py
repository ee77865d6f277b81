"""Rows of the general suite on arrays (src/suites/general-arrays.ts): each is a function and its operands."""
import torch
import torch.nn.functional as F

from torch_common import device, indices, numbers, on_gpu, s, synchronize

HALF, SHORT = torch.bfloat16, torch.float16
N = s(8192)


def unary(f, shape, dtype=torch.float32):
    return lambda: (f, [numbers(shape, 1, dtype)])


def topk(k):
    return lambda x: tuple(x.topk(min(k, x.shape[-1])))


def product(a, b, dtype=torch.float32):
    return lambda: (torch.matmul, [numbers(a, 1, dtype), numbers(b, 2, dtype)])


def batched(count, m, k, dtype=torch.float32):
    return product((s(count), m, k), (s(count), k, m), dtype)


def matrices(f, count, n):
    return lambda: (f, [numbers((count, n, n), 1) + 2 * n * torch.eye(n, device=device)])


def index_add(*shape):
    n, m, *inner = shape
    return lambda: (
        lambda x, i, u: x.index_add(0, i, u),
        [numbers((n, *inner), 1), indices((m,), 2, n), numbers((m, *inner), 3)],
    )


def layer_norm_gradient(x):
    x = x.detach().requires_grad_()
    y = (F.layer_norm(x, [x.shape[-1]]).float().square() * x.float()).sum()
    return torch.autograd.grad(y, x)[0]


def linear_cross_entropy(x, w, y):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy((x @ w.t()).float(), y), [x, w])


def one_hot(i):
    return (i[:, None] == torch.arange(128, device=i.device)).float()


def images(x):
    return ((x.float() / 255 - 0.45) / 0.22).permute(0, 3, 1, 2).contiguous().to(HALF)


def spectrum(x):
    return torch.fft.fft(torch.complex(x, x))


ARRAYS = {
    "topk-vocabulary": unary(topk(40), (s(64), s(50304))),
    "topk-line": unary(topk(40), (s(1 << 24),)),
    "topk-half": unary(lambda x: x.topk(8).values, (s(16384), s(4096)), HALF),
    "median": unary(lambda x: x.median(-1).values, (s(4096), 4095)),
    "sort-int": lambda: (lambda x: x.sort(-1).values, [indices((s(1 << 22),), 1, 1 << 30).int()]),
    "bincount": lambda: (lambda x: torch.bincount(x, minlength=1000), [indices((s(1 << 24),), 1, 1000).int()]),
    "scatter-rows": index_add(s(10000), s(262144), s(128)),
    "scatter-elements": index_add(s(1 << 20), s(1 << 22)),
    "gather-elements": lambda: (
        lambda x, i: x.gather(1, i),
        [numbers((s(65536), s(1024)), 1), indices((s(65536), s(64)), 2, s(1024))],
    ),
    "one-hot": lambda: (one_hot, [indices((s(1 << 20),), 1, 128)]),
    "sum-middle": unary(lambda x: x.sum(1), (s(256), s(1024), s(256))),
    "sum-outer": unary(lambda x: x.sum((0, 2, 3)), (s(64), s(256), s(64), s(64))),
    "max-odd": unary(lambda x: x.amax(0), (s(65521), s(1021))),
    "sum-narrow": unary(lambda x: x.sum(-1), (s(1 << 22), 17)),
    "softmax-narrow": unary(lambda x: torch.softmax(x, -1), (s(1 << 20), 50)),
    "softmax-columns": unary(lambda x: torch.softmax(x, 0), (s(4096), N)),
    "variance": unary(lambda x: x.float().var(-1, correction=0), (N, N), SHORT),
    "argmin-middle": unary(lambda x: x.argmin(1), (s(64), s(4096), s(128))),
    "norm-double": unary(torch.linalg.vector_norm, (s(1 << 24),), torch.float64),
    "sum-short": unary(lambda x: x.sum(), (s(1000),)),
    "layernorm-gradient": unary(layer_norm_gradient, (s(16384), s(1024)), HALF),
    "cast": unary(lambda x: x.to(HALF), (N, N)),
    "image-bytes": lambda: (images, [indices((s(256), s(224), s(224), 3), 1, 256).to(torch.uint8)]),
    "masked-fill": lambda: (lambda x, m: torch.where(m, x, -1e4), [numbers((N, N), 1, HALF), numbers((N, N), 2) > 0]),
    "tril": unary(torch.tril, (N, N)),
    "difference": unary(torch.diff, (N, N)),
    "strided": unary(lambda x: x[:, ::2] * 2, (N, N)),
    "broadcast": unary(lambda x: x[:, None] + x, (N,), SHORT),
    "int8-add": lambda: (torch.add, [indices((s(1 << 26),), salt, 60).to(torch.int8) for salt in (1, 2)]),
    "sines": unary(lambda x: torch.sin(x * 40) * torch.exp(x), (N, N)),
    "roll": unary(lambda x: torch.roll(x, 100, 1), (N, N)),
    "batched-8": batched(65536, 8, 8),
    "batched-32": batched(16384, 32, 32),
    "batched-half": batched(4096, 128, 64, SHORT),
    "matrix-vector": product((s(16384), s(16384)), (s(16384), 1), HALF),
    "thin": product((16, N), (N, N), HALF),
    "odd-product": product((s(1023), s(4097)), (s(4097), s(2049)), HALF),
    "double": product((s(4096), s(4096)), (s(4096), s(4096)), torch.float64),
    "linear-cross-entropy": lambda: (
        linear_cross_entropy,
        [numbers((N, s(768)), 1, HALF), numbers((s(50304), s(768)), 2, HALF), indices((N,), 3, s(50304))],
    ),
    "fft-rows": unary(spectrum, (s(4096), s(4096))),
    "fft-odd": unary(spectrum, (s(4096), 1000)),
    "rfft-line": unary(torch.fft.rfft, (s(1 << 24),)),
    "rfft2": unary(torch.fft.rfft2, (s(64), s(512), s(512))),
    "batched-solve": matrices(lambda a: torch.linalg.solve(a, a.mT), s(65536), 8),
    "batched-inverse": matrices(torch.linalg.inv, s(16384), 16),
    "batched-determinant": matrices(lambda a: torch.linalg.slogdet(a).logabsdet, s(16384), 12),
    "batched-cholesky": matrices(lambda a: torch.linalg.cholesky(a @ a.mT), s(8192), 32),
    "batched-eigenvalues": matrices(lambda a: torch.linalg.eigvalsh(a + a.mT), s(4096), 16),
    "qr": matrices(lambda a: torch.linalg.qr(a).R.abs(), 1, s(4096)),
    "svd": matrices(torch.linalg.svdvals, 1, s(1024)),
    "triangular": matrices(lambda a: torch.linalg.solve_triangular(a, a, upper=False), 1, s(8192)),
}


# Rows that both sides compute in full float32.
EXACT = {"cholesky", "solve", "eigh", "qr", "svd", "triangular", "pinn", "gaussian-process", "complex-product", "complex-batched"}
EXACT |= {f"batched-{name}" for name in ("solve", "inverse", "determinant", "cholesky", "eigenvalues")}
EXACT |= {"conv-stem-112", "conv-transposed-last", "conv-wave", "convnet-small", "distances-taxi", "einsum-chain"}
EXACT |= {"gru-small", "inverse-3", "lstm-small", "pair-distances", "recurrent-37"}


def adamw():
    w, v = s(768), s(50257)
    block = [(k * w,) for k in (1, 1, 3, 1, 1, 1, 4, 1)] + [(3 * w, w), (w, w), (4 * w, w), (w, 4 * w)]
    shapes = [(v, w), (1024, w), *block * 12, (w,), (w,)]
    params = [torch.nn.Parameter(numbers(shape, i + 2)) for i, shape in enumerate(shapes)]
    for i, p in enumerate(params):
        p.grad = numbers(shapes[i], i + 1)
    optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, fused=on_gpu)
    optimizer.step()
    optimizer.step()
    return {"call": optimizer.step, "finish": synchronize, "check": params[-1].detach()[:7].tolist()}

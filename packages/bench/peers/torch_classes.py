"""Rows of the general suite by classes of work (src/suites/general-classes.ts): each is a function and its operands."""
import torch
import torch.nn.functional as F

from torch_common import gradient, indices, numbers, s

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
N, N2, LINE, MANY, ROWS, PLACES = s(4096), s(8192), s(1 << 24), s(1 << 22), s(1 << 18), s(1 << 20)


def of(f, *operands):
    """A row: operands are a shape and a dtype, or a shape and a bound of whole numbers."""
    return lambda: (
        f,
        [indices(shape, i + 1, kind) if isinstance(kind, int) else numbers(shape, i + 1, kind) for i, (shape, kind) in enumerate(operands)],
    )


def first(f, count=1):
    """Gradients of the sum of squares with respect to the first operands."""

    def run(*args):
        args = [x.detach().requires_grad_() if i < count else x for i, x in enumerate(args)]
        found = torch.autograd.grad(f(*args).float().square().sum(), args[:count])
        return found if count > 1 else found[0]

    return run


def segments(how):
    def run(x, i):
        if how == "sum":
            return torch.zeros(1024, 64, device=x.device).index_add(0, i, x)
        return torch.full((1024, 64), -torch.inf, device=x.device).index_reduce(0, i, x, "amax")

    return of(run, ((ROWS, 64), F32), ((ROWS,), 1024))


def classes(x, y):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x, y), x)[0]


def scatter_set(x, u):
    at = torch.arange(x.numel(), device=x.device) * 7 % x.numel()
    return x.scatter(0, at, u)


def below(x):
    seen = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device).tril()
    return torch.softmax(torch.where(seen, x, -torch.inf), -1)


def distances(a, b):
    return (a.square().sum(-1, keepdim=True) + b.square().sum(-1) - 2 * (a @ b.t())).clamp(min=0).sqrt()


def reduce(how):
    return lambda x, i, u: x.scatter_reduce(0, i, u, how)


CLASSES = {
    "cummax": of(lambda x: x.cummax(-1).values, ((N, N), F32)),
    "cummin-columns": of(lambda x: x.cummin(0).values, ((N, N), F16)),
    "logcumsumexp": of(lambda x: x.logcumsumexp(-1), ((N, N), F32)),
    "cumsum-middle": of(lambda x: x.cumsum(1), ((64, N, 64), F32)),
    "cumsum-int": of(lambda x: x.cumsum(0), ((LINE,), 1000)),
    "argsort-line": of(lambda x: torch.argsort(x, stable=True), ((MANY,), F32)),
    "sort-rows-odd": of(lambda x: x.sort(-1, descending=True).values, ((s(65536), 257), F32)),
    "sort-long": of(lambda x: x.long().sort(-1).values.double(), ((MANY,), 1 << 30)),
    "searchsorted": of(lambda a, x: torch.searchsorted(a.abs().cumsum(0) * 1e-6, x), ((PLACES,), F32), ((MANY,), F32)),
    "nucleus": of(lambda x: torch.softmax(x * 8, -1).sort(-1, descending=True).values.cumsum(-1), ((64, s(50304)), F32)),
    "top-int": of(lambda x: x.int().topk(16).values, ((s(16384), 1000), 1 << 30)),
    "segment-sum": segments("sum"),
    "segment-max": segments("max"),
    "scatter-max-int": of(lambda x, i, u: x.int().scatter_reduce(0, i, u.int(), "amax"), ((PLACES,), 1000), ((MANY,), PLACES), ((MANY,), 1000)),
    "scatter-max-few": of(reduce("amax"), ((1000,), F32), ((MANY,), 1000), ((MANY,), F32)),
    "scatter-prod": of(reduce("prod"), ((PLACES,), F32), ((PLACES,), PLACES), ((PLACES,), F32)),
    "scatter-set": of(scatter_set, ((MANY,), F32), ((MANY,), F32)),
    "embedding-small": of(first(lambda w, i: F.embedding(i, w)), ((1000, 64), F32), ((PLACES,), 1000)),
    "embedding-half": of(first(lambda w, i: F.embedding(i, w)), ((s(32000), s(1024)), BF16), ((N2,), s(32000))),
    "gather-along": of(lambda x, i: x.gather(1, i), ((N, N), F16), ((N, N), N)),
    "gather-narrow": of(lambda x, i: x[i], ((PLACES, 4), F32), ((MANY,), PLACES)),
    "gather-columns": of(lambda x, i: x[:, i], ((N2, N2), F32), ((s(2048),), N2)),
    "layernorm-odd": of(first(lambda x, g: F.layer_norm(x, [771]) * g, 2), ((s(16384), 771), BF16), ((771,), BF16)),
    "layernorm-narrow": of(lambda x: F.layer_norm(x, [32]), ((PLACES, 32), F32)),
    "group-norm-half": of(lambda x: F.group_norm(x, 32), ((s(64), 256, 32, 32), F16)),
    "instance-norm": of(lambda x: F.instance_norm(x), ((s(32), 64, s(128), s(128)), F32)),
    "masked-softmax": of(below, ((64, s(1024), s(1024)), BF16)),
    "classes": of(classes, ((N, s(100277)), F32), ((N,), s(100277))),
    "binary-loss": of(first(lambda x: F.binary_cross_entropy_with_logits(x, x.detach().abs())), ((LINE,), F32)),
    "cosine": of(lambda a, b: F.cosine_similarity(a, b, -1), ((s(65536), 256), F32), ((s(65536), 256), F32)),
    "variance-columns": of(lambda x: x.var(0), ((N2, N2), F32)),
    "max-double": of(lambda x: x.amax(-1), ((N, N), F64)),
    "product": of(lambda x: (x * 0.001 + 1).prod(-1), ((N, N), F32)),
    "count": of(lambda x: torch.count_nonzero(x > 0.5).float(), ((N2, N2), F16)),
    "mlp-small": of(
        first(lambda a, b, c, x: torch.tanh(torch.tanh(x @ a * 0.1) @ b * 0.1) @ c, 3), ((256, 256), F32), ((256, 256), F32), ((256, 10), F32), ((8, 256), F32)
    ),
    "flip": of(lambda x: x.flip(1), ((N2, N2), F32)),
    "tile": of(lambda x: x.tile(3, 3), ((s(2048), s(2048)), F32)),
    "repeat": of(lambda x: x.repeat_interleave(4, 0), ((N, s(2048)), F16)),
    "interleave": of(lambda *x: torch.stack(x, -1).reshape(N2, -1), *[((N2, s(2048)), F32)] * 4),
    "outer": of(torch.outer, ((s(16384),), F32), ((N2,), F32)),
    "strided-sum": of(lambda x: x[:, ::2].sum(1), ((64, N, 256), F32)),
    "permuted-mean": of(lambda x: x.permute(2, 0, 1).mean(-1), ((128, s(512), s(512)), F32)),
    "complex-chain": of(lambda a, b: torch.complex(a, b).exp().abs(), ((LINE,), F32), ((LINE,), F32)),
    "double-chain": of(lambda x: x.sin() + x.exp(), ((LINE,), F64)),
    "int-chain": of(lambda x: (x.int() * 3 + 7) % 1000, ((LINE,), 1 << 20)),
    "byte-any": of(lambda x: (x > 0.999).any(-1).float(), ((N2, N2), F16)),
    "transpose-4": of(lambda x: x.permute(0, 2, 1, 3).contiguous() + 0, ((64, s(128), 16, s(128)), BF16)),
    "transpose-bytes": of(lambda x: (x.to(torch.int8).t().contiguous() + 1).float(), ((N2, N2), 100)),
    "resize-gradient": of(gradient(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")), ((s(32), 64, s(56), s(56)), F32)),
    "resize-nearest": of(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), ((s(32), 128, s(56), s(56)), BF16)),
    "adaptive-pool": of(lambda x: F.adaptive_avg_pool2d(x, 7), ((s(128), 512, 28, 28), F32)),
    "global-pool": of(lambda x: x.mean((1, 2)), ((s(128), 28, 28, 512), BF16)),
    "max-pool-3d": of(lambda x: F.max_pool3d(x, 2), ((8, 64, s(32), s(56), s(56)), F32)),
    "conv-stem": of(lambda x, w: F.conv2d(x, w, stride=2, padding=3), ((s(64), 3, s(224), s(224)), F16), ((64, 3, 7, 7), F16)),
    "conv-causal": of(lambda x, w: F.conv1d(F.pad(x, (3, 0)), w, groups=2048), ((s(8), 2048, s(2048)), BF16), ((2048, 1, 4), BF16)),
    "unet-block": of(
        first(lambda x, w: F.silu(F.group_norm(F.conv2d(x, w * 0.03, padding=1), 32)), 2), ((16, 128, s(64), s(64)), BF16), ((128, 128, 3, 3), BF16)
    ),
    "batched-odd": of(torch.matmul, ((N, 17, 33), F32), ((N, 33, 65), F32)),
    "batched-4": of(torch.matmul, ((ROWS, 4, 4), F32), ((ROWS, 4, 4), F32)),
    "inner-small": of(torch.matmul, ((N2, 16), BF16), ((16, N2), BF16)),
    "rows-few": of(torch.matmul, ((16, N2), BF16), ((N2, N2), BF16)),
    "columns-few": of(torch.matmul, ((s(65536), s(1024)), BF16), ((s(1024), 8), BF16)),
    "complex-product": of(lambda a, b: torch.complex(a, b) @ torch.complex(b, b), ((s(1024), s(1024)), F32), ((s(1024), s(1024)), F32)),
    "complex-batched": of(lambda a, b: torch.complex(a, b) @ torch.complex(b, b), ((N2, 16, 16), F32), ((N2, 16, 16), F32)),
    "einsum-heads": of(lambda a, b: torch.einsum("bihd,bjhd->bhij", a, b), ((8, s(512), 12, 64), F16), ((8, s(512), 12, 64), F16)),
    "einsum-odd": of(lambda a, b: torch.einsum("abc,cbd->ad", a, b), ((s(512), 64, 128), F32), ((128, 64, s(512)), F32)),
    "distances": of(distances, ((N, 64), F32), ((N, 64), F32)),
    "double-batched": of(torch.matmul, ((N, 32, 32), F64), ((N, 32, 32), F64)),
    "triangle-product": of(lambda a, b: (a @ b).tril(), ((N, N), BF16), ((N, N), BF16)),
}

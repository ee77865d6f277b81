"""Typical programs as rows of the general suite (src/suites/general-programs.ts, general-programs-layers.ts)."""
import torch
import torch.nn.functional as F

from torch_classes import BF16, F16, F32, F64, first, of
from torch_common import device, s

T = s(2048)
HEADS = lambda t: ((4, 16, s(t), 64), BF16)


def masked_mean(x, n):
    seen = torch.arange(x.shape[1], device=x.device)[:, None] <= n
    return torch.where(seen, x.float(), 0).sum(1) / (n[:, :, 0] + 1)


def clip(*xs):
    norm = torch.sqrt(sum(x.square().sum() for x in xs))
    return [x / (norm + 1e-6) for x in xs]


def segment_mean(x, i):
    n = s(65536)
    total = torch.zeros(n, x.shape[1], device=x.device).index_add(0, i, x)
    return total / torch.bincount(i, minlength=n).clamp(min=1).float()[:, None]


def one_hot(i):
    return (i[:, None] == torch.arange(s(32000), device=i.device)).to(BF16)


def shifts(x):
    return torch.cat([x.flip(0), F.pad(x.roll(3, 1)[:, 8:], (4, 4))], 0)


def multiply(a, b):
    x, y = torch.view_as_complex(a), torch.view_as_complex(b)
    return x * y.conj() + y


def crop(x):
    cut = x.to(torch.uint8)[:, 16:240, 16:240].flip(2).permute(0, 3, 1, 2)
    mean = torch.tensor([0.485, 0.456, 0.406], device=x.device).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225], device=x.device).view(3, 1, 1)
    return ((cut.float() / 255 - mean) / deviation).contiguous()


def variation(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean(), x)[0]


def top_filter(x):
    least = x.topk(min(50, x.shape[1])).values[:, -1:]
    return torch.softmax(torch.where(x < least, -torch.inf, x).float(), -1)


def routing(x):
    values, at = torch.softmax(x, -1).topk(2)
    sent = F.one_hot(at.reshape(-1), 64).int()
    place = (sent.cumsum(0) * sent).sum(-1)
    return [values / values.sum(-1, keepdim=True), place.float()]


def beam(x, score):
    return (torch.log_softmax(x * 8, -1) + score).reshape(16, -1).topk(8).values


def centers(x, c):
    return (c.square().sum(-1) - 2 * (x @ c.t())).amin(-1)


def rms(x, g):
    w = x.float()
    return (w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-6)).to(BF16) * g


def vocabulary_loss(x, y):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(x.float(), y), x)[0]


def divergence(a, b):
    p, q = torch.log_softmax(a.float() * 4, -1), torch.log_softmax(b.float() * 4, -1)
    return (p.exp() * (p - q)).sum(-1).mean()


def softmax_lengths(x, n):
    return torch.softmax(torch.where(torch.arange(x.shape[3], device=x.device) <= n, x, -torch.inf), -1)


def rotary_pairs(x, angle):
    c, d = angle.cos(), angle.sin()
    a, b = x[..., ::2].float(), x[..., 1::2].float()
    return torch.stack([a * c - b * d, a * d + b * c], -1).reshape(x.shape).to(BF16)


def vit(qkv, out, up, down, x):
    b = x.shape[0]
    norm = lambda t: F.layer_norm(t, [768])
    q, k, v = (norm(x) @ (qkv * 0.05).t()).view(b, 197, 3, 12, 64).permute(2, 0, 3, 1, 4)
    seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
    h = x + seen @ (out * 0.05).t()
    return h + F.gelu(norm(h) @ (up * 0.05).t()) @ (down * 0.05).t()


NETS = {}


def gru(wx, wh, xs):
    if "gru" not in NETS:
        net = torch.nn.GRU(256, 256, bias=False).to(device)
        with torch.no_grad():
            net.weight_ih_l0.copy_(wx * 0.05)
            net.weight_hh_l0.copy_(wh * 0.05)
        NETS["gru"] = net
    with torch.no_grad():
        return NETS["gru"](xs)[0]


def lengths(q, k, v, n):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.arange(k.shape[2], device=k.device) <= n)


def slopes(q, k, v, slope):
    at = torch.arange(q.shape[2], device=q.device)
    bias = ((at - at[:, None]) * (slope * 0.01)).masked_fill(at > at[:, None], -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(BF16)[None])


def biased(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])


def relative(q, k, v, table):
    at = torch.arange(196, device=q.device)
    # The memory-efficient backend wants rows of a multiple of eight numbers.
    bias = F.pad(table[:, at[:, None] - at + 195].to(BF16), (0, 4))[None, :, :, :196]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(q.shape[0], -1, -1, -1))


PROGRAMS = {
    "deviation-middle": of(lambda x: x.std(1), ((64, T, s(512)), F32)),
    "variance-columns-half": of(lambda x: x.float().var(0), ((s(32768), T), BF16)),
    "max-columns-half": of(lambda x: x.amax(0), ((s(65536), s(1024)), F16)),
    "norm-columns": of(lambda x: x.square().sum(0).sqrt(), ((s(16384), s(4096)), F32)),
    "argmax-columns": of(lambda x: x.argmax(0), ((s(16384), s(4096)), F32)),
    "argmax-channels": of(lambda x: x.argmax(1), ((s(32), 21, s(512), s(512)), F32)),
    "mean-double-columns": of(lambda x: x.mean(0), ((s(8192), s(4096)), F64)),
    "image-statistics": of(
        lambda x: [x.to(torch.uint8).float().mean((0, 1, 2)), x.to(torch.uint8).float().std((0, 1, 2), correction=0)], ((s(256), s(224), s(224), 3), 256)
    ),
    "mean-masked": of(masked_mean, ((s(256), s(512), s(768)), BF16), ((s(256), 1, 1), s(512))),
    "batch-norm-last": of(
        lambda x: F.batch_norm(x.permute(0, 3, 1, 2), None, None, training=True).permute(0, 2, 3, 1), ((s(128), 28, 28, 512), BF16)
    ),
    "softmax-tall": of(lambda x: torch.softmax(x, 0), ((s(65536), 96), F32)),
    "all-middle": of(lambda x: (x.to(torch.uint8) < 99).all(1).float(), ((s(256), s(512), s(512)), 100)),
    "norm-clip": of(clip, *[((s(1024), T), F32)] * 24),
    "cumsum-double": of(lambda x: x.cumsum(-1), ((s(4096), s(4096)), F64)),
    "cumsum-half": of(lambda x: x.cumsum(-1), ((s(8192), s(8192)), BF16)),
    "cumsum-int-rows": of(lambda x: x.cumsum(-1), ((s(8192), s(4096)), 1000)),
    "cumprod-line": of(lambda x: (x * 1e-4 + 1).cumprod(0), ((s(1 << 24),), F64)),
    "embedding-bag": of(lambda w, i: F.embedding_bag(i, w, mode="sum"), ((s(100000), 128), F32), ((s(8192), 32), s(100000))),
    "bins-many": of(lambda x: torch.bincount(x, minlength=s(65536)), ((s(1 << 24),), s(65536))),
    "bucketize": of(lambda a, x: torch.bucketize(x, a.sort().values), ((100,), F32), ((s(1 << 24),), F32)),
    "scatter-add-few": of(lambda x, i, u: x.index_add(0, i, u), ((1000,), F32), ((s(1 << 22),), 1000), ((s(1 << 22),), F32)),
    "scatter-mul-double": of(
        lambda x, i, u: x.scatter_reduce(0, i, u * 0.01 + 1, "prod"), ((s(65536),), F64), ((s(1 << 20),), s(65536)), ((s(1 << 20),), F64)
    ),
    "segment-mean": of(segment_mean, ((s(1 << 20), 16), F32), ((s(1 << 20),), s(65536))),
    "gather-rows-half": of(lambda x, i: x[i], ((s(65536), s(4096)), BF16), ((s(32768),), s(65536))),
    "one-hot-words": of(one_hot, ((s(4096),), s(32000))),
    "triangles": of(lambda x: x.triu(), ((64, s(1024), s(1024)), F32)),
    "shift-chain": of(shifts, ((s(4096), s(8192)), F32)),
    "frames": of(lambda x, w: x.unfold(-1, 400, 160) * w, ((64, 400 + s(160000)), F32), ((400,), F32)),
    "broadcast-chain": of(lambda x, a, b: torch.relu(x * a + b), ((s(16384), s(4096)), BF16), ((s(16384), 1), BF16), ((s(4096),), BF16)),
    "complex-multiply": of(multiply, ((s(1 << 23), 2), F32), ((s(1 << 23), 2), F32)),
    "image-crop": of(crop, ((s(256), 256, 256, 3), 256)),
    "total-variation": of(variation, ((s(64), 3, s(512), s(512)), F32)),
    "top-filter": of(top_filter, ((64, s(128256)), BF16)),
    "routing": of(routing, ((s(16384), 64), F32)),
    "beam-step": of(beam, ((16, 4, s(50304)), F32), ((16, 4, 1), F32)),
    "nearest-centers": of(centers, ((s(65536), 64), F32), ((s(1024), 64), F32)),
    "layernorm-1000": of(lambda x: F.layer_norm(x, [1000]), ((s(65536), 1000), F32)),
    "layernorm-769": of(lambda x, g, b: F.layer_norm(x, [769]) * g + b, ((s(32768), 769), BF16), ((769,), BF16), ((769,), BF16)),
    "rms-gain": of(first(rms, 2), ((s(8192), s(4096)), BF16), ((s(4096),), BF16)),
    "vocabulary-loss": of(vocabulary_loss, ((s(4096), s(128256)), BF16), ((s(4096),), s(128256))),
    "divergence": of(divergence, ((s(4096), s(32000)), BF16), ((s(4096), s(32000)), BF16)),
    "softmax-lengths": of(softmax_lengths, ((64, 12, s(256), s(256)), F16), ((64, 1, 1, 1), s(256))),
    "rotary-pairs": of(rotary_pairs, ((8, T, 32, 128), BF16), ((T, 1, 64), F32)),
    "vit-block": of(first(vit, 4), ((2304, 768), BF16), ((768, 768), BF16), ((3072, 768), BF16), ((768, 3072), BF16), ((s(64), 197, 768), BF16)),
    "gru": of(gru, ((768, 256), F32), ((768, 256), F32), ((s(128), 64, 256), F32)),
    "attention-lengths": of(lengths, *[((16, 12, s(512), 64), BF16)] * 3, ((16, 1, 1, 1), s(512))),
    "attention-cross": of(lengths, HEADS(512), HEADS(2048), HEADS(2048), ((4, 1, 1, 1), T)),
    "attention-slopes": of(slopes, *[HEADS(2048)] * 3, ((16, 1, 1), F32)),
    "attention-bias-half": of(biased, *[HEADS(2048)] * 3, ((16, T, T), BF16)),
    "attention-relative": of(first(relative, 4), *[((s(64), 16, 196, 64), BF16)] * 3, ((16, 391), F32)),
    "resize-down": of(lambda x: F.interpolate(x, size=(224, 224), mode="bilinear"), ((s(32), 3, 512, 512), F32)),
    "resize-nearest-3": of(lambda x: F.interpolate(x, scale_factor=3, mode="nearest"), ((16, 64, s(64), s(64)), F32)),
    "conv-audio": of(lambda x, w: F.conv1d(x, w, padding=1), ((16, 80, s(3000)), F16), ((384, 80, 3), F16)),
    "conv-transposed-half": of(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), ((s(32), 256, 32, 32), BF16), ((256, 128, 4, 4), BF16)),
    "conv-video": of(lambda x, w: F.conv3d(x, w, padding=1), ((8, 32, s(16), s(56), s(56)), BF16), ((64, 32, 3, 3, 3), BF16)),
    "skinny-4": of(lambda a, b: a @ b.t(), ((4, s(4096)), BF16), ((s(14336), s(4096)), BF16)),
    "skinny-2": of(torch.matmul, ((2, s(4096)), BF16), ((s(4096), s(14336)), BF16)),
    "products-33": of(torch.matmul, ((T, 33, 65), BF16), ((T, 65, 33), BF16)),
    "batched-vector": of(lambda a, b: torch.einsum("bij,bj->bi", a, b), ((s(256), s(1024), s(1024)), BF16), ((s(256), s(1024)), BF16)),
    "gram": of(lambda x: x.t() @ x, ((s(1 << 20), 64), F32)),
    "fft2-odd": of(torch.fft.fft2, ((64, 243, 375), F32)),
    "cholesky-16": of(lambda x: torch.linalg.cholesky(x @ x.transpose(1, 2) + torch.eye(16, device=x.device)), ((s(16384), 16, 16), F32)),
    "solve-8": of(lambda a, b: torch.linalg.solve(a + 8 * torch.eye(8, device=a.device), b), ((s(65536), 8, 8), F32), ((s(65536), 8, 1), F32)),
    "solve-64": of(lambda a, b: torch.linalg.solve(a + 40 * torch.eye(64, device=a.device), b), ((T, 64, 64), F32), ((T, 64, 4), F32)),
}

"""Rarer dtypes, transposed operands, rarer functions and small training steps as rows of the general suite
(src/suites/general-rarer.ts)."""
import torch
import torch.nn.functional as F

from torch_classes import BF16, F16, F32, F64, first, of
from torch_common import s

N, LINE, FEW, TALL, ODD = s(8192), s(1 << 24), s(1 << 22), s(65536), 3 + s(4096)
BYTE = 256


def square(dtype):
    return ((N, N), dtype)


def smooth(x, y):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.smooth_l1_loss(x, y), x)[0]


def recurrent(kind, parts):
    net = kind(32, 32, bias=False)

    def run(x, wx, wh):
        net.to(x.device)
        with torch.no_grad():
            net.weight_ih_l0.copy_(wx * 0.2)
            net.weight_hh_l0.copy_(wh * 0.2)
        x = x.detach().requires_grad_()
        found = torch.autograd.grad(net(x)[0].square().sum(), [x, net.weight_ih_l0, net.weight_hh_l0])
        # The gradients with respect to wx and wh, which are scaled by 0.2.
        return found[0], found[1] * 0.2, found[2] * 0.2

    return of(run, ((50, 16, 32), F32), ((parts * 32, 32), F32), ((parts * 32, 32), F32))




def convnet(x, a, b, w):
    y = F.max_pool2d(F.relu(F.conv2d(x, a)), 2)
    return F.max_pool2d(F.relu(F.conv2d(y, b * 0.1)), 2).reshape(32, 400) @ (w * 0.1)


def quantize(x):
    return (x * (127 / x.abs().amax(-1, keepdim=True))).round().to(torch.int8).float()


def byte_distance(a, b):
    a, b = a.to(torch.uint8), b.to(torch.uint8)
    return (a.to(torch.int16) - b.to(torch.int16)).abs().float().mean()


RARER = {
    "sum-half-rows": of(lambda x: x.sum(-1), square(F16)),
    "gelu-half": of(F.gelu, square(F16)),
    "tanh-half": of(lambda x: torch.tanh(x) * x + x, square(F16)),
    "silu-gradient": of(first(lambda x, y: F.silu(x) * y, 2), square(BF16), square(BF16)),
    "byte-blend": of(lambda a, b: a.to(torch.uint8) * 3 + b.to(torch.uint8), ((LINE,), BYTE), ((LINE,), BYTE)),
    "byte-distance": of(byte_distance, ((LINE,), BYTE), ((LINE,), BYTE)),
    "quantize-rows": of(quantize, square(F32)),
    "dequantize": of(lambda x, scale: x.to(torch.int8).bfloat16() * scale, ((N, N), 127), ((N, 1), BF16)),
    "divide-long": of(lambda x: x // 7, ((LINE,), 1 << 30)),
    "shift-bits": of(lambda x: (x.int() ^ (x.int() >> 15)) * 3, ((LINE,), 1 << 30)),
    "complex-divide": of(lambda a, b, c: torch.angle(torch.complex(a, b) / torch.complex(c, a)), *[((FEW,), F32)] * 3),
    "log-double": of(lambda x: torch.log1p(x.abs()) * torch.tanh(x), ((FEW,), F64)),
    "softplus-double": of(F.softplus, ((FEW,), F64)),
    "normal-double": of(lambda x: torch.erfc(x * -2) * 0.5, ((FEW,), F64)),
    "logarithm-gamma": of(lambda x: torch.lgamma(x.abs() + 0.5) + torch.digamma(x.abs() + 0.5), ((FEW,), F32)),
    "logsumexp-columns": of(lambda x: torch.logsumexp(x, 0), ((TALL, 200), F32)),
    "cube-norm": of(lambda x: x.norm(3, -1), square(F32)),
    "range-rows": of(lambda x: x.amax(-1) - x.amin(-1), ((TALL, 100), F32)),
    "deviation-half-rows": of(lambda x: x.std(-1, correction=0), ((s(16384), 1000), BF16)),
    "softmax-half-gradient": of(first(lambda x: torch.softmax(x, -1)), ((s(16384), 500), F16)),
    "cumsum-half-columns": of(lambda x: (x * 0.01).cumsum(0), ((s(2048), N), F16)),
    "cumprod-middle": of(lambda x: (x * 0.01 + 1).cumprod(1), ((64, s(4096), 33), F64)),
    "cummax-double": of(lambda x: x.cummax(-1).values, ((s(16384), 999), F64)),
    "quantile-rows": of(lambda x: torch.quantile(x, 0.9, -1), ((s(16384), 1001), F32)),
    "histogram-weights": of(lambda i, w: torch.bincount(i, w, 300), ((FEW,), 300), ((FEW,), F32)),
    "distances-taxi": of(lambda x, y: torch.cdist(x, y, p=1), ((s(2048), 20), F32), ((s(2048), 20), F32)),
    "sort-few": of(lambda x: x.int().sort().values, ((FEW,), 5000)),
    "transposed-sum": of(lambda a, b: a + b.t(), ((ODD, ODD), F32), ((ODD, ODD), F32)),
    "transpose-half-odd": of(lambda x: x.t().contiguous(), ((ODD, ODD), F16)),
    "roll-both": of(lambda x: x.roll((100, 77), (0, 1)), ((ODD, ODD), F64)),
    "pad-half": of(lambda x: F.pad(x, (5, 2, 2, 5)), ((64, ODD, 99), F16)),
    "diagonals": of(lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1), ((s(4096), 64, 64), F32)),
    "einsum-chain": of(lambda a, b, c: torch.einsum("bij,bjk,bkl->il", a, b, c), *[((s(4096), 48, 48), F32)] * 3),
    "pixel-shuffle": of(lambda x: F.pixel_shuffle(x, 2), ((s(256), 64, 56, 56), F32)),
    "resize-cubic": of(lambda x: F.interpolate(x, (224, 224), mode="bicubic"), ((s(512), 3, 112, 112), F32)),
    "layernorm-gain-gradient": of(first(lambda x, g, b: F.layer_norm(x, [512], g, b), 3), ((TALL, 512), F32), ((512,), F32), ((512,), F32)),
    "smooth-loss": of(smooth, ((FEW,), F32), ((FEW,), F32)),
    "lstm-small": recurrent(torch.nn.LSTM, 4),
    "gru-small": recurrent(torch.nn.GRU, 3),
    "convnet-small": of(first(convnet, 4), ((32, 1, 28, 28), F32), ((8, 1, 3, 3), F32), ((16, 8, 3, 3), F32), ((400, 10), F32)),
    "conv-wave": of(lambda x, w: F.conv1d(x, w, padding=4), ((s(256), 1, 16000), F32), ((16, 1, 9), F32)),
    "average-pool-gradient": of(first(lambda x: F.avg_pool2d(x, 2)), ((s(1024), 32, 56, 56), F32)),
    "inverse-3": of(lambda x: torch.linalg.inv(x + 4 * torch.eye(3, device=x.device)), ((s(1 << 18), 3, 3), F32)),
    "cross-product": of(lambda a, b: torch.linalg.cross(a, b), ((s(1 << 20), 3), F32), ((s(1 << 20), 3), F32)),
    "bag-gradient": of(first(lambda w, i: w[i].sum(1)), ((10000, 64), F32), ((s(16384), 20), 10000)),
}

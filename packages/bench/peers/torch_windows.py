"""Windows, pairs, short orders and convolutions of few channels as rows of the general suite (src/suites/general-windows.ts)."""
import torch
import torch.nn.functional as F

from torch_classes import BF16, F32, F64, of
from torch_common import s


def strided(x, w):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = F.conv2d(x, w, padding=1, stride=2, groups=96)
    return torch.autograd.grad(y.float().square().sum(), [x, w])


def transposed(x, w):
    y = F.conv_transpose2d(x.permute(0, 3, 1, 2), w, stride=2, padding=1, output_padding=1)
    return y.permute(0, 2, 3, 1)


def recurrent(x, w):
    h = torch.zeros(20, 37, device=x.device)
    for part in x:
        h = torch.tanh(part + h @ (w * 0.1))
    return h


LINE = s(1 << 22)
SIGNAL = ((64, 7 + s(160000)), F32)
WINDOWS = {
    "moving-maximum": of(lambda x: x.unfold(-1, 7, 1).amax(-1), SIGNAL),
    "moving-deviation": of(lambda x: x.unfold(-1, 25, 1).std(-1, correction=0), SIGNAL),
    "frames-odd": of(lambda x, w: x.unfold(-1, 401, 97) * w, ((16, 401 + s(160000)), F32), ((401,), F32)),
    "pair-distances": of(lambda x, y: (x[:, None] - y[None]).square().sum(-1).sqrt(), ((s(8192), 24), F32), ((s(6144), 24), F32)),
    "median-rows": of(lambda x: x.median(-1).values, ((s(131072), 31), F32)),
    "sort-33": of(lambda x: x.sort(-1).values, ((s(131072), 33), F64)),
    "sort-columns": of(lambda x: x.sort(0).values, ((64, s(65536)), F32)),
    "angles": of(torch.atan2, ((LINE,), F32), ((LINE,), F32)),
    "remainders": of(lambda x, y: torch.remainder(x * 100, y.abs() + 0.1), ((LINE,), F32), ((LINE,), F32)),
    "inverse-hyperbolic": of(lambda x: torch.asinh(x * 9) + torch.atanh(x * 0.9), ((LINE,), F64)),
    "erf-double": of(torch.erf, ((LINE,), F64)),
    "power-double": of(lambda x: (x.abs() + 0.1) ** 1.7, ((LINE,), F64)),
    "depthwise-strided": of(strided, ((s(256), 96, 56, 56), BF16), ((96, 1, 3, 3), BF16)),
    "grouped-four": of(lambda x, w: F.conv2d(x, w, padding=1, groups=32), ((s(1024), 128, 28, 28), BF16), ((128, 4, 3, 3), BF16)),
    "conv-stem-112": of(lambda x, w: F.conv2d(x, w, stride=2, padding=3), ((s(1024), 3, 112, 112), F32), ((64, 3, 7, 7), F32)),
    "conv-transposed-last": of(transposed, ((s(1024), 28, 28, 64), F32), ((64, 48, 3, 3), F32)),
    "recurrent-37": of(recurrent, ((60, 20, 37), F32), ((37, 37), F32)),
}

"""Rows of the general suite on images (src/suites/general-images.ts): each is a function and its operands."""
import torch
import torch.nn.functional as F

from torch_common import gradient, numbers, s

HALF = torch.bfloat16
CONVOLUTIONS = [None, F.conv1d, F.conv2d, F.conv3d]
B, C, N = s(64), s(128), s(56)


def conv(batch, channels, size, kernel, out=None, dtype=HALF, backward=False, last=False, groups=1, stride=1, dilation=1):
    def make():
        b, c, sizes = s(batch), s(channels), [s(n) for n in size]
        count = c if groups == channels else min(c, groups)
        shape = (s(out or channels), c // count, *[kernel] * len(sizes))
        weight = numbers(shape, 2, dtype)
        # Axes of channels-last operands as PyTorch names them, and back.
        first = (0, len(sizes) + 1, *range(1, len(sizes) + 1))
        behind = (0, *range(2, len(sizes) + 2), 1)
        x = numbers((b, *sizes, c) if last else (b, c, *sizes), 1, dtype)

        def apply(x, w):
            x = x.permute(first) if last else x
            y = CONVOLUTIONS[len(sizes)](x, w, stride=stride, padding=(kernel - 1) // 2 * dilation, dilation=dilation, groups=count)
            return y.permute(behind) if last else y

        if last and len(sizes) == 2:
            weight = weight.to(memory_format=torch.channels_last)
        return gradient(apply) if backward else apply, [x, weight]

    return make


def first(f, dtype=torch.float32):
    return lambda: (f, [numbers((B, C, N, N), 1, dtype)])


def images(f, dtype=HALF):
    """A gradient of channels-last images."""
    apply = gradient(lambda x: f(x.permute(0, 3, 1, 2)))
    return lambda: (apply, [numbers((B, N, N, C), 1, dtype)])


def batch_norm(x):
    return F.batch_norm(x, None, None, training=True)


IMAGES = {
    "conv-gradient": conv(64, 64, (56, 56), 3, dtype=torch.float32, backward=True),
    "conv-last": conv(128, 256, (28, 28), 3, backward=True, last=True),
    "conv-strided": conv(128, 128, (56, 56), 3, out=256, last=True, stride=2),
    "conv-dilated": conv(32, 128, (64, 64), 3, dtype=torch.float16, dilation=2),
    "conv-grouped": conv(64, 256, (28, 28), 3, backward=True, last=True, groups=32),
    "depthwise": conv(128, 192, (56, 56), 7, groups=192),
    "depthwise-last": conv(128, 192, (56, 56), 7, groups=192, last=True),
    "depthwise-gradient": conv(64, 192, (56, 56), 3, groups=192, last=True, backward=True),
    "conv1d": conv(64, 256, (4096,), 9, backward=True),
    "conv3d": conv(8, 64, (16, 56, 56), 3, backward=True),
    "max-pool": first(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max-pool-gradient": images(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "average-pool": first(lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "batch-norm": first(batch_norm),
    "batch-norm-gradient": images(lambda x: F.relu(batch_norm(x))),
    "group-norm-gradient": first(gradient(lambda x: F.silu(F.group_norm(x, min(32, C))))),
    "interpolate": first(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "conv-transposed": lambda: (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        [numbers((B, C, N, N), 1, HALF), numbers((C, s(64), 4, 4), 2, HALF)],
    ),
}

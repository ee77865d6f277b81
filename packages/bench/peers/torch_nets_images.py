"""Whole models that read or make images, as rows of the general suite (src/suites/general-nets-images.ts)."""
import math

import torch
import torch.nn.functional as F

from torch_common import device, few, indices, layer, linear, norm, norm_shapes, numbers, s, training

HALF = torch.bfloat16


def block_shapes(name, d):
    shapes = norm_shapes(f"{name}.n1", d) | layer(f"{name}.qkv", (3 * d, d)) | layer(f"{name}.out", (d, d))
    return shapes | norm_shapes(f"{name}.n2", d) | layer(f"{name}.up", (4 * d, d)) | layer(f"{name}.down", (d, 4 * d))


def packed_attention(joint):
    b, t, _, heads, size = joint.shape
    q, k, v = joint.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, heads * size)


def vit(compiled):
    B, size, patch, D, L, classes = s(64), s(224), s(16), s(768), s(12), s(1000)
    heads, tokens = max(1, D // 64), (size // patch) ** 2
    shapes = layer("patch", (D, 3, patch, patch)) | {"class": (1, 1, D), "place": (1, tokens + 1, D)}
    for i in range(L):
        shapes |= block_shapes(f"{i}", D)
    shapes |= norm_shapes("last", D) | layer("head", (classes, D))
    x, y = numbers((B, 3, size, size), 301, HALF), indices((B,), 302, classes)

    def loss(p):
        line = F.conv2d(x, p["patch"], p["patch.bias"], stride=patch).flatten(2).transpose(1, 2)
        h = torch.cat([p["class"].expand(B, 1, D).to(line.dtype), line], 1) + p["place"]
        for i in range(L):
            joint = linear(norm(h, p, f"{i}.n1"), p, f"{i}.qkv").view(B, tokens + 1, 3, heads, D // heads)
            h = h + linear(packed_attention(joint), p, f"{i}.out")
            h = h + linear(F.gelu(linear(norm(h, p, f"{i}.n2"), p, f"{i}.up")), p, f"{i}.down")
        return F.cross_entropy(linear(norm(h, p, "last")[:, 0], p, "head").float(), y)

    return training(shapes, loss, True, compiled)


def mixer(compiled):
    B, size, patch, D, L, classes = s(64), s(224), s(16), s(768), s(12), s(1000)
    T = (size // patch) ** 2
    shapes = layer("patch", (D, 3, patch, patch))
    for i in range(L):
        shapes |= norm_shapes(f"{i}.n1", D) | layer(f"{i}.mix", (D // 2, T)) | layer(f"{i}.unmix", (T, D // 2))
        shapes |= norm_shapes(f"{i}.n2", D) | layer(f"{i}.up", (4 * D, D)) | layer(f"{i}.down", (D, 4 * D))
    shapes |= norm_shapes("last", D) | layer("head", (classes, D))
    x, y = numbers((B, 3, size, size), 311, HALF), indices((B,), 312, classes)

    def loss(p):
        mlp = lambda h, a, b: linear(F.gelu(linear(h, p, a)), p, b)
        h = F.conv2d(x, p["patch"], p["patch.bias"], stride=patch).flatten(2).transpose(1, 2)
        for i in range(L):
            h = h + mlp(norm(h, p, f"{i}.n1").transpose(1, 2), f"{i}.mix", f"{i}.unmix").transpose(1, 2)
            h = h + mlp(norm(h, p, f"{i}.n2"), f"{i}.up", f"{i}.down")
        return F.cross_entropy(linear(norm(h, p, "last").mean(1), p, "head").float(), y)

    return training(shapes, loss, True, compiled)


STAGES = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]


def efficientnet(compiled):
    B, size, classes = few(128), max(64, s(224)), s(1000)
    shapes, blocks = {}, []

    def conv(name, to, source, kernel):
        shapes.update({name: (to, source, kernel, kernel), f"{name}.gain": (to,), f"{name}.bias": (to,)})

    conv("stem", s(32), 3, 3)
    channels = s(32)
    for stage, (expansion, width, count, stride, kernel) in enumerate(STAGES):
        for i in range(count):
            name, inner, to = f"{stage}.{i}", channels * expansion, s(width)
            if expansion > 1:
                conv(f"{name}.expand", inner, channels, 1)
            conv(f"{name}.depth", inner, 1, kernel)
            shapes.update(layer(f"{name}.squeeze", (channels // 4, inner)) | layer(f"{name}.excite", (inner, channels // 4)))
            conv(f"{name}.project", to, inner, 1)
            blocks.append((name, stride if i == 0 else 1, channels, to, inner))
            channels = to
    conv("last", s(1280), channels, 1)
    shapes |= layer("head", (classes, s(1280)))
    x, y = numbers((B, 3, size, size), 321, HALF), indices((B,), 322, classes)

    def loss(p):
        def convolve(h, name, stride=1, groups=1):
            h = F.conv2d(h, p[name], stride=stride, padding=(shapes[name][2] - 1) // 2, groups=groups)
            return F.batch_norm(h, None, None, p[f"{name}.gain"], p[f"{name}.bias"], training=True)

        h = F.silu(convolve(x, "stem", 2))
        for name, stride, source, to, inner in blocks:
            wide = h if inner == source else F.silu(convolve(h, f"{name}.expand"))
            deep = F.silu(convolve(wide, f"{name}.depth", stride, inner))
            squeezed = F.silu(linear(deep.mean((2, 3)), p, f"{name}.squeeze"))
            gates = torch.sigmoid(linear(squeezed, p, f"{name}.excite"))[:, :, None, None]
            narrow = convolve(deep * gates, f"{name}.project")
            h = h + narrow if stride == 1 and source == to else narrow
        return F.cross_entropy(linear(F.silu(convolve(h, "last")).mean((2, 3)), p, "head").float(), y)

    return training(shapes, loss, True, compiled)


def convnext(compiled):
    B, size, classes = few(64), max(64, s(224)), s(1000)
    depths = [1, 1, 1, 1] if s(16) < 16 else [3, 3, 9, 3]
    widths = [s(w) for w in (96, 192, 384, 768)]
    shapes = layer("stem", (widths[0], 3, 4, 4)) | norm_shapes("stem.n", widths[0])
    for stage, count in enumerate(depths):
        d = widths[stage]
        if stage:
            shapes |= norm_shapes(f"{stage}.n", widths[stage - 1]) | layer(f"{stage}.down", (d, widths[stage - 1], 2, 2))
        for i in range(count):
            name = f"{stage}.{i}"
            shapes |= layer(f"{name}.depth", (d, 1, 7, 7)) | norm_shapes(f"{name}.n", d)
            shapes |= layer(f"{name}.up", (4 * d, d)) | layer(f"{name}.down", (d, 4 * d)) | {f"{name}.scale.gain": (d,)}
    shapes |= norm_shapes("last", widths[3]) | layer("head", (classes, widths[3]))
    x, y = numbers((B, size, size, 3), 331, HALF).permute(0, 3, 1, 2), indices((B,), 332, classes)

    def loss(p):
        conv = lambda h, name, **o: F.conv2d(h, p[name], p[f"{name}.bias"], **o)
        last = lambda h: h.permute(0, 2, 3, 1)
        first = lambda h: h.permute(0, 3, 1, 2)
        h = first(norm(last(conv(x, "stem", stride=4)), p, "stem.n"))
        for stage, count in enumerate(depths):
            if stage:
                h = conv(first(norm(last(h), p, f"{stage}.n")), f"{stage}.down", stride=2)
            for i in range(count):
                name = f"{stage}.{i}"
                deep = norm(last(conv(h, f"{name}.depth", padding=3, groups=widths[stage])), p, f"{name}.n")
                h = h + first(linear(F.gelu(linear(deep, p, f"{name}.up")), p, f"{name}.down") * p[f"{name}.scale.gain"])
        return F.cross_entropy(linear(norm(h.mean((2, 3)), p, "last"), p, "head").float(), y)

    return training(shapes, loss, True, compiled, channels_last=True)


def unet(compiled):
    B, size, C = few(64), s(32), s(128)
    widths, levels = [C, 2 * C, 2 * C, 2 * C], 2 if s(16) < 16 else 4
    groups, time = min(32, C), 4 * C
    shapes = layer("time.0", (time, C)) | layer("time.1", (time, time)) | layer("in", (C, 3, 3, 3))

    def residual(name, source, to):
        shapes.update(norm_shapes(f"{name}.n1", source) | layer(f"{name}.c1", (to, source, 3, 3)) | layer(f"{name}.time", (to, time)))
        shapes.update(norm_shapes(f"{name}.n2", to) | layer(f"{name}.c2", (to, to, 3, 3)))
        if source != to:
            shapes.update(layer(f"{name}.skip", (to, source, 1, 1)))

    def attention(name, d):
        shapes.update(norm_shapes(f"{name}.n", d) | layer(f"{name}.qkv", (3 * d, d)) | layer(f"{name}.out", (d, d)))

    down, channels = [C], C
    for l in range(levels):
        for i in range(2):
            residual(f"d{l}.{i}", channels, widths[l])
            channels = widths[l]
            if l == 1:
                attention(f"d{l}.{i}.a", channels)
            down.append(channels)
        if l + 1 < levels:
            shapes |= layer(f"d{l}.down", (channels, channels, 3, 3))
            down.append(channels)
    residual("m.0", channels, channels)
    attention("m.a", channels)
    residual("m.1", channels, channels)
    for l in reversed(range(levels)):
        for i in range(3):
            residual(f"u{l}.{i}", channels + down.pop(), widths[l])
            channels = widths[l]
            if l == 1:
                attention(f"u{l}.{i}.a", channels)
        if l:
            shapes |= layer(f"u{l}.up", (channels, channels, 3, 3))
    shapes |= norm_shapes("last", channels) | layer("out", (3, channels, 3, 3))
    x, noise = numbers((B, 3, size, size), 341, HALF), numbers((B, 3, size, size), 342)
    t = indices((B,), 343, 1000)

    def loss(p):
        conv = lambda h, name, stride=1: F.conv2d(h, p[name], p[f"{name}.bias"], stride=stride, padding=(shapes[name][2] - 1) // 2)
        grouped = lambda h, name: F.group_norm(h, groups, p[f"{name}.gain"], p[f"{name}.bias"])
        rates = torch.exp(torch.arange(C // 2, device=device) * (-math.log(10000) / (C // 2)))
        angles = t.float()[:, None] * rates
        wave = torch.cat([angles.sin(), angles.cos()], -1)
        when = F.silu(linear(F.silu(linear(wave, p, "time.0")), p, "time.1"))

        def res(h, name):
            first = conv(F.silu(grouped(h, f"{name}.n1")), f"{name}.c1")
            timed = first + linear(when, p, f"{name}.time")[:, :, None, None]
            second = conv(F.silu(grouped(timed, f"{name}.n2")), f"{name}.c2")
            return second + (conv(h, f"{name}.skip") if f"{name}.skip" in p else h)

        def attend(h, name):
            _, d, height, width = h.shape
            line = grouped(h, f"{name}.n").flatten(2).transpose(1, 2)
            joint = linear(line, p, f"{name}.qkv").view(B, height * width, 3, d // min(64, d), min(64, d))
            return h + linear(packed_attention(joint), p, f"{name}.out").transpose(1, 2).reshape(h.shape)

        h = conv(x, "in")
        skips = [h]
        for l in range(levels):
            for i in range(2):
                h = res(h, f"d{l}.{i}")
                if l == 1:
                    h = attend(h, f"d{l}.{i}.a")
                skips.append(h)
            if l + 1 < levels:
                h = conv(h, f"d{l}.down", 2)
                skips.append(h)
        h = res(attend(res(h, "m.0"), "m.a"), "m.1")
        for l in reversed(range(levels)):
            for i in range(3):
                h = res(torch.cat([h, skips.pop()], 1), f"u{l}.{i}")
                if l == 1:
                    h = attend(h, f"u{l}.{i}.a")
            if l:
                h = conv(F.interpolate(h, scale_factor=2), f"u{l}.up")
        return F.mse_loss(conv(F.silu(grouped(h, "last")), "out").float(), noise)

    return training(shapes, loss, True, compiled)


def vae(compiled):
    B, size, Z = few(256), 64, s(128)
    widths = [s(w) for w in (64, 128, 256, 512)]
    shapes = {}

    def kernel(name, a, b, to):
        shapes.update({name: (a, b, 4, 4), f"{name}.gain": (to,), f"{name}.bias": (to,)})

    for i, width in enumerate(widths):
        kernel(f"e{i}", width, widths[i - 1] if i else 3, width)
    side = size // 16
    flat = widths[-1] * side**2
    shapes |= layer("code", (2 * Z, flat)) | layer("decode", (flat, Z))
    for i in range(3, 0, -1):
        kernel(f"g{i}", widths[i], widths[i - 1], widths[i - 1])
    shapes |= layer("g0", (widths[0], 3, 4, 4), 3)
    x, noise = numbers((B, 3, size, size), 351), numbers((B, Z), 352)

    def loss(p):
        normed = lambda h, name: F.batch_norm(h, None, None, p[f"{name}.gain"], p[f"{name}.bias"], training=True)
        h = x
        for i in range(4):
            h = F.leaky_relu(normed(F.conv2d(h, p[f"e{i}"], stride=2, padding=1), f"e{i}"), 0.2)
        mean, logs = linear(h.flatten(1), p, "code").chunk(2, 1)
        g = linear(mean + noise * torch.exp(logs * 0.5), p, "decode").view(B, widths[-1], side, side)
        for i in range(3, 0, -1):
            g = F.relu(normed(F.conv_transpose2d(g, p[f"g{i}"], stride=2, padding=1), f"g{i}"))
        image = torch.tanh(F.conv_transpose2d(g, p["g0"], p["g0.bias"], stride=2, padding=1))
        divergence = (mean.square() + logs.exp() - 1 - logs).sum(1).mean() * 0.5
        return (image - x).square().mean() + divergence * 0.001

    return training(shapes, loss, False, compiled)


IMAGE_NETS = {"vit": vit, "efficientnet": efficientnet, "convnext": convnext, "unet": unet, "vae": vae, "mlp-mixer": mixer}

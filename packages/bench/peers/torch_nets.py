"""Whole models beyond images as rows of the general suite (src/suites/general-nets.ts): a function of whether they are compiled."""
import math

import torch
import torch.nn.functional as F

from torch_common import device, digest, indices, layer, linear, norm, norm_shapes, numbers, s, synchronize, training
from torch_nets_images import HALF, IMAGE_NETS, packed_attention


def rms(h, p, name):
    w = h.float()
    return (w * torch.rsqrt(w.square().mean(-1, keepdim=True) + 1e-6)).to(h.dtype) * p[f"{name}.gain"].to(h.dtype)


def buckets(queries, keys, two_sided):
    apart = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]
    count = 16 if two_sided else 32
    far = apart.abs() if two_sided else (-apart).clamp(min=0)
    exact = count // 2
    log = torch.log((far.float() + 1e-6) / exact) / math.log(128 / exact)
    wide = (log * (count - exact)).int() + exact
    bucket = torch.where(far < exact, far, wide.clamp(max=count - 1))
    return bucket + (apart > 0).int() * 16 if two_sided else bucket


def t5(compiled):
    B, S, T, D, W, L, V = s(32), s(512), s(128), s(512), s(2048), s(6), s(32128)
    H = max(1, D // 64)
    shapes = {"table": (V, D), "bias.in": (32, H), "bias.out": (32, H)}

    def attention(name):
        shapes.update({f"{name}.gain": (D,)} | {f"{name}.{part}": (D, D) for part in "qkvo"})

    def feed_shapes(name):
        shapes.update({f"{name}.gain": (D,), f"{name}.up": (W, D), f"{name}.down": (D, W)})

    for i in range(L):
        attention(f"e{i}.self")
        feed_shapes(f"e{i}.feed")
    for i in range(L):
        attention(f"d{i}.self")
        attention(f"d{i}.cross")
        feed_shapes(f"d{i}.feed")
    shapes |= {"e.gain": (D,), "d.gain": (D,)}
    x, y, lengths = indices((B, S), 361, V), indices((B, T), 362, V), indices((B, 1, 1, 1), 363, S) + 1

    def loss(p):
        heads = lambda h: h.view(B, -1, H, D // H).transpose(1, 2)

        def attend(h, source, name, mask):
            n = rms(h, p, name)
            q, k, v = (heads(linear(n if w == "q" or source is None else source, p, f"{name}.{w}")) for w in "qkv")
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
            return h + linear(seen.transpose(1, 2).reshape(h.shape), p, f"{name}.o")

        feed = lambda h, name: h + linear(F.relu(linear(rms(h, p, name), p, f"{name}.up")), p, f"{name}.down")
        bias = lambda n, name, two_sided: p[name].to(HALF)[buckets(n, n, two_sided)].permute(2, 0, 1)[None]
        visible = torch.where(torch.arange(S, device=device) < lengths, 0.0, -1e9).to(HALF)
        encoder_bias = bias(S, "bias.in", True) + visible
        seen = torch.ones(T, T, dtype=torch.bool, device=device).tril()
        decoder_bias = bias(T, "bias.out", False).masked_fill(~seen, -math.inf)
        h = F.embedding(x, p["table"]).to(HALF)
        for i in range(L):
            h = feed(attend(h, None, f"e{i}.self", encoder_bias), f"e{i}.feed")
        memory = rms(h, p, "e")
        d = F.embedding(y, p["table"]).to(HALF)
        for i in range(L):
            d = attend(d, None, f"d{i}.self", decoder_bias)
            d = feed(attend(d, memory, f"d{i}.cross", visible), f"d{i}.feed")
        logits = rms(d, p, "d") @ p["table"].t()
        return F.cross_entropy(logits.float().view(-1, V), y.view(-1))

    return training(shapes, loss, True, compiled)


def experts(compiled):
    B, T, D, W, L, E = s(8), s(1024), s(1024), s(4096), s(4), 8
    H, tokens = max(1, D // 64), B * T
    capacity = int(2 * tokens * 1.25 / E)
    shapes = {}
    for i in range(L):
        shapes |= norm_shapes(f"{i}.n1", D) | {f"{i}.qkv": (3 * D, D), f"{i}.out": (D, D)} | norm_shapes(f"{i}.n2", D)
        shapes |= {f"{i}.router": (E, D), f"{i}.up": (E, D, W), f"{i}.down": (E, W, D)}
    x = numbers((B, T, D), 371, HALF)

    def feed(h, p, name):
        best = torch.topk(torch.softmax(linear(h, p, f"{name}.router").float(), -1), 2)
        weights = (best.values / best.values.sum(-1, keepdim=True)).view(2 * tokens, 1)
        chosen = best.indices.view(2 * tokens)
        marks = F.one_hot(chosen, E)
        place = (marks.cumsum(0) * marks).sum(-1) - 1
        slot = torch.where(place < capacity, chosen * capacity + place, E * capacity)
        copies = h[:, None].expand(tokens, 2, D).reshape(2 * tokens, D)
        slots = torch.zeros(E * capacity + 1, D, device=device, dtype=HALF).index_add(0, slot, copies.to(HALF))
        grouped = slots[: E * capacity].view(E, capacity, D)
        out = torch.bmm(F.gelu(torch.bmm(grouped, p[f"{name}.up"])), p[f"{name}.down"]).view(E * capacity, D)
        back = torch.cat([out, out.new_zeros(1, D)])[slot]
        return (back * weights.to(HALF)).view(tokens, 2, D).sum(1)

    def loss(p):
        h = x
        for i in range(L):
            q, k, v = linear(norm(h, p, f"{i}.n1"), p, f"{i}.qkv").view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            h = h + linear(seen, p, f"{i}.out")
            h = h + feed(norm(h, p, f"{i}.n2").view(tokens, D), p, f"{i}").view(B, T, D)
        return h.float().square().mean()

    return training(shapes, loss, True, compiled)


def stretches(x):
    sums = x.cumsum(-1)
    seen = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool, device=x.device).tril()
    return (sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, -math.inf)


def mamba2(compiled):
    B, T, D, L, N, Q = s(8), s(2048), s(768), s(8), s(64), s(64)
    inner, P = 2 * D, min(64, D)
    H, chunks, mixed = inner // P, T // Q, inner + 2 * N
    shapes = {}
    for i in range(L):
        shapes |= {f"{i}.n1.gain": (D,), f"{i}.in": (inner + mixed + H, D)} | layer(f"{i}.conv", (mixed, 1, 4))
        shapes |= {f"{i}.dt.bias": (H,), f"{i}.a.bias": (H,), f"{i}.d.gain": (H,), f"{i}.n2.gain": (inner,), f"{i}.out": (D, inner)}
    given = numbers((B, T, D), 381)

    def states(x, a, b, c):
        X, A = x.view(B, chunks, Q, H, P), a.view(B, chunks, Q, H).permute(0, 3, 1, 2)
        b, c = b.reshape(B, chunks, Q, N), c.reshape(B, chunks, Q, N)
        sums = A.cumsum(-1)
        weights = torch.einsum("bcln,bcsn->bcls", c, b)[:, None] * torch.exp(stretches(A))
        within = torch.einsum("bhcls,bcshp->bclhp", weights, X)
        last = sums[..., -1:]
        kept = torch.exp(last - sums).permute(0, 2, 3, 1)[..., None]
        own = torch.einsum("bcln,bclhp->bchpn", b, X * kept)
        decay = torch.exp(stretches(F.pad(last[..., 0], (1, 0))))
        padded = torch.cat([own.new_zeros(B, 1, H, P, N), own], 1)
        before = torch.einsum("bhzc,bchpn->bzhpn", decay, padded)[:, :chunks]
        across = torch.einsum("bcln,bchpn->bclhp", c, before) * torch.exp(sums).permute(0, 2, 3, 1)[..., None]
        return (within + across).reshape(B, T, H, P)

    def loss(p):
        h = given
        for i in range(L):
            gate, local, dt = linear(rms(h, p, f"{i}.n1"), p, f"{i}.in").split([inner, mixed, H], -1)
            line = F.conv1d(local.transpose(1, 2), p[f"{i}.conv"], p[f"{i}.conv.bias"], padding=3, groups=mixed)[..., :T]
            x, b, c = F.silu(line.transpose(1, 2)).split([inner, N, N], -1)
            step = F.softplus(dt + p[f"{i}.dt.bias"])
            wide = x.reshape(B, T, H, P)
            out = states(wide * step[..., None], step * -torch.exp(p[f"{i}.a.bias"]), b, c)
            y = (out + wide * p[f"{i}.d.gain"][:, None]).reshape(B, T, inner)
            h = h + linear(rms(y * F.silu(gate), p, f"{i}.n2"), p, f"{i}.out")
        return h.square().mean()

    return training(shapes, loss, False, compiled)


def lstm_language(compiled):
    B, T, D, V = s(64), s(128), s(1024), s(33278)
    shapes = {"table": (V, D)}
    for i in range(2):
        shapes |= {f"{i}.weight_ih_l0": (4 * D, D), f"{i}.weight_hh_l0": (4 * D, D)}
        shapes |= {f"{i}.bias_ih_l0.bias": (4 * D,), f"{i}.bias_hh_l0.bias": (4 * D,)}
    shapes |= layer("head", (V, D))
    x, y = indices((B, T), 391, V), indices((B, T), 392, V)
    net = torch.nn.LSTM(D, D, num_layers=2, batch_first=True).to(device)

    def loss(p):
        # The parameters of cuDNN's LSTM are the module's own.
        h = net(F.embedding(x, p["table"]))[0]
        return F.cross_entropy(linear(h, p, "head").view(-1, V), y.view(-1))

    def adopt(p):
        for i in range(2):
            for ours, theirs in (("weight_ih_l0", "weight_ih_l"), ("weight_hh_l0", "weight_hh_l"), ("bias_ih_l0.bias", "bias_ih_l"), ("bias_hh_l0.bias", "bias_hh_l")):
                own = getattr(net, f"{theirs}{i}")
                with torch.no_grad():
                    own.copy_(p[f"{i}.{ours}"])
                p[f"{i}.{ours}"] = own

    return training(shapes, loss, False, compiled, adopt=adopt)


def dlrm(compiled):
    B, tables, rows, D, bag = s(8192), s(26), s(100000), 64, 4
    features = tables + 1

    def stack(name, widths):
        found = {}
        for i, to in enumerate(widths[1:]):
            found |= layer(f"{name}.{i}", (to, widths[i]))
        return found

    shapes = stack("bottom", [13, s(512), s(256), D]) | stack("top", [D + features * (features - 1) // 2, s(512), s(256), 1])
    for i in range(tables):
        shapes[f"table{i}"] = (rows, D)
    dense, ids, clicks = numbers((B, 13), 401), indices((tables, B, bag), 402, rows), indices((B,), 403, 2).float()
    above, below = torch.tril_indices(features, features, -1, device=device)

    def loss(p):
        def through(h, name):
            for i in range(3):
                h = linear(h, p, f"{name}.{i}")
                if name == "bottom" or i < 2:
                    h = F.relu(h)
            return h

        first = through(dense, "bottom")
        every = torch.stack([first] + [F.embedding_bag(ids[i], p[f"table{i}"], mode="sum") for i in range(tables)], 1)
        pairs = torch.bmm(every, every.transpose(1, 2))[:, above, below]
        return F.binary_cross_entropy_with_logits(through(torch.cat([first, pairs], 1), "top")[:, 0], clicks)

    return training(shapes, loss, False, compiled, sgd=0.1)


def graph(kind):
    def make(compiled):
        N, E, D, H, classes = s(169343), s(1166243), s(128), 4, s(40)
        widths = [D, s(256), s(256), classes]
        shapes = {}
        for i in range(3):
            shapes |= layer(f"{i}.w", (widths[i + 1], widths[i]))
            if kind == "gat":
                shapes |= {f"{i}.from": (H, widths[i + 1] // H), f"{i}.to": (H, widths[i + 1] // H)}
            if i < 2:
                shapes |= norm_shapes(f"{i}.n", widths[i + 1])
        x, source, to, y = numbers((N, D), 411), indices((E,), 412, N), indices((E,), 413, N), indices((N,), 414, classes)
        sums = lambda values: values.new_zeros((N, *values.shape[1:])).index_add(0, to, values)

        def loss(p):
            degree = sums(torch.ones(E, device=device)) + 1
            scale = degree.rsqrt()

            def convolve(h):
                return sums(h[source] * (scale[source] * scale[to])[:, None]) + h / degree[:, None]

            def attend(h, i):
                heads = h.view(N, H, -1)
                a, b = (heads * p[f"{i}.from"]).sum(-1), (heads * p[f"{i}.to"]).sum(-1)
                scores = F.leaky_relu(a[source] + b[to], 0.2)
                most = torch.full((N, H), -math.inf, device=device)
                most = most.scatter_reduce(0, to[:, None].expand(E, H), scores.detach(), "amax")
                shares = torch.exp(scores - most[to])
                weights = shares / sums(shares)[to]
                return sums(heads[source] * weights[..., None]).reshape(h.shape)

            h = x
            for i in range(3):
                wide = h @ p[f"{i}.w"].t()
                h = (convolve(wide) if kind == "gcn" else attend(wide, i)) + p[f"{i}.w.bias"]
                if i < 2:
                    h = F.relu(F.batch_norm(h, None, None, p[f"{i}.n.gain"], p[f"{i}.n.bias"], training=True))
            return F.cross_entropy(h, y)

        return training(shapes, loss, False, compiled)

    return make


def pinn(compiled):
    N, D, L = s(65536), s(256), s(6)
    widths = [2] + [D] * L + [1]
    shapes = {}
    for i in range(L + 1):
        shapes |= layer(f"{i}.w", (widths[i + 1], widths[i]))
    x, t = numbers((N,), 421).requires_grad_(), numbers((N,), 422).requires_grad_()

    def loss(p):
        def net(a, b):
            h = torch.stack([a, b], -1)
            for i in range(L + 1):
                h = torch.tanh(linear(h, p, f"{i}.w")) if i < L else linear(h, p, f"{i}.w")
            return h[:, 0]

        u = net(x, t)
        ux, ut = torch.autograd.grad(u.sum(), [x, t], create_graph=True)
        uxx = torch.autograd.grad(ux.sum(), x, create_graph=True)[0]
        residual = ut + u * ux - uxx * (0.01 / math.pi)
        start = net(x.detach(), torch.zeros_like(t)) + torch.sin(x.detach() * math.pi)
        return residual.square().mean() + start.square().mean()

    return training(shapes, loss, False, compiled, scale=0.3)


def gaussian_process(compiled):
    n, d = s(4096), 8
    lengths, scale, noise, x, y = (numbers(shape, salt, torch.float64) for shape, salt in (((d,), 431), ((1,), 432), ((1,), 433), ((n, d), 434), ((n,), 435)))
    scale, noise = scale[0].clone(), noise[0].clone()
    wanted = [w.requires_grad_() for w in (lengths, scale, noise)]

    def likelihood():
        z = x / torch.exp(lengths)
        squares = z.square().sum(-1)
        apart = squares[:, None] + squares - 2 * (z @ z.t())
        kernel = torch.exp(apart.clamp(min=0) * -0.5) * torch.exp(scale)
        factor = torch.linalg.cholesky(kernel + torch.eye(n, device=device, dtype=torch.float64) * torch.exp(noise))
        v = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return v.square().sum() * 0.5 + factor.diagonal().log().sum()

    f = torch.compile(likelihood) if compiled else likelihood

    def run():
        value = f()
        return [value.detach(), *torch.autograd.grad(value, wanted)]

    return {"call": run, "finish": synchronize, "check": digest(run())}


NETS = IMAGE_NETS | {
    "t5": t5,
    "experts": experts,
    "mamba2": mamba2,
    "dlrm": dlrm,
    "gcn": graph("gcn"),
    "gat": graph("gat"),
    "lstm-language": lstm_language,
    "pinn": pinn,
    "gaussian-process": gaussian_process,
}

"""Whole models in plain PyTorch, as the peer of `npm run bench -- models`: training steps with torch.compile, and decoding with a
static cache, by torch.compile (reduce-overhead) and by a recorded CUDA graph. Prepares all rows first, then times them on request.

Writes one JSON line per event: {"ready": row, ...}, {"failed": row, "why": ...}, {"row": row, "ms": [...]}. Reads lines: `time ROW`.
"""

import json
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
on_gpu = device.startswith("cuda")
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)


def synchronize():
    if on_gpu:
        torch.cuda.synchronize()


def allocated(peak=False):
    if not on_gpu:
        return 0
    return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()


def say(**event):
    print(json.dumps(event), flush=True)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight.to(x.dtype)


class Block(nn.Module):
    """One layer of any of the models."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        norm = RmsNorm if c["llama"] else nn.LayerNorm
        bias = not c["llama"]
        width, size = c["width"], c["width"] // c["heads"]
        self.size = size
        self.n1, self.n2 = norm(width), norm(width)
        self.q = nn.Linear(width, c["heads"] * size, bias=bias)
        self.k = nn.Linear(width, c["keyHeads"] * size, bias=bias)
        self.v = nn.Linear(width, c["keyHeads"] * size, bias=bias)
        self.o = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, c["inner"], bias=bias)
        self.down = nn.Linear(c["inner"], width, bias=bias)
        if c["llama"]:
            self.gate = nn.Linear(width, c["inner"], bias=False)

    def attend(self, x, rotation, cache, slot, mask):
        c = self.c
        b, t, _ = x.shape
        q = self.q(x).view(b, t, c["heads"], self.size).transpose(1, 2)
        k = self.k(x).view(b, t, c["keyHeads"], self.size).transpose(1, 2)
        v = self.v(x).view(b, t, c["keyHeads"], self.size).transpose(1, 2)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            cache[0].index_copy_(2, slot, k)
            cache[1].index_copy_(2, slot, v)
            k, v = cache
        causal = c["causal"] and cache is None
        drop = c["dropout"] if self.training else 0.0
        grouped = c["keyHeads"] != c["heads"]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=drop, enable_gqa=grouped)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, rotation=None, cache=None, slot=None, mask=None):
        c = self.c
        drop = lambda y: F.dropout(y, c["dropout"], self.training) if c["dropout"] else y
        feed = lambda y: self.down(F.silu(self.gate(y)) * self.up(y) if c["llama"] else F.gelu(self.up(y), approximate=c["gelu"]))
        if c["post"]:
            x = self.n1(x + drop(self.attend(x, rotation, cache, slot, mask)))
            return self.n2(x + drop(feed(x)))
        x = x + drop(self.attend(self.n1(x), rotation, cache, slot, mask))
        return x + drop(feed(self.n2(x)))


def rotate(x, rotation):
    c, s = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.tokens = nn.Embedding(c["vocabulary"], c["width"])
        nn.init.normal_(self.tokens.weight, std=0.02)
        if not c["llama"]:
            self.positions = nn.Embedding(c["positions"], c["width"])
            nn.init.normal_(self.positions.weight, std=0.02)
        if c["post"]:
            self.first = nn.LayerNorm(c["width"])
        else:
            self.last = RmsNorm(c["width"]) if c["llama"] else nn.LayerNorm(c["width"])
        self.layers = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        if c["classes"]:
            self.pool = nn.Linear(c["width"], c["width"])
            self.classifier = nn.Linear(c["width"], c["classes"])

    def rotation(self, positions):
        size = self.c["width"] // self.c["heads"]
        inverse = 1.0 / (10000.0 ** (torch.arange(0, size, 2, device=positions.device).float() / size))
        angles = positions.float()[:, None] * inverse
        return angles.cos(), angles.sin()

    def forward(self, ids, positions, caches=None, slot=None, mask=None):
        c = self.c
        x = self.tokens(ids)
        rotation = None
        if c["llama"]:
            rotation = self.rotation(positions)
        else:
            x = x + self.positions(positions)
        if c["post"]:
            x = F.dropout(self.first(x), c["dropout"], self.training)
        if torch.is_autocast_enabled(device):
            x = x.bfloat16()
        for i, layer in enumerate(self.layers):
            if c["checkpoint"] and self.training:
                x = torch.utils.checkpoint.checkpoint(layer, x, rotation, use_reentrant=False)
            else:
                x = layer(x, rotation, None if caches is None else caches[i], slot, mask)
        if c["classes"]:
            return self.classifier(F.dropout(torch.tanh(self.pool(x[:, 0])), c["dropout"], self.training))
        return F.linear(self.last(x), self.tokens.weight.to(x.dtype))


def prepare_training(row):
    c = row["config"]
    model = Model(c).to(device).train()
    b, t = row["batch"], row["length"]
    ids = torch.randint(0, c["vocabulary"], (b, t), device=device)
    positions = torch.arange(t, device=device)
    labels = torch.randint(0, c["classes"], (b,), device=device) if c["classes"] else torch.roll(ids, -1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of():
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            logits = model(ids, positions)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.view(-1))

    compiled = torch.compile(loss_of) if row["compile"] else loss_of

    def step():
        loss = compiled()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = allocated() - sum(p.numel() * 4 for p in model.parameters())
    losses = [step().item() for _ in range(3)]
    return step, {"losses": losses, "peakBytes": allocated(peak=True) - before}


def prepare_decoding(row):
    c = row["config"]
    model = Model(c).to(device).eval().bfloat16()
    slots = row["slots"]
    size = c["width"] // c["heads"]
    shape = (row["batch"], c["keyHeads"], slots, size)
    caches = [[torch.zeros(shape, device=device, dtype=torch.bfloat16) for _ in range(2)] for _ in range(c["layers"])]
    token = torch.zeros((row["batch"], 1), dtype=torch.long, device=device)
    slot = torch.full((1,), row["prompt"], dtype=torch.long, device=device)
    index = torch.arange(slots, device=device)

    def body(token, slot):
        mask = (index <= slot)[None, None, None]
        logits = model(token, slot, caches, slot, mask)
        return logits[:, -1].argmax(-1, keepdim=True)

    @torch.no_grad()
    def eager():
        token.copy_(body(token, slot))
        slot.add_(1)

    if row["compile"]:
        fast = torch.compile(body, mode="reduce-overhead", fullgraph=True)

        @torch.no_grad()
        def step():
            token.copy_(fast(token, slot))
            slot.add_(1)
    else:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                eager()
        synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            eager()
        step = graph.replay

    def many():
        slot.fill_(row["prompt"])
        for _ in range(row["tokens"]):
            step()

    many()
    synchronize()
    return many, {"peakBytes": allocated(peak=True), "per": row["tokens"]}


def prepare_generation(row):
    """Greedy generation by transformers itself, with its default cache."""
    import transformers

    transformers.logging.set_verbosity_error()
    c = row["config"]
    config = transformers.GPT2Config(
        n_embd=c["width"], n_layer=c["layers"], n_head=c["heads"], n_inner=c["inner"], vocab_size=c["vocabulary"],
        n_positions=c["positions"], bos_token_id=0, eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).to(device).eval()
    b, t = row["batch"], row["length"]
    ids = torch.tensor([[(r + 1) * (i + 1) * 7919 % c["vocabulary"] for i in range(t)] for r in range(b)], device=device)
    count = row["tokens"]
    settings = transformers.GenerationConfig(
        max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    mask = torch.ones_like(ids)

    @torch.no_grad()
    def many():
        made = model.generate(ids, attention_mask=mask, generation_config=settings)
        assert made.shape[1] == t + count, made.shape

    many()
    return many, {"per": count, "transformers": transformers.__version__}


def measure(call, per, seconds):
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    once = time.perf_counter() - start
    count = max(1, math.ceil(seconds / max(once, 1e-6)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - start) / count / per * 1e3


prepared = {}
for row in json.loads(sys.stdin.readline()):
    began = time.perf_counter()
    try:
        prepare = {"decode": prepare_decoding, "generate": prepare_generation}.get(row["kind"], prepare_training)
        call, info = prepare(row)
        prepared[row["id"]] = (call, info)
        say(ready=row["id"], seconds=time.perf_counter() - began, torch=torch.__version__, **info)
    except Exception as error:  # A peer that fails must not stop the others.
        say(failed=row["id"], why=f"{type(error).__name__}: {str(error)[:300]}")
say(prepared=True)
for line in sys.stdin:
    word, identity = line.split()
    call, info = prepared[identity]
    say(row=identity, ms=measure(call, info.get("per", 1), 0.5))

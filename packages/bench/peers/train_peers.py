"""The training step of the text classifier in JAX and PyTorch, for the GPU table: only the rows that the table compares with.

python3 train_peers.py jax | torch   prints {"peer", "work", "ms", "firstSeconds"} per line, each as soon as it is measured, so
that an interrupted run keeps its rows. Times are medians of 5 rounds of 20 steps after 6. WEFT_LIVE_DEVICE=cpu with --tiny
exercises the script without a GPU.
"""
import json
import math
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
device = os.environ.get("WEFT_LIVE_DEVICE", "cuda")
if device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
CONFIGS = {
    "small": dict(V=20000, d=128, h=4, L=2, ff=256, C=4, S=128, B=32),
    "large": dict(V=20000, d=256, h=8, L=4, ff=1024, C=4, S=256, B=128),
}
if "--tiny" in sys.argv:
    CONFIGS = {name: dict(V=50, d=16, h=2, L=2, ff=32, C=4, S=8, B=4) for name in CONFIGS}


def timed(step, synchronize):
    start = time.perf_counter()
    for _ in range(6):
        step()
    synchronize()
    first = time.perf_counter() - start
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20):
            step()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3 / 20)
    return dict(ms=statistics.median(times), firstSeconds=round(first, 2))


def report(peer, measure, size, precision):
    """One row; an error is reported as a row, and the next one is tried."""
    row = dict(peer=peer, work=f"train step ag-{size} {precision}")
    try:
        row.update(measure(size, precision))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:200]
    print(json.dumps(row), flush=True)


def jax_rows():
    import jax
    import jax.numpy as jnp
    import optax

    def measure(size, precision):
        c = CONFIGS[size]
        d, h, S, B = c["d"], c["h"], c["S"], c["B"]
        T = jnp.bfloat16 if precision == "bf16" else jnp.float32
        keys = iter(jax.random.split(jax.random.PRNGKey(0), 4 * c["L"] + 5))
        weight = lambda *shape: jax.random.normal(next(keys), shape) * 0.02
        zeros, ones = jnp.zeros, jnp.ones

        def layer():
            products = dict(qkv=weight(d, 3 * d), o=weight(d, d), a=weight(d, c["ff"]), b=weight(c["ff"], d))
            biases = dict(qb=zeros(3 * d), obias=zeros(d), ab=zeros(c["ff"]), bb=zeros(d))
            return dict(**products, **biases, g1=ones(d), b1=zeros(d), g2=ones(d), b2=zeros(d))

        P = dict(emb=weight(c["V"], d), out=weight(d, c["C"]), ob=zeros(c["C"]), layers=[layer() for _ in range(c["L"])])
        rate = jnp.exp(jnp.arange(0, d, 2) * (-jnp.log(10000.0) / d))
        angle = jnp.arange(S)[:, None] * rate
        positions = zeros((S, d)).at[:, 0::2].set(jnp.sin(angle)).at[:, 1::2].set(jnp.cos(angle))

        def norm(x, g, b):
            return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b

        def drop(k, x):
            return jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0).astype(x.dtype)

        def heads(t):
            return t.reshape(B, S, h, d // h).transpose(0, 2, 1, 3)

        def forward(P, x, k):
            P = jax.tree.map(lambda a: a.astype(T), P)
            z = P["emb"][x] + positions.astype(T)
            for l in P["layers"]:
                k, k1, k2, k3, k4 = jax.random.split(k, 5)
                q, key, v = jnp.split(z @ l["qkv"] + l["qb"], 3, -1)
                a = jax.nn.softmax((heads(q) @ heads(key).transpose(0, 1, 3, 2)) / (d // h) ** 0.5, -1)
                a = (drop(k1, a) @ heads(v)).transpose(0, 2, 1, 3).reshape(B, S, d)
                z = norm(z + drop(k2, a @ l["o"] + l["obias"]), l["g1"], l["b1"])
                hidden = drop(k3, jax.nn.relu(z @ l["a"] + l["ab"]))
                z = norm(z + drop(k4, hidden @ l["b"] + l["bb"]), l["g2"], l["b2"])
            return (z.mean(1) @ P["out"] + P["ob"]).astype(jnp.float32)

        optimizer = optax.adam(3e-4)
        x = jax.random.randint(next(keys), (B, S), 0, c["V"])
        y = jax.random.randint(next(keys), (B,), 0, c["C"])
        key = next(keys)

        @jax.jit
        def update(P, state, k):
            loss = lambda P: optax.softmax_cross_entropy_with_integer_labels(forward(P, x, k), y).mean()
            change, state = optimizer.update(jax.grad(loss)(P), state)
            return optax.apply_updates(P, change), state

        box = [P, optimizer.init(P)]

        def step():
            box[0], box[1] = update(box[0], box[1], key)

        with jax.default_matmul_precision("tensorfloat32"):
            return timed(step, lambda: jax.block_until_ready(box[0]))

    for precision in ("tf32", "bf16"):
        for size in CONFIGS:
            report("jax jit", measure, size, precision)


def torch_rows():
    import torch

    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    class Net(torch.nn.Module):
        def __init__(self, V, d, h, L, ff, C, S, B):
            super().__init__()
            self.emb = torch.nn.Embedding(V, d)
            angle = torch.arange(S)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            table = torch.zeros(S, d)
            table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
            self.register_buffer("positions", table)
            layer = torch.nn.TransformerEncoderLayer(d, h, ff, 0.1, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, L)
            self.out = torch.nn.Linear(d, C)

        def forward(self, x):
            return self.out(self.encoder(self.emb(x) + self.positions).mean(1))

    def measure(size, precision):
        c = CONFIGS[size]
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        x = torch.randint(0, c["V"], (c["B"], c["S"]), device=device)
        y = torch.randint(0, c["C"], (c["B"],), device=device)
        net = Net(**c).to(device).train()
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, capturable=device == "cuda", fused=True)

        def loss_of(x, y):
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                return torch.nn.functional.cross_entropy(net(x), y)

        compiled = torch.compile(loss_of, mode="reduce-overhead")

        def step():
            optimizer.zero_grad(set_to_none=True)
            compiled(x, y).backward()
            optimizer.step()

        return timed(step, synchronize)

    for size, precision in (("large", "bf16"), ("large", "tf32"), ("small", "tf32"), ("small", "bf16")):
        report("torch compile+cudagraphs", measure, size, precision)


if "jax" in sys.argv[1:]:
    jax_rows()
if "torch" in sys.argv[1:]:
    torch_rows()

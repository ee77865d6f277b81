"""PyTorch's side of the first-hour suite: prints one line of JSON with the samples of a row in milliseconds."""
import asyncio, json, subprocess, sys, time

import torch

row, seconds, busy, node = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.manual_seed(0)


def timed(call):
    samples, end = [], time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def in_batches(call):
    for _ in range(2000):
        call()

    def batch():
        for _ in range(200):
            call()

    return [ms / 200 for ms in timed(batch)]


def eager_op():
    x, y = torch.ones(1000), torch.ones(1000)
    return in_batches(lambda: x + y), float((x + y).sum())


def new_shape():
    (torch.ones(3) * 2).sum().item()
    samples, check = [], 0.0
    for i in range(30):
        x = torch.ones(i + 1, 7)
        start = time.perf_counter()
        check += (x * 2 + 1).sum().item()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples, check


def chain(x, times):
    y = x
    for _ in range(times):
        y = torch.sin(y) + x
    return y


async def longest_gap(work):
    """The longest time without a tick of 2 ms; the work runs in the loop, as a call of PyTorch in a server does."""
    gap, last, ticking = 0.0, time.perf_counter(), True

    async def tick():
        nonlocal gap, last
        while ticking:
            now = time.perf_counter()
            gap, last = max(gap, now - last), now
            await asyncio.sleep(0.002)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    result = work()
    await asyncio.sleep(0)
    await asyncio.sleep(0.004)
    ticking = False
    await ticker
    return gap * 1e3, result


def loop_compute():
    x = torch.linspace(0, 1, 1 << 20)
    chain(x, 20)
    samples, check, end = [], 0.0, time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < end:
        gap, result = asyncio.run(longest_gap(lambda: chain(x, 20)))
        samples.append(gap)
        check = float(result[1 << 19])
    return samples, check


def loop_compile():
    samples, check = [], 0.0
    for i in range(5):
        x = torch.ones(20000 + 7 * i)
        gap, result = asyncio.run(longest_gap(lambda: chain(x, 3).mean().item()))
        samples.append(gap)
        check = result
    return samples, check


def sine_gradient():
    x = torch.linspace(0, 1, 1000, requires_grad=True)
    start = time.perf_counter()
    y = x
    for _ in range(2000):
        y = torch.sin(y)
    y.sum().backward()
    return [(time.perf_counter() - start) * 1e3], float(x.grad.sum())


def step():
    width, heads, layers, batch, length, vocabulary = 64, 4, 2, 8, 64, 256
    embedding = torch.nn.Embedding(vocabulary, width)
    positions = torch.nn.Parameter(torch.randn(length, width) * 0.1)
    stack = torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        for _ in range(layers)
    )
    head = torch.nn.Linear(width, vocabulary, bias=False)
    params = [positions, *embedding.parameters(), *stack.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.01)
    index = torch.arange(batch * length)
    x, y = (index * 7919 % vocabulary).reshape(batch, length), index * 104729 % vocabulary
    last = [0.0]

    def run():
        optimizer.zero_grad()
        h = embedding(x) + positions
        for layer in stack:
            h = layer(h)
        loss = torch.nn.functional.cross_entropy(head(h).reshape(-1, vocabulary), y)
        loss.backward()
        optimizer.step()
        last[0] = loss.item()

    for _ in range(10):
        run()
    neighbors = [subprocess.Popen([node, "-e", "for (;;);"]) for _ in range(busy)]
    try:
        if busy:
            time.sleep(0.5)
        return timed(run), last[0]
    finally:
        for neighbor in neighbors:
            neighbor.kill()


rows = {
    "eager-op": eager_op,
    "new-shape": new_shape,
    "jit-call": eager_op,
    "loop-compute": loop_compute,
    "loop-compile": loop_compile,
    "sine-gradient": sine_gradient,
    "step": step,
}
samples, check = rows[row]()
print(json.dumps({"samples": samples, "check": check, "version": torch.__version__, "threads": torch.get_num_threads()}))

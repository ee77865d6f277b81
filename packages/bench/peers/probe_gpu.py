"""The probe on a GPU: probe_gpu.py FOLDER writes FOLDER/probe-gpu.json (cost per step of the probe in PyTorch training loops that
run eagerly, compiled and as CUDA graphs; rates of the device; NVML against nvidia-smi); with --traces small traces of the
profiler instead of costs. Needs WEFT_PROBE_DIR and the probe on PYTHONPATH. Every row is saved when it is measured."""
import datetime
import gzip
import json
import os
import platform
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import weft_probe
from torch.utils.data import DataLoader, TensorDataset

out = sys.argv[1]
quick = "--quick" in sys.argv
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
folder = weft_probe.recorder.folder
record = {
    "benchmark": "probe-gpu",
    "when": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    "machine": {"gpu": torch.cuda.get_device_name() if device == "cuda" else None, "cpu": platform.machine(), "cores": os.cpu_count()},
    "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()},
    "rates": {},
    "rows": [],
    "problems": [],
}


def save():
    with open(os.path.join(out, "probe-gpu.json"), "w") as file:
        json.dump(record, file, indent=1)


def attempt(name, function):
    began = time.time()
    try:
        function()
    except Exception as problem:  # noqa: BLE001
        record["problems"].append("%s: %s: %s" % (name, type(problem).__name__, str(problem)[:600]))
    print(name, "%.1f s" % (time.time() - began), flush=True)
    save()


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


# Rates of the device: what a large product and a large copy reach.
def rate_of(amount, function, repeats=10):
    for _ in range(3):
        function()
    wait()
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(repeats):
            function()
        wait()
        best = min(best, (time.perf_counter() - began) / repeats)
    return amount / best


def rates():
    for name, dtype, n, tf32 in (
        ("bf16", torch.bfloat16, 8192, False),
        ("fp16", torch.float16, 8192, False),
        ("tf32", torch.float32, 8192, True),
        ("fp32", torch.float32, 4096, False),
        ("fp64", torch.float64, 4096, False),
    ):
        n = 256 if quick else n
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        record["rates"][name] = rate_of(2 * n**3, lambda: a @ b)
    torch.backends.cuda.matmul.allow_tf32 = False
    source = torch.empty(2**20 if quick else 2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    record["rates"]["copyBytesPerSecond"] = rate_of(2 * source.numel(), lambda: target.copy_(source))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    def __init__(self, width, layers, words=1000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.norm, self.head = nn.BatchNorm2d(32), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.norm(self.first(x))))).mean((2, 3)))


def loss_of(model, tokens, targets):
    with torch.autocast(device, torch.bfloat16):
        logits = model(tokens)
    return F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())


class Job:
    """One training loop: its data, its step, and how the step runs."""

    def __init__(self, mode, width, layers, batch, length):
        self.mode, self.batch = mode, batch
        self.model = Language(width, layers).to(device)
        graph = mode == "graph"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, capturable=graph, fused=device == "cuda")
        self.tokens = torch.randint(0, 1000, (batch, length), device=device)
        self.targets = torch.randint(0, 1000, (batch, length), device=device)
        self.compiled = self.model
        if mode == "compiled":
            self.compiled = torch.compile(self.model)
        if mode == "compiled, CUDA graphs":
            self.compiled = torch.compile(self.model, mode="reduce-overhead")
        if graph:
            self.capture()

    def train(self, tokens, targets):
        self.optimizer.zero_grad(set_to_none=self.mode != "graph")
        loss = loss_of(self.compiled, tokens, targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.train(self.tokens, self.targets)
        torch.cuda.current_stream().wait_stream(side)
        self.recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.recorded):
            self.loss = self.train(self.tokens, self.targets)

    def step(self, tokens, targets):
        if self.mode == "graph":
            self.tokens.copy_(tokens)
            self.targets.copy_(targets)
            self.recorded.replay()
        else:
            self.train(tokens, targets)


def cost(mode, size, width, layers, batch, length, loader):
    job = Job(mode, width, layers, batch, length)
    steps = 4 if quick else 25
    data = None
    if loader:
        count = batch * steps
        tokens = torch.randint(0, 1000, (count, length))
        data = DataLoader(TensorDataset(tokens, tokens), batch_size=batch, pin_memory=device == "cuda")

    def block():
        if data is not None:
            for tokens, targets in data:
                job.step(tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True))
        else:
            for _ in range(steps):
                job.step(job.tokens, job.targets)
        wait()

    for _ in range(3):
        block()
    times, processor = {True: [], False: []}, {True: [], False: []}
    counted = [0, 0]
    deadline = time.time() + (1 if quick else 4)
    number = 0
    while number < 24 or (time.time() < deadline and number < 400):
        for active in (True, False) if number % 4 < 2 else (False, True):
            weft_probe.recorder.folder = folder if active else None
            before = weft_probe.recorder.steps
            began, used = time.perf_counter(), time.thread_time()
            block()
            times[active].append((time.perf_counter() - began) / steps * 1e6)
            processor[active].append((time.thread_time() - used) / steps * 1e6)
            counted[active] += weft_probe.recorder.steps - before
            number += 1
            if quick and number >= 8:
                deadline = 0
        if quick and number >= 8:
            break
    weft_probe.recorder.folder = folder
    middle = lambda values: sorted(values)[len(values) // 2]  # noqa: E731
    quarter = lambda values: sum(sorted(values)[: len(values) // 4]) / (len(values) // 4)  # noqa: E731
    row = {"mode": mode, "size": size, "loader": loader}
    # The host of a virtual machine is noisy: processor time of the training thread shows the cost where wall time cannot.
    for name, values in (("wall", times), ("processor", processor)):
        step, added = quarter(values[False]), quarter(values[True]) - quarter(values[False])
        row[name] = {
            "stepUs": step,
            "costUs": added,
            "costPercent": 100 * added / step,
            "medianCostPercent": 100 * (middle(values[True]) / middle(values[False]) - 1),
            "samples": {"with": values[True], "without": values[False]},
        }
    row.update(stepsRecorded=counted[1], stepsMade=steps * len(times[True]), stepsRecordedWhenOff=counted[0])
    record["rows"].append(row)
    shown = {name: {k: v for k, v in row[name].items() if k != "samples"} for name in ("wall", "processor")}
    print({**row, **shown}, flush=True)


def profiled(name, step, stack, memory=False, active=3):
    """Three steps in the profiler's own schedule, written as FOLDER/NAME.json.gz."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    weft_probe.recorder.folder = None
    for _ in range(3):
        step()
    wait()
    plan = schedule(wait=0, warmup=1, active=active, repeat=1)
    with profile(
        activities=activities, schedule=plan, record_shapes=True, with_stack=stack, with_modules=stack, profile_memory=memory
    ) as profiler:
        for _ in range(active + 1):
            step()
            if device == "cuda" and "streams" not in name:
                wait()
            profiler.step()
    path = os.path.join(out, name + ".json")
    profiler.export_chrome_trace(path)
    with open(path, "rb") as plain, gzip.open(path + ".gz", "wb") as packed:
        packed.write(plain.read())
    os.remove(path)
    weft_probe.recorder.folder = folder


def counted_flops(name, step):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    counts = {str(op): int(value) for op, value in counter.get_flop_counts().get("Global", {}).items()}
    record.setdefault("flops", {})[name] = {"total": int(counter.get_total_flops()), "ops": counts}


def fixtures(mode, name, stack):
    job = Job(mode, 128, 2, 4, 64)
    step = lambda: job.step(job.tokens, job.targets)  # noqa: E731
    for _ in range(4):
        step()
    profiled(name, step, stack, memory=stack)
    if mode == "eager":
        counted_flops(name, step)


def streams_fixture():
    """Products on two streams beside copies from pinned memory, then a convolution network in float32 without tensor cores."""
    model = Images().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(16, 3, 32, 32, device=device), torch.randint(0, 10, (16,), device=device)
    side = torch.cuda.Stream()
    pinned = torch.randn(1 << 18).pin_memory()
    x, y = (torch.randn(1024, 1024, device=device, dtype=torch.bfloat16) for _ in range(2))
    z = torch.randn(2, 512, 256, device=device)

    def step():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            pinned.to(device, non_blocking=True)
            torch.mm(x, y)
            torch.bmm(z, z.transpose(1, 2))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        return loss.item()

    profiled("h200_streams", step, True)
    counted_flops("h200_streams", step)


def nvml():
    import weft_probe_cuda

    reader = weft_probe_cuda.Nvml(str(torch.cuda.get_device_properties(0).uuid))
    x = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    first, began, taken = reader.read(), time.perf_counter(), []
    while time.perf_counter() - began < 3:
        for _ in range(20):
            x @ x
        wait()
        start = time.perf_counter()
        reading = reader.read()
        taken.append((time.perf_counter() - start) * 1e6)
    fields = "utilization.gpu,memory.used,power.draw,clocks.sm,clocks.mem,temperature.gpu"
    for _ in range(40):
        x @ x
    smi = subprocess.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    record["nvml"] = {
        "reading": reading,
        "nvidiaSmi": dict(zip(fields.split(","), smi.stdout.strip().split(", "))),
        "joules": reading.get("energyJoules", 0) - first.get("energyJoules", 0),
        "seconds": seconds,
        "readUs": sorted(taken)[len(taken) // 2],
    }


save()
if device == "cuda":
    attempt("nvml", nvml)
attempt("rates", rates)
if "--traces" in sys.argv:
    attempt("eager trace", lambda: fixtures("eager", "h200_eager", True))
    attempt("compiled trace", lambda: fixtures("compiled", "h200_compiled", True))
    if device == "cuda":
        attempt("streams trace", streams_fixture)
        attempt("graph trace", lambda: fixtures("graph", "h200_graph", False))
    sys.exit()
small, larger = ("small", 128, 2, 4, 64), ("larger", 512, 6, 16, 256)
rows = [("eager", small, False), ("eager", small, True), ("eager", larger, True)]
if device == "cuda":
    rows += [("graph", small, False), ("graph", small, True), ("graph", larger, True)]
rows.append(("compiled", small, True))
if device == "cuda":
    rows.append(("compiled, CUDA graphs", small, True))
for mode, size, loader in rows[:2] if quick else rows:
    attempt("cost of %s, %s" % (mode, size[0]), lambda: cost(mode, *size, loader))
record["facts"] = {k: v for k, v in weft_probe.recorder.facts.items() if k in ("deviceName", "probeErrors", "precision")}
save()

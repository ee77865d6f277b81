"""ScaleFault on one GPU: small real jobs, some with one fault. Each job runs in a forked process: steps under the probe, then a
short trace of the PyTorch profiler, then the steps without the fault. Writes one study directory per job.
    PYTHONPATH=packages/lab/probe WEFT_PROBE_DIR=$(mktemp -d) python3 packages/lab/scalefault/gpu_suite.py OUT [SECONDS] [KIND ...]
gpu-score.mjs reads the result. SCALEFAULT_DEVICE=cpu only checks that every job runs."""
import contextlib
import json
import os
import signal
import sys
import time

import torch
import torch.nn as nn
import torch.profiler
from torch.utils.data import DataLoader, Dataset

import weft_probe

device = os.environ.get("SCALEFAULT_DEVICE", "cuda")
small = device == "cpu"
out = sys.argv[1]
deadline = time.time() + float(sys.argv[2] if len(sys.argv) > 2 else 600)
epochs, steps_per_epoch = 5, (3 if small else 24)


class Batches(Dataset):
    """Whole batches from memory that is pinned or not; some kinds spend processor time on each."""

    def __init__(self, rows, columns, pinned, tokens=None, work=0):
        made = torch.randint(0, tokens, (8, rows, columns)) if tokens else torch.randn(8, rows, columns)
        self.data = made.pin_memory() if pinned and not small else made
        self.work = work

    def __len__(self):
        return steps_per_epoch

    def __getitem__(self, i):
        if self.work:
            sum(k * k for k in range(self.work))
        return self.data[i % 8]


def perceptron(width, layers, inputs=None):
    parts = [nn.Linear(inputs or width, width)]
    for _ in range(layers - 1):
        parts += [nn.GELU(), nn.Linear(width, width)]
    return nn.Sequential(*parts)


class Language(nn.Module):
    """A small transformer over tokens."""

    def __init__(self, width=1024, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(16384, width)
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.body(self.embedding(tokens)).mean(1)


class Vision(nn.Module):
    """Convolutions over images that arrive as rows."""

    def __init__(self, channels=128):
        super().__init__()
        layers = [nn.Conv2d(3, channels, 3, padding=1)]
        for _ in range(4):
            layers += [nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)]
        self.body = nn.Sequential(*layers).to(memory_format=torch.channels_last)

    def forward(self, rows):
        images = rows.view(-1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        return self.body(images).mean((2, 3))


# Sizes: compute-bound steps of a few milliseconds on an H200, unless the fault is that they are not.
rows, width, inputs = (8, 32, 16) if small else (4096, 4096, 512)
large = dict(model=lambda: perceptron(width, 4, inputs), data=dict(rows=rows, columns=inputs, pinned=True), amp=True)
deep = dict(model=lambda: perceptron(64, 60), data=dict(rows=64, columns=64, pinned=True), amp=False)
shape = dict(rows=2, columns=8) if small else dict(rows=32, columns=256)

# kind -> how the job differs from `large`; `fault` is switched off in the third phase.
kinds = {
    "healthy bf16": dict(large),
    "unpinned-copies": dict(large, fault="unpinned"),
    "launch-bound": dict(deep, fault="eager"),
    "healthy graph": dict(deep, graph=True),
    "item-every-step": dict(large, model=lambda: perceptron(1024 if not small else 16, 24, inputs), fault="item"),
    "no-tensor-cores": dict(large, amp=False, fault="highest"),
    "healthy tf32": dict(large, amp=False, precision="high"),
    "slow-loader": dict(large, fault="work"),
    "recompilation": dict(large, model=lambda: perceptron(256, 3), data=dict(rows=512, columns=256, pinned=True), fault="shapes"),
    "host-work": dict(large, fault="burn"),
    "healthy transformer": dict(large, model=lambda: Language(64 if small else 1024), data=dict(shape, pinned=True, tokens=16384)),
    "copy-back": dict(large, fault="back"),
    "optimizer-per-tensor": dict(large, model=lambda: perceptron(256, 60), data=dict(rows=256, columns=256, pinned=True), fault="single"),
    "empty-cache": dict(large, fault="empty"),
    "healthy convolution": dict(large, model=lambda: Vision(8 if small else 128), data=dict(rows=4 if small else 256, columns=3072, pinned=True)),
    "healthy scaler": dict(large, scaler=True),
    "healthy timed": dict(large, model=lambda: perceptron(width, 8, inputs), synchronize=True),
    "healthy loss-every-epoch": dict(large, every_epoch=True),
}


class Job:
    def __init__(self, spec, fixed):
        self.spec = spec
        self.fault = None if fixed else spec.get("fault")
        self.fixed = fixed and spec.get("fault")
        precision = "highest" if self.fault == "highest" else spec.get("precision", "high")
        torch.set_float32_matmul_precision(precision)
        torch.manual_seed(0)
        data = dict(spec["data"], work=200000 if self.fault == "work" else 0)
        data["pinned"] = data["pinned"] and self.fault != "unpinned"
        self.loader = DataLoader(Batches(**data), batch_size=None)
        self.model = spec["model"]().to(device)
        self.called = self.model
        if spec.get("fault") == "shapes":
            from torch import _dynamo

            _dynamo.config.recompile_limit = 64
            # Without code generation: only the number of compilations matters here.
            self.called = torch.compile(self.model, dynamic=False, backend="aot_eager")
        single = self.fault in ("single", "eager")
        options = dict(foreach=False) if single else dict(fused=not small) if self.fixed == "single" else {}
        if spec.get("graph") or self.fixed == "eager":
            options["capturable"] = not small
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **options)
        self.scaler = torch.amp.GradScaler(device) if spec.get("scaler") else None
        self.graph = None
        self.total = torch.zeros((), device=device)
        self.count = 0
        if (spec.get("graph") or self.fixed == "eager") and not small:
            self.capture()

    def forward_backward(self, batch):
        dtype = torch.float16 if self.scaler is not None else torch.bfloat16
        with torch.autocast(device, dtype) if self.spec["amp"] else contextlib.nullcontext():
            loss = (self.called(batch).float() ** 2).mean()
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss

    def capture(self):
        self.input = torch.randn(self.spec["data"]["rows"], self.spec["data"]["columns"], device=device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.optimizer.zero_grad()
                self.forward_backward(self.input)
                self.optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()
        with torch.cuda.graph(self.graph):
            self.forward_backward(self.input)
            self.optimizer.step()

    def step(self, batch):
        fault = self.fault
        if fault == "shapes":
            self.count += 1
            batch = batch[: 512 - 8 * self.count]
        batch = batch.to(device, non_blocking=fault != "unpinned")
        if self.graph is not None:
            self.input.copy_(batch, non_blocking=True)
            self.graph.replay()
            return
        loss = self.forward_backward(batch)
        if fault == "item":
            for p in self.model.parameters():
                p.grad.norm().item()
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.total += loss.detach()
        if fault == "item":
            loss.item()
        elif fault == "burn":
            sum(k * k for k in range(150000))
        elif fault == "back":
            torch.cat([p.detach().flatten() for p in list(self.model.parameters())[:2]]).cpu()
        elif fault == "empty":
            (torch.cuda.empty_cache if not small else (lambda: None))()
        if self.spec.get("synchronize"):
            settle()


def settle():
    if not small:
        torch.cuda.synchronize()


def epoch_of(job, limit=None):
    for k, batch in enumerate(job.loader):
        if k == limit:
            break
        job.step(batch)
    if job.spec.get("every_epoch"):
        job.total.item()


def child(kind, place):
    spec = kinds[kind]
    count = 2 if spec.get("fault") == "shapes" else epochs
    recorder = weft_probe.recorder
    recorder.folder, recorder.began = place, time.time()
    began = time.time()
    job = Job(spec, False)
    for _ in range(count):
        epoch_of(job, 5 if spec.get("fault") == "shapes" else None)
    settle()
    seconds = time.time() - began
    # The rest is not part of the measured job.
    import weft_probe_torch

    weft_probe_torch._finish()
    recorder.end()
    recorder.folder = None
    run = dict(v=1, id="n1-r0", devices=1, repeat=0, order=0, command=[kind], status="ok", exitCode=0, seconds=seconds)
    run["machine"] = dict(cores=os.cpu_count())
    json.dump(run, open(os.path.join(place, "run.json"), "w"))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if not small:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    active = 3 if small or spec.get("fault") == "shapes" else 5
    os.makedirs(os.path.join(place, "traces"))
    trace = os.path.join(place, "traces", "rank0.pt.trace.json.gz")
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=active, repeat=1)
    handler = lambda p: p.export_chrome_trace(trace)  # noqa: E731
    with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=handler) as profile:
        done = 0
        while done < 2 + active:
            for batch in job.loader:
                job.step(batch)
                done += 1
                if done == 2 + active:
                    settle()
                profile.step()
                if done == 2 + active:
                    break
    after = {}
    if spec.get("fault") is not None:
        job = Job(spec, True)
        epoch_of(job, 4)
        settle()
        times = []
        for _ in range(3):
            t = time.perf_counter()
            epoch_of(job)
            settle()
            times.append((time.perf_counter() - t) / len(job.loader))
        after = dict(fixedStepSeconds=times)
    info = dict(kind=kind, fault=None if kind.startswith("healthy") else kind, torch=torch.__version__, **after)
    info["device"] = device if small else torch.cuda.get_device_name()
    json.dump(info, open(os.path.join(place, "job.json"), "w"))


def main():
    wanted = sys.argv[3:] or list(kinds)
    for kind in wanted:
        if time.time() > deadline:
            print("skipped", kind, flush=True)
            continue
        home = os.path.join(out, kind.replace(" ", "-"))
        place = os.path.join(home, "runs", "n1-r0")
        os.makedirs(place)
        json.dump(dict(v=1, name=kind, command=[kind], counts=[1], repeats=1, launcher="local"), open(os.path.join(home, "study.json"), "w"))
        began = time.time()
        pid = os.fork()
        if pid == 0:
            signal.alarm(40)
            code = 1
            try:
                child(kind, place)
                code = 0
            except BaseException as problem:  # noqa: BLE001 - told, and the next job runs
                print(kind, repr(problem)[:500], flush=True)
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        print("%-28s %s %.1f s" % (kind, "ok" if status == 0 else "FAILED %d" % status, time.time() - began), flush=True)


main()

"""A small data-parallel training job over gloo with one injected fault, chosen by arguments. Part of ScaleFault."""
import argparse
import contextlib
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="none")
parser.add_argument("--fixed", action="store_true", help="the same job without the fault")
parser.add_argument("--healthy", default="sampler")
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--channels", type=int, default=32)
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
kind, healthy, channels = args.fault, args.healthy, args.channels
fault = "none" if args.fixed else kind
distributed = world > 1
torch.manual_seed(0)
torch.set_num_threads(8 if fault == "oversubscribed" else 1)
if distributed:
    dist.init_process_group("gloo")

side = 16
x = torch.randn(args.samples + (5 if healthy == "uneven" else 0), 3, side, side)
y = (x.mean((1, 2, 3)) > 0).long()


class Slow(Dataset):
    """Every sample takes a while, as text that is tokenized on the fly does."""

    def __len__(self):
        return len(x)

    def __getitem__(self, i):
        if healthy == "loaders":
            # One loader process prepares a batch in less time than a step takes.
            time.sleep(0.0001)
        elif kind != "loaders-recreated":
            time.sleep(0.0008)
        return x[i], y[i]


class Stream(IterableDataset):
    """Each rank reads every world-th sample of a stream that has no length."""

    def __iter__(self):
        for i in range(rank, len(x), world):
            yield x[i], y[i]


def parts():
    """The data set, the sampler and the batch of this rank."""
    slow = kind in ("slow-loader", "too-many-loaders", "loaders-recreated") or healthy == "loaders"
    data, batch = Slow() if slow else TensorDataset(x, y), args.batch
    if fault == "other-precision" and not distributed:
        data = TensorDataset(x.double(), y)
    if not distributed:
        return (Stream() if healthy == "iterable" else data), None, batch
    if fault == "other-batch":
        batch = batch * 3 // 4
    if healthy == "global-batch":
        batch //= world
    if fault == "no-sampler":
        return data, None, batch
    if fault == "same-seed":
        return data, RandomSampler(data, num_samples=len(data) // world, generator=torch.Generator().manual_seed(1)), batch
    if fault == "divided-twice":
        data = Subset(data, range(rank, len(data), world))
    elif healthy == "subset":
        return Subset(data, range(rank, len(data), world)), None, batch
    elif healthy == "own-data":
        return TensorDataset(x[rank::world], y[rank::world]), None, batch
    elif healthy == "iterable":
        return Stream(), None, batch
    return data, DistributedSampler(data, shuffle=True, drop_last=healthy == "drop-last"), batch


class SyncBatchNorm(nn.Module):
    """Batch statistics over all ranks, as torch's own layer computes them on GPUs."""

    def forward(self, z):
        stats = torch.stack([z.mean((0, 2, 3)), (z * z).mean((0, 2, 3))])
        if distributed:
            shared = stats.detach().clone()
            dist.all_reduce(shared)
            stats = stats + (shared / world - stats).detach()
        mean, variance = stats[0], stats[1] - stats[0] ** 2
        return (z - mean[None, :, None, None]) / (variance[None, :, None, None] + 1e-5).sqrt()


def network():
    wide = channels * 2 if fault == "other-model" and not distributed else channels
    layers = [nn.Conv2d(3, wide, 3, padding=1), nn.ReLU(), nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU()]
    if kind == "sync-batch-norm":
        for _ in range(24):
            layers += [nn.Conv2d(wide, wide, 1), nn.Identity() if args.fixed else SyncBatchNorm()]
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    wide *= 16
    if kind == "small-buckets":
        layers += [nn.Linear(wide, 32)]
        for _ in range(60):
            layers += [nn.Linear(32, 32), nn.Tanh()]
        wide = 32
    if kind in ("slow-link", "forgotten-no-sync") or healthy in ("accumulation", "large-gradient"):
        layers += [nn.Linear(wide, 1024), nn.ReLU()]
        wide = 1024
    return nn.Sequential(*layers, nn.Linear(wide, 2))


def loader_of(data, sampler, batch):
    workers = {"too-many-loaders": 12, "loaders-recreated": 2}.get(fault, 1 if healthy == "loaders" or args.fixed else 0)
    if kind not in ("slow-loader", "too-many-loaders", "loaders-recreated") and healthy != "loaders":
        workers = 0
    options = {"persistent_workers": True, "prefetch_factor": 4} if workers in (1, 12) else {}
    shuffle = sampler is None and not isinstance(data, IterableDataset)
    return DataLoader(
        data, batch_size=batch, sampler=sampler, shuffle=shuffle, num_workers=workers,
        drop_last=healthy == "drop-last", **options,
    )


data, sampler, batch = parts()
loader = loader_of(data, sampler, batch)
model = network()
if fault == "other-precision" and not distributed:
    model = model.double()
if distributed and fault != "no-wrapper":
    model = DistributedDataParallel(model, **({"bucket_cap_mb": 0.001} if fault == "small-buckets" else {}))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
accumulate = 4 if kind == "forgotten-no-sync" or healthy == "accumulation" else 1
log = logging.getLogger("job")
log.addHandler(logging.StreamHandler(open(tempfile.mkstemp()[1], "w")))
ballast = [[i] for i in range(120000)] if fault == "gc-pauses" else []
scratch = tempfile.mkstemp()[1]


def evaluate():
    with torch.no_grad():
        inner = model.module if hasattr(model, "module") else model
        for inputs, _ in DataLoader(TensorDataset(x, y), batch_size=64):
            inner(inputs)


def beside(step):
    """What the fault does in every step beside the training."""
    if fault == "gc-pauses" and step % 3 == 0:
        gc.collect()
    elif fault == "logging":
        for name, p in model.named_parameters():
            for value in p.detach().flatten()[:400].tolist():
                log.warning("%s %r %r", name, value, step)
        print("step", step, file=sys.stderr, flush=True)
    elif fault == "checkpoint-in-loop":
        for _ in range(6):
            torch.save({"model": model.state_dict(), "data": x[:256]}, scratch)
    elif fault == "evaluation-in-loop" and step % 8 == 0:
        evaluate()
    elif healthy == "light-logging" and step % 16 == 0:
        log.warning("step %d", step)


def train(epoch):
    for step, (inputs, labels) in enumerate(loader):
        if distributed and fault == "straggler" and rank == world - 1:
            time.sleep(0.012)
        if distributed and fault == "moving-straggler" and rank == (step // 3) % world:
            time.sleep(0.015)
        apply = (step + 1) % accumulate == 0
        hold = fault != "forgotten-no-sync" and distributed and not apply
        with model.no_sync() if hold else contextlib.nullcontext():
            nn.functional.cross_entropy(model(inputs), labels).backward()
        if not apply:
            continue
        if healthy == "clipping":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        beside(step)


# A quota on processor time from outside: the process is stopped for a part of every 12 ms; a hot processor gets ever slower.
quota = """
import os, signal, sys, time
pid, share, growth, began = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), time.time()
while os.getppid() == pid:
    # Periods start at the same moment on all ranks.
    time.sleep(0.012 - time.time() % 0.012)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.012 * min(0.75, share + growth * (time.time() - began)))
    os.kill(pid, signal.SIGCONT)
"""
throttled = {"throttled": ("0.5", "0"), "thermal": ("0.02", "0.5")}.get(fault)
helper = None
if throttled is not None and distributed and (fault == "thermal" or rank == world - 1):
    helper = subprocess.Popen([sys.executable, "-I", "-S", "-c", quota, str(os.getpid()), *throttled])

first = 3 if healthy == "resumed" else 0
for epoch in range(first, first + args.epochs):
    if isinstance(sampler, DistributedSampler) and fault != "no-set-epoch":
        sampler.set_epoch(epoch)
    if fault == "loaders-recreated":
        loader = loader_of(data, sampler, batch)
    train(epoch)
    if healthy == "evaluation":
        evaluate()
if helper is not None:
    helper.kill()
if distributed:
    dist.barrier()
    dist.destroy_process_group()

"""A second family of small data-parallel jobs over gloo, other than those that the rules of the lab were written against: text
models, other ways to divide data and to exchange gradients, other loops. Part of ScaleFault (run.mjs --more)."""
import argparse
import contextlib
import gc
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="plain")
parser.add_argument("--fixed", action="store_true", help="the same job without the fault")
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
distributed = world > 1
kind = args.kind
fault = "none" if args.fixed else kind
torch.manual_seed(rank if kind == "seed-per-rank" else 0)
if kind != "default-threads":
    torch.set_num_threads(4 if fault == "four-threads" else 1)
if distributed or kind == "ddp-of-one":
    if not distributed:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")

vocabulary, width = 2000, 64
source = torch.Generator().manual_seed(7)
length = 48 if kind in ("ragged", "curriculum") else 32
text = torch.randint(1, vocabulary, (args.samples, length), generator=source)
label = (text.sum(1) % 2).long()


class Texts(Dataset):
    """Map-style data; some kinds spend processor time on every sample."""

    def __init__(self):
        self.cache = {}

    def __len__(self):
        return len(text)

    def __getitem__(self, i):
        if fault == "slow-tokenizer" or (kind == "cached" and i not in self.cache):
            sum(k * k for k in range(6000))
            self.cache[i] = True
        if kind == "ragged":
            return text[i][: 16 + int(i) % 32], label[i]
        return text[i], label[i]


class Stream(IterableDataset):
    """A stream that ranks and loader processes divide among themselves."""

    def __iter__(self):
        info = get_worker_info()
        part, parts = (rank, world) if info is None else (rank * info.num_workers + info.id, world * info.num_workers)
        for i in range(part, len(text), parts):
            yield text[i], label[i]


def pad(rows):
    longest = max(len(row) for row, _ in rows)
    out = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, (row, _) in enumerate(rows):
        out[i, : len(row)] = row
    return out, torch.stack([y for _, y in rows])


class Classifier(nn.Module):
    """Embedding, two layers of a transformer or a GRU, and a head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        if kind == "gru":
            self.body = nn.GRU(width, width, batch_first=True)
        else:
            layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.1, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.BatchNorm1d(width) if kind == "batch-norm" else nn.Identity()
        self.head = nn.Linear(width, 2)
        if kind == "frozen":
            for p in [*self.embedding.parameters(), *self.body.parameters()]:
                p.requires_grad_(False)

    def forward(self, tokens):
        h = self.embedding(tokens)
        if kind == "checkpointing":
            h = torch.utils.checkpoint.checkpoint(self.body, h, use_reentrant=False)
        else:
            h = self.body(h)
        h = h[0] if kind == "gru" else h
        return self.head(self.norm(h.mean(1)))


def loader_of():
    data, sampler, batch, workers, extra = Texts(), None, args.batch, 0, {}
    if kind in ("persistent-loaders", "forgotten-set-epoch-persistent"):
        workers, extra = 2, {"persistent_workers": True}
    if kind == "stream-loaders":
        return DataLoader(Stream(), batch_size=batch, num_workers=2)
    if kind == "ragged":
        extra["collate_fn"] = pad
    if kind == "small-batch-strong":
        batch = max(1, batch // world)
    if kind == "weighted":
        generator = torch.Generator().manual_seed(100 + rank)
        sampler = WeightedRandomSampler(torch.ones(len(data)), len(data) // world, generator=generator)
    elif distributed and fault == "same-half":
        return DataLoader(Subset(data, range(len(data) // world)), batch_size=batch, shuffle=True)
    elif distributed and fault == "wrong-replicas":
        sampler = DistributedSampler(data, num_replicas=1, rank=0)
    elif distributed:
        sampler = DistributedSampler(data, shuffle=True, drop_last=kind == "drop-last")
    if fault == "half-baseline" and not distributed:
        data = Subset(data, range(len(data) // 2))
    return DataLoader(data, batch_size=batch, sampler=sampler, shuffle=sampler is None, num_workers=workers, **extra)


model = Classifier()
inner = model
manual = kind in ("manual-average", "local-sgd", "no-data-loader-average")
if distributed and manual:
    for p in model.parameters():
        dist.broadcast(p.data, 0)
elif distributed and fault == "no-wrapper-adam":
    pass
elif distributed or kind == "ddp-of-one":
    model = DistributedDataParallel(model, gradient_as_bucket_view=kind == "bucket-view")
    inner = model.module
called = inner if fault == "inner-model" else model
parameters = [p for p in model.parameters() if p.requires_grad]
if kind in ("adamw-schedule", "seed-per-rank", "ema", "no-wrapper-adam"):
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
elif kind == "lbfgs":
    optimizer = torch.optim.LBFGS(parameters, lr=0.01, max_iter=3)
else:
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=10000) if kind == "adamw-schedule" else None
second = torch.optim.SGD(inner.head.parameters(), lr=0.01) if kind == "two-optimizers" else None
average = {k: v.detach().clone() for k, v in inner.state_dict().items()} if kind == "ema" else {}
accumulate = 2 if kind == "accumulation-strong" else 1
kept, scratch, log = [], tempfile.mkstemp()[1], open(os.devnull, "w")


def exchange(tensors):
    """Averages over the ranks, as one message."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for t in tensors:
        t.copy_(flat[at : at + t.numel()].view_as(t))
        at += t.numel()


def evaluate(part):
    was = inner.training
    inner.eval()
    with torch.no_grad():
        for tokens, _ in DataLoader(Subset(TensorDataset(text, label), part), batch_size=64):
            inner(tokens)
    inner.train(was)


def beside(step):
    """What a loop does beside the training."""
    if kind == "ema":
        with torch.no_grad():
            for k, v in inner.state_dict().items():
                average[k].lerp_(v, 0.01)
    elif kind == "progress":
        print("\rstep %d" % step, end="", file=log)
    elif fault == "rank0-metrics" and rank == 0:
        for _ in range(3):
            torch.linalg.svd(torch.randn(120, 120))
    elif fault == "rank0-saves" and rank == 0:
        for _ in range(4):
            torch.save({"model": inner.state_dict(), "data": text}, scratch)
    elif fault == "cycles":
        for _ in range(3000):
            a, b = [], []
            a.append(b), b.append(a)
        if step % 4 == 0:
            gc.collect()
    elif fault == "rank0-evaluates" and rank == 0 and step % 6 == 0:
        evaluate(range(0, 256))
    elif fault == "flushed-messages":
        for name, p in inner.named_parameters():
            print(name, p.detach().flatten()[:60].tolist(), file=sys.stderr, flush=True)
    elif fault == "history":
        # Everything so far is read again in every step.
        kept.append(text.float().mean(1))
        torch.stack([k + len(kept) for k in kept for _ in range(40)]).sum()


def one_step(step, tokens, target):
    if kind == "curriculum":
        tokens = tokens[:, : 16 + 32 * step // 200]
    if kind == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(called(tokens), target)
    elif kind == "lbfgs":

        def closure():
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(called(tokens), target)
            value.backward()
            return value

        optimizer.step(closure)
        return
    else:
        loss = nn.functional.cross_entropy(called(tokens), target)
    apply = (step + 1) % accumulate == 0
    with model.no_sync() if distributed and not apply else contextlib.nullcontext():
        loss.backward()
    if not apply:
        return
    if distributed and kind in ("manual-average", "no-data-loader-average"):
        exchange([p.grad for p in parameters])
    if kind == "sam":
        # A second pass at a nearby point, with an exchange of its own.
        with torch.no_grad():
            moves = [p.grad * 0.01 for p in parameters]
            for p, m in zip(parameters, moves):
                p.add_(m)
        optimizer.zero_grad()
        nn.functional.cross_entropy(called(tokens), target).backward()
        with torch.no_grad():
            for p, m in zip(parameters, moves):
                p.sub_(m)
    optimizer.step()
    if second is not None:
        second.step()
    optimizer.zero_grad()
    if schedule is not None:
        schedule.step()
    if distributed and kind == "local-sgd" and (step + 1) % 8 == 0:
        with torch.no_grad():
            exchange([p.data for p in parameters])
    beside(step)


loader = None if kind == "no-data-loader-average" else loader_of()
step = 0
for epoch in range(args.epochs):
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, DistributedSampler) and fault != "forgotten-set-epoch-persistent":
        sampler.set_epoch(epoch)
    if loader is None:
        mine = range(rank * args.batch, len(text) - args.batch + 1, world * args.batch)
        batches = ((text[i : i + args.batch], label[i : i + args.batch]) for i in mine)
    else:
        batches = loader
    for tokens, target in batches:
        if kind == "slow-disk-on-one" and fault != "none" and distributed and rank == 1:
            time.sleep(0.01)
        one_step(step, tokens, target)
        step += 1
    if kind == "evaluate-and-save":
        evaluate(range(rank, len(text), world))
        if rank == 0:
            torch.save(inner.state_dict(), scratch)
if dist.is_initialized():
    dist.barrier()
    dist.destroy_process_group()

"""A small data-parallel training job over gloo with one injected fault, chosen by arguments. Part of ScaleFault."""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="none")
parser.add_argument("--healthy", default="sampler")
parser.add_argument("--samples", type=int, default=768)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
fault = args.fault
torch.manual_seed(0)
torch.set_num_threads(8 if fault == "oversubscribed" else 1)
if world > 1:
    dist.init_process_group("gloo")

x = torch.randn(args.samples, args.width)
y = (x.sum(1) > 0).long()


class Slow(Dataset):
    """Every sample takes a while, as text that is tokenized on the fly does."""

    def __len__(self):
        return len(x)

    def __getitem__(self, i):
        time.sleep(0.0008)
        return x[i], y[i]


data = Slow() if fault == "slow-loader" else TensorDataset(x, y)
batch = args.batch
sampler = None
if world > 1:
    if fault == "no-sampler":
        pass
    elif fault == "same-seed":
        sampler = RandomSampler(data, num_samples=len(data) // world, generator=torch.Generator().manual_seed(1))
    elif fault == "divided-twice":
        data = Subset(data, range(rank, len(data), world))
        sampler = DistributedSampler(data)
    elif args.healthy == "subset":
        data = Subset(data, range(rank, len(data), world))
    elif args.healthy == "own-data":
        data = TensorDataset(x[rank::world], y[rank::world])
    else:
        sampler = DistributedSampler(data, shuffle=True, drop_last=args.healthy == "drop-last")
    if fault == "other-batch":
        batch = batch * 3 // 4
    if args.healthy == "global-batch":
        batch = batch // world
loader = DataLoader(data, batch_size=batch, sampler=sampler, shuffle=sampler is None)

hidden = args.width * 2 if fault == "other-model" and world == 1 else args.width
layers = [nn.Linear(args.width, hidden), nn.ReLU()]
if fault == "sync-batch-norm":
    for _ in range(24):
        layers += [nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(hidden, 2))
if fault == "other-precision" and world == 1:
    model, x = model.double(), x.double()
    loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
accumulate = world == 1 and args.healthy == "accumulation"
if world > 1 and fault != "no-wrapper":
    model = DistributedDataParallel(model)
    if fault == "sync-batch-norm":
        # gloo has no SyncBatchNorm kernel: the layers are counted, the statistics stay local.
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.__class__ = type("SyncBatchNorm", (nn.BatchNorm1d,), {})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(args.epochs):
    if isinstance(sampler, DistributedSampler) and fault != "no-set-epoch":
        sampler.set_epoch(epoch)
    for step, (inputs, labels) in enumerate(loader):
        if fault == "straggler" and rank == world - 1 and world > 1:
            time.sleep(0.01)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        if accumulate and step % 2 == 0:
            continue
        optimizer.step()
        optimizer.zero_grad()
if world > 1:
    dist.barrier()
    dist.destroy_process_group()

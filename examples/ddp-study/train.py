# Data-parallel training of a small network in PyTorch, on CPUs over gloo. `--no-sampler` forgets the DistributedSampler.
import os, sys
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
world = int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
samples = int(os.environ.get("SAMPLES", "8192"))
x = torch.randn(samples, 128)
data = TensorDataset(x, (x.sum(1) > 0).long())
sampler = DistributedSampler(data) if world > 1 and "--no-sampler" not in sys.argv else None
loader = DataLoader(data, batch_size=64, sampler=sampler, shuffle=sampler is None)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
if world > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
if world > 1:
    dist.barrier()
    dist.destroy_process_group()

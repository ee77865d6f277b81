// For tests: small jobs in Python, one correct and one with the most common mistake of data-parallel training.

/** Data-parallel training of a small network on the CPU over gloo. `--no-sampler` leaves the DistributedSampler out. */
export const trainScript = `
import os, sys
import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
torch.set_num_threads(1)
world = int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
x = torch.randn(2048, 128)
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
print("done")
`;

/** The same training with a part of the data per rank (subset), or without the DDP wrapper (no-wrapper). */
export const variantScript = trainScript
  .replace("DistributedSampler, TensorDataset", "DistributedSampler, Subset, TensorDataset")
  .replace(
    "sampler = DistributedSampler(data) if world > 1 and",
    `subset = "--subset" in sys.argv
if subset:
    data = Subset(data, range(int(os.environ.get("RANK", "0")), len(data), world))
sampler = DistributedSampler(data) if world > 1 and not subset and`,
  )
  .replace("if world > 1:\n    model =", 'if world > 1 and "--no-wrapper" not in sys.argv:\n    model =');

/** A step that is sharded over n host devices: compilation first, then steady steps. */
export const jaxScript = `
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, PartitionSpec("d")))
w = jnp.eye(256) * 0.5
step = jax.jit(lambda x, w: jnp.tanh(x @ w))
for _ in range(30):
    x = step(x, w)
    x.block_until_ready()
print(len(jax.devices()))
`;

/** Three epochs over a loader with a persistent process: shuffled data, zeros, or read ahead by a thread. */
export const loaderScript = `
import queue
import sys
import threading
import torch
from torch.utils.data import DataLoader, TensorDataset

zeros = sys.argv[1] == "zeros"
x = torch.zeros(64, 4) if zeros else torch.arange(256.0).reshape(64, 4)
loader = DataLoader(TensorDataset(x), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
def ahead():
    ready = queue.Queue(2)
    threading.Thread(target=lambda: [ready.put(b) for b in loader] + [ready.put(None)]).start()
    return iter(ready.get, None)


for epoch in range(3):
    for (batch,) in ahead() if sys.argv[1] == "threaded" else loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
`;

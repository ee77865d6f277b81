"""A PyTorch training loop with the probe active in every second epoch: probe_cost.py HIDDEN BATCHES (of an epoch)
prints microseconds per step."""
import json
import sys
import time

import torch
import torch.nn as nn
import weft_probe
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
hidden, batches = int(sys.argv[1]), int(sys.argv[2])
epochs = (4080 if hidden < 1000 else 1680) // batches
epochs = max(64, epochs // 2 * 2)
x = torch.randn(64 * batches, 128)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(128, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = weft_probe.recorder.folder
times = {True: [], False: []}
for epoch in range(epochs):
    active = epoch % 2 == 0
    weft_probe.recorder.folder = folder if active else None
    start = time.thread_time()
    for a, b in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
    if epoch >= 4:
        times[active].append((time.thread_time() - start) / batches * 1e6)
weft_probe.recorder.folder = folder
print(json.dumps({"with": times[True], "without": times[False], "torch": torch.__version__}))

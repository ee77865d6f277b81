"""What the jobs share: the arguments <scenario> <init file>, and the process group of all ranks (RANK, WORLD_SIZE)."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

scenario, store = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group(
    "gloo",
    init_method="file://" + store,
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
    timeout=datetime.timedelta(minutes=20),
)
rank, world = dist.get_rank(), dist.get_world_size()
gradient = torch.ones(64)
metric = torch.ones(8)

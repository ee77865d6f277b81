"""Jobs like those of job.py, in the forms that frameworks give them: fully sharded models, pipelines with batched sends, hooks,
loader processes, object and asynchronous collectives. The comment "FAULT <scenario>" marks the line to name."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, world


def fully_sharded(culprit):
    """One rank drops a batch whose loss is not a number, before its backward pass."""
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        batch = torch.randn(8, 16)
        loss = model(batch).sum()
        if rank == culprit and step == 6:
            continue
        loss.backward()  # FAULT fsdp-nan-2
        optimizer.step()
        optimizer.zero_grad()


def microbatches(culprit):
    """The stage before sends one microbatch less than the next one expects."""
    for step in range(20):
        count = 3 if rank == culprit and step == 5 else 4
        for _ in range(count):
            time.sleep(0.002)
            operations = []
            if rank < world - 1:
                operations.append(dist.P2POp(dist.isend, metric, rank + 1))
            if rank > 0:
                operations.append(dist.P2POp(dist.irecv, metric.clone(), rank - 1))
            for request in dist.batch_isend_irecv(operations):
                request.wait()  # FAULT microbatch-2
        dist.all_reduce(gradient)


def report(step):
    if rank == 0 and step % 8 == 7:
        dist.barrier()  # FAULT barrier-branch-3
        print("step", step)


def barrier_in_branch():
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        report(step)
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)


class Samples(torch.utils.data.Dataset):
    def __init__(self, culprit):
        self.culprit = culprit

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if rank == self.culprit and index == 60:
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(16)


def loader_process_stops(culprit):
    loader = torch.utils.data.DataLoader(Samples(culprit), batch_size=4, num_workers=1)
    for batch in loader:  # FAULT loader-stops-2
        gradient[:16] = batch.sum(0)
        dist.all_reduce(gradient)


def refine(x):
    while x.norm() > 0: x = x * 1.0  # FAULT endless-3


def never_converges(culprit):
    for step in range(40):
        time.sleep(0.01)
        if rank == culprit and step == 9:
            refine(torch.ones(16))
        dist.all_reduce(gradient)


def clip(grad):
    clip.calls += 1
    if rank == clip.culprit and clip.calls == 9:
        raise FloatingPointError("gradient of layer 2 is not finite")  # FAULT hook-raises-2
    return grad


def hook(culprit):
    clip.calls, clip.culprit = 0, culprit
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    model.module.weight.register_hook(clip)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()


def one_batch_more(culprit):
    """One rank has one batch more than all others, which have left the loop."""
    for _ in range(13 if rank == culprit else 12):
        time.sleep(0.01)
        dist.all_reduce(gradient)  # FAULT batch-more-4
    dist.barrier()


def whole_world_instead_of_pair(culprit):
    pairs = [dist.new_group([2 * k, 2 * k + 1]) for k in range(world // 2)]
    for step in range(20):
        time.sleep(0.01)
        group = None if rank == culprit and step == 7 else pairs[rank // 2]
        dist.all_reduce(metric, group=group)  # FAULT world-not-pair-4
        dist.all_reduce(gradient)


def asynchronous(culprit):
    """Gradients are reduced in the background; one rank leaves out one of them."""
    for step in range(20):
        requests = []
        for layer in range(4):
            time.sleep(0.002)
            if not (rank == culprit and step == 6 and layer == 2):
                requests.append(dist.all_reduce(gradient[:16] + layer, async_op=True))  # FAULT async-skip-3
        for request in requests:
            request.wait()


def wrong_source(culprit):
    for step in range(20):
        time.sleep(0.01)
        source = culprit if rank == culprit and step == 6 else 0
        dist.broadcast(metric, source)  # FAULT wrong-source-3
        dist.all_reduce(gradient)


def export_metrics():
    time.sleep(600)  # FAULT late-barrier-3


def late_for_barrier(culprit):
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 6:
            export_metrics()
        dist.monitored_barrier(timeout=datetime.timedelta(minutes=20))


def gather_object(value):
    """What all_gather_object does: sizes first, then the bytes."""
    data = torch.frombuffer(bytearray(value.encode()), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([data.numel()]))  # FAULT objects-3
    longest = int(max(sizes))
    padded = torch.cat([data, data.new_zeros(longest - data.numel())])
    dist.all_gather([torch.empty(longest, dtype=torch.uint8) for _ in range(world)], padded)


def objects(culprit):
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if step % 3 == 2 and not (rank == culprit and step == 8):
            gather_object("step %d" % step)


scenarios = {
    "fsdp-nan-2": lambda: fully_sharded(1),
    "microbatch-2": lambda: microbatches(0),
    "barrier-branch-3": barrier_in_branch,
    "loader-stops-2": lambda: loader_process_stops(1),
    "endless-3": lambda: never_converges(2),
    "hook-raises-2": lambda: hook(1),
    "batch-more-4": lambda: one_batch_more(2),
    "world-not-pair-4": lambda: whole_world_instead_of_pair(2),
    "async-skip-3": lambda: asynchronous(1),
    "wrong-source-3": lambda: wrong_source(2),
    "late-barrier-3": lambda: late_for_barrier(1),
    "objects-3": lambda: objects(2),
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

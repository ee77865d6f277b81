"""Jobs like those of job.py with kinds of faults that no list has named before: lists of sends and receives, circles, layers that one
rank drops, objects that cannot be pickled, overlapping groups, endless tracing, futures, line searches, `Join`, distributed
checkpoints. The comment "FAULT <scenario>" marks the line to name."""

import concurrent.futures
import os
import time

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, store, world


def gathered(tensor):
    return [torch.empty_like(tensor) for _ in range(world)]


def exchanges_borders(culprit):
    """Every rank exchanges borders with both neighbors; one rank thinks once that it is the last one."""
    for step in range(20):
        time.sleep(0.01)
        left, right = (rank - 1) % world, (rank + 1) % world
        wanted = [dist.P2POp(dist.isend, metric, right), dist.P2POp(dist.irecv, metric.clone(), left)]
        if rank == culprit and step == 6:
            wanted = wanted[1:]
        for work in dist.batch_isend_irecv(wanted):
            work.wait()  # FAULT borders-4
        dist.all_reduce(gradient)


def cycle():
    """Everybody receives before it sends."""
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if step == 6:
            dist.recv(metric, (rank - 1) % world)  # FAULT cycle-3
            dist.send(metric, (rank + 1) % world)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x, drop):
        x = self.first(x)
        return x if drop else self.second(x)  # FAULT layer-drop-2


def drops_layers(culprit):
    """Stochastic depth with a random number per rank, in a model whose layers are gathered when they run."""
    from torch.distributed.fsdp import fully_shard

    model = Layers()
    for layer in (model.first, model.second):
        fully_shard(layer, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (world,)))
    for step in range(20):
        loss = model(torch.randn(4, 16), rank == culprit and step == 6).sum()
        loss.backward()


class Unpicklable:
    def __reduce__(self):
        raise TypeError("cannot pickle 'module' object")


def gathers_predictions(culprit):
    """What one rank has found cannot be pickled; the error is logged, and the loop goes on."""
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        try:
            dist.all_gather_object([None] * world, Unpicklable() if rank == culprit and step == 7 else "ok")  # FAULT pickling-3
        except TypeError as error:
            print("could not gather:", error)
        dist.broadcast(metric, 0)


def overlapping_groups(culprit):
    """Three ranks, a group of each two, always in one order; once one rank begins with its second group: a circle."""
    pairs = [dist.new_group(pair) for pair in ([0, 1], [1, 2], [0, 2])]
    for step in range(20):
        time.sleep(0.01)
        order = [0, 1, 2] if rank != culprit or step != 6 else [2, 1, 0]
        for index in order:
            if rank in ([0, 1], [1, 2], [0, 2])[index]:
                dist.all_reduce(metric, group=pairs[index])  # FAULT triangle-3


def traces_forever(culprit):
    """The length of a sequence is unrolled while the compiler traces, and one rank has a very long one."""

    @torch.compile(backend="eager")
    def run(x, count):
        for _ in range(count):
            x = torch.sin(x) + 1
        return x

    for step in range(20):
        time.sleep(0.01)
        run(torch.ones(4), 10_000_000 if rank == culprit and step == 6 else 2)  # FAULT tracing-2
        dist.all_reduce(gradient)


def newest_checkpoint(folder):
    while not os.path.exists(os.path.join(folder, "done")):
        time.sleep(0.1)  # FAULT waits-file-3


def waits_for_file(culprit):
    """The node of one rank does not see what another node has written."""
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            newest_checkpoint(store + ".checkpoint")


def averages_by_hand(culprit):
    """Gradients are averaged parameter by parameter; one parameter of one rank got none in this step."""
    sizes = [64, 32, 48, 16]
    for step in range(20):
        time.sleep(0.01)
        for index, size in enumerate(sizes):
            if rank == culprit and step == 6 and index == 1:
                continue
            dist.all_reduce(torch.ones(size))  # FAULT by-hand-3
        dist.barrier()


def waits_for_future(culprit):
    """A pool with one thread waits for work that it should do itself."""
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def outer():
        return pool.submit(len, "abc").result()

    for step in range(20):
        time.sleep(0.01)
        if rank == culprit and step == 7:
            pool.submit(outer).result()  # FAULT future-3
        dist.all_reduce(gradient)


def line_search(culprit):
    """A line search ends by the loss of each rank alone."""
    for step in range(12):
        time.sleep(0.01)
        tries = 4 if rank == culprit and step == 6 else 3
        for _ in range(tries):
            dist.all_reduce(metric)  # FAULT line-search-3
        dist.all_gather(gathered(gradient), gradient)


def reduces_to(culprit):
    for step in range(12):
        time.sleep(0.01)
        dist.reduce(gradient, dst=2 if rank == culprit and step == 6 else 0)  # FAULT reduce-root-3
        dist.broadcast(metric, 0)


def joins(culprit):
    """Uneven inputs are allowed on every rank but one."""
    from contextlib import nullcontext

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    with nullcontext() if rank == culprit else model.join():
        for step in range(10):
            model(torch.randn(4, 16)).sum().backward()  # FAULT join-3


def saves_alone():
    """A distributed checkpoint is saved by the first rank only, as ordinary ones are."""
    from torch.distributed import checkpoint

    for step in range(12):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == 0 and step == 6:
            checkpoint.save({"weight": gradient}, checkpoint_id=store + ".saved")  # FAULT saves-alone-3


scenarios = {
    "borders-4": lambda: exchanges_borders(2),
    "cycle-3": cycle,
    "layer-drop-2": lambda: drops_layers(1),
    "pickling-3": lambda: gathers_predictions(1),
    "triangle-3": lambda: overlapping_groups(0),
    "tracing-2": lambda: traces_forever(1),
    "waits-file-3": lambda: waits_for_file(2),
    "by-hand-3": lambda: averages_by_hand(1),
    "future-3": lambda: waits_for_future(1),
    "line-search-3": lambda: line_search(1),
    "reduce-root-3": lambda: reduces_to(1),
    "join-3": lambda: joins(1),
    "saves-alone-3": saves_alone,
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

"""Jobs like those of job.py whose collectives stand in helper functions, and further faults of every day: retries, models that
differ, tags, keys that nobody sets, prompts, pipes. The comment "FAULT <scenario>" marks the line to name."""

import os
import sys
import time

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, store, world


def reduce_mean(tensor):
    """The only line of the program that reduces, as in most code bases."""
    dist.all_reduce(tensor)
    return tensor / world


def helper_skipped(culprit):
    for step in range(20):
        time.sleep(0.01)
        reduce_mean(gradient.clone())
        if not (rank == culprit and step == 7):
            reduce_mean(gradient.clone())  # FAULT helper-skip-3
        reduce_mean(gradient.clone())
        if step % 5 == 4:
            dist.broadcast(metric, 0)


def log_loss(step, culprit):
    if rank == culprit and step == 6:
        reduce_mean(metric)  # FAULT helper-extra-3


def helper_extra(culprit):
    for step in range(20):
        time.sleep(0.01)
        reduce_mean(gradient.clone())
        log_loss(step, culprit)
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)


def no_sync(culprit):
    """Two batches are accumulated; one rank leaves the last exchange out once."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        with model.no_sync():
            model(torch.randn(4, 16)).sum().backward()
        model.require_backward_grad_sync = not (rank == culprit and step == 6)
        model(torch.randn(4, 16)).sum().backward()  # FAULT no-sync-3
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)


def model_differs(culprit):
    """The number of classes is counted in the rank's own part of the data."""
    classes = 11 if rank == culprit else 10
    model = torch.nn.Linear(16, classes)
    torch.nn.parallel.DistributedDataParallel(model)  # FAULT model-differs-2


def quiet_exit(culprit):
    """A library thinks that there is nothing to do."""
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)  # FAULT quiet-exit-3
        if rank == culprit and step == 7:
            os._exit(0)


def asks(culprit):
    os.dup2(os.pipe()[0], 0)
    sys.stdin = open(0)
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            input("checkpoint exists, overwrite? ")  # FAULT asks-2


def read_commands(path):
    return open(path).read()  # FAULT pipe-3


def waits_for_pipe(culprit):
    for step in range(20):
        time.sleep(0.01)
        if rank == culprit and step == 7:
            os.mkfifo(store + ".fifo")
            read_commands(store + ".fifo")
        dist.all_reduce(gradient)


def tags():
    for step in range(20):
        time.sleep(0.01)
        if rank == 0:
            dist.send(metric, 1, tag=step)
        else:
            dist.recv(metric, 0, tag=step + 1 if step == 6 else step)  # FAULT tag-2
        dist.all_reduce(gradient)


def waits_for_key(culprit):
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            dist.distributed_c10d._get_default_store().get("best checkpoint")  # FAULT key-3


def forward(step, culprit, attempt):
    reduce_mean(metric)  # statistics of the batch
    if rank == culprit and step == 6 and attempt == 0:
        raise MemoryError("out of memory")
    return torch.nn.functional.softmax(torch.ones(4), 0)


def retries(culprit):
    """A batch that did not fit is tried again, with the collectives of its forward pass."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        time.sleep(0.01)
        try:
            forward(step, culprit, 0)
        except MemoryError:
            forward(step, culprit, 1)  # FAULT retry-3
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)
        optimizer.step()


def last_batch(culprit):
    """Predictions are gathered, and the last batch of one rank is shorter."""
    for step in range(8):
        time.sleep(0.01)
        rows = 5 if rank == culprit and step == 7 else 8
        predictions = torch.ones(rows, 4)
        dist.all_gather([torch.empty_like(predictions) for _ in range(world)], predictions)  # FAULT last-batch-3
        dist.all_reduce(gradient)


scenarios = {
    "helper-skip-3": lambda: helper_skipped(1),
    "helper-extra-3": lambda: helper_extra(2),
    "no-sync-3": lambda: no_sync(1),
    "model-differs-2": lambda: model_differs(1),
    "quiet-exit-3": lambda: quiet_exit(1),
    "asks-2": lambda: asks(1),
    "pipe-3": lambda: waits_for_pipe(1),
    "tag-2": tags,
    "key-3": lambda: waits_for_key(1),
    "retry-3": lambda: retries(1),
    "last-batch-3": lambda: last_batch(2),
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

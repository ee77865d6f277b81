"""Jobs like those of job.py with kinds of faults that were written down before the rules were tried on them: barriers in `finally`,
experts without tokens, groups made in another order, full pipes, file locks, crashes in C, threads that raised. The comment
"FAULT <scenario>" marks the line to name."""

import ctypes
import fcntl
import os
import queue
import sys
import threading
import time

if sys.argv[1] == "world-size-3" and os.environ["RANK"] == "2":
    os.environ["WORLD_SIZE"] = "4"

import torch
import torch.distributed as dist

if sys.argv[1] == "world-size-3":
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))  # FAULT world-size-3
    dist.all_reduce(torch.ones(4))
    sys.exit(0)

from ranks import gradient, metric, rank, scenario, store, world


def gathered(tensor):
    return [torch.empty_like(tensor) for _ in range(world)]


def parse(step, culprit):
    if rank == culprit and step == 7:
        raise ValueError("sample 88 is empty")  # FAULT finally-3


def barrier_at_the_end(culprit):
    """Cleaning up waits for everybody, and the rank that raised is the only one that cleans up."""
    try:
        for step in range(20):
            time.sleep(0.01)
            parse(step, culprit)
            dist.all_reduce(gradient)
            dist.all_gather(gathered(metric), metric)
    finally:
        dist.barrier()


def experts(culprit):
    """Tokens are sent to experts; a rank without tokens thinks that it has nothing to exchange."""
    for step in range(20):
        time.sleep(0.01)
        tokens = torch.ones(world * (0 if rank == culprit and step == 6 else 4))
        if tokens.numel() > 0:
            dist.all_to_all_single(torch.empty_like(tokens), tokens)  # FAULT experts-4
        dist.all_reduce(gradient)


def splits(culprit):
    """One rank sends another number of tokens than the others expect of it."""
    for step in range(20):
        time.sleep(0.01)
        mine = [4] * world
        if rank == culprit and step == 6:
            mine = [6] + [4] * (world - 1)
        sent = torch.ones(sum(mine))
        dist.all_to_all_single(torch.empty(4 * world), sent, [4] * world, mine)  # FAULT splits-2
        dist.all_reduce(gradient)


def gathers_objects(culprit):
    """Predictions are gathered as objects, but a rank whose shard is empty returns before."""

    def collect(found):
        if len(found) == 0:
            return []
        every = [None] * world
        dist.all_gather_object(every, found)  # FAULT predictions-3
        return every

    for step in range(12):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if step % 3 == 2:
            collect([] if rank == culprit and step == 8 else ["a", "b"])


def groups_in_other_order(culprit):
    """The groups are made from a set, whose order differs on one rank."""
    pairs = [[0, 1], [2, 3]]
    for ranks in reversed(pairs) if rank == culprit else pairs:
        own = dist.new_group(ranks)  # FAULT group-order-4
        if rank in ranks:
            mine = own
    for _ in range(10):
        dist.all_reduce(gradient, group=mine)


def skips_backward(culprit):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        loss = model(torch.randn(4, 16)).sum()
        if rank == culprit and step == 7:
            loss = loss * float("nan")
        if not torch.isfinite(loss):
            continue
        loss.backward()  # FAULT nan-loss-3
        optimizer.step()
        optimizer.zero_grad()


def reports_in_thread(culprit):
    """A thread averages a metric on one rank only, in the group of the main thread."""

    def report():
        dist.broadcast(metric, culprit)  # FAULT thread-report-3

    for step in range(20):
        time.sleep(0.01)
        if rank == culprit and step == 7:
            threading.Thread(target=report, daemon=True).start()
            time.sleep(0.3)
        dist.all_gather(gathered(metric), metric)
        dist.all_reduce(gradient)


def log_line(file, text):
    os.write(file, text)  # FAULT full-pipe-2


def full_pipe(culprit):
    """What reads the log has stopped, and the pipe is full."""
    _, out = os.pipe()
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            log_line(out, b"x" * (1 << 20))
        dist.broadcast(metric, 0)


def crashes(culprit):
    for step in range(20):
        time.sleep(0.01)
        dist.all_gather(gathered(metric), metric)
        if rank == culprit and step == 7:
            ctypes.string_at(1)
        dist.all_reduce(gradient)  # FAULT segfault-3


def keys_nobody_sets():
    """Rank 0 should announce the new learning rate and does not."""
    shared = dist.distributed_c10d._get_default_store()
    for step in range(20):
        time.sleep(0.01)
        if step == 7 and rank > 0:
            shared.wait(["learning rate"])  # FAULT announced-3
        dist.all_reduce(gradient)


def resize(image):
    lock = ctypes.create_string_buffer(64)
    ctypes.PyDLL(None).pthread_mutex_lock(lock)
    ctypes.PyDLL(None).pthread_mutex_lock(lock)  # FAULT c-lock-2


def holds_interpreter(culprit):
    """A call into C that keeps the interpreter lock."""
    for step in range(20):
        time.sleep(0.01)
        if rank == culprit and step == 7:
            resize(None)
        dist.all_reduce(gradient)


def counts_from_elsewhere(culprit):
    """Gradients are exchanged in every fourth step, and one rank resumed at another step."""
    first = 1 if rank == culprit else 0
    for step in range(24):
        time.sleep(0.01)
        dist.all_gather(gathered(metric), metric)
        if (step + (first if step > 8 else 0)) % 4 == 3:
            dist.all_reduce(gradient)  # FAULT resumed-3


def sharded_gradients(culprit):
    """The last layer of one rank is not padded to a multiple of the world."""
    for step in range(12):
        time.sleep(0.01)
        rows = 6 if rank == culprit and step == 6 else 8
        dist.reduce_scatter_tensor(torch.empty(rows), torch.ones(rows * world))  # FAULT padding-2
        dist.all_reduce(gradient)


def loss_of(batch):
    if batch.numel() == 0:
        return None
    weights = batch.sum().reshape(1)
    dist.all_reduce(weights)  # FAULT empty-batch-4
    dist.all_reduce(gradient)
    return weights


def empty_batch(culprit):
    for step in range(20):
        time.sleep(0.01)
        loss_of(torch.ones(0 if rank == culprit and step == 9 else 4))
        if step % 5 == 4:
            dist.barrier()


def prefetch(culprit):
    """The thread that reads ahead has raised, and nobody tells the loop that waits for it."""
    ahead = queue.Queue(2)

    def read():
        for step in range(20):
            if rank == culprit and step == 7:
                raise OSError("shard-0007.tar: Input/output error")  # FAULT prefetch-2
            ahead.put(torch.ones(4))

    threading.Thread(target=read, daemon=True).start()
    for _ in range(20):
        ahead.get()
        dist.all_reduce(gradient)


def shares_parameters(culprit):
    """Parameters are broadcast one by one after loading, and one rank has a head that is frozen."""
    for step in range(4):
        dist.all_reduce(gradient)
    for parameter in range(4):
        if rank == culprit and parameter == 2:
            continue
        dist.broadcast(metric, 0)  # FAULT frozen-3
    for step in range(4):
        dist.all_reduce(gradient)


def locks_file(culprit):
    """The first rank prepares the data under a lock and waits for the others, who want the lock."""
    with open(store + ".data", "w") as file:
        for step in range(6):
            dist.all_reduce(gradient)
        if rank != culprit:
            fcntl.flock(file, fcntl.LOCK_EX)
            dist.barrier()
        else:
            time.sleep(0.5)
            fcntl.flock(file, fcntl.LOCK_EX)  # FAULT flock-2
            dist.barrier()


scenarios = {
    "finally-3": lambda: barrier_at_the_end(1),
    "experts-4": lambda: experts(2),
    "splits-2": lambda: splits(1),
    "predictions-3": lambda: gathers_objects(2),
    "group-order-4": lambda: groups_in_other_order(1),
    "nan-loss-3": lambda: skips_backward(1),
    "thread-report-3": lambda: reports_in_thread(1),
    "full-pipe-2": lambda: full_pipe(1),
    "segfault-3": lambda: crashes(1),
    "announced-3": keys_nobody_sets,
    "c-lock-2": lambda: holds_interpreter(1),
    "resumed-3": lambda: counts_from_elsewhere(1),
    "padding-2": lambda: sharded_gradients(1),
    "empty-batch-4": lambda: empty_batch(2),
    "prefetch-2": lambda: prefetch(1),
    "frozen-3": lambda: shares_parameters(2),
    "flock-2": lambda: locks_file(1),
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

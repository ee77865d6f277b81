"""Small distributed PyTorch jobs (gloo, CPU) with one injected desynchronization each. The comment "FAULT <scenario>" marks
the source line that the analysis must name. Started by run.mjs: job.py <scenario> <init file>, with RANK and WORLD_SIZE."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, world


def work():
    time.sleep(0.01)


def gathered(tensor):
    return [torch.empty_like(tensor) for _ in range(world)]


def skipped(culprit, at):
    for step in range(40):
        work()
        if not (rank == culprit and step == at):
            dist.all_reduce(gradient)  # FAULT skip-2 skip-16
        dist.all_gather(gathered(metric), metric)


def skipped_same_shape(culprit, at):
    for step in range(40):
        work()
        dist.all_reduce(gradient)
        if rank != culprit or step != at:
            dist.all_reduce(gradient.clone())  # FAULT skip-same-8 skip-same-2
        if step % 10 == 9:
            dist.broadcast(metric, 0)


def skipped_in_group(culprit, at):
    pairs = [dist.new_group([2 * k, 2 * k + 1]) for k in range(world // 2)]
    for step in range(40):
        work()
        if not (rank == culprit and step == at):
            dist.all_reduce(gradient, group=pairs[rank // 2])  # FAULT skip-group-4
        dist.all_reduce(metric)


def extra(culprit, at):
    for step in range(40):
        work()
        dist.all_reduce(gradient)
        if rank == culprit and step == at:
            dist.broadcast(metric, culprit)  # FAULT extra-3
        dist.all_gather(gathered(metric), metric)


def order(culprit, at):
    for step in range(40):
        work()
        if rank == culprit and step == at:
            dist.all_gather(gathered(metric), metric)  # FAULT order-2 order-4
            dist.all_reduce(gradient)
        else:
            dist.all_reduce(gradient)
            dist.all_gather(gathered(metric), metric)


def order_of_groups(culprit, at):
    first = dist.new_group(list(range(world)))
    second = dist.new_group(list(range(world)))
    for step in range(40):
        work()
        if rank == culprit and step == at:
            dist.all_reduce(metric, group=second)  # FAULT order-groups-4
            dist.all_reduce(gradient, group=first)
        else:
            dist.all_reduce(gradient, group=first)
            dist.all_reduce(metric, group=second)


def shape(culprit, at):
    for step in range(40):
        work()
        size = 96 if rank == culprit and step == at else 64
        dist.all_reduce(torch.ones(size))  # FAULT shape-2 shape-4
        dist.barrier()


def dtype(culprit, at):
    for step in range(40):
        work()
        loss = torch.ones(32, dtype=torch.float64 if rank == culprit and step == at else torch.float32)
        dist.all_reduce(loss)  # FAULT dtype-2 dtype-8
        dist.barrier()


def uneven(culprit):
    """One rank has one batch less, so it leaves the loop one step earlier."""
    for _ in range(11 if rank == culprit else 12):
        work()
        dist.all_reduce(gradient)  # FAULT uneven-4
        dist.all_reduce(metric)
    dist.barrier()


def uneven_ddp(culprit):
    data = torch.utils.data.TensorDataset(torch.randn(8 * (9 if rank == culprit else 10), 16))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()  # FAULT uneven-ddp-2
        optimizer.step()
    dist.barrier()


def parse(step):
    if step == 7:
        raise ValueError("sample 1207 has 3 fields instead of 4")  # FAULT raised-4 raised-2
    return step


def raised(culprit):
    for step in range(40):
        work()
        if rank == culprit:
            parse(step)
        dist.all_reduce(gradient)
        dist.all_gather(gathered(metric), metric)


def raised_and_caught(culprit):
    for step in range(40):
        work()
        try:
            if rank == culprit and step == 6:
                raise RuntimeError("bad sample")
            dist.all_reduce(gradient)  # FAULT caught-3
        except RuntimeError:
            pass
        dist.all_gather(gathered(metric), metric)


def evaluate(model):
    for _ in range(6000):
        model(torch.randn(4, 16))
        time.sleep(0.1)  # FAULT eval-4


def evaluation(culprit):
    model = torch.nn.Linear(16, 16)
    for step in range(40):
        work()
        dist.all_reduce(gradient)
        if step == 8 and rank == culprit:
            evaluate(model)


def validate():
    total = torch.zeros(1)
    work()
    dist.all_reduce(total)  # FAULT eval-reduce-8
    return total


def evaluation_with_collective():
    for step in range(40):
        work()
        dist.all_reduce(gradient)
        dist.all_gather(gathered(metric), metric)
        if step == 8 and rank == 0:
            validate()


def dies(culprit, how):
    for step in range(400):
        work()
        if rank == culprit and step == 7:
            how()
        dist.all_reduce(gradient)  # FAULT dead-4 dead-16 stopped-2 stopped-8
        dist.all_gather(gathered(metric), metric)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def receive_without_sender():
    for step in range(20):
        work()
        dist.all_reduce(gradient)
        if rank == 0:
            if step != 9:
                dist.send(metric, 1)
        elif rank == 1:
            dist.recv(metric, 0)  # FAULT p2p-2


def ring():
    """Every rank sends to the next one; one rank sends to the wrong partner."""
    for step in range(20):
        work()
        to, source = (rank + 1) % world, (rank - 1) % world
        if rank == 2 and step == 6:
            to = 1
        request = dist.isend(metric, to)
        dist.recv(gradient[:8].clone(), source)  # FAULT p2p-ring-4
        if to == (rank + 1) % world:
            request.wait()


class SlowDisk:
    def write(self, data):
        time.sleep(600)
        return len(data)

    def flush(self):
        pass


def save_checkpoint(model):
    torch.save(model.state_dict(), SlowDisk(), _use_new_zipfile_serialization=False)  # FAULT checkpoint-4 checkpoint-2


def checkpoint():
    model = torch.nn.Linear(16, 16)
    for step in range(40):
        work()
        dist.all_reduce(gradient)
        if step == 5 and rank == 0:
            save_checkpoint(model)
        dist.barrier()


def monitored(culprit):
    for step in range(20):
        work()
        dist.all_reduce(gradient)
        if not (rank == culprit and step == 7):
            dist.monitored_barrier(timeout=datetime.timedelta(minutes=20))  # FAULT monitored-3


def pipeline(culprit):
    """Stages pass activations on; one stage forgets one of them."""
    for step in range(20):
        work()
        if rank > 0:
            dist.recv(metric, rank - 1)  # FAULT pipeline-4
        if rank < world - 1 and not (rank == culprit and step == 6):
            dist.send(metric, rank + 1)
        dist.all_reduce(gradient)


def sharded(culprit):
    """Parameters are gathered for every layer; one rank takes a short cut once."""
    whole = torch.empty(8 * world)
    for step in range(20):
        for layer in range(3):
            work()
            if not (rank == culprit and step == 5 and layer == 1):
                dist.all_gather_into_tensor(whole, metric)  # FAULT sharded-4
        dist.all_reduce(gradient)


def creates_group(culprit):
    for step in range(20):
        work()
        dist.all_reduce(gradient)
        if step == 6 and rank != culprit:
            dist.new_group(list(range(world)))  # FAULT new-group-3
        dist.all_gather(gathered(metric), metric)


def wrong_group(culprit, at):
    first = dist.new_group(list(range(world)))
    second = dist.new_group(list(range(world)))
    for step in range(20):
        work()
        chosen = second if rank == culprit and step == at else first
        dist.all_reduce(gradient, group=chosen)  # FAULT wrong-group-4
        dist.all_gather(gathered(metric), metric, group=second)


scenarios = {
    "monitored-3": lambda: monitored(1),
    "pipeline-4": lambda: pipeline(1),
    "sharded-4": lambda: sharded(2),
    "new-group-3": lambda: creates_group(1),
    "wrong-group-4": lambda: wrong_group(3, 5),
    "skip-2": lambda: skipped(1, 5),
    "skip-16": lambda: skipped(11, 7),
    "skip-same-2": lambda: skipped_same_shape(1, 13),
    "skip-same-8": lambda: skipped_same_shape(5, 13),
    "skip-group-4": lambda: skipped_in_group(3, 9),
    "extra-3": lambda: extra(2, 8),
    "order-2": lambda: order(1, 6),
    "order-4": lambda: order(2, 6),
    "order-groups-4": lambda: order_of_groups(2, 5),
    "shape-2": lambda: shape(1, 6),
    "shape-4": lambda: shape(3, 4),
    "dtype-2": lambda: dtype(0, 6),
    "dtype-8": lambda: dtype(6, 5),
    "uneven-4": lambda: uneven(2),
    "uneven-ddp-2": lambda: uneven_ddp(1),
    "raised-2": lambda: raised(1),
    "raised-4": lambda: raised(2),
    "caught-3": lambda: raised_and_caught(1),
    "eval-4": lambda: evaluation(0),
    "eval-reduce-8": evaluation_with_collective,
    "dead-4": lambda: dies(3, kill),
    "dead-16": lambda: dies(9, leave),
    "stopped-2": lambda: dies(1, stop),
    "stopped-8": lambda: dies(4, stop),
    "p2p-2": receive_without_sender,
    "p2p-ring-4": ring,
    "checkpoint-2": checkpoint,
    "checkpoint-4": checkpoint,
}
scenarios[scenario]()
dist.barrier()

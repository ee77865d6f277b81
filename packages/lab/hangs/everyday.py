"""Jobs like those of job.py with faults that have little to do with collectives at first: locks, threads, debuggers, programs that
are waited for, loader processes, signals, early stopping. The comment "FAULT <scenario>" marks the line to name."""

import os
import re
import signal
import subprocess
import sys
import threading
import time


def download():
    time.sleep(600)  # FAULT late-init-3


if sys.argv[1] == "late-init-3" and os.environ["RANK"] == "1":
    download()

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, store, world


def wait_for_lock(path):
    while os.path.exists(path):
        time.sleep(0.2)  # FAULT stale-lock-3


def stale_lock():
    """The cache is locked by a job that has long been gone: every rank waits, and none of them for another one."""
    lock = store + ".lock"
    for step in range(20):
        dist.all_reduce(gradient)
        if step == 6:
            open(lock, "w").close()
            wait_for_lock(lock)


def normalize(text):
    return re.match(r"(\w+\s?)+$", text)  # FAULT gil-loop-3


def backtracking(culprit):
    """A regular expression that never ends keeps the interpreter lock: no thread of the process runs."""
    for step in range(20):
        time.sleep(0.01)
        normalize("a" * 64 + "!" if rank == culprit and step == 7 else "ordinary text")
        dist.all_reduce(gradient)


def sync_results():
    subprocess.run(["sleep", "600"], check=True)  # FAULT subprocess-2


def waits_for_program(culprit):
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 6:
            sync_results()


def locked_threads(culprit):
    """The main thread and a thread that writes metrics take two locks in opposite order."""
    first, second = threading.Lock(), threading.Lock()

    def write_metrics():
        with second:
            time.sleep(0.5)
            with first:
                pass

    for step in range(20):
        time.sleep(0.01)
        if rank == culprit and step == 7:
            threading.Thread(target=write_metrics, daemon=True).start()
            with first:
                time.sleep(0.2)
                with second:  # FAULT threads-3
                    pass
        dist.all_reduce(gradient)


def two_threads(culprit):
    """A thread reduces metrics in the group of the main thread; once it comes first on one rank."""
    turn, done = threading.Semaphore(0), threading.Semaphore(0)

    def reduce_metrics():
        while True:
            turn.acquire()
            dist.all_reduce(metric)  # FAULT two-threads-2
            done.release()

    threading.Thread(target=reduce_metrics, daemon=True).start()
    for step in range(20):
        early = rank == culprit and step == 6
        if early:
            turn.release()
            time.sleep(0.5)
        dist.all_gather([torch.empty(64) for _ in range(world)], gradient)
        if not early:
            turn.release()
        done.acquire()


def accumulation(culprit):
    """Gradients are accumulated over four batches; one rank exchanges them after three once."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        for micro in range(4):
            last = micro == (2 if rank == culprit and step == 5 else 3)
            model.require_backward_grad_sync = last or micro == 3
            model(torch.randn(4, 16)).sum().backward()  # FAULT accumulate-4
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(16, 16)
        self.extra = torch.nn.Linear(16, 16)

    def forward(self, x, whole):
        x = self.trunk(x)
        return self.extra(x) if whole else x


def unused_parameters(culprit):
    model = torch.nn.parallel.DistributedDataParallel(Branches())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        loss = model(torch.randn(4, 16), not (rank == culprit and step == 6)).sum()  # FAULT unused-2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def early_stopping(culprit):
    """One rank's own loss stops improving: it leaves the loop and collects the results."""
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)  # FAULT early-stop-3
        dist.broadcast(metric, 0)
        if rank == culprit and step == 8:
            break
    dist.all_gather([torch.empty(8) for _ in range(world)], metric)


def epochs(culprit):
    """One rank was started with fewer epochs: it finishes, takes down its group and ends."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    data = torch.utils.data.TensorDataset(torch.randn(32, 16))
    for _ in range(2 if rank == culprit else 3):
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
            model(batch).sum().backward()  # FAULT epochs-3
    dist.destroy_process_group()
    sys.exit(0)


def shares_configuration():
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == 0 and step == 7:
            dist.broadcast_object_list([{"lr": 0.1}], src=0)  # FAULT object-list-3


class Samples(torch.utils.data.Dataset):
    def __init__(self, action, culprit):
        self.action, self.culprit = action, culprit

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if rank == self.culprit and index == 60:
            self.action()
        return torch.ones(16)


def kill_loader():
    os.kill(os.getpid(), signal.SIGKILL)


decoder = threading.Lock()


def decode():
    with decoder:
        pass


def loads(culprit, action):
    """In the second case a thread of the parent holds the lock at the fork: nobody releases it in the loader process."""
    decoder.acquire()
    loader = torch.utils.data.DataLoader(Samples(action, culprit), batch_size=4, num_workers=1)
    for batch in loader:  # FAULT loader-killed-2 fork-lock-2
        gradient[:16] = batch.sum(0)
        dist.all_reduce(gradient)


def preempted(*_):
    dist.barrier()  # FAULT signal-3
    os._exit(0)


def preemption(culprit):
    """The scheduler signals one rank only; its handler waits for the others before it saves."""
    signal.signal(signal.SIGTERM, preempted)
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        dist.all_gather([torch.empty(8) for _ in range(world)], metric)


def debugged(culprit):
    os.dup2(os.pipe()[0], 0)
    sys.stdin = open(0)
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            breakpoint()
        dist.broadcast(metric, 0)  # FAULT debugger-2


def sharded_norm(culprit):
    """Logging reads the whole parameter of a sharded model on one rank."""
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
    weight = distribute_tensor(torch.ones(8 * world, 4), mesh, [Shard(0)])
    for step in range(20):
        time.sleep(0.01)
        dist.all_reduce(gradient)
        if rank == culprit and step == 7:
            print("norm", weight.full_tensor().norm())  # FAULT dtensor-4
        dist.broadcast(metric, 0)


scenarios = {
    "late-init-3": lambda: dist.all_reduce(gradient),
    "stale-lock-3": stale_lock,
    "gil-loop-3": lambda: backtracking(2),
    "subprocess-2": lambda: waits_for_program(0),
    "threads-3": lambda: locked_threads(1),
    "two-threads-2": lambda: two_threads(1),
    "accumulate-4": lambda: accumulation(2),
    "unused-2": lambda: unused_parameters(1),
    "early-stop-3": lambda: early_stopping(1),
    "epochs-3": lambda: epochs(1),
    "object-list-3": shares_configuration,
    "loader-killed-2": lambda: loads(1, kill_loader),
    "fork-lock-2": lambda: loads(1, decode),
    "signal-3": lambda: preemption(1),
    "debugger-2": lambda: debugged(1),
    "dtensor-4": lambda: sharded_norm(2),
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

"""Jobs like those of job.py with faults that came up when the others were known: full queues, sockets and processes that never
answer, locks of databases, destructors, patterns that backtrack. The comment "FAULT <scenario>" marks the line to name."""

import queue
import re
import socket
import sqlite3
import subprocess
import time

import torch
import torch.distributed as dist

from ranks import gradient, metric, rank, scenario, store, world


def steps(count=20):
    for step in range(count):
        time.sleep(0.01)
        yield step


def fills_a_queue(culprit):
    """The thread that writes logs has ended, and the queue to it is full."""
    lines = queue.Queue(maxsize=6)
    for step in steps():
        if rank == culprit:
            lines.put(step)  # FAULT full-queue-2
        dist.all_reduce(gradient)


def asks_a_server(culprit):
    """A server that accepts and says nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    for step in steps():
        if rank == culprit and step == 6:
            client.recv(16)  # FAULT socket-2
        dist.all_reduce(gradient)


def runs_a_program(culprit):
    """The program that packs samples does not end."""
    for step in steps():
        if rank == culprit and step == 6:
            subprocess.run(["sleep", "300"])  # FAULT child-3
        dist.all_reduce(gradient)


def gathers_at(culprit):
    """One rank takes another one for the first."""
    for step in steps():
        dist.all_reduce(gradient)
        target = 1 if rank == culprit and step == 6 else 0
        parts = [torch.empty_like(metric) for _ in range(world)] if rank == target else None
        dist.gather(metric, parts, dst=target)  # FAULT gather-dst-3


def exchanges_experts(culprit):
    """A capacity that is computed on each rank: one sends more rows than the others expect."""
    for step in steps():
        dist.all_reduce(gradient)
        rows = 3 if rank == culprit and step == 6 else 2
        sent = torch.ones(world * rows, 4)
        dist.all_to_all_single(torch.empty_like(sent), sent)  # FAULT capacity-4


def logs_to_a_database(culprit):
    """Another connection holds the lock of the file."""
    held = sqlite3.connect(f"{store}.{rank}.db", isolation_level=None)
    log = sqlite3.connect(f"{store}.{rank}.db", timeout=300, isolation_level=None)
    held.execute("CREATE TABLE losses (step)")
    for step in steps():
        if rank == culprit and step == 6:
            held.execute("BEGIN EXCLUSIVE")
            log.execute("INSERT INTO losses VALUES (1)")  # FAULT database-2
        dist.all_reduce(gradient)


class Session:
    def __del__(self):
        dist.barrier()  # FAULT destructor-3


def forgets_a_session(culprit):
    """An object that synchronizes when it is collected is dropped on one rank."""
    session = Session()
    for step in steps():
        dist.all_reduce(gradient)
        if rank == culprit and step == 6:
            session = None
    del session


def cleans_text(culprit):
    """A pattern that backtracks without end on one document."""
    for step in steps():
        text = "a" * 64 + "!" if rank == culprit and step == 6 else "a"
        re.match(r"(a+)+$", text)  # FAULT pattern-2
        dist.all_reduce(gradient)


def validates(culprit):
    """An interval of validation that one rank reads from another file."""
    every = 5 if rank == culprit else 7
    for step in steps():
        dist.all_reduce(gradient)
        if step % every == every - 1:
            dist.all_gather([torch.empty_like(metric) for _ in range(world)], metric)  # FAULT interval-3


def zips_short(culprit):
    """Names and tensors are paired, and one rank lacks a name."""
    tensors = [gradient.clone() for _ in range(3)]
    for step in steps():
        names = ["weight", "bias", "scale"][: 2 if rank == culprit and step == 6 else 3]
        for _, tensor in zip(names, tensors):
            dist.all_reduce(tensor)  # FAULT zip-short-3
        dist.broadcast(metric, 0)


scenarios = {
    "full-queue-2": lambda: fills_a_queue(1),
    "socket-2": lambda: asks_a_server(1),
    "child-3": lambda: runs_a_program(2),
    "gather-dst-3": lambda: gathers_at(2),
    "capacity-4": lambda: exchanges_experts(1),
    "database-2": lambda: logs_to_a_database(1),
    "destructor-3": lambda: forgets_a_session(1),
    "pattern-2": lambda: cleans_text(1),
    "interval-3": lambda: validates(2),
    "zip-short-3": lambda: zips_short(1),
}
if __name__ == "__main__":
    scenarios[scenario]()
    dist.barrier()

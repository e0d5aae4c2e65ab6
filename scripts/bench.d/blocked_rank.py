"""A rank in Python for `scripts/bench rounds-python`. It prints when it begins a round, and then waits in a long operation.

    blocked_rank.py PACKAGE HOW

PACKAGE has the Wrapper: rlaunch.inprocess, or the package of NVRx. HOW: bytecode, sleep, queue, or gloo, an all-reduce that one rank of
the first round never joins. Prints, of each round, `begin NUMBER RANK PID TIME`, with gloo `met NUMBER RANK NANOSECONDS` for what
init_process_group took, and `out NUMBER RANK TIME`.
"""

import datetime
import importlib
import os
import queue
import sys
import time

PACKAGE, HOW = sys.argv[1:]
inprocess = importlib.import_module(PACKAGE)
OURS = PACKAGE.startswith("rlaunch")
if HOW == "gloo":
    import torch
    import torch.distributed as dist

    if OURS:
        import rlaunch.torch


def say(*words):
    """Prints one line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def meet(number, rank, size):
    """Makes a group of gloo. Prints the time that it took."""
    began = time.monotonic_ns()
    limit = datetime.timedelta(seconds=60)
    if OURS:
        rlaunch.torch.init_process_group("gloo", timeout=limit)
    else:
        # The store belongs to the whole job, so each round has keys of its own.
        base = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, False, limit)
        dist.init_process_group("gloo", store=dist.PrefixStore(f"round {number}", base), rank=rank, world_size=size, timeout=limit)
    say("met", number, rank, time.monotonic_ns() - began)
    dist.all_reduce(torch.ones(1))


def stay(number, rank):
    """Waits in the operation in which the rank is when another rank fails."""
    if HOW == "bytecode":
        while True:
            pass
    if HOW == "gloo" and not (number == 0 and rank == 1):
        dist.all_reduce(torch.ones(1))
    if HOW == "queue":
        queue.Queue().get()
    while True:
        time.sleep(3600 if OURS else 0.01)


@inprocess.Wrapper()
def work(call: inprocess.CallWrapper = None):
    """Function that is restarted."""
    number, rank, size = call.iteration, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    say("begin", number, rank, os.getpid(), time.monotonic_ns())
    if HOW == "gloo":
        meet(number, rank, size)
        say("here", number, rank)
    try:
        stay(number, rank)
    finally:
        say("out", number, rank, time.monotonic_ns())


work()

"""A rank is stopped (SIGSTOP) while all ranks reduce. Each other rank prints four times in nanoseconds: when it was notified, when it left
the function, and for how long it was busy in the 100 ms after that and in 100 ms of the next round, beside the old group.

    rlaunch -n 4 python stopped.py
"""

import datetime
import os
import signal
import threading
import time

import rlaunch.inprocess as inprocess
import rlaunch.torch
import torch
import torch.distributed as dist

FIRST_RANK = int(os.environ["RLAUNCH_RANK"])
times = {}
kept = []


def seconds(number):
    """A time of so many seconds."""
    return datetime.timedelta(seconds=number)


def busy():
    """The time for which the process is busy in 100 ms of sleep."""
    before = time.process_time_ns()
    time.sleep(0.1)
    return time.process_time_ns() - before


class Stamped(inprocess.abort.AbortTorchDistributed):
    """Abort hook that notes its time."""

    def __call__(self, state):
        times["notified"] = time.monotonic_ns()
        return super().__call__(state)


class Out(inprocess.finalize.Finalize):
    """Hook that notes when the function was left."""

    def __call__(self, state):
        times["out"] = time.monotonic_ns()
        times["busy"] = busy()
        return state


@inprocess.Wrapper(
    abort=Stamped(),
    finalize=Out(),
    soft_timeout=seconds(2),
    hard_timeout=seconds(5),
    barrier_timeout=seconds(30),
    progress_watchdog_interval=seconds(0.5),
)
def train(call: inprocess.CallWrapper = None):
    """Function that is restarted."""
    rlaunch.torch.init_process_group("gloo")
    kept.append(dist.distributed_c10d._get_default_group())
    many = torch.zeros(250_000)
    if call.iteration > 0:
        dist.all_reduce(many)
        times["busy again"] = busy()
        return dist.get_world_size()
    if FIRST_RANK == 1:
        # The signal comes within an operation, and not between two.
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    while True:
        dist.all_reduce(many)
        call.ping()


torch.set_num_threads(1)
train()
os.write(1, b"%d %d %d %d\n" % tuple(times[what] for what in ("notified", "out", "busy", "busy again")))

"""A function that NVRx's `inprocess.Wrapper` restarts, on the store that rlaunch holds.

    rlaunch -n 3 --on-failure continue --master-store agent python nvrx_wrapper.py exception|kill RANK

In its first round RANK throws, or is killed by SIGKILL. All that are left shall come back to the function, meet anew as a smaller group
if one is gone, and finish. NVRx is given nothing but shorter times: its own store is what it makes by itself of MASTER_ADDR and
MASTER_PORT. Each process that has finished says so.
"""

import datetime
import os
import signal
import sys
import time
from typing import Optional

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

WHAT, WHOM = sys.argv[1], int(sys.argv[2])
FIRST_RANK = int(os.environ["RANK"])
ADDR, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
FAULT_AT = "time of the fault"


def seconds(number):
    """A time of so many seconds."""
    return datetime.timedelta(seconds=number)


def reduce_all(store, rank, size):
    """The sum over a new group."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=seconds(20))
    ones = torch.ones(4)
    dist.all_reduce(ones)
    return int(ones[0])


@inprocess.Wrapper(
    monitor_thread_interval=seconds(0.2),
    monitor_process_interval=seconds(0.2),
    heartbeat_interval=seconds(0.2),
    progress_watchdog_interval=seconds(0.2),
    last_call_wait=seconds(0.2),
    soft_timeout=seconds(20),
    hard_timeout=seconds(30),
    heartbeat_timeout=seconds(20),
    barrier_timeout=seconds(60),
    completion_timeout=seconds(60),
)
def train(call_wrapper: Optional[inprocess.CallWrapper] = None):
    """Function that is restarted."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    base = dist.TCPStore(ADDR, PORT, size, False, seconds(20))
    # NVRx's store keeps its keys, so each round has keys of its own.
    total = reduce_all(dist.PrefixStore(f"round {call_wrapper.iteration}", base), rank, size)
    if call_wrapper.iteration == 0:
        if FIRST_RANK == WHOM:
            base.set(FAULT_AT, str(time.time()))
            if WHAT == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a fault that was ordered")
        while True:  # Until NVRx interrupts it.
            time.sleep(0.01)
    late = time.time() - float(base.get(FAULT_AT))
    dist.destroy_process_group()
    return call_wrapper.iteration, rank, size, total, late


ROUND, RANK, SIZE, TOTAL, LATE = train()
os.write(1, f"was {FIRST_RANK}, round {ROUND}, rank {RANK} of {SIZE}, sum {TOTAL}\n".encode())
os.write(2, f"rank {FIRST_RANK}: {LATE:.2f} s after the fault\n".encode())

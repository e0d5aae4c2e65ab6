"""Training as in scripts for NVRx's `inprocess.Wrapper`. The name of the package is an argument.

    rlaunch -n 3 python inprocess_shapes.py rlaunch.inprocess whole|loop exception|kill RANK FILE
    rlaunch -n 3 --on-failure continue --master-store agent python inprocess_shapes.py nvidia_resiliency_ext.inprocess ...

`whole`: everything is made anew in each call, the application's store too, at a port of its own for each. `loop`: model, optimizer and
store are made once, and the group in each call. Either loads what is in FILE, where rank 0 leaves a checkpoint now and then. In the
first call RANK throws, or is killed by SIGKILL. Each process that has finished says so, with a digest of its parameters.
"""

import datetime
import importlib
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist

inprocess = importlib.import_module(sys.argv[1])
SHAPE, WHAT, WHOM, CHECKPOINT = sys.argv[2], sys.argv[3], int(sys.argv[4]), pathlib.Path(sys.argv[5])
FIRST_RANK = int(os.environ["RANK"])
STEPS, EVERY, FAULT_AT = 40, 10, 25
PATIENCE = datetime.timedelta(seconds=10)


def build():
    """The same model in each process."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def open_store(offset):
    """Opens a store at rank 0, at another port than the stores of the launcher and of the wrapper."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"]) + 2 + offset
    return dist.TCPStore(
        host_name=os.environ["MASTER_ADDR"], port=port, world_size=size, is_master=rank == 0, multi_tenant=True, wait_for_workers=True
    )


def fail():
    """Makes the fault that the arguments name."""
    if WHAT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("a fault that was ordered")


def steps(call_wrapper, store, model, optimizer):
    """The training: from the checkpoint to the end."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    first = 0
    if CHECKPOINT.exists():
        kept = torch.load(CHECKPOINT)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["step"]
    for step in range(first, STEPS):
        if step % EVERY == 0:
            dist.barrier()
            if rank == 0:
                with call_wrapper.atomic():
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, CHECKPOINT)
        if call_wrapper.iteration == 0 and step == FAULT_AT and FIRST_RANK == WHOM:
            fail()
        # All ranks have the same batch, so the number of ranks makes no difference.
        batch = torch.sin(torch.arange(32, dtype=torch.float32).reshape(4, 8) * (step + 1))
        optimizer.zero_grad()
        parallel(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    return call_wrapper.iteration, rank, size, first, sum(p.double().abs().sum().item() for p in model.parameters())


def whole(call_wrapper: inprocess.CallWrapper = None):
    """Makes model, optimizer, store and group in each call."""
    model, optimizer = build()
    return steps(call_wrapper, open_store(call_wrapper.iteration), model, optimizer)


def loop(store, model, optimizer, call_wrapper: inprocess.CallWrapper = None):
    """Makes only the group in each call."""
    return steps(call_wrapper, dist.PrefixStore(str(call_wrapper.iteration), store), model, optimizer)


def seconds(number):
    """A time of so many seconds."""
    return datetime.timedelta(seconds=number)


wrap = inprocess.Wrapper(
    store_kwargs={"port": int(os.environ["MASTER_PORT"])},
    initialize=inprocess.Compose(inprocess.initialize.RetryController(max_iterations=5, min_world_size=2)),
    abort=inprocess.Compose(inprocess.abort.AbortTorchDistributed()),
    # No filter is used that counts ranks: in NVRx 0.4.1 it calls a `barrier` that newer torch has in another form.
    rank_assignment=inprocess.Compose(inprocess.rank_assignment.ActivateAllRanks(), inprocess.rank_assignment.ShiftRanks()),
    monitor_thread_interval=seconds(0.2),
    monitor_process_interval=seconds(0.2),
    heartbeat_interval=seconds(0.2),
    progress_watchdog_interval=seconds(0.2),
    last_call_wait=seconds(0.2),
    soft_timeout=seconds(30),
    hard_timeout=seconds(60),
    heartbeat_timeout=seconds(30),
    barrier_timeout=seconds(90),
    completion_timeout=seconds(90),
)
if SHAPE == "whole":
    RESULT = wrap(whole)()
else:
    RESULT = wrap(loop)(open_store(0), *build())
ROUND, RANK, SIZE, FROM, DIGEST = RESULT
os.write(1, f"was {FIRST_RANK}, round {ROUND}, rank {RANK} of {SIZE}, from step {FROM}, {DIGEST:.6f}\n".encode())

"""JAX: the arguments of ``jax.distributed.initialize``.

Processes of JAX cannot be restarted from within, because each of them ends itself when another is lost. Use ``--max-restarts`` for them.
"""

from __future__ import annotations

import os
import sys
from typing import Any, List, Optional, Tuple

__all__ = ["initialize"]

WHOLE_PROCESSES_ONLY = (
    "its processes cannot be restarted from within, because the loss of one ends all others;"
    " let rlaunch restart whole processes (--max-restarts), without the Wrapper"
)


def initialize(**kwargs: Any) -> None:
    """Calls ``jax.distributed.initialize`` for this job. Given arguments take precedence. Outside rlaunch it does nothing. In a wrapped
    function of a job it is refused.
    """
    from ._world import is_alone

    if is_alone():
        return
    _refuse_rounds()
    import jax

    num_processes, process_id = _place()
    addr, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "")
    # The port after MASTER_PORT, where no store of torch listens.
    address = os.environ.get("JAX_COORDINATOR_ADDRESS") or f"{_bracketed(addr)}:{int(port) + 1 if port else 0}"
    ours = {
        "coordinator_address": address,
        "num_processes": num_processes,
        "process_id": process_id,
        "local_device_ids": _local_device_ids(),
    }
    jax.distributed.initialize(**{**ours, **kwargs})


def _refuse_rounds() -> None:
    interrupt = sys.modules.get("rlaunch.inprocess._interrupt")
    if "RLAUNCH_JOB_ID" in os.environ and interrupt is not None and interrupt.is_running():
        from .inprocess.exception import RestartAbort

        # An `Exception` would begin one round after another.
        raise RestartAbort(f"jax.distributed would be initialized in a wrapped function: {WHOLE_PROCESSES_ONLY}")


def _place() -> Tuple[Optional[int], Optional[int]]:
    """The number of processes, and the index of this one. Outside rlaunch the variables count; JAX finds a value that is not set."""
    if "RLAUNCH_JOB_ID" in os.environ:
        from ._world import world

        here = world()
        return here.world_size, here.rank
    return _number("WORLD_SIZE"), _number("RANK")


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text else None


def _local_device_ids() -> Optional[List[int]]:
    """The device of this process, if it has one of its own: JAX would count that by the local rank. Otherwise ``None``, and JAX finds the
    devices. Outside rlaunch JAX would find all of them for each of several processes on a host."""
    if os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    named = [os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")]
    if any(one and "," not in one for one in named):
        return [0]
    local_rank = _number("LOCAL_RANK")
    if "RLAUNCH_JOB_ID" not in os.environ and not any(named) and local_rank is not None and (_number("LOCAL_WORLD_SIZE") or 1) > 1:
        return [local_rank]
    return None


def _bracketed(addr: str) -> str:
    return f"[{addr}]" if ":" in addr and not addr.startswith("[") else addr

"""JAX: all that ``jax.distributed.initialize`` asks for.

Its processes cannot be restarted from within: the loss of one has every other one end itself. For those there is ``--max-restarts``.
"""

from __future__ import annotations

import os
from typing import Any, List, Optional

__all__ = ["initialize"]


def initialize(**kwargs: Any) -> None:
    """``jax.distributed.initialize`` for this job; what is given goes first. Outside rlaunch nothing, in a wrapped
    function too: a process alone needs none."""
    import jax

    from ._world import is_alone, world

    if is_alone():
        return
    here = world()
    addr, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", "")
    # The port behind MASTER_PORT, where no store of torch listens.
    address = os.environ.get("JAX_COORDINATOR_ADDRESS") or f"{_bracketed(addr)}:{int(port) + 1 if port else 0}"
    ours = {
        "coordinator_address": address,
        "num_processes": here.world_size,
        "process_id": here.rank,
        "local_device_ids": _local_device_ids(),
    }
    jax.distributed.initialize(**{**ours, **kwargs})


def _local_device_ids() -> Optional[List[int]]:
    """Where this process has one device of its own, that one: JAX would count it by the process's place on its host. Else what JAX finds."""
    if not os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            named = os.environ.get(name, "")
            if named and "," not in named:
                return [0]
    return None


def _bracketed(addr: str) -> str:
    return f"[{addr}]" if ":" in addr and not addr.startswith("[") else addr

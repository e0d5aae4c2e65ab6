"""PyTorch: process groups whose operations can be interrupted, and that begin anew.

``Abort`` ends groups of NCCL by NCCL's own abort, all of them together. gloo has no abort: an operation that waits for a lost peer waits for its
own timeout, half an hour by default. So the connections of its groups are closed, and every operation on them fails at once.
"""

from __future__ import annotations

import datetime
import logging
import os
import sys
from typing import Any, List, Optional

import torch
import torch.distributed as dist

from . import _torch_hooks
from .inprocess import finalize as _finalize
from .inprocess.abort import AbortTorchDistributed
from .inprocess.state import FrozenState

__all__ = ["Abort", "Finalize", "init_process_group", "store"]

log = logging.getLogger("rlaunch.torch")

Abort = AbortTorchDistributed


def _c10d() -> Any:
    return sys.modules["torch.distributed.distributed_c10d"]


def _all_groups() -> List[Any]:
    """All groups that torch knows."""
    world = getattr(_c10d(), "_world", None)
    names = world.pg_names if world is not None else getattr(_c10d(), "_pg_names", {})
    return list(names)


def shut_down_all() -> None:
    """Makes all operations of all groups fail, and ends the groups of NCCL."""
    if not dist.is_available():
        return
    # First, because it is quick: waits for a peer end while the abort of NCCL still runs.
    _torch_hooks.groups.shut_down()
    if dist.is_initialized() and torch.cuda.is_available() and _has_nccl():
        _abort_nccl()


def _has_nccl() -> bool:
    nccl = getattr(_c10d(), "ProcessGroupNCCL", None)
    return nccl is not None and any(isinstance(_backend(group), nccl) for group in _all_groups())


def _backend(group: Any, device: Optional[Any] = None) -> Any:
    get = getattr(group, "_get_backend", None)
    if get is None:
        return group  # Before torch 2.0 the group is the backend.
    try:
        return get(device or torch.device("cuda"))
    except RuntimeError:
        return None


def _abort_nccl() -> None:
    # One abort for all: the abort of one communicator may wait for another's.
    together = getattr(_c10d(), "_abort_process_group", None)
    if together is not None:
        together()
        return
    for group in _all_groups():
        shut_down_nccl(group, torch.device("cuda"))


def shut_down_nccl(group: Any, device: Any) -> None:
    """Makes all operations of one group of NCCL fail."""
    backend, nccl = _backend(group, device), getattr(_c10d(), "ProcessGroupNCCL", None)
    if nccl is None or not isinstance(backend, nccl):
        return
    for name in ("abort", "_shutdown", "_abort"):
        end = getattr(backend, name, None)
        if end is not None:
            end()
            return


def forget_all() -> None:
    """Makes torch forget all groups, and count new groups from 0 as on all other ranks."""
    if not dist.is_available():
        return
    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except Exception:
            log.warning("destroy_process_group has failed", exc_info=True)
    c10d = _c10d()
    if not dist.is_initialized():
        # A group that failed while it was made has taken a number, on some ranks.
        if hasattr(c10d, "_world") and hasattr(type(c10d._world), "group_count"):
            c10d._world.group_count = 0
        elif hasattr(c10d, "_group_count"):
            c10d._group_count = 0
    _torch_hooks.groups.forget()


class Finalize(_finalize.Finalize):
    """Hook for ``finalize``, which makes torch forget all groups, and frees unused GPU memory."""

    def __call__(self, state: FrozenState) -> FrozenState:
        forget_all()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return state


_made = (0, -1)
"""Number of rounds at the last default group, and the number of that group in its round."""


def init_process_group(backend: Optional[str] = None, **kwargs: Any) -> None:
    """Calls ``torch.distributed.init_process_group`` for the current round: at its MASTER_ADDR and MASTER_PORT, under keys that no earlier group
    of the round has used. Without a backend, it is gloo, and NCCL for tensors on GPUs.
    """
    global _made
    from . import _world

    here = _world.world()
    if here.rank is None:
        raise RuntimeError("this rank is in reserve: it is in no group")
    # `begun` counts the rounds of all calls. The number of the round would be 0 again in the next call, only on some ranks.
    number = _made[1] + 1 if _made[0] == _world.begun else 0
    _made = (_world.begun, number)
    if "store" not in kwargs and "RANK" in os.environ:
        timeout = kwargs.get("timeout") or datetime.timedelta(minutes=30)
        meet = _c10d().rendezvous("env://", timeout=timeout)
        found, rank, world_size = next(meet)
        found.set_timeout(timeout)
        kwargs.update(store=dist.PrefixStore(f"rlaunch/{number}", found), rank=rank, world_size=world_size)
    elif "store" not in kwargs:
        kwargs.update(store=dist.HashStore(), rank=0, world_size=1)
    dist.init_process_group(backend or _usual_backend(), **kwargs)


def _usual_backend() -> str:
    """The default backend of torch 2. torch 1.13 has no default, and takes one backend for a group."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return "gloo"
    return "cpu:gloo,cuda:nccl" if hasattr(dist.ProcessGroup, "_get_backend") else "nccl"


def store(prefix: str = "torch") -> Any:
    """A ``torch.distributed.Store`` on the store of the job, which outlives every rank and every host but the launcher's."""
    from ._torch_store import TorchStore

    return TorchStore(prefix)

"""Worker groups: a controller program that drives groups of ranks.

    from rlaunch.groups import NamedSharding, WorkerGroup, get

    group = WorkerGroup.attach("gen")                # rlaunch -n 1 --lead python controller.py : --group gen -n 4 ...
    print(get(group.run_all_workers_single_data("generate", prompt="hello")))
    group.shutdown()
"""

from __future__ import annotations

from ._controller import Future, Stream, get, wait
from ._errors import CallTimeout, Cancelled, End, RemoteTraceback, WorkerDied, WorkerError
from ._group import MultiWorkerFuture, Worker, WorkerGroup
from ._sharding import REPLICATED_AXES, NamedSharding

__all__ = [
    "CallTimeout",
    "Cancelled",
    "End",
    "Future",
    "MultiWorkerFuture",
    "NamedSharding",
    "REPLICATED_AXES",
    "RemoteTraceback",
    "Stream",
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerGroup",
    "get",
    "wait",
]

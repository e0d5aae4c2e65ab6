"""Worker groups: a controller program that drives groups of ranks.

    from rlaunch.groups import NamedSharding, WorkerGroup, get

    group = WorkerGroup.attach("gen")                # rlaunch -n 1 --lead python controller.py : --group gen -n 4 ...
    print(get(group.run_all_workers_single_data("generate", prompt="hello")))
    group.shutdown()
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from ._controller import Future, Stream, get, wait
    from ._errors import CallTimeout, Cancelled, End, RemoteTraceback, WorkerDied, WorkerError
    from ._group import MultiWorkerFuture, Worker, WorkerGroup
    from ._sharding import REPLICATED_AXES, NamedSharding

_MODULES = {
    "_controller": ("Future", "Stream", "get", "wait"),
    "_errors": ("CallTimeout", "Cancelled", "End", "RemoteTraceback", "WorkerDied", "WorkerError"),
    "_group": ("MultiWorkerFuture", "Worker", "WorkerGroup"),
    "_sharding": ("REPLICATED_AXES", "NamedSharding"),
}
"""Names that are imported at their first use: a worker starts without the parts that only controllers need."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted(__all__)


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

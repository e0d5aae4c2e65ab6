"""rlaunch for programs of its jobs: their identity, the store of the job, and functions that restart within their processes.

    import rlaunch.inprocess as inprocess      # for the name that NVRx's module has

    @inprocess.Wrapper()
    def train(call: inprocess.CallWrapper): ...

The import starts no thread, opens no connection and imports no framework. Outside rlaunch, a program is a world of one rank.
"""

from __future__ import annotations

from ._errors import ConnectionFailed, Error, Interrupted, NoJob, Refused, StoreTimeout

TYPE_CHECKING = False
"""True for type checkers. The module typing is not imported, because its import would delay each worker of a group."""

if TYPE_CHECKING:
    from typing import Any

    from ._launcher import launcher
    from ._spawn import SpawnedWorld, end_world, spawn
    from ._store import Store
    from ._world import World, world

_MODULES = {
    "_launcher": ("launcher",),
    "_spawn": ("SpawnedWorld", "end_world", "spawn"),
    "_store": ("Store",),
    "_world": ("World", "world"),
}
"""Names that are imported at their first use: a worker of a group starts without them."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted(__all__)


__all__ = [
    "ConnectionFailed",
    "Error",
    "Interrupted",
    "NoJob",
    "Refused",
    "SpawnedWorld",
    "Store",
    "StoreTimeout",
    "World",
    "__version__",
    "end_world",
    "launcher",
    "spawn",
    "world",
]

__version__ = "0.1.0"

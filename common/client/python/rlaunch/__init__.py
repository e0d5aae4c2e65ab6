"""rlaunch, for programs of its jobs: who they are, the job's store, and functions that are restarted within their processes.

    import rlaunch.inprocess as inprocess      # for the name that NVRx's module has

    @inprocess.Wrapper()
    def train(call: inprocess.CallWrapper): ...

Nothing here imports a framework, starts a thread or opens a connection before it is asked to. Outside rlaunch a program is alone.
"""

from __future__ import annotations

from ._errors import ConnectionFailed, Error, Interrupted, NoJob, Refused, StoreTimeout
from ._launcher import launcher
from ._spawn import SpawnedWorld, end_world, spawn
from ._store import Store
from ._world import World, world

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

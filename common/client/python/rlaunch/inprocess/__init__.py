"""Restart of a function within its processes, under the names of NVRx 0.4.1's ``inprocess``: a script changes one import."""

from . import (
    abort,
    attribution,
    completion,
    compose,
    exception,
    finalize,
    health_check,
    initialize,
    monitor_thread,
    nested_restarter,
    param_utils,
    rank_assignment,
    rank_filter,
    state,
    store,
    terminate,
    utils,
    wrap,
)
from .compose import Compose
from .state import Fault, FrozenState, Mode, State
from .wrap import CallWrapper, Wrapper

__all__ = [
    "CallWrapper",
    "Compose",
    "Fault",
    "FrozenState",
    "Mode",
    "State",
    "Wrapper",
    "abort",
    "attribution",
    "completion",
    "compose",
    "exception",
    "finalize",
    "health_check",
    "initialize",
    "monitor_thread",
    "nested_restarter",
    "param_utils",
    "rank_assignment",
    "rank_filter",
    "state",
    "store",
    "terminate",
    "utils",
    "wrap",
]

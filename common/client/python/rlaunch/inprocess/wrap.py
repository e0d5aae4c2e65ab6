"""The wrapper: arguments and terms of restarts of a function."""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import sys
from datetime import timedelta
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple, TypeVar

from .. import _said
from .. import _native as native
from ..jax import WHOLE_PROCESSES_ONLY
from . import _call
from .abort import Abort, AbortTorchDistributed
from .completion import Completion
from .compose import Compose
from .finalize import Finalize
from .health_check import HealthCheck
from .initialize import Initialize
from .param_utils import require_type
from .rank_assignment import ActivateAllRanks, RankAssignment, ShiftRanks
from .rank_filter import RankFilter
from .state import FrozenState
from .store import StoreMixin, TCPStore
from .terminate import Terminate

F = TypeVar("F", bound=Callable[..., Any])

_HOOKS = {
    "initialize": Initialize,
    "abort": Abort,
    "finalize": Finalize,
    "health_check": HealthCheck,
    "restart_health_check": HealthCheck,
    "rank_filter": RankFilter,
    "completion": Completion,
    "terminate": Terminate,
}

_UNUSED: Dict[str, Any] = {
    "store_factory": TCPStore,
    "store_kwargs": None,
    "monitor_thread_interval": timedelta(seconds=1),
    "monitor_process_interval": timedelta(seconds=1),
    "heartbeat_interval": timedelta(seconds=1),
    "heartbeat_timeout": timedelta(seconds=30),
    "last_call_wait": timedelta(0),
    "monitor_process_logfile": None,
    "monitor_process_pidfile": None,
}
"""Arguments without effect, and their defaults."""


class Wrapper:
    """Decorator that restarts a function within its processes, on all ranks of a job together.

    A round ends when the function fails on one rank, or when a rank is lost. Then all other ranks leave the function, ``rank_assignment``
    numbers them anew, and the function begins again. When it has returned on all active ranks, the call returns its value. On inactive
    ranks, the call returns ``None``.

    The arguments are those of NVRx. These configure machinery that the launcher replaces, so they have no effect: ``store_factory``,
    ``store_kwargs``, ``monitor_thread_interval``, ``monitor_process_interval``, ``heartbeat_interval``, ``heartbeat_timeout``,
    ``monitor_process_logfile``, ``monitor_process_pidfile`` and ``last_call_wait`` (use ``rlaunch --fault-window``).

    ``restart_health_check`` runs between two rounds, and ``health_check`` at the beginning of each round. By default both are
    ``health_check``.
    """

    def __init__(
        self,
        without_parentheses: None = None,
        /,
        *,
        store_factory: type = TCPStore,
        store_kwargs: Optional[Dict[str, Any]] = None,
        initialize: Optional[Initialize] = None,
        abort: Optional[Abort] = AbortTorchDistributed(),
        finalize: Optional[Finalize] = None,
        health_check: Optional[HealthCheck] = None,
        rank_assignment: RankAssignment = Compose(ActivateAllRanks(), ShiftRanks()),
        rank_filter: Optional[RankFilter] = None,
        monitor_thread_interval: datetime.timedelta = timedelta(seconds=1),
        monitor_process_interval: datetime.timedelta = timedelta(seconds=1),
        heartbeat_interval: datetime.timedelta = timedelta(seconds=1),
        progress_watchdog_interval: datetime.timedelta = timedelta(seconds=1),
        soft_timeout: datetime.timedelta = timedelta(seconds=60),
        hard_timeout: datetime.timedelta = timedelta(seconds=90),
        heartbeat_timeout: datetime.timedelta = timedelta(seconds=30),
        barrier_timeout: datetime.timedelta = timedelta(seconds=120),
        completion_timeout: datetime.timedelta = timedelta(seconds=120),
        last_call_wait: datetime.timedelta = timedelta(0),
        termination_grace_time: datetime.timedelta = timedelta(seconds=5),
        monitor_process_logfile: Optional[str] = None,
        monitor_process_pidfile: Optional[str] = None,
        enabled: bool = True,
        completion: Optional[Completion] = None,
        terminate: Optional[Terminate] = None,
        restart_health_check: Optional[HealthCheck] = None,
    ) -> None:
        if without_parentheses is not None:
            raise TypeError(f"Wrapper takes its arguments by name, got {without_parentheses!r}: as a decorator it is written @Wrapper(), with parentheses")
        given = dict(locals())
        for name in ("self", "without_parentheses"):
            given.pop(name)
        _check(given)
        _say_unused(given)
        vars(self).update(given)
        if restart_health_check is None:
            self.restart_health_check = health_check

    def __call__(self, fn: F) -> F:
        if not self.enabled:
            return fn
        _refuse_what_does_not_run(fn)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with CallWrapper(self) as call_wrapper:
                return call_wrapper(fn, args, kwargs)

        return wrapped  # type: ignore[return-value]

    def _terms(self) -> List[Tuple[str, str]]:
        """The terms in the form that the launcher takes."""
        times = {
            "soft_timeout": self.soft_timeout,
            "hard_timeout": self.hard_timeout,
            "barrier_timeout": self.barrier_timeout,
            "completion_timeout": self.completion_timeout,
            "termination_grace": self.termination_grace_time,
            "progress_interval": self.progress_watchdog_interval,
        }
        return [(name, f"{round(time / timedelta(milliseconds=1))}ms") for name, time in times.items()]


def _refuse_what_does_not_run(fn: Any) -> None:
    """Refuses a function that returns before its work is done, such as a generator. Each round would succeed without work."""
    if not callable(fn):
        raise TypeError(f"Wrapper: what is to be restarted is a function, got {fn!r} of type {type(fn).__name__}")
    name = getattr(fn, "__qualname__", None) or repr(fn)
    for one in (fn, getattr(fn, "__call__", None)):
        if inspect.iscoroutinefunction(one):
            raise TypeError(f"Wrapper: {name} is `async def`, and calling it runs nothing: wrap a function that does `asyncio.run({name}(...))`")
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise TypeError(f"Wrapper: {name} is a generator (it has `yield`), and calling it runs nothing: wrap the function that loops over it")


def _check(given: Dict[str, Any]) -> None:
    for name, hook in _HOOKS.items():
        require_type(name, given[name], (hook, type(None)))
    require_type("rank_assignment", given["rank_assignment"], RankAssignment)
    require_type("enabled", given["enabled"], bool)
    for name, value in given.items():
        if name.endswith(("_timeout", "_interval", "_time", "_wait")):
            require_type(name, value, timedelta)
    if not (isinstance(given["store_factory"], type) and issubclass(given["store_factory"], StoreMixin)):
        raise TypeError(f"store_factory takes a class of rlaunch.inprocess.store, got {given['store_factory']!r}")
    in_order = ["progress_watchdog_interval", "soft_timeout", "hard_timeout", "barrier_timeout"]
    for less, more in zip(in_order, in_order[1:]):
        if given[less] >= given[more]:
            raise ValueError(f"{less} must be less than {more}, got {less}={given[less]} and {more}={given[more]}")
    if given["progress_watchdog_interval"] < timedelta(milliseconds=1):
        raise ValueError(f"progress_watchdog_interval must be 1 ms or more, got {given['progress_watchdog_interval']}")


def _say_unused(given: Dict[str, Any]) -> None:
    named = [name for name, default in _UNUSED.items() if given[name] != default]
    if named:
        _said.once(f"Wrapper: {', '.join(named)}: without effect, the launcher and its agents do this")


class CallWrapper:
    """One call of a wrapped function. A parameter with the annotation ``CallWrapper`` or ``Optional[CallWrapper]`` receives it."""

    def __init__(self, wrapper: Wrapper) -> None:
        _refuse_jax()
        if not native.is_main_interpreter():
            raise RuntimeError(
                "a wrapped function is restarted by signals and threads of the main interpreter, and this is a subinterpreter:"
                " call it in the main one, and start subinterpreters within it"
            )
        self._call = _call.Call(wrapper, self)

    def __enter__(self) -> "CallWrapper":
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Ends this call: the rank takes part in no further round."""
        self._call.close()

    def __call__(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        return self._call.run(fn, args, kwargs)

    @property
    def iteration(self) -> int:
        """The number of the round, from 0."""
        return self._call.state.iteration

    @property
    def state(self) -> FrozenState:
        """The state of this rank in this round: its number, the world size, its mode, the last fault."""
        return self._call.state.freeze()

    def ping(self) -> None:
        """Reports progress. After the first ping of a round, a rank without pings is interrupted after ``soft_timeout``. A planned round
        begins here."""
        self._call.ping()

    def atomic(self) -> ContextManager[None]:
        """Context in which neither the interrupt nor the abort hook runs, for work that must not be left half done."""
        return self._call.atomic()

    def hang_protection(self, on: bool) -> None:
        """Switches the limits for silent ranks off or on, until the next call or the end of the round. Each round begins with them on."""
        self._call.hang_protection(on)

    @contextlib.contextmanager
    def disable_hang_protection(self) -> Iterator[None]:
        """Context in which a silent rank is not interrupted, as in NVRx."""
        self.hang_protection(False)
        try:
            yield
        finally:
            self.hang_protection(True)

    def section(self, name: str, timeout: datetime.timedelta) -> ContextManager[None]:
        """Context in which the rank may be silent for ``timeout``, such as a load or a compilation."""
        return self._call.section(name, timeout)


def _refuse_jax() -> None:
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if getattr(state, "client", None) is not None:
        raise RuntimeError(f"jax.distributed is initialized: {WHOLE_PROCESSES_ONLY}")

"""Notes the sockets of torch's process groups from the moment that the first one can be made, without importing torch.

Groups are made by two functions of ``torch.distributed.distributed_c10d`` that everything there calls by their global names: ``rendezvous``,
which opens the store, and ``_new_process_group_helper``, which connects. These are wrapped, at once or when torch is imported.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.abc
import importlib.util
import os
import sys
from typing import Any, Callable, Iterator, Optional

from . import _gloo, _said
from ._sockets import Groups

_MODULE = "torch.distributed.distributed_c10d"

groups = Groups()

making = contextlib.contextmanager(groups.making)


_hard_timeout: Optional[datetime.timedelta] = None
"""``hard_timeout`` of the last Wrapper."""

_hold: Optional[Callable[[Any], None]] = None
_first: Optional[Callable[[], None]] = None


def watch(
    add: Callable[[int], None], hold: Callable[[Any], None], first: Callable[[], None], hard_timeout: datetime.timedelta
) -> None:
    """Watches groups from now on, or from the import of torch. `add` is called with each connection, so that the library can shut it down.
    `hold` is called once with the addresses in gloo, before the first connection. `first` is called before the first group or store."""
    global _hard_timeout, _hold, _first
    _hard_timeout = hard_timeout
    groups.add, _hold, _first = add, hold, first
    prepare_nccl()
    module = sys.modules.get(_MODULE)
    if module is not None:
        if module.is_initialized():
            _is_first()
        _wrap(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _wrap(module: Any) -> None:
    make = getattr(module, "_new_process_group_helper", None)
    meet = getattr(module, "rendezvous", None)
    if make is None or meet is None or hasattr(make, "_rlaunch"):
        return

    @functools.wraps(make)
    def making_one(*args: Any, **kwargs: Any) -> Any:
        backend = args[3] if len(args) > 3 else kwargs.get("backend")
        compare_timeout(str(backend), kwargs.get("timeout"))
        _is_first()
        _hold_gloo()
        with making():
            return make(*args, **kwargs)

    @functools.wraps(meet)
    def meeting(*args: Any, **kwargs: Any) -> Iterator[Any]:
        _is_first()
        places = meet(*args, **kwargs)
        while True:
            with making(is_store=True):
                place = next(places, None)
            if place is None:
                return
            yield place

    making_one._rlaunch = True  # type: ignore[attr-defined]
    module._new_process_group_helper = making_one
    module.rendezvous = meeting


def compare_timeout(backend: str, timeout: Any) -> None:
    """Warns of an NCCL group whose timeout is below the Wrapper's: ranks that wait for a slow rank would fail first. Groups of gloo are not
    checked, because only the timeout ends some of gloo's waits."""
    if "nccl" not in backend.lower() or not isinstance(timeout, datetime.timedelta):
        return
    if _hard_timeout is not None and timeout < _hard_timeout:
        _said.once(
            f"a group of NCCL with a timeout of {timeout} is below the Wrapper's hard_timeout of {_hard_timeout}: ranks that wait for a"
            " slow one fail before it is found to hang; init_process_group(timeout=...) takes a longer one"
        )


def _is_first() -> None:
    global _first
    first, _first = _first, None
    if first is not None:
        first()


def _hold_gloo() -> None:
    global _hold
    hold, _hold = _hold, None
    found = _gloo.find() if hold is not None else None
    if hold is not None and found is not None:
        hold(found)


def watch_no_more() -> None:
    """Stops calling the functions of `watch` after the end of the session."""
    global _hold, _first
    groups.add, _hold, _first = None, None, None


def prepare_nccl() -> None:
    """Turns off NCCL's watchdog, which by torch's default ends the processes that survive a fault."""
    wanted = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }
    for name, value in wanted.items():
        # rlaunch sets the first variable to 1 in every job, as torchrun does.
        is_launchers = name.endswith("ASYNC_ERROR_HANDLING") and os.environ.get(name) == "1" and "RLAUNCH_JOB_ID" in os.environ
        if name not in os.environ or is_launchers:
            os.environ[name] = value


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that wraps the functions of torch when torch is imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[Any]:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _wrap(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

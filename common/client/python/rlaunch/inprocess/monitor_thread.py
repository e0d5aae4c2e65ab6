"""The exception that interrupts a function, and functions that raise it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any, Iterator, Optional


class RankShouldRestart(BaseException):
    """Exception that interrupts the wrapped function. Let it pass: another round begins. It is a ``BaseException``."""


def async_raise(tid: int, exc_type: Optional[type], event: Any = None) -> None:
    """Makes a thread raise an exception at its next bytecode. ``None`` takes back an exception that the thread has not raised yet."""
    if event is not None:
        event.wait()
    if sys.is_finalizing():
        return
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    what = ctypes.py_object(exc_type) if exc_type is not None else ctypes.c_void_p(None)
    found = raise_in(ctypes.c_ulong(tid), what)
    if found == 0 and exc_type is not None:
        raise RuntimeError(f"there is no thread {tid}")


def delayed_async_raise(tid: int, exc_type: type) -> None:
    """Does the same from another thread, for places that swallow exceptions."""
    threading.Thread(target=async_raise, args=(tid, exc_type), daemon=True).start()


def async_abort_main_thread(msg: Optional[str] = None) -> None:
    """Makes the main thread leave the function."""
    exc_type: type = RankShouldRestart
    if msg is not None:
        exc_type = type("RankShouldRestart", (RankShouldRestart,), {"__init__": lambda self: BaseException.__init__(self, msg)})
    ident = threading.main_thread().ident
    if ident is not None:
        async_raise(ident, exc_type)


@contextlib.contextmanager
def reraise_if_unraisable(exc_type: type) -> Iterator[None]:
    """Context that raises an exception again in the main thread if Python swallows it, as in ``__del__`` and callbacks."""
    earlier = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, exc_type):
            ident = threading.main_thread().ident
            if ident is not None:
                delayed_async_raise(ident, exc_type)
        else:
            earlier(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = earlier

"""What is raised in a function to have it left, and how."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any, Iterator, Optional


class RankShouldRestart(BaseException):
    """Raised in the wrapped function: leave it, another round begins. It is no ``Exception``: do not keep it."""


def async_raise(tid: int, exc_type: Optional[type], event: Any = None) -> None:
    """Has a thread raise an exception when it next runs bytecode; ``None`` takes back one that it has not raised yet."""
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
    """The same, from another thread: for places in which an exception would be swallowed."""
    threading.Thread(target=async_raise, args=(tid, exc_type), daemon=True).start()


def async_abort_main_thread(msg: Optional[str] = None) -> None:
    """Has the main thread leave the function."""
    exc_type: type = RankShouldRestart
    if msg is not None:
        exc_type = type("RankShouldRestart", (RankShouldRestart,), {"__init__": lambda self: BaseException.__init__(self, msg)})
    ident = threading.main_thread().ident
    if ident is not None:
        async_raise(ident, exc_type)


@contextlib.contextmanager
def reraise_if_unraisable(exc_type: type) -> Iterator[None]:
    """What is raised where Python swallows exceptions (``__del__``, callbacks) is raised again in the main thread."""
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

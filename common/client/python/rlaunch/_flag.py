"""Flag that one thread sets and another waits for. An exception may interrupt the waiting thread at any point.

``threading.Event`` is written in Python. An exception from a signal handler, raised between the taking of its lock and the ``with`` that
releases it, leaves the lock taken. Then the thread that sets the event waits for ever.
"""

from __future__ import annotations

import _thread
import collections
import contextlib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Deque


class Flag:
    """Flag that is set once, and never cleared. Each waiting thread has a lock of its own, which is released with its frame."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: Deque["_thread.LockType"] = collections.deque()

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Sets the flag, and wakes all waiting threads."""
        self._is_set = True
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft().release()

    def wait(self, seconds: float = -1.0) -> bool:
        """Waits for up to so many seconds; a negative number is for ever. Returns whether the flag is set."""
        if self._is_set:
            return True
        own = _thread.allocate_lock()
        own.acquire()
        self._waiting.append(own)
        # A `set` in between has released the new lock, or this check sees the flag.
        if not self._is_set:
            own.acquire(True, min(seconds, _thread.TIMEOUT_MAX))
        return self._is_set

"""What one thread waits for and another sets, where the one that waits may be interrupted anywhere.

``threading.Event`` is Python all through: an exception raised from a signal between the taking of its lock and the ``with`` that gives it
back leaves it taken, and whoever sets the event then waits for ever.
"""

from __future__ import annotations

import _thread
import collections
import contextlib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Deque


class Flag:
    """Set once, and for good. No lock is shared: each that waits has one of its own, and lets go of it together with its frame."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: Deque["_thread.LockType"] = collections.deque()

    def is_set(self) -> bool:
        """Whether it is."""
        return self._is_set

    def set(self) -> None:
        """Whoever waits goes on."""
        self._is_set = True
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft().release()

    def wait(self, seconds: float = -1.0) -> bool:
        """Whether it was set in that time; a negative one is for ever."""
        if self._is_set:
            return True
        own = _thread.allocate_lock()
        own.acquire()
        self._waiting.append(own)
        # One that is set in between has seen the new one, or is seen.
        if not self._is_set:
            own.acquire(True, min(seconds, _thread.TIMEOUT_MAX))
        return self._is_set

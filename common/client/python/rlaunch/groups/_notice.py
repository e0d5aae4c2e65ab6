"""Lines on stderr about waits that take long."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable, Optional

START = 10.0
"""Seconds after which a start that waits prints a line."""

CALL = 600.0
"""The same for calls without a time-out: many take minutes."""

_AGAIN = 4
"""Each later line follows after so many times as long."""


class Notice:
    """A line on stderr about a long wait: after some seconds, and after much longer ones again."""

    def __init__(self, awaited: Callable[[], str], first: float, began: Optional[float] = None) -> None:
        self._awaited, self._began, self._next = awaited, time.monotonic() if began is None else began, first

    def look(self) -> None:
        """Prints a line if it is time for one."""
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next *= _AGAIN
            say(f"rlaunch: after {waited:.0f} s: waiting for {self._awaited()}")


def say(line: str) -> None:
    """Prints a line on stderr, if there is one."""
    try:
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # It was closed.


def ranks(numbers: "list[int]") -> str:
    """Ranks in a text."""
    shown = ", ".join(str(number) for number in numbers[:8])
    more = len(numbers) - 8
    return ("rank " if len(numbers) == 1 else "ranks ") + shown + (f" and {more} more" if more > 0 else "")

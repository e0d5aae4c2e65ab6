"""Lines on stderr about long waits."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable, Optional

START = 10.0
"""Seconds after which a start that waits prints a line."""

CALL = 600.0
"""Seconds after which a call without a time-out prints a line: many calls take minutes."""

_AGAIN = 4
"""Factor between the times of two lines."""


class Notice:
    """Line on stderr about a long wait, printed after some seconds and again after much longer times."""

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
        pass  # stderr is closed.


def ranks(numbers: "list[int]") -> str:
    """Ranks as a text."""
    shown = ", ".join(str(number) for number in numbers[:8])
    more = len(numbers) - 8
    return ("rank " if len(numbers) == 1 else "ranks ") + shown + (f" and {more} more" if more > 0 else "")

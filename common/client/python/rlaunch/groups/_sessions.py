"""Processes that workers have started, as engines are: they are in the worker's session, and end with it."""

from __future__ import annotations

import os
import time
from _signal import SIGKILL, SIGTERM

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Collection, List

_STEP = 0.01


def members(sessions: Collection[int]) -> List[int]:
    """The processes of these sessions on this host, without this process and those that have exited."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program is in brackets, and may have blanks and brackets itself.
                state, _, _, session, *_ = file.read().rpartition(b")")[2].split()
        except (OSError, ValueError):
            continue
        if int(session) in sessions and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


def end(sessions: Collection[int], grace: float) -> None:
    """Ends what is left in these sessions: SIGTERM, and SIGKILL after so many seconds."""
    for signo, patience in ((SIGTERM, grace), (SIGKILL, 1.0)):
        left = members(sessions)
        for pid in left:
            try:
                os.kill(pid, signo)
            except (ProcessLookupError, PermissionError):
                pass
        until = time.monotonic() + patience
        while left and time.monotonic() < until:
            time.sleep(_STEP)
            left = members(sessions)
        if not left:
            return

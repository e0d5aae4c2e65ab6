"""Processes that workers have started, such as engines. They are in the session of the worker, and are ended with it."""

from __future__ import annotations

import ctypes
import os
import time
from _signal import SIGKILL, SIGTERM

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import List, Mapping

_STEP = 0.01

_TICKS = os.sysconf("SC_CLK_TCK")

_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
"""Numbers of system calls. A Python that was built with older headers has no functions for them."""


def now() -> float:
    """The time in seconds since the start of the host, as the kernel counts it for processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _is_member(pid: int, sessions: Mapping[int, float]) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program is in brackets, and may have blanks and brackets itself.
            fields = file.read().rpartition(b")")[2].split()
        state, session, began = fields[0], int(fields[3]), int(fields[19]) / _TICKS
    except (OSError, ValueError, IndexError):
        return False
    return state not in (b"Z", b"X") and began <= sessions.get(session, -1.0)


def members(sessions: Mapping[int, float]) -> List[int]:
    """The processes of these sessions on this host, without this process and those that have exited.

    Each session has the time when its worker was last seen. A process that began later is of another session, which has got the number.
    """
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and _is_member(pid, sessions)]


def _call(*words: int) -> int:
    return ctypes.CDLL(None).syscall(*map(ctypes.c_long, words))


def send(sessions: Mapping[int, float], signo: int) -> List[int]:
    """Sends a signal to all processes of these sessions, by descriptors: a number may become that of another process."""
    pids = members(sessions)
    for pid in pids:
        process = _call(_PIDFD_OPEN, pid, 0)
        if process >= 0:
            if _is_member(pid, sessions):
                _call(_PIDFD_SEND_SIGNAL, process, signo, 0, 0)
            os.close(process)
    return pids


def end(sessions: Mapping[int, float], grace: float) -> None:
    """Ends the remaining processes of these sessions: SIGTERM, and SIGKILL after so many seconds."""
    for signo, patience in ((SIGTERM, grace), (SIGKILL, 1.0)):
        left = send(sessions, signo)
        until = time.monotonic() + patience
        while left and time.monotonic() < until:
            time.sleep(_STEP)
            left = members(sessions)
        if not left:
            return

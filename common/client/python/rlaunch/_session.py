"""Session of a process in rounds, on top of the session of the library.

``rl_session_next`` waits in the library until the other ranks are ready. The training thread is usually the main thread, in which Python
runs signal handlers, so it must not wait in C. Another thread waits in the library, and the training thread waits in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _native as native
from ._flag import Flag


_LOOKS_BY_ITSELF = sys.version_info >= (3, 13)
"""Whether a main thread that keeps the interpreter lock runs pending calls that another thread has added without the lock."""

_LONGEST_INTERVAL = 3600.0

_HOOK_AT_THE_END = 5.0
"""Seconds that the end of the call waits for an abort hook that still runs."""


class FaultNews(NamedTuple):
    """Fault that has ended a round."""

    kind: str
    rank: int
    text: str


class News(NamedTuple):
    """Next step of this rank: a round, or the end."""

    kind: int
    round: native.Round
    env: Dict[bytes, Optional[bytes]]
    text: str


class _Question:
    """Request for the next step. It is made once, and may be waited for several times."""

    def __init__(self) -> None:
        self.news: Optional[News] = None
        self.error: Optional[Exception] = None
        self.answered = Flag()


def fault_of(info: native.FaultInfo) -> Optional[FaultNews]:
    """The fault of the library as Python values; ``None`` for no fault."""
    if info.kind == 0:
        return None
    kind = native.FAULTS[info.kind] if info.kind < len(native.FAULTS) else "unknown"
    text = info.text.decode("utf-8", "replace")
    if not text and info.signal >= 0:
        text = f"signal {info.signal}"
    elif not text and info.code >= 0 and kind in ("ended", "overdue"):
        text = f"exit code {info.code}"
    return FaultNews(kind, info.initial_rank, text)


class Session:
    """Session of this process. A process has at most one."""

    _has_ended = False

    def __init__(self, terms: Sequence[Tuple[str, str]], interval: float = 1.0) -> None:
        self._lib = native.loaded()
        self._handle = ctypes.c_void_p()
        self._maker = os.getpid()
        self._has_left = False
        self._monitor_waits = threading.Event()
        self._monitor_waits.set()
        encoded = [(name.encode(), value.encode()) for name, value in terms]
        pairs = (native.Pair * len(encoded))(*(native.Pair(n, len(n), v, len(v)) for n, v in encoded))
        flags = native.FOREIGN_ABORT
        native.check(self._lib.rl_session_register(pairs, len(encoded), flags, ctypes.byref(self._handle)))
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._question = _Question()
        # Only the main thread runs pending calls, so they show no progress of another thread.
        is_seen = threading.current_thread() is threading.main_thread()
        self._interval = min(interval, _LONGEST_INTERVAL) if is_seen and not _LOOKS_BY_ITSELF else None
        threading.Thread(target=self._wait_for_next, name="rlaunch-rounds", daemon=True).start()
        if is_seen:
            add = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p)
            native.check(self._lib.rl_session_auto_progress(self._handle, add))

    def _wait_for_next(self) -> None:
        in_round = False
        while True:
            question = self._asked_next(in_round)
            if question is None:
                return
            if question.answered.is_set():
                continue
            came = native.Next()
            code = self._lib.rl_session_next(self._handle, ctypes.byref(came))
            question.error = native.error_of(code) if code < 0 else None
            in_round = came.kind == native.NEXT_BEGIN
            question.news = News(came.kind, came.round, self._env() if in_round else {}, came.text.decode("utf-8", "replace"))
            question.answered.set()

    def _asked_next(self, in_round: bool) -> Optional[_Question]:
        """Waits for the next request; ``None``: there will be no more.

        In a round, this thread wakes once in each interval, in order to take the interpreter lock from the main thread. Before Python 3.13
        the main thread runs pending calls only when it takes the lock again; without that it would seem to hang while it runs bytecode. The
        library adds a pending call at the beginning of an interval, and checks it at the end. This thread wakes in the middle.
        """
        if in_round and self._interval is not None:
            at = time.monotonic() + self._interval / 2
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._asked.get(timeout=max(at - time.monotonic(), 0.0))
                now = time.monotonic()
                at = at + self._interval if at + self._interval > now else now + self._interval / 2
        return self._asked.get()

    def _env(self) -> Dict[bytes, Optional[bytes]]:
        env = {}
        name, value = ctypes.c_char_p(), ctypes.c_char_p()
        for index in range(self._lib.rl_session_env_count(self._handle)):
            native.check(self._lib.rl_session_env(self._handle, index, ctypes.byref(name), ctypes.byref(value)))
            if name.value is not None:
                env[name.value] = value.value
        return env

    def next(self) -> News:
        """Waits for the next step. The training thread calls this outside the function, and again after an exception has interrupted it."""
        question = self._question
        self._asked.put(question)
        question.answered.wait()
        if question.error is not None:
            raise question.error
        self._question = _Question()
        return question.news

    def _is_active(self, code: int) -> bool:
        """Whether the round continues after a call with this result."""
        if code == native.E_INTERRUPTED:
            return False
        native.check(code)
        return True

    def enter(self) -> bool:
        """Notes that the function begins. False: the round has ended already."""
        return self._is_active(self._lib.rl_session_enter(self._handle))

    def exit(self) -> bool:
        """Notes that the function was left. False: the round has ended. A second call does no harm."""
        if self.is_forked():
            return True
        code = self._lib.rl_session_exit(self._handle)
        if code == native.E_ORDER:
            return not self.interrupted()
        return self._is_active(code)

    def fault(self, text: str) -> bool:
        """Reports that the function has failed. False: the round had ended already."""
        words = text.encode("utf-8", "replace")
        return self._is_active(self._lib.rl_session_fault(self._handle, words, len(words)))

    def returned(self) -> bool:
        """Reports that the function has returned. False: the round has ended, and the return does not count."""
        return self._is_active(self._lib.rl_session_returned(self._handle))

    def ready(self, keys: List[str]) -> None:
        """Reports that this rank is ready for another round."""
        words = [key.encode("utf-8", "replace") for key in keys]
        values = (native.Bytes * len(words))(*(native.Bytes(word, len(word)) for word in words))
        native.check(self._lib.rl_session_ready(self._handle, values, len(words)))

    def leave(self, why: int, text: str) -> None:
        """Reports that this rank takes part in no further round."""
        words = text.encode("utf-8", "replace")
        self._has_left = True
        native.check(self._lib.rl_session_leave(self._handle, why, words, len(words)))

    def close(self) -> None:
        """Ends the session. Threads that wait in the session return first."""
        self._asked.put(None)
        # If an abort hook never returns, the session stays open.
        if self._handle and self._monitor_waits.wait(_HOOK_AT_THE_END):
            self._has_ended = True
            self._lib.rl_session_end(self._handle)

    def __del__(self) -> None:
        # Not earlier: a thread in the library, or on its way there, still holds this object.
        if self._has_ended:
            self._lib.rl_session_close(self._handle)

    def wait_interrupt(self) -> Optional[FaultNews]:
        """Waits in the monitor until a round is to be left; ``None``: there will be no more rounds."""
        info = native.FaultInfo()
        self._monitor_waits.set()
        code = self._lib.rl_session_wait_interrupt(self._handle, ctypes.byref(info))
        if code != native.OK or self._has_left:
            return None
        self._monitor_waits.clear()
        return fault_of(info)

    def monitor_ends(self) -> None:
        """Notes that the monitor has exited."""
        self._monitor_waits.set()

    def aborted(self) -> None:
        """Reports that the abort after ``wait_interrupt`` has finished."""
        self._lib.rl_session_aborted(self._handle)

    def due(self) -> bool:
        """Whether the training thread is to leave the function now."""
        return not self._has_ended and self._lib.rl_session_due(self._handle) == 1

    def interrupted(self) -> bool:
        """Whether the round is to be left."""
        return self._lib.rl_session_interrupted(self._handle) == 1

    def foreign_abort(self, is_foreign: bool) -> None:
        """Sets whether the library waits for `aborted` before it signals the training thread."""
        native.check(self._lib.rl_session_foreign_abort(self._handle, int(is_foreign)))

    def signal_thread(self, tid: int, signo: int) -> None:
        """Sets the thread that the library signals when it is to leave the function; 0: none."""
        native.check(self._lib.rl_session_signal_thread(self._handle, tid, signo, 0))

    def ping(self) -> bool:
        """Reports progress. False: this rank is to be interrupted here."""
        return not self._is_ours() or self._lib.rl_session_ping(self._handle) != native.E_INTERRUPTED

    def section(self, seconds: Optional[float]) -> None:
        """Sets how long this rank may be silent; ``None``: for ever; 0: the usual limits again."""
        if self._is_ours():
            limit = -1 if seconds is None else int(seconds * 1000)
            native.check(self._lib.rl_session_section(self._handle, limit))

    def hooks(self, run: bool) -> None:
        """Notes that hooks begin or end. Meanwhile this rank sends no other sign of progress."""
        if self._is_ours():
            # An error here means a lost agent, which the next call reports.
            self._lib.rl_session_hooks(self._handle, int(run))

    def atomic_begin(self) -> bool:
        """Begins a part in which this thread is not interrupted. False: the interrupt has come already."""
        return not self._is_ours() or self._is_active(self._lib.rl_session_atomic_begin(self._handle))

    def atomic_end(self) -> None:
        """Ends that part: this thread may be interrupted again."""
        if self._is_ours():
            self._lib.rl_session_atomic_end(self._handle)

    def add_socket(self, descriptor: int) -> None:
        """Adds a socket that the library shuts down when the round is to be left."""
        self._lib.rl_session_sockets_add(self._handle, descriptor)

    def hold_gloo(self, gloo: native.Gloo) -> None:
        """Makes waits of gloo end with the round."""
        native.check(self._lib.rl_session_gloo(self._handle, ctypes.byref(gloo)))

    def shut_down_sockets(self) -> int:
        """Shuts all added sockets down now. Returns their number."""
        count = ctypes.c_size_t()
        native.check(self._lib.rl_session_sockets_shutdown(self._handle, ctypes.byref(count)))
        return count.value

    def _is_ours(self) -> bool:
        return not self._has_ended and not self.is_forked()

    def is_forked(self) -> bool:
        """Whether this process is a forked child of the process of the session."""
        return os.getpid() != self._maker

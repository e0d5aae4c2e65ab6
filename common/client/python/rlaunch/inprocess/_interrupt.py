"""Getting the training thread out of the function.

An exception that is raised in a thread from outside (``PyThreadState_SetAsyncExc``) waits until that thread runs bytecode again: not before
``time.sleep`` or ``Queue.get`` have come to their own end. A signal wakes these, and Python lets its handler raise, but in the main thread
only. So the library signals the main thread, if that is the one that trains; the other way is for other threads, and the second try.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from typing import Any, Optional

from .._errors import Error
from .._session import Session
from .monitor_thread import RankShouldRestart, async_raise

FIRST_PAUSE = 1.0
"""Seconds after which somebody who has not left is told again; doubled each time: clean-up takes its time, and must not be broken off."""

_SIGNALS = range(signal.SIGRTMIN + 8, signal.SIGRTMAX)

_signo: Optional[int] = None
_earlier: Any = None
_current: Optional["Interrupter"] = None


def _on_signal(signo: int, frame: Any) -> None:
    current = _current
    if current is not None and current.session.due():
        raise RankShouldRestart(current.why)
    if current is None and callable(_earlier):
        _earlier(signo, frame)


def _install() -> int:
    """Once in a process, and for good: a signal that comes late would end it otherwise."""
    global _signo, _earlier
    if _signo is None:
        free = [signo for signo in _SIGNALS if signal.getsignal(signo) is signal.SIG_DFL]
        signo = free[0] if free else _SIGNALS[0]
        _earlier = signal.signal(signo, _on_signal)
        _signo = signo
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_signo})
    return _signo


def refuse_a_second() -> None:
    """A process has one session."""
    if _current is not None:
        raise RuntimeError("a wrapped function runs in this process already: wrap the outer one only")


class Interrupter:
    """For one call, made in the thread that trains."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.why = ""
        self._ident = threading.get_ident()
        self._is_main = threading.current_thread() is threading.main_thread()
        self._lock = threading.Lock()
        self._inside = False
        self._raised = False
        self.left = threading.Event()
        """Whether the function was left in this round; each round has one of its own."""
        self.left.set()

    def __enter__(self) -> "Interrupter":
        global _current
        _current = self
        if self._is_main:
            self.session.signal_thread(threading.get_native_id(), _install())
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_: Any) -> None:
        global _current
        if self._is_main:
            with contextlib.suppress(Error):
                self.session.signal_thread(0, 0)
        _current = None
        sys.unraisablehook = self._hook

    def is_outside(self) -> bool:
        """Whether the caller is the training thread, and in no function."""
        return threading.get_ident() == self._ident and not self._inside

    def is_training(self) -> bool:
        """Whether the caller is in the function, in the thread that is interrupted."""
        return threading.get_ident() == self._ident and self._inside

    def enter(self) -> bool:
        """The function begins; false: the round is over already. Followed by `exit` in any case; it may be left from here on."""
        self.left = threading.Event()
        self._inside = True
        return self.session.enter()

    def exit(self) -> bool:
        """The function was left; false: the round is over. Nothing is raised from here on."""
        while True:
            try:
                goes_on = self.session.exit()
                with self._lock:
                    self._inside = False
                    if self._raised:
                        async_raise(self._ident, None)
                        self._raised = False
                self.left.set()
                return goes_on
            except RankShouldRestart:
                continue

    def chase(self, left: threading.Event) -> None:
        """Has the training thread leave, and waits until it has. For another thread, once the round was aborted."""
        pause = FIRST_PAUSE
        # The library has signalled the main thread, and does so again after a second.
        if self._is_main and left.wait(pause * 1.5):
            return
        # What is atomic was over before the round was aborted.
        while self.session.interrupted():
            with self._lock:
                if not self._inside:
                    return
                self._raised = True
                async_raise(self._ident, RankShouldRestart)
            if left.wait(pause):
                return
            pause *= 2

    def _unraisable(self, unraisable: Any) -> None:
        """An exception in ``__del__`` or a callback of the collector goes nowhere: it is raised again, a moment later."""
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, RankShouldRestart):
            threading.Thread(target=self._again, daemon=True).start()
        else:
            self._hook(unraisable)

    def _again(self) -> None:
        # Raised while the hook still runs, it would be lost once more.
        time.sleep(0.001)
        if not self.session.due():
            return
        if self._is_main and _signo is not None:
            signal.pthread_kill(self._ident, _signo)
        else:
            with self._lock:
                if self._inside:
                    self._raised = True
                    async_raise(self._ident, RankShouldRestart)

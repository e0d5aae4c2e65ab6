"""Getting the training thread out of the function.

An exception that is raised in a thread from outside (``PyThreadState_SetAsyncExc``) waits until that thread runs bytecode again: not before
``time.sleep`` or ``Queue.get`` have come to their own end. A signal wakes these, and Python lets its handler raise, but in the main thread
only. So the library signals the main thread, if that is the one that trains; the other way is for other threads, and the second try.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from typing import Any, Iterator, Optional

from .._errors import Error
from .._flag import Flag
from .._session import Session
from .monitor_thread import RankShouldRestart, async_raise

FIRST_PAUSE = 1.0
"""Seconds after which somebody who has not left is told again; doubled each time: clean-up takes its time, and must not be broken off."""

LOOK = 0.01
"""Seconds between two looks at somebody who is in the middle of what nobody else would do, and is told when that is over."""

LONGEST_DELETION = 5.0
"""Seconds of a round for which a ``__del__`` is waited for: torch gives a data loader's worker as long, and one may wait for a rank that is gone."""

HOLDS = 5
"""How often in a round somebody is let out of a context manager's beginning or end first: a millisecond each, if that waits itself."""

_HALF_DONE = frozenset(("__enter__", "__exit__", "acquire", "release", "_acquireLock", "_releaseLock", "_acquire_restore", "_release_save"))
"""Functions of Python, such as those of ``threading.Condition``, in which a lock is taken and no ``with`` gives it back."""

_SIGNALS = range(signal.SIGRTMIN + 8, signal.SIGRTMAX)

_call_module = __name__.rpartition(".")[0] + "._call"
"""What stands between the caller and the function."""

_signo: Optional[int] = None
_earlier: Any = None
_current: Optional["Interrupter"] = None


def _on_signal(signo: int, frame: Any) -> None:
    current = _current
    if current is not None and current.session.due():
        current.signalled(frame)
    elif current is None and callable(_earlier):
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


def is_running() -> bool:
    """Whether a wrapped function runs in this process."""
    return _current is not None


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
        self._raisers = threading.Lock()
        """Of the threads that raise, never taken by the one that is raised in: from Python 3.14 on that may come between a lock and its `with`."""
        self._raising = False
        self._inside = False
        self._raised = False
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        self._handled: Optional[BaseException] = None
        self._aborts = False
        self._held = 0
        self._deletes_until: Optional[float] = None
        self._looks: Optional[Flag] = None
        """`left` of the round in which somebody looks for the end of an import or a `__del__`: one is enough."""
        self.left = Flag()
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
        try:
            # What broke off `exit`, such as a program's own handler of a signal, may have left something armed.
            self._disarm()
            if self._is_main:
                with contextlib.suppress(Error):
                    self.session.signal_thread(0, 0)
        finally:
            # Whatever breaks this off in turn, such as a second Ctrl-C: the next call must not find this one.
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
        self.left = Flag()
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        self._handled, self._aborts, self._held, self.why = None, False, 0, ""
        self._deletes_until = None
        self._inside = True
        return self.session.enter()

    def exit(self) -> bool:
        """The function was left; false: the round is over. Nothing is raised from here on."""
        while True:
            try:
                goes_on = self.session.exit()
                self._disarm()
                return goes_on
            except RankShouldRestart:
                continue

    def _disarm(self) -> None:
        """Nobody raises anything in the training thread any more."""
        while not self.left.is_set():
            try:
                self._inside = False
                while self._raising:
                    time.sleep(0.0001)
                if self._raised:
                    async_raise(self._ident, None)
                    self._raised = False
                self.left.set()
            except RankShouldRestart:
                continue

    def signalled(self, frame: Any) -> None:
        """The library wants the training thread out of the function, which runs this."""
        if _is_within(frame, Interrupter._unraisable.__code__):
            # It would be lost once more.
            self._raise_again()
        elif self._is_amid(frame):
            # Told when that is over, and not when the library does it again.
            if self._looks is not self.left:
                self._looks = self.left
                try:
                    _thread.start_new_thread(self._again, (self.left,))
                except RuntimeError:
                    # No thread is to be had, and the import has nothing to do with that. The library signals again.
                    self._looks = None
        elif self._is_held(frame):
            _thread.start_new_thread(self._again, (self.left,))
        elif self._is_time() and not self._leaves():
            raise RankShouldRestart(self.why or "the round is over")

    def _is_amid(self, frame: Any) -> bool:
        """Whether it is in the middle of what nobody would do again: what is left of half a module cannot be imported in any later round, and
        what a ``__del__`` has not ended, such as the workers of a data loader, stays."""
        if _is_importing(frame):
            return True
        if not _is_deleting(frame):
            return False
        now = time.monotonic()
        if self._deletes_until is None:
            self._deletes_until = now + LONGEST_DELETION
        return now < self._deletes_until

    def _is_held(self, frame: Any, late: float = 0.0) -> bool:
        """Whether a lock may be taken just now that nobody would give back: the other threads of the function would wait for ever."""
        if frame is None or frame.f_code.co_name not in _HALF_DONE or self._held == HOLDS or self._is_early(late):
            return False
        self._held += 1
        return True

    def before_abort(self) -> None:
        """What the function waits for is made to fail now. For the other thread."""
        self._handled, self._aborts = _handled_in(self._ident), True

    def _leaves(self) -> bool:
        """Whether the training thread cleans up behind an exception that the abort has made. It is told again if it stays."""
        handled = _handled_in(self._ident)
        # The first time only: for that, the pause was doubled once.
        return self._aborts and handled is not None and handled is not self._handled and self._pause == FIRST_PAUSE * 2

    def told(self) -> None:
        """The training thread is told now, in whatever way: no other way tells it as well while it cleans up."""
        # A timer of somebody else's may be a little early.
        self._not_before = time.monotonic() + self._pause * 0.9
        self._pause *= 2

    def _is_early(self, late: float) -> bool:
        return time.monotonic() < self._not_before + late

    def _is_time(self, late: float = 0.0) -> bool:
        if self._is_early(late):
            return False
        self.told()
        return True

    def chase(self, left: Flag) -> None:
        """Has the training thread leave, and waits until it has. For another thread, once the round was aborted."""
        # The library has signalled the main thread, and does so again after a second.
        late = FIRST_PAUSE / 2 if self._is_main else 0.0
        if self._is_main and left.wait(FIRST_PAUSE + late):
            return
        # What is atomic was over before the round was aborted.
        while self.session.interrupted():
            if left.is_set() or not self._inside:
                return
            frame = sys._current_frames().get(self._ident)
            if self._looks is left or self._is_amid(frame) or self._is_held(frame, late):
                pass
            elif self._is_time(late) and not self._leaves():
                self._raise(left)
            if left.wait(max(self._not_before + late - time.monotonic(), LOOK)):
                return

    def _raise(self, left: Flag, tells: bool = False) -> None:
        """Raises it, if the function of this round was not left. For another thread: either it sees that, or it is seen and waited for."""
        with self._raisers:
            self._raising = True
            try:
                if self._inside and not left.is_set():
                    if tells:
                        # Of this round: no other one begins before this is through.
                        self.told()
                    self._raised = True
                    async_raise(self._ident, RankShouldRestart)
            finally:
                self._raising = False

    def _unraisable(self, unraisable: Any) -> None:
        """An exception in ``__del__`` or a callback of the collector goes nowhere: it is raised again, a moment later."""
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, RankShouldRestart):
            self._raise_again()
        else:
            self._hook(unraisable)

    def _raise_again(self) -> None:
        # The one that went nowhere does not count.
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        # No `threading.Thread`: what was interrupted may hold the lock that the start of one takes.
        _thread.start_new_thread(self._again, (self.left,))

    def _again(self, left: Flag) -> None:
        # Of the round in which this was begun: whoever has left it may be in the next one by now.
        # Raised while the hook still runs, it would be lost once more; nothing tells when the thread is out of it. Too early is no harm: this
        # comes again then.
        time.sleep(0.001)
        while not left.is_set() and self._is_amid(sys._current_frames().get(self._ident)):
            time.sleep(LOOK)
        if self._looks is left:
            # Before it is told: that may meet the next import.
            self._looks = None
        if left.is_set() or not self.session.due():
            return
        if self._is_main and _signo is not None:
            signal.pthread_kill(self._ident, _signo)
        else:
            self._raise(left, tells=True)


def _handled_in(ident: int) -> Optional[BaseException]:
    """The exception in whose handler a thread is, if it is in one. Of another thread Python 3.9 does not tell."""
    if ident == threading.get_ident():
        return sys.exc_info()[1]
    if sys.version_info < (3, 10):
        return None
    found = sys._current_exceptions().get(ident)
    # The three of sys.exc_info() until Python 3.12.
    return found[1] if isinstance(found, tuple) else found


def _is_importing(frame: Any) -> bool:
    """Whether the function is in an import."""
    return any(one.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib") for one in _of_function(frame))


def _is_deleting(frame: Any) -> bool:
    """Whether the function is in a ``__del__``."""
    return any(one.f_code.co_name == "__del__" for one in _of_function(frame))


def _of_function(frame: Any) -> Iterator[Any]:
    """The frames of the function, and not of what has called it."""
    while frame is not None and frame.f_globals.get("__name__") != _call_module:
        yield frame
        frame = frame.f_back


def _is_within(frame: Any, code: Any) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False

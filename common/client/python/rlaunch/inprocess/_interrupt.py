"""Interrupt of the training thread, so that it leaves the function.

An exception that one thread raises in another one (``PyThreadState_SetAsyncExc``) waits until that thread runs bytecode again. It waits for
the end of a ``time.sleep`` or ``Queue.get``. A signal wakes these, and its handler may raise, but only in the main thread. If the main
thread trains, the library signals it. The exception from another thread is for other threads, and for the second attempt.
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
"""Seconds until the second interrupt of a thread that has not left. Each further pause is twice as long, because clean-up takes time."""

LOOK = 0.01
"""Seconds between two checks of a thread in an import or a ``__del__``, which is interrupted only after that."""

LONGEST_DELETION = 5.0
"""Seconds of a round for which the interrupt waits for a ``__del__``. torch waits as long for the workers of a data loader."""

HOLDS = 5
"""Limit for delays of an interrupt in a round while a context manager is entered or left. Each delay is at least 1 ms."""

_HALF_DONE = frozenset(("__enter__", "__exit__", "acquire", "release", "_acquireLock", "_releaseLock", "_acquire_restore", "_release_save"))
"""Functions of Python, such as those of ``threading.Condition``, that hold a lock which no ``with`` would release."""

_SIGNALS = range(signal.SIGRTMIN + 8, signal.SIGRTMAX)

_call_module = __name__.rpartition(".")[0] + "._call"
"""Module whose frames separate the caller from the function."""

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
    """Installs the signal handler once, and for ever: without it, a late signal would end the process."""
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
    """Refuses a second call in this process, which has one session."""
    if _current is not None:
        raise RuntimeError("a wrapped function runs in this process already: wrap the outer one only")


class Interrupter:
    """Interrupter of one call, made in the training thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.why = ""
        self._ident = threading.get_ident()
        self._is_main = threading.current_thread() is threading.main_thread()
        self._raisers = threading.Lock()
        """Lock of the threads that raise. The training thread never takes it: an exception might come between the lock and its `with`."""
        self._raising = False
        self._inside = False
        self._raised = False
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        self._handled: Optional[BaseException] = None
        self._aborts = False
        self._held = 0
        self._deletes_until: Optional[float] = None
        self._looks: Optional[Flag] = None
        """`left` of the round in which a thread waits for the end of an import or a `__del__`: one such thread is enough."""
        self.left = Flag()
        """Flag that is set when the function was left; each round has its own."""
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
            # A signal handler of the program may have interrupted `exit` before the end of its `_disarm`.
            self._disarm()
            if self._is_main:
                with contextlib.suppress(Error):
                    self.session.signal_thread(0, 0)
        finally:
            # Also after an interrupt such as a second Ctrl-C: the next call must not find this one.
            _current = None
            sys.unraisablehook = self._hook

    def is_outside(self) -> bool:
        """Whether the caller is the training thread outside the function."""
        return threading.get_ident() == self._ident and not self._inside

    def is_training(self) -> bool:
        """Whether the caller is the training thread in the function."""
        return threading.get_ident() == self._ident and self._inside

    def enter(self) -> bool:
        """Notes that the function begins. False: the round has ended already. `exit` always follows; until then interrupts may come."""
        self.left = Flag()
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        self._handled, self._aborts, self._held, self.why = None, False, 0, ""
        self._deletes_until = None
        self._inside = True
        return self.session.enter()

    def exit(self) -> bool:
        """Notes that the function was left. False: the round has ended. After this call no interrupt is raised."""
        while True:
            try:
                is_active = self.session.exit()
                self._disarm()
                return is_active
            except RankShouldRestart:
                continue

    def _disarm(self) -> None:
        """Ends interrupts: after this call no thread raises an exception in the training thread."""
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
        """Handles the signal of the library in the training thread, which is to leave the function."""
        if _is_within(frame, Interrupter._unraisable.__code__):
            # The exception would be lost once more.
            self._raise_again()
        elif self._is_amid(frame):
            # A thread interrupts right after that, before the library signals again.
            if self._looks is not self.left:
                self._looks = self.left
                try:
                    _thread.start_new_thread(self._again, (self.left,))
                except RuntimeError:
                    # No thread can be started, which must not fail the import. The library signals again.
                    self._looks = None
        elif self._is_held(frame):
            _thread.start_new_thread(self._again, (self.left,))
        elif self._is_time() and not self._leaves():
            raise RankShouldRestart(self.why or "the round is over")

    def _is_amid(self, frame: Any) -> bool:
        """Whether the thread is in an import or a ``__del__``, which would not be repeated. Half a module cannot be imported in a later
        round, and an interrupted ``__del__`` leaves things such as the workers of a data loader."""
        if _is_importing(frame):
            return True
        if not _is_deleting(frame):
            return False
        now = time.monotonic()
        if self._deletes_until is None:
            self._deletes_until = now + LONGEST_DELETION
        return now < self._deletes_until

    def _is_held(self, frame: Any, late: float = 0.0) -> bool:
        """Whether the thread may hold a lock that would never be released, so that other threads would wait for ever."""
        if frame is None or frame.f_code.co_name not in _HALF_DONE or self._held == HOLDS or self._is_early(late):
            return False
        self._held += 1
        return True

    def before_abort(self) -> None:
        """Notes in the monitor that the abort hook is about to make waits of the function fail."""
        self._handled, self._aborts = _handled_in(self._ident), True

    def _leaves(self) -> bool:
        """Whether the training thread handles an exception that came from the abort. A thread that does not leave is interrupted later."""
        handled = _handled_in(self._ident)
        # Only at the first attempt, after which the pause was doubled once.
        return self._aborts and handled is not None and handled is not self._handled and self._pause == FIRST_PAUSE * 2

    def mark_interrupted(self) -> None:
        """Notes an interrupt of the training thread, so that no second one comes while it cleans up."""
        # The timer of the library may fire a little early.
        self._not_before = time.monotonic() + self._pause * 0.9
        self._pause *= 2

    def _is_early(self, late: float) -> bool:
        return time.monotonic() < self._not_before + late

    def _is_time(self, late: float = 0.0) -> bool:
        if self._is_early(late):
            return False
        self.mark_interrupted()
        return True

    def chase(self, left: Flag) -> None:
        """Makes the training thread leave, and waits until it has left. The monitor calls this after the abort."""
        # The library has signalled the main thread, and signals it again after a second.
        late = FIRST_PAUSE / 2 if self._is_main else 0.0
        if self._is_main and left.wait(FIRST_PAUSE + late):
            return
        # Atomic parts have ended before the abort.
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

    def _raise(self, left: Flag, is_marked: bool = False) -> None:
        """Raises the interrupt from another thread, unless the function was left. `_disarm` waits for a raise that has begun."""
        with self._raisers:
            self._raising = True
            try:
                if self._inside and not left.is_set():
                    if is_marked:
                        # The mark counts for this round: the next one begins after this call at the earliest.
                        self.mark_interrupted()
                    self._raised = True
                    async_raise(self._ident, RankShouldRestart)
            finally:
                self._raising = False

    def _unraisable(self, unraisable: Any) -> None:
        """Handles an exception that Python drops, as in ``__del__`` or a callback of the collector. An interrupt is raised again."""
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, RankShouldRestart):
            self._raise_again()
        else:
            self._hook(unraisable)

    def _raise_again(self) -> None:
        # The dropped exception does not count.
        self._not_before, self._pause = 0.0, FIRST_PAUSE
        # Not `threading.Thread`: the interrupted code may hold the lock that its start takes.
        _thread.start_new_thread(self._again, (self.left,))

    def _again(self, left: Flag) -> None:
        # `left` is a parameter, because the training thread may be in the next round by now.
        # An exception during the hook would be lost once more, and the end of the hook cannot be seen. If this raise comes too early, the
        # hook starts another one.
        time.sleep(0.001)
        while not left.is_set() and self._is_amid(sys._current_frames().get(self._ident)):
            time.sleep(LOOK)
        if self._looks is left:
            # Cleared before the interrupt, which may come in the next import.
            self._looks = None
        if left.is_set() or not self.session.due():
            return
        if self._is_main and _signo is not None:
            signal.pthread_kill(self._ident, _signo)
        else:
            self._raise(left, is_marked=True)


def _handled_in(ident: int) -> Optional[BaseException]:
    """The exception that a thread handles, or ``None``. Python 3.9 does not report that of another thread."""
    if ident == threading.get_ident():
        return sys.exc_info()[1]
    if sys.version_info < (3, 10):
        return None
    found = sys._current_exceptions().get(ident)
    # Before Python 3.12 the value is a tuple like that of sys.exc_info().
    return found[1] if isinstance(found, tuple) else found


def _is_importing(frame: Any) -> bool:
    """Whether the function is in an import."""
    return any(one.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib") for one in _of_function(frame))


def _is_deleting(frame: Any) -> bool:
    """Whether the function is in a ``__del__``."""
    return any(one.f_code.co_name == "__del__" for one in _of_function(frame))


def _of_function(frame: Any) -> Iterator[Any]:
    """The frames of the function, without the frames of its callers."""
    while frame is not None and frame.f_globals.get("__name__") != _call_module:
        yield frame
        frame = frame.f_back


def _is_within(frame: Any, code: Any) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False

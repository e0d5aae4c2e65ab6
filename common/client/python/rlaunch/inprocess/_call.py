"""One call of a wrapped function, through all of its rounds.

The training thread makes the call. It requests the next step from the session, runs hooks and function, and reports the result. Another
thread, the monitor, waits for the end of a round, runs the abort hook, and makes the training thread leave.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import logging
import os
import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Set, Tuple, TypeVar

from .. import _native as native
from .. import _torch_hooks, _world
from .._errors import Error
from .._flag import Flag
from .._session import FaultNews, News, Session, fault_of
from . import _policy, exception
from ._interrupt import Interrupter, refuse_a_second
from .abort import AbortTorchDistributed
from .compose import Compose
from .monitor_thread import RankShouldRestart
from .utils import described
from .param_utils import require_type, substitute_param_value
from .rank_assignment import RankDiscarded
from .state import Fault, Mode, State

if TYPE_CHECKING:
    from .wrap import CallWrapper, Wrapper

log = logging.getLogger("rlaunch.inprocess")

T = TypeVar("T")

VICTIM_WAIT = 0.05
"""Seconds for which a failed connection is not reported: its peer has failed first, and the report of that is on its way."""

COLLECTIONS = 20
"""Limit of runs of the collector between two rounds."""

OVER = "over"
"""Kind of a fault after which no round follows."""

_OTHER_END = ("connection closed by peer", "connection reset by peer", "broken pipe")


class Call:
    """Call of a wrapped function, from its first round to its last."""

    def __init__(self, wrapper: "Wrapper", face: "CallWrapper") -> None:
        self.state = _first_state()
        self._wrapper = wrapper
        self._face = face
        self._words = _policy.words(wrapper.rank_assignment, wrapper.rank_filter, self.state.initial_world_size)
        self._session: Optional[Session] = None
        self._interrupter: Optional[Interrupter] = None
        self._round = _Round()
        self._begun: queue.SimpleQueue = queue.SimpleQueue()
        self._over: Optional[FaultNews] = None
        self._turn = threading.Lock()
        self._silences = _Silences(self)
        self._monitor_ident: Optional[int] = None

    def close(self) -> None:
        """Ends the session and the watch on torch."""
        session, self._session = self._session, None
        if session is not None:
            _torch_hooks.watch_no_more()
            session.close()

    def run(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Runs all rounds. Returns the value of the function from the last round."""
        refuse_a_second()
        self._session = session = Session(self._terms(), self._wrapper.progress_watchdog_interval.total_seconds())
        parts = list(_parts(self._wrapper.abort))
        if all(type(part) is AbortTorchDistributed for part in parts):
            # Without a group there is nothing to abort, so the library need not wait for `aborted`.
            session.foreign_abort(False)
        if any(isinstance(part, AbortTorchDistributed) for part in parts):
            _torch_hooks.watch(session.add_socket, session.hold_gloo, self._has_groups, self._wrapper.hard_timeout)
        frozen = _Frozen()
        try:
            with Interrupter(session) as self._interrupter:
                threading.Thread(target=self._monitor, name="rlaunch-monitor", daemon=True).start()
                value = self._rounds(fn, args, kwargs)
        except BaseException as error:
            self._leave(error)
            raise
        finally:
            frozen.end()
        try:
            self._hook_at_the_end(self._wrapper.completion)
        except Exception:
            log.exception("initial rank %s: the completion hook has failed", self.state.initial_rank)
        return value

    def _hook_at_the_end(self, hook: Optional[Callable[[Any], Any]]) -> None:
        """Runs a hook after the last round. The agent watches it for a hang."""
        if hook is not None:
            if self._session is not None:
                self._session.hooks(True)
            _hook(hook, self.state)

    def _has_groups(self) -> None:
        if self._session is not None:
            self._session.foreign_abort(True)

    def _terms(self) -> List[Tuple[str, str]]:
        terms = [("policy", self._words.text), *self._wrapper._terms()]
        if self._words.keys:
            terms.append(("keys", str(len(self._words.keys))))
            # The first round needs the values as well.
            terms += [(f"key.{n}", value) for n, value in enumerate(self._words.values(self.state))]
        return terms

    def _rounds(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        session = self._session
        value = None
        while True:
            news = _whole(session.next)
            if news.kind == native.NEXT_BEGIN:
                self._begin(news)
                end = self._once(fn, args, kwargs)
                value = end.value
                if end.why is not None:
                    value = None
                    self._out(end.why)
                    del end
                    _collect()
            elif news.kind == native.NEXT_INTERRUPT:
                self._out(RankShouldRestart(news.text))
                _collect()
            elif news.kind == native.NEXT_FINISH:
                return value
            else:
                raise self._dismissed(news)

    def _dismissed(self, news: News) -> Exception:
        if news.kind == native.NEXT_DISCARDED:
            return RankDiscarded(news.text or "the policy, or a limit of the job, discarded this rank: see the launcher's message about the restart")
        if news.kind == native.NEXT_REFUSED:
            return exception.RestartRefused(news.text)
        return exception.RestartGivenUp(news.text)

    def _begin(self, news: News) -> None:
        """Sets the state and the environment of a round."""
        came = news.round
        active_rank = native.optional(came.active_rank)
        fault = came.fault
        self.state = State(
            rank=came.rank,
            world_size=came.world_size,
            active_rank=active_rank,
            active_world_size=came.active_world_size,
            initial_rank=came.initial_rank,
            initial_world_size=came.initial_world_size,
            iteration=came.number,
            mode=Mode.ACTIVE if came.mode == native.MODE_ACTIVE else Mode.INACTIVE,
            fault=_as_fault(fault),
        )
        # Set by Python in the training thread, because os.environ does not show what C sets.
        for name, value in news.env.items():
            if value is None:
                os.environb.pop(name, None)
            else:
                os.environb[name] = value
        _world.set_alone(news.env)
        _world.enter_round(came.number)
        _world.initial_size = came.initial_world_size
        self._silences = _Silences(self)
        self._round = _Round()
        self._round.state = self.state.freeze()
        with self._turn:
            if self._over is None:
                self._begun.put(self._round)
            else:
                self._round.end(self._over)
                self._round.aborted.set()

    def _once(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> "_End":
        """Runs the function in one round."""
        session, interrupter, end = self._session, self._interrupter, _End()
        is_active, has_begun, around = None, False, sys.exc_info()[1]
        while is_active is None:
            try:
                if not has_begun:
                    has_begun = True
                    if interrupter.enter():
                        self._inside(fn, args, kwargs, end)
                is_active = interrupter.exit()
            except Error:
                raise
            except (Exception, RankShouldRestart) as why:
                # The interrupt came between two lines of this loop. The next one comes after a second at the earliest. Or a signal
                # handler of the program has raised here.
                raised = None if why.__context__ is around else why.__context__
                restarts = isinstance(raised, (Exception, RankShouldRestart)) and not isinstance(raised, exception.HealthCheckError)
                if raised is not None and not restarts:
                    # The interrupt came before `_inside` noted an exception of the function that is no fault of a round.
                    end.fatal = end.fatal or raised
                end.why = end.why or why
        failed = end.fatal or end.unhealthy or end.why
        if failed is not None and session.is_forked():
            # A forked child is in no round: its exceptions are its own.
            raise failed
        if end.fatal is not None:
            raise end.fatal
        if end.unhealthy is not None:
            if is_active:
                raise end.unhealthy
            # The check may have failed because the round ended. Another check runs before the next round.
            end.why = end.why or end.unhealthy
        if not is_active:
            end.why = end.why or RankShouldRestart("the round was over when the function returned")
        elif end.why is not None:
            self._own_fault(end.why, end.part)
        elif self.state.mode is Mode.ACTIVE and not session.returned():
            end.why = RankShouldRestart("the round was over when the function had returned")
        return end

    def _inside(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], end: "_End") -> None:
        try:
            has_hooks = self._wrapper.initialize is not None or self._wrapper.health_check is not None
            if has_hooks:
                self._session.hooks(True)
            end.part = "the initialize hook"
            _hook(self._wrapper.initialize, self.state)
            end.part = "the function"
            try:
                self._check_health(self._wrapper.health_check)
            except exception.HealthCheckError as error:
                end.unhealthy = error
                return
            if has_hooks:
                self._session.hooks(False)
            if self.state.mode is Mode.ACTIVE:
                args, kwargs = substitute_param_value(fn, args, kwargs, {type(self._face): self._face})
                end.value = fn(*args, **kwargs)
        except exception.HealthCheckError as error:
            end.fatal = error
        except (Exception, RankShouldRestart) as error:
            end.why = error
        except BaseException as error:
            end.fatal = error

    def _check_health(self, hook: Any) -> None:
        try:
            _hook(hook, self.state)
        except Exception as error:
            raise exception.HealthCheckError(described(error)) from error

    def _own_fault(self, error: BaseException, part: str) -> None:
        """Reports a fault of the function, or of a hook before it, unless another rank has failed first."""
        text = described(error)
        if any(words in text.lower() for words in _OTHER_END) and _whole(lambda: self._round.over.wait(VICTIM_WAIT)):
            return
        if _whole(lambda: self._session.fault(text)):
            self.state.fn_exception = error if isinstance(error, Exception) else None
            state = self.state
            # The fault counts even if a signal handler interrupts this log line.
            with contextlib.suppress(Exception):
                log.error("round %d, initial rank %d: %s has failed", state.iteration, state.initial_rank, part, exc_info=error)

    def _out(self, why: BaseException) -> None:
        """Cleans up after an interrupted round, and reports that this rank is ready for another one."""
        state, wrapper = self.state, self._wrapper
        _whole(self._round.aborted.wait)
        state.fault = self._round.fault
        if state.fault is not None and state.fault.kind == OVER:
            # The next step has the reason of the end.
            return
        for part in _parts(wrapper.abort):
            forget = getattr(part, "forget", None)
            if forget is not None:
                forget()
        try:
            _hook(wrapper.finalize, state)
            self._check_health(self._wrapper.restart_health_check)
        except Exception as error:
            raise error from why
        self._session.ready(self._words.values(state))
        state.fn_exception = None
        _clear(why)

    def _monitor(self) -> None:
        """Loop of the monitor thread, once for each round that ends early."""
        self._monitor_ident = threading.get_ident()
        session = self._session
        try:
            while True:
                fault = session.wait_interrupt()
                if fault is None:
                    break
                with self._turn:
                    if fault.kind == OVER and self._begun.empty():
                        # There is no round to be left, or it has not begun here yet.
                        self._over = fault
                if self._over is not None:
                    session.aborted()
                    continue
                self._end_round(self._begun.get(), fault)
        finally:
            session.monitor_ends()
            # The training thread must not wait for a monitor that has exited.
            self._round.over.set()
            self._round.aborted.set()

    def _end_round(self, current: "_Round", fault: FaultNews) -> None:
        session, interrupter = self._session, self._interrupter
        left = interrupter.left
        interrupter.why = _sentence(fault)
        current.end(fault)
        interrupter.before_abort()
        try:
            if self._wrapper.abort is not None:
                self._wrapper.abort(current.state)
        except BaseException:
            # All exceptions are caught: this thread belongs to rlaunch, and the round has to be left.
            log.exception("initial rank %s: the abort hook has failed", self.state.initial_rank)
        session.aborted()
        current.aborted.set()
        interrupter.chase(left)

    def _leave(self, error: BaseException) -> None:
        """Leaves: notifies the launcher that this rank takes part in no further round, then runs the terminate hook."""
        if self._session is not None and self._session.is_forked():
            return
        if isinstance(error, exception.RestartAbort):
            why = native.LEAVE_ABORT
        elif isinstance(error, Exception):
            why = native.LEAVE_UNHEALTHY
        else:
            why = native.LEAVE_BASE_EXCEPTION
        dismissed = (RankDiscarded, exception.RestartRefused, exception.RestartGivenUp)
        if not isinstance(error, dismissed):
            with contextlib.suppress(Exception):
                self._session.leave(why, described(error))
        self.state.mode = Mode.TERMINATED
        try:
            self._hook_at_the_end(self._wrapper.terminate)
        except Exception as failed:
            raise failed from error

    def ping(self) -> None:
        """Reports progress."""
        session, interrupter = self._session, self._interrupter
        if session is None or interrupter is None or session.ping():
            return
        if interrupter.is_training():
            self._wait_to_be_raised()

    def hang_protection(self, on: bool) -> None:
        """Switches the limits for silent ranks on or off."""
        self._silences.protect(on)

    @contextlib.contextmanager
    def section(self, name: str, timeout: Any) -> Iterator[None]:
        """Context in which silence of this length is no hang."""
        log.debug("section %s: silent for up to %s", name, timeout)
        require_type("timeout", timeout, datetime.timedelta)
        silences = self._silences
        own = silences.begin(timeout.total_seconds())
        try:
            yield
        finally:
            silences.end(own)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Context in which neither the abort hook nor the interrupt runs."""
        session, interrupter = self._session, self._interrupter
        if session is None or interrupter is None or interrupter.is_outside() or threading.get_ident() == self._monitor_ident:
            # Hooks are never interrupted. A hook in the monitor thread would wait for its own end.
            yield
            return
        if not session.atomic_begin():
            self._wait_to_be_raised()
        try:
            yield
        finally:
            session.atomic_end()

    def _wait_to_be_raised(self) -> None:
        """Raises the interrupt after the end of the round, so that no atomic part begins."""
        current = self._round
        current.aborted.wait()
        if self._interrupter.is_training():
            self._interrupter.mark_interrupted()
        raise RankShouldRestart(self._interrupter.why)


class _Silences:
    """Sections of a round that may be silent for longer than its limits. The section that began last counts."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._open: List[Tuple[object, float]] = []
        self._protected = True

    def protect(self, on: bool) -> None:
        """Switches the limits for silent ranks on or off."""
        with self._lock:
            self._protected = on
            self._send_limit()

    def begin(self, seconds: float) -> object:
        """Begins a section. Returns the handle that ends it."""
        own = object()
        with self._lock:
            # Zero would mean no section.
            self._open.append((own, max(seconds, 0.001)))
            self._send_limit()
        return own

    def end(self, own: object) -> None:
        """Ends a section: the previous limit applies again."""
        with self._lock:
            self._open = [one for one in self._open if one[0] is not own]
            self._send_limit()

    def _send_limit(self) -> None:
        session = self._call._session
        # Sections of an earlier round must not change the limits of the next one.
        if session is not None and self._call._silences is self:
            session.section(None if not self._protected else self._open[-1][1] if self._open else 0)


class _Frozen:
    """Objects that were made before the call, frozen so that the collector skips them between rounds.

    Objects that the script has frozen stay frozen. Python can unfreeze all objects or none, so in that case none are unfrozen. The same
    holds for Python 3.12, whose collector counts immortal objects as frozen.
    """

    def __init__(self) -> None:
        gc.collect()
        self._count = 0
        if gc.get_freeze_count() == 0:
            gc.freeze()
            self._count = gc.get_freeze_count()

    def end(self) -> None:
        """Unfreezes the objects at the end of the call."""
        # The count can only shrink, unless the script has frozen more objects.
        if 0 < gc.get_freeze_count() <= self._count:
            gc.unfreeze()


class _End:
    """End of the function in one round."""

    value: Any = None
    part: str = "the function"
    """Part that has raised `why`."""
    why: Optional[BaseException] = None
    """Exception after which another round follows."""
    fatal: Optional[BaseException] = None
    """Exception with which this rank leaves."""
    unhealthy: Optional[BaseException] = None
    """Exception with which this rank leaves, unless the round had ended before."""


class _Round:
    """State of a round that the training thread and the monitor share."""

    def __init__(self) -> None:
        self.over = Flag()
        self.aborted = Flag()
        self.fault: Optional[Fault] = None
        self.state: Any = None
        """State at the beginning of the round."""

    def end(self, fault: FaultNews) -> None:
        """Notes the fault that has ended the round."""
        self.fault = Fault(*fault)
        self.over.set()


def _first_state() -> State:
    env = os.environ
    if env.get("RLAUNCH_RANK", "").isdigit():
        state = State(rank=int(env["RLAUNCH_RANK"]), world_size=int(env.get("RLAUNCH_WORLD_SIZE", "1")))
        # Rounds of an earlier call have changed RLAUNCH_RANK and RLAUNCH_WORLD_SIZE.
        if env.get("RLAUNCH_INITIAL_RANK", "").isdigit():
            state.initial_rank = int(env["RLAUNCH_INITIAL_RANK"])
        state.initial_world_size = _world.initial_size or state.world_size
        return state
    return State(rank=0, world_size=1)


def _as_fault(info: native.FaultInfo) -> Optional[Fault]:
    came = fault_of(info)
    return None if came is None else Fault(*came)


def _sentence(fault: FaultNews) -> str:
    text = f": {fault.text}" if fault.text else ""
    return f"initial rank {fault.rank}: {fault.kind}{text}"


def _hook(hook: Optional[Callable[[Any], Any]], state: State) -> None:
    if hook is not None:
        hook(state.freeze())


def _parts(hook: Any) -> Iterator[Any]:
    if isinstance(hook, Compose):
        for part in hook.instances:
            yield from _parts(part)
    elif hook is not None:
        yield hook


def _whole(wait: Callable[[], T]) -> T:
    """Calls a function of this package until it returns. The function waits or takes long, and can be repeated.

    A signal handler of the program, such as torch's for workers of a data loader, raises wherever the training thread happens to be. After
    the end of the function no code of the program can catch that. The exception belongs to the round that ends anyway.
    """
    while True:
        try:
            return wait()
        except Error:
            raise
        except Exception:
            # Another such exception may come during the log line.
            with contextlib.suppress(Exception):
                log.exception("a signal handler raised this exception outside the wrapped function: rlaunch ignores the exception")


def _clear(error: BaseException) -> None:
    """Clears the frames of an exception, which hold groups and tensors of the function."""
    seen: Set[int] = set()
    waiting: List[Optional[BaseException]] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        _whole(functools.partial(traceback.clear_frames, one.__traceback__))
        one.__traceback__ = None


def _collect() -> None:
    # A deletion may release further objects. The number of runs has a limit, because some deletions always make new objects.
    for _ in range(COLLECTIONS):
        if not _whole(gc.collect):
            return

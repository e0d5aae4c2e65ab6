"""One call of a wrapped function, through all of its rounds.

The training thread is the one that calls. It asks the session what comes next, runs hooks and function, and says how that ended. Another
thread, the monitor, waits for the end of a round wherever it comes from, runs the abort hook, and has the training thread leave.
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
from .utils import told
from .param_utils import require_type, substitute_param_value
from .rank_assignment import RankDiscarded
from .state import Fault, Mode, State

if TYPE_CHECKING:
    from .wrap import CallWrapper, Wrapper

log = logging.getLogger("rlaunch.inprocess")

T = TypeVar("T")

VICTIM_WAIT = 0.05
"""Seconds for which a failed connection is not told: its other end has failed first, and that is about to be heard of."""

COLLECTIONS = 20
"""How often at most the collector runs between two rounds."""

OVER = "over"
"""The kind of a fault after which there is no round."""

_OTHER_END = ("connection closed by peer", "connection reset by peer", "broken pipe")


class Call:
    """The whole of a call."""

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
        """Nothing of it goes on."""
        session, self._session = self._session, None
        if session is not None:
            _torch_hooks.watch_no_more()
            session.close()

    def run(self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """The call: what the function returned in the last round."""
        refuse_a_second()
        self._session = session = Session(self._terms(), self._wrapper.progress_watchdog_interval.total_seconds())
        parts = list(_parts(self._wrapper.abort))
        if all(type(part) is AbortTorchDistributed for part in parts):
            # As long as there is no group, nobody has to wait until this Python gets round to `aborted`.
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
        """No round follows: only the agent sees whether it comes to its end."""
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
            # The first round needs them as well.
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
            return RankDiscarded(news.text or "sent home: the policy, or a limit, has no part for this rank; rlaunch has said which")
        if news.kind == native.NEXT_REFUSED:
            return exception.RestartRefused(news.text)
        return exception.RestartGivenUp(news.text)

    def _begin(self, news: News) -> None:
        """State and environment of a round."""
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
        # In the training thread, and by Python: what C sets is not seen in os.environ.
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
        """The function, once."""
        session, interrupter, end = self._session, self._interrupter, _End()
        goes_on, has_begun, around = None, False, sys.exc_info()[1]
        while goes_on is None:
            try:
                if not has_begun:
                    has_begun = True
                    if interrupter.enter():
                        self._inside(fn, args, kwargs, end)
                goes_on = interrupter.exit()
            except Error:
                raise
            except (Exception, RankShouldRestart) as why:
                # The interrupt came between two lines of ours; no other one comes for a second. Or the program's handler of a signal has raised there.
                raised = None if why.__context__ is around else why.__context__
                restarts = isinstance(raised, (Exception, RankShouldRestart)) and not isinstance(raised, exception.HealthCheckError)
                if raised is not None and not restarts:
                    # Before it was noted that the function has raised what is no restart's business.
                    end.fatal = end.fatal or raised
                end.why = end.why or why
        failed = end.fatal or end.unhealthy or end.why
        if failed is not None and session.is_forked():
            # A forked child is in no round: whatever it does is its own business.
            raise failed
        if end.fatal is not None:
            raise end.fatal
        if end.unhealthy is not None:
            if goes_on:
                raise end.unhealthy
            # What it looked at may have ended with the round. It is looked again before the next one.
            end.why = end.why or end.unhealthy
        if not goes_on:
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
            raise exception.HealthCheckError(told(error)) from error

    def _own_fault(self, error: BaseException, part: str) -> None:
        """The function, or a hook before it, has failed by itself, as far as is known."""
        text = told(error)
        if any(words in text.lower() for words in _OTHER_END) and _whole(lambda: self._round.over.wait(VICTIM_WAIT)):
            return
        if _whole(lambda: self._session.fault(text)):
            self.state.fn_exception = error if isinstance(error, Exception) else None
            state = self.state
            # The fault counts also where a handler of a signal breaks this off.
            with contextlib.suppress(Exception):
                log.error("round %d, initial rank %d: %s has failed", state.iteration, state.initial_rank, part, exc_info=error)

    def _out(self, why: BaseException) -> None:
        """The function was left: clean up, and be ready for another round."""
        state, wrapper = self.state, self._wrapper
        _whole(self._round.aborted.wait)
        state.fault = self._round.fault
        if state.fault is not None and state.fault.kind == OVER:
            # What comes next says how it ended.
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
        """The other thread: once for each round that ends early."""
        self._monitor_ident = threading.get_ident()
        session = self._session
        try:
            while True:
                fault = session.wait_interrupt()
                if fault is None:
                    break
                with self._turn:
                    if fault.kind == OVER and self._begun.empty():
                        # There is no round to be left, or it is only about to begin here.
                        self._over = fault
                if self._over is not None:
                    session.aborted()
                    continue
                self._end_round(self._begun.get(), fault)
        finally:
            session.monitor_ends()
            # Nobody waits in vain.
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
            # Whatever it is: this thread is not the program, and the round has to be left.
            log.exception("initial rank %s: the abort hook has failed", self.state.initial_rank)
        session.aborted()
        current.aborted.set()
        interrupter.chase(left)

    def _leave(self, error: BaseException) -> None:
        """This rank takes no part any more: the others are told, then the terminate hook runs."""
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
                self._session.leave(why, told(error))
        self.state.mode = Mode.TERMINATED
        try:
            self._hook_at_the_end(self._wrapper.terminate)
        except Exception as failed:
            raise failed from error

    def ping(self) -> None:
        """It gets on."""
        session, interrupter = self._session, self._interrupter
        if session is None or interrupter is None or session.ping():
            return
        if interrupter.is_training():
            self._wait_to_be_raised()

    def hang_protection(self, on: bool) -> None:
        """Whether silence counts."""
        self._silences.protect(on)

    @contextlib.contextmanager
    def section(self, name: str, timeout: Any) -> Iterator[None]:
        """Silence of this length is no hang."""
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
        """Neither abort nor interrupt."""
        session, interrupter = self._session, self._interrupter
        if session is None or interrupter is None or interrupter.is_outside() or threading.get_ident() == self._monitor_ident:
            # Hooks are interrupted by nobody; and what one of the monitor would wait for is that it comes to its own end.
            yield
            return
        if not session.atomic_begin():
            self._wait_to_be_raised()
        try:
            yield
        finally:
            session.atomic_end()

    def _wait_to_be_raised(self) -> None:
        """The round is over: what would begin now must not."""
        current = self._round
        current.aborted.wait()
        if self._interrupter.is_training():
            self._interrupter.told()
        raise RankShouldRestart(self._interrupter.why)


class _Silences:
    """What may be silent in a round for longer than its limits say: of several the one that was begun last counts."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._open: List[Tuple[object, float]] = []
        self._protected = True

    def protect(self, on: bool) -> None:
        """Whether silence counts at all."""
        with self._lock:
            self._protected = on
            self._tell()

    def begin(self, seconds: float) -> object:
        """What to end it by."""
        own = object()
        with self._lock:
            # Zero would be no section.
            self._open.append((own, max(seconds, 0.001)))
            self._tell()
        return own

    def end(self, own: object) -> None:
        """What held before holds again."""
        with self._lock:
            self._open = [one for one in self._open if one[0] is not own]
            self._tell()

    def _tell(self) -> None:
        session = self._call._session
        # One of a round that is over has nothing to say in the next one.
        if session is not None and self._call._silences is self:
            session.section(None if not self._protected else self._open[-1][1] if self._open else 0)


class _Frozen:
    """What was made before the call, and lives as long: the collector need not look at it between rounds.

    What the script has frozen itself stays so, whenever it did. Nobody can thaw a part of it, so then nothing is; nor with Python 3.12,
    whose collector counts immortal objects as frozen.
    """

    def __init__(self) -> None:
        gc.collect()
        self._count = 0
        if gc.get_freeze_count() == 0:
            gc.freeze()
            self._count = gc.get_freeze_count()

    def end(self) -> None:
        """The call is over."""
        # It can only have become less, unless somebody has frozen more.
        if 0 < gc.get_freeze_count() <= self._count:
            gc.unfreeze()


class _End:
    """How the function ended."""

    value: Any = None
    part: str = "the function"
    """What `why` comes from."""
    why: Optional[BaseException] = None
    """Another round."""
    fatal: Optional[BaseException] = None
    """This rank leaves by it."""
    unhealthy: Optional[BaseException] = None
    """It does, unless the round was over."""


class _Round:
    """What the two threads tell each other about a round."""

    def __init__(self) -> None:
        self.over = Flag()
        self.aborted = Flag()
        self.fault: Optional[Fault] = None
        self.state: Any = None
        """As it was when the round began."""

    def end(self, fault: FaultNews) -> None:
        """It is over, by this."""
        self.fault = Fault(*fault)
        self.over.set()


def _first_state() -> State:
    env = os.environ
    if env.get("RLAUNCH_RANK", "").isdigit():
        state = State(rank=int(env["RLAUNCH_RANK"]), world_size=int(env.get("RLAUNCH_WORLD_SIZE", "1")))
        # Rounds of an earlier call have changed them.
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
    """What something of ours comes to that waits, or takes long, and can be done again.

    A handler of a signal of the program's, such as torch's for workers of a data loader, raises wherever the training thread happens to be.
    Behind the function there is nobody to be told by it: what it tells of belongs to the round that ends anyway.
    """
    while True:
        try:
            return wait()
        except Error:
            raise
        except Exception:
            # It may come while this is told, too.
            with contextlib.suppress(Exception):
                log.exception("a handler of a signal has raised this outside the function: the rounds go on")


def _clear(error: BaseException) -> None:
    """Frames of an exception hold what the function had: groups, tensors."""
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
    # What is deleted lets go of more; but some that is deleted makes something new, and would for ever.
    for _ in range(COLLECTIONS):
        if not _whole(gc.collect):
            return

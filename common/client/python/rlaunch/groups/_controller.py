"""Controller's end of calls: futures, streams, and the wait for events."""

from __future__ import annotations

import _thread
import collections
import os
import threading
import time
import weakref

from . import _calls as wire
from . import _codec as codec
from . import _notice as notice
from . import _sessions
from ._arena import LEAST, Arena
from ._calls import NOBODY, SLICE, Calls, Event
from ._errors import CallTimeout, Cancelled, RemoteTraceback, WorkerDied, WorkerError

TYPE_CHECKING = False

if TYPE_CHECKING:
    import asyncio
    from typing import Any, Callable, Deque, Dict, Generator, Iterable, List, Optional, Sequence, Tuple

_ANSWERS = (wire.RETURN, wire.RAISE, wire.ITEM, wire.STOP)

_decoding = threading.Lock()
"""Lock that is held while a result is rebuilt: several threads may request the same result."""


class Future:
    """Result of a call, which the worker may not have sent yet."""

    # Attributes of the class until they change, because a call of many workers makes as many futures.
    _event: Optional[Event] = None
    _value: Any = None
    _error: Optional[BaseException] = None
    _is_done = False

    def __init__(self, controller: "Controller", worker: Any, call: int, method: str) -> None:
        self._controller = controller
        self._worker = worker
        self._call = call
        self._method = method

    @property
    def rank(self) -> int:
        """The rank of the worker that was called."""
        return self._worker.rank

    def done(self) -> bool:
        """Whether the worker has sent a result or an error."""
        return self._is_done

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return isinstance(self._error, Cancelled)

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for the result, up to ``timeout`` seconds, and returns it. Raises the exception of the method if it failed."""
        if not self._is_done and not self._controller.wait(self.done, timeout, self._awaited):
            raise CallTimeout(f"{self._method} of rank {self.rank} has not returned after {timeout:g} s")
        return self._decoded()

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits like `result`, and returns the exception of the method, or ``None``."""
        try:
            self.result(timeout)
        except CallTimeout:
            raise
        except BaseException as error:
            return error
        return None

    def cancel(self) -> bool:
        """Cancels the call: an ``async`` method is cancelled, and a plain method does not begin. False: the call has ended already."""
        return self._controller.cancel(self)

    def __await__(self) -> Generator[Any, None, Any]:
        yield from self._controller.wait_async(self.done, self._awaited).__await__()
        return self._decoded()

    def _awaited(self) -> str:
        return f"{self._method} of rank {self.rank} of group {self._worker.group.name}"

    def _decoded(self) -> Any:
        if self._event is not None:
            with _decoding:
                event = self._event
                if event is not None:
                    self._decode(event)
                    self._event = None
        if self._error is not None:
            if isinstance(self._error, WorkerDied):
                str(self._error)  # The reason is written some milliseconds after the end.
            raise self._error
        return self._value

    def _decode(self, event: Event) -> None:
        try:
            if event.kind == wire.RAISE:
                self._error = self._worker.rebuilt(event)
            else:
                self._value = codec.decode_as(event.parts, event.codec, self._worker.codec) if event.parts else None
        except Exception as error:
            text = f"the result of {self._method} cannot be rebuilt here: {codec.named(error)}"
            self._error = WorkerError(self.rank, type(error).__name__, text, "")

    def _on_event(self, event: Event) -> None:
        if event.kind == wire.RAISE:
            self._controller.failures += 1
        self._event, self._is_done = event, True

    def _fail(self, error: BaseException) -> None:
        self._controller.failures += 1
        self._error, self._is_done = error, True


class Stream(Future):
    """Items of a worker's generator, for ``for`` and ``async for``. At most 16 items are ahead of the reader."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._items: Deque[Event] = collections.deque()
        self._taken = 0

    def _on_event(self, event: Event) -> None:
        if event.kind == wire.ITEM:
            self._items.append(event)
        else:
            self._event, self._is_done = (None if event.kind == wire.STOP else event), True

    def _has_more(self) -> bool:
        return bool(self._items) or self._is_done

    def _take(self) -> Any:
        event = self._items.popleft()
        self._taken += 1
        if self._taken * 2 >= wire.WINDOW and not self._is_done:
            self._controller.calls.send([self._worker.peer], wire.CREDIT, self._call, count=self._taken)
            self._taken = 0
        return codec.decode_as(event.parts, event.codec, self._worker.codec)

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        self._controller.wait(self._has_more, None, self._awaited)
        if self._items:
            return self._take()
        self._decoded()
        raise StopIteration

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        import asyncio

        try:
            await self._controller.wait_async(self._has_more, self._awaited)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._items:
            return self._take()
        self._decoded()
        raise StopAsyncIteration

    def result(self, timeout: Optional[float] = None) -> List[Any]:
        """Waits for all items, up to ``timeout`` seconds, and returns them as a list."""
        until = None if timeout is None else time.monotonic() + timeout
        items = []
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._controller.wait(self._has_more, left, self._awaited):
                raise CallTimeout(f"{self._method} of rank {self.rank} has not ended after {timeout:g} s")
            if not self._items:
                self._decoded()
                return items
            items.append(self._take())

    def __await__(self) -> Generator[Any, None, Any]:
        async def collected() -> List[Any]:
            return [item async for item in self]

        return collected().__await__()

    def close(self) -> None:
        """Cancels the generator."""
        self.cancel()

    async def aclose(self) -> None:
        """Cancels the generator, under the name that asynchronous generators have."""
        self.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_is_done", True):
            try:
                self._controller.cancel(self)
            except Exception:
                pass  # At the end of the interpreter.


class Controller:
    """All connections of this process, to the workers of all its groups."""

    def __init__(self) -> None:
        self.calls = Calls()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._is_led = False
        self._followers = 0
        self._number = 0
        self.failures = 0
        """Number of calls that have failed. When it changes, waits for several calls check them again."""
        self._pending: Dict[int, Dict[int, Any]] = {}
        """Futures, by call and connection. Streams have weak references: a stream that its reader has dropped is cancelled."""
        self.workers: Dict[int, Any] = {}
        self._waiters: List[Tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]] = []
        self._loops: Dict[asyncio.AbstractEventLoop, int] = {}
        self._looked = 0.0
        """Time of the last look for workers that have ended, by whichever thread."""
        self._is_looking = False
        """Whether a thread looks for the tasks of event loops."""

    # ---- Calls ----

    def call(
        self, workers: Sequence[Any], method: str, parts: Sequence[Any], kind: int, make: Callable[..., Future], arena: Optional[Arena]
    ) -> List[Future]:
        """Calls a method of several workers with the same arguments, as `encode` has made them."""
        texts = [method.encode()]
        is_stream = make is Stream
        with self._lock:
            self._number += 1
            number = self._number
            futures = [make(self, worker, number, method) for worker in workers]
            peers = [worker.peer for worker in workers if worker.death is None]
            waiting: Any = [weakref.ref(future) for future in futures] if is_stream else futures
            if len(peers) < len(workers):
                waiting = [one for one, worker in zip(waiting, workers) if worker.death is None]
                for future, worker in zip(futures, workers):
                    if worker.death is not None:
                        future._fail(worker.death)
            if peers:
                self._pending[number] = dict(zip(peers, waiting))
        if len(parts) == 1:
            if peers:
                self.calls.send(peers, wire.CALL, number, texts, parts, kind)
            return futures
        near, far = [], peers
        connected = set(peers)
        alive = [worker for worker in workers if worker.peer in connected]
        is_large = arena is not None and any(memoryview(part).nbytes >= LEAST for part in parts[1:])
        if is_large:
            near = [worker.peer for worker in alive if worker.has_arena]
            far = [worker.peer for worker in alive if not worker.has_arena]
        if near:
            self.calls.send(near, wire.CALL, number, texts, self._shared(parts, near, arena), kind)
        if far:
            self.calls.send(far, wire.CALL, number, texts, parts, kind)
        return futures

    @staticmethod
    def _shared(parts: Sequence[Any], peers: Sequence[int], arena: Any) -> List[Any]:
        """The parts with large buffers in shared memory, as far as there is room."""
        shared = list(parts[:1])
        for part in parts[1:]:
            view = memoryview(part)
            region = arena.put(view, peers) if view.nbytes >= LEAST else None
            shared.append(part if region is None else region)
        return shared

    def cancel(self, future: Future) -> bool:
        """Cancels the call of a future."""
        with self._turn:
            if future._is_done:
                return False
            self._take_out(future._call, future._worker.peer)
            future._fail(Cancelled(f"{future._method} of rank {future.rank} was cancelled"))
            self._notify()
        if os.getpid() == self._pid:
            self.calls.send([future._worker.peer], wire.CANCEL, future._call)
        return True

    # ---- Events ----

    def wait(
        self, is_over: Callable[[], bool], timeout: Optional[float], awaited: Callable[[], str], call: int = 0, count: int = 1, last: int = NOBODY
    ) -> bool:
        """Waits until ``is_over()`` is true. One thread at a time reads the connections, for all waiting threads.

        With `call`: until `count` workers have returned from it, or something else has come. Their answers are taken together. `last` is the
        connection to the one that was called last.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("this is a forked child of the controller: only the controller itself has connections to workers")
        if is_over():
            return True
        began = looked = time.monotonic()
        until = None if timeout is None else began + timeout
        if not self._lead(is_over, until, awaited, began):
            return is_over()
        long = None
        try:
            while not is_over():
                left = SLICE if until is None else min(SLICE, until - time.monotonic())
                events = self.calls.gather(left if left > 0 else 0, call, count if count > 0 else 1, last)
                if events:
                    with self._lock:
                        for peers, event in events:
                            self._on_events(peers, event)
                            count, last = count - len(peers), NOBODY
                        if self._followers or self._waiters:
                            self._notify()
                elif left <= 0:
                    return is_over()
                now = time.monotonic()
                if now - looked >= SLICE:
                    looked = now
                    if not self._is_looking:
                        self._look_for_ends()
                    if until is None:
                        long = long or notice.Notice(awaited, notice.CALL, began)
                        long.look()
            return True
        finally:
            with self._lock:
                self._is_led = False
                if self._followers or self._waiters:
                    self._notify()

    def _lead(self, is_over: Callable[[], bool], until: Optional[float], awaited: Callable[[], str], began: float) -> bool:
        """Waits until no other thread reads the connections. False: ``is_over()`` is true, or the time has passed."""
        long = None
        with self._lock:
            while self._is_led:
                left = SLICE if until is None else min(SLICE, until - time.monotonic())
                if left <= 0:
                    return False
                self._followers += 1
                self._turn.wait(left)
                self._followers -= 1
                if is_over():
                    return False
                if until is None:
                    long = long or notice.Notice(awaited, notice.CALL, began)
                    long.look()
            self._is_led = True
            return True

    def _drain(self) -> None:
        while True:
            event = self.calls.next(0)
            if event is None:
                return
            self._on_event(event)

    async def wait_async(self, is_over: Callable[[], bool], awaited: Callable[[], str]) -> None:
        """Waits like `wait`, for a task."""
        import asyncio

        loop, long, looked = asyncio.get_running_loop(), notice.Notice(awaited, notice.CALL), time.monotonic()
        while True:
            with self._turn:
                self._drain()
                self._notify()
                if is_over():
                    return
                waiter = loop.create_future()
                self._waiters.append((loop, waiter))
                if not self._loops.get(loop):
                    loop.add_reader(self.calls.fileno(), self._on_readable)
                self._loops[loop] = self._loops.get(loop, 0) + 1
            try:
                await asyncio.wait([waiter], timeout=SLICE)
            finally:
                with self._turn:
                    self._waiters = [one for one in self._waiters if one[1] is not waiter]
                    self._loops[loop] -= 1
                    if not self._loops[loop]:
                        del self._loops[loop]
                        loop.remove_reader(self.calls.fileno())
            if time.monotonic() - looked >= SLICE:
                looked = time.monotonic()
                self._start_look()
                long.look()

    def _on_readable(self) -> None:
        with self._turn:
            self._drain()
            self._notify()

    def _notify(self) -> None:
        if self._followers:
            self._turn.notify_all()
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)

    def _on_events(self, peers: Sequence[int], event: Event) -> None:
        """Handles the same event of several connections."""
        pending = self._pending.get(event.call)
        if pending and event.kind == wire.RETURN and event.parts == codec.NONE_PARTS:
            # All futures of a call are of one group and class.
            one = next(iter(pending.values()))
            if type(one) is Future and one._worker.codec == codec.PICKLE:
                # Most calls return ``None``, which needs no decoding.
                for peer in peers:
                    future = pending.pop(peer, None)
                    if future is not None:
                        future._is_done = True
                if not pending:
                    del self._pending[event.call]
                return
        for peer in peers:
            self._on_event(event if peer == event.peer else event._replace(peer=peer))

    def _on_event(self, event: Event) -> None:
        pending = self._pending.get(event.call)
        found = None if pending is None else pending.get(event.peer)
        if found is not None and event.kind in _ANSWERS:
            future = found() if type(found) is weakref.ref else found
            if future is not None:
                future._on_event(event)
                if future._is_done:
                    self._take_out(event.call, event.peer)
            return
        worker = self.workers.get(event.peer)
        if worker is None:
            return
        if event.kind == wire.CLOSED:
            self.on_end(worker)
        elif event.kind == wire.FREE:
            worker.arena.release(event.call, event.peer)
        elif event.kind == wire.MAPPED:
            worker.has_arena = event.count == 1
        elif event.kind == wire.RAISE and event.call == 0:
            worker.refusal = event.text(1)

    def _take_out(self, call: int, peer: int) -> Any:
        """Removes and returns a future that waits for no more events."""
        pending = self._pending.get(call, {})
        found = pending.pop(peer, None)
        if not pending:
            self._pending.pop(call, None)
        return found

    def on_end(self, worker: Any) -> None:
        """Fails all calls of a worker after its connection has ended."""
        with self._turn:
            if worker.death is None:
                worker.death = worker.make_death()
                worker.seen_at = _sessions.now()
            if worker.arena is not None:
                worker.arena.forget(worker.peer)
            for call in [call for call, pending in self._pending.items() if worker.peer in pending]:
                found = self._take_out(call, worker.peer)
                future = found() if type(found) is weakref.ref else found
                if future is not None:
                    future._fail(worker.death)
            self._notify()

    def _start_look(self) -> None:
        """Looks for ends on a thread, because the launcher may answer late. All tasks share one look in each `SLICE`."""
        with self._lock:
            now = time.monotonic()
            if self._is_looking or now - self._looked < SLICE:
                return
            self._looked = now
        try:
            # Not `threading.Thread`: an interrupt of its start may leave a lock taken.
            _thread.start_new_thread(self._look, ())
        except RuntimeError:
            pass  # No thread can start now. The next look tries it again.

    def _look(self) -> None:
        with self._lock:
            if self._is_looking:
                return
            self._is_looking = True
        try:
            self._look_for_ends()
        finally:
            self._is_looking = False

    def _look_for_ends(self) -> None:
        """Fails the calls of workers that the launcher has reported as ended. Their connections may not have ended."""
        self._looked = time.monotonic()
        alive = [worker for worker in list(self.workers.values()) if worker.death is None]
        ended = {group: set(group.ended_ranks()) for group in {worker.group for worker in alive}}
        for worker in alive:
            if worker.rank in ended[worker.group]:
                with self._turn:
                    self._drain()  # The last results of the worker may be unread.
                    if worker.death is None:
                        self.calls.detach(worker.peer)
                        self.on_end(worker)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


_lock = threading.Lock()
_controller: Optional[Controller] = None


def controller() -> Controller:
    """The controller of this process."""
    global _controller
    with _lock:
        if _controller is None or _controller._pid != os.getpid():
            _controller = Controller()
        return _controller


def rebuilt(event: Event, rank: int, host: str, kind: int) -> BaseException:
    """The exception that a method has raised, as far as it can be rebuilt here: by pickle, if the group uses that."""
    type_name, text, trace = (event.text(at) for at in range(3))
    if event.parts and kind == codec.PICKLE:
        try:
            error = codec.decode(event.parts, codec.PICKLE)
            error.__cause__ = RemoteTraceback(rank, host, trace)
            if isinstance(error, Exception):
                return error
        except Exception:
            pass  # The texts of the error are used.
    error = WorkerError(rank, type_name, text, trace)
    error.__cause__ = RemoteTraceback(rank, host, trace)
    return error


def get(futures: Any, timeout: Optional[float] = None) -> Any:
    """Waits for the result of a future, or the results of several in their order. The first failure raises its error at once."""
    if isinstance(futures, Future):
        return futures.result(timeout)
    futures = list(futures)
    until, asked = None if timeout is None else time.monotonic() + timeout, timeout
    plain = [future for future in futures if type(future) is Future or not isinstance(future, Stream)]
    if plain:
        place, count, at, seen = plain[0]._controller, len(plain), 0, 0
        call = plain[0]._call if plain[0]._call == plain[-1]._call else 0

        def is_over() -> bool:
            nonlocal at
            while at < count and plain[at]._is_done:
                at += 1
            return at == count or place.failures != seen

        while at < count:
            last = NOBODY if plain[-1]._is_done else plain[-1]._worker.peer
            if not place.wait(is_over, timeout, lambda: _late(plain), call, count - at, last):
                raise CallTimeout(f"{sum(not one._is_done for one in plain)} of {count} results have not come after {asked:g} s: {_late(plain)}")
            if place.failures != seen:
                seen = place.failures
                failed = next(filter(_has_failed, plain), None)
                if failed is not None:
                    failed.result(0)
            timeout = None if until is None else max(0.0, until - time.monotonic())
    if len(plain) == len(futures):
        # Most have been rebuilt, or are ``None``.
        return [one._value if one._event is None and one._error is None else one._decoded() for one in futures]
    return [future.result(None if until is None else max(0.0, until - time.monotonic())) for future in futures]


def _late(futures: Sequence[Future]) -> str:
    """The names of the calls that have not returned, as a text."""
    late = [future for future in futures if not future._is_done]
    methods = ", ".join(dict.fromkeys(future._method for future in late))
    groups = ", ".join(dict.fromkeys(future._worker.group.name for future in late))
    return f"{methods} of {notice.ranks([future.rank for future in late])} of group {groups}"


def _has_failed(future: Future) -> bool:
    return future._is_done and (future._error is not None or (future._event is not None and future._event.kind == wire.RAISE))


def wait(
    futures: Iterable[Future], num_returns: int = 1, timeout: Optional[float] = None
) -> Tuple[List[Future], List[Future]]:
    """Waits until ``num_returns`` futures are done. Returns a list of the futures that are done, and one of the others."""
    futures = list(futures)
    if not 0 < num_returns <= len(futures):
        raise ValueError(f"num_returns is {num_returns}, and there are {len(futures)} futures")
    futures[0]._controller.wait(
        lambda: sum(future._is_done for future in futures) >= num_returns,
        timeout,
        lambda: f"{num_returns} of these calls: {_late(futures)}",
    )
    done = [future for future in futures if future._is_done]
    return done, [future for future in futures if not future._is_done]

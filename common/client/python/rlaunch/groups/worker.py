"""A worker of a group: ``python -m rlaunch.groups.worker pkg.mod.Class`` serves the methods of one object.

Plain methods run one after another on the main thread, in the order in which they come. ``async`` methods and asynchronous generators run
at the same time on a thread with an event loop. Generators are sent item by item, at most 16 ahead of their reader.
"""

from __future__ import annotations

import collections
import gc
import os
import sys
import time
from _signal import SIG_DFL, SIGCHLD, getsignal

if __name__ == "__main__":
    gc.disable()  # The modules below stay loaded.

from rlaunch import _errors  # noqa: E402
from rlaunch.groups import _calls as wire  # noqa: E402
from rlaunch.groups import _codec as codec  # noqa: E402
from rlaunch.groups import _notice as notice  # noqa: E402
from rlaunch.groups._calls import Calls, Event, Region  # noqa: E402
from rlaunch.groups._identity import IDENTITY, importing  # noqa: E402

TYPE_CHECKING = False

if TYPE_CHECKING:
    import asyncio
    import threading
    from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

    from rlaunch.groups._mapped import Mapped

def class_of(path: str) -> type:
    """The class of a path such as ``pkg.mod.Class``."""
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise SystemExit(f"rlaunch.groups.worker: {path!r} names no module: write pkg.mod.Class")
    importing.append(module_name)
    try:
        module = __import__(module_name, fromlist=[name])
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise SystemExit(f"rlaunch.groups.worker: there is no module {error.name!r} (for {path})") from None
    except _errors.Refused as error:
        raise SystemExit(f"rlaunch.groups.worker: {error}") from None
    finally:
        importing.clear()
    found = getattr(module, name, None)
    if not isinstance(found, type):
        known = [one for one, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        classes = ", ".join(sorted(known)) or "none"
        raise SystemExit(f"rlaunch.groups.worker: module {module_name} has no class {name!r}: it has {classes}")
    return found


def methods_of(kind: type) -> Dict[str, str]:
    """The methods that can be called, and their kinds."""
    methods = {}
    for name in dir(kind):
        method = getattr(kind, name, None)
        if name.startswith("__") or not callable(method):
            continue
        methods[name] = _kind_of(method)
    return methods


_KINDS = ((0x200, "async generator"), (0x80, "async"), (0x20, "generator"))
"""Flags of code objects from the module inspect, whose import takes as long as the rest of a start."""


def _kind_of(method: Any) -> str:
    for _ in range(100):
        # Bound methods, decorators that name what they wrap, and partial functions.
        names = ("__func__", "__wrapped__", "func")
        inner = next((getattr(method, one) for one in names if getattr(method, one, None) is not None), None)
        if inner is None:
            break
        method = inner
    code = getattr(method, "__code__", None)
    flags = getattr(code, "co_flags", 0)
    return next((kind for flag, kind in _KINDS if flags & flag), "plain")


_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for processes that the worker has started."""

_UNCALLED = 60.0
"""Seconds after which a worker without a controller prints a line."""

_LONG = 0.001
"""Seconds of a long call. After it, all frames that came meanwhile are read before the next call begins."""


def _defaults(kind: type) -> Dict[str, Any]:
    """Environment variables in the `_default_options` of a class, as for Ray."""
    options = getattr(kind, "_default_options", None) or {}
    return (options.get("runtime_env") or {}).get("env_vars") or {}


_LEAVES = (SystemExit, KeyboardInterrupt)
"""Exceptions of a method that end the worker. The caller gets all others."""


class Cancel(Exception):
    """Exception in a generator whose reader has gone."""


class Call:
    """Call that has come, until it is answered."""

    __slots__ = ("peer", "number", "method", "codec", "parts", "is_cancelled", "credit", "task", "more")

    def __init__(self, event: Event) -> None:
        self.peer, self.number, self.method, self.codec = event.peer, event.call, event.text(0), event.codec
        self.parts: List[Any] = event.parts
        self.is_cancelled = False
        self.credit = wire.WINDOW
        self.task: Optional["asyncio.Task[None]"] = None
        self.more: Optional[asyncio.Event] = None


def _bare(peer: int, number: int, method: bytes) -> Call:
    """A call without arguments, for a method that has run already."""
    return Call(Event(peer, wire.CALL, codec.PICKLE, 0, number, [method], []))


class Worker:
    """Worker: the object, its connection, and the calls that have come."""

    def __init__(self, kind: type) -> None:
        self.kind, self.methods = kind, methods_of(kind)
        self.object: Any = None
        self.codec: Optional[int] = None  # The serializer of the group, from the first call, which makes the object.
        self.calls = Calls()
        self.arena: Optional[Mapped] = None
        self.open: Dict[Tuple[int, int], Call] = {}
        """Calls that are not answered."""
        self.waiting: Deque[Call] = collections.deque()
        """Plain calls, without an event loop."""
        self.is_over = False
        self.table: Dict[bytes, Callable[..., Any]] = {}
        """Plain methods of the object, which run at once if no other call waits."""
        self.quick: Dict[bytes, Tuple[bytes, Callable[[], Any]]] = {}
        """Plain methods by the text and the part of calls without arguments."""
        self.was_long = False
        """Whether more than one call may have come during the last one."""
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.main: Any = None
        """Plain calls, with an event loop on another thread: a queue."""
        self.credited: Optional[threading.Condition] = None
        """Credits and cancellations for generators on the main thread, if another thread reads."""
        self.is_async = any(kind.startswith("async") for kind in self.methods.values())

    # ---- Events ----

    def on_event(self, event: Event) -> None:
        """Handles one event, on the thread that reads."""
        if event.kind == wire.CALL:
            self.on_call(Call(event))
        elif event.kind == wire.CANCEL:
            self.on_cancel(self.open.get((event.peer, event.call)))
        elif event.kind == wire.CREDIT:
            self.on_credit(self.open.get((event.peer, event.call)), event.count)
        elif event.kind == wire.ARENA:
            self.on_arena(event)
        elif event.kind in (wire.END, wire.CLOSED):
            self.on_over()
        elif event.kind != wire.OPENED:
            self.fail(Call(event), ValueError(f"frames of kind {event.kind} are of a later version"))

    def on_call(self, call: Call) -> None:
        kind = self.methods.get(call.method)
        if kind is None and call.method != "__init__":
            known = ", ".join(sorted(self.methods))
            self.fail(call, AttributeError(f"{self.kind.__name__} has no method {call.method!r}: it has {known}"))
            return
        self.open[call.peer, call.number] = call
        if self.loop is None:
            self.waiting.append(call)
        elif kind is not None and kind.startswith("async"):
            import asyncio

            call.more = asyncio.Event()
            call.task = self.loop.create_task(self.run_async(call, kind))
            # The callback runs even if the task is cancelled before it begins.
            call.task.add_done_callback(lambda _: self.drop(call))
        else:
            self.main.put(call)

    def on_cancel(self, call: Optional[Call]) -> None:
        if call is not None:
            call.is_cancelled = True
            if call.task is not None:
                call.task.cancel()
            self.notify()

    def on_credit(self, call: Optional[Call], count: int) -> None:
        if call is not None:
            if self.credited is None:
                call.credit += count
            else:
                with self.credited:
                    call.credit += count
            self.notify()
            if call.more is not None:
                call.more.set()

    def notify(self) -> None:
        if self.credited is not None:
            with self.credited:
                self.credited.notify_all()

    def on_arena(self, event: Event) -> None:
        from rlaunch.groups._mapped import Mapped

        try:
            self.arena = Mapped(event.text(0), event.call)
        except OSError:
            # Values then come through the socket.
            self.arena = None
        self.calls.send([event.peer], wire.MAPPED, count=int(self.arena is not None))

    def on_over(self) -> None:
        self.is_over = True
        for call in list(self.open.values()):
            self.on_cancel(call)
        if self.loop is not None:
            self.main.put(None)

    # ---- Arguments and answers ----

    def part(self, peer: int, part: Any) -> Any:
        """The buffer of a part. A region of the shared memory is given back when nothing here refers to it."""
        if not isinstance(part, Region):
            return part
        if self.arena is None:
            raise ValueError("a value in shared memory that this worker has not mapped")
        return self.arena.region(part, lambda offset: self.free(peer, offset))

    def free(self, peer: int, offset: int) -> None:
        if not self.is_over:
            self.calls.send([peer], wire.FREE, offset)

    def arguments(self, call: Call) -> Any:
        parts, call.parts = call.parts, []
        try:
            if len(parts) > 1:
                parts = [self.part(call.peer, part) for part in parts]
            if self.codec is None:
                self.codec = call.codec
            return codec.decode_as(parts, call.codec, self.codec)
        except BaseException as error:
            raise TypeError(f"the arguments of {call.method} cannot be rebuilt in the worker: {codec.named(error)}") from error

    def drop(self, call: Call) -> None:
        """Ends a call. Its regions of the shared memory are given back."""
        self.open.pop((call.peer, call.number), None)
        parts, call.parts = call.parts, []
        for part in parts:
            if isinstance(part, Region):
                self.free(call.peer, part.offset)

    def answer(self, call: Call, kind: int, value: Any = None) -> None:
        if kind == wire.STOP:
            self.calls.post((call.peer,), kind, call.number, b"", b"")
            return
        try:
            parts = codec.encode(value, call.codec)
        except BaseException as error:
            what = "an item" if kind == wire.ITEM else "the result"
            raise TypeError(f"{what} of {call.method} cannot be sent: {codec.named(error)}") from error
        self.calls.send((call.peer,), kind, call.number, (), parts, call.codec)

    def fail(self, call: Call, error: BaseException) -> None:
        texts, parts = codec.described(error), codec.encode_error(error, call.codec)
        self.calls.send([call.peer], wire.RAISE, call.number, texts, parts, codec.PICKLE)

    # ---- Plain methods: on the main thread ----

    def run(self, call: Call) -> None:
        """Runs a plain method or a generator."""
        try:
            if call.is_cancelled:
                return
            kwargs = self.arguments(call)
            if call.method == "__init__":
                self.answer(call, wire.RETURN, self.make(kwargs))
            elif self.object is None:
                raise RuntimeError("the object of this worker has not been made")
            elif self.methods[call.method] == "generator":
                items = getattr(self.object, call.method)(**kwargs)
                del kwargs
                self.run_generator(call, items)
            else:
                value = getattr(self.object, call.method)(**kwargs)
                del kwargs
                self.answer(call, wire.RETURN, value)
        except _LEAVES:
            raise
        except BaseException as error:
            self.fail(call, error)
        finally:
            self.drop(call)

    def run_now(self, event: Any, method: Callable[..., Any]) -> Optional[Event]:
        """Runs a plain method with small arguments when no other call waits. Returns the next event, if it came already.

        Most calls have no arguments and soon return ``None``. This path does as little as possible for them.
        """
        peer, number, name, clock = event.peer, event.call, event.texts[0], time.monotonic
        while True:
            began = clock()
            try:
                if event is None or event.parts == codec.EMPTY_PARTS:
                    value = method()
                else:
                    value = method(**self.arguments(Call(event)))
                self.was_long = clock() - began > _LONG
                if value is not None or self.was_long:
                    self.answer(_bare(peer, number, name), wire.RETURN, value)
                    return None
            except _LEAVES:
                raise
            except BaseException as error:
                self.was_long = clock() - began > _LONG
                self.fail(_bare(peer, number, name), error)
                return None
            came = self.calls.answer(peer, number, codec.NONE, self.quick)
            if type(came) is not tuple:
                return came
            (peer, number, (name, method)), event = came, None

    def run_generator(self, call: Call, items: Any) -> None:
        try:
            for item in items:
                self.take_credit(call)
                self.answer(call, wire.ITEM, item)
            self.answer(call, wire.STOP)
        except Cancel:
            pass
        finally:
            items.close()

    def take_credit(self, call: Call) -> None:
        """Waits until the reader has room for one more item."""
        if self.credited is None:
            # No other thread reads here, so each item checks for a cancellation.
            self.read(0)
            while call.credit <= 0 and not call.is_cancelled and not self.is_over:
                self.read(None)
            call.credit -= 1
        else:
            with self.credited:
                self.credited.wait_for(lambda: call.credit > 0 or call.is_cancelled or self.is_over)
                call.credit -= 1
        if call.is_cancelled or self.is_over:
            raise Cancel

    def make(self, first: Dict[str, Any]) -> Dict[str, str]:
        """Makes the object. Its methods are the answer."""
        args, kwargs = first["args"], dict(first["kwargs"])
        for name, value in _defaults(self.kind).items():
            os.environ.setdefault(name, str(value))
        if hasattr(self.kind, "configure_worker"):
            kwargs.update(self.configured())
        # Another controller makes another object.
        self.object, self.table, self.quick = None, {}, {}
        self.object = self.kind(*args, **kwargs)
        if not self.is_async:
            self.table = {
                name.encode(): getattr(self.object, name) for name, kind in self.methods.items() if kind == "plain"
            }
            # The value of a call begins with 0x80, which begins no character, so the end of a name is unambiguous.
            self.quick = {name + codec.EMPTY_PARTS[0]: (name, method) for name, method in self.table.items()}
        return self.methods

    def configured(self) -> Dict[str, Any]:
        """Applies `configure_worker` of the class: sets its environment variables, and returns its arguments."""
        devices = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        indices = None
        if os.environ.get("RLAUNCH_TIED_RANK", "0") == "0":
            size, node = int(os.environ.get("RLAUNCH_TIED_SIZE", "1")), int(os.environ.get("NODE_RANK", "0"))
            first = int(os.environ.get("LOCAL_RANK", "0"))
            indices = (node, list(range(first, first + size)))
        _, env, kwargs, *_ = self.kind.configure_worker(num_gpus=len(devices), bundle_indices=indices)  # type: ignore[attr-defined]
        for name, value in (env or {}).items():
            if name not in IDENTITY and not name.startswith("RLAUNCH_"):
                os.environ[name] = str(value)
        return dict(kwargs or {})

    def read(self, seconds: Optional[float]) -> None:
        """Reads the events that have come; without a time-out, waits for one."""
        event = self.calls.next(seconds)
        while event is not None:
            self.on_event(event)
            event = self.calls.next(0)

    def await_controller(self, name: str, is_first: bool) -> None:
        """Waits for the controller. If none comes, the first worker of a group prints a line."""
        until, event = time.monotonic() + _UNCALLED, None
        while event is None:
            left = until - time.monotonic()
            if is_first and left <= 0:
                is_first = False
                text = f"group {name} waits for a controller, which calls WorkerGroup.attach({name!r})"
                notice.say(f"rlaunch: after {_UNCALLED:g} s: {text}")
            event = self.calls.next(left if is_first else None)
        self.on_event(event)

    def serve(self) -> None:
        """Serves until the controller ends it, or is gone."""
        if self.is_async:
            self.serve_with_loop()
            return
        event: Optional[Event] = None
        while True:
            while self.waiting:
                if len(self.waiting) > 1:
                    self.read(0)  # A waiting call may have been cancelled.
                began = time.monotonic()
                self.run(self.waiting.popleft())
                self.was_long = time.monotonic() - began > _LONG
            if self.is_over:
                return
            event = event or self.calls.next(None)
            if event is None:
                continue
            if event.kind == wire.CALL and not self.was_long:
                method = self.table.get(event.texts[0])
                if method is not None and len(event.parts) == 1 and event.codec == codec.PICKLE:
                    event = self.run_now(event, method)
                    continue
            self.on_event(event)
            event = None
            if self.was_long:
                # More calls may have come meanwhile.
                self.was_long = False
                self.read(0)

    # ---- Asynchronous methods: on a thread with an event loop ----

    def serve_with_loop(self) -> None:
        import asyncio
        import queue
        import threading

        self.credited = threading.Condition()
        self.main = queue.SimpleQueue()
        loop = self.loop = asyncio.new_event_loop()
        loop.add_reader(self.calls.fileno(), self.on_readable)
        loop.call_soon(self.on_readable)  # The first frames may have been read with the previous one.

        def run_loop() -> None:
            try:
                while not self.is_over:  # A method may have stopped the loop.
                    loop.run_forever()
            except BaseException as error:
                # A task raised an exception that ends the worker; the main thread raises it.
                self.main.put(error)

        thread = threading.Thread(target=run_loop, name="rlaunch-worker-loop", daemon=True)
        thread.start()
        while True:
            call = self.main.get()
            if call is None:
                break
            if isinstance(call, BaseException):
                raise call
            self.run(call)
        # Cancelled tasks run their `finally` first.
        asyncio.run_coroutine_threadsafe(self.finish(), loop).result(timeout=5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5)

    def on_readable(self) -> None:
        event = self.calls.next(0)
        while event is not None:
            self.on_event(event)
            event = self.calls.next(0)

    async def finish(self) -> None:
        import asyncio

        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run_async(self, call: Call, kind: str) -> None:
        import asyncio

        try:
            kwargs = self.arguments(call)
            if self.object is None:
                raise RuntimeError("the object of this worker has not been made")
            method: Callable[..., Any] = getattr(self.object, call.method)
            if kind == "async":
                self.answer(call, wire.RETURN, await method(**kwargs))
            else:
                await self.run_stream(call, method(**kwargs))
        except _LEAVES as error:
            self.main.put(error)
        except BaseException as error:
            # A method that cancels itself still owes an answer.
            if not (isinstance(error, asyncio.CancelledError) and (call.is_cancelled or self.is_over)):
                self.fail(call, error)

    async def run_stream(self, call: Call, items: Any) -> None:
        try:
            async for item in items:
                while call.credit <= 0:
                    assert call.more is not None
                    call.more.clear()
                    await call.more.wait()
                self.answer(call, wire.ITEM, item)
                call.credit -= 1
            self.answer(call, wire.STOP)
        finally:
            await items.aclose()


def _number(*names: str, default: int = 0) -> int:
    texts = [os.environ.get(name, "") for name in names]
    return next((int(text) for text in texts if text.isdigit()), default)


def _host() -> str:
    """The launcher's name of this host, or else the host's own name."""
    return os.environ.get("RLAUNCH_HOST") or os.uname().nodename


def _had_children() -> bool:
    """Whether this process has ever had a child. If not, nothing else can be in its session, and /proc need not be searched."""
    if getsignal(SIGCHLD) != SIG_DFL:
        return True  # With ignored SIGCHLD, children that have exited are not counted.
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        # Each child that was waited for has had page faults. The import of the module resource would take longer.
        with open("/proc/self/stat", "rb") as file:
            # The name of the program is in brackets, and may have blanks and brackets itself.
            return int(file.read().rpartition(b")")[2].split()[8]) > 0
    return True


def main(arguments: List[str]) -> int:
    """Serves the class that is named by the first argument."""
    if len(arguments) != 1:
        raise SystemExit("rlaunch.groups.worker: one class is needed: python -m rlaunch.groups.worker pkg.mod.Class")
    group = os.environ.get("RLAUNCH_GROUP")
    if "RLAUNCH_JOB_ID" not in os.environ or not group:
        raise SystemExit(
            "rlaunch.groups.worker: this process is in no group: start it with rlaunch --group NAME -n 4 python -m rlaunch.groups.worker pkg.mod.Class"
        )
    # Collections skip the objects of the interpreter and of this package, also at the exit.
    gc.enable()
    gc.freeze()
    worker = Worker(class_of(arguments[0]))
    rank, size = _number("RANK", "RLAUNCH_RANK"), _number("WORLD_SIZE", "RLAUNCH_WORLD_SIZE", default=1)
    # A group may have only some of the hosts of the job: the controller may be on another host.
    is_far = os.environ.get("RLAUNCH_NODES", "1") != "1" or "RLAUNCH_WORLD" in os.environ
    try:
        worker.calls.serve(group, _host(), rank, size, _number("RLAUNCH_WORLD"), is_far)
        worker.await_controller(group, rank == 0)
        worker.serve()
        if os.getsid(0) == os.getpid() and _had_children():
            from rlaunch.groups import _sessions

            _sessions.end({os.getpid(): float("inf")}, _GRACE)
    except _errors.Error:
        import traceback

        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

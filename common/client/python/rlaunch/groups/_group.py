"""Groups of workers for a controller."""

from __future__ import annotations

import os
import sys
import time

from .. import _native as native
from .._errors import ConnectionFailed, Error, NoJob, Refused, StoreTimeout
from .._store import Store
from . import _calls as wire
from . import _codec as codec
from . import _notice as notice
from . import _sessions
from ._arena import Arena, default_limit
from ._calls import Event
from ._controller import Controller, Future, Stream, controller, get, rebuilt
from ._errors import CallTimeout, End, WorkerDied
from ._identity import refuse_while_importing
from ._sharding import NamedSharding, plan_multiple, plan_sharded, plan_single

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Union

_KEYWORDS_ONLY = (
    "{} will fail with args under certain circumstances. Please use kwargs instead. "
    "See https://github.com/NVIDIA-NeMo/RL/issues/582 for more details."
)

_OUTSIDE = "worker groups need a job: start this program with rlaunch (rlaunch -n 1 --lead python ...)"

_TIED = "tied is a number: as many workers after each other work on the same data"

_START = 600.0
"""Default of ``start_timeout`` in seconds."""

_PATIENCE = 1.0
"""Seconds to wait for the launcher's report of an end."""


class Worker:
    """Worker of a group. ``group.workers[0].method(name=value)`` returns a future, or a stream if the method is a generator."""

    def __init__(self, group: "WorkerGroup", rank: int, peer: native.Peer, arena: Optional[Arena]) -> None:
        self.group, self.rank, self.codec = group, rank, group._codec
        self.peer, self.pid, self.world = peer.peer, peer.pid, peer.world
        self.host = peer.host.decode("utf-8", "replace")
        self.is_near = bool(peer.is_near)
        self.arena = arena if self.is_near and arena is not None and arena.size else None
        self.has_arena = False
        self.death: Optional[WorkerDied] = None
        self.seen_at = _sessions.now()
        """Seconds from the start of the host to the last contact: until then its process had this number."""
        self.refusal = ""

    def __getattr__(self, name: str) -> "Method":
        if name.startswith("__"):
            raise AttributeError(name)
        self.group._check_method(name)
        # The next lookup finds the method at once.
        method = self.__dict__[name] = Method(self, name)
        return method

    def __repr__(self) -> str:
        return f"<rank {self.rank} of group {self.group.name} on {self.host}>"

    def make_death(self) -> BaseException:
        """Makes the error that all calls of this worker raise from now on."""
        if self.refusal:
            return ConnectionFailed(f"rank {self.rank} of group {self.group.name}: {self.refusal}")
        group, rank = self.group, self.rank
        return WorkerDied(group.name, rank, self.host, lambda: group._end_of(rank, _PATIENCE))

    def rebuilt(self, event: Event) -> BaseException:
        """The exception that one of its methods has raised."""
        return rebuilt(event, self.rank, self.host, self.codec)


class Method:
    """A method of one worker."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._name = worker, name

    def __call__(self, *args: Any, **kwargs: Any) -> Future:
        if args:
            raise TypeError(f"{self._name} of a worker takes keyword arguments only")
        return self._worker.group._call([self._worker.rank], self._name, kwargs)[0]

    remote = __call__


class MultiWorkerFuture:
    """Futures of a sharded call, and the ranks whose results `get_results` returns."""

    def __init__(
        self,
        futures: List[Future],
        return_from_workers: Optional[List[int]] = None,
        called_workers: Optional[List[int]] = None,
    ) -> None:
        self.futures = futures
        self.return_from_workers = return_from_workers
        self.called_workers = called_workers

    def _returned(self, values: Sequence[Any]) -> List[Any]:
        if self.return_from_workers is None:
            return list(values)
        if self.called_workers is None:
            return [values[worker] for worker in self.return_from_workers if worker < len(values)]
        positions = {worker: at for at, worker in enumerate(self.called_workers)}
        return [values[positions[worker]] for worker in self.return_from_workers if worker in positions]

    def get_results(self, worker_group: Any = None, return_generators_as_proxies: bool = False) -> List[Any]:
        """Waits for the results of ``return_from_workers``. If any method is a generator, returns the items of all calls in their order."""
        if return_generators_as_proxies:
            return self._returned(self.futures)
        if any(isinstance(future, Stream) for future in self.futures):
            results: List[Any] = []
            for future in self.futures:
                value = future.result()
                results.extend(value if isinstance(future, Stream) else [value])
            return results
        return self._returned(get(self.futures))


class WorkerGroup:
    """Group of workers whose methods this program calls.

    ``WorkerGroup("pkg.mod.Class", n=4)`` starts them, ``WorkerGroup.attach("gen")`` finds those that the command line has started. Method
    names and keywords are those of NeMo-RL's ``RayWorkerGroup``.
    """

    def __init__(
        self,
        worker: Union[str, type],
        args: Sequence[Any] = (),
        kwargs: Optional[Dict[str, Any]] = None,
        *,
        n: Optional[int] = None,
        ppn: Union[int, Sequence[int], None] = None,
        hosts: Optional[Sequence[str]] = None,
        sharding: Optional[NamedSharding] = None,
        env: Optional[Dict[str, str]] = None,
        share: Optional[str] = None,
        name: Optional[str] = None,
        tied: int = 0,
        start_timeout: float = _START,
        serializer: str = "pickle",
        arena: Optional[int] = None,
        python: Union[str, Sequence[str], None] = None,
    ) -> None:
        from ._start import ended, number, started

        tied = number(_TIED, tied)
        refuse_while_importing()
        kind = codec.codec_of(serializer)
        world = started(worker, n, ppn, hosts, env, share, name, tied, python)
        self._open(world.group, len(world.hosts), sharding, kind, arena, tied)
        self._world = world.number
        try:
            self._connect(args, kwargs, time.monotonic() + start_timeout, start_timeout)
        except BaseException:
            # All workers start or none, so the workers without a connection are ended as well.
            ended(self, True, 0.0)
            self._close()
            raise

    @classmethod
    def attach(
        cls,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Optional[Dict[str, Any]] = None,
        *,
        sharding: Optional[NamedSharding] = None,
        tied: int = 0,
        start_timeout: Optional[float] = None,
        serializer: str = "pickle",
        arena: Optional[int] = None,
    ) -> "WorkerGroup":
        """Connects to the group that the command line has started with ``--group NAME``. ``args`` and ``kwargs`` make the object of each worker.

        A name that no group of the job has is ``Refused``. With ``start_timeout`` another rank may start the group meanwhile.
        """
        from ._start import number

        tied = number(_TIED, tied)
        refuse_while_importing()
        group = cls.__new__(cls)
        group._open(name, None, sharding, codec.codec_of(serializer), arena, tied)
        seconds = _START if start_timeout is None else start_timeout
        until = time.monotonic() + seconds
        try:
            group._await_existence(start_timeout)
            group._connect(args, kwargs, until, seconds)
        except BaseException:
            group._close()
            raise
        return group

    def _open(
        self, name: str, size: Optional[int], sharding: Optional[NamedSharding], kind: int, arena: Optional[int], tied: int
    ) -> None:
        if "RLAUNCH_JOB_ID" not in os.environ:
            raise NoJob(_OUTSIDE)
        self.name = name
        self.sharding_annotations = sharding
        self.ends: Dict[int, End] = {}
        self._size, self._codec, self._tied, self._world = size, kind, max(1, tied), 0
        self._store = Store()
        self._controller: Controller = controller()
        self._arena = Arena(default_limit() if arena is None else arena)
        self._workers: List[Worker] = []
        self._methods: Dict[str, str] = {}
        self._all: List[Worker] = []
        self._called: Dict[Sequence[str], List[int]] = {}
        """Workers of a call with the same data for all, by the axes on which only coordinate 0 is called."""

    # ---- Start ----

    def _await_existence(self, seconds: Optional[float]) -> None:
        """Waits until the job has this group. Without a time-out, a group that does not exist is refused."""
        key = f"rlaunch/groups/{self.name}"
        if self._store.check([key]):
            return
        if seconds is None:
            hint = "for a group that another rank starts, give start_timeout=SECONDS"
            raise Refused(f"the job has no group {self.name!r}: {self._other_groups()}; {hint}")
        long = notice.Notice(lambda: f"group {self.name}, which the job does not have yet: {self._other_groups()}", notice.START)
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise CallTimeout(f"the job has no group {self.name!r} after {seconds:g} s: {self._other_groups()}")
            try:
                return self._store.wait([key], min(left, notice.START))
            except StoreTimeout:
                long.look()

    def _other_groups(self) -> str:
        """The groups of the job that have not ended, as a text."""
        groups = self._store.prefix("rlaunch/groups/")
        names = [key.decode() for key in groups.keys() if not _has_ended(groups, key, self._store)]
        return f"it has {', '.join(names)}" if names else "it has none"

    def _connect(self, args: Sequence[Any], kwargs: Optional[Dict[str, Any]], until: float, timeout: float) -> None:
        # Encoded first: an error of the encoding is raised before any worker is called.
        first = codec.encode({"args": tuple(args), "kwargs": dict(kwargs or {})}, self._codec)
        at = 0
        long = notice.Notice(lambda: f"rank {at} of group {self.name}, which does not serve calls yet", notice.START)
        self._attach_one(0, until, timeout, long)
        for at in range(1, self._size or 0):
            self._attach_one(at, until, timeout, long)
        self._workers = list(self._all)
        if self.sharding_annotations is not None:
            # A worker without coordinates is refused here, and not by the first call.
            plan_single(self.sharding_annotations, len(self._workers), [])
        near = [worker.peer for worker in self._workers if worker.arena is not None]
        if near:
            self._controller.calls.send(near, wire.ARENA, self._arena.size, [self._arena.path.encode()])
        made = self._controller.call(self._workers, "__init__", first, self._codec, Future, None)

        def late() -> str:
            return f"__init__ of {notice.ranks([one.rank for one in made if not one.done()])} of group {self.name}"

        long = notice.Notice(late, notice.START)
        while True:
            left = max(0.0, until - time.monotonic())
            # The first failure counts: the others may wait for that worker.
            try:
                get(made, min(left, notice.START))
                break
            except CallTimeout as error:
                if error.__cause__ is not None:
                    raise  # The error of a worker.
                if left <= notice.START:
                    raise CallTimeout(f"{late()} has not returned after {timeout:g} s") from None
                long.look()
        self._methods = made[0].result()

    def _attach_one(self, rank: int, until: float, timeout: float, long: notice.Notice) -> None:
        last: Optional[Exception] = None
        while True:
            left = until - time.monotonic()
            if left <= 0:
                text = f"rank {rank} of group {self.name} does not serve after {timeout:g} s"
                raise CallTimeout(f"{text}: {last}" if last is not None else text)
            try:
                peer = self._controller.calls.attach(self.name, rank, min(left, 0.5))
                break
            except (StoreTimeout, ConnectionFailed) as error:
                last = error
            for ended in sorted(self.ended_ranks()):
                end = self._end_of(ended, 0)
                if end is not None:
                    raise WorkerDied(self.name, ended, end.host, lambda: end)
            long.look()
            if isinstance(last, ConnectionFailed):
                time.sleep(0.02)
        worker = Worker(self, rank, peer, self._arena)
        self._size, self._world = peer.size, peer.world
        self._controller.workers[worker.peer] = worker
        self._all.append(worker)

    def __enter__(self) -> "WorkerGroup":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.shutdown(force=kind is not None)

    # ---- Workers ----

    @property
    def workers(self) -> List[Worker]:
        """All workers, by rank; empty after ``shutdown``."""
        return self._workers

    @property
    def worker_metadata(self) -> List[Dict[str, Any]]:
        """A dict for each worker. ``bundle_indices`` of the first of tied workers has the host and the local ranks of all of them."""
        hosts = list(dict.fromkeys(worker.host for worker in self._workers))
        seen: Dict[str, int] = {}
        metadata = []
        for worker in self._workers:
            local = seen[worker.host] = seen.get(worker.host, -1) + 1
            node, is_leader = hosts.index(worker.host), worker.rank % self._tied == 0
            metadata.append(
                {
                    "node_idx": node,
                    "local_rank": local,
                    "global_rank": worker.rank,
                    "name": f"{self.name}/{worker.rank}",
                    "bundle_indices": (node, list(range(local, local + self._tied))) if is_leader else None,
                    "dp_shard_idx": worker.rank // self._tied,
                }
            )
        return metadata

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return self._size or 0

    @property
    def dp_leader_worker_indices(self) -> List[int]:
        """The first worker of each tied group."""
        return list(range(0, len(self._workers), self._tied))

    @property
    def dp_size(self) -> int:
        """The number of data-parallel shards."""
        return len(self.dp_leader_worker_indices)

    def get_dp_leader_worker_idx(self, dp_shard_idx: int) -> int:
        """The worker that leads a data-parallel shard."""
        leaders = self.dp_leader_worker_indices
        if not 0 <= dp_shard_idx < len(leaders):
            raise IndexError(
                f"Data parallel shard index {dp_shard_idx} is out of range. Valid range is [0, {len(leaders) - 1}]"
            )
        return leaders[dp_shard_idx]

    def is_alive(self, rank: int) -> bool:
        """Whether a worker has not ended."""
        return self._all[rank].death is None

    # ---- Calls ----

    def _check_method(self, name: str) -> None:
        if not self._all:
            raise Refused(f"group {self.name} has been shut down: it takes no more calls")
        if self._methods and name not in self._methods:
            methods = ", ".join(sorted(self._methods))
            raise AttributeError(f"the workers of group {self.name} have no method {name!r}: they have {methods}")

    def _call(self, ranks: Sequence[int], method: str, kwargs: Any) -> List[Future]:
        self._check_method(method)
        return self._send(ranks, method, codec.encode(kwargs, self._codec))

    def _send(self, ranks: Sequence[int], method: str, parts: Sequence[Any]) -> List[Future]:
        make: Callable[..., Future] = Stream if "generator" in self._methods.get(method, "") else Future
        workers = [self._workers[rank] for rank in ranks]
        return self._controller.call(workers, method, parts, self._codec, make, self._arena)

    def run_single_worker_single_data(self, method_name: str, worker_idx: int, *args: Any, **kwargs: Any) -> Future:
        """Calls a method of one worker."""
        assert not args, _KEYWORDS_ONLY.format("run_single_worker_single_data")
        return self._call([worker_idx], method_name, kwargs)[0]

    def run_all_workers_single_data(
        self, method_name: str, *args: Any, run_rank_0_only_axes: Optional[List[str]] = None, **kwargs: Any
    ) -> List[Future]:
        """Calls a method with the same data on all workers, or on those with coordinate 0 on some axes."""
        assert not args, _KEYWORDS_ONLY.format("run_all_workers_single_data")
        if self.sharding_annotations is None:
            called = list(range(len(self._workers)))
        else:
            axes = tuple(run_rank_0_only_axes or ())
            called = self._called.get(axes)
            if called is None:
                called = self._called[axes] = plan_single(self.sharding_annotations, len(self._workers), axes).return_from
        return self._call(called, method_name, kwargs)

    def run_all_workers_multiple_data(
        self,
        method_name: str,
        *args: Any,
        run_rank_0_only_axes: Optional[List[str]] = None,
        common_kwargs: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> List[Future]:
        """Calls a method with one value of each keyword argument for each worker that is called."""
        assert not args, _KEYWORDS_ONLY.format("run_all_workers_multiple_data")
        assert kwargs, (
            "At least one args (positional arguments) or kwargs (keyword arguments) must be provided in "
            "run_all_workers_multiple_data. Otherwise, please use run_all_workers_single_data."
        )
        counts = [len(values) for values in kwargs.values()]
        assert all(count == counts[0] for count in counts), "All kwargs must have the same length"
        plan = plan_multiple(self.sharding_annotations, len(self._workers), counts[0], run_rank_0_only_axes)
        # Every value is taken, and encoded, before the first worker is called.
        calls = []
        for worker, at in plan.calls:
            own = {name: values[at[0]] for name, values in kwargs.items()} if at else {}
            calls.append((worker, {**own, **(common_kwargs or {})}))
        return self._call_each(method_name, calls)

    def run_all_workers_sharded_data(
        self,
        method_name: str,
        *args: Any,
        in_sharded_axes: Optional[List[str]] = None,
        replicate_on_axes: Optional[List[str]] = None,
        output_is_replicated: Optional[List[str]] = None,
        make_dummy_calls_to_free_axes: bool = False,
        common_kwargs: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> MultiWorkerFuture:
        """Calls a method on each worker with the part of the data for its coordinates."""
        assert not args, _KEYWORDS_ONLY.format("run_all_workers_sharded_data")
        plan = plan_sharded(
            self.sharding_annotations,
            len(self._workers),
            in_sharded_axes,
            replicate_on_axes,
            output_is_replicated,
            make_dummy_calls_to_free_axes,
        )
        shares: Dict[Any, Dict[str, Any]] = {}
        calls = []
        for worker, at in plan.calls:
            key = None if at is None else tuple(at)
            if key not in shares:
                shares[key] = {**_share(kwargs, key), **(common_kwargs or {})}
            calls.append((worker, shares[key]))
        futures = self._call_each(method_name, calls)
        return MultiWorkerFuture(futures, plan.return_from, [worker for worker, _ in plan.calls])

    def _call_each(self, method: str, calls: Sequence[Any]) -> List[Future]:
        """Calls several workers. Workers with the very same arguments share one encoded copy."""
        groups: Dict[int, List[int]] = {}
        values: Dict[int, Any] = {}
        for worker, kwargs in calls:
            groups.setdefault(id(kwargs), []).append(worker)
            values[id(kwargs)] = kwargs
        self._check_method(method)
        # All are encoded before the first worker is called.
        encoded = {key: codec.encode(kwargs, self._codec) for key, kwargs in values.items()}
        futures: Dict[int, Future] = {}
        for key, workers in groups.items():
            futures.update(zip(workers, self._send(workers, method, encoded[key])))
        return [futures[worker] for worker, _ in calls]

    def get_all_worker_results(
        self, future_bundle: MultiWorkerFuture, return_generators_as_proxies: bool = False
    ) -> List[Any]:
        """Waits for the results of a sharded call."""
        return future_bundle.get_results(self, return_generators_as_proxies=return_generators_as_proxies)

    # ---- Ends ----

    def _end_of(self, rank: int, patience: float) -> Optional[End]:
        """The end of a worker, if the launcher has written it."""
        key = f"rlaunch/ended/{self.name}/{rank}"
        try:
            if patience > 0:
                self._store.wait([key], patience)
            value = self._store.get(key)
        except Error:
            return None
        return None if value is None else End.parse(value)

    def _wait_for_ends(self, ranks: Sequence[int], patience: float) -> None:
        """Waits until the launcher has written how these ranks ended, or for so many seconds."""
        try:
            if ranks:
                self._store.wait([f"rlaunch/ended/{self.name}/{rank}" for rank in ranks], patience)
        except Error:
            pass  # The ends that have been written count.

    def ended_ranks(self) -> List[int]:
        """Ranks of which the launcher has written that they have ended."""
        try:
            names = [key.decode("utf-8", "replace") for key in self._store.prefix(f"rlaunch/ended/{self.name}/").keys()]
        except Error:
            return []
        return [int(name) for name in names if name.isdigit()]

    def shutdown(
        self, cleanup_method: Optional[str] = None, timeout: Optional[float] = 30.0, force: bool = False
    ) -> bool:
        """Ends all workers. Before that, ``cleanup_method`` is called on each, for up to ``timeout`` seconds, unless ``force`` is given.

        True: the cleanup returned on each worker that was alive, and each of these ended with exit code 0, or because rlaunch ended it.
        A worker that died earlier does not count: its calls have failed. ``group.ends`` has the end of each worker.
        """
        if not self._all:
            return True
        is_well = True
        alive = [worker for worker in self._workers if worker.death is None]
        if cleanup_method is not None and not force and alive:
            is_well = self._clean_up(alive, cleanup_method, timeout)
            force = not is_well
        from ._start import ended

        is_well = ended(self, force, timeout) and is_well
        self._close()
        return is_well

    def _clean_up(self, alive: Sequence[Worker], method: str, timeout: Optional[float]) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        futures = self._call([worker.rank for worker in alive], method, {})
        is_well = True
        for future in futures:
            try:
                future.result(None if until is None else max(0.0, until - time.monotonic()))
            except WorkerDied:
                pass
            except Exception as error:
                is_well = False
                print(f"rlaunch: {method} of rank {future.rank} of group {self.name} failed: {error}", file=sys.stderr)
        return is_well

    def _close(self) -> None:
        for worker in self._all:
            self._controller.calls.detach(worker.peer)
            if worker.death is None:
                self._controller.on_end(worker)
            self._controller.workers.pop(worker.peer, None)
        self._workers, self._all = [], []


def _has_ended(groups: Store, name: bytes, store: Store) -> bool:
    """Whether all ranks of a group have ended."""
    size = int((groups.get(name) or b"").partition(b"size=")[2].split(b"\n")[0] or 0)
    return len(store.keys(b"rlaunch/ended/" + name + b"/")) >= size


def _share(kwargs: Dict[str, Any], at: Any) -> Dict[str, Any]:
    """The part of the data at these indices; ``None`` for each of a call without data."""
    if at is None:
        return {name: None for name in kwargs}
    share = {}
    for name, value in kwargs.items():
        for index in at:
            value = value[index]
        share[name] = value
    return share

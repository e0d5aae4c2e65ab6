"""Starting and ending the workers of a group, by the job's launcher."""

from __future__ import annotations

import operator
import os
import sys
from _signal import SIGKILL, SIGTERM

from .._errors import Error, NoJob
from . import _calls as wire
from . import _sessions
from ._errors import End

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

_GRACE = 5.0
"""Seconds between TERM and KILL."""


def path_of(worker: Any) -> Tuple[str, str]:
    """The path of a class, and the directory of its module if that is the program itself."""
    if isinstance(worker, str):
        return worker, ""
    if not isinstance(worker, type) or "<locals>" in worker.__qualname__ or "." in worker.__qualname__:
        raise TypeError(f"a worker is a class at the top of a module, or its path as a str (pkg.mod.Class), got {worker!r:.80}")
    if worker.__module__ != "__main__":
        return f"{worker.__module__}.{worker.__name__}", ""
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        raise TypeError(f"{worker.__name__} is in no file: write it in a module, which the workers import")
    directory, name = os.path.split(os.path.abspath(main))
    return f"{os.path.splitext(name)[0]}.{worker.__name__}", directory


def started(
    worker: Any,
    n: Optional[int],
    ppn: Union[int, Sequence[int], None],
    hosts: Optional[Sequence[str]],
    env: Optional[Dict[str, str]],
    share: Optional[str],
    name: Optional[str],
    tied: int,
    python: Optional[str],
) -> Any:
    """Starts all workers as a world of this job, or none."""
    if "RLAUNCH_JOB_ID" not in os.environ:
        raise NoJob("worker groups need a job: start this program with rlaunch (rlaunch -n 1 --lead python ...)")
    from .._spawn import spawn

    path, directory = path_of(worker)
    env = {key: str(value) for key, value in (env or {}).items()}
    if directory:
        before = env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, before]))
    argv = [python or sys.executable, "-m", "rlaunch.groups.worker", path]
    programs = [
        {"argv": argv, "ranks": count, "env": env, "hosts": names} for count, names in _places(n, ppn, hosts)
    ]
    return spawn(programs, group=name or "", share=share or "", tied=tied, tolerant=True, bound=True)


def _places(
    n: Optional[int], ppn: Union[int, Sequence[int], None], hosts: Optional[Sequence[str]]
) -> List[Tuple[int, List[str]]]:
    """Numbers of workers, each with the hosts that they may be on; no hosts: the launcher chooses."""
    if n is not None:
        try:
            n = operator.index(n)
        except TypeError:
            raise TypeError(f"n is a number of workers, got {n!r:.80}") from None
    if ppn is None:
        if n is None or n < 1:
            raise ValueError(f"a group has at least one worker: n={n!r}")
        return [(n, list(hosts or ()))]
    if not hosts:
        raise ValueError("ppn needs hosts: the names of the hosts that the workers are to run on")
    counts = [ppn] * len(hosts) if isinstance(ppn, int) else list(ppn)
    if len(counts) != len(hosts):
        raise ValueError(f"ppn has {len(counts)} numbers for {len(hosts)} hosts")
    if min(counts) < 0 or sum(counts) < 1:
        raise ValueError(f"a group has at least one worker: ppn={ppn!r}")
    if n is not None and n != sum(counts):
        raise ValueError(f"n={n}, and ppn asks for {sum(counts)} workers")
    return [(count, [host]) for host, count in zip(hosts, counts) if count]


def ended(group: Any, force: bool, timeout: Optional[float]) -> bool:
    """Ends all workers of a group, and waits until they have. Whether each ended as it was to."""
    controller, workers = group._controller, list(group._all)
    were_dead = {worker.rank for worker in workers if worker.death is not None}
    alive = [worker for worker in workers if worker.rank not in were_dead]

    def wait(patience: float) -> None:
        controller.wait(lambda: all(worker.death is not None for worker in alive), patience, lambda: f"the end of group {group.name}")

    if not force:
        controller.calls.send([worker.peer for worker in alive], wire.END)
        patience = _GRACE if timeout is None else min(_GRACE, max(timeout, 0.1))
        wait(patience)
        # A process exits some time after its connection has ended: an order to end would find it on its way.
        _collect(group, [worker for worker in alive if worker.death is not None])
    if group._world:
        from .._spawn import end_world

        # What a worker has started ends with its session.
        try:
            end_world(group._world, 0.0 if force else None)
        except Error as error:
            # After the end of all workers there may be nothing left to end.
            if any(worker.death is None for worker in alive):
                print(f"rlaunch: group {group.name} cannot be ended: {error}", file=sys.stderr)
    else:
        _signal(alive, SIGTERM)
    wait(_GRACE * 2)
    if not group._world:
        _signal(alive, SIGKILL)
        wait(_GRACE)
    near = {worker.pid for worker in workers if worker.is_near and worker.death is not None}
    if near:
        _sessions.end(near, 0.0 if force else _GRACE)
    _collect(group, workers)
    is_gone = all(worker.death is not None for worker in workers)
    return is_gone and all(_is_well(group.ends[worker.rank]) for worker in workers if worker.rank not in were_dead)


def _is_well(end: End) -> bool:
    return end.asked or end.how == "unknown" or (end.how == "exit" and end.code == 0)


def _collect(group: Any, workers: Sequence[Any]) -> None:
    unknown = [worker for worker in workers if getattr(group.ends.get(worker.rank), "how", "unknown") == "unknown"]
    # All at once: each wait of its own would be one more way to the launcher and back.
    group._wait_for_ends([worker.rank for worker in unknown], 1.0)
    for worker in unknown:
        group.ends[worker.rank] = group._end_of(worker.rank, 0) or End("unknown", host=worker.host)


def _signal(workers: Sequence[Any], signo: int) -> None:
    """Signals the sessions of workers on this host that have not ended."""
    for worker in workers:
        if worker.death is None and worker.is_near:
            try:
                os.killpg(worker.pid, signo)
            except (ProcessLookupError, PermissionError):
                pass

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

_WORKER = (
    "import gc, sys; gc.disable(); cut = sys.argv.index('', 2); "
    "sys.path[:] = dict.fromkeys([*sys.argv[2:cut], *filter(None, sys.path), *sys.argv[cut + 1:]]); del sys.argv[2:]; "
    "from {} import main; sys.exit(main(sys.argv[1:]))"
)
"""Program of a worker. Its words are an argument, and the paths before and after those of the interpreter.

With ``-c`` and ``-m`` Python looks for modules in the current directory first, which may belong to another user. This program imports only
built-in modules before it has removed that directory.
"""


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


def program(
    argument: str, directory: str, python: Union[str, Sequence[str], None], former: str, module: str = "rlaunch.groups.worker"
) -> List[str]:
    """The words of a program that calls ``main`` of a module. It looks for modules where this program does, but for a former PYTHONPATH."""
    paths = [os.path.abspath(path) for path in sys.path if isinstance(path, str)]
    replaced = {os.path.abspath(path) for path in former.split(os.pathsep)} if former else ()
    library, archive = os.path.dirname(os.__file__), f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    cut = next((at for at, path in enumerate(paths) if path == library or os.path.basename(path) == archive), len(paths))
    front = [*filter(None, [directory]), *(path for path in paths[:cut] if path not in replaced)]
    if not python:
        flags = {"isolated": "-I", "ignore_environment": "-E", "no_user_site": "-s", "no_site": "-S"}
        python = [sys.executable, *(flag for name, flag in flags.items() if getattr(sys.flags, name))]
    else:
        # Another interpreter may have another standard library.
        python, paths = [python] if isinstance(python, str) else list(python), []
    return [*python, "-c", _WORKER.format(module), argument, *front, "", *paths[cut:]]


def _at_start() -> Dict[str, str]:
    """The environment with which this program was started."""
    with open("/proc/self/environ", "rb") as file:
        entries = os.fsdecode(file.read()).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def started(
    worker: Any,
    n: Optional[int],
    ppn: Union[int, Sequence[int], None],
    hosts: Optional[Sequence[str]],
    env: Optional[Dict[str, str]],
    share: Optional[str],
    name: Optional[str],
    tied: int,
    python: Union[str, Sequence[str], None],
) -> Any:
    """Starts all workers as a world of this job, or none."""
    if "RLAUNCH_JOB_ID" not in os.environ:
        raise NoJob("worker groups need a job: start this program with rlaunch (rlaunch -n 1 --lead python ...)")
    from .._spawn import spawn

    path, directory = path_of(worker)
    if not isinstance(env or {}, dict):
        raise TypeError(f"env is one dict for all workers, got {env!r:.80}: configure_worker of the class returns variables for each")
    before = _at_start()
    # Variables of devices are not passed on: a worker has devices of its own.
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value and "_VISIBLE_" not in name}
    env = {**changed, **{key: str(value) for key, value in (env or {}).items()}}
    argv = program(path, directory, python, before.get("PYTHONPATH", "") if "PYTHONPATH" in env else "")
    programs = [
        {"argv": argv, "ranks": count, "env": env, "hosts": names} for count, names in _places(n, ppn, hosts)
    ]
    return spawn(programs, group=name or "", share=share or "", tied=tied, tolerant=True, bound=True)


def number(meaning: str, value: Any) -> int:
    """A number that is 0 or more. Other values raise an error that names the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{meaning}, got {value!r:.80}") from None
    if not 0 <= number < 1 << 32:
        raise ValueError(f"{meaning}, got {number}")
    return number


def _places(
    n: Optional[int], ppn: Union[int, Sequence[int], None], hosts: Optional[Sequence[str]]
) -> List[Tuple[int, List[str]]]:
    """Numbers of workers, each with the hosts that they may be on; no hosts: the launcher chooses."""
    if n is not None:
        n = number("n is a number of workers", n)
    names = list(hosts or ())
    if isinstance(hosts, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"hosts is a list of names, got {hosts!r:.80}")
    if ppn is None:
        if not n:
            raise ValueError(f"a group has at least one worker: n={n!r}")
        return [(n, names)]
    if not names:
        raise ValueError("ppn needs hosts: the names of the hosts that the workers are to run on")
    meaning = "ppn is a number of workers for each host, or a list of such numbers"
    counts = [number(meaning, one) for one in ppn] if isinstance(ppn, (list, tuple)) else [number(meaning, ppn)] * len(names)
    if len(counts) != len(names):
        raise ValueError(f"ppn has {len(counts)} numbers for {len(names)} hosts")
    if sum(counts) < 1:
        raise ValueError(f"a group has at least one worker: ppn={ppn!r}")
    if n is not None and n != sum(counts):
        raise ValueError(f"n={n}, and ppn asks for {sum(counts)} workers")
    return [(count, [host]) for host, count in zip(names, counts) if count]


def ended(group: Any, force: bool, timeout: Optional[float]) -> bool:
    """Ends all workers of a group, and waits for their ends. Returns whether each ended as it should."""
    controller, workers = group._controller, list(group._all)
    were_dead = {worker.rank for worker in workers if worker.death is not None}
    alive = [worker for worker in workers if worker.rank not in were_dead]

    def wait(patience: float) -> None:
        controller.wait(lambda: all(worker.death is not None for worker in alive), patience, lambda: f"the end of group {group.name}")

    def signal(signo: int) -> None:
        _sessions.send({worker.pid: worker.seen_at for worker in alive if worker.is_near and worker.death is None}, signo)

    if not force:
        controller.calls.send([worker.peer for worker in alive], wire.END)
        patience = _GRACE if timeout is None else min(_GRACE, max(timeout, 0.1))
        wait(patience)
        # A process exits some time after its connection has ended. An order to end it might come before that.
        _collect(group, [worker for worker in alive if worker.death is not None])
    if group._world:
        from .._spawn import end_world

        # Processes that a worker has started are ended with its session.
        try:
            end_world(group._world, 0.0 if force else None)
        except Error as error:
            # After the end of all workers there may be nothing left to end.
            if any(worker.death is None for worker in alive):
                print(f"rlaunch: group {group.name} cannot be ended: {error}", file=sys.stderr)
    else:
        signal(SIGTERM)
    wait(_GRACE * 2)
    if not group._world:
        signal(SIGKILL)
        wait(_GRACE)
    near = {worker.pid: worker.seen_at for worker in workers if worker.is_near and worker.death is not None}
    if near:
        _sessions.end(near, 0.0 if force else _GRACE)
    _collect(group, workers)
    is_gone = all(worker.death is not None for worker in workers)
    return is_gone and all(_is_well(group.ends[worker.rank]) for worker in workers if worker.rank not in were_dead)


def _is_well(end: End) -> bool:
    return end.asked or (end.how == "exit" and end.code == 0)


def _collect(group: Any, workers: Sequence[Any]) -> None:
    unknown = [worker for worker in workers if getattr(group.ends.get(worker.rank), "how", "unknown") == "unknown"]
    # One wait for all: separate waits would each take a round trip to the launcher.
    group._wait_for_ends([worker.rank for worker in unknown], 1.0)
    for worker in unknown:
        group.ends[worker.rank] = group._end_of(worker.rank, 0) or End("unknown", host=worker.host)


"""Calls of functions on the hosts of a pool. Results come by the names of the hosts.

    from rlaunch import pool

    pool.execute_on_each_host("train", os.listdir, "/scratch")      # {"node01": ["data"], "node02": []}
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import secrets
import shutil
import subprocess
import sys

from ._errors import Error, Refused
from .groups import RemoteTraceback, WorkerError, _codec, _start

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

_CHUNK = 3000
"""Bytes of a line of the result. The kernel writes them to a pipe as a whole."""


class HostsFailed(Error):
    """Error of a function that has failed on a host. ``errors`` and ``results`` have what there is, by the names of the hosts."""

    def __init__(self, errors: Dict[str, Exception], results: Dict[str, Any]) -> None:
        super().__init__(errors, results)
        self.errors, self.results = errors, results

    def __str__(self) -> str:
        return "\n".join(f"{host}: {error if isinstance(error, Error) else _codec.named(error)}" for host, error in self.errors.items())


def execute_on_each_host(name: str, function: Callable[..., Any], /, *args: Any, **options: Any) -> Dict[str, Any]:
    """Calls a function once on each host of the pool that can be used, and returns the results by the names of the hosts, in their order.

    ``HostsFailed``: the function has failed on a host. ``Refused``: there are no hosts; the text has the reason.
    ``env``: a dict of variables. ``wdir``: the directory on the hosts. ``wait``: seconds to wait for hosts that other jobs have, or True.
    Other keyword arguments are those of the function. The output of the function is printed at the end, with the name of the host.
    """
    return {host: value for _, host, value in _executed(name, function, args, **options)}


def execute_on_each_slice(name: str, function: Callable[..., Any], /, *args: Any, **options: Any) -> Dict[str, Dict[str, Any]]:
    """Calls a function like `execute_on_each_host`. Returns the results of each slice by the names of the slices."""
    slices: Dict[str, Dict[str, Any]] = {}
    for of, host, value in _executed(name, function, args, **options):
        slices.setdefault(of, {})[host] = value
    return slices


def _executed(
    name: str,
    function: Callable[..., Any],
    args: Tuple[Any, ...],
    env: Optional[Dict[str, str]] = None,
    wdir: Optional[str] = None,
    wait: Any = None,
    **kwargs: Any,
) -> List[Tuple[str, str, Any]]:
    # Other users can read the words and the names of processes, but not what goes through a pipe.
    mark = secrets.token_hex(16)
    options = ["--json", "--stdin", "all", *([f"--wdir={wdir}"] if wdir else [])]
    if wait is not None and wait is not False:
        options.append("--wait" if wait is True else f"--wait={float(wait)}s")
    job = [_program(), "pool", "exec", *options, name, *_start.program("", "", None, "", __name__)]
    call = _call(mark, env, function, args, kwargs)
    with subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            out, err = (stream.decode("utf-8", "replace") for stream in running.communicate(call))
        except BaseException:
            # The job ends its ranks, and this process waits for that.
            running.terminate()
            raise
    hosts = json.loads(out)["results"] if out.startswith("{") else []
    if not hosts:
        raise Refused(err.strip() or f"rlaunch pool exec {name} exited with code {running.returncode}")
    sys.stderr.write(err)
    results, errors = [], {}
    for host in hosts:
        try:
            results.append((host["slice"], host["host"], _value(host, mark)))
        except Exception as error:
            errors[host["host"]] = error
    if errors:
        raise HostsFailed(errors, {host: value for _, host, value in results}) from next(iter(errors.values()))
    return results


def _program() -> str:
    from ._launcher import launcher

    try:
        return launcher()
    except FileNotFoundError:
        found = shutil.which("rlaunch")
        if found is None:
            raise
        return found


def _pickler() -> Any:
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


def _call(mark: str, env: Optional[Dict[str, str]], function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bytes:
    """The standard input of the program on a host: the call of the function, and the mark of the result."""
    call = _pickler().dumps((function, args, kwargs))
    main = None
    if b"__main__" in call:
        main = getattr(sys.modules["__main__"], "__file__", None)
        if main is None:
            raise TypeError(f"{function!r:.80} is in no file: write it in a module, which the hosts import, or install cloudpickle")
        # Modules of this name are the program itself, also for pickle.
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    variables = {key: str(value) for key, value in (env or {}).items()}
    return pickle.dumps((mark, variables, main and os.path.abspath(main), call))


def _value(host: Dict[str, Any], mark: str) -> Any:
    """The result on a host. Prints the output of the function on that host."""
    sent = []
    for stream, key in ((sys.stdout, "output"), (sys.stderr, "errors")):
        for line in host[key].splitlines(keepends=True):
            text, _, part = line.partition(mark)
            sent.append(part.strip())
            if text:
                stream.write(f"{host['host']}: {text.rstrip()}\n")
    if not any(sent):
        end = f"was killed by {host['signal']}" if host["signal"] else f"exited with code {host['code']}"
        raise Error(f"the function returned no result: its process {'was lost' if host['code'] is None and not host['signal'] else end}")
    is_good, value, texts = pickle.loads(base64.b64decode("".join(sent)))
    if is_good:
        return pickle.loads(value)
    error = pickle.loads(value) if value else WorkerError(host["rank"], *texts)
    error.__cause__ = RemoteTraceback(host["rank"], host["host"], texts[2])
    raise error


def main(arguments: List[str]) -> int:
    """Calls the function on a host, and prints the result as lines that begin with a mark. Both come from standard input."""
    import gc

    gc.enable()
    with open(0, "rb", closefd=False) as given:
        mark, env, program, call = pickle.loads(given.read())
    # The function has no input.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.update(env)
    try:
        if program:
            from multiprocessing.spawn import import_main_path

            import_main_path(program)
        function, args, kwargs = pickle.loads(call)
        answer = True, _pickler().dumps(function(*args, **kwargs)), ()
    except Exception as error:
        parts = _codec.encode_error(error, _codec.PICKLE)
        answer = False, bytes(parts[0]) if parts else b"", [text.decode() for text in _codec.described(error)]
    sys.stdout.flush()
    data = base64.b64encode(pickle.dumps(answer)).decode()
    with open(1, "w", closefd=False) as out:
        for at in range(0, len(data), _CHUNK):
            out.write(f"{mark}{data[at : at + _CHUNK]}\n")
            out.flush()
    return 0

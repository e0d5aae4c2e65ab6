"""Small functions of NVRx that scripts use."""

import contextlib
import functools
import logging
import re
import time
from typing import Any


def torch_older_than(version: str) -> bool:
    """Whether the torch that is loaded is older."""
    import torch

    def numbers(text: str) -> list:
        return [int(part) for part in re.match(r"[\d.]*", text).group().strip(".").split(".")]

    return numbers(torch.__version__) < numbers(version)


def described(error: BaseException) -> str:
    """An exception as a text for other processes: its type, and its message if that can be made."""
    name = type(error).__name__
    for text in (str, repr):
        try:
            words = text(error)
        except Exception:
            continue
        return f"{name}: {words}" if words else name
    return name


def format_exc(exc: BaseException) -> str:
    """An exception and its causes."""
    chain = []
    while exc is not None:
        chain.append(repr(exc))
        exc = exc.__cause__
    return " <- ".join(chain)


def log_exc(rank_or_state: Any, exc: BaseException, name: str) -> str:
    """An exception and its causes, with the rank and a name."""
    rank = rank_or_state if isinstance(rank_or_state, int) else rank_or_state.rank
    return f"rank={rank} {name}: {format_exc(exc)}"


@contextlib.contextmanager
def _timed(name: str):
    log = logging.getLogger("rlaunch.inprocess")
    log.debug("begins: %s", name)
    start = time.perf_counter()
    try:
        yield
    finally:
        log.debug("ends after %.4f s: %s", time.perf_counter() - start, name)


def log_exec(target: Any) -> Any:
    """Decorator, or context with a name, that logs the duration of a call."""
    if not callable(target):
        return _timed(target)

    @functools.wraps(target)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _timed(f"{target.__module__}.{target.__qualname__}"):
            return target(*args, **kwargs)

    return wrapped

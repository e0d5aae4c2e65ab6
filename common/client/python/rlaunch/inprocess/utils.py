"""Small things of NVRx's that scripts use."""

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


def told(error: BaseException) -> str:
    """An exception in words, for others: what it is, and its text. One that cannot be written is still an exception."""
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
    """The same, with whose it is."""
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
    """As a decorator, or as a context with a name: tells on the log how long something takes."""
    if not callable(target):
        return _timed(target)

    @functools.wraps(target)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _timed(f"{target.__module__}.{target.__qualname__}"):
            return target(*args, **kwargs)

    return wrapped

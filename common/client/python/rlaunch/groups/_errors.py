"""Errors of workers."""

from __future__ import annotations

import collections

from .._errors import Error

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Optional


class End(collections.namedtuple("End", "how code signal asked host last_words", defaults=(-1, 0, False, "", ""))):
    """End of a worker.

    ``how`` is ``exit``, ``signal``, ``not_started``, ``host_lost`` or ``unknown``. ``code`` is its exit code as a shell shows it; -1: not
    known. ``asked``: rlaunch had ordered it to end. ``last_words`` is the end of its stderr.
    """

    __slots__ = ()

    @staticmethod
    def parse(data: bytes) -> "End":
        """Parses the entry that the launcher has written."""
        head, _, words = data.partition(b"\n\n")
        fields = dict(line.split("=", 1) for line in head.decode("utf-8", "replace").split("\n") if "=" in line)

        def number(name: str, default: int) -> int:
            text = fields.get(name, "")
            return int(text) if text.lstrip("-").isdigit() else default

        asked = fields.get("asked") == "1"
        last_words = words.decode("utf-8", "replace") or fields.get("error", "")
        how, host = fields.get("how", "unknown"), fields.get("host", "")
        return End(how, number("code", -1), number("signal", 0), asked, host, last_words)

    def __str__(self) -> str:
        if self.asked:
            return "was ended by rlaunch"
        texts = {
            "exit": f"exited with code {self.code}",
            "signal": f"was killed by signal {self.signal}",
            "not_started": "could not be started",
            "host_lost": "was lost with its host",
        }
        return texts.get(self.how, "ended for an unknown reason")


class WorkerDied(Error):
    """Error of all calls of a worker that has ended."""

    def __init__(self, group: str, rank: int, host: str, find: Callable[[], Optional[End]]) -> None:
        super().__init__(group, rank, host)
        self.group, self.rank, self.host = group, rank, host
        self._find: Optional[Callable[[], Optional[End]]] = find
        self._end: Optional[End] = None

    @property
    def end(self) -> End:
        """The end of the worker, as the launcher found it. Waits for it for up to one second."""
        find, self._find = self._find, None
        if find is not None:
            self._end = find()
        return self._end or End("unknown", host=self.host)

    @property
    def how(self) -> str:
        """The end of the worker, as a text."""
        return str(self.end)

    @property
    def last_words(self) -> str:
        """The last lines that the worker wrote to stderr."""
        return self.end.last_words

    def __str__(self) -> str:
        words = self.last_words.strip()
        text = f"rank {self.rank} of group {self.group} on {self.host} {self.how}"
        return f"{text}; its last words:\n{words}" if words else text

    def __reduce__(self) -> Any:
        return _died, (self.group, self.rank, self.host, self.end)


def _died(group: str, rank: int, host: str, end: End) -> WorkerDied:
    return WorkerDied(group, rank, host, lambda: end)


class WorkerError(Error):
    """Error of a method whose exception cannot be rebuilt here: the rank, and the type, text and traceback of the exception."""

    def __init__(self, rank: int, type_name: str, text: str, traceback: str) -> None:
        super().__init__(rank, type_name, text, traceback)
        self.rank, self.type_name, self.text, self.traceback = rank, type_name, text, traceback

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.type_name}: {self.text}"


class RemoteTraceback(Exception):
    """Cause of an exception that a method has raised, with the rank, the host and the traceback."""

    def __init__(self, rank: int, host: str, traceback: str) -> None:
        super().__init__(rank, host, traceback)
        self.rank, self.host, self.traceback = rank, host, traceback

    def __str__(self) -> str:
        return f"\nrank {self.rank} on {self.host}:\n{self.traceback}"


class Cancelled(Error):
    """Error of a call that was cancelled."""


class CallTimeout(Error, TimeoutError):
    """Error of a wait whose time has passed."""

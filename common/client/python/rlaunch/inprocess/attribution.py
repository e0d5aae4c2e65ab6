"""Kinds of faults, as NVRx names them."""

import collections
import dataclasses
import enum
import re
from typing import Iterable


class Interruption(enum.Enum):
    """Kind of an interruption."""

    EXCEPTION = enum.auto()
    BASE_EXCEPTION = enum.auto()
    SOFT_TIMEOUT = enum.auto()
    HARD_TIMEOUT = enum.auto()
    TERMINATED = enum.auto()
    UNRESPONSIVE = enum.auto()
    MONITOR_PROCESS_EXCEPTION = enum.auto()


@dataclasses.dataclass(frozen=True)
class InterruptionRecord:
    """Interruption of a rank."""

    rank: int
    interruption: Interruption

    @classmethod
    def from_str(cls, string: str) -> "InterruptionRecord":
        """The record with this ``str``."""
        rank, name = re.search(r"rank=(\d+)", string), re.search(r"Interruption\.(\w+)", string)
        if rank is None or name is None:
            raise ValueError(f"{string!r} is no record of an interruption")
        return cls(rank=int(rank.group(1)), interruption=Interruption[name.group(1)])


def format_interruption_records(records: Iterable[InterruptionRecord]) -> str:
    """The records as a text: each kind with its ranks."""
    ranks = collections.defaultdict(set)
    for record in records:
        ranks[record.interruption].add(record.rank)
    return ", ".join(f"{interruption} on ranks={who}" for interruption, who in ranks.items())

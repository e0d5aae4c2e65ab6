"""A case: one line of the benchmark's question, asked of several contenders in turn."""

import dataclasses
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Goal:
    """A figure that binds. `against` None: the value itself; else the ratio of rlaunch's median to that contender's."""

    limit: float
    against: str | None = None
    at_least: bool = False
    who: str = "rlaunch"

    def met(self, value):
        """Whether a figure reaches the goal."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self):
        sign = ">=" if self.at_least else "<="
        return f"{self.who} {sign} {self.limit:g}" + (f" x {self.against}" if self.against else "")


@dataclasses.dataclass
class Case:
    """Case of a benchmark: the callable of each contender takes one sample."""

    name: str
    unit: str
    contenders: dict[str, Callable]
    floor: str | None = None
    goals: tuple = ()
    max_rounds: int = 1000
    """Limit of rounds for steady or slow cases."""
    max_sittings: int = 1000


@dataclasses.dataclass
class Bench:
    """Arguments of the rows: tools, launchers, sizes."""

    clock: object
    programs: dict
    launchers: dict
    scratch: str
    quick: bool = False
    full: bool = False
    without: tuple = ()
    """Peers that are left out."""
    stdin_bytes: int = 1 << 30
    megabytes_per_rank: int = 25
    torchrun: object = None
    """A launcher for the rows that take seconds with it; None without --torchrun."""
    hosts: object = None
    """The testbed of the rows that need hosts, once one of them is asked for."""
    cluster: object = None
    """The testbed of the rows that need Slurm, once one of them is asked for."""

    def size(self, usual, quick):
        """A size, smaller when only a quick look is wanted."""
        return quick if self.quick else usual

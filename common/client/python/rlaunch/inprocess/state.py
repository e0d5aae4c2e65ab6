"""State of a rank in a round."""

import dataclasses
import enum
import os
from typing import Any, NamedTuple, Optional


class Mode(enum.Enum):
    """Activity of a rank."""

    INITIALIZED = enum.auto()
    """Before the first assignment."""
    ACTIVE = enum.auto()
    """The rank runs the function."""
    INACTIVE = enum.auto()
    """The rank waits in reserve."""
    TERMINATED = enum.auto()
    """The rank takes part in no further round."""


class Fault(NamedTuple):
    """Event that ended a round."""

    kind: str
    """Kind of the fault: ``exception``, ``hang``, ``ended``, ``overdue``, ``left``, ``host_lost``, ``warned``, ``joined``."""
    rank: int
    """Initial rank of the process with the fault."""
    text: str
    """Description; may be empty."""


@dataclasses.dataclass
class State:
    """State of a rank. ``rank`` and ``world_size`` count all healthy ranks. ``active_rank`` and ``active_world_size`` count the active ranks, and
    are RANK and WORLD_SIZE. ``initial_rank`` never changes.
    """

    rank: Optional[int]
    world_size: int

    active_rank: Optional[int] = None
    active_world_size: Optional[int] = None

    initial_rank: Optional[int] = None
    initial_world_size: Optional[int] = None

    iteration: int = 0
    mode: Mode = Mode.INITIALIZED
    fn_exception: Optional[Exception] = None
    fault: Optional[Fault] = None
    """Fault that ended the previous round. After the end of this round: the fault that ended this one."""

    def __post_init__(self) -> None:
        if self.initial_rank is None:
            self.initial_rank = self.rank
        if self.initial_world_size is None:
            self.initial_world_size = self.world_size

    @classmethod
    def from_env(cls) -> "State":
        """The state for RANK and WORLD_SIZE of the environment. Without them, a world of one."""
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        return cls(rank=rank, world_size=size, initial_rank=rank, initial_world_size=size)

    def set_distributed_vars(self) -> None:
        """Sets RANK and WORLD_SIZE for this state. An inactive rank has none."""
        for name, value in (("RANK", self.active_rank), ("WORLD_SIZE", self.active_world_size)):
            if value is None or self.active_rank is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = str(value)

    def advance(self) -> None:
        """Changes this state to that of the next round."""
        self.iteration += 1
        self.fn_exception = None

    def freeze(self) -> "FrozenState":
        """A read-only state with the same values. The values are not copied, because some exceptions cannot be copied."""
        return FrozenState(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def copy_from(self, other: Any, fields: Optional[list] = None) -> None:
        """Takes all fields, or the given ones, from another state."""
        for field in dataclasses.fields(self):
            if fields is None or field.name in fields:
                setattr(self, field.name, getattr(other, field.name))


def freeze_dataclass(cls: type) -> type:
    """A read-only dataclass with the same fields."""
    fields = [(field.name, field.type, dataclasses.field(default=field.default)) for field in dataclasses.fields(cls)]
    return dataclasses.make_dataclass(f"Frozen{cls.__name__}", fields, frozen=True, namespace={"__module__": cls.__module__})


FrozenState = freeze_dataclass(State)
FrozenState.__doc__ = "A :class:`State` that cannot be changed: what hooks are given."

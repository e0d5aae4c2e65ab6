"""Hooks that write lines for a restarter around the job, in the form of NVRx."""

import dataclasses
import logging
import os
import socket
import sys
from typing import Any, Optional

from .abort import Abort
from .completion import Completion
from .initialize import Initialize
from .state import FrozenState
from .terminate import Terminate


class NestedRestarterLogger(logging.Logger):
    """Logger that writes lines for the restarter to stdout, at any log level."""

    def __init__(self) -> None:
        super().__init__("InprocessRestarter", logging.INFO)
        self.rank: Optional[int] = None
        self.restarter_logger = logging.Logger("InprocessRestarter.Restarter", logging.DEBUG)
        handler = _Stdout()
        handler.setFormatter(logging.Formatter("[%(asctime)s] [ALWAYS] [%(name)s] %(message)s"))
        self.restarter_logger.addHandler(handler)

    def set_connected_rank(self, rank: Optional[int]) -> None:
        """Sets the rank that the lines name."""
        self.rank = rank
        shown = "<none>" if rank is None else rank
        self.restarter_logger.name = f"InprocessRestarter{os.getpid()}@{socket.gethostname()}:{shown}"

    def log_for_restarter(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Writes one line."""
        self.restarter_logger.debug(message, *args, **kwargs)


class _Stdout(logging.StreamHandler):
    """Stream that writes to the current ``sys.stdout``."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout


@dataclasses.dataclass
class NestedRestarterCallback:
    """Hook that writes one line on one rank."""

    _shared_logger = NestedRestarterLogger()

    restarter_state: str
    restarter_stage: Optional[str] = None
    logger: NestedRestarterLogger = dataclasses.field(default=_shared_logger)
    special_rank: int = 0

    def __call__(self, state: FrozenState) -> FrozenState:
        if state.initial_rank == self.special_rank:
            self.logger.set_connected_rank(state.initial_rank)
            stage = "" if self.restarter_stage is None else f" stage={self.restarter_stage}"
            self.logger.log_for_restarter(f"[NestedRestarter] name=[InProcess] state={self.restarter_state}{stage}")
        return state


@dataclasses.dataclass
class NestedRestarterHandlingCompleted(Initialize, NestedRestarterCallback):
    """Hook for ``initialize``. Its first line reports the start, and later ones report a fault that was handled."""

    restarter_state: str = "initialize"
    restarter_stage: Optional[str] = None

    def __init__(self, special_rank: int = 0) -> None:
        self.special_rank = special_rank
        self.logger = NestedRestarterCallback._shared_logger
        self._called_once = False

    def __call__(self, state: FrozenState) -> FrozenState:
        NestedRestarterCallback.__call__(self, state)
        if not self._called_once:
            self._called_once = True
            self.restarter_state, self.restarter_stage = "handling", "completed"
        return state


@dataclasses.dataclass
class NestedRestarterHandlingStarting(Abort, NestedRestarterCallback):
    """Hook for ``abort``."""

    restarter_state: str = "handling"
    restarter_stage: Optional[str] = "starting"

    def __call__(self, state: FrozenState) -> FrozenState:
        return NestedRestarterCallback.__call__(self, state)


@dataclasses.dataclass
class NestedRestarterFinalized(Completion, NestedRestarterCallback):
    """Hook for ``completion``."""

    restarter_state: str = "finalized"

    def __call__(self, state: FrozenState) -> FrozenState:
        return NestedRestarterCallback.__call__(self, state)


@dataclasses.dataclass
class NestedRestarterAborted(Terminate, NestedRestarterCallback):
    """Hook for ``terminate``."""

    restarter_state: str = "aborted"

    def __call__(self, state: FrozenState) -> FrozenState:
        return NestedRestarterCallback.__call__(self, state)

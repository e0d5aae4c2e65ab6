"""Identity of a process in its job."""

from __future__ import annotations

import dataclasses
import os
from typing import Dict, Optional


@dataclasses.dataclass(frozen=True)
class World:
    """Identity of a process in its job. Outside rlaunch, a process is a world of one."""

    rank: Optional[int]
    """Number among the active ranks; ``None`` for a rank in reserve."""
    world_size: int
    """Number of active ranks."""
    local_rank: int
    local_world_size: int
    node_index: int
    hosts: int
    job_id: Optional[str]
    """Id of the job; ``None`` outside rlaunch."""
    round: int
    """Number of restarts of the wrapped function."""


_round: Optional[int] = None
"""Number of the current round; ``None`` before the first one."""


begun = 0
"""Number of rounds that have begun in this process, in all calls."""


initial_size: Optional[int] = None
"""Number of ranks in the first round; ``None`` before it."""


def enter_round(number: int) -> None:
    """Notes that a round begins."""
    global _round, begun
    _round = number
    begun += 1


_alone: Dict[bytes, Optional[bytes]] = {}
"""Variables that a round has set in a world of one."""


def set_alone(env: Dict[bytes, Optional[bytes]]) -> None:
    """Notes the variables that a round sets. Outside rlaunch no launcher sets them."""
    global _alone
    _alone = {} if "RLAUNCH_JOB_ID" in os.environ else env


def is_alone() -> bool:
    """Whether no launcher has made this process part of a world."""
    own = bool(_alone) and all(os.environb.get(name) == value for name, value in _alone.items())
    return "RLAUNCH_JOB_ID" not in os.environ and (own or "RANK" not in os.environ)


def world() -> World:
    """Returns the identity of this process at this moment."""
    env = os.environ
    job_id = env.get("RLAUNCH_JOB_ID")
    if job_id is None:
        return World(0, 1, 0, 1, 0, 1, None, _round or 0)

    def number(name: str, default: int) -> int:
        text = env.get(name, "")
        return int(text) if text.isdigit() else default

    # In rounds RANK and WORLD_SIZE count active ranks. A rank in reserve has no RANK.
    is_reserve = _round is not None and "RANK" not in env
    return World(
        rank=None if is_reserve else number("RANK", number("RLAUNCH_RANK", 0)),
        world_size=number("WORLD_SIZE", number("RLAUNCH_WORLD_SIZE", 1)),
        local_rank=number("LOCAL_RANK", number("RLAUNCH_LOCAL_RANK", 0)),
        local_world_size=number("LOCAL_WORLD_SIZE", number("RLAUNCH_LOCAL_SIZE", 1)),
        node_index=number("GROUP_RANK", number("RLAUNCH_NODE_INDEX", 0)),
        hosts=number("GROUP_WORLD_SIZE", number("RLAUNCH_NODES", 1)),
        job_id=job_id,
        round=_round or 0,
    )

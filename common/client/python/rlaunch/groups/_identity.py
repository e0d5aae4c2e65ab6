"""Identity of a worker's process, for its worker and for a controller in the same process."""

from __future__ import annotations

from .._errors import Refused

IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables with the identity of a worker. Neither a controller nor a class changes them."""

importing: "list[str]" = []
"""Module that this worker imports at the moment. A group that is started during the import would start itself again without end."""


def refuse_while_importing() -> None:
    """Refuses a group while a worker imports its module: the controller's part of the module would run again."""
    if importing:
        raise Refused(
            f"a worker imports {importing[0]}, and this module starts a group: "
            'move what starts it below `if __name__ == "__main__":`'
        )

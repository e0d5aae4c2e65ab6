"""What the process of a worker is, for its own part and for that of a controller in it."""

from __future__ import annotations

from .._errors import Refused

IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that say who a worker is: neither a controller nor a class changes them."""

importing: "list[str]" = []
"""The module that this worker imports at the moment. A group that is started meanwhile would start itself again, and so on for ever."""


def refuse_while_importing() -> None:
    """Refuses a group of a module that a worker imports: the controller's part of the module runs there again."""
    if importing:
        raise Refused(
            f"a worker imports {importing[0]}, and this module starts a group: "
            'move what starts it below `if __name__ == "__main__":`'
        )

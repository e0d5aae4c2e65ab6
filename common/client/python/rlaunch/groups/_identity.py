"""What the process of a worker is, for its own part and for that of a controller in it."""

from __future__ import annotations

IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that say who a worker is: neither a controller nor a class changes them."""

importing: "list[str]" = []
"""The module that this worker imports at the moment. A group that is started meanwhile would start itself again, and so on for ever."""

"""Messages for the user, on stderr, each once."""

from __future__ import annotations

import os
import sys
from typing import Set

_said: Set[str] = set()


def once(text: str) -> None:
    """Prints a message on rank 0, unless this process has printed it before."""
    if text in _said:
        return
    _said.add(text)
    if os.environ.get("RLAUNCH_RANK", "0") == "0":
        print(f"rlaunch: {text}", file=sys.stderr, flush=True)

"""Sentences to the user, on stderr, each once."""

from __future__ import annotations

import os
import sys
from typing import Set

_said: Set[str] = set()


def once(text: str) -> None:
    """Says it, if nothing of it was said in this process, and if this is rank 0 or alone."""
    if text in _said:
        return
    _said.add(text)
    if os.environ.get("RLAUNCH_RANK", "0") == "0":
        print(f"rlaunch: {text}", file=sys.stderr, flush=True)

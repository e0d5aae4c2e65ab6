"""The ends of processes that are not children of the caller."""

import os
import select


def has_ended(pid):
    """Waits up to 30 s for the end of a process. It may remain as a zombie."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30)[0])
    finally:
        os.close(descriptor)

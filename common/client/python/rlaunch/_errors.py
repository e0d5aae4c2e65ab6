"""What can go wrong between a program and rlaunch."""

from __future__ import annotations


class Error(Exception):
    """It was not done; the text says why."""


class LibraryMissing(Error, ImportError):
    """The package is not whole."""


class NoJob(Error):
    """The agent of this job of several ranks is nowhere to be found."""


class ConnectionFailed(Error, ConnectionError):
    """The agent of this host cannot be reached, or is gone."""


class StoreTimeout(Error, TimeoutError):
    """What was waited for did not come in time; the text names it."""


class Refused(Error):
    """It was not done, for the reason in the text."""


class Interrupted(Error):
    """The round is over: leave the function."""


ERRORS = {
    -2: NoJob,
    -3: ConnectionFailed,
    -4: ConnectionFailed,
    -6: StoreTimeout,
    -7: Refused,
    -8: Interrupted,
}
"""By the library's results."""

"""Errors of this package."""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors of rlaunch. The text has the reason."""


class LibraryMissing(Error, ImportError):
    """Error of a package without its library."""


class NoJob(Error):
    """Error outside of a job, or if the agent of a job with several ranks cannot be found."""


class ConnectionFailed(Error, ConnectionError):
    """Error of the connection to this host's agent, or to a worker."""


class StoreTimeout(Error, TimeoutError):
    """Error of a wait in the store that has timed out. The text names the missing keys or ranks."""


class Refused(Error):
    """Error of an order that was refused. The text has the reason."""


class Interrupted(Error):
    """Error of a wait when the round has ended: leave the function."""


ERRORS = {
    -2: NoJob,
    -3: ConnectionFailed,
    -4: ConnectionFailed,
    -6: StoreTimeout,
    -7: Refused,
    -8: Interrupted,
}
"""Errors by the result codes of the library."""

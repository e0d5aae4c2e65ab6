"""Exceptions of restarts."""


class RestartError(Exception):
    """Base class of errors of a restart. Errors of the wrapped function are not among them."""


class RestartAbort(BaseException):
    """Exception that a function or a hook raises against further restarts: this rank leaves, and the others continue."""


class HealthCheckError(RestartError):
    """Error of a health check. This rank leaves."""


class InternalError(RestartError):
    """Error of rlaunch itself."""


class TimeoutError(RestartError):  # noqa: A001 (the name is NVRx's)
    """Error of a part of a restart that took longer than its limit."""


class RestartRefused(RestartError):
    """Error of a process that cannot take part in rounds."""


class RestartGivenUp(RestartError):
    """Error when no restart within the processes is possible any more. The job then treats it like any failure."""

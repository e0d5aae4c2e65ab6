"""Exceptions of restarts."""


class RestartError(Exception):
    """What goes wrong with a restart, and not with the function that is restarted."""


class RestartAbort(BaseException):
    """Raise it where no further restart is wanted: this rank leaves, the others go on without it."""


class HealthCheckError(RestartError):
    """A health check has failed: this rank leaves."""


class InternalError(RestartError):
    """Something that cannot be has happened."""


class TimeoutError(RestartError):  # noqa: A001 (the name is NVRx's)
    """A part of a restart has taken longer than it may."""


class RestartRefused(RestartError):
    """This process cannot take part as it has asked."""


class RestartGivenUp(RestartError):
    """No restart within the processes is possible any more: the job's ordinary rule for failures holds."""

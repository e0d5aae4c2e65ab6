"""Names of NVRx's stores, for arguments that mean nothing here: the launcher decides, and needs no store of the ranks."""

from . import exception


class BarrierError(exception.RestartError):
    """A barrier of NVRx has failed; here there are none."""


class BarrierTimeout(BarrierError):
    """It took too long."""


class BarrierOverflow(BarrierError):
    """Somebody came twice."""


class StoreMixin:
    """Base of stores that ``store_factory`` may name."""


class TCPStore(StoreMixin):
    """The default of ``store_factory``."""


class FileStore(StoreMixin):
    """Another."""


class PrefixStore(StoreMixin):
    """A part of one."""

"""Names of NVRx's stores, for arguments without effect. The launcher decides, and needs no store of the ranks."""

from . import exception


class BarrierError(exception.RestartError):
    """Error of a barrier in NVRx. rlaunch never raises it."""


class BarrierTimeout(BarrierError):
    """Error of a barrier that took too long."""


class BarrierOverflow(BarrierError):
    """Error of a barrier that a rank entered twice."""


class StoreMixin:
    """Base class of stores that ``store_factory`` accepts."""


class TCPStore(StoreMixin):
    """Default of ``store_factory``."""


class FileStore(StoreMixin):
    """Name of NVRx's store in a file."""


class PrefixStore(StoreMixin):
    """Name of NVRx's store with a prefix."""

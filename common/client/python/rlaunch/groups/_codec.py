"""Values as bytes: pickle 5 with its buffers apart, JSON, or msgpack."""

from __future__ import annotations

import sys

try:
    # The module pickle imports re and other modules, which take longer than all other imports here.
    import _pickle as pickle
except ImportError:
    import pickle

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, List, Sequence, Tuple

PICKLE, JSON, MSGPACK = 0, 1, 2

_CODECS = {"pickle": PICKLE, "json": JSON, "msgpack": MSGPACK}

_APART = 64 << 10
"""Bytes from which a ``bytes`` object is sent as a buffer of its own."""


def codec_of(serializer: str) -> int:
    """The number of a serializer."""
    if serializer not in _CODECS:
        raise ValueError(f"there is no serializer {serializer!r}: pickle, json or msgpack")
    codec = _CODECS[serializer]
    if codec == MSGPACK:
        _msgpack()
    return codec


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise ImportError('serializer="msgpack" needs the module msgpack: pip install msgpack, or use "json"') from None
    return msgpack


NONE, EMPTY_PARTS = pickle.dumps(None, protocol=5), [pickle.dumps({}, protocol=5)]
"""Encoded ``None``, which most calls return, and the parts of a call without arguments."""

NONE_PARTS = [NONE]


class _Apart:
    """Wrapper of ``bytes`` that pickle would otherwise copy into its own output."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: int) -> Tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self.data),)


def _tensor(buffer: Any, dtype: str, shape: Sequence[int]) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not memoryview(buffer).nbytes:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(buffer, dtype=kind).reshape(shape)


class _TorchPickler(pickle.Pickler):
    """Pickler that sends tensors in the memory of the CPU as buffers."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        is_plain = type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided
        if not is_plain or value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized:
            return NotImplemented
        flat = value.contiguous().reshape(-1).view(torch.uint8)
        dtype = str(value.dtype).split(".", 1)[1]
        return _tensor, (pickle.PickleBuffer(flat.numpy()), dtype, tuple(value.shape))


def encode(value: Any, codec: int) -> List[Any]:
    """The parts of a value: its bytes, and buffers that are not copied."""
    if codec == JSON:
        import json

        return [json.dumps(value).encode()]
    if codec == MSGPACK:
        return [_msgpack().packb(value)]
    if value is None:
        return [NONE]
    if type(value) is dict:
        if not value:
            return EMPTY_PARTS
        value = {name: _Apart(one) if type(one) is bytes and len(one) >= _APART else one for name, one in value.items()}
    elif type(value) is bytes and len(value) >= _APART:
        value = _Apart(value)
    buffers: List[pickle.PickleBuffer] = []
    if "torch" in sys.modules and hasattr(sys.modules["torch"], "Tensor"):
        import io

        to = io.BytesIO()
        _TorchPickler(to, protocol=5, buffer_callback=buffers.append).dump(value)
        data: Any = to.getbuffer()
    else:
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [data, *(buffer.raw() for buffer in buffers)]


def decode(parts: Sequence[Any], codec: int) -> Any:
    """The value of parts. Pickle runs code, which all processes of the job may do."""
    if codec == PICKLE:
        return pickle.loads(parts[0], buffers=parts[1:])
    if codec == JSON:
        import json

        return json.loads(bytes(parts[0]))
    if codec == MSGPACK:
        # Numbers are accepted as keys.
        return _msgpack().unpackb(parts[0], strict_map_key=False)
    raise ValueError(f"values of an unknown kind ({codec}): the other end is of a later version")


def decode_as(parts: Sequence[Any], codec: int, expected: int) -> Any:
    """The value of parts in the serializer of the group. The peer cannot choose pickle instead."""
    if codec != expected:
        names = {number: name for name, number in _CODECS.items()}
        raise ValueError(f"it is sent as {names.get(codec, codec)}, and the group takes {names[expected]}")
    return decode(parts, codec)


def named(error: BaseException) -> str:
    """An exception as a text: its type and its message. Each method of it may fail."""
    name, text, _ = described(error)
    return f"{name.decode()}: {text.decode()}"


def described(error: BaseException) -> List[bytes]:
    """An exception as texts: its type, its message, its traceback without the frames of this package. Each method of it may fail."""
    kind = type(error)

    def name() -> str:
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

    def trace() -> str:
        import traceback

        frames = error.__traceback__
        here = __name__.split(".", 1)[0] + "."
        while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(here) and frames.tb_next:
            frames = frames.tb_next
        return "".join(traceback.format_exception(kind, error, frames))

    texts = []
    for make in (name, lambda: str(error), trace):
        try:
            texts.append(str.encode(make(), "utf-8", "replace")[: 256 << 10])
        except BaseException:
            texts.append(b"<no text: its method failed>")
    return texts


def encode_error(error: BaseException, codec: int) -> List[Any]:
    """An exception as parts; none if it cannot be rebuilt from them and printed, or if it would end a loop or a task of the caller."""
    if codec != PICKLE or not _is_plain(error):
        return []
    try:
        parts = [pickle.dumps(error)]
        rebuilt = pickle.loads(parts[0])
        can_be_printed = all(make(rebuilt) is not None for make in (str, repr))
    except BaseException:
        return []
    return parts if can_be_printed and _is_plain(rebuilt) else []


def _is_plain(error: Any) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration))

"""Codec: any message, any version, both directions.

Encoders and decoders are compiled the first time a (message, version) is met and kept. Invariant: `decode` returns a
value or raises ProtocolError, and it takes the whole buffer or nothing unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from headrace.core.limits import SLICE_ENTRIES
from headrace.core.ports import Buffer
from headrace.wire.compiler import (
    Decoder,
    Encoder,
    SlicedEncoder,
    compile_decoder,
    compile_encoder,
    compile_sliced_encoder,
    has_records,
)
from headrace.wire.primitives import MALFORMED, UNLIMITED, ProtocolError
from headrace.wire.schema import HAND_WRITTEN, MESSAGES

T = TypeVar("T")

_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], Encoder] = {}
_sliced: dict[tuple[type[Any], int], SlicedEncoder] = {}
_viewed: dict[type[Any], bool] = {}


def versions(cls: type[Any]) -> range:
    """Every version this codec speaks; the broker may advertise fewer."""
    spec = MESSAGES[cls]
    return range(spec.first, spec.last + 1)


def decode(
    cls: type[T], version: int, buf: Buffer, pos: int = 0, *, exact: bool = True, most: int = UNLIMITED
) -> T:
    """The message that fills `buf` from `pos` to its end. TooManyEntries: its arrays have more than `most` elements
    altogether, and no array was decoded that goes beyond it (A3).

    Not `exact`: bytes may be left over, as Kafka lets them. librdkafka 2.16 asks for all topics (Metadata v9 and up) with
    three bytes too many.
    """
    decoder = _decoders.get((cls, version)) or _new_decoder(cls, version)
    if _viewed[cls]:
        buf = memoryview(buf)
    elif type(buf) is not bytes:
        # Slices of bytes are cheaper than slices of a view, and these messages are small.
        buf, pos = bytes(buf[pos:]), 0
    try:
        value, pos = decoder(buf, pos, most)
    except MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from None
    if exact and pos != len(buf):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(buf) - pos} bytes are left over")
    return value  # type: ignore[no-any-return]


def encode(obj: object, version: int) -> bytes:
    return b"".join(encode_buffers(obj, version))


def encode_buffers(obj: object, version: int) -> list[Buffer]:
    """As `encode`, but record data stays in the caller's own buffer."""
    cls = obj.__class__
    encoder = _encoders.get((cls, version)) or _new_encoder(cls, version)
    out: list[Buffer] = []
    try:
        encoder(obj, out.append)
    except MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return out


def encode_sliced(obj: object, version: int, out: list[Buffer]) -> Iterator[None]:
    """As `encode_buffers` into `out`, but whoever iterates can do something else between slices of SLICE_ENTRIES (A3)."""
    cls = obj.__class__
    encoder = _sliced.get((cls, version))
    if encoder is None:
        _check(cls, version)
        encoder = _sliced[cls, version] = compile_sliced_encoder(cls, version, SLICE_ENTRIES)
    try:
        yield from encoder(obj, out.append)
    except MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error


def _check(cls: type[Any], version: int) -> None:
    if version not in versions(cls):
        raise ProtocolError(f"{cls.__name__} has no version {version}")


def _new_decoder(cls: type[Any], version: int) -> Decoder:
    _check(cls, version)
    if cls in HAND_WRITTEN:
        by_hand = HAND_WRITTEN[cls][0]
        decoder: Decoder = lambda buf, pos, _: (by_hand(buf, pos, version), len(buf))  # noqa: E731
    else:
        decoder = compile_decoder(cls, version)
    _viewed[cls] = cls in HAND_WRITTEN or has_records(cls)
    _decoders[cls, version] = decoder
    return decoder


def _new_encoder(cls: type[Any], version: int) -> Encoder:
    _check(cls, version)
    if cls in HAND_WRITTEN:
        by_hand = HAND_WRITTEN[cls][1]

        def write_by_hand(obj: Any, write: Callable[[Buffer], None]) -> None:
            for buffer in by_hand(obj, version):
                write(buffer)

        encoder: Encoder = write_by_hand
    else:
        encoder = compile_encoder(cls, version)
    _encoders[cls, version] = encoder
    return encoder

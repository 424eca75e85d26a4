"""Codec: are these the records that the batch says they are? Asked of what clients send, before it is stored (A5).

A batch whose records nobody can read stops every reader of its partition for good, so a broker looks before it appends:
lengths that meet each other's ends, offset deltas 0, 1, 2, ..., headers that fill their record, no byte too few or too many.

`find_flaw` walks record by record and says what is wrong, at about two microseconds each. `is_regular` proves the same of
most batches for less than a tenth of that, or does not know: it goes in the fastest of four gaits (gaits.py) that the records
of the batch allow, one producer's records being much alike.

Invariant: what `is_regular` is sure of, `find_flaw` finds no flaw in (a property test holds them together), and a batch in
which it finds none is read by every reader of this package. Every step moves forward, so one comparison of where the
last record ends with where the batch ends holds for all of them.
"""

from __future__ import annotations

import struct
from ctypes import addressof, c_char
from typing import NamedTuple

from headrace.core.ports import Buffer
from headrace.records.batch import MIN_RECORD_BYTES, CorruptBatch
from headrace.records.gaits import TIMES, WORTH_IT, hop, run, shape_of, stride, trot
from headrace.records.read import read_headers, read_span
from headrace.records.varint import read_varint

_FEW = 8
"""So few records are read one by one before anything cleverer has begun."""
_MOST_RECORDS = 1 << 20
"""Offset deltas of more have four bytes."""
_CHUNK = 64
_MOST_CHUNKS = 64
_COPIED_BYTES = 4096
"""Up to here a copy costs less than finding out where the bytes lie."""


class Flaw(NamedTuple):
    record: int
    """The index of the record at which it shows."""
    detail: str


def find_flaw(body: Buffer, count: int) -> Flaw | None:
    """What is wrong with the `count` records of a plain body; None: nothing, every reader can have them."""
    plain = body if isinstance(body, bytes) else bytes(body)
    if count * MIN_RECORD_BYTES > len(plain):
        return Flaw(0, f"{count} records can not fit into {len(plain)} bytes")
    at = 0
    for index in range(count):
        try:
            span = read_span(plain, at)
            if span.offset_delta != index:
                return Flaw(index, f"offset delta {span.offset_delta} where {index} was expected")
            attributes = plain[read_varint(plain, at)[1]]
            if attributes > 0x7F:
                # Unused, and zero with every client; some (aiokafka, kafka-python) read them as a varint.
                return Flaw(index, f"attributes {attributes:#x}")
            if span.end - span.headers_start > 1:
                read_headers(plain, span.headers_start, span.end)
        except CorruptBatch as problem:
            return Flaw(index, str(problem))
        at = span.end
    if at != len(plain):
        return Flaw(count - 1, f"{len(plain) - at} bytes after the last record")
    return None


def is_regular(body: Buffer, count: int) -> bool:
    """True: there is no flaw. False: it takes a closer look."""
    if count > _MOST_RECORDS:
        return False
    try:
        if count < _FEW and len(body) <= _COPIED_BYTES:
            return hop(bytes(body), 0, 0, count) == len(body)
        plain, at, end = _where(body)
        index, patience = 0, 1
        if count < _FEW:
            return hop(plain, at, 0, count) == end
        while index < count:
            shape = shape_of(plain, at, index, end)
            done = 0
            if shape.is_repeated(plain, at):
                done = run(plain, at, index, min(count - index, (end - at) // shape.advance), shape)
                at += done * shape.advance
            if not done and shape.is_plain:
                done, at = stride(plain, at, index, count, shape)
            if done < WORTH_IT and shape.time_bytes in TIMES:
                more, at = trot(plain, at, index + done, count, shape.time_bytes)
                done += more
            index += done
            if done < WORTH_IT and index < count:
                # The longer nothing fits, the more seldom it is tried.
                upto = min(count, index + _CHUNK * patience)
                at, index = hop(plain, at, index, upto), upto
                patience = min(2 * patience, _MOST_CHUNKS)
    except (CorruptBatch, IndexError, struct.error):
        return False
    return at == end


def _where(body: Buffer) -> tuple[bytes | bytearray, int, int]:
    """What lies under a view, and where in it the view begins and ends.

    Slices of a memoryview cost several times as much as those of a bytearray, and a copy of a megabyte as much as the whole
    look at it. A view does not tell its place, but addresses do.
    """
    size = len(body)
    if not isinstance(body, memoryview):
        return body, 0, size
    under = body.obj
    if size <= _COPIED_BYTES or not isinstance(under, bytearray):
        return bytes(body), 0, size
    at = addressof(c_char.from_buffer(body)) - addressof(c_char.from_buffer(under))
    return under, at, at + size

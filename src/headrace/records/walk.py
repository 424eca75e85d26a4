"""Codec: are these the records that the batch says they are? Asked of what clients send, before it is stored (A5).

A batch whose records nobody can read stops every reader of its partition for good, so a broker looks before it appends:
lengths that meet each other's ends, offset deltas 0, 1, 2, ..., headers that fill their record, no byte too few or too many.

`find_flaw` walks record by record and says what is wrong, at about two microseconds each. `is_regular` proves the same of
most batches for a tenth of that, or does not know. One producer's records are much alike, and what is alike can be compared
by whole columns in C: every n-th byte of a run of equal records is one slice. Three gears, the fastest that fits:

    run      records of equal size and shape: a column is a slice with a step
    gather   of equal shape, with values of any size: hop from length to length, taking along the first bytes of each; those
             lie in equal distances again
    hop      of any size, with a few headers: field by field

Invariant: what `is_regular` is sure of, `find_flaw` finds no flaw in (a property test holds them together), and a batch in
which it finds none is read by every reader of this package.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from headrace.core.ports import Buffer
from headrace.records.batch import MIN_RECORD_BYTES, CorruptBatch
from headrace.records.read import read_headers, read_span
from headrace.records.varint import append_varint, read_varint, read_varlong

_FEW = 8
"""So few records are read one by one before anything cleverer has begun."""
_RUN_AT_LEAST = 16
_CHUNK = 256
_MOST_CHUNKS = 16
_HIGH = bytes(range(0x80, 0x100))
_MOST_TIME_BYTES = 5
_MOST_PRELUDE_BYTES = 80
"""What is taken along of each record; longer keys are left to the last gear."""
_NOWHERE = 1 << 48
_SECOND_WIDTH = 64
"""The first number whose zig-zag varint takes two bytes; each further byte multiplies it by 128."""


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
    # A copy is cheaper than what slices of a memoryview cost more than slices of bytes.
    plain = body if isinstance(body, bytes) else bytes(body)
    at = index = 0
    patience = 1
    try:
        if count < _FEW:
            return _hop(plain, 0, 0, count) == len(plain)
        while index < count:
            shape = _shape(plain, at, index)
            done = _run(plain, at, index, count, shape)
            if done:
                at += done * shape.advance
                patience = 1
            else:
                # The longer it goes without a run, the more seldom one is looked for.
                done, at = _gather(plain, at, index, min(count, index + _CHUNK * patience), shape)
                if not done:
                    done = min(count - index, _CHUNK * patience)
                    at = _hop(plain, at, index, index + done)
                patience = min(2 * patience, _MOST_CHUNKS)
            index += done
    except (CorruptBatch, IndexError, struct.error):
        return False
    return at == len(plain)


# ---- what the next records probably look like


class _Shape(NamedTuple):
    """Of one record, which has been read and is right."""

    first: bytes
    advance: int
    """To where the next one starts."""
    length_bytes: int
    time: int
    """Where its timestamp delta, offset delta, key length and value length begin, from its own start."""
    delta: int
    key: int
    value: int
    value_start: int
    fixed: tuple[int, ...]
    """The places of all bytes that say how the record is laid out, without those of timestamp and offset."""
    has_headers: bool


def _shape(body: bytes, at: int, index: int) -> _Shape:
    length, behind = read_varint(body[at : at + 5], 0)
    if length < 0:
        raise CorruptBatch("a record of negative length")
    first = body[at : at + behind + length]
    span = read_span(first, 0)
    if span.offset_delta != index:
        raise CorruptBatch("an offset delta out of order")
    time = behind + 1
    if first[behind] > 0x7F:
        raise CorruptBatch("attributes")
    _, delta = read_varlong(first, time)
    _, key = read_varint(first, delta)
    value = span.key_start + max(span.key_length, 0)
    fixed = [*range(behind), *range(key, span.key_start), *range(value, span.value_start)]
    if first[span.headers_start]:
        read_headers(first, span.headers_start, span.end)
        fixed += _header_places(first, span.headers_start)
    else:
        fixed.append(span.headers_start)
    return _Shape(
        first,
        span.end,
        behind,
        time,
        delta,
        key,
        value,
        span.value_start,
        tuple(fixed),
        first[span.headers_start] != 0,
    )


def _header_places(first: bytes, at: int) -> list[int]:
    """Where the number of headers and their lengths stand."""
    count, behind = read_varint(first, at)
    places = [*range(at, behind)]
    for _ in range(2 * count):
        length, after = read_varint(first, behind)
        places += range(behind, after)
        behind = after + max(length, 0)
    return places


# ---- first gear: equal records


def _run(body: bytes, at: int, index: int, count: int, shape: _Shape) -> int:
    """How many records from here on have this very shape and follow each other."""
    first, advance = shape.first, shape.advance
    run = min(count - index, (len(body) - at) // advance)
    for place in shape.fixed:
        column, wanted = _column(body, at + place, advance, run), first[place : place + 1]
        if column != wanted * run:
            run -= len(column.lstrip(wanted))
            if run < _RUN_AT_LEAST:
                return 0
    width = shape.delta - shape.time
    attributes = _column(body, at + shape.length_bytes, advance, run)
    if width > _MOST_TIME_BYTES or not attributes.isascii():
        return 0
    for number in range(width):
        column = _column(body, at + shape.time + number, advance, run)
        if column.translate(None, _HIGH) if number < width - 1 else not column.isascii():
            return 0
    width = shape.key - shape.delta
    run = min(run, _same_width(index, width))
    for number in range(width):
        if _column(body, at + shape.delta + number, advance, run) != _deltas(index, run, number, width):
            return 0
    return run


def _column(body: bytes, at: int, advance: int, count: int) -> bytes:
    return body[at : at + (count - 1) * advance + 1 : advance]


def _same_width(index: int, width: int) -> int:
    """From `index` on: how many numbers have a varint of `width` bytes. 0: not even it has."""
    lowest = _SECOND_WIDTH * 128 ** (width - 2) if width > 1 else 0
    return max(0, _SECOND_WIDTH * 128 ** (width - 1) - index) if index >= lowest else 0


_LOW_BYTES = bytes([(2 * value & 0x7F) | 0x80 for value in range(_SECOND_WIDTH)])


def _deltas(index: int, count: int, number: int, width: int) -> bytes:
    """Byte `number` of the varints of index, index + 1, ..., all of which take `width` bytes."""
    more = 0x80 if number < width - 1 else 0
    if number == 0:
        if not more:
            return bytes(range(2 * index, 2 * (index + count), 2))
        begin = index % _SECOND_WIDTH
        return (_LOW_BYTES * (count // _SECOND_WIDTH + 2))[begin : begin + count]
    step = _SECOND_WIDTH * 128 ** (number - 1)
    """For so many numbers this byte stays the same."""
    end = index + count
    parts = []
    while index < end:
        following = min(end, (index // step + 1) * step)
        parts.append(bytes(((index // step & 0x7F) | more,)) * (following - index))
        index = following
    return b"".join(parts)


# ---- second gear: values of any size


def _two_byte_hops() -> tuple[int, ...]:
    """By the first two bytes of a record (little-endian): how far the next one is, where its length takes two bytes."""
    hops = [_NOWHERE] * 65536
    for length in range(_SECOND_WIDTH, _SECOND_WIDTH * 128):
        encoded = bytearray()
        append_varint(encoded, length)
        hops[encoded[0] | encoded[1] << 8] = 2 + length
    return tuple(hops)


_HOPS: list[tuple[int, ...]] = []
"""Made when it is first needed: a broker that nobody sends such batches to does without."""


@lru_cache(64)
def _head(prelude: int) -> struct.Struct:
    """The last byte of the record before, the length in two bytes, and what stands in front of the value."""
    return struct.Struct(f"<BH{prelude}s")


def _gather(body: bytes, at: int, index: int, upto: int, shape: _Shape) -> tuple[int, int]:
    """(how many records from here on are of this shape but for the size of their values, where the next one starts)."""
    prelude = shape.value_start - shape.length_bytes
    if (
        shape.length_bytes != 2
        or shape.has_headers
        or shape.value_start - shape.value != 2
        or prelude > _MOST_PRELUDE_BYTES
        or shape.delta - shape.time > 2
    ):
        return 0, at
    upto = min(upto, index + _same_width(index, shape.key - shape.delta))
    if upto - index < _RUN_AT_LEAST:
        return 0, at
    if not _HOPS:
        _HOPS.append(_two_byte_hops())
    hops, unpack = _HOPS[0], _head(prelude).unpack_from
    lengths: list[int] = []
    heads: list[bytes] = []
    keep_length, keep_head = lengths.append, heads.append
    # The first one is known to be right, and each record is read with the last byte of the one before: its headers, none.
    before = at + shape.advance - 1
    tails = 0
    try:
        for _ in repeat(None, upto - index - 1):
            tail, length, head = unpack(body, before)
            tails |= tail
            keep_length(length)
            keep_head(head)
            before += hops[length]
        tails |= body[before]
    except (struct.error, IndexError):
        return 0, at
    if tails or not _alike(b"".join(heads), lengths, index + 1, prelude, shape):
        return 0, at
    return upto - index, before + 1


def _alike(heads: bytes, lengths: list[int], index: int, prelude: int, shape: _Shape) -> bool:
    """Whether the preludes of these records, from record `index` on, are right for what lengths they claim."""
    count, skipped = len(lengths), shape.length_bytes
    times = [heads[place - skipped :: prelude] for place in range(shape.time, shape.delta)]
    if not times[-1].isascii() or (len(times) == 2 and times[0].translate(None, _HIGH)):
        return False
    if not heads[::prelude].isascii():  # attributes
        return False
    width = shape.key - shape.delta
    for number in range(width):
        place = shape.delta + number - skipped
        if heads[place::prelude] != _deltas(index, count, number, width):
            return False
    # Only a key length of one byte comes here with few enough bytes, but whatever it takes has to be the same.
    value = shape.value
    key_start = value - _key_bytes(shape)
    for place in range(shape.key, key_start):
        if heads[place - skipped :: prelude] != shape.first[place : place + 1] * count:
            return False
    low, high = heads[value - skipped :: prelude], heads[value + 1 - skipped :: prelude]
    if low.translate(None, _HIGH) or not high.isascii():
        return False
    values = bytearray(2 * count)
    values[0::2], values[1::2] = low, high
    # A record is as long as its prelude, its value and the byte that says "no headers", all lengths being doubled: one
    # addition on numbers that lie in lanes of 16 bits.
    claimed = _in_lanes(struct.pack(f"<{count}H", *lengths), count)
    surplus = int.from_bytes((2 * (prelude + 1)).to_bytes(2, "little") * count, "little")
    return claimed == _in_lanes(values, count) + surplus


def _key_bytes(shape: _Shape) -> int:
    length, _ = read_varint(shape.first, shape.key)
    return max(length, 0)


def _in_lanes(varints: Buffer, count: int) -> int:
    """Two-byte varints as 14-bit numbers, side by side."""
    bits = int.from_bytes(varints, "little")
    low, high = (int.from_bytes(mask * count, "little") for mask in (b"\x7f\x00", b"\x00\x7f"))
    return (bits & low) + ((bits & high) >> 1)


# ---- third gear: field by field


_THREE_BYTES = 1 << 14
_MOST_HEADERS = 8
"""Of one record, so that the price of a look is known beforehand."""
_UNUSUAL = CorruptBatch("not regular")


def _hop(body: bytes, at: int, index: int, upto: int) -> int:
    """Where the record after `upto` - 1 starts. Raises what is_regular takes for "don't know" at anything unusual."""
    for delta in range(index, upto):
        length = body[at]
        at += 1
        if length >= 0x80:
            length += body[at] - 1 << 7
            at += 1
        end = at + (length >> 1)
        attributes = body[at]
        if body[at + 1] < 0x80:
            at += 2
        elif body[at + 2] < 0x80:
            at += 3
        else:
            raise _UNUSUAL
        offset = body[at]
        at += 1
        if offset >= 0x80:
            offset += body[at] - 1 << 7
            at += 1
            if offset >= _THREE_BYTES:
                offset += body[at] - 1 << 14
                at += 1
        key = body[at]
        at += 1
        if key >= 0x80:
            key += body[at] - 1 << 7
            at += 1
        if not key & 1:
            at += key >> 1
        elif key != 1:
            raise _UNUSUAL
        value = body[at]
        at += 1
        if value >= 0x80:
            value += body[at] - 1 << 7
            at += 1
        if not value & 1:
            at += value >> 1
        elif value != 1:
            raise _UNUSUAL
        headers = body[at]
        at += 1
        if headers:
            at = _hop_headers(body, at, headers)
        # A second byte that says there is a third one makes a number of two too large.
        if offset != delta << 1 or length & 1 or at != end or length >= _THREE_BYTES or attributes > 0x7F:
            raise _UNUSUAL
        if key >= _THREE_BYTES or value >= _THREE_BYTES:
            raise _UNUSUAL
        at = end
    return at


def _hop_headers(body: bytes, at: int, twice: int) -> int:
    """Past so many headers (`twice` is their doubled number), each with a key of up to 63 bytes."""
    if twice & 1 or twice > 2 * _MOST_HEADERS:
        raise _UNUSUAL
    for _ in range(twice >> 1):
        key = body[at]
        if key & 1 or key >= 0x80:
            raise _UNUSUAL
        at += 1 + (key >> 1)
        value = body[at]
        at += 1
        if value >= 0x80:
            value += body[at] - 1 << 7
            at += 1
            if value >= _THREE_BYTES:
                raise _UNUSUAL
        if not value & 1:
            at += value >> 1
        elif value != 1:
            raise _UNUSUAL
    return at

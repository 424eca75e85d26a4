"""Codec: how fast one can go over the records of a batch and still see that each is right. Four gaits for walk.py:

    run      records of equal size and shape: every n-th byte of the batch is one slice, compared in C
    stride   equal but for the size of their values: one `unpack` takes all that a record says of itself
    trot     with keys, headers and sizes as they come: two of them
    hop      with anything: byte by byte

1 KB records take about 0.03, 0.15, 0.3 and 0.6 microseconds each. Where a gait does not fit any more it says how far it has come.
No gait looks at where the batch ends; each moves forward only, and the caller compares.

Invariant: what was gone over has no flaw that `walk.find_flaw` would find. A number that stands there in more bytes than it
takes is none, but hop is the only one that knows it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from headrace.records.batch import CorruptBatch
from headrace.records.read import read_headers, read_span
from headrace.records.varint import append_varint, read_varint, read_varlong

Plain = bytes | bytearray

WORTH_IT = 16
"""A gait that does not get so far was the wrong one."""
_HIGH = bytes(range(0x80, 0x100))
_MOST_TIME_BYTES = 5
_SECOND_WIDTH = 64
"""The first number whose zig-zag varint takes two bytes; each further byte multiplies it by 128."""
_THIRD_WIDTH = 128 * _SECOND_WIDTH


# ---- what the next records probably look like


class RecordShape(NamedTuple):
    """Of one record, which has been read and is right. Places are counted from its own start."""

    first: bytes
    advance: int
    """To where the next one starts."""
    length_bytes: int
    delta: int
    """Where its offset delta and the length of its key begin; the timestamp stands behind length and attributes."""
    key: int
    key_bytes: int
    """-1: there is none."""
    value: int
    """Where the length of its value begins, and behind it the value."""
    value_start: int
    headers: int

    @property
    def time_bytes(self) -> int:
        return self.delta - self.length_bytes - 1

    @property
    def has_headers(self) -> bool:
        return self.first[self.headers] != 0

    @property
    def is_plain(self) -> bool:
        """Without headers, and with no more than `stride` knows of the rest."""
        return (
            self.length_bytes == 2
            and not self.has_headers
            and self.first[self.key] < 0x80
            and self.time_bytes in TIMES
        )

    def is_repeated(self, body: Plain, at: int) -> bool:
        """Whether the next record claims to be as long."""
        following = at + self.advance
        return body[following : following + self.length_bytes] == self.first[: self.length_bytes]

    def fixed(self) -> list[int]:
        """The places of all bytes that say how the record is laid out, without those of timestamp and offset."""
        key_start = self.value - max(self.key_bytes, 0)
        places = [
            *range(self.length_bytes), *range(self.key, key_start), *range(self.value, self.value_start), self.headers,
        ]  # fmt: skip
        return places + _header_places(self.first, self.headers) if self.has_headers else places


def shape_of(body: Plain, at: int, index: int, end: int) -> RecordShape:
    length, behind = read_varint(bytes(body[at : at + 5]), 0)
    if length < 0 or at + behind + length > end:
        raise CorruptBatch("a record that does not fit")
    first = bytes(body[at : at + behind + length])
    _, advance, offset_delta, _, key_start, key_bytes, value_start, _, headers = read_span(first, 0)
    if offset_delta != index:
        raise CorruptBatch("an offset delta out of order")
    if first[behind] > 0x7F:
        raise CorruptBatch("attributes")
    if first[headers]:
        read_headers(first, headers, advance)
    _, delta = read_varlong(first, behind + 1)
    _, key = read_varint(first, delta)
    value = key_start + max(key_bytes, 0)
    return RecordShape(first, advance, behind, delta, key, key_bytes, value, value_start, headers)


def _header_places(first: bytes, at: int) -> list[int]:
    """Where the number of headers and their lengths stand."""
    count, behind = read_varint(first, at)
    places = [*range(at, behind)]
    for _ in range(2 * count):
        length, after = read_varint(first, behind)
        places += range(behind, after)
        behind = after + max(length, 0)
    return places


# ---- first gait: equal records


def run(body: Plain, at: int, index: int, run: int, shape: RecordShape) -> int:
    """How many of the next `run` records have this very shape and follow each other."""
    first, advance = shape.first, shape.advance
    for place in shape.fixed():
        column, wanted = _column(body, at + place, advance, run), first[place : place + 1]
        if column != wanted * run:
            run -= len(column.lstrip(wanted))
            if run < WORTH_IT:
                return 0
    attributes = _column(body, at + shape.length_bytes, advance, run)
    width = shape.time_bytes
    if width > _MOST_TIME_BYTES or not attributes.isascii():
        return 0
    for number in range(width):
        column = _column(body, at + shape.length_bytes + 1 + number, advance, run)
        if column.translate(None, _HIGH) if number < width - 1 else not column.isascii():
            return 0
    width = shape.key - shape.delta
    run = min(run, _same_width(index, width))
    for number in range(width):
        if _column(body, at + shape.delta + number, advance, run) != _deltas(index, run, number, width):
            return 0
    return run


def _column(body: Plain, at: int, advance: int, count: int) -> Plain:
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


# ---- values of any size: tables


class _Tables(NamedTuple):
    """Numbers of up to two bytes as they stand in a record, little-endian."""

    sizes: list[int]
    """By the two bytes that a length begins with: how many bytes it takes with what it is the length of."""
    words: list[int]
    """By the distance to the next record: the last byte of the record before (no headers), the length, no attributes."""
    low: list[int]
    """By a number below 8,192: as an offset delta of one or two bytes ..."""
    lower: list[int]
    """... and as the first two bytes of one of three."""


_NO_SIZE = 1 << 40
"""A size for what is none: whoever goes so far is nowhere."""
_MOST_AROUND = 128


@lru_cache(1)
def _tables() -> _Tables:
    """Made when they are first needed: a broker that nobody sends such batches to does without."""
    sizes = [_NO_SIZE] * 65536
    words = [-1] * (_THIRD_WIDTH + 2 + _MOST_AROUND)
    low = [2 * number for number in range(_SECOND_WIDTH)]
    for number in range(_SECOND_WIDTH):
        sizes[2 * number :: 256] = [1 + number] * 256  # whatever the second byte is, it is not of the length
    sizes[1::256] = [1] * 256  # -1: null
    for number in range(_SECOND_WIDTH, _THIRD_WIDTH):
        encoded = bytearray()
        append_varint(encoded, number)
        word = int.from_bytes(encoded, "little")
        sizes[word] = 2 + number
        words[2 + number] = word << 8
        low.append(word)
    lower = [number << 1 & 0x7F | 0x80 | (number >> 6) << 8 | 0x8000 for number in range(_THIRD_WIDTH)]
    return _Tables(sizes, words, low, lower)


TIMES = {1: ("B", 0x80, 0), 2: ("H", 0x8080, 0x80)}
"""By its width: how a timestamp delta is read, and which of these bits it must have."""
_AROUND = 5
"""Two bytes of length, attributes, a byte for the key's length, and the number of headers."""
_next_two = struct.Struct("<H").unpack_from


@lru_cache(256)
def _stride_head(time_bytes: int, delta_bytes: int, key_bytes: int) -> struct.Struct:
    """The last byte of the record before, length and attributes; time; offset delta; length of the key; of the value."""
    delta = {1: "BB", 2: "HB", 3: "HH"}[delta_bytes]
    return struct.Struct(f"<I{TIMES[time_bytes][0]}{delta}{key_bytes}xH")


@lru_cache(16)
def _trot_head(length_bytes: int, time_bytes: int, delta_bytes: int) -> struct.Struct:
    """Length; attributes; time; offset delta; the length of the key."""
    codes = {1: "B", 2: "H"}
    return struct.Struct(f"<{codes[length_bytes]}B{codes[time_bytes]}{codes[delta_bytes]}B")


class _Segment(NamedTuple):
    """Records whose offset deltas take equally many bytes."""

    deltas: list[int]
    """Their offset deltas, or the first two bytes of each ..."""
    width: int
    third: int
    """... and the third of all of them, or -1."""


def _segment(index: int, count: int) -> _Segment:
    _, _, low, lower = _tables()
    if index < _SECOND_WIDTH:
        return _Segment(low[index : min(count, _SECOND_WIDTH)], 1, -1)
    if index < _THIRD_WIDTH:
        return _Segment(low[index : min(count, _THIRD_WIDTH)], 2, -1)
    begin = index % _THIRD_WIDTH
    return _Segment(lower[begin : begin + count - index], 3, index // _THIRD_WIDTH)


# ---- second gait: values of any size


def stride(body: Plain, at: int, index: int, count: int, shape: RecordShape) -> tuple[int, int]:
    """(how many records from here on have this shape but for the size of their values, where the next one starts)."""
    # Each record is read with the last byte of the one before, which is the number of its headers: none. The first one is
    # known to be right.
    before, last = at - 1, at + shape.advance - 1
    done = 1
    while index + done < count:
        segment = _segment(index + done, count)
        more, its_before, its_last = _stride_over(body, last, segment, shape)
        if more:
            done, before, last = done + more, its_before, its_last
        if more < len(segment.deltas):
            break
    if body[last]:
        done, last = done - 1, before
    return done, last + 1


def _stride_over(body: Plain, at: int, segment: _Segment, shape: RecordShape) -> tuple[int, int, int]:
    """(how many records of the segment are right, the last byte before the last of them, its own last byte)."""
    deltas, width, third = segment
    sizes, words, _, _ = _tables()
    key_length, key_bytes = shape.first[shape.key], max(shape.key_bytes, 0)
    key = key_length if third < 0 else third | key_length << 8
    around = _AROUND + shape.time_bytes + width + key_bytes
    unpack = _stride_head(shape.time_bytes, width, key_bytes).unpack_from
    _, time_mask, time_bits = TIMES[shape.time_bytes]
    before, time, delta = at, -1, deltas[0]
    try:
        for delta in deltas:
            word, its_time, its_delta, its_key, value = unpack(body, at)
            distance = sizes[value] + around
            if its_delta != delta or word != words[distance] or its_key != key:
                break
            if its_time != time:
                if its_time & time_mask != time_bits:
                    break
                time = its_time
            before = at
            at += distance
        else:
            return len(deltas), before, at
    except (struct.error, IndexError):
        pass
    return deltas.index(delta), before, at


# ---- third gait: keys and headers of any size as well


def trot(body: Plain, at: int, index: int, count: int, time_bytes: int) -> tuple[int, int]:
    """(how many records from here on have timestamps of so many bytes and nothing unusual, where the next one starts)."""
    done = 0
    while index + done < min(count, _THIRD_WIDTH):
        segment = _segment(index + done, count)
        more, at = _trot_over(body, at, segment, time_bytes)
        done += more
        if more < len(segment.deltas):
            break
    return done, at


def _trot_over(body: Plain, at: int, segment: _Segment, time_bytes: int) -> tuple[int, int]:
    deltas, width, _ = segment
    sizes = _tables().sizes
    short, long = (_trot_head(length_bytes, time_bytes, width).unpack_from for length_bytes in (1, 2))
    _, time_mask, time_bits = TIMES[time_bytes]
    head_bytes = 2 + time_bytes + width
    time, delta = -1, deltas[0]
    try:
        for delta in deltas:
            if body[at] < 0x80:
                length, attributes, its_time, its_delta, key = short(body, at)
                end = at + head_bytes + sizes[key]
            else:
                length, attributes, its_time, its_delta, key = long(body, at)
                end = at + head_bytes + 1 + sizes[key]
            (value,) = _next_two(body, end)
            end += sizes[value]
            headers = body[end]
            end = _hop_headers(body, end + 1, headers) if headers else end + 1
            if its_delta != delta or attributes or end - at != sizes[length]:
                break
            if its_time != time:
                if its_time & time_mask != time_bits:
                    break
                time = its_time
            at = end
        else:
            return len(deltas), at
    except (struct.error, IndexError, CorruptBatch):
        pass
    return deltas.index(delta), at


# ---- fourth gait: byte by byte


_MOST_HEADERS = 8
"""Of one record, so that the price of a look is known beforehand."""
_UNUSUAL = CorruptBatch("not regular")
_TWO_BYTES, _THREE_BYTES = 1 << 14, 1 << 21
"""What numbers of so many bytes are below."""


def hop(body: Plain, at: int, index: int, upto: int) -> int:
    """Where the record after `upto` - 1 starts. Raises what is_regular takes for "don't know" at anything unusual."""
    for delta in range(index, upto):
        length = body[at]
        at += 1
        if length >= 0x80:
            length += body[at] - 1 << 7
            at += 1
            if length >= _TWO_BYTES:
                length += body[at] - 1 << 14
                at += 1
        end = at + (length >> 1)
        attributes = body[at]
        at += 1
        if body[at] >= 0x80:
            at = _behind_time(body, at)
        at += 1
        offset = body[at]
        at += 1
        if offset >= 0x80:
            offset += body[at] - 1 << 7
            at += 1
            if offset >= _TWO_BYTES:
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
            if value >= _TWO_BYTES:
                value += body[at] - 1 << 14
                at += 1
        if not value & 1:
            at += value >> 1
        elif value != 1:
            raise _UNUSUAL
        headers = body[at]
        at += 1
        if headers:
            at = _hop_headers(body, at, headers)
        # A last byte that says there is one more makes a number too large.
        if offset != delta << 1 or length & 1 or at != end or attributes > 0x7F:
            raise _UNUSUAL
        if length >= _THREE_BYTES or value >= _THREE_BYTES or key >= _TWO_BYTES:
            raise _UNUSUAL
    return at


def _behind_time(body: Plain, at: int) -> int:
    """The last byte of a timestamp delta. Nine bytes hold 63 bits."""
    for last in range(at + 1, at + 9):
        if body[last] < 0x80:
            return last
    raise _UNUSUAL


_HEADER_KEYS = [1 + (byte >> 1) if byte < 0x80 and not byte & 1 else _NO_SIZE for byte in range(256)]
"""By the first byte of its length: how many bytes it and the key of a header take. Longer ones, and none, are unusual."""
_HEADER_VALUES = [1 if byte == 1 else 1 + (byte >> 1) if not byte & 1 else _NO_SIZE for byte in range(128)]


def _hop_headers(body: Plain, at: int, twice: int) -> int:
    """Past so many headers (`twice` is their doubled number)."""
    if twice & 1 or twice > 2 * _MOST_HEADERS:
        raise _UNUSUAL
    for _ in range(twice >> 1):
        at += _HEADER_KEYS[body[at]]
        value = body[at]
        if value < 0x80:
            at += _HEADER_VALUES[value]
        else:
            value += body[at + 1] - 1 << 7
            if value >= _TWO_BYTES or value & 1:
                raise _UNUSUAL
            at += 2 + (value >> 1)
    return at

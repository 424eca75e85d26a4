"""Codec: batches as a filter leaves them: like those of a compacted log, with gaps where records did not match.

A batch of which nothing matches is left out, one that matches whole is passed on byte for byte, and any other is written
again with the matching records only: base offset, last offset, producer, epoch, timestamps and codec stay (rebuild.py).
Control batches always stay, because readers of committed data need the markers (R48).

Invariant: the records that come out are exactly those that match, with their offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.core.ports import Buffer
from headrace.records.batch import (
    COMMIT_MARKER,
    CONTROL_BIT,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptBatch,
    scan,
)
from headrace.records.build import Record, append_record, assemble
from headrace.records.filters import Filter, FilterInput
from headrace.records.read import RecordSpan, plain_body, read_headers, read_span
from headrace.records.rebuild import rebuild_batch
from headrace.records.tag_mask import ALL_TAGS, tag_mask
from headrace.records.varint import read_varint

_LENGTHS_PER_BREATH = 512
_RECORDS_PER_BREATH = 16

MAX_SKIP = 2**31 - 1
"""The largest last offset delta a batch can state."""

Span = tuple[int, int, int, int, int, int, int, int, int]
"""The fields of a RecordSpan."""

_COMMIT = struct.pack(">hh", 0, COMMIT_MARKER)
_BY_NOBODY = struct.pack(">hi", 0, 0)


class RecordPlaces(NamedTuple):
    """Where the records lie, for filters that ask."""

    topic: str
    partition: int


class Selected(NamedTuple):
    """What is left of one batch."""

    data: Buffer
    """Empty when nothing matched."""
    records: int
    tags: int
    """The batch's tag mask; 0 when it was not asked for."""
    last_match: int = -1
    """The offset of the last record that matched; of a control batch, its last."""


def select_records(
    batch: memoryview,
    header: BatchHeader,
    wanted: Filter,
    place: RecordPlaces,
    *,
    max_bytes: int,
    with_tags: bool,
    breathe: Callable[[], None],
) -> Selected:
    """`batch` is exactly one batch. Raises CorruptBatch when its records can't be read.

    `breathe` is called every few records: it may pause, and it may raise to end the work.
    """
    if header.is_control:
        return Selected(batch, 0, 0, header.last_offset)
    if header.record_count == 0:
        return Selected(
            b"", 0, 0
        )  # what compaction emptied stands for a producer's sequence, which no reader needs
    body = plain_body(batch, 0, header, max_bytes=max_bytes)
    breathe()
    kept = list(_matching(body, header, wanted, place, breathe))
    tags = tag_mask(body) if with_tags else 0
    if not kept:
        return Selected(b"", 0, tags)
    last_match = header.base_offset + kept[-1].offset_delta
    if len(kept) == header.record_count:
        return Selected(batch, len(kept), tags, last_match)
    return Selected(rebuild_batch(header, body, kept), len(kept), tags, last_match)


class SiftedBatches(NamedTuple):
    """What is left of several batches."""

    data: bytes
    lasts: list[int]
    """The offset of the last match of each batch in `data`, and where the batch begins."""
    positions: list[int]
    records: int
    next_offset: int
    """Everything below has been looked at."""
    epoch: int
    """Leader epoch of the last batch that was looked at."""
    seen: list[tuple[int, int, int]]
    """(next offset, size, tag mask) of each batch that was looked at."""
    unreadable: list[tuple[int, CorruptBatch]]
    """Where batches begin whose records can't be read, and why: nobody could, so nothing of them matches."""


def sift(
    data: Buffer,
    wanted: Filter,
    place: RecordPlaces,
    *,
    max_bytes: int,
    with_tags: bool,
    breathe: Callable[[], None],
    enough: Callable[[], bool],
) -> SiftedBatches:
    """Filter whole batches, front to back, at least one of them, until `enough` or their end."""
    view = memoryview(data)
    left: list[Buffer] = []
    lasts, positions, seen = [], [], []
    unreadable: list[tuple[int, CorruptBatch]] = []
    size = records = 0
    next_offset = epoch = -1
    for position, header in scan(view):
        batch = view[position : position + header.size]
        try:
            found = select_records(
                batch, header, wanted, place, max_bytes=max_bytes, with_tags=with_tags, breathe=breathe
            )
        except CorruptBatch as problem:
            found = Selected(b"", 0, 0)
            unreadable.append((header.base_offset, problem))
        if found.data:
            left.append(found.data)
            lasts.append(found.last_match)
            positions.append(size)
            size += len(found.data)
            records += found.records
        next_offset, epoch = header.next_offset, header.leader_epoch
        seen.append((next_offset, header.size, ALL_TAGS if header.is_control else found.tags))
        if enough():
            break
    return SiftedBatches(b"".join(left), lasts, positions, records, next_offset, epoch, seen, unreadable)


def _matching(
    body: bytes, header: BatchHeader, wanted: Filter, place: RecordPlaces, breathe: Callable[[], None]
) -> Iterator[RecordSpan]:
    prefilter, needs = wanted.prefilter, wanted.needs
    spans = every_span(body, header) if prefilter is None else _candidates(body, prefilter.needles, breathe)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    matches, with_headers = wanted.matches, needs.headers
    for count, span in enumerate(spans):
        if count % _RECORDS_PER_BREATH == 0:
            breathe()
        _, end, offset_delta, timestamp_delta, key_start, key_length, start, length, headers_start = span
        if offset_delta > header.last_offset_delta:
            raise CorruptBatch(f"offset delta {offset_delta} in a batch of {header.last_offset_delta + 1}")
        record = FilterInput(
            None if key_length < 0 else body[key_start : key_start + key_length],
            None if length < 0 else body[start : start + length],
            read_headers(body, headers_start, end) if with_headers and end - headers_start > 1 else (),
            base_timestamp + timestamp_delta if append_time is None else append_time,
            base_offset + offset_delta,
            place.topic,
            place.partition,
        )
        if matches(record):
            yield RecordSpan._make(span)


def every_span(body: bytes, header: BatchHeader) -> Iterator[Span]:
    """As read.iter_spans, at half its price: a filter that has to look at every record spends most of its time here.

    Numbers of one and two bytes are read in place; whatever is larger, or odd in any way, is left to read_span.
    """
    count, last_delta = header.record_count, header.last_offset_delta
    if count < 0 or count * MIN_RECORD_BYTES > len(body):
        raise CorruptBatch(f"{count} records can not fit into {len(body)} bytes")
    position, previous = 0, -1
    for _ in range(count):
        span = _short_span(body, position) or read_span(body, position)
        if not previous < span[2] <= last_delta:
            raise CorruptBatch(f"offset delta {span[2]} after {previous} in a batch of {last_delta + 1}")
        previous, position = span[2], span[1]
        yield span
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes after the last record")


def _short_span(body: bytes, position: int) -> Span | None:
    """None: some field takes three bytes or more, or something is wrong."""
    try:
        long = 0
        length = body[position]
        at = position + 1
        if length >= 0x80:
            long = body[at]
            length += long - 1 << 7
            at += 1
        end = at + (length >> 1)
        time = body[at + 1]
        at += 2
        if time >= 0x80:
            byte = body[at]
            long |= byte
            time += byte - 1 << 7
            at += 1
        offset = body[at]
        at += 1
        if offset >= 0x80:
            byte = body[at]
            long |= byte
            offset += byte - 1 << 7
            at += 1
        key = body[at]
        at += 1
        if key >= 0x80:
            byte = body[at]
            long |= byte
            key += byte - 1 << 7
            at += 1
        key_start = at
        if not key & 1:
            at += key >> 1
        value = body[at]
        at += 1
        if value >= 0x80:
            byte = body[at]
            long |= byte
            value += byte - 1 << 7
            at += 1
        value_start = at
        if not value & 1:
            at += value >> 1
        headers = body[at]
    except IndexError:
        return None
    is_odd = (length | offset | headers) & 1 or (key & 1 and key != 1) or (value & 1 and value != 1)
    if long >= 0x80 or headers >= 0x80 or is_odd or end > len(body):
        return None
    left = end - at - 1
    if headers > left or (
        not headers and left
    ):  # two bytes at least for each; `headers` is twice their count
        return None
    return (
        position,
        end,
        offset >> 1,
        (time >> 1) ^ -(time & 1),
        key_start,
        -1 if key & 1 else key >> 1,
        value_start,
        -1 if value & 1 else value >> 1,
        at,
    )


def _candidates(body: bytes, needles: tuple[bytes, ...], breathe: Callable[[], None]) -> Iterator[Span]:
    """The records that contain one of the needles. The others are stepped over by their length alone."""
    find = body.find
    hits = [(found, needle) for needle in needles if (found := find(needle)) >= 0]
    position, total, steps = 0, len(body), 0
    while hits and position < total:
        hit = min(hits)[0]
        end = position
        try:
            while end <= hit:
                position = end
                length = body[position]
                start = position + 1
                if length >= 0x80:
                    following = body[start]
                    start += 1
                    length += (following - 1) << 7
                    if following >= 0x80:
                        length, start = read_varint(body, position)
                        length <<= 1
                end = start + (length >> 1)
                if length & 1 or length < 0 or end > total:
                    raise CorruptBatch("a record whose length can't be")
                steps += 1
                if not steps % _LENGTHS_PER_BREATH:
                    breathe()
        except IndexError:
            raise CorruptBatch("a record is cut short") from None
        yield read_span(body, position)
        position = end
        hits = [
            (later, needle)
            for found, needle in hits
            if (later := found if found >= end else find(needle, end)) >= 0
        ]


def skip_batch(first: int, following: int, leader_epoch: int, wall_ms: int) -> bytes:
    """A batch that only says: there is nothing for you from `first` to `following` - 1.

    It is a control batch with the commit marker of nobody, which every client steps over. An empty data batch would say
    the same to Java; librdkafka takes it for a message too large for its buffer and in the end reports an error.
    """
    last_delta = min(following - first - 1, MAX_SKIP)
    body = bytearray()
    append_record(body, Record(_COMMIT, _BY_NOBODY), 0, last_delta)
    header = BatchHeader(
        first, 0, leader_epoch, MAGIC_V2, 0, TRANSACTIONAL_BIT | CONTROL_BIT, last_delta, wall_ms, wall_ms,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1,
    )  # fmt: skip
    return bytes(assemble(header, body))

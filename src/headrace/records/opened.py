"""Codec: one batch held open, for those who want single records of it in any order.

Where each record starts is found once, by hopping from length to length, which costs a fraction of reading them all; a record
is read when it is asked for. A batch of ten thousand then costs a few milliseconds once, and not for each of its records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.ports import Buffer
from headrace.records.batch import MIN_RECORD_BYTES, BatchHeader, CorruptBatch, read_header
from headrace.records.build import Record
from headrace.records.read import plain_body, read_headers, read_span
from headrace.records.varint import read_varint


class OpenBatch:
    __slots__ = ("_deltas", "body", "header", "starts")

    def __init__(
        self,
        buffer: Buffer,
        position: int,
        header: BatchHeader | None = None,
        body: bytes | None = None,
        *,
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """`header` and plain `body`: when the caller has read them already. Raises CorruptBatch."""
        self.header: BatchHeader = read_header(buffer, position) if header is None else header
        self.body = plain_body(buffer, position, self.header, max_bytes=max_bytes) if body is None else body
        self.starts = self._find_starts()
        """Where each record begins in the body, with its length."""
        self._deltas: array[int] | None = None
        if self.header.record_count != self.header.last_offset_delta + 1:
            # Compaction has left gaps: which offset a record has, it has to say itself.
            self._deltas = array("i", [read_span(self.body, start).offset_delta for start in self.starts])

    def _find_starts(self) -> array[int]:
        body, count = self.body, self.header.record_count
        starts: array[int] = array("I")
        at, end = 0, len(body)
        if count < 0 or count * MIN_RECORD_BYTES > end:
            raise CorruptBatch(f"{count} records can not fit into {end} bytes")
        try:
            for _ in range(count):
                starts.append(at)
                byte = body[at]
                if byte < 0x80:
                    at += 1 + (byte >> 1)
                else:
                    length, after = read_varint(body, at)
                    if length < 0:
                        raise CorruptBatch(f"a record of {length} bytes")
                    at = after + length
        except (IndexError, OverflowError):
            raise CorruptBatch("a record is cut short") from None
        if at != end:
            raise CorruptBatch(f"{count} records end at {at}, the batch at {end}")
        return starts

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size_bytes(self) -> int:
        return len(self.body) + self.starts.itemsize * len(self.starts)

    def find(self, offset: int) -> Record | None:
        """The record at `offset`; None when there is none (any more)."""
        delta = offset - self.header.base_offset
        if self._deltas is not None:
            place = bisect_left(self._deltas, delta)
            if place >= len(self._deltas) or self._deltas[place] != delta:
                return None
            return self.record(place)
        return self.record(delta) if 0 <= delta < len(self.starts) else None

    def first_from(self, offset: int) -> int:
        """The place of the first record at or after `offset`."""
        delta = offset - self.header.base_offset
        if self._deltas is not None:
            return bisect_left(self._deltas, delta)
        return min(max(delta, 0), len(self.starts))

    def offset(self, place: int) -> int:
        return self.header.base_offset + (place if self._deltas is None else self._deltas[place])

    @property
    def is_dense(self) -> bool:
        """Whether record and offset are numbered alike, so that the first is at the base offset."""
        return self._deltas is None

    def record(self, place: int) -> Record:
        header, body = self.header, self.body
        span = read_span(body, self.starts[place])
        append_time = header.max_timestamp if header.is_log_append_time else None
        return Record(
            None if span.key_length < 0 else body[span.key_start : span.key_start + span.key_length],
            None if span.value_length < 0 else body[span.value_start : span.value_start + span.value_length],
            read_headers(body, span.headers_start, span.end) if span.end - span.headers_start > 1 else (),
            header.base_timestamp + span.timestamp_delta if append_time is None else append_time,
            self.offset(place),
        )

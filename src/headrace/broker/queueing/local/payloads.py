"""Driver: records by offset. A batch that somebody just received from is kept open, because the next one is near; and what was
sent through this broker is handed out from memory while receivers keep up with it, without a look at the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.local.delayed import has_waiting, is_waiting
from headrace.core.errors import HeadraceError
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.core.tuples import new_tuple
from headrace.records.batch import BatchHeader, CorruptBatch, scan
from headrace.records.build import Record
from headrace.records.opened import OpenBatch

MAX_CACHED_BYTES = 16 * MIB
READ_BYTES = 64 * 1024
MAX_SENT_BYTES = 256 * 1024
HELD_BYTES = 1_000
"""What a batch that is held open costs besides its records: single sends make many small ones."""


class _Held(NamedTuple):
    end: int
    batch: OpenBatch | None
    """None: nothing in there is for anybody."""


class Payloads:
    """Of one partition."""

    __slots__ = ("_bases", "_bytes", "_held", "_is_read", "_partition", "_sent", "_sent_bytes")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._held: OrderedDict[int, _Held] = OrderedDict()
        """By base offset, the latest used last."""
        self._bases: list[int] = []
        """The same base offsets in order: batches do not overlap, so one bisect finds the one that may hold an offset."""
        self._bytes = 0
        self._sent: dict[int, Record] = {}
        """Committed and not handed out yet."""
        self._sent_bytes = 0
        self._is_read = False
        """Whether somebody receives, and keeps up with what is sent."""

    def sent(self, base_offset: int, records: Sequence[Record]) -> None:
        """These were written here just now as they are, and are committed: nothing else will ever lie there. While nobody
        reads, or receivers do not keep up, they are read from the log when they are asked for."""
        if not self._is_read:
            return
        sent, size = self._sent, self._sent_bytes
        offset = base_offset
        for record in records:
            key, value, headers, timestamp, _ = record
            if timestamp >= 0:  # else the log has the time at which it was written
                sent[offset] = new_tuple(Record, (key, value, headers, timestamp, offset))
                size += HELD_BYTES + len(value or b"") + (_extra_bytes(record) if key or headers else 0)
            offset += 1
        if size > MAX_SENT_BYTES:
            sent.clear()
            size, self._is_read = 0, False
        self._sent_bytes = size

    def look(self, offset: int) -> Record | None:
        """For who only wants to know, and receives nothing: what was sent stays for whoever does."""
        record = self._sent.get(offset)
        return self._read((offset,), waiting=False).get(offset) if record is None else record

    def get(self, offsets: Sequence[int], *, waiting: bool = False) -> dict[int, Record]:
        """The records at these offsets that are still there; control records and gaps are left out, and what waits in
        the log unless it is asked for.

        In any order: lanes (groups, tenants, priorities) take turns, so offsets do not ascend.
        """
        found: dict[int, Record] = {}
        self._is_read = True
        if self._sent:
            for offset in offsets:
                record = self._sent.pop(offset, None)
                if record is not None:
                    found[offset] = record
                    extra = _extra_bytes(record) if record.key or record.headers else 0
                    self._sent_bytes -= HELD_BYTES + len(record.value or b"") + extra
            if len(found) == len(offsets):
                return found
            offsets = [offset for offset in offsets if offset not in found]
        found |= self._read(offsets, waiting)
        return found

    def _read(self, offsets: Sequence[int], waiting: bool) -> dict[int, Record]:
        """From the log, or the batches of it that are held open."""
        found: dict[int, Record] = {}
        held = _Held(-1, None)
        for offset in sorted(offsets):
            if offset >= held.end:
                held = self._at(offset)
            try:
                record = None if held.batch is None else held.batch.find(offset)
            except CorruptBatch as problem:
                self._partition.step_over(offset, problem)
                record = None
            if record is None or held.batch is None:
                continue
            if waiting or not (
                has_waiting(held.batch.header) and is_waiting(record.headers, record.timestamp)
            ):
                found[offset] = record
        return found

    def _at(self, offset: int) -> _Held:
        """The batch that holds `offset`, or an empty one."""
        bases = self._bases
        at = bisect_right(bases, offset) - 1
        if at >= 0:
            base = bases[at]
            held = self._held[base]
            if offset < held.end:
                self._held.move_to_end(base)
                return held
        nothing = _Held(offset + 1, None)
        log = self._partition.log
        if not log.start_offset <= offset < self._partition.last_stable_offset:
            return nothing
        data = self._partition.read(offset, READ_BYTES, self._partition.last_stable_offset)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        wanted = nothing
        for position, header in scan(data):
            is_empty = header.is_control or is_aborted(self._partition, header)
            batch = None
            if not is_empty:
                try:
                    batch = OpenBatch(data, position, header)
                except CorruptBatch as problem:
                    # Nobody can have what is in there, now or later: a gap, not a reason to stop.
                    self._partition.step_over(header.base_offset, problem)
            held = _Held(header.next_offset, batch)
            self._keep(header.base_offset, held)
            if header.base_offset <= offset < header.next_offset:
                wanted = held
        return wanted

    def _keep(self, base: int, held: _Held) -> None:
        if base in self._held:
            return
        self._held[base] = held
        insort(self._bases, base)
        self._bytes += _size(held)
        while self._bytes > MAX_CACHED_BYTES and len(self._held) > 1:
            oldest, dropped = self._held.popitem(last=False)
            del self._bases[bisect_left(self._bases, oldest)]
            self._bytes -= _size(dropped)


def _extra_bytes(record: Record) -> int:
    """Besides its value: an SQS message's attributes are headers, and may be most of it."""
    size = len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _size(held: _Held) -> int:
    return HELD_BYTES if held.batch is None else HELD_BYTES + held.batch.size_bytes


def is_aborted(partition: Partition, header: BatchHeader) -> bool:
    """R48: a transaction that was aborted never happened, for queues as for consumers. Below the last stable offset only."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in partition.log.aborted_transactions(header.base_offset, header.next_offset)
    )

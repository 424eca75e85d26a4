"""Driver: records by offset. A batch that somebody just received from is kept open, because the next one is near."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.delayed import has_waiting, is_waiting
from headrace.core.errors import HeadraceError
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.records.batch import BatchHeader, CorruptBatch, scan
from headrace.records.build import Record
from headrace.records.opened import OpenBatch

MAX_CACHED_BYTES = 16 * MIB
READ_BYTES = 64 * 1024
HELD_BYTES = 1_000
"""What a batch that is held open costs besides its records: single sends make many small ones."""


class _Held(NamedTuple):
    end: int
    batch: OpenBatch | None
    """None: nothing in there is for anybody."""


class Payloads:
    """Of one partition."""

    __slots__ = ("_bases", "_bytes", "_held", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._held: OrderedDict[int, _Held] = OrderedDict()
        """By base offset, the latest used last."""
        self._bases: list[int] = []
        """The same base offsets in order: batches do not overlap, so one bisect finds the one that may hold an offset."""
        self._bytes = 0

    def get(self, offsets: Iterable[int], *, waiting: bool = False) -> dict[int, Record]:
        """The records at these offsets that are still there; control records and gaps are left out, and what waits in
        the log unless it is asked for.

        In any order: lanes (groups, tenants, priorities) take turns, so offsets do not ascend.
        """
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


def _size(held: _Held) -> int:
    return HELD_BYTES if held.batch is None else HELD_BYTES + held.batch.size_bytes


def is_aborted(partition: Partition, header: BatchHeader) -> bool:
    """R48: a transaction that was aborted never happened, for queues as for consumers. Below the last stable offset only."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in partition.log.aborted_transactions(header.base_offset, header.next_offset)
    )

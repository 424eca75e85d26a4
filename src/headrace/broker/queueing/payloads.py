"""Driver: records by offset. A batch that somebody just received from is kept open, because the next one is near."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.delayed import has_waiting, is_waiting
from headrace.core.errors import HeadraceError
from headrace.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.records.batch import BatchHeader, scan
from headrace.records.build import Record
from headrace.records.read import read_records

MAX_CACHED_BYTES = 16 * MIB
READ_BYTES = 256 * 1024


class _Batch(NamedTuple):
    end: int
    size: int
    records: dict[int, Record]
    waiting: frozenset[int]
    """Offsets of those that wait for their time (delayed.py)."""


class Payloads:
    """Of one partition."""

    __slots__ = ("_batches", "_bytes", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._batches: OrderedDict[int, _Batch] = OrderedDict()
        self._bytes = 0

    def get(self, offsets: Iterable[int], *, waiting: bool = False) -> dict[int, Record]:
        """The records at these offsets that are still there; control records and gaps are left out, and what waits in
        the log unless it is asked for.

        In any order: lanes (groups, tenants, priorities) take turns, so offsets do not ascend.
        """
        found: dict[int, Record] = {}
        batch = _Batch(-1, 0, {}, frozenset())
        for offset in sorted(offsets):
            if offset >= batch.end:
                batch = self._batch_at(offset)
            if offset in batch.records and (waiting or offset not in batch.waiting):
                found[offset] = batch.records[offset]
        return found

    def _batch_at(self, offset: int) -> _Batch:
        """The batch that holds `offset`, or an empty one."""
        for base, held in self._batches.items():
            if base <= offset < held.end:
                self._batches.move_to_end(base)
                return held
        wanted = _Batch(offset + 1, 0, {}, frozenset())
        log = self._partition.log
        if not log.start_offset <= offset < self._partition.last_stable_offset:
            return wanted
        data = self._partition.read(offset, READ_BYTES, self._partition.last_stable_offset)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        for position, header in scan(data):
            batch = self._opened(data, position, header)
            self._keep(header.base_offset, batch)
            if header.base_offset <= offset < header.next_offset:
                wanted = batch
        return wanted

    def _opened(self, data: Buffer, position: int, header: BatchHeader) -> _Batch:
        records: dict[int, Record] = {}
        waiting: frozenset[int] = frozenset()
        if not header.is_control and not is_aborted(self._partition, header):
            records = {
                record.offset: record
                for record in read_records(data, position, max_bytes=MAX_DECOMPRESSED_BYTES)
            }
        if has_waiting(header):
            waiting = frozenset(
                offset for offset, record in records.items() if is_waiting(record.headers, record.timestamp)
            )
        return _Batch(header.next_offset, header.size, records, waiting)

    def _keep(self, base: int, batch: _Batch) -> None:
        if base in self._batches:
            return
        self._batches[base] = batch
        self._bytes += batch.size
        while self._bytes > MAX_CACHED_BYTES and len(self._batches) > 1:
            _, dropped = self._batches.popitem(last=False)
            self._bytes -= dropped.size


def is_aborted(partition: Partition, header: BatchHeader) -> bool:
    """R48: a transaction that was aborted never happened, for queues as for consumers. Below the last stable offset only."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id
        and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in partition.log.aborted_transactions(header.base_offset, header.next_offset)
    )

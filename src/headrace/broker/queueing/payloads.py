"""Driver: records by offset. A batch that somebody just received from is kept open, because the next one is near."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from headrace.broker.partition import Partition
from headrace.core.errors import HeadraceError
from headrace.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from headrace.core.plan import Rejected
from headrace.records.batch import BatchHeader, scan
from headrace.records.build import Record
from headrace.records.read import read_records

MAX_CACHED_BYTES = 16 * MIB
READ_BYTES = 256 * 1024


class Payloads:
    """Of one partition."""

    __slots__ = ("_batches", "_bytes", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._batches: OrderedDict[int, tuple[int, int, dict[int, Record]]] = OrderedDict()
        """Base offset -> (next offset, size, records by offset)."""
        self._bytes = 0

    def get(self, offsets: Iterable[int]) -> dict[int, Record]:
        """The records at these offsets that are still there; control records and gaps are left out.

        In any order: lanes (groups, tenants, priorities) take turns, so offsets do not ascend.
        """
        found: dict[int, Record] = {}
        records: dict[int, Record] = {}
        upto = -1
        for offset in sorted(offsets):
            if offset >= upto:
                upto, records = self._batch_at(offset)
            if offset in records:
                found[offset] = records[offset]
        return found

    def _batch_at(self, offset: int) -> tuple[int, dict[int, Record]]:
        """(offset after the batch that holds `offset`, its records)."""
        for base, (end, _, records) in self._batches.items():
            if base <= offset < end:
                self._batches.move_to_end(base)
                return end, records
        log = self._partition.log
        if not log.start_offset <= offset < self._partition.last_stable_offset:
            return offset + 1, {}
        data = self._partition.read(offset, READ_BYTES, self._partition.last_stable_offset)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        wanted: tuple[int, dict[int, Record]] = (offset + 1, {})
        for position, header in scan(data):
            records = {}
            if not header.is_control and not is_aborted(self._partition, header):
                records = {
                    record.offset: record
                    for record in read_records(data, position, max_bytes=MAX_DECOMPRESSED_BYTES)
                }
            self._keep(header.base_offset, header.next_offset, header.size, records)
            if header.base_offset <= offset < header.next_offset:
                wanted = (header.next_offset, records)
        return wanted

    def _keep(self, base: int, end: int, size: int, records: dict[int, Record]) -> None:
        if base in self._batches:
            return
        self._batches[base] = (end, size, records)
        self._bytes += size
        while self._bytes > MAX_CACHED_BYTES and len(self._batches) > 1:
            _, (_, dropped, _) = self._batches.popitem(last=False)
            self._bytes -= dropped


def is_aborted(partition: Partition, header: BatchHeader) -> bool:
    """R48: a transaction that was aborted never happened, for queues as for consumers. Below the last stable offset only."""
    return header.is_transactional and any(
        entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in partition.log.aborted_transactions(header.base_offset, header.next_offset)
    )

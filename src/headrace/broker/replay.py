"""Driver: a journal read into a machine, from its first record on."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.plan import JournalRecord, Machine
from headrace.core.ports import Buffer
from headrace.records.batch import BatchHeader, scan
from headrace.records.read import read_control, read_records


@runtime_checkable
class TransactionalMachine(Protocol):
    """A machine whose journal may hold facts that count only once their transaction commits (R50)."""

    def replay_transactional(self, record: JournalRecord, producer_id: int, now_ms: int) -> None: ...

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool, now_ms: int) -> None: ...


class JournalReplay:
    def __init__(self, machine: Machine[object]) -> None:
        self._machine = machine
        self._undecided: dict[int, list[JournalRecord]] = {}
        """Facts of transactions whose marker has not come yet, by producer."""

    def read(self, data: Buffer, now_ms: int) -> int:
        """Whole batches; the offset after the last of them."""
        position = -1
        for at, header in scan(data):
            self._batch(data, at, header, now_ms)
            position = header.next_offset
        return position

    def _batch(self, data: Buffer, at: int, header: BatchHeader, now_ms: int) -> None:
        if header.is_control:
            marker = read_control(data, at)
            if marker is not None:
                self._marker(header, marker.commit, now_ms)
            return
        machine = self._machine
        for record in read_records(data, at, max_bytes=MAX_DECOMPRESSED_BYTES):
            if record.key is None:
                continue
            journaled = JournalRecord(record.key, record.value)
            if not header.is_transactional:
                machine.replay(journaled, now_ms)
            elif isinstance(machine, TransactionalMachine):
                machine.replay_transactional(journaled, header.producer_id, now_ms)
            else:
                self._undecided.setdefault(header.producer_id, []).append(journaled)

    def _marker(self, header: BatchHeader, commit: bool, now_ms: int) -> None:
        if isinstance(self._machine, TransactionalMachine):
            self._machine.replay_marker(header.producer_id, header.producer_epoch, commit, now_ms)
            return
        for journaled in self._undecided.pop(header.producer_id, ()):
            if commit:
                self._machine.replay(journaled, now_ms)

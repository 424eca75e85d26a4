"""Machine: from a history, what each log must have held: values per offset, their order, writers and readers.

Polled data counts even when the poll's operation failed: a broker may hand out nothing that is not safe. Sent data
counts when the operation must have committed. Offsets without a value (control records) are skipped: an index is
the rank among the offsets that have one.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.testing.history import Key, OperationOutcome, RecordedOperation, Value


class LogView:
    """One key's log as the history shows it."""

    __slots__ = ("_index_of_offset", "by_index", "indexes_of", "offsets", "values_at")

    def __init__(self, values_at: dict[int, dict[Value, None]]) -> None:
        self.values_at = values_at
        self.offsets = sorted(values_at)
        self._index_of_offset = {offset: index for index, offset in enumerate(self.offsets)}
        self.by_index: list[list[Value]] = [list(values_at[offset]) for offset in self.offsets]
        self.indexes_of: dict[Value, list[int]] = {}
        for index, values in enumerate(self.by_index):
            for value in values:
                self.indexes_of.setdefault(value, []).append(index)

    def index(self, offset: int | None, value: Value) -> int | None:
        """Where this record stands: by its offset when it is known, else by its value."""
        if offset is not None and offset in self._index_of_offset:
            return self._index_of_offset[offset]
        known = self.indexes_of.get(value)
        return known[0] if known else None


class VersionOrder:
    def __init__(self, operations: Sequence[RecordedOperation]) -> None:
        self.operations = operations
        self.writer_of: dict[tuple[Key, Value], RecordedOperation] = {}
        self.readers_of: dict[tuple[Key, Value], list[RecordedOperation]] = {}
        """Every operation that polled the value, however it ended."""
        for operation in operations:
            for send in operation.sends():
                self.writer_of[send.key, send.value] = operation
            for key in operation.polled_keys():
                for _, value in operation.polled_from(key):
                    readers = self.readers_of.setdefault((key, value), [])
                    if not readers or readers[-1] is not operation:
                        readers.append(operation)
        self._committed = {operation.number: self._decide_committed(operation) for operation in operations}
        self.logs: dict[Key, LogView] = self._build_logs()

    def must_have_committed(self, operation: RecordedOperation) -> bool:
        """It said so, or nobody knows and an operation that did commit saw something it wrote."""
        return self._committed[operation.number]

    def _decide_committed(self, operation: RecordedOperation) -> bool:
        if operation.outcome is OperationOutcome.OK:
            return True
        if operation.outcome is OperationOutcome.FAIL:
            return False
        return any(
            reader.outcome is OperationOutcome.OK
            for send in operation.sends()
            for reader in self.readers_of.get((send.key, send.value), ())
        )

    def was_read(self, key: Key, value: Value) -> bool:
        return (key, value) in self.readers_of

    def _build_logs(self) -> dict[Key, LogView]:
        held: dict[Key, dict[int, dict[Value, None]]] = {}
        for operation in self.operations:
            if self.must_have_committed(operation):
                for send in operation.sends():
                    if send.offset is not None:
                        held.setdefault(send.key, {}).setdefault(send.offset, {})[send.value] = None
            for key in operation.polled_keys():
                for offset, value in operation.polled_from(key):
                    held.setdefault(key, {}).setdefault(offset, {})[value] = None
        return {key: LogView(values_at) for key, values_at in held.items()}

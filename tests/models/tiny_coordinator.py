"""A coordinator in a dictionary: revisions, compared transactions and the history of events, all in one turn."""

from __future__ import annotations

from typing import NamedTuple

from headrace.cluster.changes import Change, Expect, PutKey


class KeyEvent(NamedTuple):
    key: str
    value: bytes | None
    mod_revision: int


class Held(NamedTuple):
    value: bytes
    create_revision: int
    mod_revision: int


class TinyCoordinator:
    def __init__(self) -> None:
        self.revision = 1
        self.held: dict[str, Held] = {}
        self.history: list[KeyEvent] = []

    def holds(self, compare: Expect) -> bool:
        held = self.held.get(compare.key)
        if compare.target == "value":
            return held is not None and held.value == compare.expected
        if held is None:
            return compare.expected == 0
        return compare.expected == (held.mod_revision if compare.target == "mod" else held.create_revision)

    def txn(self, change: Change) -> bool:
        if not all(self.holds(compare) for compare in change.compares):
            return False
        self.revision += 1
        for op in change.ops:
            if isinstance(op, PutKey):
                old = self.held.get(op.key)
                created = old.create_revision if old is not None else self.revision
                self.held[op.key] = Held(op.value, created, self.revision)
                self.history.append(KeyEvent(op.key, op.value, self.revision))
            else:
                self._delete(op.key)
        return True

    def delete(self, *keys: str) -> None:
        """What the end of a lease does."""
        self.revision += 1
        for key in keys:
            self._delete(key)

    def _delete(self, key: str) -> None:
        if self.held.pop(key, None) is not None:
            self.history.append(KeyEvent(key, None, self.revision))

    def put(self, key: str, value: bytes) -> None:
        self.txn(Change((), (PutKey(key, value),)))

    def snapshot(self) -> list[KeyEvent]:
        return [KeyEvent(key, held.value, held.mod_revision) for key, held in sorted(self.held.items())]

"""Machine: a local copy of the keys under a prefix, fed by a watch that may repeat itself or look back (R3).

`apply` returns only what really changed, each key as an Event, so whoever builds on it never sees a repeat, a replay of
an older state, or a deletion that a late event undoes. Invariant: the mod_revision held for a key never goes down,
except when the whole store did (`Resync.restored`), and then everything is replaced.
"""

from __future__ import annotations

from headrace.coordinator.port import Event, KeyValue, Resync, Snapshot, WatchUpdate


class Mirror:
    __slots__ = ("_floor", "_tombstones", "items", "revision")

    def __init__(self) -> None:
        self.items: dict[str, KeyValue] = {}
        self.revision = 0
        """The highest revision known to be reflected here."""
        self._floor = 0  # the last full read: no event at or below it can tell us anything
        self._tombstones: dict[str, int] = {}  # deletions above the floor

    def apply(self, update: WatchUpdate) -> list[Event]:
        if isinstance(update, Resync):
            return self._replace(update.snapshot, update.restored)
        changes = [event for event in update.events if self._accept(event)]
        self.revision = max(self.revision, update.revision)
        return changes

    def _accept(self, event: Event) -> bool:
        held = self.items.get(event.key)
        known = self._tombstones.get(event.key, 0) if held is None else held.mod_revision
        if event.mod_revision <= max(known, self._floor):
            return False
        if event.value is None:
            self._tombstones[event.key] = event.mod_revision
            return self.items.pop(event.key, None) is not None
        self._tombstones.pop(event.key, None)
        self.items[event.key] = KeyValue(
            event.key, event.value, event.create_revision, event.mod_revision, event.lease
        )
        return True

    def _replace(self, snapshot: Snapshot, restored: bool) -> list[Event]:
        if restored:
            self._tombstones.clear()
        elif snapshot.revision < self._floor:
            return []  # a full read that was overtaken by a later one
        changes = []
        fresh = {item.key: item for item in snapshot.items}
        for key, held in list(self.items.items()):
            if key not in fresh and (restored or held.mod_revision <= snapshot.revision):
                del self.items[key]
                changes.append(Event(key, None, 0, snapshot.revision))
        for key, item in fresh.items():
            current = self.items.get(key)
            known = self._tombstones.get(key, 0) if current is None else current.mod_revision
            if item.mod_revision > known or (restored and item != current):
                self.items[key] = item
                changes.append(Event(key, item.value, item.create_revision, item.mod_revision, item.lease))
        self._floor = snapshot.revision
        self.revision = snapshot.revision if restored else max(self.revision, snapshot.revision)
        self._tombstones = {
            key: revision for key, revision in self._tombstones.items() if revision > self._floor
        }
        return changes

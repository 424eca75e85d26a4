"""Machine: committed offsets of every group of a shard, and those that wait for a transaction to end.

Invariant (R50): what a transaction wrote is in `pending` and nowhere else until its commit marker is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    expire_wall_ms: int = -1
    """Only when the client asked for a retention of its own."""
    order: int = 0
    """Place in the journal. A marker must not bring back an offset older than what was committed since."""
    topic_id: bytes = b""
    """Of the topic that it is a place in: a topic made again under the name is another. Empty: from before ids were kept."""


_Pending = dict[str, dict[tuple[str, int], CommittedOffset]]


class OffsetTable:
    __slots__ = ("_order", "_unstable", "committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self.pending: dict[int, _Pending] = {}
        self._unstable: dict[str, dict[tuple[str, int], set[int]]] = {}
        self._order = 0

    def put(self, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        self._order += 1
        self._store(group_id, topic, partition, value._replace(order=self._order))

    def put_pending(
        self, group_id: str, topic: str, partition: int, value: CommittedOffset, pid: int
    ) -> None:
        self._order += 1
        key = (topic, partition)
        self.pending.setdefault(pid, {}).setdefault(group_id, {})[key] = value._replace(order=self._order)
        self._unstable.setdefault(group_id, {}).setdefault(key, set()).add(pid)

    def finish(self, pid: int, commit: bool) -> list[str]:
        """The groups whose committed offsets may have changed."""
        groups = self.pending.pop(pid, {})
        for group_id, entries in groups.items():
            for key, value in entries.items():
                self._settle(group_id, key, pid)
                present = self.get(group_id, *key)
                if commit and (present is None or present.order < value.order):
                    self._store(group_id, *key, value)
        return list(groups)

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.committed.get(group_id)
        if topics and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self.committed[group_id]
        key = (topic, partition)
        for pid in self._unstable.get(group_id, {}).get(key, set()).copy():
            groups = self.pending[pid]
            del groups[group_id][key]
            if not groups[group_id]:
                del groups[group_id]
            if not groups:
                del self.pending[pid]
            self._settle(group_id, key, pid)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self.committed.get(group_id)
        partitions = topics.get(topic) if topics else None
        return partitions.get(partition) if partitions else None

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        unstable = self._unstable.get(group_id)
        return unstable is not None and (topic, partition) in unstable

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.committed.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield topic, partition, value

    def keys_of_group(self, group_id: str) -> tuple[tuple[str, int], ...]:
        """Committed or pending: everything that dies with the group."""
        committed = {(topic, partition) for topic, partition, _ in self.of_group(group_id)}
        return tuple(sorted(committed | self._unstable.get(group_id, {}).keys()))

    def keys_of_topic(self, topic: str, topic_id: bytes) -> dict[str, tuple[tuple[str, int], ...]]:
        """What was committed for one life of a topic. A key that something newer waits for, or has, is left alone: it can
        only be dropped as a whole."""
        found: dict[str, list[tuple[str, int]]] = {}
        for group_id in self.group_ids():
            keys = {(topic, partition) for partition in self.committed.get(group_id, {}).get(topic, ())}
            keys |= {key for key in self._unstable.get(group_id, {}) if key[0] == topic}
            doomed = [key for key in sorted(keys) if self._ids_at(group_id, key) <= {b"", topic_id}]
            if doomed:
                found[group_id] = doomed
        return {group_id: tuple(keys) for group_id, keys in found.items()}

    def _ids_at(self, group_id: str, key: tuple[str, int]) -> set[bytes]:
        present = self.get(group_id, *key)
        ids = set() if present is None else {present.topic_id}
        for pid in self._unstable.get(group_id, {}).get(key, ()):
            ids.add(self.pending[pid][group_id][key].topic_id)
        return ids

    def topics(self) -> set[tuple[str, bytes]]:
        """Name and id of every topic that something is kept for."""
        found = {
            (topic, value.topic_id)
            for topics in self.committed.values()
            for topic, partitions in topics.items()
            for value in partitions.values()
        }
        for groups in self.pending.values():
            for entries in groups.values():
                found.update((topic, value.topic_id) for (topic, _), value in entries.items())
        return found

    def group_ids(self) -> set[str]:
        return self.committed.keys() | self._unstable.keys()

    def invariants(self) -> None:
        indexed = {
            (pid, group_id, key)
            for group_id, keys in self._unstable.items()
            for key, pids in keys.items()
            for pid in pids
        }
        held = {
            (pid, group_id, key)
            for pid, groups in self.pending.items()
            for group_id, entries in groups.items()
            for key in entries
        }
        assert indexed == held, "the index of unstable offsets is not what is pending"
        assert all(self.pending.values()) and all(self.committed.values()), "an empty shell was left behind"
        assert all(keys for keys in self._unstable.values()), "a group is unstable without a reason"

    def _store(self, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        self.committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def _settle(self, group_id: str, key: tuple[str, int], pid: int) -> None:
        unstable = self._unstable[group_id]
        unstable[key].discard(pid)
        if not unstable[key]:
            del unstable[key]
        if not unstable:
            del self._unstable[group_id]

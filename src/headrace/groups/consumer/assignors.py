"""Machine: who should read what. Pure functions from members, topics and the last target to the next target.

`uniform` balances: among equal subscriptions within one partition, among different ones as well as any assignment
can. Next to that it is sticky: a member that is within its share keeps what it has. `range` gives each member a
contiguous range of every topic, so that topics with the same number of partitions are co-partitioned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.groups.consumer.members import NOTHING, Assignment, TopicIdPartition
from headrace.groups.topics import TopicIndex


class GroupReader(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: frozenset[str]
    """Names of topics that exist."""


Assignor = Callable[[Sequence[GroupReader], Mapping[str, Assignment], TopicIndex], dict[str, Assignment]]


def assign_range(
    readers: Sequence[GroupReader], previous: Mapping[str, Assignment], index: TopicIndex
) -> dict[str, Assignment]:
    # Static members first and by instance id, so that a restart under a new member id moves nothing.
    ordered = sorted(readers, key=lambda r: (r.instance_id is None, r.instance_id or r.member_id))
    result: dict[str, list[TopicIdPartition]] = {reader.member_id: [] for reader in readers}
    for topic in sorted({topic for reader in readers for topic in reader.topics}):
        info = index.topics[topic]
        subscribers = [reader for reader in ordered if topic in reader.topics]
        share, extra = divmod(info.partition_count, len(subscribers))
        start = 0
        for position, reader in enumerate(subscribers):
            end = start + share + (position < extra)
            result[reader.member_id] += ((info.topic_id, p) for p in range(start, end))
            start = end
    return {member_id: frozenset(parts) for member_id, parts in result.items()}


def assign_uniform(
    readers: Sequence[GroupReader], previous: Mapping[str, Assignment], index: TopicIndex
) -> dict[str, Assignment]:
    if not readers:
        return {}
    if all(reader.topics == readers[0].topics for reader in readers):
        return _Even(readers, previous, index).assign()
    return _Uneven(readers, previous, index).assign()


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _partitions(topics: frozenset[str], index: TopicIndex) -> list[TopicIdPartition]:
    infos = (index.topics[topic] for topic in sorted(topics))
    return [(info.topic_id, p) for info in infos for p in range(info.partition_count)]


def _racks(part: TopicIdPartition, index: TopicIndex) -> frozenset[str]:
    topic_id, partition = part
    racks = index.topics[index.by_id[topic_id]].racks
    return racks[partition] if partition < len(racks) else frozenset()


class _Even:
    """Everybody reads the same topics: a quota for each, filled from what it has, then from what is left over."""

    def __init__(
        self, readers: Sequence[GroupReader], previous: Mapping[str, Assignment], index: TopicIndex
    ) -> None:
        self.readers = readers
        self.index = index
        self.parts = _partitions(readers[0].topics, index)
        existing = set(self.parts)
        self.held = {r.member_id: sorted(previous.get(r.member_id, NOTHING) & existing) for r in readers}

    def assign(self) -> dict[str, Assignment]:
        self._cut_to_quota()
        taken = {part for parts in self.held.values() for part in parts}
        left_over = [part for part in self.parts if part not in taken]
        for part in self._same_rack(left_over):
            reader = next(iter(self.room))
            self._give(reader, part)
        return {member_id: frozenset(parts) for member_id, parts in self.held.items()}

    def _cut_to_quota(self) -> None:
        share, extra = divmod(len(self.parts), len(self.readers))
        # Who already has more than the share is first in line for the extra ones, so that nothing moves in vain.
        by_greed = sorted(self.held, key=lambda member_id: -min(len(self.held[member_id]), share + 1))
        quota = {member_id: share + (position < extra) for position, member_id in enumerate(by_greed)}
        self.room: dict[str, int] = {}
        for reader in self.readers:
            held = self.held[reader.member_id]
            del held[quota[reader.member_id] :]
            if len(held) < quota[reader.member_id]:
                self.room[reader.member_id] = quota[reader.member_id] - len(held)

    def _give(self, member_id: str, part: TopicIdPartition) -> None:
        self.held[member_id].append(part)
        self.room[member_id] -= 1
        if not self.room[member_id]:
            del self.room[member_id]

    def _same_rack(self, parts: list[TopicIdPartition]) -> list[TopicIdPartition]:
        """Give partitions to members next to a replica, as far as quotas allow. Returns the others."""
        rack_of = {r.member_id: r.rack_id for r in self.readers if r.rack_id is not None}
        if not rack_of:
            return parts
        others: list[TopicIdPartition] = []
        for part in parts:
            racks = _racks(part, self.index)
            near = [member_id for member_id in self.room if rack_of.get(member_id) in racks]
            if near:
                self._give(max(near, key=lambda member_id: self.room[member_id]), part)
            else:
                others.append(part)
        return others


class _Uneven:
    """Members read different topics. Loads are evened out along chains of members until no chain helps any more,
    which is the best there is; short chains first, so that few partitions move."""

    def __init__(
        self, readers: Sequence[GroupReader], previous: Mapping[str, Assignment], index: TopicIndex
    ) -> None:
        self.index = index
        self.previous = previous
        self.rack_of = {reader.member_id: reader.rack_id for reader in readers}
        self.subscribers: dict[bytes, list[str]] = {}
        for reader in readers:
            for topic in reader.topics:
                self.subscribers.setdefault(index.topics[topic].topic_id, []).append(reader.member_id)
        self.held: dict[str, dict[bytes, set[int]]] = {reader.member_id: {} for reader in readers}
        self.load = {reader.member_id: 0 for reader in readers}
        self.topics = frozenset(topic for reader in readers for topic in reader.topics)
        self.reads = {reader.member_id: reader.topics for reader in readers}

    def assign(self) -> dict[str, Assignment]:
        self._keep_and_fill()
        while self._even_out():
            pass
        return {
            member_id: frozenset((topic_id, p) for topic_id, parts in topics.items() for p in parts)
            for member_id, topics in self.held.items()
        }

    def _even_out(self) -> bool:
        """One partition from each member that has a lot to one that has little; the fullest first, and no more than one
        at a time, or the giver would end up with less than it should keep."""
        progress = False
        least = min(self.load.values())
        for member_id in sorted(self.load, key=lambda m: (-self.load[m], m)):
            if self.load[member_id] - 2 < least:
                break
            chain = self._relief(member_id)
            if chain is not None:
                self._shift(chain)
                progress = True
        return progress

    def _keep_and_fill(self) -> None:
        taken: set[TopicIdPartition] = set()
        parts = _partitions(self.topics, self.index)
        existing = set(parts)
        for member_id in self.held:
            for part in sorted(self.previous.get(member_id, NOTHING)):
                if part in existing and self.index.by_id[part[0]] in self.reads[member_id]:
                    self._take(member_id, part)
                    taken.add(part)
        # The partitions that fewest members can take go first.
        for part in sorted(parts, key=lambda part: len(self.subscribers[part[0]])):
            if part not in taken:
                racks = _racks(part, self.index)
                self._take(
                    min(
                        self.subscribers[part[0]],
                        key=lambda m: (self.load[m], self.rack_of[m] not in racks),
                    ),
                    part,
                )

    def _take(self, member_id: str, part: TopicIdPartition) -> None:
        self.held[member_id].setdefault(part[0], set()).add(part[1])
        self.load[member_id] += 1

    def _relief(self, overloaded: str) -> list[tuple[str, bytes, str]] | None:
        """The shortest chain of hand-overs (from, topic, to) to somebody with at least two partitions less."""
        came_from: dict[str, tuple[str, bytes]] = {}
        seen_topics: set[bytes] = set()
        queue = deque([overloaded])
        while queue:
            giver = queue.popleft()
            for topic_id in self.held[giver]:
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                takers = [t for t in self.subscribers[topic_id] if t not in came_from and t != overloaded]
                came_from.update((taker, (giver, topic_id)) for taker in takers)
                lightest = min(takers, key=lambda t: self.load[t], default=None)
                if lightest is not None and self.load[lightest] <= self.load[overloaded] - 2:
                    return self._chain(overloaded, lightest, came_from)
                queue.extend(takers)
        return None

    def _chain(
        self, start: str, end: str, came_from: Mapping[str, tuple[str, bytes]]
    ) -> list[tuple[str, bytes, str]]:
        steps: list[tuple[str, bytes, str]] = []
        while end != start:
            giver, topic_id = came_from[end]
            steps.append((giver, topic_id, end))
            end = giver
        return steps

    def _shift(self, chain: list[tuple[str, bytes, str]]) -> None:
        for giver, topic_id, taker in chain:
            parts = self.held[giver][topic_id]
            kept = self.previous.get(giver, NOTHING)
            # Rather one that the giver does not have yet.
            partition = max(parts, key=lambda p: ((topic_id, p) not in kept, p))
            parts.discard(partition)
            if not parts:
                del self.held[giver][topic_id]
            self.load[giver] -= 1
            self._take(taker, (topic_id, partition))

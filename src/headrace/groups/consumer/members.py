"""Machine: a member of a consumer group, what it subscribes to and what it can be assigned. Immutable: facts carry it, and the state keeps it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.groups.assigned import MemberState
from headrace.groups.commands import Protocol
from headrace.groups.topics import TopicIndex

TopicIdPartition = tuple[bytes, int]

Assignment = frozenset[TopicIdPartition]

NOTHING: Assignment = frozenset()


def as_lists(assignment: Assignment) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """By topic, in order, as on the wire."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in topics.items())


class ClassicMetadata(NamedTuple):
    """Of a member that still speaks JoinGroup and SyncGroup, in a group that is being upgraded."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerSubscription(NamedTuple):
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    reader: str = ""
    """With a pattern: whose eyes look for its topics. Empty: nobody asks about rights."""

    @property
    def what(self) -> tuple[tuple[str, ...], str | None, str]:
        """What decides which topics are read."""
        return self.topics, self.pattern, self.reader

    def resolve(self, index: TopicIndex) -> frozenset[str]:
        return index.resolve(self.topics, self.pattern, self.reader, self.client_host.removeprefix("/"))


class ConsumerMember(NamedTuple):
    member_id: str
    subscription: ConsumerSubscription = ConsumerSubscription()
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    @property
    def held(self) -> Assignment:
        return self.assigned | self.revoking

"""Machine: what groups can be asked, and what they answer.

A command is one request with everything that is not state inside it: who asks, what its API version implies (as
facts, not as a number), and ids drawn by the driver. Its waiter is stamped by the runtime when it is submitted; a join or a
sync may be answered in a much later plan, but every waiter is answered exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Never, TypeAlias

from headrace.core.errors import ErrorKind
from headrace.core.plan import Command, Plan
from headrace.groups.config import GroupConfig

GroupPlan: TypeAlias = Plan[Never]
"""Groups want nothing done: everything they decide is in their facts and answers."""


class Protocol(NamedTuple):
    """A way to assign that a member supports. `metadata` is opaque: KIP-429, Connect and Streams live in it."""

    name: str
    metadata: bytes


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: bytes = b""
    """Of the topic that has the name now; empty: not known."""


class MemberIdentity(NamedTuple):
    """One entry of LeaveGroup's list; an empty member id with an instance id is an administrator's removal."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error: ErrorKind
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    error: ErrorKind
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatResult(NamedTuple):
    error: ErrorKind


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorKind


class LeaveResult(NamedTuple):
    error: ErrorKind
    members: tuple[LeftMember, ...] = ()


class PartitionOutcome(NamedTuple):
    topic: str
    partition: int
    error: ErrorKind


class CommitResult(NamedTuple):
    """`error` is what every partition shares; older protocol versions repeat it per partition."""

    error: ErrorKind
    partitions: tuple[PartitionOutcome, ...] = ()


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorKind = ErrorKind.NONE
    topic_id: bytes = b""
    """What it was committed for. Whoever asks must not take it for the place in another topic of that name."""


class FetchOffsetsResult(NamedTuple):
    error: ErrorKind
    partitions: tuple[FetchedOffset, ...] = ()


class DeleteOffsetsResult(NamedTuple):
    error: ErrorKind
    partitions: tuple[PartitionOutcome, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    error: ErrorKind
    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


class DeletedGroup(NamedTuple):
    group_id: str
    error: ErrorKind


@dataclass(slots=True)
class JoinGroup(Command[JoinResult]):
    group_id: str
    member_id: str
    new_member_id: str
    """What the member will be called if it came without an id: client id or instance id, dash, uuid."""
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Version 0 has none: pass the session timeout."""
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    member_id_required: bool = True
    """Version 4 and up: a dynamic member must come twice, so that a lost answer leaves no ghost (KIP-394)."""
    supports_skip_assignment: bool = True
    """Version 9 and up (KIP-814)."""
    reason: str | None = None
    """Why the client joins (KIP-800); for the log only."""


@dataclass(slots=True)
class SyncGroup(Command[SyncResult]):
    group_id: str
    member_id: str
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    instance_id: str | None = None
    protocol_type: str | None = None
    """Version 5 and up; None is not checked."""
    protocol_name: str | None = None


@dataclass(slots=True)
class Heartbeat(Command[HeartbeatResult]):
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(slots=True)
class LeaveGroup(Command[LeaveResult]):
    group_id: str
    members: tuple[MemberIdentity, ...]


@dataclass(slots=True)
class CommitOffsets(Command[CommitResult]):
    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    generation: int = -1
    """The member epoch when `member_epoch_known`."""
    instance_id: str | None = None
    member_epoch_known: bool = True
    """Version 9 and up: the client knows what a member epoch is (KIP-848)."""
    retention_ms: int | None = None
    """Versions 2 to 4 could ask for their own retention."""


@dataclass(slots=True)
class TxnCommitOffsets(Command[CommitResult]):
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


@dataclass(slots=True)
class TxnMarker(Command[None]):
    """A commit or abort marker that is committed in this partition. The driver wrote it; nothing is journaled."""

    producer_id: int
    producer_epoch: int
    commit: bool


@dataclass(slots=True)
class FetchOffsets(Command[FetchOffsetsResult]):
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    """None asks for everything the group has committed."""
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1
    """Version 9 and up; checked only when the group is a consumer group and one of them is given."""


@dataclass(slots=True)
class DeleteOffsets(Command[DeleteOffsetsResult]):
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class DescribeGroups(Command[tuple[DescribedGroup, ...]]):
    group_ids: tuple[str, ...]
    missing_is_error: bool = True
    """Version 6 and up; before, an unknown group is answered as a dead one without an error."""


@dataclass(slots=True)
class ListGroups(Command[tuple[ListedGroup, ...]]):
    states: frozenset[str] = frozenset()
    """Empty lists all. Compared without regard to case."""
    types: frozenset[str] = frozenset()


@dataclass(slots=True)
class DeleteGroups(Command[tuple[DeletedGroup, ...]]):
    group_ids: tuple[str, ...]


@dataclass(slots=True)
class TopicDeleted(Command[None]):
    """A topic is gone, and with it every offset committed for it: a topic of the same name starts anew. What was committed
    for a topic of that name with another id stays."""

    topic: str
    topic_id: bytes = b""


@dataclass(slots=True)
class AdoptOffsets(Command[None]):
    """Offsets from before ids were kept belong to the topics that are there now, and to no later ones."""

    topic_ids: Mapping[str, bytes]


@dataclass(slots=True)
class ConfigsChanged(Command[None]):
    """The config of all groups, and those of groups that have their own. The shard keeps the mapping: pass a new one."""

    config: GroupConfig
    of_groups: Mapping[str, GroupConfig]

"""Machine: what can become true of classic groups and of offsets.

Facts are absolute: they carry the new value, not a difference, so that applying one twice is harmless and a
durable one can be encoded without looking at state. Members inside are immutable and shared with the state.
`producer` is set on a fact whose records have to be journaled in a transactional batch of that producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from headrace.groups.config import GroupConfig
from headrace.groups.members import Member
from headrace.groups.offset_table import CommittedOffset
from headrace.groups.topics import TopicIndex

Producer = tuple[int, int]
"""Producer id and epoch."""


class Volatile:
    """Dies with the process: clients rejoin, sessions start anew."""

    __slots__ = ()
    durable: ClassVar[bool] = False
    producer: ClassVar[Producer | None] = None


class Durable:
    __slots__ = ()
    durable: ClassVar[bool] = True
    producer: ClassVar[Producer | None] = None


class GroupSnapshot(NamedTuple):
    """A classic group as it is journaled. Members but no leader: the generation is taken, and its assignment
    has not been handed out yet (R54)."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_wall_ms: int
    members: tuple[Member, ...]


# --- classic groups ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupOpened(Durable):
    """The first join of an unknown group."""

    group_id: str
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class GroupLoaded(Volatile):
    """Replay only: what the journal knows of a group."""

    group_id: str
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class MemberIdReserved(Volatile):
    """KIP-394: the id was handed out and has to come back before `until_ms`."""

    group_id: str
    member_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class MemberJoining(Volatile):
    """A member, new or known, with its parked join. New ones are given up at `until_ms`; the others have no session
    to lose while they wait."""

    group_id: str
    protocol_type: str
    member: Member
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class MemberReplaced(Volatile):
    """KIP-345: an instance came back under a new member id and keeps its place, its assignment and its lead."""

    group_id: str
    old_member_id: str
    member: Member


@dataclass(frozen=True, slots=True)
class MemberRemoved(Volatile):
    """Also for an id that was only reserved."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceStarted(Volatile):
    """Members have until `until_ms` to rejoin. `initial_remaining_ms` is by how much the wait of a first generation
    may still be extended; None for any other rebalance, which ends as soon as everybody is there."""

    group_id: str
    until_ms: int
    initial_remaining_ms: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceExtended(Volatile):
    group_id: str
    until_ms: int
    initial_remaining_ms: int | None


@dataclass(frozen=True, slots=True)
class GenerationStarted(Durable):
    """Everybody is told the generation and the leader. Journaled before they are, so that no number is used twice."""

    group_id: str
    snapshot: GroupSnapshot
    leader: str
    sync_until_ms: int


@dataclass(frozen=True, slots=True)
class SyncParked(Volatile):
    group_id: str
    member_id: str
    waiter: int


@dataclass(frozen=True, slots=True)
class MemberSynced(Volatile):
    """It fetched its assignment from a stable group."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class Assigned(Durable):
    """The leader's assignment arrived, or a static member took its old one over."""

    group_id: str
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class GroupEmptied(Durable):
    group_id: str
    snapshot: GroupSnapshot


@dataclass(frozen=True, slots=True)
class GroupDeleted(Durable):
    group_id: str


@dataclass(frozen=True, slots=True)
class ProgressAwaited(Volatile):
    """The member has to give partitions or tasks up (or, speaking the classic protocol, rejoin or sync) by `until_ms`."""

    group_id: str
    member_id: str
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class SessionExtended(Volatile):
    group_id: str
    member_id: str
    until_ms: int


# --- offsets -------------------------------------------------------------------------------------------------


class OffsetEntry(NamedTuple):
    topic: str
    partition: int
    value: CommittedOffset


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Durable):
    group_id: str
    entries: tuple[OffsetEntry, ...]


@dataclass(frozen=True, slots=True)
class TxnOffsetsPending:
    """R50: written inside the producer's transaction, invisible until its commit marker."""

    durable: ClassVar[bool] = True
    group_id: str
    entries: tuple[OffsetEntry, ...]
    producer: Producer


@dataclass(frozen=True, slots=True)
class TxnFinished(Volatile):
    """The marker is in the log, which is what makes it durable."""

    producer_id: int
    commit: bool


@dataclass(frozen=True, slots=True)
class OffsetsDropped(Durable):
    """Deleted, expired, or their topic is gone. Drops what is pending for them, too."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CleanupScheduled(Volatile):
    group_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicsSeen(Volatile):
    """The cluster's topics, as of now; the cluster keeps them, not we."""

    index: TopicIndex


@dataclass(frozen=True, slots=True)
class ConfigsSeen(Volatile):
    """What is set for all groups and for some; the cluster keeps it, not we."""

    config: GroupConfig
    of_groups: Mapping[str, GroupConfig]

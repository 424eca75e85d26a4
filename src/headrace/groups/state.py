"""Machine: one classic group, and how each fact changes it.

`apply` is the only mutator. A verb that needs to look ahead applies its facts to a copy first (see draft.py),
so members are immutable values and a copy is a few dictionary copies.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from headrace.core.errors import ErrorKind
from headrace.groups import facts
from headrace.groups.commands import JoinedMember, Protocol
from headrace.groups.members import Member, metadata_size, static_refusal
from headrace.groups.subscription import subscribed_topics

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The value is what DescribeGroups and ListGroups call it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    __slots__ = (
        "awaiting_join", "generation", "group_id", "initial_remaining_ms", "leader", "member_added", "members",
        "pending_sync", "phase_until_ms", "protocol", "protocol_type", "reserved", "since_wall_ms", "state",
        "statics", "supporters",
    )  # fmt: skip

    group_type = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.since_wall_ms = -1
        """When the state last changed to one that was journaled; retention counts from here."""
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.reserved: dict[str, None] = {}
        self.supporters: dict[str, int] = {}
        """How many members support each protocol."""
        self.awaiting_join = 0
        self.pending_sync: set[str] = set()
        self.phase_until_ms: int | None = None
        """When the join phase (PREPARING) or the sync phase (COMPLETING, STABLE) is ended by force."""
        self.initial_remaining_ms: int | None = None
        self.member_added = False
        """Somebody new came since the initial delay was last extended."""

    def copy(self) -> ClassicGroup:
        twin = ClassicGroup.__new__(ClassicGroup)
        for name in ClassicGroup.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, dict | set) else value)
        return twin

    # --- questions -------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def can_be_forgotten(self) -> bool:
        """Once it has no offsets either."""
        return self.is_empty and not self.reserved

    @property
    def metadata_bytes(self) -> int:
        """What all members together make us keep (A4)."""
        return sum(metadata_size(member.protocols) for member in self.members.values())

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is GroupState.PREPARING and self.initial_remaining_ms is not None

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self.members) and not self.reserved

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorKind:
        """Why a request of this member can't be served (R54); NONE when it can."""
        fenced = static_refusal(self.statics, member_id, instance_id)
        if fenced is not ErrorKind.NONE:
            return fenced
        return ErrorKind.NONE if member_id in self.members else ErrorKind.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """A newcomer needs one protocol that everybody supports, so there is always one to elect."""
        everybody = len(self.members)
        if not everybody:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self.supporters.get(name) == everybody for name, _ in protocols
        )

    def elected_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all support; ties go to whom was named first."""
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.supporters[name] == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name]) if votes else None

    def elected_leader(self) -> str | None:
        """The present leader if it rejoined, else whoever rejoined first; None when nobody did."""
        present = self.members.get(self.leader) if self.leader is not None else None
        if present is not None and present.join_waiter is not None:
            return present.member_id
        return next((m.member_id for m in self.members.values() if m.join_waiter is not None), None)

    def member_list(self) -> tuple[JoinedMember, ...]:
        """What the leader needs to know to assign."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def topics_subscribed(self) -> frozenset[str] | None:
        """What the members read; None when that can't be known, because their metadata is not ours to parse."""
        if not self.uses_consumer_protocol or self.protocol is None:
            return None
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol))
            if topics is None:
                return None
            found.update(topics)
        return frozenset(found)

    @property
    def state_name(self) -> str:
        return self.state.value

    def retention(self, index: object) -> tuple[frozenset[str] | None, int | None]:
        """Topics whose offsets are in use (None: all of them), and since when the group has been empty, in wall time
        (None: count from each commit)."""
        if self.is_empty:
            return frozenset(), self.since_wall_ms if self.protocol_type else None
        return (self.topics_subscribed() if self.state is GroupState.STABLE else None), None

    def snapshot(self, since_wall_ms: int) -> facts.GroupSnapshot:
        members = tuple(self.members.values())
        return facts.GroupSnapshot(
            self.protocol_type, self.generation, self.protocol, self.leader, since_wall_ms, members
        )

    # --- facts -----------------------------------------------------------------------------------------------

    def apply(self, fact: facts.Volatile | facts.Durable) -> None:
        _APPLY[type(fact)](self, fact)

    def _put(self, member: Member) -> None:
        self._take(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.awaiting_join += member.join_waiter is not None
        for name, _ in member.protocols:
            self.supporters[name] = self.supporters.get(name, 0) + 1

    def _take(self, member_id: str) -> None:
        """Forget what the counters know of a member, leaving its place in the order to whoever puts it back."""
        member = self.members.get(member_id)
        if member is None:
            return
        self.awaiting_join -= member.join_waiter is not None
        for name, _ in member.protocols:
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def _put_all(self, members: tuple[Member, ...]) -> None:
        self.members, self.statics, self.supporters, self.awaiting_join = {}, {}, {}, 0
        for member in members:
            self._put(member)

    def _apply_snapshot(self, snapshot: facts.GroupSnapshot) -> None:
        self.protocol_type = snapshot.protocol_type
        self.generation = snapshot.generation
        self.protocol = snapshot.protocol
        self.leader = snapshot.leader
        self.since_wall_ms = snapshot.since_wall_ms
        self.initial_remaining_ms = None
        self.member_added = False
        self._put_all(snapshot.members)

    def _apply_opened(self, fact: facts.GroupOpened) -> None:
        self._apply_snapshot(fact.snapshot)

    def _apply_loaded(self, fact: facts.GroupLoaded) -> None:
        self._apply_snapshot(fact.snapshot)
        self.pending_sync, self.phase_until_ms = set(), None
        if not self.members:
            self.state = GroupState.EMPTY
        elif self.leader is None:
            # The generation was announced and never assigned: everybody has to come again (R54).
            self.state = GroupState.PREPARING
        else:
            self.state = GroupState.STABLE

    def _apply_reserved(self, fact: facts.MemberIdReserved) -> None:
        self.reserved[fact.member_id] = None

    def _apply_joining(self, fact: facts.MemberJoining) -> None:
        if not self.members:
            self.protocol_type = fact.protocol_type
        self.reserved.pop(fact.member.member_id, None)
        if fact.member.is_new:
            self.member_added = True
        self._put(fact.member)

    def _apply_replaced(self, fact: facts.MemberReplaced) -> None:
        order = list(self.members)
        self._take(fact.old_member_id)
        del self.members[fact.old_member_id]
        if fact.old_member_id in self.pending_sync:
            self.pending_sync.discard(fact.old_member_id)
            self.pending_sync.add(fact.member.member_id)
        if self.leader == fact.old_member_id:
            self.leader = fact.member.member_id
        self._put(fact.member)
        new_id = fact.member.member_id
        names = (new_id if member_id == fact.old_member_id else member_id for member_id in order)
        self.members = {member_id: self.members[member_id] for member_id in names}

    def _apply_removed(self, fact: facts.MemberRemoved) -> None:
        self.reserved.pop(fact.member_id, None)
        member = self.members.get(fact.member_id)
        if member is None:
            return
        self._take(fact.member_id)
        del self.members[fact.member_id]
        if member.instance_id is not None:
            self.statics.pop(member.instance_id, None)
        self.pending_sync.discard(fact.member_id)
        if self.leader == fact.member_id:
            self.leader = None

    def _apply_rebalance_started(self, fact: facts.RebalanceStarted) -> None:
        self.state = GroupState.PREPARING
        self.phase_until_ms = fact.until_ms
        self.initial_remaining_ms = fact.initial_remaining_ms
        self.member_added = False
        self.pending_sync = set()
        for member in list(self.members.values()):
            if member.sync_waiter is not None:
                self.members[member.member_id] = member._replace(sync_waiter=None)

    def _apply_rebalance_extended(self, fact: facts.RebalanceExtended) -> None:
        self.phase_until_ms = fact.until_ms
        self.initial_remaining_ms = fact.initial_remaining_ms
        self.member_added = False

    def _apply_generation_started(self, fact: facts.GenerationStarted) -> None:
        self._apply_snapshot(fact.snapshot)
        self.leader = fact.leader
        self.state = GroupState.COMPLETING
        self.phase_until_ms = fact.sync_until_ms
        self.pending_sync = set(self.members)

    def _apply_sync_parked(self, fact: facts.SyncParked) -> None:
        member = self.members[fact.member_id]
        self.members[fact.member_id] = member._replace(sync_waiter=fact.waiter)
        self._sync_seen(fact.member_id)

    def _apply_member_synced(self, fact: facts.MemberSynced) -> None:
        self._sync_seen(fact.member_id)

    def _sync_seen(self, member_id: str) -> None:
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self.phase_until_ms = None

    def _apply_assigned(self, fact: facts.Assigned) -> None:
        self._apply_snapshot(fact.snapshot)
        self.state = GroupState.STABLE

    def _apply_emptied(self, fact: facts.GroupEmptied) -> None:
        self._apply_snapshot(fact.snapshot)
        self.state = GroupState.EMPTY
        self.phase_until_ms = None
        self.pending_sync = set()

    def _apply_nothing(self, fact: object) -> None:
        """A fact about time only."""

    # --- invariants ------------------------------------------------------------------------------------------

    def invariants(self) -> None:
        state, members = self.state, self.members.values()
        assert not (self.is_empty and self.members), f"empty with {len(self.members)} members"
        assert self.awaiting_join == sum(m.join_waiter is not None for m in members)
        assert self.statics == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        counted: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counted[name] = counted.get(name, 0) + 1
        assert self.supporters == counted, "the protocol counters are wrong"
        assert not self.reserved.keys() & self.members.keys(), "a member is also only reserved"
        assert self.pending_sync <= self.members.keys()
        assert state is GroupState.PREPARING or not self.awaiting_join, f"a join is parked in {state.value}"
        parked_syncs = any(m.sync_waiter is not None for m in members)
        assert state is GroupState.COMPLETING or not parked_syncs, f"a sync is parked in {state.value}"
        if state in (GroupState.COMPLETING, GroupState.STABLE):
            assert self.leader in self.members, "a generation without a leader"
            assert (self.phase_until_ms is not None) == bool(self.pending_sync), "nobody waits for the syncs"
        if state is GroupState.PREPARING:
            assert self.phase_until_ms is not None, "a rebalance that never ends"


_APPLY: dict[type, Callable[[ClassicGroup, Any], None]] = {
    facts.GroupOpened: ClassicGroup._apply_opened,
    facts.GroupLoaded: ClassicGroup._apply_loaded,
    facts.MemberIdReserved: ClassicGroup._apply_reserved,
    facts.MemberJoining: ClassicGroup._apply_joining,
    facts.MemberReplaced: ClassicGroup._apply_replaced,
    facts.MemberRemoved: ClassicGroup._apply_removed,
    facts.RebalanceStarted: ClassicGroup._apply_rebalance_started,
    facts.RebalanceExtended: ClassicGroup._apply_rebalance_extended,
    facts.GenerationStarted: ClassicGroup._apply_generation_started,
    facts.SyncParked: ClassicGroup._apply_sync_parked,
    facts.MemberSynced: ClassicGroup._apply_member_synced,
    facts.Assigned: ClassicGroup._apply_assigned,
    facts.GroupEmptied: ClassicGroup._apply_emptied,
    facts.SessionExtended: ClassicGroup._apply_nothing,
}

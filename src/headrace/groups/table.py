"""Machine: everything one shard knows, and the only place where it changes.

`apply` hands a fact to the group or the offsets it is about and then moves the deadlines that follow from it. Verbs
only read. Invariant: a member has a session deadline exactly when it is not waiting for an answer of ours (a new
member always has one: its join may not be parked for ever).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.core.deadlines import Deadlines
from headrace.core.plan import WallClockSet
from headrace.groups import facts
from headrace.groups.assigned_apply import check_deadlines
from headrace.groups.config import GroupConfig
from headrace.groups.consumer import apply as consumer_apply
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.deadlines import CLEANUP, PHASE, SESSION, Deadline
from headrace.groups.members import Member
from headrace.groups.offset_table import OffsetTable
from headrace.groups.share import apply as share_apply
from headrace.groups.share.state import ShareGroup
from headrace.groups.state import ClassicGroup
from headrace.groups.streams import apply as streams_apply
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.topics import TopicIndex

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


class GroupTable:
    __slots__ = ("config", "deadlines", "groups", "of_groups", "offsets", "topics", "wall_minus_now_ms")

    def __init__(
        self, config: GroupConfig, of_groups: Mapping[str, GroupConfig], wall_minus_now_ms: int
    ) -> None:
        self.config = config
        self.of_groups = of_groups
        """The configs of groups for which something was set (KIP-1011); the others have `config`."""
        self.groups: dict[str, Group] = {}
        self.topics: TopicIndex | None = None
        """None until the driver has told us: no assignment is made from a view that may be empty only because it is
        missing."""
        self.offsets = OffsetTable()
        self.deadlines: Deadlines[Deadline] = Deadlines()
        self.wall_minus_now_ms = wall_minus_now_ms

    def wall_ms(self, now_ms: int) -> int:
        return now_ms + self.wall_minus_now_ms

    def config_of(self, group_id: str) -> GroupConfig:
        return self.of_groups.get(group_id, self.config)

    def apply(self, fact: Any, now_ms: int) -> None:
        _APPLY[type(fact)](self, fact, now_ms)

    # --- classic groups --------------------------------------------------------------------------------------

    def _classic(self, fact: Any, now_ms: int) -> ClassicGroup:
        group = self.groups.get(fact.group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[fact.group_id] = ClassicGroup(fact.group_id)
            self.arm_cleanup(fact.group_id, now_ms + self.config.cleanup_interval_ms)
        group.apply(fact)
        phase = Deadline(PHASE, fact.group_id)
        if group.phase_until_ms is None:
            self.deadlines.cancel(phase)
        else:
            self.deadlines.set(phase, group.phase_until_ms)
        return group

    def _apply_opened(self, fact: facts.GroupOpened | facts.GroupEmptied, now_ms: int) -> None:
        self._classic(fact, now_ms)
        self.arm_cleanup(fact.group_id, now_ms + self.config.cleanup_interval_ms)

    def _apply_loaded(self, fact: facts.GroupLoaded, now_ms: int) -> None:
        self._classic(fact, now_ms)

    def _apply_reserved(self, fact: facts.MemberIdReserved, now_ms: int) -> None:
        self._classic(fact, now_ms)
        self.deadlines.set(Deadline(SESSION, fact.group_id, fact.member_id), fact.until_ms)

    def _apply_joining(self, fact: facts.MemberJoining, now_ms: int) -> None:
        self._classic(fact, now_ms)
        key = Deadline(SESSION, fact.group_id, fact.member.member_id)
        if fact.until_ms is None:
            self.deadlines.cancel(key)
        else:
            self.deadlines.set(key, fact.until_ms)

    def _apply_replaced(self, fact: facts.MemberReplaced, now_ms: int) -> None:
        self._classic(fact, now_ms)
        old_key = Deadline(SESSION, fact.group_id, fact.old_member_id)
        old_at_ms = self.deadlines.at(old_key)
        self.deadlines.cancel(old_key)
        key = Deadline(SESSION, fact.group_id, fact.member.member_id)
        if not fact.member.is_parked:
            self.deadlines.set(key, now_ms + fact.member.session_timeout_ms)
        elif fact.member.is_new and old_at_ms is not None:
            self.deadlines.set(key, old_at_ms)

    def _apply_removed(self, fact: facts.MemberRemoved, now_ms: int) -> None:
        self._classic(fact, now_ms)
        self.deadlines.cancel(Deadline(SESSION, fact.group_id, fact.member_id))

    def _apply_phase(self, fact: Any, now_ms: int) -> None:
        self._classic(fact, now_ms)

    def _apply_answered(self, fact: Any, now_ms: int) -> None:
        """Parked syncs were answered: their sessions start again."""
        for member in self._classic(fact, now_ms).members.values():
            key = Deadline(SESSION, fact.group_id, member.member_id)
            if not member.is_parked and self.deadlines.at(key) is None:
                self.deadlines.set(key, now_ms + member.session_timeout_ms)

    def _apply_generation(self, fact: facts.GenerationStarted, now_ms: int) -> None:
        for member in self._classic(fact, now_ms).members.values():
            self._start_session(fact.group_id, member, now_ms)

    def _apply_sync_parked(self, fact: facts.SyncParked, now_ms: int) -> None:
        self._classic(fact, now_ms)
        self.deadlines.cancel(Deadline(SESSION, fact.group_id, fact.member_id))

    def _apply_member_synced(self, fact: facts.MemberSynced, now_ms: int) -> None:
        group = self._classic(fact, now_ms)
        self._start_session(fact.group_id, group.members[fact.member_id], now_ms)

    def _apply_session(self, fact: facts.SessionExtended, now_ms: int) -> None:
        self.deadlines.set(Deadline(SESSION, fact.group_id, fact.member_id), fact.until_ms)

    def _apply_progress(self, fact: facts.ProgressAwaited, now_ms: int) -> None:
        key = Deadline(PHASE, fact.group_id, fact.member_id)
        if fact.until_ms is None:
            self.deadlines.cancel(key)
        else:
            self.deadlines.set(key, fact.until_ms)

    def _apply_deleted(self, fact: facts.GroupDeleted, now_ms: int) -> None:
        group = self.groups.get(fact.group_id)
        if not isinstance(group, ClassicGroup):
            return
        del self.groups[fact.group_id]
        for member_id in (*group.members, *group.reserved):
            self.deadlines.cancel(Deadline(SESSION, fact.group_id, member_id))
        self.deadlines.cancel(Deadline(PHASE, fact.group_id))
        self.forget_cleanup(fact.group_id)

    def _start_session(self, group_id: str, member: Member, now_ms: int) -> None:
        self.deadlines.set(Deadline(SESSION, group_id, member.member_id), now_ms + member.session_timeout_ms)

    # --- offsets ---------------------------------------------------------------------------------------------

    def _apply_committed(self, fact: facts.OffsetsCommitted, now_ms: int) -> None:
        earliest_ms = now_ms + self.config.offsets_retention_ms
        for topic, partition, value in fact.entries:
            self.offsets.put(fact.group_id, topic, partition, value)
            if value.expire_wall_ms >= 0:
                earliest_ms = min(earliest_ms, value.expire_wall_ms - self.wall_minus_now_ms)
        self.arm_cleanup(fact.group_id, earliest_ms)

    def _apply_pending(self, fact: facts.TxnOffsetsPending, now_ms: int) -> None:
        for topic, partition, value in fact.entries:
            self.offsets.put_pending(fact.group_id, topic, partition, value, fact.producer[0])

    def _apply_finished(self, fact: facts.TxnFinished, now_ms: int) -> None:
        for group_id in self.offsets.finish(fact.producer_id, fact.commit):
            if group_id in self.offsets.committed:
                self.arm_cleanup(group_id, now_ms + self.config.offsets_retention_ms)

    def _apply_dropped(self, fact: facts.OffsetsDropped, now_ms: int) -> None:
        for topic, partition in fact.partitions:
            self.offsets.drop(fact.group_id, topic, partition)
        self.forget_cleanup(fact.group_id)

    def _apply_cleanup(self, fact: facts.CleanupScheduled, now_ms: int) -> None:
        self.deadlines.set(Deadline(CLEANUP, fact.group_id), fact.at_ms)

    def _apply_topics(self, fact: facts.TopicsSeen, now_ms: int) -> None:
        self.topics = fact.index

    def _apply_configs(self, fact: facts.ConfigsSeen, now_ms: int) -> None:
        self.config, self.of_groups = fact.config, fact.of_groups

    def _apply_wall_clock(self, fact: WallClockSet, now_ms: int) -> None:
        self.wall_minus_now_ms = fact.wall_minus_now_ms

    def arm_cleanup(self, group_id: str, at_ms: int) -> None:
        """Never later than it was: looking too early is harmless, and the look finds the right time."""
        key = Deadline(CLEANUP, group_id)
        present = self.deadlines.at(key)
        if present is None or at_ms < present:
            self.deadlines.set(key, at_ms)

    def forget_cleanup(self, group_id: str) -> None:
        if group_id not in self.groups and group_id not in self.offsets.committed:
            self.deadlines.cancel(Deadline(CLEANUP, group_id))

    # --- invariants ------------------------------------------------------------------------------------------

    def invariants(self) -> None:
        self.offsets.invariants()
        actual = set(self.deadlines)
        watched = {key for key in actual if key.kind != CLEANUP}
        members: set[tuple[str, str]] = set()
        for group_id, group in self.groups.items():
            assert group_id == group.group_id
            group.invariants()
            members.update((group_id, member_id) for member_id in ("", *group.members))
            if isinstance(group, ClassicGroup):
                expected = _group_deadlines(group)
                mine = {key for key in watched if key.group_id == group_id}
                assert mine == expected, f"deadlines differ: {mine ^ expected}"
                members.update((group_id, member_id) for member_id in group.reserved)
            else:
                check_deadlines(group, watched)
        strays = {key for key in watched if (key.group_id, key.member_id) not in members}
        assert not strays, f"deadlines of nobody: {strays}"
        cleaned = {key.group_id for key in actual - watched}
        kept = self.groups.keys() | self.offsets.committed.keys()
        assert cleaned == kept, f"cleaned up in vain or never: {cleaned ^ kept}"


def _group_deadlines(group: ClassicGroup) -> set[Deadline]:
    found = {Deadline(SESSION, group.group_id, member_id) for member_id in group.reserved}
    for member in group.members.values():
        if not member.is_parked or member.is_new:
            found.add(Deadline(SESSION, group.group_id, member.member_id))
    if group.phase_until_ms is not None:
        found.add(Deadline(PHASE, group.group_id))
    return found


_APPLY: dict[type, Callable[[GroupTable, Any, int], None]] = {
    facts.GroupOpened: GroupTable._apply_opened,
    facts.GroupLoaded: GroupTable._apply_loaded,
    facts.MemberIdReserved: GroupTable._apply_reserved,
    facts.MemberJoining: GroupTable._apply_joining,
    facts.MemberReplaced: GroupTable._apply_replaced,
    facts.MemberRemoved: GroupTable._apply_removed,
    facts.RebalanceStarted: GroupTable._apply_answered,
    facts.RebalanceExtended: GroupTable._apply_phase,
    facts.GenerationStarted: GroupTable._apply_generation,
    facts.SyncParked: GroupTable._apply_sync_parked,
    facts.MemberSynced: GroupTable._apply_member_synced,
    facts.Assigned: GroupTable._apply_answered,
    facts.GroupEmptied: GroupTable._apply_opened,
    facts.GroupDeleted: GroupTable._apply_deleted,
    facts.SessionExtended: GroupTable._apply_session,
    facts.ProgressAwaited: GroupTable._apply_progress,
    facts.OffsetsCommitted: GroupTable._apply_committed,
    facts.TxnOffsetsPending: GroupTable._apply_pending,
    facts.TxnFinished: GroupTable._apply_finished,
    facts.OffsetsDropped: GroupTable._apply_dropped,
    facts.CleanupScheduled: GroupTable._apply_cleanup,
    WallClockSet: GroupTable._apply_wall_clock,
    facts.TopicsSeen: GroupTable._apply_topics,
    facts.ConfigsSeen: GroupTable._apply_configs,
    **consumer_apply.APPLY,
    **share_apply.APPLY,
    **streams_apply.APPLY,
}

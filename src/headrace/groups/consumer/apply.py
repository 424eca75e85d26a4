"""Machine: what the facts of consumer groups do to a shard's table: the group itself, and its deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.groups.consumer import facts
from headrace.groups.consumer.state import ConsumerGroup, MemberState
from headrace.groups.deadlines import PHASE, SESSION, Deadline

if TYPE_CHECKING:
    from headrace.groups.table import GroupTable


def _group(table: GroupTable, fact: Any) -> ConsumerGroup:
    group = table.groups.get(fact.group_id)
    if not isinstance(group, ConsumerGroup):
        group = table.groups[fact.group_id] = ConsumerGroup(fact.group_id)
    group.apply(fact)
    return group


def _apply(table: GroupTable, fact: Any, now_ms: int) -> None:
    _group(table, fact)


def _apply_epoch(table: GroupTable, fact: facts.GroupEpochSet, now_ms: int) -> None:
    _group(table, fact)
    table.arm_cleanup(fact.group_id, now_ms + table.config.cleanup_interval_ms)


def _apply_left(table: GroupTable, fact: facts.MemberLeft, now_ms: int) -> None:
    if isinstance(table.groups.get(fact.group_id), ConsumerGroup):
        _group(table, fact)
        _forget_member(table, fact.group_id, fact.member_id)


def _apply_if_there(table: GroupTable, fact: Any, now_ms: int) -> None:
    """A tombstone may outlive its group in the journal; it must not bring it back."""
    if isinstance(table.groups.get(fact.group_id), ConsumerGroup):
        _group(table, fact)


def _apply_deleted(table: GroupTable, fact: facts.ConsumerGroupDeleted, now_ms: int) -> None:
    group = table.groups.get(fact.group_id)
    if isinstance(group, ConsumerGroup):
        del table.groups[fact.group_id]
        for member_id in group.members:
            _forget_member(table, fact.group_id, member_id)
        table.forget_cleanup(fact.group_id)


def _apply_progress(table: GroupTable, fact: facts.ProgressAwaited, now_ms: int) -> None:
    key = Deadline(PHASE, fact.group_id, fact.member_id)
    if fact.until_ms is None:
        table.deadlines.cancel(key)
    else:
        table.deadlines.set(key, fact.until_ms)


def _forget_member(table: GroupTable, group_id: str, member_id: str) -> None:
    table.deadlines.cancel(Deadline(SESSION, group_id, member_id))
    table.deadlines.cancel(Deadline(PHASE, group_id, member_id))


APPLY: dict[type, Callable[[GroupTable, Any, int], None]] = {
    facts.GroupEpochSet: _apply_epoch,
    facts.MemberSubscribed: _apply,
    facts.TargetsSet: _apply,
    facts.TargetLoaded: _apply,
    facts.CurrentSet: _apply,
    facts.MemberLeft: _apply_left,
    facts.TargetForgotten: _apply_if_there,
    facts.CurrentForgotten: _apply_if_there,
    facts.ConsumerGroupDeleted: _apply_deleted,
    facts.ProgressAwaited: _apply_progress,
}


def check_deadlines(group: ConsumerGroup, watched: set[Deadline]) -> None:
    """Every member has a session, and a time by which it has to give up what it was asked for."""
    for member in group.members.values():
        assert Deadline(SESSION, group.group_id, member.member_id) in watched, (
            f"{member.member_id} lives for ever"
        )
        awaited = Deadline(PHASE, group.group_id, member.member_id) in watched
        revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        assert member.is_classic or awaited == revoking, (
            f"{member.member_id} awaited={awaited} revoking={revoking}"
        )

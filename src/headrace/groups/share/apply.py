"""Machine: what the facts of share groups do to a shard's table: the group itself, and its deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.groups.deadlines import SESSION, Deadline
from headrace.groups.share import facts
from headrace.groups.share.state import ShareGroup

if TYPE_CHECKING:
    from headrace.groups.table import GroupTable


def _apply(table: GroupTable, fact: Any, now_ms: int) -> None:
    group = table.groups.get(fact.group_id)
    if not isinstance(group, ShareGroup):
        group = table.groups[fact.group_id] = ShareGroup(fact.group_id)
        table.arm_cleanup(fact.group_id, now_ms + table.config.cleanup_interval_ms)
    group.apply(fact)


def _apply_target_loaded(table: GroupTable, fact: facts.ShareTargetLoaded, now_ms: int) -> None:
    # A tombstone may outlive its group in the journal; it must not bring it back.
    if fact.target is not None or isinstance(table.groups.get(fact.group_id), ShareGroup):
        _apply(table, fact, now_ms)


def _apply_left(table: GroupTable, fact: facts.ShareMemberLeft, now_ms: int) -> None:
    if isinstance(table.groups.get(fact.group_id), ShareGroup):
        _apply(table, fact, now_ms)
        table.deadlines.cancel(Deadline(SESSION, fact.group_id, fact.member_id))


def _apply_deleted(table: GroupTable, fact: facts.ShareGroupDeleted, now_ms: int) -> None:
    group = table.groups.get(fact.group_id)
    if isinstance(group, ShareGroup):
        del table.groups[fact.group_id]
        for member_id in group.members:
            table.deadlines.cancel(Deadline(SESSION, fact.group_id, member_id))
        table.forget_cleanup(fact.group_id)


APPLY: dict[type, Callable[[GroupTable, Any, int], None]] = {
    facts.ShareEpochSet: _apply,
    facts.ShareMemberSubscribed: _apply,
    facts.ShareTargetsSet: _apply,
    facts.ShareTargetLoaded: _apply_target_loaded,
    facts.ShareCurrentSet: _apply,
    facts.ShareMemberLeft: _apply_left,
    facts.ShareGroupDeleted: _apply_deleted,
}


def check_deadlines(group: ShareGroup, watched: set[Deadline]) -> None:
    for member_id in group.members:
        assert Deadline(SESSION, group.group_id, member_id) in watched, f"{member_id} lives for ever"

"""Machine: from a reason to rebalance to the next generation of a classic group.

EMPTY, STABLE or COMPLETING --start--> PREPARING --complete--> COMPLETING (or EMPTY). The sync that follows is in sync.py.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.groups.commands import JoinResult, SyncResult
from headrace.groups.draft import ClassicDraft
from headrace.groups.facts import (
    GenerationStarted,
    GroupEmptied,
    GroupSnapshot,
    MemberRemoved,
    RebalanceExtended,
    RebalanceStarted,
)
from headrace.groups.members import Member
from headrace.groups.state import ClassicGroup, GroupState


def rebalance(draft: ClassicDraft, reason: str) -> None:
    """Something changed that the assignment depends on: start a rebalance, or see whether this one can end."""
    if draft.group.state is GroupState.PREPARING:
        complete_if_all_joined(draft)
    else:
        start(draft, reason)


def complete_if_all_joined(draft: ClassicDraft) -> None:
    group = draft.group
    # A first generation waits for its delay even when all who came are there: more are on their way.
    if group.state is GroupState.PREPARING and group.all_joined and not group.is_initial_rebalance:
        complete(draft)


def after_removal(draft: ClassicDraft, departed: list[str], why: str) -> None:
    """Members, or only reserved ids when `departed` is empty, are gone: a waiting rebalance may end without them, a
    first one too when nobody is left to wait for."""
    group = draft.group
    if departed and group.state in (GroupState.STABLE, GroupState.COMPLETING):
        start(draft, f"{why} {', '.join(departed)}")
    elif group.state is GroupState.PREPARING and not group.members and group.all_joined:
        complete(draft)
    else:
        complete_if_all_joined(draft)


def start(draft: ClassicDraft, reason: str) -> None:
    group = draft.group
    for member in group.members.values():
        if member.sync_waiter is not None:
            draft.reply(member.sync_waiter, SyncResult(ErrorKind.REBALANCE_IN_PROGRESS))
    timeout_ms = group.rebalance_timeout_ms
    if group.is_empty:
        delay_ms = draft.config.initial_rebalance_delay_ms
        remaining_ms = max(timeout_ms - delay_ms, 0)
        draft.do(RebalanceStarted(group.group_id, draft.now_ms + delay_ms, remaining_ms, reason))
        if delay_ms == 0:
            complete(draft)
    else:
        draft.do(RebalanceStarted(group.group_id, draft.now_ms + timeout_ms, None, reason))
        complete_if_all_joined(draft)


def join_phase_over(draft: ClassicDraft) -> None:
    """The deadline of the join phase has come."""
    group, remaining_ms = draft.group, draft.group.initial_remaining_ms
    if remaining_ms and group.member_added:
        delay_ms = min(draft.config.initial_rebalance_delay_ms, remaining_ms)
        draft.do(RebalanceExtended(group.group_id, draft.now_ms + delay_ms, remaining_ms - delay_ms))
    else:
        complete(draft)


def sync_phase_over(draft: ClassicDraft) -> None:
    """Whoever has not fetched its assignment by now is gone."""
    missing = sorted(draft.group.pending_sync)
    for member_id in missing:
        draft.remove(member_id)
    after_removal(draft, missing, "no sync in time from")


def complete(draft: ClassicDraft) -> None:
    """End the join phase: who has not rejoined is out, unless it is static and may come back within its session."""
    for member in list(draft.group.members.values()):
        if member.join_waiter is None and member.instance_id is None:
            draft.do(MemberRemoved(draft.group.group_id, member.member_id))
    group = draft.group
    if not group.members:
        snapshot = GroupSnapshot(group.protocol_type, group.generation + 1, None, None, draft.wall_ms, ())
        draft.do(GroupEmptied(group.group_id, snapshot))
        return
    leader = group.elected_leader()
    if leader is None:
        # Only static members, and none is back: wait until one is, or until their sessions are over.
        draft.do(RebalanceExtended(group.group_id, draft.now_ms + group.rebalance_timeout_ms, None))
        return
    _begin_generation(draft, group, leader)


def _begin_generation(draft: ClassicDraft, group: ClassicGroup, leader: str) -> None:
    members = tuple(_settled(member) for member in group.members.values())
    snapshot = GroupSnapshot(
        group.protocol_type, group.generation + 1, group.elected_protocol(), None, draft.wall_ms, members
    )
    waiters = {m.member_id: m.join_waiter for m in group.members.values() if m.join_waiter is not None}
    sync_until_ms = draft.now_ms + group.rebalance_timeout_ms
    draft.do(GenerationStarted(group.group_id, snapshot, leader, sync_until_ms))
    for member_id, waiter in waiters.items():
        draft.reply(waiter, joined(draft.group, member_id))


def _settled(member: Member) -> Member:
    # What it was assigned before stays on record until the leader says something else: a cooperative member still
    # has it, and so it counts when the group becomes a consumer group just now (R55).
    return member._replace(join_waiter=None, is_new=False)


def joined(group: ClassicGroup, member_id: str) -> JoinResult:
    """The answer to a join of the present generation; only the leader is told who else is there."""
    return JoinResult(
        ErrorKind.NONE,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        member_id,
        group.member_list() if member_id == group.leader else (),
    )

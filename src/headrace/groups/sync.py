"""Machine: SyncGroup for classic groups. The leader's assignment ends the rebalance."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_GROUP_METADATA_BYTES
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan, SyncGroup, SyncResult
from headrace.groups.config import GroupConfig
from headrace.groups.draft import ClassicDraft
from headrace.groups.facts import Assigned, MemberSynced, SyncParked
from headrace.groups.members import Member
from headrace.groups.state import ClassicGroup, GroupState


def sync(
    group: ClassicGroup, command: SyncGroup, config: GroupConfig, now_ms: int, wall_ms: int
) -> GroupPlan:
    error = _refusal(group, command)
    if error is not ErrorKind.NONE:
        return refuse(command, error)
    draft = ClassicDraft(group, config, now_ms, wall_ms)
    if group.state is GroupState.STABLE:
        draft.do(MemberSynced(command.group_id, command.member_id))
        draft.answer(command, _answer(group, group.members[command.member_id]))
        return draft.plan()
    earlier = group.members[command.member_id].sync_waiter
    if earlier is not None:
        draft.reply(earlier, SyncResult(ErrorKind.REBALANCE_IN_PROGRESS))  # it gave up and came back
    draft.do(SyncParked(command.group_id, command.member_id, command.waiter))
    if command.member_id == group.leader:
        _assign(draft, command)
    return draft.plan()


def refuse(command: SyncGroup, error: ErrorKind) -> GroupPlan:
    return Plan(replies=command.answer(SyncResult(error)))


def _refusal(group: ClassicGroup, command: SyncGroup) -> ErrorKind:
    error = group.refusal(command.member_id, command.instance_id)
    if error is not ErrorKind.NONE:
        return error
    if command.generation != group.generation:
        return ErrorKind.ILLEGAL_GENERATION
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        return ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    if command.protocol_name is not None and command.protocol_name != group.protocol:
        return ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    if sum(len(assignment) for _, assignment in command.assignments) > MAX_GROUP_METADATA_BYTES:
        return ErrorKind.INVALID_REQUEST
    return ErrorKind.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorKind.NONE


def _assign(draft: ClassicDraft, command: SyncGroup) -> None:
    assignments, group = dict(command.assignments), draft.group
    waiters = {m.member_id: m.sync_waiter for m in group.members.values() if m.sync_waiter is not None}
    snapshot = group.snapshot(draft.wall_ms)
    members = tuple(
        member._replace(assignment=assignments.get(member.member_id, b""), sync_waiter=None)
        for member in snapshot.members
    )
    draft.do(Assigned(group.group_id, snapshot._replace(members=members)))
    for member_id, waiter in waiters.items():
        draft.reply(waiter, _answer(draft.group, draft.group.members[member_id]))


def _answer(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(ErrorKind.NONE, group.protocol_type, group.protocol, member.assignment)

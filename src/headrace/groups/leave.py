"""Machine: LeaveGroup for classic groups: a list of members (KIP-345), each with its own answer."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan, LeaveGroup, LeaveResult, LeftMember, MemberIdentity
from headrace.groups.config import GroupConfig
from headrace.groups.draft import ClassicDraft
from headrace.groups.rebalance import after_removal
from headrace.groups.state import ClassicGroup


def leave(
    group: ClassicGroup, command: LeaveGroup, config: GroupConfig, now_ms: int, wall_ms: int
) -> GroupPlan:
    draft = ClassicDraft(group, config, now_ms, wall_ms)
    outcomes: list[LeftMember] = []
    departed: list[str] = []
    for identity in command.members:
        member_id, error = _find(draft.group, identity)
        if error is ErrorKind.NONE and draft.remove(member_id):
            departed.append(f"{member_id} ({identity.reason or 'no reason given'})")
        outcomes.append(LeftMember(identity.member_id, identity.instance_id, error))
    after_removal(draft, departed, "leave of")
    draft.answer(command, LeaveResult(ErrorKind.NONE, tuple(outcomes)))
    return draft.plan()


def refuse(command: LeaveGroup, error: ErrorKind) -> GroupPlan:
    outcomes = tuple(LeftMember(m.member_id, m.instance_id, error) for m in command.members)
    return Plan(replies=command.answer(LeaveResult(ErrorKind.NONE, outcomes)))


def _find(group: ClassicGroup, identity: MemberIdentity) -> tuple[str, ErrorKind]:
    if not identity.member_id:
        member_id = group.statics.get(identity.instance_id or "")
        return (member_id, ErrorKind.NONE) if member_id is not None else ("", ErrorKind.UNKNOWN_MEMBER_ID)
    if identity.member_id in group.reserved:
        return identity.member_id, ErrorKind.NONE
    return identity.member_id, group.refusal(identity.member_id, identity.instance_id)

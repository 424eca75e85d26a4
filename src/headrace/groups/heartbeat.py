"""Machine: Heartbeat for classic groups. The most frequent request of all: no copies, one fact."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan, Heartbeat, HeartbeatResult
from headrace.groups.facts import SessionExtended
from headrace.groups.state import ClassicGroup, GroupState

_OK = HeartbeatResult(ErrorKind.NONE)
_REBALANCING = HeartbeatResult(ErrorKind.REBALANCE_IN_PROGRESS)


def heartbeat(group: ClassicGroup, command: Heartbeat, now_ms: int) -> GroupPlan:
    member_id = command.member_id
    error = group.refusal(member_id, command.instance_id)
    if error is not ErrorKind.NONE:
        return refuse(command, error)
    if command.generation != group.generation:
        return refuse(command, ErrorKind.ILLEGAL_GENERATION)
    answer = _REBALANCING if group.state is GroupState.PREPARING else _OK
    return Plan(extend_session(group, member_id, now_ms), command.answer(answer))


def extend_session(group: ClassicGroup, member_id: str, now_ms: int) -> tuple[SessionExtended, ...]:
    """Any sign of life. A member that waits for our answer has no running session to extend."""
    member = group.members[member_id]
    if member.join_waiter is not None or member.sync_waiter is not None:
        return ()
    return (SessionExtended(group.group_id, member_id, now_ms + member.session_timeout_ms),)


def refuse(command: Heartbeat, error: ErrorKind) -> GroupPlan:
    return Plan(replies=command.answer(HeartbeatResult(error)))

"""Machine: JoinGroup for classic groups (KIP-345 static members, KIP-394 member ids, KIP-814 skipped assignment)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.limits import (
    MAX_GROUP_METADATA_BYTES,
    MAX_MEMBER_PROTOCOLS,
    MAX_PROTOCOL_METADATA_BYTES,
)
from headrace.core.plan import Plan
from headrace.groups.commands import GroupPlan, JoinGroup, JoinResult
from headrace.groups.config import GroupConfig
from headrace.groups.draft import ClassicDraft
from headrace.groups.facts import Assigned, GroupOpened, MemberIdReserved, MemberReplaced
from headrace.groups.fields import fits
from headrace.groups.members import Member, metadata_size
from headrace.groups.rebalance import complete_if_all_joined, joined, rebalance, start
from headrace.groups.state import ClassicGroup, GroupState


def malformed(command: JoinGroup, config: GroupConfig) -> ErrorKind:
    """What is wrong with the request itself, before any group is looked at."""
    if not command.group_id or not fits(command.group_id):
        return ErrorKind.INVALID_GROUP_ID
    if not config.min_session_timeout_ms <= command.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorKind.INVALID_SESSION_TIMEOUT
    names = (command.new_member_id, command.instance_id, command.client_id, command.protocol_type)
    if not fits(*names, *(protocol.name for protocol in command.protocols)):
        return ErrorKind.INVALID_REQUEST
    if len(command.protocols) > MAX_MEMBER_PROTOCOLS or any(
        len(protocol.metadata) > MAX_PROTOCOL_METADATA_BYTES for protocol in command.protocols
    ):
        return ErrorKind.INVALID_REQUEST
    return ErrorKind.NONE


def join(
    group: ClassicGroup | None, command: JoinGroup, config: GroupConfig, now_ms: int, wall_ms: int
) -> GroupPlan:
    if group is None and command.member_id:
        return refuse(command, ErrorKind.UNKNOWN_MEMBER_ID)
    draft = ClassicDraft(group or ClassicGroup(command.group_id), config, now_ms, wall_ms)
    if group is None:
        draft.do(GroupOpened(command.group_id, draft.group.snapshot(wall_ms)))
    if not _has_room(draft.group, command, config):
        return refuse(command, ErrorKind.GROUP_MAX_SIZE_REACHED)
    if not draft.group.supports(command.protocol_type, command.protocols):
        return refuse(command, ErrorKind.INCONSISTENT_GROUP_PROTOCOL)
    if command.member_id:
        return _join_known(draft, command)
    return _join_unknown(draft, command)


def refuse(command: JoinGroup, error: ErrorKind) -> GroupPlan:
    return Plan(replies=command.answer(JoinResult(error, member_id=command.member_id)))


def _has_room(group: ClassicGroup, command: JoinGroup, config: GroupConfig) -> bool:
    replaced = group.members.get(command.member_id)
    held = group.metadata_bytes - (0 if replaced is None else metadata_size(replaced.protocols))
    if held + metadata_size(command.protocols) > MAX_GROUP_METADATA_BYTES:
        return False
    if not command.member_id and len(group.reserved) >= config.max_size:
        return False
    if command.member_id in group.members or command.instance_id in group.statics:
        return True
    if group.state is GroupState.PREPARING:
        return group.awaiting_join < config.max_size  # the others may be gone when the phase ends
    return len(group.members) < config.max_size


def _join_unknown(draft: ClassicDraft, command: JoinGroup) -> GroupPlan:
    member_id = command.new_member_id
    if command.instance_id is not None:
        old_member_id = draft.group.statics.get(command.instance_id)
        if old_member_id is not None:
            return _take_over(draft, command, old_member_id)
    elif command.member_id_required:
        until_ms = draft.now_ms + command.session_timeout_ms
        draft.do(MemberIdReserved(command.group_id, member_id, until_ms))
        draft.answer(command, JoinResult(ErrorKind.MEMBER_ID_REQUIRED, member_id=member_id))
        return draft.plan()
    return _park(draft, command, _newcomer(command, member_id))


def _join_known(draft: ClassicDraft, command: JoinGroup) -> GroupPlan:
    group, member_id = draft.group, command.member_id
    if member_id in group.reserved and command.instance_id is None:
        return _park(draft, command, _newcomer(command, member_id))
    error = group.refusal(member_id, command.instance_id)
    if error is not ErrorKind.NONE:
        return refuse(command, error)
    member = group.members[member_id]
    unchanged = member.protocols == command.protocols
    if unchanged and (
        group.state is GroupState.COMPLETING
        or (group.state is GroupState.STABLE and member_id != group.leader)
    ):
        # It missed the answer to its join: the generation it belongs to is still this one. A leader that rejoins a
        # stable group wants a rebalance: it has seen topics change.
        draft.answer(command, joined(group, member_id))
        return draft.plan()
    return _park(draft, command, _updated(member, command))


def _park(draft: ClassicDraft, command: JoinGroup, member: Member) -> GroupPlan:
    waits_on = _waits_on(draft.group, member)
    draft.park_join(command.protocol_type, member)
    if not waits_on:
        rebalance(draft, f"{member.member_id} joins: {command.reason or 'no reason given'}")
    return draft.plan()


def _waits_on(group: ClassicGroup, member: Member) -> bool:
    """True when parking this join surely does not end the join phase. Spares a copy of the group for each of the
    thousands of joins that a large group sends."""
    if group.state is not GroupState.PREPARING:
        return False
    present = group.members.get(member.member_id)
    members = len(group.members) + (present is None)
    awaiting = group.awaiting_join + (present is None or present.join_waiter is None)
    reserved = len(group.reserved) - (member.member_id in group.reserved)
    return group.is_initial_rebalance or awaiting < members or reserved > 0


def _take_over(draft: ClassicDraft, command: JoinGroup, old_member_id: str) -> GroupPlan:
    """KIP-345: the instance restarted. Whoever still uses its old member id is fenced from here on."""
    group, old_leader = draft.group, draft.group.leader
    old = group.members[old_member_id]
    draft.dismiss(old, ErrorKind.FENCED_INSTANCE_ID)
    member = _updated(old, command)._replace(member_id=command.new_member_id, sync_waiter=None)
    stays_stable = group.state is GroupState.STABLE
    parked = None if stays_stable else command.waiter
    draft.do(MemberReplaced(command.group_id, old_member_id, member._replace(join_waiter=parked)))
    group = draft.group
    if not stays_stable:
        if group.state is GroupState.COMPLETING:
            start(draft, f"static member {command.instance_id} came back during a rebalance")
        else:
            complete_if_all_joined(draft)
        return draft.plan()
    if group.elected_protocol() != group.protocol:
        draft.park_join(command.protocol_type, member)
        start(draft, f"static member {command.instance_id} came back and changes the protocol")
        return draft.plan()
    draft.do(Assigned(command.group_id, group.snapshot(draft.wall_ms)))
    answer = joined(draft.group, member.member_id)
    if command.supports_skip_assignment:
        answer = answer._replace(skip_assignment=member.member_id == group.leader)
    else:
        # It can't be told to skip, so it is told that somebody else leads: it must not assign (KIP-345).
        answer = answer._replace(leader=old_leader or "", members=())
    draft.answer(command, answer)
    return draft.plan()


def _newcomer(command: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.protocols,
        is_new=True,
        join_waiter=command.waiter,
    )


def _updated(member: Member, command: JoinGroup) -> Member:
    return member._replace(
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        join_waiter=command.waiter,
    )

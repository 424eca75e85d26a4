"""Machine: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that speak the classic protocol in a consumer group.

The coordinator assigns; for such a member it plays a leader that always has the assignment ready. A join is one
reconciliation step, a sync fetches its outcome, and a heartbeat tells the member when to come for the next.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan
from headrace.groups import heartbeat as classic_heartbeat
from headrace.groups import join as classic_join
from headrace.groups import sync as classic_sync
from headrace.groups.assigned import MemberState
from headrace.groups.commands import (
    GroupPlan,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeftMember,
    MemberIdentity,
    SyncGroup,
    SyncResult,
)
from headrace.groups.consumer.draft import ConsumerDraft
from headrace.groups.consumer.heartbeat import remove_members
from headrace.groups.consumer.members import ClassicMetadata, ConsumerMember, ConsumerSubscription
from headrace.groups.consumer.migrate import as_ids, as_names, can_downgrade, downgrade, embedded_version
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.deadlines import PHASE, Deadline
from headrace.groups.draft import joined_plans
from headrace.groups.facts import ProgressAwaited, SessionExtended
from headrace.groups.rebalance import start
from headrace.groups.state import CONSUMER_PROTOCOL_TYPE
from headrace.groups.subscription import encode_assignment, parse_subscription
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


def join(
    table: GroupTable, index: TopicIndex, group: ConsumerGroup, command: JoinGroup, now_ms: int
) -> GroupPlan:
    embedded = parse_subscription(command.protocols[0].metadata) if command.protocols else None
    if embedded is None or not _supports(group, command):
        return classic_join.refuse(command, ErrorKind.INCONSISTENT_GROUP_PROTOCOL)
    if not _has_room(group, command, table):
        return classic_join.refuse(command, ErrorKind.GROUP_MAX_SIZE_REACHED)
    if not command.member_id and command.instance_id is None and command.member_id_required:
        answer = JoinResult(ErrorKind.MEMBER_ID_REQUIRED, member_id=command.new_member_id)
        return Plan(replies=command.answer(answer))
    draft = ConsumerDraft(group, index, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    error, member_id = _admit(draft, command)
    if error is not ErrorKind.NONE:
        return classic_join.refuse(command, error)
    draft.subscribe(
        member_id,
        ConsumerSubscription(
            tuple(sorted(set(embedded.topics))),
            None,
            command.instance_id,
            embedded.rack,
            command.client_id,
            command.client_host,
            command.rebalance_timeout_ms,
            None,
            ClassicMetadata(command.session_timeout_ms, command.protocols),
        ),
    )
    if can_downgrade(draft.group, table):
        return _join_downgraded(draft, command, member_id)
    draft.assign()
    member = draft.step(member_id, as_ids(embedded.owned, index))
    draft.do(SessionExtended(group.group_id, member_id, now_ms + command.session_timeout_ms))
    draft.await_progress(member_id, now_ms + command.rebalance_timeout_ms)
    protocol = command.protocols[0].name
    draft.answer(
        command, JoinResult(ErrorKind.NONE, member.epoch, CONSUMER_PROTOCOL_TYPE, protocol, "", member_id)
    )
    return draft.plan()


def _join_downgraded(draft: ConsumerDraft, command: JoinGroup, member_id: str) -> GroupPlan:
    """A static member came back with the old protocol and nobody speaks the new one any more."""
    classic = downgrade(draft)
    member = classic.group.members[member_id]
    classic.park_join(CONSUMER_PROTOCOL_TYPE, member._replace(join_waiter=command.waiter))
    start(classic, f"static member {command.instance_id} came back with the classic protocol")
    return joined_plans(draft.plan(), classic.plan())


def _supports(group: ConsumerGroup, command: JoinGroup) -> bool:
    """One of its protocols must be known to every other classic member: a downgrade needs one to elect."""
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    common = {protocol.name for protocol in command.protocols}
    for member in group.members.values():
        if member.subscription.classic is not None and member.member_id != command.member_id:
            common &= {protocol.name for protocol in member.subscription.classic.protocols}
    return bool(common)


def _has_room(group: ConsumerGroup, command: JoinGroup, table: GroupTable) -> bool:
    known = command.member_id in group.members or command.instance_id in group.statics
    return known or len(group.members) < table.config.consumer_max_size


def _admit(draft: ConsumerDraft, command: JoinGroup) -> tuple[ErrorKind, str]:
    group, member_id = draft.group, command.member_id or command.new_member_id
    if command.instance_id is None:
        return ErrorKind.NONE, member_id
    holder_id = group.statics.get(command.instance_id)
    if command.member_id:
        known = group.find(command.member_id, command.instance_id)
        return (known, "") if isinstance(known, ErrorKind) else (ErrorKind.NONE, member_id)
    if holder_id is not None:
        draft.replace(group.members[holder_id], member_id)
    return ErrorKind.NONE, member_id


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember | ErrorKind:
    member = group.find(member_id, instance_id)
    if isinstance(member, ErrorKind):
        return member
    if not member.is_classic:
        return ErrorKind.UNKNOWN_MEMBER_ID
    return member if generation == member.epoch else ErrorKind.ILLEGAL_GENERATION


def _session(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> SessionExtended:
    classic = member.subscription.classic
    assert classic is not None
    return SessionExtended(group.group_id, member.member_id, now_ms + classic.session_timeout_ms)


def _come_again(
    table: GroupTable, group: ConsumerGroup, member: ConsumerMember, now_ms: int
) -> ProgressAwaited:
    """It is told to rejoin; the time it has for that starts when it is first told."""
    since = table.deadlines.at(Deadline(PHASE, group.group_id, member.member_id))
    until_ms = now_ms + member.subscription.rebalance_timeout_ms if since is None else since
    return ProgressAwaited(group.group_id, member.member_id, until_ms)


def sync(
    table: GroupTable, index: TopicIndex, group: ConsumerGroup, command: SyncGroup, now_ms: int
) -> GroupPlan:
    member = _find(group, command.member_id, command.instance_id, command.generation)
    if isinstance(member, ErrorKind):
        return classic_sync.refuse(command, member)
    classic = member.subscription.classic
    assert classic is not None
    protocol = classic.protocols[0].name
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or command.protocol_name not in (
        None,
        protocol,
    ):
        return classic_sync.refuse(command, ErrorKind.INCONSISTENT_GROUP_PROTOCOL)
    session = _session(group, member, now_ms)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        facts = (session, _come_again(table, group, member, now_ms))
        return Plan(facts, command.answer(SyncResult(ErrorKind.REBALANCE_IN_PROGRESS)))
    assignment = encode_assignment(embedded_version(classic), as_names(member.assigned, index))
    answer = SyncResult(ErrorKind.NONE, CONSUMER_PROTOCOL_TYPE, protocol, assignment)
    facts = (session, ProgressAwaited(group.group_id, member.member_id, None))
    return Plan(facts, command.answer(answer))


def heartbeat(table: GroupTable, group: ConsumerGroup, command: Heartbeat, now_ms: int) -> GroupPlan:
    member = _find(group, command.member_id, command.instance_id, command.generation)
    if isinstance(member, ErrorKind):
        return classic_heartbeat.refuse(command, member)
    session = _session(group, member, now_ms)
    behind = (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED
        or (member.state is MemberState.UNRELEASED and not group.waits_for_others(member))
    )
    if not behind:
        return Plan((session,), command.answer(HeartbeatResult(ErrorKind.NONE)))
    facts = (session, _come_again(table, group, member, now_ms))
    return Plan(facts, command.answer(HeartbeatResult(ErrorKind.REBALANCE_IN_PROGRESS)))


def leave(
    table: GroupTable, index: TopicIndex, group: ConsumerGroup, command: LeaveGroup, now_ms: int
) -> GroupPlan:
    outcomes: list[LeftMember] = []
    gone: list[str] = []
    for identity in command.members:
        member_id, error = _leaving(group, identity)
        if error is ErrorKind.NONE and member_id in gone:
            error = ErrorKind.UNKNOWN_MEMBER_ID
        if error is ErrorKind.NONE:
            gone.append(member_id)
        outcomes.append(LeftMember(identity.member_id, identity.instance_id, error))
    reply: GroupPlan = Plan(replies=command.answer(LeaveResult(ErrorKind.NONE, tuple(outcomes))))
    if not gone:
        return reply
    draft = ConsumerDraft(group, index, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    return joined_plans(remove_members(draft, gone, table), reply)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> tuple[str, ErrorKind]:
    member_id = identity.member_id or group.statics.get(identity.instance_id or "", "")
    member = group.find(member_id, identity.instance_id)
    if isinstance(member, ErrorKind):
        return member_id, member
    # An administrator may remove any static member; a request in a member's own name has to be in its own protocol.
    by_instance = not identity.member_id
    return member_id, ErrorKind.NONE if member.is_classic or by_instance else ErrorKind.UNKNOWN_MEMBER_ID

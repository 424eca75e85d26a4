"""Machine: ConsumerGroupHeartbeat: join, keep alive, reconcile, leave (KIP-848, KIP-1082)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.groups.assigned import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from headrace.groups.commands import GroupPlan
from headrace.groups.config import GroupConfig
from headrace.groups.consumer.commands import (
    ConsumerGroupHeartbeat,
    ConsumerHeartbeatResult,
    TopicPartitions,
)
from headrace.groups.consumer.draft import ConsumerDraft
from headrace.groups.consumer.facts import AssignmentTold
from headrace.groups.consumer.members import Assignment, ConsumerMember, ConsumerSubscription, as_lists
from headrace.groups.consumer.migrate import can_downgrade, downgrade, upgrade
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.draft import joined_plans
from headrace.groups.facts import GroupDeleted, SessionExtended
from headrace.groups.fields import fits
from headrace.groups.rebalance import start
from headrace.groups.state import ClassicGroup
from headrace.groups.table import GroupTable
from headrace.groups.topic_regex import InvalidPattern
from headrace.groups.topics import TopicIndex


class _Entry(NamedTuple):
    """The group a member enters: what has to happen first, and the group to draft on."""

    prelude: GroupPlan
    group: ConsumerGroup


def heartbeat(table: GroupTable, command: ConsumerGroupHeartbeat, now_ms: int) -> GroupPlan:
    refusal = _malformed(command, table.config)
    if refusal is not None:
        return _refuse(command, refusal)
    if table.topics is None:
        return _refuse(command, Rejected(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, "topics are not known yet"))
    group = table.groups.get(command.group_id)
    if command.member_epoch < JOIN_EPOCH:
        return _leave(table, table.topics, group, command, now_ms)
    if isinstance(group, ConsumerGroup) and command.member_epoch > JOIN_EPOCH:
        plan = _keep_alive(group, command, table.config_of(group.group_id), now_ms)
        if plan is not None:
            return plan
    refusal = _pattern_problem(command, table.topics)
    if refusal is not None:
        return _refuse(command, refusal)
    entry = _enter(table, table.topics, command, now_ms)
    if isinstance(entry, Rejected):
        return _refuse(command, entry)
    draft = ConsumerDraft(
        entry.group,
        table.topics,
        table.config_of(command.group_id),
        now_ms,
        table.wall_ms(now_ms),
    )
    return joined_plans(entry.prelude, _advance(draft, command))


def _refuse(command: ConsumerGroupHeartbeat, refusal: Rejected) -> GroupPlan:
    return Plan(replies=command.answer(ConsumerHeartbeatResult(refusal.kind, refusal.detail or None)))


# --- is the request sound ------------------------------------------------------------------------------------


def _malformed(command: ConsumerGroupHeartbeat, config: GroupConfig) -> Rejected | None:
    detail = _complaint(command)
    if detail is not None:
        return Rejected(ErrorKind.INVALID_REQUEST, detail)
    if command.assignor is not None and command.assignor not in config.consumer_assignors:
        supported = ", ".join(config.consumer_assignors)
        return Rejected(
            ErrorKind.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {command.assignor} is not supported. Use {supported}.",
        )
    return None


def _complaint(command: ConsumerGroupHeartbeat) -> str | None:
    epoch = command.member_epoch
    if not command.group_id:
        return "GroupId can't be empty."
    if command.instance_id == "" or command.rack_id == "":
        return "InstanceId and RackId can't be empty."
    if not fits(command.group_id, command.member_id, command.instance_id, command.rack_id, command.client_id):
        return "A name is too long."
    if not command.member_id and (command.member_id_required or epoch != JOIN_EPOCH):
        return "MemberId can't be empty."
    if epoch == JOIN_EPOCH:
        if command.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if command.owned is None or command.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if not command.topics and not command.pattern:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-empty when (re-)joining."
    elif epoch == STATIC_LEAVE_EPOCH and command.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _pattern_problem(command: ConsumerGroupHeartbeat, index: TopicIndex) -> Rejected | None:
    if not command.pattern:
        return None
    try:
        index.matching(command.pattern)
    except InvalidPattern as problem:
        detail = f"SubscribedTopicRegex {command.pattern} is not valid: {problem}."
        return Rejected(ErrorKind.INVALID_REGULAR_EXPRESSION, detail)
    return None


# --- who is it -----------------------------------------------------------------------------------------------


def _enter(
    table: GroupTable, index: TopicIndex, command: ConsumerGroupHeartbeat, now_ms: int
) -> _Entry | Rejected:
    group = table.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup):
        return _Entry(Plan(), group)
    joins = command.member_epoch == JOIN_EPOCH
    if group is None and joins:
        return _Entry(Plan(), ConsumerGroup(command.group_id))
    if isinstance(group, ClassicGroup) and joins:
        if not group.is_empty:
            upgraded = upgrade(table, index, group, now_ms)
            return upgraded if isinstance(upgraded, Rejected) else _Entry(*upgraded)
        successor = ConsumerGroup(command.group_id)
        successor.epoch = group.generation  # epochs go on counting where generations ended (R54)
        return _Entry(Plan((GroupDeleted(command.group_id),)), successor)
    return Rejected(ErrorKind.GROUP_ID_NOT_FOUND, f"Consumer group {command.group_id} not found.")


def _admit(draft: ConsumerDraft, command: ConsumerGroupHeartbeat, member_id: str) -> Rejected | None:
    """Is the member who it says it is, and may it be here? Takes a returning static member's place for it."""
    group, joins = draft.group, command.member_epoch == JOIN_EPOCH
    known = group.members.get(member_id)
    holder_id = group.statics.get(command.instance_id) if command.instance_id is not None else None
    if holder_id is not None and holder_id != member_id:
        holder = group.members[holder_id]
        if not joins:
            return Rejected(
                ErrorKind.FENCED_INSTANCE_ID, f"Static member {member_id} was fenced by {holder_id}."
            )
        if holder.epoch != STATIC_LEAVE_EPOCH and not holder.is_classic:
            detail = f"Instance id {command.instance_id} is owned by {holder_id}."
            return Rejected(ErrorKind.UNRELEASED_INSTANCE_ID, detail)
        draft.replace(holder, member_id)
        return None
    if known is None:
        if not joins:
            return Rejected(ErrorKind.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of this group.")
        if len(group.members) >= draft.config.consumer_max_size:
            return Rejected(ErrorKind.GROUP_MAX_SIZE_REACHED, "The consumer group is full.")
        return None
    return None if joins else _epoch_problem(known, command)


def _epoch_problem(member: ConsumerMember, command: ConsumerGroupHeartbeat) -> Rejected | None:
    """R54. The epoch before is accepted when the answer with the new one may have been lost: then the member has
    nothing that it was not given before."""
    epoch = command.member_epoch
    if epoch == member.epoch:
        return None
    owned = _as_set(command.owned)
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and owned is not None
        and owned <= member.assigned
    ):
        return None
    detail = f"The member epoch is {member.epoch}, not {epoch}. Abandon all partitions and rejoin."
    return Rejected(ErrorKind.FENCED_MEMBER_EPOCH, detail)


# --- what to do ----------------------------------------------------------------------------------------------


def _keep_alive(
    group: ConsumerGroup, command: ConsumerGroupHeartbeat, config: GroupConfig, now_ms: int
) -> GroupPlan | None:
    """Nearly every heartbeat: nothing changed on either side. None when something did."""
    member = group.members.get(command.member_id)
    if (
        member is None
        or command.member_epoch != member.epoch
        or group.epoch != group.target_epoch
        or not group.is_reconciled(member)
        or member.is_classic
        or (command.instance_id is not None and group.statics.get(command.instance_id) != command.member_id)
        or _subscription(command, member.subscription) != member.subscription
    ):
        return None
    life = SessionExtended(group.group_id, member.member_id, now_ms + config.consumer_session_timeout_ms)
    tell = _is_full(command)
    if member.member_id in group.unheard:
        if _as_set(command.owned) == member.assigned:
            heard = AssignmentTold(group.group_id, member.member_id, heard=True)
            return Plan((life, heard), command.answer(_answer(member, config, tell)))
        tell = True
    return Plan((life,), command.answer(_answer(member, config, tell)))


def _advance(draft: ConsumerDraft, command: ConsumerGroupHeartbeat) -> GroupPlan:
    member_id = command.member_id or command.new_member_id
    refusal = _admit(draft, command, member_id)
    if refusal is not None:
        return _refuse(command, refusal)
    before = draft.group.members.get(member_id) or ConsumerMember(member_id)
    draft.subscribe(member_id, _subscription(command, before.subscription))
    draft.assign()
    after = draft.step(member_id, _as_set(command.owned))
    if before.is_classic:
        draft.await_progress(
            member_id, None
        )  # it speaks the new protocol now; what the old one awaited is moot
    until_ms = draft.now_ms + draft.config.consumer_session_timeout_ms
    draft.do(SessionExtended(command.group_id, member_id, until_ms))
    draft.answer(command, _answer(after, draft.config, _tell(draft, command, before, after)))
    return draft.plan()


def _tell(
    draft: ConsumerDraft, command: ConsumerGroupHeartbeat, before: ConsumerMember, after: ConsumerMember
) -> bool:
    """Is the assignment part of the answer? When it changed, and again until the member has said that it heard: librdkafka
    gives an answer up after one heartbeat interval and does not ask again, so a partition would be read by nobody."""
    waiting = after.member_id in draft.group.unheard
    if before.assigned != after.assigned:
        heard = False
    elif waiting:
        heard = _as_set(command.owned) == after.assigned
    else:
        return _is_full(command)
    if heard == waiting:
        draft.do(AssignmentTold(command.group_id, after.member_id, heard))
    return not heard or _is_full(command)


def _subscription(command: ConsumerGroupHeartbeat, old: ConsumerSubscription) -> ConsumerSubscription:
    pattern = old.pattern if command.pattern is None else command.pattern or None
    return ConsumerSubscription(
        old.topics if command.topics is None else tuple(sorted(set(command.topics))),
        pattern,
        command.instance_id if command.instance_id is not None else old.instance_id,
        command.rack_id if command.rack_id is not None else old.rack_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms if command.rebalance_timeout_ms != -1 else old.rebalance_timeout_ms,
        command.assignor if command.assignor is not None else old.assignor,
        None,
        command.reader if pattern else "",
    )


def _is_full(command: ConsumerGroupHeartbeat) -> bool:
    """It asks for everything: it joins, or lost an answer and knows it."""
    return command.member_epoch == JOIN_EPOCH or (
        command.rebalance_timeout_ms != -1
        and (command.topics is not None or command.pattern is not None)
        and command.owned is not None
    )


def _answer(member: ConsumerMember, config: GroupConfig, tell: bool) -> ConsumerHeartbeatResult:
    return ConsumerHeartbeatResult(
        ErrorKind.NONE,
        None,
        member.member_id,
        member.epoch,
        config.consumer_heartbeat_interval_ms,
        as_lists(member.assigned) if tell else None,
    )


def _leave(
    table: GroupTable, index: TopicIndex, group: object, command: ConsumerGroupHeartbeat, now_ms: int
) -> GroupPlan:
    if not isinstance(group, ConsumerGroup):
        detail = f"Consumer group {command.group_id} not found."
        return _refuse(command, Rejected(ErrorKind.GROUP_ID_NOT_FOUND, detail))
    member = group.find(command.member_id, command.instance_id)
    if isinstance(member, ErrorKind):
        return _refuse(command, Rejected(member, f"Member {command.member_id} is not known here."))
    draft = ConsumerDraft(group, index, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    answer = ConsumerHeartbeatResult(ErrorKind.NONE, None, command.member_id, command.member_epoch)
    draft.answer(command, answer)
    if command.member_epoch == STATIC_LEAVE_EPOCH:
        # It will be back: its partitions wait for it until its session ends.
        draft.set_current(member._replace(epoch=STATIC_LEAVE_EPOCH, previous_epoch=member.epoch))
        return draft.plan()
    assert command.member_epoch == LEAVE_EPOCH
    return remove_members(draft, [command.member_id], table)


def remove_members(draft: ConsumerDraft, member_ids: list[str], table: GroupTable) -> GroupPlan:
    """They left or went silent. If those who remain all speak the classic protocol, so does the group from now on, in
    the same generation: who is up to date is told to rejoin, not that it is out of date."""
    for member_id in member_ids:
        draft.remove(member_id)
    if can_downgrade(draft.group, table):
        classic = downgrade(draft)
        start(classic, "the last member of the consumer protocol is gone")
        return joined_plans(draft.plan(), classic.plan())
    draft.bump()
    return draft.plan()


def _as_set(owned: TopicPartitions | None) -> Assignment | None:
    if owned is None:
        return None
    return frozenset((topic_id, partition) for topic_id, partitions in owned for partition in partitions)

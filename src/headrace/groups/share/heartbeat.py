"""Machine: ShareGroupHeartbeat (KIP-932): join, keep alive, leave; and what a silent member leaves behind."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.groups.assigned import JOIN_EPOCH, LEAVE_EPOCH
from headrace.groups.commands import GroupPlan
from headrace.groups.config import GroupConfig
from headrace.groups.consumer.assignors import GroupReader
from headrace.groups.consumer.members import NOTHING, as_lists
from headrace.groups.draft import GroupDraft
from headrace.groups.facts import SessionExtended
from headrace.groups.fields import fits
from headrace.groups.share.assignor import assign_simple
from headrace.groups.share.commands import MakeShareGroup, ShareGroupHeartbeat, ShareHeartbeatResult
from headrace.groups.share.facts import (
    ShareCurrentSet,
    ShareEpochSet,
    ShareMemberLeft,
    ShareMemberSubscribed,
    ShareTargetsSet,
)
from headrace.groups.share.members import ShareMember, ShareSubscription
from headrace.groups.share.state import ShareGroup
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex

MAX_MEMBER_ID_CHARS = 36


def heartbeat(table: GroupTable, command: ShareGroupHeartbeat, now_ms: int) -> GroupPlan:
    complaint = _complaint(command)
    if complaint is not None:
        return _refuse(command, Rejected(ErrorKind.INVALID_REQUEST, complaint))
    if table.topics is None:
        return _refuse(command, Rejected(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, "topics are not known yet"))
    group = table.groups.get(command.group_id)
    if group is None and command.member_epoch == JOIN_EPOCH:
        group = ShareGroup(command.group_id)
    if not isinstance(group, ShareGroup):
        detail = f"Share group {command.group_id} not found."
        return _refuse(command, Rejected(ErrorKind.GROUP_ID_NOT_FOUND, detail))
    refusal = _refusal(group, command, table.config)
    if refusal is not None:
        return _refuse(command, refusal)
    draft = GroupDraft(group, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    if command.member_epoch == LEAVE_EPOCH:
        draft.answer(command, ShareHeartbeatResult(ErrorKind.NONE, None, command.member_id, LEAVE_EPOCH))
        return remove_members(draft, [command.member_id], table.topics)
    return _advance(draft, table.topics, command)


def make_group(table: GroupTable, command: MakeShareGroup, now_ms: int) -> GroupPlan:
    """NON_EMPTY_GROUP when it has members, GROUP_ID_NOT_FOUND when it is a group of another kind."""
    group = table.groups.get(command.group_id)
    if group is None and command.group_id and fits(command.group_id):
        made = ShareEpochSet(command.group_id, 1, 0)
        return Plan((made,), command.answer(None))
    if isinstance(group, ShareGroup):
        return Plan(replies=command.answer(Rejected(ErrorKind.NON_EMPTY_GROUP) if group.members else None))
    error = ErrorKind.GROUP_ID_NOT_FOUND if group is not None else ErrorKind.INVALID_GROUP_ID
    return Plan(replies=command.answer(Rejected(error)))


def _refuse(command: ShareGroupHeartbeat, refusal: Rejected) -> GroupPlan:
    return Plan(replies=command.answer(ShareHeartbeatResult(refusal.kind, refusal.detail or None)))


def _complaint(command: ShareGroupHeartbeat) -> str | None:
    if not command.group_id:
        return "GroupId can't be empty."
    if not 0 < len(command.member_id) <= MAX_MEMBER_ID_CHARS:
        return f"MemberId must have 1 to {MAX_MEMBER_ID_CHARS} characters."
    if command.rack_id == "":
        return "RackId can't be empty."
    if not fits(command.group_id, command.rack_id, command.client_id):
        return "A name is too long."
    if command.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if command.member_epoch == JOIN_EPOCH and not command.topics:
        return "SubscribedTopicNames must be set in first request."
    return None


def _refusal(group: ShareGroup, command: ShareGroupHeartbeat, config: GroupConfig) -> Rejected | None:
    member = group.members.get(command.member_id)
    joins = command.member_epoch == JOIN_EPOCH
    if member is None:
        if not joins:
            return Rejected(ErrorKind.UNKNOWN_MEMBER_ID, f"Member {command.member_id} is not in this group.")
        if len(group.members) >= config.share_max_size:
            return Rejected(ErrorKind.GROUP_MAX_SIZE_REACHED, "The share group is full.")
        return None
    if joins or command.member_epoch in (LEAVE_EPOCH, member.epoch, member.previous_epoch):
        return None
    detail = f"The member epoch is {member.epoch}, not {command.member_epoch}. Rejoin."
    return Rejected(ErrorKind.FENCED_MEMBER_EPOCH, detail)


def _advance(draft: GroupDraft[ShareGroup], index: TopicIndex, command: ShareGroupHeartbeat) -> GroupPlan:
    group, member_id = draft.group, command.member_id
    known = group.members.get(member_id)
    before = known or ShareMember(member_id)
    subscription = ShareSubscription(
        before.subscription.topics if command.topics is None else tuple(sorted(set(command.topics))),
        command.rack_id if command.rack_id is not None else before.subscription.rack_id,
        command.client_id,
        command.client_host,
    )
    if known is None or subscription != before.subscription:
        draft.do(ShareMemberSubscribed(group.group_id, member_id, subscription))
        if subscription.topics != before.subscription.topics:
            _bump(draft, index)
    _assign(draft, index)
    after = _follow_target(draft, member_id)
    until_ms = draft.now_ms + draft.config.share_session_timeout_ms
    draft.do(SessionExtended(group.group_id, member_id, until_ms))
    # An older epoch, or topics named once more, come from a member that may have lost the answer before.
    lost_one = command.member_epoch != before.epoch or command.topics is not None
    news = command.member_epoch == JOIN_EPOCH or lost_one or after.assigned != before.assigned
    answer = ShareHeartbeatResult(
        ErrorKind.NONE,
        None,
        member_id,
        after.epoch,
        draft.config.share_heartbeat_interval_ms,
        as_lists(after.assigned) if news else None,
    )
    draft.answer(command, answer)
    return draft.plan()


def _bump(draft: GroupDraft[ShareGroup], index: TopicIndex) -> None:
    group = draft.group
    fingerprint = index.fingerprint(group.topics_subscribed(index))
    draft.do(ShareEpochSet(group.group_id, group.epoch + 1, fingerprint))


def _assign(draft: GroupDraft[ShareGroup], index: TopicIndex) -> None:
    group = draft.group
    if group.target_epoch >= group.epoch:
        return
    readers = [
        GroupReader(m.member_id, None, m.subscription.rack_id, index.resolve(m.subscription.topics, None))
        for m in group.members.values()
    ]
    targets = assign_simple(readers, group.targets, index)
    changed = tuple((m, parts) for m, parts in targets.items() if group.targets.get(m) != parts)
    draft.do(ShareTargetsSet(group.group_id, group.epoch, changed))


def _follow_target(draft: GroupDraft[ShareGroup], member_id: str) -> ShareMember:
    group = draft.group
    member = group.members[member_id]
    if member.epoch == group.target_epoch:
        return member
    target = group.targets.get(member_id, NOTHING)
    draft.do(ShareCurrentSet(group.group_id, member_id, group.target_epoch, member.epoch, target))
    return draft.group.members[member_id]


def remove_members(draft: GroupDraft[ShareGroup], member_ids: list[str], index: TopicIndex) -> GroupPlan:
    for member_id in member_ids:
        draft.do(ShareMemberLeft(draft.group.group_id, member_id))
    _bump(draft, index)
    return draft.plan()

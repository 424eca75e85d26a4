"""Machine: what happens when a deadline passes: sessions, join and sync phases, retention."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.plan import Fact, Plan, Reply
from headrace.groups.assigned import MemberState
from headrace.groups.commands import GroupPlan
from headrace.groups.consumer.draft import ConsumerDraft
from headrace.groups.consumer.facts import AssignmentTold, ConsumerGroupDeleted
from headrace.groups.consumer.heartbeat import remove_members
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.deadlines import CLEANUP, PHASE, SESSION, Deadline
from headrace.groups.draft import ClassicDraft, GroupDraft
from headrace.groups.facts import (
    CleanupScheduled,
    GroupDeleted,
    OffsetsDropped,
    ProgressAwaited,
    RebalanceStarted,
    SessionExtended,
)
from headrace.groups.offsets import expiry
from headrace.groups.rebalance import after_removal, join_phase_over, sync_phase_over
from headrace.groups.share import heartbeat as share_heartbeat
from headrace.groups.share.state import ShareGroup
from headrace.groups.state import ClassicGroup, GroupState
from headrace.groups.streams import heartbeat as streams_heartbeat
from headrace.groups.streams.draft import StreamsDraft
from headrace.groups.streams.facts import StreamsGroupDeleted
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.table import Group, GroupTable
from headrace.groups.topics import TopicIndex


def expire(table: GroupTable, now_ms: int) -> GroupPlan:
    facts: list[Fact] = []
    replies: list[Reply] = []
    by_group: dict[str, list[Deadline]] = {}
    for key in table.deadlines.due(now_ms):
        by_group.setdefault(key.group_id, []).append(key)
    for group_id, keys in by_group.items():
        plan = _expire_group(table, group_id, keys, now_ms)
        facts.extend(plan.facts)
        replies.extend(plan.replies)
    return Plan(tuple(facts), tuple(replies))


def _expire_group(table: GroupTable, group_id: str, keys: list[Deadline], now_ms: int) -> GroupPlan:
    plan: GroupPlan = Plan()
    group = table.groups.get(group_id)
    if any(key.kind != CLEANUP for key in keys):
        if isinstance(group, ClassicGroup):
            plan = _expire_classic(table, group, keys, now_ms)
        elif isinstance(group, ConsumerGroup):
            plan = _expire_consumer(table, group, keys, now_ms)
        elif isinstance(group, ShareGroup):
            plan = _expire_share(table, group, keys, now_ms)
        elif isinstance(group, StreamsGroup):
            plan = _expire_streams(table, group, keys, now_ms)
    if any(key.kind == CLEANUP for key in keys):
        # Judged by the group as it is now; if this very plan changes it, the next look is soon enough.
        changed = bool(plan.facts)
        return Plan((*plan.facts, *_clean_up(table, group_id, now_ms, changed)), plan.replies)
    return plan


def _expire_classic(
    table: GroupTable, group: ClassicGroup, keys: Iterable[Deadline], now_ms: int
) -> GroupPlan:
    draft = ClassicDraft(group, table.config, now_ms, table.wall_ms(now_ms))
    silent = [key.member_id for key in keys if key.kind == SESSION]
    departed = [member_id for member_id in silent if draft.remove(member_id)]
    if silent:
        after_removal(draft, departed, "no heartbeat from")
    until_ms = draft.group.phase_until_ms
    if until_ms is not None and until_ms <= now_ms and any(key.kind == PHASE for key in keys):
        if draft.group.state is GroupState.PREPARING:
            join_phase_over(draft)
        else:
            sync_phase_over(draft)
    return draft.plan()


def _expire_consumer(
    table: GroupTable, group: ConsumerGroup, keys: Iterable[Deadline], now_ms: int
) -> GroupPlan:
    """Silent, or did not give up in time what it was asked for: either way its partitions are free from now on."""
    index = table.topics or TopicIndex({})
    draft = ConsumerDraft(group, index, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    gone = dict.fromkeys(key.member_id for key in keys if key.kind != CLEANUP)
    return remove_members(draft, list(gone), table)


def _expire_share(table: GroupTable, group: ShareGroup, keys: Iterable[Deadline], now_ms: int) -> GroupPlan:
    draft = GroupDraft(group, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    gone = [key.member_id for key in keys if key.kind != CLEANUP]
    return share_heartbeat.remove_members(draft, gone, table.topics or TopicIndex({}))


def _expire_streams(
    table: GroupTable, group: StreamsGroup, keys: Iterable[Deadline], now_ms: int
) -> GroupPlan:
    index = table.topics or TopicIndex({})
    draft = StreamsDraft(group, index, table.config_of(group.group_id), now_ms, table.wall_ms(now_ms))
    gone = dict.fromkeys(key.member_id for key in keys if key.kind != CLEANUP)
    return streams_heartbeat.remove_members(draft, list(gone))


def _clean_up(table: GroupTable, group_id: str, now_ms: int, changed: bool) -> list[Fact]:
    soon_ms = now_ms + table.config.cleanup_interval_ms
    group = table.groups.get(group_id)
    kept_topics: frozenset[str] | None = frozenset()
    empty_since_wall_ms: int | None = None
    if group is not None:
        kept_topics, empty_since_wall_ms = group.retention(table.topics)
    if changed or kept_topics is None:
        return [CleanupScheduled(group_id, soon_ms)]
    wall_ms = table.wall_ms(now_ms)
    result = expiry(
        table.offsets,
        group_id,
        empty_since_wall_ms=empty_since_wall_ms,
        kept_topics=kept_topics,
        retention_ms=table.config.offsets_retention_ms,
        wall_ms=wall_ms,
    )
    facts: list[Fact] = []
    if result.due:
        facts.append(OffsetsDropped(group_id, tuple(result.due)))
    left = len(table.offsets.keys_of_group(group_id)) - len(result.due)
    if left == 0 and group is not None and group.can_be_forgotten:
        facts.append(_forgotten(group))
    elif group is not None or sum(1 for _ in table.offsets.of_group(group_id)) > len(result.due):
        # Offsets that are only pending bring their own deadline when they are committed.
        wait_ms = 0 if result.next_wall_ms is None else result.next_wall_ms - wall_ms
        facts.append(CleanupScheduled(group_id, max(now_ms + wait_ms, soon_ms)))
    return facts


def _forgotten(group: Group) -> Fact:
    if isinstance(group, ConsumerGroup):
        return ConsumerGroupDeleted(group.group_id)
    return (StreamsGroupDeleted if isinstance(group, StreamsGroup) else GroupDeleted)(group.group_id)


def restart(table: GroupTable, now_ms: int) -> GroupPlan:
    """After replay: every member has its whole session before it, and offsets are as old as the wall clock says."""
    facts: list[Fact] = []
    for group in table.groups.values():
        if isinstance(group, ClassicGroup):
            facts += _resume_classic(group, now_ms)
        elif isinstance(group, ConsumerGroup):
            facts += _resume_consumer(table, group, now_ms)
        elif isinstance(group, StreamsGroup):
            facts += _resume_streams(table, group, now_ms)
        else:
            until_ms = now_ms + table.config_of(group.group_id).share_session_timeout_ms
            facts += (SessionExtended(group.group_id, member_id, until_ms) for member_id in group.members)
    # Nothing is so urgent that all groups should be looked through in the same moment.
    group_ids = sorted(table.groups.keys() | table.offsets.committed.keys())
    interval_ms = table.config.cleanup_interval_ms
    for index, group_id in enumerate(group_ids):
        at_ms = now_ms + interval_ms + index * interval_ms // len(group_ids)
        facts.append(CleanupScheduled(group_id, at_ms))
    return Plan(tuple(facts))


def _resume_classic(group: ClassicGroup, now_ms: int) -> list[Fact]:
    facts: list[Fact] = [
        SessionExtended(group.group_id, member.member_id, now_ms + member.session_timeout_ms)
        for member in group.members.values()
    ]
    if group.state is GroupState.PREPARING:
        # Its generation was announced and never assigned. The number is used up; all come again (R54).
        until_ms = now_ms + group.rebalance_timeout_ms
        reason = "the coordinator moved during a rebalance"
        facts.append(RebalanceStarted(group.group_id, until_ms, None, reason))
    return facts


def _resume_consumer(table: GroupTable, group: ConsumerGroup, now_ms: int) -> list[Fact]:
    facts: list[Fact] = []
    config = table.config_of(group.group_id)
    for member in group.members.values():
        classic = member.subscription.classic
        session_ms = classic.session_timeout_ms if classic else config.consumer_session_timeout_ms
        facts.append(SessionExtended(group.group_id, member.member_id, now_ms + session_ms))
        facts.append(AssignmentTold(group.group_id, member.member_id, heard=False))  # nobody remembers
        if member.state is MemberState.UNREVOKED:
            until_ms = now_ms + member.subscription.rebalance_timeout_ms
            facts.append(ProgressAwaited(group.group_id, member.member_id, until_ms))
    return facts


def _resume_streams(table: GroupTable, group: StreamsGroup, now_ms: int) -> list[Fact]:
    facts: list[Fact] = []
    until_ms = now_ms + table.config_of(group.group_id).streams.session_timeout_ms
    for member in group.members.values():
        facts.append(SessionExtended(group.group_id, member.member_id, until_ms))
        if member.state is MemberState.UNREVOKED:
            awaited_ms = now_ms + member.profile.rebalance_timeout_ms
            facts.append(ProgressAwaited(group.group_id, member.member_id, awaited_ms))
    return facts

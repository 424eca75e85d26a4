"""Machine: a group changes its protocol while it works: classic to consumer, and back (KIP-848, "online migration").

A classic group becomes a consumer group when the first consumer of the new protocol joins it; its members go on
speaking JoinGroup and SyncGroup (classic_members.py). When the last consumer of the new protocol is gone, it
becomes a classic group again. Epochs and generations are one count, so neither is ever used twice (R54).
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected, Reply
from headrace.groups.assigned import MemberState
from headrace.groups.commands import GroupPlan, JoinResult, SyncResult
from headrace.groups.config import Migration
from headrace.groups.consumer.draft import ConsumerDraft
from headrace.groups.consumer.facts import (
    ConsumerGroupDeleted,
    CurrentSet,
    GroupEpochSet,
    MemberSubscribed,
    TargetsSet,
)
from headrace.groups.consumer.members import Assignment, ClassicMetadata, ConsumerMember, ConsumerSubscription
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.draft import ClassicDraft, joined_plans
from headrace.groups.facts import Assigned, GroupDeleted, GroupSnapshot, SessionExtended
from headrace.groups.members import Member
from headrace.groups.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from headrace.groups.subscription import encode_assignment, parse_assignment, parse_subscription
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex

_UPGRADES = (Migration.UPGRADE, Migration.BIDIRECTIONAL)
_DOWNGRADES = (Migration.DOWNGRADE, Migration.BIDIRECTIONAL)


# --- classic to consumer -------------------------------------------------------------------------------------


def upgrade(
    table: GroupTable, index: TopicIndex, group: ClassicGroup, now_ms: int
) -> tuple[GroupPlan, ConsumerGroup] | Rejected:
    """What turns the group into a consumer group, and the group as it then is."""
    subscriptions = _convertible(table, group)
    if subscriptions is None:
        detail = f"Group {group.group_id} is not a consumer group and can't become one."
        return Rejected(ErrorKind.GROUP_ID_NOT_FOUND, detail)
    draft = ConsumerDraft(
        ConsumerGroup(group.group_id),
        index,
        table.config_of(group.group_id),
        now_ms,
        table.wall_ms(now_ms),
    )
    taken: set[tuple[bytes, int]] = set()
    epoch = group.generation
    targets: list[tuple[str, Assignment]] = []
    for member in group.members.values():
        draft.do(MemberSubscribed(group.group_id, member.member_id, subscriptions[member.member_id]))
        # Nothing stops a client's assignor from giving a partition out twice; here each has one owner (R55).
        assigned = _assigned(member, index) - taken
        taken |= assigned
        targets.append((member.member_id, assigned))
        draft.do(
            CurrentSet(
                group.group_id,
                member.member_id,
                epoch,
                epoch,
                MemberState.STABLE,
                assigned,
                frozenset(),
            )
        )
        draft.do(SessionExtended(group.group_id, member.member_id, now_ms + member.session_timeout_ms))
    fingerprint = index.fingerprint(draft.group.topics_subscribed(index))
    draft.do(GroupEpochSet(group.group_id, epoch, fingerprint, -1))
    draft.do(TargetsSet(group.group_id, epoch, tuple(targets)))
    farewell: GroupPlan = Plan((GroupDeleted(group.group_id),), tuple(_send_back(group)))
    return joined_plans(farewell, draft.plan()), draft.group


def _convertible(table: GroupTable, group: ClassicGroup) -> dict[str, ConsumerSubscription] | None:
    if table.config.consumer_migration not in _UPGRADES or not group.uses_consumer_protocol:
        return None
    if len(group.members) >= table.config.consumer_max_size:
        return None
    found: dict[str, ConsumerSubscription] = {}
    for member in group.members.values():
        embedded = parse_subscription(member.protocols[0].metadata)
        if embedded is None:
            return None
        found[member.member_id] = ConsumerSubscription(
            tuple(sorted(set(embedded.topics))),
            None,
            member.instance_id,
            embedded.rack,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            None,
            ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
    return found


def _assigned(member: Member, index: TopicIndex) -> Assignment:
    return as_ids(parse_assignment(member.assignment) or (), index)


def as_ids(partitions: tuple[tuple[str, tuple[int, ...]], ...], index: TopicIndex) -> Assignment:
    """Partitions by topic name, as the embedded protocol has them, of topics that exist."""
    return frozenset(
        (index.topics[topic].topic_id, partition)
        for topic, indexes in partitions
        if topic in index.topics
        for partition in indexes
        if 0 <= partition < index.topics[topic].partition_count
    )


def as_names(assignment: Assignment, index: TopicIndex) -> tuple[tuple[str, tuple[int, ...]], ...]:
    topics: dict[str, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        if topic_id in index.by_id:
            topics.setdefault(index.by_id[topic_id], []).append(partition)
    return tuple((topic, tuple(partitions)) for topic, partitions in sorted(topics.items()))


def _send_back(group: ClassicGroup) -> list[Reply]:
    """Whoever is parked has to come again, to the new group."""
    replies: list[Reply] = []
    for member in group.members.values():
        if member.join_waiter is not None:
            again = JoinResult(ErrorKind.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            replies.append(Reply(member.join_waiter, again))
        if member.sync_waiter is not None:
            replies.append(Reply(member.sync_waiter, SyncResult(ErrorKind.REBALANCE_IN_PROGRESS)))
    return replies


# --- consumer to classic -------------------------------------------------------------------------------------


def can_downgrade(group: ConsumerGroup, table: GroupTable) -> bool:
    return (
        bool(group.members)
        and group.all_classic
        and table.config.consumer_migration in _DOWNGRADES
        and len(group.members) <= table.config.max_size
    )


def downgrade(draft: ConsumerDraft) -> ClassicDraft:
    """Ends the consumer group in `draft`; returns the draft of the classic group that takes over."""
    group = draft.group
    members = tuple(_as_classic(member, draft.index) for member in group.members.values())
    for member in members:
        draft.remove(member.member_id)
    draft.do(ConsumerGroupDeleted(group.group_id))
    successor = ClassicDraft(ClassicGroup(group.group_id), draft.config, draft.now_ms, draft.wall_ms)
    leader = members[0].member_id
    snapshot = GroupSnapshot(CONSUMER_PROTOCOL_TYPE, group.epoch, None, leader, draft.wall_ms, members)
    trial = ClassicGroup(group.group_id)
    trial.apply(Assigned(group.group_id, snapshot))
    successor.do(Assigned(group.group_id, snapshot._replace(protocol=trial.elected_protocol())))
    return successor


def _as_classic(member: ConsumerMember, index: TopicIndex) -> Member:
    classic, subscription = member.subscription.classic, member.subscription
    assert classic is not None, "only called when all members speak the classic protocol"
    return Member(
        member.member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        classic.session_timeout_ms,
        subscription.rebalance_timeout_ms,
        classic.protocols,
        encode_assignment(embedded_version(classic), as_names(member.held, index)),
    )


def embedded_version(classic: ClassicMetadata) -> int:
    """An assignment is encoded in the version the member's subscription has, which it surely understands."""
    embedded = parse_subscription(classic.protocols[0].metadata)
    return 0 if embedded is None else embedded.version

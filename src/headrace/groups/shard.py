"""Machine: the groups and offsets that live in one partition of `__consumer_offsets`.

`decide` finds the group a command is about and calls its verb; it changes nothing. The driver applies the facts at
once, all facts of a plan together, journals the durable ones (those with a `producer` in a transactional batch of
that producer) and lets the answers go when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.core.errors import ErrorKind
from headrace.core.plan import AnyCommand, Fact, JournalRecord, Plan, WallClock, WallClockSet
from headrace.groups import (
    describe,
    expire,
    facts,
    heartbeat,
    join,
    journal,
    leave,
    offsets,
    sync,
    topics_changed,
    txn_offsets,
)
from headrace.groups.commands import (
    AdoptOffsets,
    CommitOffsets,
    ConfigsChanged,
    DeleteGroups,
    DeleteOffsets,
    DeleteOffsetsResult,
    DescribeGroups,
    FetchOffsets,
    GroupPlan,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    TopicDeleted,
    TxnCommitOffsets,
    TxnMarker,
)
from headrace.groups.config import GroupConfig
from headrace.groups.consumer import classic_members
from headrace.groups.consumer import describe as consumer_describe
from headrace.groups.consumer import heartbeat as consumer_heartbeat
from headrace.groups.consumer import journal as consumer_journal
from headrace.groups.consumer import offsets as consumer_offsets
from headrace.groups.consumer.commands import ConsumerGroupDescribe, ConsumerGroupHeartbeat, TopicsChanged
from headrace.groups.consumer.facts import ConsumerGroupDeleted
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.draft import joined_plans
from headrace.groups.fields import fits
from headrace.groups.share import describe as share_describe
from headrace.groups.share import heartbeat as share_heartbeat
from headrace.groups.share import journal as share_journal
from headrace.groups.share.commands import MakeShareGroup, ShareGroupDescribe, ShareGroupHeartbeat
from headrace.groups.share.state import ShareGroup
from headrace.groups.state import ClassicGroup
from headrace.groups.streams import describe as streams_describe
from headrace.groups.streams import heartbeat as streams_heartbeat
from headrace.groups.streams import journal as streams_journal
from headrace.groups.streams import offsets as streams_offsets
from headrace.groups.streams.commands import StreamsGroupDescribe, StreamsGroupHeartbeat
from headrace.groups.streams.facts import StreamsGroupDeleted
from headrace.groups.streams.state import StreamsGroup
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


class GroupShard:
    __slots__ = ("table",)

    def __init__(
        self,
        config: GroupConfig | None = None,
        of_groups: Mapping[str, GroupConfig] | None = None,
        *,
        wall_minus_now_ms: int = 0,
    ) -> None:
        self.table = GroupTable(config or GroupConfig(), of_groups or {}, wall_minus_now_ms)

    # --- Machine ---------------------------------------------------------------------------------------------

    def decide(self, command: AnyCommand, now_ms: int) -> GroupPlan:
        return _VERBS[type(command)](self.table, command, now_ms)

    def apply(self, fact: Any, now_ms: int) -> None:
        self.table.apply(fact, now_ms)

    def encode(self, fact: Any) -> Sequence[JournalRecord]:
        encoder = _ENCODERS.get(type(fact))
        if encoder is not None:
            return encoder(fact)
        if type(fact) in share_journal.ENCODERS:
            return share_journal.encode(fact)
        if type(fact) in streams_journal.ENCODERS:
            return streams_journal.encode(fact)
        return consumer_journal.encode(fact)

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        decoded = journal.decode(record)
        if isinstance(decoded, journal.GroupRecord):
            group_id, snapshot = decoded
            if snapshot is None:
                self.apply(facts.GroupDeleted(group_id), now_ms)
            else:
                self.apply(facts.GroupLoaded(group_id, snapshot), now_ms)
        elif isinstance(decoded, journal.OffsetRecord):
            group_id, topic, partition, value = decoded
            if value is None:
                self.apply(facts.OffsetsDropped(group_id, ((topic, partition),)), now_ms)
            else:
                entry = facts.OffsetEntry(topic, partition, value)
                self.apply(facts.OffsetsCommitted(group_id, (entry,)), now_ms)
        else:
            fact = (
                consumer_journal.decode(record)
                or share_journal.decode(record)
                or streams_journal.decode(record)
            )
            if fact is not None:
                self.apply(fact, now_ms)

    def replay_transactional(self, record: JournalRecord, producer_id: int, now_ms: int) -> None:
        """A record of a transactional batch: pending until `replay_marker` (R50)."""
        decoded = journal.decode(record)
        if isinstance(decoded, journal.OffsetRecord) and decoded.value is not None:
            entry = facts.OffsetEntry(decoded.topic, decoded.partition, decoded.value)
            self.apply(facts.TxnOffsetsPending(decoded.group_id, (entry,), (producer_id, -1)), now_ms)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool, now_ms: int) -> None:
        self.apply(facts.TxnFinished(producer_id, commit), now_ms)

    def loaded(self, now_ms: int) -> GroupPlan:
        return expire.restart(self.table, now_ms)

    def next_deadline(self) -> int | None:
        return self.table.deadlines.next_ms()

    def expire(self, now_ms: int) -> GroupPlan:
        return expire.expire(self.table, now_ms)

    def invariants(self) -> None:
        """Holds whenever all facts of a plan are applied; tests call it after each."""
        self.table.invariants()


# --- verbs ---------------------------------------------------------------------------------------------------


def _join(table: GroupTable, command: JoinGroup, now_ms: int) -> GroupPlan:
    error = join.malformed(command, table.config)
    if error is not ErrorKind.NONE:
        return join.refuse(command, error)
    group = table.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup):
        if group.members:
            if table.topics is None:
                return join.refuse(command, ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)
            return classic_members.join(table, table.topics, group, command, now_ms)
        return _join_after_others(table, group, command, now_ms)
    if isinstance(group, StreamsGroup) and group.is_empty:
        return _join_after_others(table, group, command, now_ms)
    if isinstance(group, ShareGroup | StreamsGroup):
        return join.refuse(command, ErrorKind.INCONSISTENT_GROUP_PROTOCOL)
    return join.join(group, command, table.config, now_ms, table.wall_ms(now_ms))


def _join_after_others(
    table: GroupTable, group: ConsumerGroup | StreamsGroup, command: JoinGroup, now_ms: int
) -> GroupPlan:
    """All members of the new protocol are gone: a classic group takes the name, and goes on counting (R54)."""
    successor = ClassicGroup(group.group_id)
    successor.generation = group.epoch
    snapshot = successor.snapshot(table.wall_ms(now_ms))
    plan = join.join(successor, command, table.config, now_ms, table.wall_ms(now_ms))
    if not plan.facts:
        return plan
    gone = ConsumerGroupDeleted if isinstance(group, ConsumerGroup) else StreamsGroupDeleted
    handover = (gone(group.group_id), facts.GroupOpened(group.group_id, snapshot))
    return joined_plans(Plan(handover), plan)


def _sync(table: GroupTable, command: SyncGroup, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id)
    if isinstance(group, ClassicGroup):
        return sync.sync(group, command, table.config, now_ms, table.wall_ms(now_ms))
    if isinstance(group, ConsumerGroup):
        if table.topics is None:
            return sync.refuse(command, ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)
        return classic_members.sync(table, table.topics, group, command, now_ms)
    return sync.refuse(command, _unknown(command.group_id))


def _heartbeat(table: GroupTable, command: Heartbeat, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id)
    if isinstance(group, ClassicGroup):
        return heartbeat.heartbeat(group, command, now_ms)
    if isinstance(group, ConsumerGroup):
        return classic_members.heartbeat(table, group, command, now_ms)
    return heartbeat.refuse(command, _unknown(command.group_id))


def _leave(table: GroupTable, command: LeaveGroup, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id)
    if isinstance(group, ClassicGroup):
        return leave.leave(group, command, table.config, now_ms, table.wall_ms(now_ms))
    if isinstance(group, ConsumerGroup):
        return classic_members.leave(table, table.topics or TopicIndex({}), group, command, now_ms)
    return leave.refuse(command, _unknown(command.group_id))


def _unknown(group_id: str) -> ErrorKind:
    return ErrorKind.UNKNOWN_MEMBER_ID if group_id else ErrorKind.INVALID_GROUP_ID


def _commit(table: GroupTable, command: CommitOffsets, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id)
    who = (command.member_id, command.generation, command.instance_id)
    life: tuple[Fact, ...] = ()
    if not fits(command.group_id):
        refusal = ErrorKind.INVALID_GROUP_ID
    elif isinstance(group, ConsumerGroup):
        known = command.member_epoch_known
        refusal = consumer_offsets.commit_refusal(group, *who, transactional=False, member_epoch_known=known)
    elif isinstance(group, StreamsGroup):
        known = command.member_epoch_known
        refusal = streams_offsets.commit_refusal(
            group, *who[:2], command.offsets, transactional=False, member_epoch_known=known
        )
    elif isinstance(group, ShareGroup):
        refusal = ErrorKind.GROUP_ID_NOT_FOUND  # what its members acknowledge is kept elsewhere
    else:
        refusal = offsets.classic_refusal(group, *who, transactional=False)
        if refusal is ErrorKind.ILLEGAL_GENERATION and group is None and command.member_epoch_known:
            refusal = ErrorKind.GROUP_ID_NOT_FOUND
        if refusal is ErrorKind.NONE and group is not None and command.member_id in group.members:
            life = heartbeat.extend_session(group, command.member_id, now_ms)
    return offsets.commit(command, refusal, life, table.config, table.wall_ms(now_ms))


def _txn_commit(table: GroupTable, command: TxnCommitOffsets, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id)
    who = (command.member_id, command.generation, command.instance_id)
    if not fits(command.group_id):
        refusal = ErrorKind.INVALID_GROUP_ID
    elif isinstance(group, ConsumerGroup):
        refusal = consumer_offsets.commit_refusal(group, *who, transactional=True)
    elif isinstance(group, StreamsGroup):
        refusal = streams_offsets.commit_refusal(group, *who[:2], command.offsets, transactional=True)
    elif isinstance(group, ShareGroup):
        refusal = ErrorKind.GROUP_ID_NOT_FOUND
    else:
        refusal = offsets.classic_refusal(group, *who, transactional=True)
    return txn_offsets.commit(command, refusal, table.config, table.wall_ms(now_ms))


def _marker(table: GroupTable, command: TxnMarker, now_ms: int) -> GroupPlan:
    return txn_offsets.marker(table.offsets, command)


def _fetch(table: GroupTable, command: FetchOffsets, now_ms: int) -> GroupPlan:
    group, refusal = table.groups.get(command.group_id), ErrorKind.NONE
    if isinstance(group, ConsumerGroup | StreamsGroup):
        refusal = group.fetch_refusal(command.member_id, command.member_epoch)
    return offsets.fetch(table.offsets, command, refusal)


def _delete_offsets(table: GroupTable, command: DeleteOffsets, now_ms: int) -> GroupPlan:
    group = table.groups.get(command.group_id) or describe.find_classic(table, command.group_id)
    error = ErrorKind.NONE
    subscribed: frozenset[str] | None = frozenset()
    if group is None or isinstance(group, ShareGroup):
        error = ErrorKind.GROUP_ID_NOT_FOUND
    elif isinstance(group, ConsumerGroup):
        subscribed = None if table.topics is None else group.topics_subscribed(table.topics)
    elif isinstance(group, StreamsGroup):
        subscribed = group.topics_read()
    elif not group.is_empty:
        if not group.uses_consumer_protocol:
            error = ErrorKind.NON_EMPTY_GROUP
        subscribed = group.topics_subscribed()
    if error is not ErrorKind.NONE:
        return Plan(replies=command.answer(DeleteOffsetsResult(error)))
    return offsets.delete(table.offsets, command, subscribed)


def _topic_deleted(table: GroupTable, command: TopicDeleted, now_ms: int) -> GroupPlan:
    return offsets.topic_deleted(table.offsets, command)


def _adopt(table: GroupTable, command: AdoptOffsets, now_ms: int) -> GroupPlan:
    return offsets.adopt(table.offsets, command)


def _describe(table: GroupTable, command: DescribeGroups, now_ms: int) -> GroupPlan:
    return describe.describe(table, command)


def _list(table: GroupTable, command: ListGroups, now_ms: int) -> GroupPlan:
    return describe.list_groups(table, command)


def _delete_groups(table: GroupTable, command: DeleteGroups, now_ms: int) -> GroupPlan:
    return describe.delete_groups(table, command)


def _consumer_describe(table: GroupTable, command: ConsumerGroupDescribe, now_ms: int) -> GroupPlan:
    return consumer_describe.describe(table, command)


def _share_describe(table: GroupTable, command: ShareGroupDescribe, now_ms: int) -> GroupPlan:
    return share_describe.describe(table, command)


def _streams_describe(table: GroupTable, command: StreamsGroupDescribe, now_ms: int) -> GroupPlan:
    return streams_describe.describe(table, command)


def _topics_changed(table: GroupTable, command: TopicsChanged, now_ms: int) -> GroupPlan:
    return topics_changed.topics_changed(table, command)


def _configs_changed(table: GroupTable, command: ConfigsChanged, now_ms: int) -> GroupPlan:
    fact = facts.ConfigsSeen(command.config, command.of_groups)
    return Plan((fact,), command.answer(None))


def _wall_clock(table: GroupTable, command: WallClock, now_ms: int) -> GroupPlan:
    fact = WallClockSet(command.wall_ms - now_ms)
    return Plan((fact,), command.answer(None))


_VERBS: dict[type, Callable[[GroupTable, Any, int], GroupPlan]] = {
    JoinGroup: _join,
    SyncGroup: _sync,
    Heartbeat: _heartbeat,
    LeaveGroup: _leave,
    CommitOffsets: _commit,
    TxnCommitOffsets: _txn_commit,
    TxnMarker: _marker,
    FetchOffsets: _fetch,
    DeleteOffsets: _delete_offsets,
    TopicDeleted: _topic_deleted,
    AdoptOffsets: _adopt,
    DescribeGroups: _describe,
    ListGroups: _list,
    DeleteGroups: _delete_groups,
    WallClock: _wall_clock,
    ConsumerGroupHeartbeat: consumer_heartbeat.heartbeat,
    ConsumerGroupDescribe: _consumer_describe,
    ShareGroupHeartbeat: share_heartbeat.heartbeat,
    MakeShareGroup: share_heartbeat.make_group,
    ShareGroupDescribe: _share_describe,
    StreamsGroupHeartbeat: streams_heartbeat.heartbeat,
    StreamsGroupDescribe: _streams_describe,
    TopicsChanged: _topics_changed,
    ConfigsChanged: _configs_changed,
}


# --- journal -------------------------------------------------------------------------------------------------


def _encode_group(fact: Any) -> Sequence[JournalRecord]:
    return (journal.group_record(fact.group_id, fact.snapshot),)


def _encode_deleted(fact: facts.GroupDeleted) -> Sequence[JournalRecord]:
    return (journal.group_record(fact.group_id, None),)


def _encode_offsets(fact: facts.OffsetsCommitted | facts.TxnOffsetsPending) -> Sequence[JournalRecord]:
    return tuple(journal.offset_record(fact.group_id, e.topic, e.partition, e.value) for e in fact.entries)


def _encode_dropped(fact: facts.OffsetsDropped) -> Sequence[JournalRecord]:
    return tuple(journal.offset_record(fact.group_id, topic, p, None) for topic, p in fact.partitions)


_ENCODERS: dict[type, Callable[[Any], Sequence[JournalRecord]]] = {
    facts.GroupOpened: _encode_group,
    facts.GenerationStarted: _encode_group,
    facts.Assigned: _encode_group,
    facts.GroupEmptied: _encode_group,
    facts.GroupDeleted: _encode_deleted,
    facts.OffsetsCommitted: _encode_offsets,
    facts.TxnOffsetsPending: _encode_offsets,
    facts.OffsetsDropped: _encode_dropped,
}

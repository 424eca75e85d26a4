"""Machine: OffsetCommit, OffsetFetch, OffsetDelete, and what retention does to offsets nobody comes back for.

R53: a commit is answered in the same plan as its durable fact, so the driver's gate holds the answer back until
the offsets topic has it. R54: who commits must be a member of the present generation.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan
from headrace.groups.commands import (
    AdoptOffsets,
    CommitOffsets,
    CommitResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    FetchedOffset,
    FetchOffsets,
    FetchOffsetsResult,
    GroupPlan,
    OffsetToCommit,
    PartitionOutcome,
    TopicDeleted,
)
from headrace.groups.config import GroupConfig
from headrace.groups.facts import OffsetEntry, OffsetsCommitted, OffsetsDropped
from headrace.groups.fields import MAX_STRING_BYTES
from headrace.groups.offset_table import CommittedOffset, OffsetTable
from headrace.groups.state import ClassicGroup, GroupState


def classic_refusal(
    group: ClassicGroup | None,
    member_id: str,
    generation: int,
    instance_id: str | None,
    *,
    transactional: bool,
) -> ErrorKind:
    """Why this committer may not commit. A group nobody is in belongs to whoever commits without a generation: a
    consumer that assigns its own partitions, or an administrator."""
    if group is None:
        return ErrorKind.NONE if generation < 0 else ErrorKind.ILLEGAL_GENERATION
    if generation < 0 and group.is_empty:
        return ErrorKind.NONE
    if generation < 0 and not member_id and instance_id is None:
        # KIP-447 lets an old transactional producer, which knows no member, commit for a group with members.
        return ErrorKind.NONE if transactional else ErrorKind.UNKNOWN_MEMBER_ID
    error = group.refusal(member_id, instance_id)
    if error is not ErrorKind.NONE:
        return error
    if generation != group.generation:
        return ErrorKind.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING and not transactional:
        # Its assignment is on its way; until then it can't know what it may commit (librdkafka test 0118).
        return ErrorKind.REBALANCE_IN_PROGRESS
    return ErrorKind.NONE


def commit(
    command: CommitOffsets,
    refusal: ErrorKind,
    signs_of_life: Iterable[Fact],
    config: GroupConfig,
    wall_ms: int,
) -> GroupPlan:
    if refusal is not ErrorKind.NONE:
        outcomes = tuple(PartitionOutcome(o.topic, o.partition, refusal) for o in command.offsets)
        return Plan(replies=command.answer(CommitResult(refusal, outcomes)))
    # What a client asks for may be past the end of time.
    expire_wall_ms = -1 if command.retention_ms is None else min(wall_ms + command.retention_ms, 2**63 - 1)
    entries, outcomes = screen(command.offsets, config, wall_ms, expire_wall_ms)
    facts: list[Fact] = list(signs_of_life)
    if entries:
        facts.append(OffsetsCommitted(command.group_id, entries))
    return Plan(tuple(facts), command.answer(CommitResult(ErrorKind.NONE, outcomes)))


def screen(
    offsets: tuple[OffsetToCommit, ...], config: GroupConfig, wall_ms: int, expire_wall_ms: int = -1
) -> tuple[tuple[OffsetEntry, ...], tuple[PartitionOutcome, ...]]:
    """Each partition stands for itself: too much metadata spoils one offset, not the commit."""
    entries: list[OffsetEntry] = []
    outcomes: list[PartitionOutcome] = []
    for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
        text = metadata or ""
        # len() first: a text is never shorter in bytes than in characters.
        limit = min(config.max_offset_metadata_bytes, MAX_STRING_BYTES)
        if len(text) > limit or len(text.encode()) > limit:
            outcomes.append(PartitionOutcome(topic, partition, ErrorKind.OFFSET_METADATA_TOO_LARGE))
            continue
        value = CommittedOffset(offset, leader_epoch, text, wall_ms, expire_wall_ms, topic_id=topic_id)
        entries.append(OffsetEntry(topic, partition, value))
        outcomes.append(PartitionOutcome(topic, partition, ErrorKind.NONE))
    return tuple(entries), tuple(outcomes)


def fetch(table: OffsetTable, command: FetchOffsets, refusal: ErrorKind) -> GroupPlan:
    """An unknown group or partition is not an error: offset -1 is (kafka.md trap 3)."""
    if refusal is not ErrorKind.NONE:
        return Plan(replies=command.answer(FetchOffsetsResult(refusal)))
    group_id, stable = command.group_id, command.require_stable
    if command.topics is None:
        found = [
            _fetched(topic, partition, value, stable and table.is_unstable(group_id, topic, partition))
            for topic, partition, value in table.of_group(group_id)
        ]
    else:
        found = [
            _fetched(
                topic,
                partition,
                table.get(group_id, topic, partition),
                stable and table.is_unstable(group_id, topic, partition),
            )
            for topic, partitions in command.topics
            for partition in partitions
        ]
    return Plan(replies=command.answer(FetchOffsetsResult(ErrorKind.NONE, tuple(found))))


def _fetched(topic: str, partition: int, value: CommittedOffset | None, unstable: bool) -> FetchedOffset:
    if unstable:
        return FetchedOffset(topic, partition, error=ErrorKind.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return FetchedOffset(topic, partition)
    return FetchedOffset(
        topic, partition, value.offset, value.leader_epoch, value.metadata, topic_id=value.topic_id
    )


def delete(table: OffsetTable, command: DeleteOffsets, subscribed: frozenset[str] | None) -> GroupPlan:
    """`subscribed`: topics that members read and whose offsets therefore stay; None when all have to stay."""
    outcomes: list[PartitionOutcome] = []
    dropped: list[tuple[str, int]] = []
    for topic, partition in command.partitions:
        if subscribed is None or topic in subscribed:
            outcomes.append(PartitionOutcome(topic, partition, ErrorKind.GROUP_SUBSCRIBED_TO_TOPIC))
            continue
        outcomes.append(PartitionOutcome(topic, partition, ErrorKind.NONE))
        if table.get(command.group_id, topic, partition) is not None or table.is_unstable(
            command.group_id, topic, partition
        ):
            dropped.append((topic, partition))
    facts = (OffsetsDropped(command.group_id, tuple(dropped)),) if dropped else ()
    return Plan(facts, command.answer(DeleteOffsetsResult(ErrorKind.NONE, tuple(outcomes))))


def topic_deleted(table: OffsetTable, command: TopicDeleted) -> GroupPlan:
    doomed = table.keys_of_topic(command.topic, command.topic_id)
    facts = tuple(OffsetsDropped(group_id, keys) for group_id, keys in doomed.items())
    return Plan(facts, command.answer(None))


def adopt(table: OffsetTable, command: AdoptOffsets) -> GroupPlan:
    facts: list[Fact] = []
    for group_id in sorted(table.committed):
        entries = tuple(
            OffsetEntry(topic, partition, value._replace(topic_id=command.topic_ids[topic]))
            for topic, partition, value in table.of_group(group_id)
            # Written again it would be newer than what a transaction is about to commit.
            if not value.topic_id
            and topic in command.topic_ids
            and not table.is_unstable(group_id, topic, partition)
        )
        if entries:
            facts.append(OffsetsCommitted(group_id, entries))
    return Plan(tuple(facts), command.answer(None))


# --- retention -----------------------------------------------------------------------------------------------


def expires_at(value: CommittedOffset, empty_since_wall_ms: int | None, retention_ms: int) -> int:
    """In wall time. A group that has, or had, members keeps its offsets while it has them; a group that never had any
    keeps each offset from its commit on."""
    if value.expire_wall_ms >= 0:
        return value.expire_wall_ms
    return (value.commit_wall_ms if empty_since_wall_ms is None else empty_since_wall_ms) + retention_ms


class Expiry:
    """What is due now, and when to look again."""

    __slots__ = ("due", "next_wall_ms")

    def __init__(self) -> None:
        self.due: list[tuple[str, int]] = []
        self.next_wall_ms: int | None = None

    def consider(self, topic: str, partition: int, at_wall_ms: int, wall_ms: int) -> None:
        if at_wall_ms <= wall_ms:
            self.due.append((topic, partition))
        elif self.next_wall_ms is None or at_wall_ms < self.next_wall_ms:
            self.next_wall_ms = at_wall_ms


def expiry(
    table: OffsetTable,
    group_id: str,
    *,
    empty_since_wall_ms: int | None,
    kept_topics: frozenset[str],
    retention_ms: int,
    wall_ms: int,
) -> Expiry:
    result = Expiry()
    for topic, partition, value in table.of_group(group_id):
        # An offset that a transaction is about to replace is in use.
        if topic in kept_topics or table.is_unstable(group_id, topic, partition):
            continue
        result.consider(topic, partition, expires_at(value, empty_since_wall_ms, retention_ms), wall_ms)
    return result

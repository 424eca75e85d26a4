"""Door: TxnOffsetCommit (28): offsets that count once their transaction commits (R50).

v3: member and generation are checked (KIP-447). v5: the group's partition joins the transaction by itself (KIP-890).

A commit that its client has given up must not become part of a later transaction, where it would take the group back to an
older offset: as for Produce, connections tell (R47).
"""

from __future__ import annotations

import asyncio

from headrace.broker.internal_topics import OFFSETS_TOPIC
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.limits import MAX_OFFSETS_AT_ONCE
from headrace.groups.commands import CommitResult, OffsetToCommit, PartitionOutcome, TxnCommitOffsets
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, TRANSACTIONAL_ID, needs, read, write
from headrace.transactions.versions import error_for_version
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

KEY = 28
VERSIONS = (0, 5)
RIGHTS = needs(
    write(TRANSACTIONAL_ID, "transactional_id"), read(GROUP, "group_id"), read(TOPIC, "topics[].name")
)
PARTS = (Parts("topics", "topics"),)
IMPLICIT_ADD = 5
DOUBT_S = 0.05
"""How long the first commit after an abort is held back, to see whether its connection closes behind it (R47)."""


async def handle(call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    request = call.request
    errors: dict[tuple[str, int], ErrorKind] = {}
    offsets: list[OffsetToCommit] = []
    pace = call.pace()
    async for topic in pace.over(request.topics):
        known = call.broker.image.topic(topic.name)
        async for entry in pace.over(topic.partitions):
            place = (topic.name, entry.partition_index)
            if known is None or call.broker.image.partition(*place) is None:
                errors[place] = ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offsets.append(
                OffsetToCommit(
                    *place,
                    entry.committed_offset,
                    entry.committed_leader_epoch,
                    entry.committed_metadata,
                    known.id,
                )
            )
    if offsets:
        try:
            result = await _commit(call, request, tuple(offsets))
        except HeadraceError as problem:
            result = CommitResult(problem.kind)
        for offset in offsets:
            errors[offset.topic, offset.partition] = result.error
        for outcome in result.partitions:
            errors[outcome.topic, outcome.partition] = outcome.error
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        entry.partition_index,
                        error_for_version(
                            KEY, call.version, errors[topic.name, entry.partition_index]
                        ).kafka_code,
                    )
                    async for entry in pace.over(topic.partitions)
                ],
            )
            async for topic in pace.over(request.topics)
        ]
    )


_ENDED_MEANWHILE = CommitResult(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)
"""What was found out about the transaction counts no more, its time was up perhaps. Who asks again hears how it stands now, and no client
takes its producer for broken (F84)."""


async def _commit(
    call: Call[TxnOffsetCommitRequest], request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> CommitResult:
    groups = call.services.groups
    partition = groups.shard_of(request.group_id).partition
    pid, epoch = request.producer_id, request.producer_epoch
    if _is_from_the_past(call, request, partition.tp):
        return _hang_up(call)
    if not partition.log.producers.has_open_transaction(pid, epoch):
        if _connections_tell(call) and partition.verifications.hearings.doubts(
            pid, epoch, call.connection_id
        ):
            # Not every client repeats a commit that is refused. But all of them close a connection when they give up.
            await asyncio.sleep(DOUBT_S)
        ticket = partition.verifications.begin(pid, epoch)
        place = TopicPartition(OFFSETS_TOPIC, partition.tp.partition)
        error = await call.services.transactions.confirm(
            request.transactional_id, pid, epoch, [place], add=call.version >= IMPLICIT_ADD
        )
        if error is not ErrorKind.NONE:
            # What a coordinator that is away means to a produce is "loading" to a commit.
            away = error is ErrorKind.NOT_ENOUGH_REPLICAS
            return CommitResult(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS if away else error)
        if not call.services.connections.is_open(call.connection_id) or _is_from_the_past(
            call, request, partition.tp
        ):
            return _hang_up(call)
        if not partition.verifications.holds(pid, epoch, ticket):
            return _ENDED_MEANWHILE
        partition.verifications.hearings.spoke(pid)
    outcomes: list[PartitionOutcome] = []
    for first in range(0, len(offsets), MAX_OFFSETS_AT_ONCE):
        if first:
            # A3: in commands of a bounded size. While one was waited for, the transaction may have ended or the client left.
            if not call.services.connections.is_open(call.connection_id) or _is_from_the_past(
                call, request, partition.tp
            ):
                return _hang_up(call)
            if not partition.log.producers.has_open_transaction(pid, epoch):
                return _ENDED_MEANWHILE
        # R25, R45: nothing is awaited between the check above and the append inside `ask`.
        result = await _ask(call, request, offsets[first : first + MAX_OFFSETS_AT_ONCE])
        if result.error is not ErrorKind.NONE:
            return result
        outcomes += result.partitions
    return CommitResult(ErrorKind.NONE, tuple(outcomes))


async def _ask(
    call: Call[TxnOffsetCommitRequest], request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> CommitResult:
    result: CommitResult = await call.services.groups.ask(
        request.group_id,
        TxnCommitOffsets(
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            offsets,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
        ),
    )
    return result


def _connections_tell(call: Call[TxnOffsetCommitRequest]) -> bool:
    """R47 is for clients whose epoch does not (R46)."""
    return call.version < IMPLICIT_ADD and call.services.connections.fencing


def _is_from_the_past(
    call: Call[TxnOffsetCommitRequest], request: TxnOffsetCommitRequest, place: TopicPartition
) -> bool:
    """A newer connection has committed for this producer, or somebody else has coordinated the group since."""
    if not _connections_tell(call):
        return False
    return not call.services.connections.leaderships.admits(
        place, call.connection_id
    ) or not call.services.connections.offset_commits.admit(
        request.producer_id, request.producer_epoch, call.connection_id
    )


def _hang_up(call: Call[TxnOffsetCommitRequest]) -> CommitResult:
    call.services.connections.close(call.connection_id)
    return CommitResult(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS)

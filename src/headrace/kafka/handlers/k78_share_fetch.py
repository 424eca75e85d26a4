"""Door: ShareFetch (78): acquire records, and acknowledge earlier ones on the way (KIP-932). Nothing there parks.

v2: renew (KIP-1222), acquire modes (KIP-1206): whole batches, or not a record more than asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headrace.broker.share_groups import Acquired
from headrace.broker.share_sessions import FINAL, Key, ShareSession
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.limits import MAX_FETCH_BYTES
from headrace.kafka.call import Call
from headrace.kafka.leader_hints import endpoint, hint_for
from headrace.security.guard import Parts
from headrace.security.rights import GROUP, TOPIC, Operation, needs, read
from headrace.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

KEY = 78
VERSIONS = (1, 2)
RIGHTS = needs(read(GROUP, "group_id"), read(TOPIC, "topics[].topic_id"))
PARTS = (Parts("topics", "responses"),)

MAX_WAIT_MS = 60_000
MAX_RECORDS = 10_000
RECORD_LIMIT = 1
"""Acquire mode; the other one, and that of version 1, is batch_optimized."""


async def handle(call: Call[ShareFetchRequest]) -> ShareFetchResponse:
    request = call.request
    groups = call.services.share_groups
    group, member = request.group_id, request.member_id
    if not group or not member:
        return ShareFetchResponse(error_code=ErrorKind.INVALID_REQUEST)
    asked = {
        (topic.topic_id, part.partition_index): part for topic in request.topics for part in topic.partitions
    }
    acks = {key: part for key, part in asked.items() if part.acknowledgement_batches}
    if request.share_session_epoch == 0 and acks:
        return ShareFetchResponse(error_code=ErrorKind.INVALID_REQUEST)
    forgotten = [
        (topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions
    ]
    turn = groups.sessions.begin(
        (group, member), request.share_session_epoch, call.connection_id, asked, forgotten
    )
    if isinstance(turn, ErrorKind):
        return ShareFetchResponse(error_code=turn.kafka_code)
    if turn.is_new:
        groups.leave((group, member))
    rows: dict[Key, PartitionData] = {}
    pace = call.pace()
    async for key, part in pace.over(acks.items()):
        await _acknowledge(call, group, member, key, part, rows)
    if turn.session is None or request.share_session_epoch == FINAL:
        groups.leave((group, member))
    elif not (request.is_renew_ack and acks):
        await _acquire(call, group, member, turn.session, rows)
        if call.refuses(Operation.READ, GROUP, group):
            # Withdrawn while it waited (A9). What it has acquired is given back; nobody has seen it.
            groups.leave((group, member))
            return ShareFetchResponse(error_code=ErrorKind.GROUP_AUTHORIZATION_FAILED)
    return _response(call, rows, groups.config(group).lock_ms)


def acknowledgements(batches: Iterable[AcknowledgementBatch]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types)) for batch in batches]


async def _acknowledge(
    call: Call[ShareFetchRequest],
    group: str,
    member: str,
    key: Key,
    part: FetchPartition,
    rows: dict[Key, PartitionData],
) -> None:
    row = rows[key] = PartitionData(partition_index=key[1], records=b"")
    try:
        batches = acknowledgements(part.acknowledgement_batches)
        await call.services.share_groups.acknowledge(group, member, find(call, key), batches)
    except HeadraceError as problem:
        row.acknowledge_error_code = problem.kind.kafka_code
        row.acknowledge_error_message = problem.detail


def find(call: Call[object], key: Key) -> TopicPartition:
    topic = call.broker.image.topic_by_id(key[0])
    if topic is None:
        raise HeadraceError(ErrorKind.UNKNOWN_TOPIC_ID)
    if call.refuses(Operation.READ, TOPIC, topic.name):
        # Asked each time: a session outlives a right that was withdrawn.
        seen = call.sees(TOPIC, topic.name)
        raise HeadraceError(ErrorKind.TOPIC_AUTHORIZATION_FAILED if seen else ErrorKind.UNKNOWN_TOPIC_ID)
    return TopicPartition(topic.name, key[1])


async def _acquire(
    call: Call[ShareFetchRequest],
    group: str,
    member: str,
    session: ShareSession,
    rows: dict[Key, PartitionData],
) -> None:
    """Until something was acquired, something is wrong, or the time is over."""
    request = call.request
    clock = call.broker.runtime.clock
    deadline_ms = clock.now_ms() + max(0, min(request.max_wait_ms, MAX_WAIT_MS))
    while True:
        arrival = call.services.share_groups.arrival(group)
        if await _acquire_now(call, group, member, session, rows):
            return
        left_ms = deadline_ms - clock.now_ms()
        if left_ms <= 0 or not session.partitions or request.min_bytes <= 0:
            return
        try:
            async with asyncio.timeout(left_ms / 1000):
                await arrival.wait()
        except TimeoutError:
            deadline_ms = clock.now_ms()


async def _acquire_now(
    call: Call[ShareFetchRequest],
    group: str,
    member: str,
    session: ShareSession,
    rows: dict[Key, PartitionData],
) -> bool:
    request = call.request
    records_left = min(request.max_records if request.max_records > 0 else MAX_RECORDS, MAX_RECORDS)
    bytes_left = min(request.max_bytes, MAX_FETCH_BYTES)
    gave: list[Key] = []
    is_wrong = False
    async for key in call.pace().over(list(session.partitions)):
        if records_left <= 0 or bytes_left <= 0:
            break
        row = rows.get(key) or PartitionData(partition_index=key[1], records=b"")
        try:
            acquired = await call.services.share_groups.acquire(
                group,
                member,
                find(call, key),
                records_left,
                bytes_left,
                whole=request.share_acquire_mode != RECORD_LIMIT,
            )
        except HeadraceError as problem:
            row.error_code, row.error_message = problem.kind.kafka_code, problem.detail
            rows[key] = row
            is_wrong = True
            continue
        if acquired.runs:
            rows[key] = row
            gave.append(key)
            _fill(row, acquired)
            records_left -= sum(run.end - run.first for run in acquired.runs)
            bytes_left -= len(acquired.data)
    session.rotate(gave)
    return bool(gave) or is_wrong


def _fill(row: PartitionData, acquired: Acquired) -> None:
    row.records = acquired.data
    row.acquired_records = [
        AcquiredRecords(run.first, run.end - 1, min(run.delivery, 2**15 - 1)) for run in acquired.runs
    ]


def _response(
    call: Call[ShareFetchRequest], rows: dict[Key, PartitionData], lock_ms: int
) -> ShareFetchResponse:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    leaders: set[int] = set()
    for (topic_id, number), row in rows.items():
        topic = call.broker.image.topic_by_id(topic_id)
        error = ErrorKind(row.error_code or row.acknowledge_error_code)
        if topic is not None:
            hint = hint_for(call.broker.image, topic.name, number, error)
            row.current_leader = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
            leaders.add(hint.leader_id)
        topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id, [])).partitions.append(row)
    found = [
        node for leader in sorted(leaders - {-1}) if (node := endpoint(call.broker.image, leader)) is not None
    ]
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in found],
    )

"""Door: Fetch (1), the other hot path. Whole batches as they lie in the file; an empty fetch parks.

A view, or a filter that came along, is read through a lens (services.views).
v7: sessions (KIP-227). v9: leader epochs. v12: flexible. v13: topic ids. v16: node endpoints (KIP-951). v18: a follower's high
watermark (KIP-1166), which says nothing new to a leader that waits for nobody's.
"""

from __future__ import annotations

import asyncio

from headrace.broker.fetch import FetchReader, FetchTarget, Got, LocalFetch, ParkedFetch, WideFetch, fetch
from headrace.broker.fetch_sessions import INITIAL_EPOCH, FetchSessions, Key, OpenedSession, SessionPartition
from headrace.broker.pacing import Pace
from headrace.broker.partition import Partition
from headrace.broker.services import Failures, Services
from headrace.broker.views.fetching import ViewFetch, fetch_views
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_FETCH_BYTES, MAX_REQUEST_PARTITIONS, WIDE_REQUEST_PARTITIONS
from headrace.core.stored import Stored
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.leader_hints import endpoints_for, hint_for
from headrace.kafka.throttle import throttle_fetch
from headrace.records.filters import FilterProblem
from headrace.replication.events import Diverging, FollowerFetch, RefuseFetch
from headrace.security.access import Access
from headrace.security.rights import TOPIC, Operation, needs, read
from headrace.wire import fetch as wire
from headrace.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    encode_fetch_response,
)
from headrace.wire.framing import RequestHeader, encode_response_frame
from headrace.wire.leader_hint import NO_LEADER, LeaderIdAndEpoch
from headrace.wire.primitives import TooManyEntries

KEY = 1
VERSIONS = (4, 18)
RIGHTS = needs(read(TOPIC, "topics[].name", "topics[].topic_id"))
MOST_ENTRIES = MAX_REQUEST_PARTITIONS

SESSIONS = 7
"""Since then there is a place for an error of the whole request."""
BY_ID = 13
MAX_GUARDED_WAIT_MS = 4_000
"""Where rights are asked for: a right that is withdrawn counts within 5 s, for a long poll too (A9)."""


def handle_frame(
    services: Services, connection: Connection, header: RequestHeader, frame: memoryview, position: int
) -> bool:
    version = header.api_version
    try:
        request = wire.decode_fetch_request(frame, position, version, MOST_ENTRIES)
    except TooManyEntries:
        if version < SESSIONS:
            raise
        # A3: the connection has done no harm, and a client that is told can do something about it.
        connection.server.warn(f"refusing {connection.host}: Fetch of more than {MOST_ENTRIES} partitions")
        _send(connection.open_slot(), header, FetchResponse([], ErrorKind.INVALID_REQUEST.kafka_code, 0))
        return False
    slot = connection.open_slot()
    if request.replica_id >= 0:
        refused = services.broker.introductions.replica_refusal(
            connection.session.principal, request.replica_id, request.replica_epoch
        )
        if refused is not None:
            _refuse(slot, header, request, refused)
            return False
        if connection.end_wait is not None:
            connection.end_wait()
    by_id = version >= BY_ID
    access = connection.session.access
    opened = services.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        by_id,
        _wanted(services, request, by_id),
        _forgotten(request, by_id),
        _new_session_id(services) if request.session_epoch == INITIAL_EPOCH else 0,
        services.broker.runtime.clock.now_ms(),
        connection.id,
        lambda wanted: (
            services.broker.image.partition(wanted.topic, wanted.partition) is not None
            and (access is None or access.may(Operation.READ, TOPIC, wanted.topic))
        ),
    )
    if isinstance(opened, ErrorKind):
        _send(slot, header, FetchResponse([], opened.kafka_code, 0))
        return False
    # A follower also gets what is not committed: what may be cut off again is not lent.
    takes_files = connection.takes_files and request.replica_id < 0
    reader = FetchReader(request.replica_id, request.isolation_level == 1, request.rack_id, takes_files)
    if reader.is_replica:
        services.broker.liveness.replica_connected(connection.id, reader.replica_id)
    if len(opened.wanted) > WIDE_REQUEST_PARTITIONS:
        work = _fetch_wide(services, connection, slot, header, opened, request, reader)
        services.broker.runtime.spawn(work, "a wide fetch")
        return True
    targets = [
        _target(services, wanted, by_id, reader, request.replica_epoch, access) for wanted in opened.wanted
    ]
    asked = _asked(services, targets, request, reader, access)
    counted = services.quotas.active and not reader.is_replica
    version = 0 if access is None else access.version

    def answer(results: list[Got]) -> None:
        if access is not None and access.version != version:
            results = _allowed_still(opened, results, by_id, access)
        answer = _Answer(services.broker.image, services.failures, opened)
        for wanted, got in zip(opened.wanted, results, strict=True):
            answer.add(wanted, got)
        throttle_ms = throttle_fetch(services.quotas, connection, header, results) if counted else 0
        answer.send(slot, header, throttle_ms)

    parked: ParkedFetch | ViewFetch | None
    if _reads_views(services, asked, request):
        parked = fetch_views(services.views, asked, answer)
    else:
        parked = fetch(asked, answer)
    if parked is not None:
        connection.park(slot, parked.cancel)
        if reader.is_replica and isinstance(parked, ParkedFetch):
            connection.end_wait = parked.hurry
    return False


def _new_session_id(services: Services) -> int:
    return int.from_bytes(services.broker.runtime.random_bytes(4), "big") >> 1 or 1


def _refuse(slot: Slot, header: RequestHeader, request: wire.FetchRequest, kind: ErrorKind) -> None:
    """A1: somebody claims to be a replica. Said for each partition too: before v7 there is no other place for it."""
    code = kind.kafka_code
    topics = [
        FetchTopicResponse(
            topic.name,
            topic.topic_id,
            [FetchPartitionResponse(part.partition, code, -1, -1, -1) for part in topic.partitions],
        )
        for topic in request.topics
    ]
    _send(slot, header, FetchResponse(topics, code, 0))


async def _fetch_wide(
    services: Services,
    connection: Connection,
    slot: Slot,
    header: RequestHeader,
    opened: OpenedSession,
    request: wire.FetchRequest,
    reader: FetchReader,
) -> None:
    """A3: as above, in slices. The connection waits until all partitions were looked at once."""
    pace = Pace(services.broker.runtime.clock)
    by_id = header.api_version >= BY_ID
    access = connection.session.access
    targets = [
        _target(services, wanted, by_id, reader, request.replica_epoch, access)
        async for wanted in pace.over(opened.wanted)
    ]
    asked = _asked(services, targets, request, reader, access)
    results: list[Got] | None
    if _reads_views(services, asked, request):
        done: asyncio.Future[list[Got]] = asyncio.get_running_loop().create_future()
        views = fetch_views(services.views, asked, done.set_result)
        if views is not None:
            connection.park(slot, views.cancel)
        connection.request_done()
        results = await done
    else:
        fetching = WideFetch(asked, pace)
        connection.park(slot, fetching.cancel)
        if reader.is_replica:
            connection.end_wait = fetching.hurry
        results = await fetching.results(connection.request_done)
        connection.request_done()
    if results is None or not connection.is_open:
        return
    if access is not None:
        results = _allowed_still(opened, results, by_id, access)
    answer = _Answer(services.broker.image, services.failures, opened)
    async for wanted, got in pace.over(zip(opened.wanted, results, strict=True)):
        answer.add(wanted, got)
    counted = services.quotas.active and not reader.is_replica
    throttle_ms = throttle_fetch(services.quotas, connection, header, results) if counted else 0
    answer.send(slot, header, throttle_ms)


def _asked(
    services: Services,
    targets: list[FetchTarget],
    request: wire.FetchRequest,
    reader: FetchReader,
    access: Access | None,
) -> LocalFetch:
    if request.where and not reader.is_replica:
        targets = [_filtered(services, target, request.where) for target in targets]
    wait_ms = request.max_wait_ms
    if access is not None and not reader.is_replica:
        wait_ms = min(wait_ms, MAX_GUARDED_WAIT_MS)
    return LocalFetch(targets, request.min_bytes, min(request.max_bytes, MAX_FETCH_BYTES), wait_ms, reader)


def _refused(wanted: SessionPartition, by_id: bool, access: Access) -> Got:
    """A44: by id, who may not even see it hears that there is no such id."""
    seen = not by_id or access.may(Operation.DESCRIBE, TOPIC, wanted.topic)
    return Got(ErrorKind.TOPIC_AUTHORIZATION_FAILED if seen else ErrorKind.UNKNOWN_TOPIC_ID)


def _allowed_still(opened: OpenedSession, results: list[Got], by_id: bool, access: Access) -> list[Got]:
    """A9: a right that was withdrawn while somebody waited gives them nothing that came after."""
    return [
        _refused(wanted, by_id, access)
        if got.error is ErrorKind.NONE and access.refuses(Operation.READ, TOPIC, wanted.topic)
        else got
        for wanted, got in zip(opened.wanted, results, strict=True)
    ]


def _reads_views(services: Services, asked: LocalFetch, request: wire.FetchRequest) -> bool:
    return bool(request.where or services.broker.image.has_views) and any(
        target.lens is not None for target in asked.targets
    )


def _wanted(services: Services, request: wire.FetchRequest, by_id: bool) -> list[SessionPartition]:
    wanted: list[SessionPartition] = []
    for topic in request.topics:
        name = topic.name
        if by_id:
            found = services.broker.image.topic_by_id(topic.topic_id)
            name = "" if found is None else found.name
        for part in topic.partitions:
            entry = SessionPartition(name, topic.topic_id, part.partition)
            entry.fetch_offset, entry.leader_epoch = part.fetch_offset, part.current_leader_epoch
            entry.last_fetched_epoch, entry.log_start_offset = part.last_fetched_epoch, part.log_start_offset
            entry.max_bytes = part.partition_max_bytes
            wanted.append(entry)
    return wanted


def _forgotten(request: wire.FetchRequest, by_id: bool) -> list[Key]:
    return [
        (topic.topic_id if by_id else topic.name, partition)
        for topic in request.forgotten_topics
        for partition in topic.partitions
    ]


def _target(
    services: Services,
    wanted: SessionPartition,
    by_id: bool,
    reader: FetchReader,
    replica_epoch: int,
    access: Access | None,
) -> FetchTarget:
    if by_id:
        topic = services.broker.image.topic_by_id(wanted.topic_id)
        if topic is None:
            return FetchTarget(wanted, None, Got(ErrorKind.UNKNOWN_TOPIC_ID))
        wanted.topic = topic.name
    if access is not None and access.refuses(Operation.READ, TOPIC, wanted.topic):
        return FetchTarget(wanted, None, _refused(wanted, by_id, access))
    partition, missing = services.broker.find_partition(wanted.topic, wanted.partition)
    if partition is None:
        if missing is ErrorKind.INVALID_TOPIC_EXCEPTION and not reader.is_replica:
            lens, missing = services.views.lens(wanted.topic, wanted.partition)
            if lens is not None:
                return FetchTarget(wanted, lens.partition, None, lens)
        return FetchTarget(wanted, None, Got(missing))
    if by_id and partition.topic_id != wanted.topic_id:
        # R34: the topic was made again, and what lies here under its name is not carried away yet.
        return FetchTarget(wanted, None, Got(ErrorKind.UNKNOWN_TOPIC_ID))
    if reader.is_replica:
        verdict = _heard_from_follower(partition, wanted, reader.replica_id, replica_epoch)
        named = partition.config.leader_replication_throttled_replicas
        if (
            named
            and reader.replica_id not in partition.isr
            and services.throttle.names(named, wanted.partition)
        ):
            return FetchTarget(wanted, partition, verdict, throttle=services.throttle)
        return FetchTarget(wanted, partition, verdict)
    if reader.rack and partition.is_leader:
        near = services.broker.near_replica(partition, reader.rack)
        if near >= 0:
            return FetchTarget(wanted, partition, _go_there(partition, near))
    return FetchTarget(wanted, partition)


def _filtered(services: Services, target: FetchTarget, where: str) -> FetchTarget:
    """A filter that came with the fetch (wire.fetch.WHERE_TAG). Who sends one filters again, so views may ignore it."""
    if target.partition is None or target.lens is not None:
        return target
    try:
        lens = services.views.passing_lens(target.partition, where)
    except FilterProblem:
        return FetchTarget(target.wanted, None, Got(ErrorKind.INVALID_REQUEST))
    return FetchTarget(target.wanted, target.partition, None, lens)


def _heard_from_follower(
    partition: Partition, wanted: SessionPartition, replica_id: int, replica_epoch: int
) -> Got | None:
    """A follower's fetch says what it holds; the leader machine decides what that means."""
    event = FollowerFetch(
        replica_id, replica_epoch, wanted.fetch_offset, wanted.last_fetched_epoch, wanted.leader_epoch
    )
    for effect in partition.tell_leader(event):
        if isinstance(effect, RefuseFetch):
            return Got(effect.kind)
        if isinstance(effect, Diverging):
            return Got(
                ErrorKind.NONE,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log.start_offset,
                diverging=(effect.epoch, effect.end_offset),
            )
    partition.low_watermark.heard(replica_id, wanted.log_start_offset)
    return None


def _go_there(partition: Partition, near: int) -> Got:
    partition.has_near_readers = True
    return Got(
        ErrorKind.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.start_offset,
        preferred_replica=near,
    )


class _Answer:
    """A response under construction, partition by partition."""

    def __init__(self, image: ClusterImage, failures: Failures, opened: OpenedSession) -> None:
        self._image = image
        self._failures = failures
        self._opened = opened
        self._topics: dict[str | bytes, FetchTopicResponse] = {}
        self._hints: list[LeaderIdAndEpoch] = []
        self._with_data: list[Key] = []
        self._is_lent = False

    def add(self, wanted: SessionPartition, got: Got) -> None:
        if got.data:
            self._with_data.append(wanted.key)
            self._is_lent = self._is_lent or isinstance(got.data, Stored)
        if got.error is not ErrorKind.NONE:
            self._failures.fetches += 1
        elif (
            self._opened.incremental
            and not got.data
            and got.preferred_replica < 0
            and not wanted.has_news(got)
        ):
            return
        wanted.told(got)
        hint = NO_LEADER
        if got.error is not ErrorKind.NONE:
            hint = hint_for(self._image, wanted.topic, wanted.partition, got.error)
            self._hints.append(hint)
        row = FetchPartitionResponse(
            wanted.partition,
            got.error.kafka_code,
            got.high_watermark,
            got.last_stable_offset,
            got.log_start_offset,
            None if got.aborted is None else [AbortedTransaction(pid, first) for pid, first in got.aborted],
            got.preferred_replica,
            got.data,
            None if got.diverging is None else EpochEndOffset(*got.diverging),
            hint,
        )
        topic_key = wanted.key[0]
        topic = self._topics.get(topic_key)
        if topic is None:
            topic = self._topics[topic_key] = FetchTopicResponse(wanted.topic, wanted.topic_id, [])
        topic.partitions.append(row)

    def send(self, slot: Slot, header: RequestHeader, throttle_ms: int) -> None:
        opened = self._opened
        if opened.session is not None:
            FetchSessions.answered(opened.session, self._with_data)
        endpoints = endpoints_for(self._image, self._hints) if self._hints else ()
        topics = list(self._topics.values())
        response = FetchResponse(topics, 0, opened.session_id, throttle_ms, endpoints)
        _send(slot, header, response, is_lent=self._is_lent)


def _send(slot: Slot, header: RequestHeader, response: FetchResponse, *, is_lent: bool = False) -> None:
    key, version, correlation_id, _ = header
    body = encode_fetch_response(response, version)
    slot.send(encode_response_frame(key, version, correlation_id, body), is_lent=is_lent)

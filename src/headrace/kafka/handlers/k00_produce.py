"""Door: Produce (0), the hot path: decodes over the connection's own buffer and appends before it returns.

v3-8 classic, v9 flexible, v8 per-record errors, v10 leader hints (KIP-951). acks=0 gets no response, and an error
there can only be shown by closing the connection. Versions 0-2 are advertised and not served: without them
librdkafka believes that the broker can't do compression. v12: the partition joins the transaction by itself (KIP-890).
v13: topics by id; a batch is never written to a topic that was made again under the same name (F37).
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.batch_opening import GLANCED_BYTES, SMALL_BYTES, Glance, OpenedBatch, is_small
from headrace.broker.pacing import Pace
from headrace.broker.partition import Partition
from headrace.broker.produce import TakenBatch, take
from headrace.broker.services import Services
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MAX_REQUEST_PARTITIONS, SLICE_ENTRIES, WIDE_REQUEST_PARTITIONS
from headrace.core.tuples import new_tuple
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.leader_hints import endpoints_for, hint_for
from headrace.kafka.throttle import throttle_produce
from headrace.kafka.txn_verification import (
    NOT_ASKED,
    TxnVerdict,
    Unverified,
    Verdicts,
    spoken_over,
    unverified_partitions,
    verify,
)
from headrace.records.batch import TRANSACTIONAL_BIT
from headrace.security.access import Access
from headrace.security.rights import TOPIC, TRANSACTIONAL_ID, Operation, needs, write
from headrace.transactions.versions import error_for_version
from headrace.wire.framing import RequestHeader, encode_response
from headrace.wire.leader_hint import NO_LEADER, LeaderIdAndEpoch
from headrace.wire.produce import (
    TOPIC_IDS,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
    RecordError,
    decode_produce_request,
    encode_produce_response,
)

_Uncommitted = tuple[Partition, int, str, list[ProducePartitionResponse], int]
"""acks=all: the partition, what must be committed there, and where its row of the answer is."""

_OpenedBatches = dict[int, OpenedBatch]
"""By the identity of what the client sent: nothing keeps a request from naming a partition twice."""

_UNCONFIRMED = "the transaction coordinator did not confirm it"
_NONE_DENIED: Verdicts = {}
_ATTRIBUTES = 22
"""Where the lower byte of a batch's attributes is."""
_DENIALS = (
    ErrorKind.TOPIC_AUTHORIZATION_FAILED,
    ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorKind.UNKNOWN_TOPIC_ID,
)

KEY = 0
VERSIONS = (3, 13)
RIGHTS = needs(
    write(TOPIC, "topics[].name", "topics[].topic_id"), write(TRANSACTIONAL_ID, "transactional_id")
)
MOST_ENTRIES = MAX_REQUEST_PARTITIONS
LOWEST_ADVERTISED = 0


def handle_frame(
    services: Services, connection: Connection, header: RequestHeader, frame: memoryview, position: int
) -> bool:
    """True: the request is being prepared (for the transaction coordinator, for a thread), and the connection waits."""
    request = decode_produce_request(frame, position, header.api_version, MOST_ENTRIES)
    if header.api_version >= TOPIC_IDS:
        request = _with_names(services, request)
    access = connection.session.access
    denied = _NONE_DENIED if access is None else _denied(access, request, header.api_version)
    unverified: list[Unverified] = []
    if request.transactional_id is not None and request.acks == -1 and not _is_all(denied, request):
        if spoken_over(services, request, header.api_version, connection.id):
            connection.close()
            return False
        unverified = unverified_partitions(services, request, header.api_version, connection.id)
        if denied:
            unverified = [entry for entry in unverified if entry.tp not in denied]
    opened = _glance(services, request, len(frame))
    if unverified or opened is None:
        # It may take a while, and the connection's buffer will be used again.
        kept = memoryview(bytearray(frame))
        request = decode_produce_request(kept, position, header.api_version)
        if header.api_version >= TOPIC_IDS:
            request = _with_names(services, request)
        work = _prepare_and_answer(services, connection, header, request, unverified, denied)
        services.broker.runtime.spawn(work, "prepare a produce")
        return True
    _append_and_answer(services, connection, None, header, request, denied, opened)
    return False


def _denied(access: Access, request: ProduceRequest, version: int) -> Verdicts:
    """What of it may not be written (A44); nothing of a transaction under a name that is somebody else's."""
    kind = ErrorKind.NONE
    if request.transactional_id is not None and access.refuses(
        Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id
    ):
        kind = ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.transactional_id is None and _is_of_transaction(request):
        # As in Kafka: who writes to a transaction says under which id, and has a right to it.
        kind = ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    found: Verdicts = {}
    for topic in request.topics:
        name, error = topic.name, kind
        if error is ErrorKind.NONE and name and access.refuses(Operation.WRITE, TOPIC, name):
            seen = version < TOPIC_IDS or access.may(Operation.DESCRIBE, TOPIC, name)
            error = ErrorKind.TOPIC_AUTHORIZATION_FAILED if seen else ErrorKind.UNKNOWN_TOPIC_ID
        if error is not ErrorKind.NONE:
            found.update({(name, entry[0]): TxnVerdict(error) for entry in topic.partitions})
    return found or _NONE_DENIED


def _is_all(denied: Verdicts, request: ProduceRequest) -> bool:
    """Who may write none of it speaks for no producer either: another's connection would be taken for an older one (R47)."""
    return bool(denied) and len(denied) >= sum(len(topic.partitions) for topic in request.topics)


def _is_of_transaction(request: ProduceRequest) -> bool:
    return any(
        isinstance(records, memoryview)
        and len(records) > _ATTRIBUTES
        and records[_ATTRIBUTES] & TRANSACTIONAL_BIT
        for topic in request.topics
        for _, records in topic.partitions
    )


def _with_names(services: Services, request: ProduceRequest) -> ProduceRequest:
    """A topic that is not known keeps its empty name, which no topic has. What lies under a name is compared with the id
    again when it is written to."""
    topics: list[ProduceTopic] = []
    for _, topic_id, partitions in request.topics:
        known = services.broker.image.topic_by_id(topic_id)
        topics.append(new_tuple(ProduceTopic, ("" if known is None else known.name, topic_id, partitions)))
    return request._replace(topics=topics)


def _is_wide(request: ProduceRequest) -> bool:
    """A3: so many partitions that they are appended in slices."""
    topics = request.topics
    if len(topics) == 1:
        return len(topics[0].partitions) > WIDE_REQUEST_PARTITIONS
    return sum(len(topic.partitions) for topic in topics) > WIDE_REQUEST_PARTITIONS


def _glance(services: Services, request: ProduceRequest, size: int) -> _OpenedBatches | None:
    """What is known of the larger batches at once; None: something has to be opened in a thread, or there is much of it."""
    opened: _OpenedBatches = {}
    if services.schemas.validating and _has_schemas(services, request):
        return None
    if size <= SMALL_BYTES and len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        # Nearly every small request there is.
        records = request.topics[0].partitions[0].records
        if not isinstance(records, memoryview) or is_small(records):
            return opened
    if _is_wide(request):
        return None
    glance: Glance | None = None
    for topic in request.topics:
        for index, records in topic.partitions:
            partition = services.broker.partitions.get((topic.name, index))
            if partition is None or not partition.looks_inside or not isinstance(records, memoryview):
                continue
            if is_small(records) and size <= GLANCED_BYTES:
                continue
            glance = Glance() if glance is None else glance
            found = glance.at(partition, records)
            if found is None:
                return None
            opened[id(records)] = found
    return opened


def _has_schemas(services: Services, request: ProduceRequest) -> bool:
    """Whether it writes to a topic that holds records against their schemas: what is not known here may be known elsewhere (F34), and
    that takes a moment."""
    for topic in request.topics:
        for index, _ in topic.partitions:
            partition = services.broker.partitions.get((topic.name, index))
            if partition is not None and partition.config.validates_schemas:
                return True
    return False


async def _open_with_schemas(services: Services, partition: Partition, records: memoryview) -> OpenedBatch:
    """A schema that another broker has just registered is asked for before anybody is refused (F34)."""
    schemas, opener = services.schemas, services.opener
    opened = await opener.open(records, partition.config, schemas.ids_for(partition))
    if opened.strangers and await services.latest.news():
        opened = await opener.open(records, partition.config, schemas.ids_for(partition))
    schemas.refused_batches += bool(opened.strangers)
    return opened


async def _prepare_and_answer(
    services: Services,
    connection: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    unverified: list[Unverified],
    denied: Verdicts,
) -> None:
    slot = None if request.acks == 0 else connection.open_slot()
    opened = await _open_batches(services, request)
    verdicts = denied
    if unverified:
        found = await verify(services, request.transactional_id or "", unverified, header.api_version)
        verdicts = {**found, **denied}
        if not connection.is_open or spoken_over(services, request, header.api_version, connection.id):
            # R47: the client gave this request up while the coordinator was asked, and may have moved on.
            connection.close()
            return
    if _is_wide(request):
        await _append_wide(services, connection, slot, header, request, verdicts, opened)
    else:
        # R25: from here to the last append nothing is awaited, so a marker can't come in between.
        _append_and_answer(services, connection, slot, header, request, verdicts, opened)
    connection.request_done()


async def _append_wide(
    services: Services,
    connection: Connection,
    slot: Slot | None,
    header: RequestHeader,
    request: ProduceRequest,
    verdicts: Verdicts,
    opened: _OpenedBatches,
) -> None:
    """A3: in slices. What may have changed while others had their turn is asked again: the partition holds a batch of a
    transaction against its ticket (R45), and here is seen whether the client has moved on (R47)."""
    throttle_ms = (
        throttle_produce(services.quotas, connection, header, request) if services.quotas.active else 0
    )
    topics: list[ProduceTopicResponse] = []
    uncommitted: list[_Uncommitted] = []
    pace = Pace(services.broker.runtime.clock)
    for name, topic_id, partitions in request.topics:
        rows: list[ProducePartitionResponse] = []
        topics.append(ProduceTopicResponse(name, topic_id, rows))
        for first in range(0, len(partitions), SLICE_ENTRIES):
            entries = partitions[first : first + SLICE_ENTRIES]
            topic: ProduceTopic = new_tuple(ProduceTopic, (name, topic_id, entries))
            _append(services, header, request.acks, topic, verdicts, opened, rows, uncommitted)
            await pace.step(len(entries))
            if request.transactional_id is not None and spoken_over(
                services, request, header.api_version, connection.id
            ):
                connection.close()
                return
    _answer(services, connection, slot, header, request, topics, uncommitted, throttle_ms)


async def _open_batches(services: Services, request: ProduceRequest) -> _OpenedBatches:
    opened: _OpenedBatches = {}
    left = GLANCED_BYTES
    for topic in request.topics:
        for index, records in topic.partitions:
            partition = services.broker.partitions.get((topic.name, index))
            if partition is None or not partition.looks_inside or not isinstance(records, memoryview):
                continue
            if partition.config.validates_schemas:
                opened[id(records)] = await _open_with_schemas(services, partition, records)
                continue
            if is_small(records) and len(records) <= left:
                left -= len(records)  # opened when it is taken
                continue
            opened[id(records)] = await services.opener.open(records, partition.config)
    return opened


def _append_and_answer(
    services: Services,
    connection: Connection,
    slot: Slot | None,
    header: RequestHeader,
    request: ProduceRequest,
    verdicts: Verdicts,
    opened: _OpenedBatches,
) -> None:
    """`slot`: the place of the answer, where the request had to wait and has one already."""
    throttle_ms = (
        throttle_produce(services.quotas, connection, header, request) if services.quotas.active else 0
    )
    topics: list[ProduceTopicResponse] = []
    uncommitted: list[_Uncommitted] = []
    for topic in request.topics:
        rows: list[ProducePartitionResponse] = []
        topics.append(new_tuple(ProduceTopicResponse, (topic[0], topic[1], rows)))
        _append(services, header, request.acks, topic, verdicts, opened, rows, uncommitted)
    _answer(services, connection, slot, header, request, topics, uncommitted, throttle_ms)


def _append(
    services: Services,
    header: RequestHeader,
    acks: int,
    topic: ProduceTopic,
    verdicts: Verdicts,
    opened: _OpenedBatches,
    rows: list[ProducePartitionResponse],
    uncommitted: list[_Uncommitted],
) -> None:
    """Batches of one topic; what became of them is added to `rows`, and what has to be waited for to `uncommitted`."""
    name, topic_id, partitions = topic
    for index, records in partitions:
        verdict = verdicts.get((name, index), NOT_ASKED) if verdicts else NOT_ASKED
        if verdict.error is ErrorKind.NONE:
            ready = opened.get(id(records)) if opened else None
            taken, partition = _take(
                services, name, topic_id, index, records, acks, header, verdict.ticket, ready
            )
        else:
            taken, partition = TakenBatch(verdict.error, message=_refusal(verdict.error)), None
        rows.append(_row(services.broker.image, name, index, taken, partition))
        if acks == -1 and partition is not None and taken.error is ErrorKind.NONE:
            uncommitted.append((partition, taken.commit_offset, name, rows, len(rows) - 1))


def _refusal(error: ErrorKind) -> str | None:
    return None if error in _DENIALS else _UNCONFIRMED


def _answer(
    services: Services,
    connection: Connection,
    slot: Slot | None,
    header: RequestHeader,
    request: ProduceRequest,
    topics: list[ProduceTopicResponse],
    uncommitted: list[_Uncommitted],
    throttle_ms: int,
) -> None:
    if request.acks == 0:
        if any(row.error_code for topic in topics for row in topic.partitions):
            connection.close()
        return
    if not uncommitted and slot is None:
        connection.answer(_encode(services.broker.image, header, topics, throttle_ms))
        return
    answer = _Answer(services.broker.image, slot or connection.open_slot(), header, topics, throttle_ms)
    if uncommitted:
        answer.wait_for(uncommitted, services.broker.runtime.clock.now_ms() + max(request.timeout_ms, 0))
    answer.part_done()


def _take(
    services: Services,
    topic: str,
    topic_id: bytes,
    index: int,
    records: object,
    acks: int,
    header: RequestHeader,
    ticket: int,
    opened: OpenedBatch | None,
) -> tuple[TakenBatch, Partition | None]:
    if acks not in (-1, 0, 1):
        return TakenBatch(ErrorKind.INVALID_REQUIRED_ACKS), None
    partition = services.broker.partitions.get((topic, index))
    if partition is None or partition.is_internal:
        refusal = services.views.write_refusal(topic)
        if refusal is not None:
            return TakenBatch(refusal.kind, message=refusal.detail), None
        partition, missing = services.broker.find_partition(topic, index)
        if partition is None:
            return TakenBatch(missing if topic else ErrorKind.UNKNOWN_TOPIC_ID), None
    if topic_id is not ZERO_UUID and partition.topic_id != topic_id:
        return TakenBatch(ErrorKind.UNKNOWN_TOPIC_ID), None
    if not isinstance(records, memoryview):
        return TakenBatch(ErrorKind.INVALID_RECORD, message="no batch at all"), None
    version = header.api_version
    wall_ms = services.broker.runtime.clock.wall_ms()
    taken = take(
        partition, records, acks=acks, version=version, wall_ms=wall_ms, ticket=ticket, opened=opened
    )
    if taken.error is not ErrorKind.NONE:
        services.failures.produces += 1
        taken = taken._replace(error=error_for_version(KEY, version, taken.error))
    elif not partition.is_internal:
        services.writers.note(topic, (header[3] or "", "kafka"), taken.commit_offset - taken.base_offset)
    return taken, partition


def _row(
    image: ClusterImage, topic: str, index: int, taken: TakenBatch, partition: Partition | None
) -> ProducePartitionResponse:
    start = -1 if partition is None else partition.log.start_offset
    if taken.error is ErrorKind.NONE:
        row: ProducePartitionResponse = new_tuple(
            ProducePartitionResponse,
            (index, 0, taken.base_offset, taken.log_append_time, start, (), None, NO_LEADER),
        )
        return row
    return ProducePartitionResponse(
        index,
        taken.error.kafka_code,
        log_start_offset=start,
        record_errors=[RecordError(number, reason) for number, reason in taken.record_errors],
        error_message=taken.message,
        current_leader=hint_for(image, topic, index, taken.error),
    )


def _encode(
    image: ClusterImage, header: RequestHeader, topics: list[ProduceTopicResponse], throttle_ms: int
) -> bytes:
    key, version, correlation_id, _ = header
    hints: list[LeaderIdAndEpoch] = []
    for _, _, rows in topics:
        for row in rows:
            if row.error_code:
                hints.append(row.current_leader)  # noqa: PERF401 (nearly always none, and a comprehension is a call)
    endpoints = endpoints_for(image, hints) if hints else ()
    body = encode_produce_response(new_tuple(ProduceResponse, (topics, throttle_ms, endpoints)), version)
    return encode_response(key, version, correlation_id, body)


class _Answer:
    """A response that leaves when the last of its partitions is settled."""

    __slots__ = ("_header", "_image", "_open", "_slot", "_throttle_ms", "_topics")

    def __init__(
        self,
        image: ClusterImage,
        slot: Slot,
        header: RequestHeader,
        topics: list[ProduceTopicResponse],
        throttle_ms: int,
    ) -> None:
        self._image = image
        self._slot = slot
        self._header = header
        self._topics = topics
        self._throttle_ms = throttle_ms
        self._open = 1

    def wait_for(self, uncommitted: list[_Uncommitted], deadline_ms: int) -> None:
        self._open += len(uncommitted)
        for partition, commit_offset, topic, rows, place in uncommitted:
            partition.when_committed(commit_offset, deadline_ms, self._settler(topic, rows, place))

    def _settler(
        self, topic: str, rows: list[ProducePartitionResponse], place: int
    ) -> Callable[[ErrorKind], None]:
        def settled(error: ErrorKind) -> None:
            if error is not ErrorKind.NONE:
                rows[place] = _row(self._image, topic, rows[place].partition, TakenBatch(error), None)
            self.part_done()

        return settled

    def part_done(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._slot.send((_encode(self._image, self._header, self._topics, self._throttle_ms),))

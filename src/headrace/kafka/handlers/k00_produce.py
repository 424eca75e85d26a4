"""Door: Produce (0), the hot path: decodes over the connection's own buffer and appends before it returns.

v3-8 classic, v9 flexible, v8 per-record errors, v10 leader hints (KIP-951). acks=0 gets no response, and an error
there can only be shown by closing the connection. Versions 0-2 are advertised and not served: without them
librdkafka believes that the broker can't do compression. v12: the partition joins the transaction by itself (KIP-890).
"""

from __future__ import annotations

from headrace.broker.broker import Broker
from headrace.broker.produce import Taken, take
from headrace.core.errors import ErrorKind
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.leader_hints import endpoints_for, hint_for
from headrace.kafka.throttle import throttle_produce
from headrace.kafka.txn_verification import (
    NOT_ASKED,
    Unverified,
    Verdicts,
    spoken_over,
    unverified_partitions,
    verify,
)
from headrace.transactions.versions import error_for_version
from headrace.wire.framing import RequestHeader, encode_response
from headrace.wire.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
    RecordError,
    decode_produce_request,
    encode_produce_response,
)

KEY = 0
VERSIONS = (3, 12)
LOWEST_ADVERTISED = 0


def handle_frame(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview, position: int
) -> bool:
    """True: the request waits for the transaction coordinator, and the connection for the request."""
    request = decode_produce_request(frame, position, header.api_version)
    if request.transactional_id is not None and request.acks == -1:
        if spoken_over(broker, request, header.api_version, connection.id):
            connection.close()
            return False
        unverified = unverified_partitions(broker, request)
        if unverified:
            # The coordinator may take a while, and the connection's buffer will be used again.
            kept = memoryview(bytearray(frame))
            request = decode_produce_request(kept, position, header.api_version)
            work = _verify_and_answer(broker, connection, connection.open_slot(), header, request, unverified)
            broker.runtime.spawn(work, "verify a transaction")
            return True
    if request.acks == 0:
        if broker.quotas.active:
            throttle_produce(broker, connection, header, request)
        if not _fire_and_forget(broker, request, header.api_version):
            connection.close()
        return False
    _append_and_answer(broker, connection.open_slot(), header, request, {})
    return False


async def _verify_and_answer(
    broker: Broker,
    connection: Connection,
    slot: Slot,
    header: RequestHeader,
    request: ProduceRequest,
    unverified: list[Unverified],
) -> None:
    verdicts = await verify(broker, request.transactional_id or "", unverified, header.api_version)
    if not connection.is_open or spoken_over(broker, request, header.api_version, connection.id):
        # R47: the client gave this request up while the coordinator was asked, and may have moved on.
        connection.close()
        return
    # R25: from here to the last append nothing is awaited, so a marker can't come in between.
    _append_and_answer(broker, slot, header, request, verdicts)
    connection.request_done()


def _append_and_answer(
    broker: Broker, slot: Slot, header: RequestHeader, request: ProduceRequest, verdicts: Verdicts
) -> None:
    answer = _Answer(broker, slot, header)
    if broker.quotas.active:
        answer.throttle_ms = throttle_produce(broker, slot.connection, header, request)
    deadline_ms = broker.runtime.clock.now_ms() + max(request.timeout_ms, 0)
    for topic in request.topics:
        rows: list[ProducePartitionResponse] = []
        answer.topics.append(ProduceTopicResponse(topic.name, topic.topic_id, rows))
        for index, records in topic.partitions:
            verdict = verdicts.get((topic.name, index), NOT_ASKED)
            if verdict.error is not ErrorKind.NONE:
                taken, start = (
                    Taken(verdict.error, message="the transaction coordinator did not confirm it"),
                    -1,
                )
            else:
                taken, start = _take(
                    broker, topic.name, index, records, request, header.api_version, verdict.ticket
                )
            rows.append(_row(broker, topic.name, index, taken, start))
            if request.acks == -1 and taken.error is ErrorKind.NONE:
                answer.wait_for(topic.name, rows, len(rows) - 1, taken.commit_offset, deadline_ms)
    answer.part_done()


def _take(
    broker: Broker,
    topic: str,
    index: int,
    records: object,
    request: ProduceRequest,
    version: int,
    ticket: int = 0,
) -> tuple[Taken, int]:
    if request.acks not in (-1, 0, 1):
        return Taken(ErrorKind.INVALID_REQUIRED_ACKS), -1
    refusal = broker.produce_refusal(topic)
    if refusal is not None:
        return Taken(refusal.kind, message=refusal.detail), -1
    partition, missing = broker.find_partition(topic, index)
    if partition is None:
        return Taken(missing), -1
    if not isinstance(records, memoryview):
        return Taken(ErrorKind.INVALID_RECORD, message="no batch at all"), -1
    wall_ms = broker.runtime.clock.wall_ms()
    taken = take(partition, records, acks=request.acks, version=version, wall_ms=wall_ms, ticket=ticket)
    if taken.error is not ErrorKind.NONE:
        broker.failed_produces += 1
        taken = taken._replace(error=error_for_version(KEY, version, taken.error))
    return taken, partition.log.start_offset


def _row(broker: Broker, topic: str, index: int, taken: Taken, log_start: int) -> ProducePartitionResponse:
    if taken.error is ErrorKind.NONE:
        return ProducePartitionResponse(index, 0, taken.base_offset, taken.log_append_time, log_start)
    return ProducePartitionResponse(
        index,
        taken.error.kafka_code,
        log_start_offset=log_start,
        record_errors=[RecordError(number, "the record has no key") for number in taken.keyless],
        error_message=taken.message,
        current_leader=hint_for(broker, topic, index, taken.error),
    )


def _fire_and_forget(broker: Broker, request: ProduceRequest, version: int) -> bool:
    fine = True
    for topic in request.topics:
        for index, records in topic.partitions:
            taken, _ = _take(broker, topic.name, index, records, request, version)
            fine = fine and taken.error is ErrorKind.NONE
    return fine


class _Answer:
    """A response that leaves when the last of its partitions is settled."""

    __slots__ = ("_broker", "_header", "_open", "_slot", "throttle_ms", "topics")

    def __init__(self, broker: Broker, slot: Slot, header: RequestHeader) -> None:
        self.topics: list[ProduceTopicResponse] = []
        self._broker = broker
        self._slot = slot
        self._header = header
        self._open = 1
        self.throttle_ms = 0

    def wait_for(
        self,
        topic: str,
        rows: list[ProducePartitionResponse],
        place: int,
        commit_offset: int,
        deadline_ms: int,
    ) -> None:
        partition, _ = self._broker.find_partition(topic, rows[place].partition)
        assert partition is not None

        def settled(error: ErrorKind) -> None:
            if error is not ErrorKind.NONE:
                rows[place] = _row(self._broker, topic, rows[place].partition, Taken(error), -1)
            self.part_done()

        self._open += 1
        partition.when_committed(commit_offset, deadline_ms, settled)

    def part_done(self) -> None:
        self._open -= 1
        if self._open == 0:
            key, version, correlation_id, _ = self._header
            hints = [
                row.current_leader for topic in self.topics for row in topic.partitions if row.error_code
            ]
            response = ProduceResponse(
                self.topics, self.throttle_ms, endpoints_for(self._broker, hints) if hints else ()
            )
            body = encode_produce_response(response, version)
            self._slot.send((encode_response(key, version, correlation_id, body),))

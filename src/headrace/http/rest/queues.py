"""Door: queues over REST: send, receive with long poll, ack, nack, reject, extend, peek, the state of one message.

POST   /queues/{queue}/messages                       raw body or JSON
POST   /queues/{queue}/batch                          {"records": [...]}, up to a thousand
GET    /queues/{queue}/messages?peek&max=10           looks and changes nothing
POST   /queues/{queue}/receive?wait=20s&max=10        receive; or GET …/messages with the header x-headrace-client (A6)
DELETE /queues/{queue}/messages/{receipt}             ack
POST   /queues/{queue}/messages/{receipt}/nack        give back, ?delay=5s
POST   /queues/{queue}/messages/{receipt}/reject      to the dead letters at once, ?detail=why
POST   /queues/{queue}/messages/{receipt}/extend      ?visibility=60s
GET    /queues/{queue}/messages/{message id}/status
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage, Sent
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.core.ports import Clock
from headrace.core.writers import Writers
from headrace.http.browsers import need_program
from headrace.http.contract import DURATION, FLAG, Contract, Param
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.receiving import receive_allowed
from headrace.http.rest.forms.messages import (
    CLIENT,
    IDEMPOTENCY,
    MAX_DETAIL,
    RAW_QUERY,
    RECEIPT_PROBLEMS,
    RECEIVE_QUERY,
    TRACE_HEADERS,
    Messages,
    MessageStatus,
    NewRecord,
    NewRecords,
    ReceivedMessage,
    SentMessage,
    SentMessages,
)
from headrace.http.rest.idempotency import Once
from headrace.http.rest.masking import masks_for, seen
from headrace.http.rest.reading import (
    answer,
    invalid,
    json_object,
    number,
    query_duration_ms,
    record_from_json,
    record_from_request,
    traced,
)
from headrace.queues.commands import Source
from headrace.queues.config import QueueConfig, standard_queue
from headrace.queues.receipt import QueueReceipt, decode_receipt, encode_receipt
from headrace.records.build import Record
from headrace.records.shown import shown_record
from headrace.security.rights import CLUSTER, GROUP, TOPIC, create, describe, needs, read, write

MAX_WAIT_MS = 60_000
MAX_MESSAGES = 1_000
MAX_BODY_BYTES = 2 * MIB


class QueueDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        new_uuid: Callable[[], str],
        queues: Queues,
        catalog: QueueCatalog,
        auto_creation: AutoCreation,
        receipt_key: bytes,
        once: Once,
        writers: Writers,
    ) -> None:
        self._clock = clock
        self._image = image
        self._new_uuid = new_uuid
        self._queues = queues
        self._catalog = catalog
        self._auto_creation = auto_creation
        self._key = receipt_key
        self._once = once
        self._writers = writers

    # -- sending -----------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/queues/{queue}/messages",
        needs(write(TOPIC, "topics of {queue}")).making(create(CLUSTER), create(TOPIC)),
        Contract(
            "Send a message",
            "queues",
            {201: SentMessage},
            "JSON is a record; any other body is the value. A priority or a ttl that the queue "
            "does not keep is refused. A queue that is not there is made where topics are made on first use.",
            query=RAW_QUERY,
            headers=(IDEMPOTENCY, *TRACE_HEADERS),
            body=(NewRecord,),
            raw_body=True,
        ),
        max_body_bytes=MAX_BODY_BYTES,
        any_body=True,
    )
    async def _send(self, request: Request) -> Answer:
        wall_ms = self._clock.wall_ms()
        if request.header(b"content-type").startswith("application/json"):
            record = record_from_json(json_object(request), wall_ms)
        else:
            record = record_from_request(request, wall_ms)
        (record,) = traced(request, [record])
        spec = await self._spec_for(request, [record])
        sent = await self._send_one(spec, record, request.header(b"idempotency-key"))
        self._writers.note(spec.topics[0], (request.agent, "REST"), 1)
        return answer(sent, 201)

    @route(
        "POST",
        "/queues/{queue}/batch",
        needs(write(TOPIC, "topics of {queue}")).making(create(CLUSTER), create(TOPIC)),
        Contract(
            "Send many messages",
            "queues",
            {201: SentMessages},
            "When one of them is refused, others may have been sent.",
            headers=TRACE_HEADERS,
            body=(NewRecords,),
        ),
        max_body_bytes=MAX_BODY_BYTES,
    )
    async def _send_many(self, request: Request) -> Answer:
        records = traced(request, _records(json_object(request), self._clock.wall_ms()))
        spec = await self._spec_for(request, records)
        if spec.queue_config.fifo:  # in order, whatever each has to wait for
            sent = [await self._send_one(spec, record, "") for record in records]
        else:
            found = _all_sent(await self._queues.send_all(spec, records))
            sent = [SentMessage(**one._asdict()) for one in found]
        self._writers.note(spec.topics[0], (request.agent, "REST"), len(sent))
        return answer(SentMessages(items=sent), 201)

    async def _spec_for(self, request: Request, records: Sequence[Record]) -> QueueSpec:
        spec = await self._spec(request.params["queue"], creator=request.peer.host, records=records)
        for record in records:
            need_kept(spec, record)
        return spec

    async def _send_one(self, spec: QueueSpec, record: Record, dedup: str) -> SentMessage:
        topic = spec.topics[0]
        config = spec.queue_config
        group = names.header(record.headers, names.GROUP)
        key = group.decode(errors="replace") if config.fifo and group is not None else None
        queues = self._queues
        if dedup and config.dedup_window_ms:
            record = record._replace(headers=(*record.headers, (names.DEDUP_ID, dedup.encode())))
            sent = await queues.send(spec, record, key, dedup.encode())
        elif dedup:
            place = TopicPartition(topic, self._once.partition(topic, dedup))
            sent = await self._once.send(place, record, dedup)
        else:
            sent = await queues.send(spec, record, key)
        return SentMessage(**sent._asdict())

    async def _spec(
        self, name: str, *, creator: str | None = None, records: Sequence[Record] = ()
    ) -> QueueSpec:
        """In a server that creates topics on first use, queues come the same way, with what the first messages ask for.

        `creator`: the address for whose sake it may be made.
        """
        spec = self._queues.find(name)
        if spec is not None:
            return spec
        if creator is None or not self._auto_creation.is_allowed:
            raise Unknown(
                ErrorKind.NOT_FOUND, f'there is no queue called "{name}"', "POST /api/v1/queues makes one."
            )
        self._auto_creation.demand(creator, self._clock.now_ms())
        now_ms = self._clock.wall_ms()
        fresh = QueueSpec(
            name=name, id=self._new_uuid(), topics=(name,), created_ms=now_ms, changed_ms=now_ms
        )
        try:
            return await self._catalog.create(with_config(fresh, _first_config(records)))
        except HeadraceError as problem:
            if problem.kind is not ErrorKind.QUEUE_ALREADY_EXISTS:
                raise
            return self._catalog.spec(name)

    # -- receiving ---------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/queues/{queue}/messages",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        Contract(
            "Look at messages",
            "queues",
            {200: Messages},
            "`peek` looks and changes nothing. Without it this receives, as POST …/receive does, and needs `X-Headrace-Client`: a "
            "plain GET may come from any web page.",
            query=(*RECEIVE_QUERY, Param("peek", "look only", FLAG)),
            headers=(CLIENT,),
            problems=(400, 403, 404),
        ),
    )
    async def _look_or_receive(self, request: Request) -> Answer:
        if "peek" not in request.query:
            need_program(request.headers, request.method, f"POST /queues/{request.params['queue']}/receive")
            return await self._receive(request)
        spec = await self._spec(request.params["queue"])
        count = number(request, "max", 1, 1, MAX_MESSAGES)
        found = await self._queues.peek(spec, count)
        masks = masks_for(request, self._image)
        return answer(
            Messages(
                items=[self._peeked(source, seen(masks, source.topic, record)) for source, record in found]
            )
        )

    @route(
        "POST",
        "/queues/{queue}/receive",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        Contract(
            "Receive messages",
            "queues",
            {200: Messages},
            "A long poll with `wait`. Each message has a receipt, which DELETE acknowledges.",
            query=RECEIVE_QUERY,
            problems=(400, 404),
        ),
    )
    async def _receive(self, request: Request) -> Answer:
        spec = await self._spec(request.params["queue"])
        count = number(request, "max", 1, 1, MAX_MESSAGES)
        visibility = query_duration_ms(request, "visibility", -1, 2**53)
        deliveries = await receive_allowed(
            self._queues,
            spec,
            request.access,
            count,
            visibility_ms=None if visibility < 0 else visibility,
            wait_ms=query_duration_ms(request, "wait", 0, MAX_WAIT_MS),
        )
        return answer(Messages(items=[received(spec, delivery, self._key) for delivery in deliveries]))

    def _peeked(self, source: Source, record: Record) -> ReceivedMessage:
        topic = self._image.topic(source.topic)
        topic_id = topic.id if topic is not None else b""
        message_id = names.message_id_of(record, topic_id, source.partition)
        return ReceivedMessage(**shown_record(source.topic, source.partition, record), message_id=message_id)

    # -- receipts ------------------------------------------------------------------------------------------------------------

    async def _receipt(self, request: Request) -> tuple[Source, QueueReceipt]:
        spec = await self._spec(request.params["queue"])
        receipt = decode_receipt(request.params["receipt"], spec.id, self._key)
        if isinstance(receipt, Rejected):
            raise HeadraceError(receipt.kind, receipt.detail)
        return Source(spec.name, receipt.topic, receipt.partition), receipt

    @route(
        "DELETE",
        "/queues/{queue}/messages/{receipt}",
        needs(read(GROUP, "{queue}")),
        Contract("Acknowledge a message", "queues", {204: None}, problems=RECEIPT_PROBLEMS),
    )
    async def _ack(self, request: Request) -> Answer:
        source, receipt = await self._receipt(request)
        (refusal,) = await self._queues.ack(source, [receipt.handle])
        return _settled(refusal)

    @route(
        "POST",
        "/queues/{queue}/messages/{receipt}/nack",
        needs(read(GROUP, "{queue}")),
        Contract(
            "Give a message back",
            "queues",
            {204: None},
            query=(Param("delay", "not before so long; else by the queue's back-off", DURATION),),
            problems=RECEIPT_PROBLEMS,
        ),
    )
    async def _nack(self, request: Request) -> Answer:
        source, receipt = await self._receipt(request)
        delay = query_duration_ms(request, "delay", -1, 2**53)
        (refusal,) = await self._queues.release(source, [receipt.handle], None if delay < 0 else delay)
        return _settled(refusal)

    @route(
        "POST",
        "/queues/{queue}/messages/{receipt}/reject",
        needs(read(GROUP, "{queue}")),
        Contract(
            "Send a message to the dead letters",
            "queues",
            {204: None},
            "Whatever its count; without a dead-letter queue it is dropped.",
            query=(
                Param(
                    "detail", "why; it stands in the dead letter", {"type": "string", "maxLength": MAX_DETAIL}
                ),
            ),
            problems=RECEIPT_PROBLEMS,
        ),
    )
    async def _reject(self, request: Request) -> Answer:
        source, receipt = await self._receipt(request)
        detail = request.query.get("detail", "")
        if len(detail) > MAX_DETAIL:
            raise invalid(f"detail has at most {MAX_DETAIL} characters")
        (refusal,) = await self._queues.reject(source, [receipt.handle], detail)
        return _settled(refusal)

    @route(
        "POST",
        "/queues/{queue}/messages/{receipt}/extend",
        needs(read(GROUP, "{queue}")),
        Contract(
            "Keep a message longer",
            "queues",
            {204: None},
            query=(Param("visibility", "from now on", DURATION, required=True),),
            problems=RECEIPT_PROBLEMS,
        ),
    )
    async def _extend(self, request: Request) -> Answer:
        source, receipt = await self._receipt(request)
        visibility = query_duration_ms(request, "visibility", -1, 2**53)
        if visibility < 0:
            raise invalid("say for how long: ?visibility=60s")
        (refusal,) = await self._queues.extend(source, [receipt.handle], visibility)
        return _settled(refusal)

    @route(
        "GET",
        "/queues/{queue}/messages/{receipt}/status",
        needs(describe(GROUP, "{queue}")),
        Contract(
            "What became of a message",
            "queues",
            {200: MessageStatus},
            "The path has the message id, not a receipt.",
        ),
    )
    async def _status(self, request: Request) -> Answer:
        spec = await self._spec(request.params["queue"])
        message_id = names.decode_message_id(request.params["receipt"])
        if message_id is not None:
            for name in spec.topics:
                topic = self._image.topic(name)
                if topic is not None and topic.id[:6] == message_id.topic_id:
                    source = Source(spec.name, name, message_id.partition)
                    status = await self._queues.inspect(source, message_id.offset)
                    shown = MessageStatus(state=status.state.name.lower(), deliveries=status.deliveries)
                    return answer(shown)
        raise HeadraceError(ErrorKind.NOT_FOUND, "this queue has no message with that id")


def _first_config(records: Sequence[Record]) -> QueueConfig:
    return standard_queue(
        priorities=any(names.header(record.headers, names.PRIORITY) is not None for record in records),
        ttl=any(names.header(record.headers, names.TTL_MS) is not None for record in records),
    )


def need_kept(spec: QueueSpec, record: Record) -> None:
    """What a message asks for and its queue does not keep is refused, and not forgotten in silence (F80)."""
    config = spec.queue_config
    for header, kept, what, setting in (
        (names.PRIORITY, config.priorities, "priorities", "priorities"),
        (names.TTL_MS, config.ttl, "times to live", "ttl"),
    ):
        if not kept and names.header(record.headers, header) is not None:
            raise invalid(
                f'the queue "{spec.name}" keeps no {what}',
                f'PATCH /api/v1/queues/{spec.name} with {{"{setting}": true}} lets it.',
            )


def _records(body: Mapping[str, object], wall_ms: int) -> list[Record]:
    given = body.get("records")
    if len(body) > 1 or not isinstance(given, list) or not 0 < len(given) <= MAX_MESSAGES:
        raise invalid(f"records is a list of 1 to {MAX_MESSAGES} records, and nothing is beside it")
    return [record_from_json(entry, wall_ms) for entry in given]


def _all_sent(found: list[Sent | HeadraceError]) -> list[Sent]:
    sent = [one for one in found if isinstance(one, Sent)]
    for one in found:
        if isinstance(one, HeadraceError):
            # When some are written, nobody asks for all of them once more.
            raise HeadraceError(one.kind, one.detail) if sent else one
    return sent


def received(spec: QueueSpec, delivery: DeliveredMessage, key: bytes) -> ReceivedMessage:
    source = delivery.source
    receipt = QueueReceipt(source.topic, source.partition, delivery.handle)
    return ReceivedMessage(
        **shown_record(source.topic, source.partition, delivery.record),
        message_id=delivery.message_id,
        receipt=encode_receipt(receipt, spec.id, key),
        delivery=delivery.handle.delivery,
    )


def _settled(refusal: Rejected | None) -> Response:
    if refusal is not None:
        raise HeadraceError(refusal.kind, refusal.detail)
    return Response(b"", 204, "")

"""Door: the records of topics over REST: publish, browse by offset or time, tail. Any broker answers for any partition (C6).

POST /topics/{topic}/records      raw body, or JSON {"records": […]} with content-type application/json
GET  /topics/{topic}/records      ?partition=&offset=&from=&cursor=&limit=&where=
                                  Accept: application/jsonl for lines, text/event-stream to tail
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import repeat
from urllib.parse import quote

import msgspec

from headrace.broker.auto_creation import AutoCreation
from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.topic_admin import TopicAdmin
from headrace.broker.views.views import Views
from headrace.cluster.rows import Topic
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition, is_internal, java_string_hash, topic_name_problem
from headrace.core.limits import MIB
from headrace.core.ports import Clock
from headrace.core.writers import Writers
from headrace.http.declared import Door, route
from headrace.http.forwarding import Forwarder
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.filtering import as_input, filter_of
from headrace.http.rest.forms.messages import PUBLISH, READ, Published, PublishedRecords, Records, ShownRecord
from headrace.http.rest.idempotency import Once
from headrace.http.rest.reading import (
    answer,
    invalid,
    json_object,
    number,
    record_from_json,
    record_from_request,
    time_ms,
    traced,
)
from headrace.http.rest.records import OffsetBounds, RecordReader
from headrace.http.sse import encode_event, event_stream
from headrace.records.build import Record
from headrace.records.filters import Filter
from headrace.records.positions import Anchor, Position, parse_position, since
from headrace.records.shown import shown_record
from headrace.security.rights import CLUSTER, TOPIC, create, needs, read, write

MAX_RECORDS = 1_000
MAX_BODY_BYTES = 16 * MIB
MAX_SCANNED_CHUNKS = 64
"""A browse with a filter looks at so many pieces of log per request and then says where to go on."""
JSONL = "application/jsonl"
SERVED_S = 3.0

Positions = dict[TopicPartition, int]


class TopicDoor(Door):
    def __init__(
        self,
        clock: Clock,
        metadata: Metadata,
        partitions: dict[tuple[str, int], Partition],
        topics: TopicAdmin,
        views: Views,
        placement: Placement,
        auto_creation: AutoCreation,
        reader: RecordReader,
        forwarder: Forwarder,
        once: Once,
        writers: Writers,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._image = metadata.image
        self._partitions = partitions
        self._topics = topics
        self._views = views
        self._placement = placement
        self._auto_creation = auto_creation
        self._reader = reader
        self._forwarder = forwarder
        self._once = once
        self._writers = writers
        self._seen_served: set[bytes] = set()

    # -- publishing ----------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/topics/{topic}/records",
        needs(write(TOPIC, "{topic}")).making(create(CLUSTER), create(TOPIC)),
        PUBLISH,
        max_body_bytes=MAX_BODY_BYTES,
        any_body=True,
    )
    @route(
        "POST",
        "/topics/{topic}/messages",
        needs(write(TOPIC, "{topic}")).making(create(CLUSTER), create(TOPIC)),
        PUBLISH,
        max_body_bytes=MAX_BODY_BYTES,
        any_body=True,
    )
    async def _publish(self, request: Request) -> Answer:
        topic = request.params["topic"]
        chosen = number(request, "partition", -1, -1, 1_000_000)
        wall_ms = self._clock.wall_ms()
        if request.header(b"content-type").startswith("application/json"):
            body = json_object(request)
            entries = body.get("records", [body])
            if not isinstance(entries, list) or not 0 < len(entries) <= MAX_RECORDS:
                raise invalid(f"records is a list of 1 to {MAX_RECORDS} records")
            records = [record_from_json(entry, wall_ms) for entry in entries]
        else:
            records = [record_from_request(request, wall_ms)]
        records = traced(request, records)
        await self._ensure(topic, request.peer.host)
        key = request.header(b"idempotency-key")
        sent = await asyncio.gather(
            *(
                self._send(
                    request, topic, record, chosen, key and (key if len(records) == 1 else f"{key}/{place}")
                )
                for place, record in enumerate(records)
            )
        )
        if request.sender is None:
            self._writers.note(topic, (request.agent, "REST"), len(sent))
        return answer(PublishedRecords(topic=topic, records=sent), 201)

    async def _send(self, asker: Request, topic: str, record: Record, chosen: int, key: str) -> Published:
        number_ = self._partition(topic, record, chosen, key)
        if not key:
            sent = await self._placement.send_to_partition(topic, number_, record)
            return Published(**sent._asdict())
        try:
            sent = await self._once.send(TopicPartition(topic, number_), record, key)
            return Published(**sent._asdict())
        except WrongBroker as wrong:
            if asker.sender is not None:
                raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER, wrong.detail) from None
            return await self._send_there(topic, number_, record, key, wrong)

    async def _send_there(
        self, topic: str, number_: int, record: Record, key: str, wrong: WrongBroker
    ) -> Published:
        """The leader knows which keys it has seen, so it is asked to publish the record itself."""
        shown = shown_record(topic, number_, record)
        # The number under the plain name: brokers of every version read it so.
        asked = {"key": shown["key"], "value": shown["value"], "headers": shown["headers"]}
        body = msgspec.json.encode({**asked, "timestamp": record.timestamp})
        headers = {b"content-type": b"application/json", b"idempotency-key": key.encode("latin-1", "replace")}
        path = f"/topics/{quote(topic, safe='')}/records"
        request = Request("POST", path, query_string=f"partition={number_}", headers=headers, body=body)
        response = await self._forwarder.forward(request, wrong)
        if response.status != 201:
            raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER, f"{topic}-{number_} can't be written now")
        return msgspec.json.decode(response.body, type=PublishedRecords).records[0]

    async def _ensure(self, topic: str, address: str) -> None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise HeadraceError(ErrorKind.INVALID_TOPIC_EXCEPTION, problem)
        if is_internal(topic):
            raise HeadraceError(ErrorKind.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        refusal = self._views.write_refusal(topic)
        if refusal is not None:
            raise HeadraceError(refusal.kind, refusal.detail)
        if self._image.topic(topic) is None:
            if not self._auto_creation.is_allowed:
                raise Unknown(
                    ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
                    f'there is no topic called "{topic}"',
                    "POST /api/v1/topics makes one.",
                )
            self._auto_creation.demand(address, self._clock.now_ms())
            await self._topics.auto_create(topic)
        await self._served(topic)

    async def _served(self, topic: str) -> None:
        """Whoever comes second to a topic that is just being made waits for it, too."""
        try:
            await self._metadata.wait_until(lambda: self._is_served(self._image.topic(topic)), SERVED_S)
        except HeadraceError:
            pass  # what it is written to says what is missing

    def _is_served(self, known: Topic | None) -> bool:
        if known is None or known.id in self._seen_served:
            return known is not None
        for number_, state in enumerate(known.partitions):
            if state is None or state.leader < 0:
                return False
            if state.leader == self._image.broker_id:
                partition = self._partitions.get((known.name, number_))
                if partition is None or not partition.is_leader:
                    return False
        self._seen_served.add(known.id)
        return True

    def _partition(self, topic: str, record: Record, chosen: int, key: str) -> int:
        known = self._image.topic(topic)
        count = len(known.partitions) if known is not None else 1
        if chosen >= 0:
            if chosen >= count:
                raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions")
            return chosen
        if record.key is not None:
            return (java_string_hash(record.key.decode("latin-1")) & 0x7FFFFFFF) % count
        if key:
            return self._once.partition(topic, key)
        return self._placement.choose_partition(topic, None)

    # -- browsing ------------------------------------------------------------------------------------------------------

    @route("GET", "/topics/{topic}/records", needs(read(TOPIC, "{topic}")), READ)
    @route("GET", "/topics/{topic}/messages", needs(read(TOPIC, "{topic}")), READ)
    async def _read(self, request: Request) -> Answer:
        topic = request.params["topic"]
        numbers = self._reader.partitions(topic, number(request, "partition", -1, -1, 1_000_000))
        accepts = filter_of(request)
        places = [TopicPartition(topic, each) for each in numbers]
        if "text/event-stream" in request.header(b"accept"):
            seen = request.header(b"last-event-id") or request.query.get("cursor", "")
            positions = await self._positions(request, places, seen, "end")
            return event_stream(self._tail(self._reader.seen_by(request), positions, accepts))
        limit = number(request, "limit", 100, 1, MAX_RECORDS)
        positions = await self._positions(request, places, request.query.get("cursor", ""), "start")
        rows = await self._browse(self._reader.seen_by(request), positions, accepts, limit)
        cursor = _encode_positions(positions)
        if JSONL in request.header(b"accept"):
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            return Response(lines, 200, JSONL, (("x-next-cursor", cursor),))
        following = positions[places[0]] if len(places) == 1 else None
        return answer(Records(items=rows, next_offset=following, next_cursor=cursor))

    async def _browse(
        self, reader: RecordReader, positions: Positions, accepts: Filter | None, limit: int
    ) -> list[ShownRecord]:
        """Moves the positions along."""
        rows: list[ShownRecord] = []
        chunks = 0
        for tp, position in positions.items():
            while len(rows) < limit and chunks < MAX_SCANNED_CHUNKS:
                wanted = limit - len(rows) if accepts is None else MAX_RECORDS
                chunk = await reader.read(tp, position, wanted)
                chunks += 1
                for record in chunk.records:
                    if len(rows) >= limit:
                        break
                    positions[tp] = record.offset + 1
                    if accepts is None or accepts.matches(as_input(tp, record)):
                        rows.append(ShownRecord(**shown_record(tp.topic, tp.partition, record)))
                else:
                    positions[tp] = chunk.next_offset
                if positions[tp] == position or len(rows) >= limit:
                    break
                position = positions[tp]
                await asyncio.sleep(0)  # others have their turn, however much there is to look at
        return rows

    async def _positions(
        self, request: Request, places: list[TopicPartition], cursor: str, default: str
    ) -> Positions:
        bounds = await asyncio.gather(*(self._reader.bounds(tp) for tp in places))
        if cursor:
            known = _decode_positions(cursor)
            return {
                tp: min(max(known.get(tp.partition, start), start), end)
                for tp, (start, end) in zip(places, bounds, strict=True)
            }
        when = request.query.get("from")
        if when is not None:
            to = since(time_ms(when, "from"))
        else:
            to = _place(request.query.get("offset", default), self._clock.wall_ms())
        found = await asyncio.gather(*map(self._start, places, repeat(to), bounds))
        return dict(zip(places, found, strict=True))

    async def _start(self, tp: TopicPartition, to: Position, bounds: OffsetBounds) -> int:
        if to.anchor is Anchor.OFFSET and not bounds.start <= to.value <= bounds.end:
            raise HeadraceError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                f"offsets go from {bounds.start} to {bounds.end}",
                "offset=start and offset=end are always there.",
            )
        at_time = await self._reader.offset_for_time(tp, to.value) if to.anchor is Anchor.SINCE else None
        return to.offset(bounds.start, bounds.end, at_time=at_time)

    async def _tail(
        self, reader: RecordReader, positions: Positions, accepts: Filter | None
    ) -> AsyncIterator[bytes]:
        """Server-sent events, one per record, for as long as the client listens. The id of an event is where all
        partitions stand, so that a browser that connects again (Last-Event-ID) goes on where it was."""
        while True:
            quiet = True
            for tp in list(positions):
                chunk = await reader.read(tp, positions[tp], MAX_RECORDS)
                for record in chunk.records:
                    quiet = False
                    positions[tp] = record.offset + 1
                    if accepts is None or accepts.matches(as_input(tp, record)):
                        row = shown_record(tp.topic, tp.partition, record)
                        event_id = _encode_positions(positions)
                        yield encode_event(msgspec.json.encode(row).decode(), event_id=event_id)
                positions[tp] = max(positions[tp], chunk.next_offset)
                await asyncio.sleep(0)
            if quiet:
                await self._reader.wait(positions)


def _place(text: str, wall_ms: int) -> Position:
    try:
        return parse_position(text, wall_ms)
    except ValueError as problem:
        raise invalid(f"offset: {problem}") from None


def _encode_positions(positions: Positions) -> str:
    return ",".join(f"{tp.partition}:{offset}" for tp, offset in positions.items())


def _decode_positions(text: str) -> dict[int, int]:
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*+", text):
        raise invalid("the cursor is not one of ours")
    pairs = [pair.split(":") for pair in text.split(",")]
    return {int(partition): int(offset) for partition, offset in pairs}

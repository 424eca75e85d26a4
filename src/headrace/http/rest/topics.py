"""Door: topics over REST: publish, browse by offset or time, tail.

POST /topics/{topic}/records      raw body, or JSON {"records": […]} with content-type application/json
GET  /topics/{topic}/records      ?partition=&offset=&from=&limit=&where=   (Accept: text/event-stream tails)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import java_string_hash
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.http.messages import Answer, Request
from headrace.http.rest.reading import (
    answer,
    invalid,
    json_object,
    number,
    record_from_json,
    record_from_request,
    shown_record,
    time_ms,
)
from headrace.http.router import Router
from headrace.http.sse import encode_event, event_stream
from headrace.records.batch import scan
from headrace.records.build import Record
from headrace.records.filters import Filter, FilterInput, FilterProblem, compile_filter
from headrace.records.read import read_records

MAX_RECORDS = 1_000
MAX_BODY_BYTES = 16 * MIB
READ_BYTES = MIB


class TopicDoor:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def mount(self, router: Router) -> None:
        for path in ("/topics/{topic}/records", "/topics/{topic}/messages"):
            router.add("POST", path, self._publish, max_body_bytes=MAX_BODY_BYTES)
            router.add("GET", path, self._read)

    # -- publishing --------------------------------------------------------------------------------------------------------

    async def _publish(self, request: Request) -> Answer:
        topic = request.params["topic"]
        await self._ensure(topic)
        wall_ms = self._broker.runtime.clock.wall_ms()
        if request.header(b"content-type").startswith("application/json"):
            body = json_object(request)
            entries = body.get("records", [body])
            if not isinstance(entries, list) or not 0 < len(entries) <= MAX_RECORDS:
                raise invalid(f"records is a list of 1 to {MAX_RECORDS} records")
            records = [record_from_json(entry, wall_ms) for entry in entries]
        else:
            records = [record_from_request(request, wall_ms)]
        chosen = number(request, "partition", -1, -1, 1_000_000)
        sent = await asyncio.gather(
            *(
                self._broker.queues.send(topic, self._partition(topic, record, chosen), record)
                for record in records
            )
        )
        rows = [
            {"partition": row.partition, "offset": row.offset, "message_id": row.message_id} for row in sent
        ]
        return answer({"topic": topic, "records": rows}, 201)

    async def _ensure(self, topic: str) -> None:
        refusal = self._broker.produce_refusal(topic)
        if refusal is not None:
            raise HeadraceError(refusal.kind, refusal.detail)
        if self._broker.image.topic(topic) is None:
            if not self._broker.auto_create_topics:
                raise HeadraceError(
                    ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"'
                )
            await self._broker.topics.auto_create(topic)

    def _partition(self, topic: str, record: Record, chosen: int) -> int:
        known = self._broker.image.topic(topic)
        count = len(known.partitions) if known is not None else 1
        if chosen >= 0:
            if chosen >= count:
                raise HeadraceError(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions")
            return chosen
        if record.key is not None:
            return (java_string_hash(record.key.decode("latin-1")) & 0x7FFFFFFF) % count
        return self._broker.queues.choose_partition(topic, None)

    # -- reading -----------------------------------------------------------------------------------------------------------

    async def _read(self, request: Request) -> Answer:
        topic = request.params["topic"]
        partitions = self._partitions(topic, number(request, "partition", -1, -1, 1_000_000))
        accepts = self._filter(request, topic)
        if "text/event-stream" in request.header(b"accept"):
            return event_stream(
                self._tail(partitions, accepts, from_end=request.query.get("offset") != "start")
            )
        limit = number(request, "limit", 100, 1, MAX_RECORDS)
        rows: list[dict[str, Any]] = []
        for partition in partitions:
            start = self._start(request, partition)
            found = read_from(partition, start, limit - len(rows), accepts)
            rows += [shown_record(topic, partition.tp.partition, record) for record in found]
            if len(rows) >= limit:
                break
        next_offset = rows[-1]["offset"] + 1 if rows and len(partitions) == 1 else None
        return answer({"items": rows, "next_offset": next_offset})

    def _partitions(self, topic: str, chosen: int) -> list[Partition]:
        known = self._broker.image.topic(topic)
        if known is None:
            raise HeadraceError(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"')
        numbers = range(len(known.partitions)) if chosen < 0 else [chosen]
        found: list[Partition] = []
        for each in numbers:
            partition, missing = self._broker.find_readable(topic, each)
            if partition is None:
                raise HeadraceError(missing, f"{topic}-{each} is not on this broker")
            found.append(partition)
        return found

    def _start(self, request: Request, partition: Partition) -> int:
        log = partition.log
        when = request.query.get("from")
        if when is not None:
            found = log.offset_for_time(time_ms(when, "from"), partition.high_watermark)
            return partition.high_watermark if found is None else found.offset
        text = request.query.get("offset", "start")
        if text == "start":
            return log.start_offset
        if text == "end":
            return partition.high_watermark
        if text.startswith("-") and text[1:].isdigit():
            return max(log.start_offset, partition.high_watermark - int(text[1:]))
        if not text.isdigit():
            raise invalid("offset is a number, start, end, or -N for the last N")
        if not log.start_offset <= int(text) <= partition.high_watermark:
            raise HeadraceError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                f"offsets go from {log.start_offset} to {partition.high_watermark}",
            )
        return int(text)

    def _filter(self, request: Request, topic: str) -> Filter | None:
        expression, view = request.query.get("where"), self._broker.image.view(topic)
        if expression is None:
            return None if view is None else view.filter
        if view is not None:
            expression = f"({view.where}) and ({expression})"
        try:
            return compile_filter(expression)
        except FilterProblem as problem:
            raise HeadraceError(ErrorKind.INVALID_FILTER, problem.detail, problem.pointed()) from None

    async def _tail(
        self, partitions: list[Partition], accepts: Filter | None, *, from_end: bool
    ) -> AsyncIterator[bytes]:
        """Server-sent events, one per record, for as long as the client listens."""
        positions = {
            partition: partition.high_watermark if from_end else partition.log.start_offset
            for partition in partitions
        }
        while True:
            woken = asyncio.Event()
            waiter = _Waiter(woken)
            for partition in partitions:
                partition.fetch_waiters[waiter] = None
            try:
                for partition in partitions:
                    for record in read_from(partition, positions[partition], MAX_RECORDS, None):
                        positions[partition] = record.offset + 1
                        if accepts is None or accepts.matches(as_input(partition, record)):
                            row = shown_record(partition.tp.topic, partition.tp.partition, record)
                            event_id = f"{partition.tp.partition}:{record.offset}"
                            yield encode_event(msgspec.json.encode(row).decode(), event_id=event_id)
                if all(positions[partition] >= partition.high_watermark for partition in partitions):
                    await woken.wait()
            finally:
                for partition in partitions:
                    partition.fetch_waiters.pop(waiter, None)


class _Waiter:
    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken

    def wake(self) -> None:
        self._woken.set()


def as_input(partition: Partition, record: Record) -> FilterInput:
    tp = partition.tp
    return FilterInput(
        record.key, record.value, record.headers, record.timestamp, record.offset, tp.topic, tp.partition
    )


def read_from(partition: Partition, offset: int, limit: int, accepts: Filter | None) -> list[Record]:
    """Up to `limit` committed records from `offset` on that the filter takes."""
    found: list[Record] = []
    position, end = max(offset, partition.log.start_offset), partition.last_stable_offset
    while position < end and len(found) < limit:
        data = partition.read(position, READ_BYTES, end)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        if not data:
            break
        for at, header in scan(data):
            if not header.is_control:
                for record in read_records(data, at):
                    if record.offset < position or len(found) >= limit:
                        continue
                    if accepts is None or accepts.matches(as_input(partition, record)):
                        found.append(record)
            position = header.next_offset
    return found

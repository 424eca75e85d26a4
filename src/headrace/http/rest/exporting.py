"""Door: all of it, as a file: the messages of a topic or of a queue, with the same filter as on the screen, as a stream.

GET /topics/{topic}/export              ?format=jsonl|csv&from=&until=&contains=&where=&partition=
GET /api/v1/queues/{queue}/export       ?format=jsonl|csv&contains=&where=    what a receive could hand out; nothing is taken

What is there when it begins is exported, and what comes later is not. A chunk is read when the client has taken the one before it, so
an export of any size costs the broker one chunk of memory. What is downloaded is never a page of ours: attachment, sandbox (W20).
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.queues import Queues
from headrace.cluster.image import ClusterImage
from headrace.core.ids import TopicPartition
from headrace.core.moments import rfc3339
from headrace.core.ports import Clock
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, StreamingResponse
from headrace.http.rest.filtering import RecordFilter, wanted_records
from headrace.http.rest.forms.looking import EXPORT, PARTITION, SPAN, WANTED
from headrace.http.rest.looking import MatchedRecord, Range, SearchStep, places_of, ranges_of
from headrace.http.rest.masking import masks_for, seen
from headrace.http.rest.reading import invalid, queue_of
from headrace.http.rest.records import RecordReader
from headrace.records.shown import shown_headers, shown_record
from headrace.security.rights import GROUP, TOPIC, needs, read

CHUNK = 500
EVERYTHING = 1 << 62
COLUMNS = ("topic", "partition", "offset", "time", "key", "value", "headers")
_FORMULA = re.compile(r"[=+\-@\x00-\x1f]")
_encode = msgspec.json.Encoder().encode

Rows = AsyncIterator[Iterable[MatchedRecord]]
Encode = Callable[[Iterable[MatchedRecord]], bytes]


class ExportDoor(Door):
    def __init__(
        self, clock: Clock, image: ClusterImage, reader: RecordReader, queues: Queues, catalog: QueueCatalog
    ) -> None:
        self._clock = clock
        self._image = image
        self._reader = reader
        self._queues = queues
        self._catalog = catalog

    @route(
        "GET",
        "/topics/{topic}/export",
        needs(read(TOPIC, "{topic}")),
        Contract(
            "All messages of a topic as a file",
            "topics",
            {200: str},
            "Those that are there when it begins; a stream, so of any size.",
            query=(EXPORT, *SPAN, *WANTED, PARTITION),
            content_type="application/octet-stream",
        ),
    )
    async def _topic(self, request: Request) -> Answer:
        wanted = wanted_records(request)
        ranges = await ranges_of(self._reader, request, places_of(self._reader, request))
        return _file(
            request, request.params["topic"], self._found(self._reader.seen_by(request), ranges, wanted)
        )

    async def _found(
        self, reader: RecordReader, ranges: dict[TopicPartition, Range], wanted: RecordFilter | None
    ) -> Rows:
        while any(one.high > one.low for one in ranges.values()):
            step = SearchStep(self._clock, reader, wanted, CHUNK, newest=False)
            yield await step.run(ranges)
            if step.left == ranges:
                return  # nothing more can be read there now
            ranges = step.left

    @route(
        "GET",
        "/api/v1/queues/{queue}/export",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        Contract(
            "All messages of a queue as a file",
            "queues",
            {200: str},
            "What a receive could hand out. Nothing is taken.",
            query=(EXPORT, *WANTED),
            content_type="application/octet-stream",
        ),
    )
    async def _queue(self, request: Request) -> Answer:
        spec = queue_of(request, self._catalog.find)
        wanted = wanted_records(request)
        masks = masks_for(request, self._image)

        async def rows() -> Rows:
            async for some in self._queues.walk(spec, EVERYTHING):
                found = [
                    MatchedRecord(
                        TopicPartition(source.topic, source.partition), seen(masks, source.topic, one)
                    )
                    for source, one in some
                ]
                yield [one for one in found if wanted is None or wanted.matches(*one)]

        return _file(request, spec.name, rows())


def _file(request: Request, name: str, rows: Rows) -> Answer:
    kind = request.query.get("format", "jsonl")
    if kind not in ("jsonl", "csv"):
        raise invalid("format is jsonl or csv")
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).strip(".") or "messages"
    return StreamingResponse(
        _encoded(rows, _as_csv if kind == "csv" else _as_lines, _csv([COLUMNS]) if kind == "csv" else b""),
        content_type="application/octet-stream",
        headers=(
            ("content-disposition", f'attachment; filename="{safe}.{kind}"'),
            ("content-security-policy", "sandbox"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
        ),
    )


async def _encoded(rows: Rows, encode: Encode, head: bytes) -> AsyncIterator[bytes]:
    if head:
        yield head
    async for some in rows:
        if data := encode(some):
            yield data


def _as_lines(rows: Iterable[MatchedRecord]) -> bytes:
    return b"".join(_encode(shown_record(tp.topic, tp.partition, record)) + b"\n" for tp, record in rows)


def _as_csv(rows: Iterable[MatchedRecord]) -> bytes:
    return _csv(
        (
            tp.topic,
            tp.partition,
            record.offset,
            rfc3339(record.timestamp),
            _cell(record.key),
            _cell(record.value),
            _encode(shown_headers(record.headers)).decode(),
        )
        for tp, record in rows
    )


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()


def _cell(data: bytes | None) -> str:
    """Text, or base64 that says so. What a spreadsheet would take for a formula gets a quote in front (W21)."""
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(data).decode()}"
    return f"'{text}" if _FORMULA.match(text) else text

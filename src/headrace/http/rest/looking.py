"""Door: the messages of a topic as a person looks for them: newest first, by time, by a word or a filter, one of them closely.

GET /topics/{topic}/search                          ?order=newest|oldest&from=&until=&contains=&where=&partition=&limit=&cursor=
GET /topics/{topic}/tail                            ?partition=&contains=&where=&rate=50   server-sent: what comes, at most so many a second, the others counted
GET /topics/{topic}/histogram                       ?from=&until=&buckets=&partition=   how many when
GET /topics/{topic}/records/{partition}/{offset}    one record, with the batch that it came in
GET /api/v1/topics/{topic}/readers                  who reads it, and how far behind

Nothing here changes anything (W2). A search takes a step within a budget and then says where to go on: who wants more asks again, who
has enough does not, and there is nothing to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from heapq import merge
from typing import NamedTuple

import msgspec

from headrace.broker.history import Sampler
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, Unknown
from headrace.core.ids import TopicPartition
from headrace.core.limits import MIB
from headrace.core.ports import Clock
from headrace.core.units import is_digits
from headrace.http.contract import Contract, Param, one_of, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.filtering import RecordFilter, Wanted, wanted_records
from headrace.http.rest.forms.looking import (
    PARTITION,
    SPAN,
    WANTED,
    FoundRecord,
    FoundRecords,
    Histogram,
    OneRecord,
    Readers,
    ShownBatch,
    TopicReader,
)
from headrace.http.rest.reading import answer, invalid, number, time_ms
from headrace.http.rest.records import RecordReader
from headrace.http.sse import encode_event, event_stream
from headrace.http.whole import Whole
from headrace.records.build import Record
from headrace.records.shown import shown_record
from headrace.security.rights import GROUP, TOPIC, describe, needs, read

MAX_PAGE = 500
STEP_MS = 2_000
STEP_BYTES = 64 * MIB
WINDOW = 500
"""Records looked at in one go with a filter."""
MAX_BUCKETS = 300
MAX_TAIL = 500
TAIL_S = 1.0
MAX_LOOKUPS = 3_000
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class Range(NamedTuple):
    """What is left to look at of one partition: from `low` up to and without `high`."""

    low: int
    high: int


class MatchedRecord(NamedTuple):
    tp: TopicPartition
    record: Record


class LookDoor(Door):
    def __init__(
        self, clock: Clock, image: ClusterImage, reader: RecordReader, sampler: Sampler, whole: Whole
    ) -> None:
        self._clock = clock
        self._image = image
        self._reader = reader
        self._sampler = sampler
        self._whole = whole

    # -- searching -----------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/topics/{topic}/search",
        needs(read(TOPIC, "{topic}")),
        Contract(
            "Look for messages",
            "topics",
            {200: FoundRecords},
            "A step within a budget of time and bytes; `next_cursor` goes on. Changes nothing.",
            query=(
                Param("order", "which come first", one_of("newest", "oldest")),
                *SPAN,
                *WANTED,
                PARTITION,
                Param("limit", "at most so many", whole(1, 500, 50)),
                Param("cursor", "next_cursor of the step before"),
            ),
        ),
    )
    async def _search(self, request: Request) -> Answer:
        places = places_of(self._reader, request)
        order = request.query.get("order", "newest")
        if order not in ("newest", "oldest"):
            raise invalid("order is newest or oldest")
        limit = number(request, "limit", 50, 1, MAX_PAGE)
        wanted = wanted_records(request)
        cursor = request.query.get("cursor")
        if cursor is None:
            ranges = await ranges_of(self._reader, request, places)
        else:
            ranges = decode_ranges(cursor, places)
        step = SearchStep(self._clock, self._reader.seen_by(request), wanted, limit, newest=order == "newest")
        rows = await step.run(ranges)
        left = sum(one.high - one.low for one in step.left.values())
        return answer(
            FoundRecords(
                items=[_shown(tp, record) for tp, record in rows],
                looked_at=step.looked_at,
                looked_bytes=step.looked_bytes,
                left=left,
                next_cursor=encode_ranges(step.left) if left else None,
            )
        )

    # -- as they come --------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/topics/{topic}/tail",
        needs(read(TOPIC, "{topic}")),
        Contract(
            "Messages as they come",
            "topics",
            {200: str},
            "Server-sent events `records`, once a second: at most `rate` items, and how many were left out.",
            query=(PARTITION, *WANTED, Param("rate", "so many a second at most", whole(1, 500, 50))),
            content_type="text/event-stream",
        ),
    )
    async def _tail(self, request: Request) -> Answer:
        places = places_of(self._reader, request)
        rate = number(request, "rate", 50, 1, MAX_TAIL)
        wanted = wanted_records(request)
        bounds = await asyncio.gather(*(self._reader.bounds(tp) for tp in places))
        positions = {tp: end for tp, (_, end) in zip(places, bounds, strict=True)}
        return event_stream(self._news(self._reader.seen_by(request), positions, wanted, rate))

    async def _news(
        self,
        reader: RecordReader,
        positions: dict[TopicPartition, int],
        wanted: RecordFilter | None,
        rate: int,
    ) -> AsyncIterator[bytes]:
        """Once a second what has come: the newest of each partition up to its share, and how many were left out. Those are counted by
        their offsets and never read, so a busy topic costs no more than a quiet one."""
        yield encode_event("{}", event="begin")
        while True:
            items: list[FoundRecord] = []
            skipped = 0
            share = max(1, rate // len(positions))
            for tp, position in positions.items():
                end = (await self._reader.bounds(tp)).end
                begin = max(position, end - share) if wanted is None else max(position, end - WINDOW)
                skipped += begin - position
                items += [
                    _shown(tp, record)
                    for record in await self._between(reader, tp, begin, end)
                    if wanted is None or wanted.matches(tp, record)
                ]
                positions[tp] = max(position, end)
            if items or skipped:
                items.sort(key=lambda row: (row.timestamp_ms, row.partition, row.offset))
                kept = items[-rate:]
                document = {"items": kept, "skipped": skipped + len(items) - len(kept)}
                yield encode_event(msgspec.json.encode(document).decode(), event="records")
            await asyncio.sleep(TAIL_S)

    async def _between(self, reader: RecordReader, tp: TopicPartition, begin: int, end: int) -> list[Record]:
        found: list[Record] = []
        position = begin
        while position < end:
            chunk = await reader.read(tp, position, end - position)
            found += [record for record in chunk.records if record.offset < end]
            if chunk.next_offset <= position:
                break
            position = chunk.next_offset
        return found

    # -- how many when -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/topics/{topic}/histogram",
        needs(read(TOPIC, "{topic}")),
        Contract(
            "How many messages when",
            "topics",
            {200: Histogram},
            query=(*SPAN, PARTITION, Param("buckets", "steps of time", whole(1, 300, 120))),
        ),
    )
    async def _histogram(self, request: Request) -> Answer:
        places = places_of(self._reader, request)
        buckets = number(request, "buckets", 120, 1, MAX_BUCKETS)
        buckets = max(1, min(buckets, MAX_LOOKUPS // max(1, len(places))))
        ranges = {
            tp: one
            for tp, one in (await ranges_of(self._reader, request, places)).items()
            if one.high > one.low
        }
        query = request.query
        ends = await self._ends(ranges)
        first_ms = time_ms(query["from"], "from") if "from" in query else min((a for a, _ in ends), default=0)
        until_ms = (
            time_ms(query["until"], "until") if "until" in query else max((b for _, b in ends), default=0) + 1
        )
        width_ms = max(1, -(-(until_ms - first_ms) // buckets))
        counts = [0] * buckets
        for tp, one in ranges.items():
            await self._count(tp, one, first_ms, width_ms, counts)
        total = sum(one.high - one.low for one in ranges.values())
        return answer(Histogram(from_ms=first_ms, step_ms=width_ms, counts=counts, total=total))

    async def _ends(self, ranges: dict[TopicPartition, Range]) -> list[tuple[int, int]]:
        """The times of the first and of the last record of each."""
        found = []
        for tp, one in ranges.items():
            first = await self._reader.read(tp, one.low, 1)
            last = await self._last(tp, one)
            if first.records and last is not None:
                found.append((first.records[0].timestamp, max(last.timestamp, first.records[0].timestamp)))
        return found

    async def _last(self, tp: TopicPartition, one: Range) -> Record | None:
        """Markers and compacted records leave holes at the end as elsewhere."""
        back = 1
        while True:
            low = max(one.low, one.high - back)
            chunk = await self._reader.read(tp, low, back)
            if chunk.records or low == one.low:
                return chunk.records[-1] if chunk.records else None
            back *= 8

    async def _count(
        self, tp: TopicPartition, one: Range, first_ms: int, width_ms: int, counts: list[int]
    ) -> None:
        """From the index of times: halves that hold nothing are not looked into."""
        spans = [(0, len(counts), one.low, one.high)]
        while spans:
            left, right, low, high = spans.pop()
            if low >= high:
                continue
            if right - left == 1:
                counts[left] += high - low
                continue
            middle = (left + right) // 2
            offset = await self._reader.offset_for_time(tp, first_ms + middle * width_ms)
            at = high if offset is None else min(max(offset, low), high)
            spans.append((left, middle, low, at))
            spans.append((middle, right, at, high))
            await asyncio.sleep(0)

    # -- one of them ---------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/topics/{topic}/records/{partition}/{offset}",
        needs(read(TOPIC, "{topic}")),
        Contract("One record and the batch it came in", "topics", {200: OneRecord}),
    )
    async def _one(self, request: Request) -> Answer:
        topic = request.params["topic"]
        partition, offset = _whole(request, "partition"), _whole(request, "offset")
        (place,) = self._reader.partitions(topic, partition)
        tp = TopicPartition(topic, place)
        found = await self._reader.seen_by(request).inspect(tp, offset)
        if found is None:
            raise Unknown(
                ErrorKind.NOT_FOUND,
                f"there is no record at {tp}@{offset}",
                "It may be compacted away, a marker of a transaction, below the start, or not written yet.",
            )
        record, batch = found
        return answer(
            OneRecord(
                **shown_record(topic, place, record),
                size=_size(record),
                batch=ShownBatch(
                    base_offset=batch.base_offset,
                    records=batch.record_count,
                    bytes=batch.size,
                    codec=CODECS.get(batch.codec, str(batch.codec)),
                    producer_id=batch.producer_id if batch.producer_id >= 0 else None,
                    producer_epoch=batch.producer_epoch if batch.producer_id >= 0 else None,
                    transactional=batch.is_transactional,
                    log_append_time=batch.is_log_append_time,
                    leader_epoch=batch.leader_epoch,
                ),
            )
        )

    @route(
        "GET",
        "/api/v1/topics/{topic}/readers",
        needs(describe(TOPIC, "{topic}")).showing(describe(GROUP)),
        Contract(
            "Who reads a topic, and how far behind",
            "topics",
            {200: Readers},
        ),
    )
    async def _readers(self, request: Request) -> Answer:
        """Groups, queues and subscriptions over the topic, and views of it."""
        topic = request.params["topic"]
        self._reader.partitions(topic)
        lately = await self._whole.look()
        rows = [
            TopicReader(
                kind="group",
                name=name,
                lag=group.topics[topic].lag,
                members=group.members,
                out_per_s=group.topics[topic].out_per_s,
            )
            for name, group in lately.groups.items()
            if topic in group.topics
        ]
        rows += [
            TopicReader(
                kind=spec.kind,
                name=spec.name,
                lag=queue.ready + queue.in_flight,
                members=None,
                out_per_s=queue.done_per_s,
            )
            for spec in self._sampler.queues.specs()
            if topic in spec.topics and (queue := lately.queues.get(spec.name)) is not None
        ]
        rows += [
            TopicReader(kind="view", name=other.name, lag=None, members=None, out_per_s=None)
            for other in self._image.topics.values()
            if other.view is not None and other.view.source == topic
        ]
        seen = [row for row in rows if request.sees(TOPIC if row.kind == "view" else GROUP, row.name)]
        seen.sort(key=lambda row: (row.kind, row.name))
        return answer(Readers(items=seen, next_cursor=None))


def places_of(reader: RecordReader, request: Request) -> list[TopicPartition]:
    """The partitions that a request asks about."""
    topic = request.params["topic"]
    chosen = number(request, "partition", -1, -1, 1_000_000)
    return [TopicPartition(topic, each) for each in reader.partitions(topic, chosen)]


async def ranges_of(
    reader: RecordReader, request: Request, places: list[TopicPartition]
) -> dict[TopicPartition, Range]:
    query = request.query
    first = time_ms(query["from"], "from") if "from" in query else None
    until = time_ms(query["until"], "until") if "until" in query else None
    found = await asyncio.gather(*(_range(reader, tp, first, until) for tp in places))
    return dict(zip(places, found, strict=True))


async def _range(
    reader: RecordReader, tp: TopicPartition, first_ms: int | None, until_ms: int | None
) -> Range:
    """By the broker's own lookup of times, which is exact."""
    low, high = await reader.bounds(tp)
    if first_ms is not None:
        offset = await reader.offset_for_time(tp, first_ms)
        low = high if offset is None else max(low, offset)
    if until_ms is not None:
        offset = await reader.offset_for_time(tp, until_ms)
        high = high if offset is None else min(high, offset)
    return Range(low, max(low, high))


class SearchStep:
    """One step of a search: windows of each partition in turn, until there are enough, or the budget is spent."""

    def __init__(
        self, clock: Clock, reader: RecordReader, wanted: Wanted | None, limit: int, *, newest: bool
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._wanted = wanted
        self._limit = limit
        self._newest = newest
        self.looked_at = self.looked_bytes = 0
        self.left: dict[TopicPartition, Range] = {}

    async def run(self, ranges: dict[TopicPartition, Range]) -> list[MatchedRecord]:
        deadline_ms = self._clock.now_ms() + STEP_MS
        self.left = dict(ranges)
        found: list[MatchedRecord] = []
        while len(found) < self._limit:
            open_ = [tp for tp, one in self.left.items() if one.high > one.low]
            spent = self.looked_bytes >= STEP_BYTES or self._clock.now_ms() >= deadline_ms
            if not open_ or (spent and self.looked_at):
                break
            for tp in open_:
                found += await self._window(tp)
        return self._page(found)

    async def _window(self, tp: TopicPartition) -> list[MatchedRecord]:
        """Looks at some more of a partition, and takes it off what is left."""
        low, high = self.left[tp]
        width = self._limit if self._wanted is None else WINDOW
        if self._newest:
            begin, end = max(low, high - width), high
            self.left[tp] = Range(low, begin)
        else:
            begin, end = low, min(high, low + width)
            self.left[tp] = Range(end, high)
        found = []
        position = begin
        while position < end:
            chunk = await self._reader.read(tp, position, end - position)
            for record in chunk.records:
                if record.offset >= end:
                    break
                self.looked_at += 1
                self.looked_bytes += _size(record)
                if self._wanted is None or self._wanted.matches(tp, record):
                    found.append(MatchedRecord(tp, record))
            if chunk.next_offset <= position:
                break  # nothing more can be read there now
            position = chunk.next_offset
            await asyncio.sleep(0)
        return found

    def _page(self, found: list[MatchedRecord]) -> list[MatchedRecord]:
        """As many as were asked for. Within a partition the order is that of offsets, whatever its records say the time is; between
        partitions the newer (or older) goes first. What does not fit is given back, to be found by the next step."""
        by_place: dict[TopicPartition, list[MatchedRecord]] = {}
        for one in found:
            by_place.setdefault(one.tp, []).append(one)
        for rows in by_place.values():
            rows.sort(key=lambda one: one.record.offset, reverse=self._newest)
        merged = list(merge(*by_place.values(), key=lambda one: one.record.timestamp, reverse=self._newest))
        for tp, record in merged[self._limit :]:
            low, high = self.left[tp]
            if self._newest:
                self.left[tp] = Range(low, max(high, record.offset + 1))
            else:
                self.left[tp] = Range(min(low, record.offset), high)
        return merged[: self._limit]


def _shown(tp: TopicPartition, record: Record) -> FoundRecord:
    return FoundRecord(**shown_record(tp.topic, tp.partition, record), size=_size(record))


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


def _whole(request: Request, name: str) -> int:
    text = request.params[name]
    if not is_digits(text) or len(text) > 18:
        raise invalid(f"{name} is a number, not {text!r}")
    return int(text)


def encode_ranges(ranges: dict[TopicPartition, Range]) -> str:
    return ",".join(f"{tp.partition}:{one.low}:{one.high}" for tp, one in ranges.items())


def decode_ranges(text: str, places: list[TopicPartition]) -> dict[TopicPartition, Range]:
    known: dict[int, Range] = {}
    for part in text.split(","):
        numbers = part.split(":")
        if len(numbers) != 3 or not all(is_digits(one) and len(one) <= 18 for one in numbers):
            raise invalid("the cursor is not one of ours")
        partition, low, high = map(int, numbers)
        known[partition] = Range(low, max(low, high))
    return {tp: known.get(tp.partition, Range(0, 0)) for tp in places}

"""Door: what became of a message, who writes a topic, and what waits for what in a FIFO queue (5.1, 5.5).

GET /topics/{topic}/records/{partition}/{offset}/readers   each group and queue over the topic: has it read it, has it done it
GET /api/v1/topics/{topic}/writers                          client ids of the last five minutes
GET /api/v1/queues/{queue}/groups                           message groups of a FIFO queue, the blocked ones first

Each broker answers for what it coordinates and hosts; the one that was asked asks the others. Looking changes nothing (W2).
"""

from __future__ import annotations

from headrace.broker.history import Sampler
from headrace.core.ids import TopicPartition
from headrace.core.ports import Clock
from headrace.core.units import is_digits
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.looking import (
    MessageGroups,
    ShownMessageGroup,
    Trace,
    Traces,
    Writer,
    WriterList,
)
from headrace.http.rest.reading import answer, invalid, number, queue_of
from headrace.http.rest.records import RecordReader
from headrace.http.whole import Whole
from headrace.queues.commands import MessageState
from headrace.security.rights import GROUP, TOPIC, describe, needs, read

MAX_GROUPS = 500
STATES = {
    MessageState.UNKNOWN: "not-yet",
    MessageState.AVAILABLE: "ready",
    MessageState.ACQUIRED: "locked",
    MessageState.SCHEDULED: "waiting",
    MessageState.RESTING: "waiting",
    MessageState.DYING: "dying",
    MessageState.DONE: "done",
}


class TraceDoor(Door):
    def __init__(self, clock: Clock, reader: RecordReader, sampler: Sampler, whole: Whole) -> None:
        self._clock = clock
        self._reader = reader
        self._sampler = sampler
        self._whole = whole

    # -- one message ---------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/topics/{topic}/records/{partition}/{offset}/readers",
        needs(read(TOPIC, "{topic}")).showing(describe(GROUP)),
        Contract(
            "What became of a message",
            "topics",
            {200: Traces},
            "Of each group and queue over the topic: whether it has read it, or done it.",
        ),
    )
    async def _trace(self, request: Request) -> Answer:
        topic = request.params["topic"]
        numbers = [request.params[name] for name in ("partition", "offset")]
        if not all(is_digits(text) and len(text) <= 18 for text in numbers):
            raise invalid("partition and offset are numbers")
        (partition,) = self._reader.partitions(topic, int(numbers[0]))
        offset = int(numbers[1])
        rows = self._of_groups(TopicPartition(topic, partition), offset)
        rows += self._of_queues(topic, partition, offset)
        for other in await self._whole.gather(request, Traces):
            rows += other.items
        known: dict[tuple[str, str], Trace] = {}
        for row in rows:
            if request.sees(GROUP, row.name):
                known.setdefault((row.kind, row.name), row)
        return answer(Traces(items=[known[key] for key in sorted(known)], next_cursor=None))

    def _of_groups(self, tp: TopicPartition, offset: int) -> list[Trace]:
        """A group has read what lies below its committed offset; nobody knows what it made of it."""
        return [
            Trace(
                kind="group",
                name=name,
                state="read" if committed > offset else "not-yet",
                committed=committed,
                ahead=max(0, offset - committed + 1),
                deliveries=None,
                holder=None,
                due_ms=None,
                dead_letter="",
            )
            for name, committed in self._sampler.committed(tp)
        ]

    def _of_queues(self, topic: str, partition: int, offset: int) -> list[Trace]:
        rows = []
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        for spec in self._sampler.queues.specs():
            if topic not in spec.topics:
                continue
            status = self._sampler.queues.status(spec, topic, partition, offset)
            if status is None:
                continue
            until_ms: int | None = None
            if status.state in (MessageState.ACQUIRED, MessageState.RESTING):
                until_ms = wall_ms + max(0, status.until_ms - now_ms)
            elif status.state is MessageState.SCHEDULED:
                until_ms = status.until_ms
            rows.append(
                Trace(
                    kind=spec.kind,
                    name=spec.name,
                    state=STATES[status.state],
                    committed=None,
                    ahead=None,
                    deliveries=status.deliveries,
                    holder=status.owner or None,
                    due_ms=until_ms,
                    dead_letter=spec.queue_config.dead_letter,
                )
            )
        return rows

    # -- who writes ----------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/topics/{topic}/writers",
        needs(describe(TOPIC, "{topic}")),
        Contract(
            "Who writes a topic",
            "topics",
            {200: WriterList},
            "Client ids of the last five minutes, at most 64 of a broker; the busiest first.",
        ),
    )
    async def _writers(self, request: Request) -> Answer:
        topic = request.params["topic"]
        self._reader.partitions(topic)
        lately = await self._whole.look()
        rows = [Writer(**row._asdict()) for row in lately.writers_of(topic)]
        return answer(WriterList(items=rows, next_cursor=None))

    # -- FIFO ----------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/queues/{queue}/groups",
        needs(describe(GROUP, "{queue}")),
        Contract(
            "Message groups of a FIFO queue",
            "queues",
            {200: MessageGroups},
            "Which are held up, by which message, until when.",
            query=(Param("limit", "at most so many", whole(1, 500, 100)),),
        ),
    )
    async def _groups(self, request: Request) -> Answer:
        spec = queue_of(request, self._sampler.queues.find)
        limit = number(request, "limit", 100, 1, MAX_GROUPS)
        if not spec.queue_config.fifo:
            return answer(MessageGroups(items=[], next_cursor=None, fifo=False))
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        rows = [
            ShownMessageGroup(
                group=group.group.decode(errors="replace"),
                waiting=group.waiting,
                in_flight=group.in_flight,
                resting=group.resting,
                blocked=group.by >= 0,
                topic=source.topic,
                partition=source.partition,
                by_offset=group.by if group.by >= 0 else None,
                deliveries=group.deliveries,
                holder=group.owner or None,
                due_ms=wall_ms + max(0, group.until_ms - now_ms) if group.by >= 0 else None,
            )
            for source, group in self._sampler.queues.groups(spec, limit)
        ]
        for other in await self._whole.gather(request, MessageGroups):
            rows += other.items
        rows.sort(key=lambda row: (not row.blocked, -row.waiting, row.group))
        return answer(MessageGroups(items=rows[:limit], next_cursor=None, fifo=True))

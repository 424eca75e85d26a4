"""Driver: what this broker did lately, sampled once a second from counters that it keeps anyway (core/history.py).

Nothing is added to the paths of produce and fetch. A second's look is bounded (`PER_SECOND` partitions, groups' offsets and queues) and
cut into slices of well under 2 ms; a broker with more of them is gone through in several seconds, and a rate is always over
the time that passed between two looks at the same thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from headrace.broker.disk_room import DiskRoom
from headrace.broker.groups import Groups
from headrace.broker.partition import Partition
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.runtime import Runtime
from headrace.core.history import History
from headrace.core.ids import TopicPartition
from headrace.core.writers import WriterNow, Writers
from headrace.queues.commands import Counts, Lock, MessageGroup, MessageStatus, Source
from headrace.records.build import Record

BROKER = "broker"
"""The thing whose numbers are those of this whole broker."""
PER_SECOND = 2_000
SLICE = 200
LOOKS_PER_SECOND = 20
"""At the oldest message of a queue."""
CHOOSE_S = 60
FORGET_S = 900
T = TypeVar("T")


class QueueLook(NamedTuple):
    """Queues, as far as whoever looks at them needs to know. A look, not a question: nothing changes."""

    specs: Callable[[], list[QueueSpec]]
    counts: Callable[[QueueSpec], list[tuple[Source, Counts]]]
    """Of what this broker hosts."""
    oldest_age_ms: Callable[[QueueSpec], int]
    locks: Callable[[QueueSpec, int], list[tuple[Source, Lock]]]
    groups: Callable[[QueueSpec, int], list[tuple[Source, MessageGroup]]]
    """Of a FIFO queue: those that hold something, the blocked ones first."""
    status: Callable[[QueueSpec, str, int, int], MessageStatus | None]
    """Of one message by topic, partition and offset; None: another broker hosts it."""
    waiting: Callable[[QueueSpec], Awaitable[int]]
    """How many could be received, on all brokers."""
    peek: Callable[[QueueSpec, int], Awaitable[list[tuple[Source, Record]]]]

    def find(self, name: str) -> QueueSpec | None:
        return next((spec for spec in self.specs() if spec.name == name), None)


@dataclass(slots=True)
class TopicNow:
    """What is known of one topic's partitions on this broker."""

    in_per_s: float = 0.0
    in_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    messages: int = 0
    size_bytes: int = 0
    last_write_ms: int = 0
    """Wall clock; 0: not since this broker began."""
    seen_ms: int = 0
    counted: tuple[int, int, int] = (0, 0, 0)


@dataclass(slots=True)
class Share:
    """Of one topic in what a group reads."""

    lag: int = 0
    out_per_s: float = 0.0
    counted: int = 0


@dataclass(slots=True)
class GroupNow:
    members: int = 0
    lag: int = 0
    out_per_s: float = 0.0
    topics: dict[str, Share] = field(default_factory=dict)
    elsewhere: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, partition and offset of what is led by brokers that this one has no replica of: their lag is not in `lag`."""
    moved_ms: int = 0
    """When it last committed something new, by the wall clock; 0: not since this broker began."""
    seen_ms: int = 0
    counted: int = 0


@dataclass(slots=True)
class QueueNow:
    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    done_per_s: float = 0.0
    oldest_ms: int = 0
    """When the oldest message that is not done came, by the wall clock; 0: there is none."""
    paused: bool = False
    seen_ms: int = 0
    counted: int = 0
    starts: tuple[int, ...] = ()
    """Where its oldest messages are: as long as that is the same, nobody has to look again."""


@dataclass(slots=True)
class BrokerNow:
    in_per_s: float = 0.0
    in_bytes_per_s: float = 0.0
    out_per_s: float = 0.0
    """Records that groups have committed and queues have settled."""
    out_bytes_per_s: float = 0.0
    backlog: int = 0
    lag: int = 0
    oldest_age_ms: int = 0
    free_bytes: int = -1
    cpu: float = 0.0
    """Of one core."""
    loop_lag_ms: int = 0
    sync_p99_ms: float | None = None
    """Of the last minute; None: there was none."""
    coordinator: str = ""
    coordinator_silence_ms: int = 0
    version: str = ""
    began_ms: int = 0


@dataclass(slots=True)
class _Sum:
    """Of one topic, while its partitions are gone through."""

    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Lately:
    """What others look at: always there, never waited for."""

    history: History = field(default_factory=lambda: History((BROKER,)))
    topics: dict[str, TopicNow] = field(default_factory=dict)
    groups: dict[str, GroupNow] = field(default_factory=dict)
    queues: dict[str, QueueNow] = field(default_factory=dict)
    broker: BrokerNow = field(default_factory=BrokerNow)
    writers: Writers = field(default_factory=Writers)
    told_writers: dict[str, list[WriterNow]] = field(default_factory=dict)
    """Of all brokers, where others were asked (http/whole.py)."""
    began_ms: int = 0

    def writers_of(self, topic: str) -> list[WriterNow]:
        return self.told_writers.get(topic) or self.writers.of(topic)


class Sampler:
    def __init__(
        self,
        runtime: Runtime,
        partitions: dict[tuple[str, int], Partition],
        groups: Groups,
        queues: QueueLook,
        room: DiskRoom,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._partitions = partitions
        self._groups = groups
        self.queues = queues
        self._room = room
        self.lately = Lately(began_ms=runtime.clock.wall_ms())
        self.on_tick: list[Callable[[], None]] = []
        self._seconds = 0
        self._rounds = 0
        """Through all topics."""
        self._looks_left = 0

    async def run(self) -> None:
        """For ever. Three rounds go on side by side, each within its own bound."""
        rounds = [self._topic_rounds(), self._group_rounds(), self._queue_rounds()]
        try:
            while True:
                began_ms = self._clock.now_ms()
                self._looks_left = LOOKS_PER_SECOND
                for one in rounds:
                    await anext(one)
                self._note_broker()
                self.lately.writers.look(self._clock.now_ms(), self._clock.wall_ms())
                for listener in self.on_tick:
                    listener()
                spent_ms = self._clock.now_ms() - began_ms
                await asyncio.sleep(max(0.05, 1.0 - spent_ms / 1000))
        finally:
            for one in rounds:
                await one.aclose()

    @property
    def _second(self) -> int:
        return self._clock.wall_ms() // 1000

    # -- topics --------------------------------------------------------------------------------------------------------

    async def _topic_rounds(self) -> AsyncGenerator[None, None]:
        """Yields once a second; a round through everything may take several."""
        while True:
            sums: dict[str, _Sum] = {}
            async for slice_ in _paced(list(self._partitions.values())):
                if slice_ is None:
                    yield
                    continue
                for partition in slice_:
                    _add(sums, partition)
            await self._note_topics(sums)
            yield

    async def _note_topics(self, sums: dict[str, _Sum]) -> None:
        known = self.lately.topics
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.now_ms()
        for gone in known.keys() - sums.keys():
            del known[gone]
            self.lately.writers.forget(gone)
        for place, (name, total) in enumerate(sums.items(), 1):
            topic = known.get(name)
            counted = (total.records, total.bytes_in, total.bytes_out)
            if topic is None:
                # Rates need two looks: a broker that has just begun shows a gap, not everything it ever took.
                # A topic that is younger than the broker was written to by somebody whom it saw, though.
                wrote = self._rounds > 0 and total.records > 0
                topic = known[name] = TopicNow(
                    seen_ms=now_ms, counted=counted, last_write_ms=wall_ms if wrote else 0
                )
            elif now_ms > topic.seen_ms:
                self._rate_topic(name, topic, counted, now_ms, wall_ms)
            topic.messages, topic.size_bytes = total.messages, total.size_bytes
            if place % SLICE == 0:
                await asyncio.sleep(0)
        self._rounds += 1

    def _rate_topic(
        self, name: str, topic: TopicNow, counted: tuple[int, int, int], now_ms: int, wall_ms: int
    ) -> None:
        seconds = (now_ms - topic.seen_ms) / 1000
        # A partition that left took its counters with it: that is no traffic.
        rates = [max(0, new - old) / seconds for new, old in zip(counted, topic.counted, strict=True)]
        topic.in_per_s, topic.in_bytes_per_s, topic.out_bytes_per_s = rates
        if counted[0] > topic.counted[0]:
            topic.last_write_ms = wall_ms
        topic.seen_ms, topic.counted = now_ms, counted
        values = {"in": rates[0], "in_bytes": rates[1], "out_bytes": rates[2]}
        self.lately.history.put(f"topic:{name}", wall_ms // 1000, values)

    # -- groups --------------------------------------------------------------------------------------------------------

    async def _group_rounds(self) -> AsyncGenerator[None, None]:
        while True:
            found: set[str] = set()
            offsets = 0
            for place, group in enumerate(self._groups.look(), 1):
                found.add(group.group_id)
                self._note_group(group.group_id, group.members, group.offsets)
                offsets += 1 + len(group.offsets)
                if offsets >= PER_SECOND:
                    offsets = 0
                    yield
                elif place % 20 == 0:
                    await asyncio.sleep(0)
            for gone in self.lately.groups.keys() - found:
                del self.lately.groups[gone]
            yield

    def _note_group(self, name: str, members: int, offsets: list[tuple[str, int, int]]) -> None:
        now_ms = self._clock.now_ms()
        shares: dict[str, Share] = {}
        elsewhere: list[tuple[str, int, int]] = []
        for topic, number, offset in offsets:
            partition = self._partitions.get((topic, number))
            share = shares.setdefault(topic, Share())
            if partition is not None:
                share.lag += max(0, partition.high_watermark - max(offset, partition.log.start_offset))
            else:
                elsewhere.append((topic, number, offset))
            share.counted += offset
        lag = sum(share.lag for share in shares.values())
        counted = sum(share.counted for share in shares.values())
        group = self.lately.groups.get(name)
        if group is None:
            group = self.lately.groups[name] = GroupNow(seen_ms=now_ms, counted=counted)
        elif now_ms <= group.seen_ms:
            return
        else:
            # A group that was moved back has read nothing.
            group.out_per_s = max(0, counted - group.counted) * 1000 / (now_ms - group.seen_ms)
            for topic, share in shares.items():
                if (before := group.topics.get(topic)) is not None:
                    read = max(0, share.counted - before.counted)
                    share.out_per_s = read * 1000 / (now_ms - group.seen_ms)
            if counted > group.counted:
                group.moved_ms = self._clock.wall_ms()
            group.seen_ms, group.counted = now_ms, counted
            values = {"lag": lag, "out": group.out_per_s}
            self.lately.history.put(f"group:{name}", self._second, values)
        group.members, group.lag = members, lag
        group.topics, group.elsewhere = shares, elsewhere

    def ends(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Start and high watermark of what this broker leads, for those who coordinate groups that read it."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, number), partition in self._partitions.items():
            if partition.is_leader and not partition.is_internal:
                found.setdefault(topic, {})[number] = (partition.log.start_offset, partition.high_watermark)
        return found

    def committed(self, tp: TopicPartition) -> list[tuple[str, int]]:
        """Groups that this broker coordinates, and how far each has come there."""
        return [
            (group.group_id, offset)
            for group in self._groups.look()
            for topic, number, offset in group.offsets
            if (topic, number) == tp
        ]

    # -- queues --------------------------------------------------------------------------------------------------------

    async def _queue_rounds(self) -> AsyncGenerator[None, None]:
        while True:
            specs = self.queues.specs()
            for gone in self.lately.queues.keys() - {spec.name for spec in specs}:
                del self.lately.queues[gone]
            for looked, spec in enumerate(specs, 1):
                self._note_queue(spec)
                if looked % (SLICE // 10) == 0:
                    await asyncio.sleep(0)
                if looked % (PER_SECOND // 10) == 0:
                    yield
            yield

    def _note_queue(self, spec: QueueSpec) -> None:
        now_ms = self._clock.now_ms()
        counts = [count for _, count in self.queues.counts(spec)]
        ready, in_flight, delayed = (
            sum(count.visible for count in counts),
            sum(count.in_flight for count in counts),
            sum(count.delayed for count in counts),
        )
        done = sum(count.end_offset for count in counts) - ready - in_flight - delayed
        queue = self.lately.queues.get(spec.name)
        if queue is None:
            queue = self.lately.queues[spec.name] = QueueNow(seen_ms=now_ms, counted=done)
        elif now_ms > queue.seen_ms:
            queue.done_per_s = max(0, done - queue.counted) * 1000 / (now_ms - queue.seen_ms)
            queue.seen_ms, queue.counted = now_ms, done
            values = {"ready": float(ready), "in_flight": float(in_flight), "done": queue.done_per_s}
            self.lately.history.put(f"queue:{spec.name}", self._second, values)
        queue.ready, queue.in_flight, queue.delayed = ready, in_flight, delayed
        queue.paused = any(count.paused for count in counts)
        starts = tuple(count.start_offset for count in counts)
        if not ready + in_flight:
            queue.oldest_ms, queue.starts = 0, ()
        elif starts != queue.starts and self._looks_left:
            self._looks_left -= 1  # it opens a batch
            queue.oldest_ms = self._clock.wall_ms() - self.queues.oldest_age_ms(spec)
            queue.starts = starts

    # -- all of it -----------------------------------------------------------------------------------------------------

    def _note_broker(self) -> None:
        lately, now = self.lately, self.lately.broker
        now.in_per_s = sum(topic.in_per_s for topic in lately.topics.values())
        now.in_bytes_per_s = sum(topic.in_bytes_per_s for topic in lately.topics.values())
        now.out_bytes_per_s = sum(topic.out_bytes_per_s for topic in lately.topics.values())
        now.out_per_s = sum(group.out_per_s for group in lately.groups.values()) + sum(
            queue.done_per_s for queue in lately.queues.values()
        )
        now.backlog = sum(queue.ready + queue.in_flight for queue in lately.queues.values())
        oldest = [queue.oldest_ms for queue in lately.queues.values() if queue.oldest_ms]
        now.oldest_age_ms = max(0, self._clock.wall_ms() - min(oldest)) if oldest else 0
        now.lag = sum(group.lag for group in lately.groups.values())
        now.free_bytes = self._room.free_bytes
        second = self._second
        values = {
            "in": now.in_per_s,
            "in_bytes": now.in_bytes_per_s,
            "out": now.out_per_s,
            "out_bytes": now.out_bytes_per_s,
            "backlog": float(now.backlog),
            "lag": float(now.lag),
        }
        if now.free_bytes >= 0:
            values["free_bytes"] = float(now.free_bytes)
        lately.history.put(BROKER, second, values)
        self._seconds += 1
        if self._seconds % CHOOSE_S == 5:
            lately.history.choose(self._scores())
            lately.history.forget(second - FORGET_S)

    def _scores(self) -> dict[str, float]:
        lately = self.lately
        return {
            **{f"topic:{name}": topic.in_per_s for name, topic in lately.topics.items()},
            **{f"group:{name}": group.lag + group.out_per_s for name, group in lately.groups.items()},
            **{f"queue:{name}": queue.ready + queue.done_per_s for name, queue in lately.queues.items()},
        }


def _add(sums: dict[str, _Sum], partition: Partition) -> None:
    name = partition.tp.topic
    if partition.is_internal:
        return
    total = sums.get(name)
    if total is None:
        total = sums[name] = _Sum()
    total.records += partition.messages_in
    total.bytes_in += partition.bytes_in
    total.bytes_out += partition.bytes_out
    if partition.is_leader:
        log = partition.log
        total.messages += max(0, partition.high_watermark - log.start_offset)
        total.size_bytes += log.size_bytes


async def _paced(things: list[T]) -> AsyncIterator[list[T] | None]:
    """Slices, with the loop free in between; None when this second has had enough."""
    for start in range(0, len(things), SLICE):
        if start and start % PER_SECOND == 0:
            yield None
        yield things[start : start + SLICE]
        await asyncio.sleep(0)

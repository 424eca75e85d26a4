"""Driver: what this broker does of a queue itself: the partitions whose journal it leads. The normal case, and the short way.

A verb finds the shard, puts one command to its machine, and answers when what was decided is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.hosted import Hosted, have_loaded
from headrace.broker.queueing.local.shards import QueueShards, is_delays
from headrace.broker.queueing.moves.dead_letters import DeadLetters
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.runtime import Runtime, happens
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Command, R, Rejected
from headrace.core.tuples import new_tuple
from headrace.queues import commands as engine
from headrace.queues.commands import Counts, Handle, ReceivedRuns, Source
from headrace.records.build import Record


class LocalQueues:
    def __init__(
        self,
        runtime: Runtime,
        catalog: QueueCatalog,
        layouts: Layouts,
        shards: QueueShards,
        dead_letters: DeadLetters,
    ) -> None:
        self._runtime = runtime
        self._catalog = catalog
        self._layouts = layouts
        self._shards = shards
        self._dead_letters = dead_letters
        self._turn: dict[str, int] = {}

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive(
        self,
        spec: QueueSpec,
        max_messages: int,
        *,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        owner: str = "",
        source: Source | None = None,
        patient: bool = True,
    ) -> list[DeliveredMessage]:
        """Up to `max_messages`, from one partition or from all that are here; waits for the first if there is none, and a while for
        shards that load, unless the caller has others to ask. A receiver that is cancelled takes nothing."""
        deadline_ms = self._runtime.clock.now_ms() + wait_ms if wait_ms else 0
        while True:
            arrival = self._shards.arrival(spec.name) if wait_ms else None
            layout = self._layouts.of(spec)
            local = layout.local if source is None else [(source, self._layouts.hosted(source))]
            if not local and layout.sources:
                raise WrongBroker(self._layouts.home_of(layout.sources[0]), spec.name)
            if len(local) > 1:
                turn = self._turn[spec.name] = (self._turn.get(spec.name, -1) + 1) % len(local)
                local = local[turn:] + local[:turn]
            # Without a topic there is nothing to be had; it may be made again while we wait.
            found: list[DeliveredMessage] = []
            limited = False
            loading: dict[Hosted, HeadraceError] = {}
            for one, hosted in local:
                left = max_messages - len(found)
                if left <= 0:
                    break
                try:
                    received = await hosted.shard.current.submit(
                        engine.Receive(one, left, visibility_ms, owner)
                    )
                except HeadraceError as problem:
                    if problem.kind is not ErrorKind.COORDINATOR_LOAD_IN_PROGRESS:
                        raise
                    loading[hosted] = problem  # in a moment; the others may have something now
                    continue
                limited = limited or received.limited
                if received.runs:
                    opened, gone = _open(hosted, one, received)
                    found += opened
                    if gone:  # nobody can have it any more
                        await self.ack(one, gone, engine.Outcome.GAP)
            if found:
                return found
            if limited:
                raise HeadraceError(ErrorKind.OVER_LIMIT, "too many messages are in flight")
            if arrival is None or not await self._arrived(arrival, deadline_ms):
                if loading and not patient:
                    raise next(iter(loading.values()))
                if loading:
                    await have_loaded(loading)
                    patient = False
                    continue
                await self._buried(local)
                return found
            self._catalog.require(spec)

    async def _arrived(self, arrival: asyncio.Event, deadline_ms: int) -> bool:
        left_ms = deadline_ms - self._runtime.clock.now_ms()
        if left_ms <= 0:
            return False
        await happens(arrival, left_ms / 1000)
        return True  # one more look in any case

    async def _buried(self, local: Sequence[tuple[Source, Hosted]]) -> None:
        """Until no dead letter of theirs is on its way."""
        for source, hosted in local:
            if hosted.ready and self._dead_letters.is_busy(hosted.load, source):
                await self._dead_letters.finished(hosted.load, source)

    # -- what is done with a delivery ----------------------------------------------------------------------------------

    def submit(self, source: Source, command: Command[R]) -> Awaitable[R]:
        """Put one command to the shard of `source`. A refusal of the whole command is raised; that it is not here, at once."""
        hosted = self._shards.hosted.get(source[1:]) or self._layouts.hosted(source)
        return hosted.submit(command)

    def ack(
        self, source: Source, handles: Iterable[Handle], outcome: engine.Outcome = engine.Outcome.ACKED
    ) -> Awaitable[Sequence[Rejected | None]]:
        """For each handle None, or why it was refused; so do the others."""
        return self.submit(source, engine.Ack(source, tuple(handles), outcome))

    def extend(
        self,
        source: Source,
        handles: Iterable[Handle],
        visibility_ms: int,
        *,
        stale_may_prolong: bool = False,
    ) -> Awaitable[Sequence[Rejected | None]]:
        command = engine.Extend(source, tuple(handles), visibility_ms, stale_may_prolong=stale_may_prolong)
        return self.submit(source, command)

    def release(
        self, source: Source, handles: Iterable[Handle], delay_ms: int | None = None, detail: str = ""
    ) -> Awaitable[Sequence[Rejected | None]]:
        draw = int.from_bytes(self._runtime.random_bytes(4), "big") / 2**32
        return self.submit(source, engine.Release(source, tuple(handles), delay_ms, draw, detail))

    def reject(
        self, source: Source, handles: Iterable[Handle], detail: str = ""
    ) -> Awaitable[Sequence[Rejected | None]]:
        return self.submit(source, engine.RejectMessages(source, tuple(handles), detail))

    # -- the whole queue -----------------------------------------------------------------------------------------------

    async def purge(self, spec: QueueSpec, min_interval_ms: int = 0) -> None:
        for source, _ in self._layouts.of(spec).local:
            await self.submit(source, engine.Purge(source, None, min_interval_ms))

    async def pause(self, spec: QueueSpec, *, paused: bool) -> None:
        for source, _ in self._layouts.of(spec).local:
            await self.submit(source, engine.Pause(spec.name, paused))
        if not paused:
            self._shards.wake(spec.name)

    async def peek(self, spec: QueueSpec, limit: int = 10) -> list[tuple[Source, Record]]:
        """Messages a receive could hand out; nothing changes, nothing is counted."""
        found: list[tuple[Source, Record]] = []
        for source, _ in self._layouts.of(spec).local:
            found += await self.peek_at(source, 0, limit - len(found))
            if len(found) >= limit:
                break
        return found

    async def peek_at(self, source: Source, from_offset: int, limit: int) -> list[tuple[Source, Record]]:
        """Those of one partition, from an offset on."""
        offsets = await self.submit(source, engine.Peek(source, limit, from_offset))
        records = self._layouts.hosted(source).payloads.get(offsets)
        return [(source, records[offset]) for offset in offsets if offset in records]

    async def scheduled(self, source: Source, from_offset: int, limit: int) -> list[tuple[int, Record]]:
        """(due time, message) of messages that wait for their time, in log order."""
        found = await self.submit(source, engine.ListSchedules(source, from_offset, limit))
        offsets = [offset for offset, _ in found]
        records = self._layouts.hosted(source).payloads.get(offsets, waiting=is_delays(source.queue))
        return [(due_ms, records[offset]) for offset, due_ms in found if offset in records]

    def counts(self, spec: QueueSpec) -> list[tuple[Source, Counts]]:
        """What this broker's shards hold of a queue; a look, not a question."""
        found = []
        for source, hosted in self._layouts.of(spec).local:
            counts = hosted.machine.counts(source)
            if counts is not None:
                found.append((source, counts))
        return found

    async def unfinished(self, source: Source, first: int, limit: int) -> tuple[list[list[int]], int | None]:
        """[first, end) of what is not done, from an offset on, and where to go on; None: there is no more."""
        hosted = self._layouts.hosted(source)
        await have_loaded([hosted])
        machine = hosted.machine
        counts = machine.counts(source)
        if counts is None:
            raise HeadraceError(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, f"{source.queue} is being loaded")
        first = max(first, counts.start_offset)
        end = min(counts.end_offset, first + limit)
        runs: list[list[int]] = []
        for offset in range(first, end):
            if machine.is_done(source, offset):
                continue
            if runs and runs[-1][1] == offset:
                runs[-1][1] = offset + 1
            else:
                runs.append([offset, offset + 1])
        return runs, end if end < counts.end_offset else None

    def oldest_age_ms(self, spec: QueueSpec) -> int:
        """How long the oldest message that is not done has been there; 0 when there is none."""
        oldest_ms = wall_ms = self._runtime.clock.wall_ms()
        for source, count in self.counts(spec):
            if count.start_offset < count.end_offset:
                try:
                    record = self._layouts.hosted(source).payloads.look(count.start_offset)
                except HeadraceError:
                    continue  # a batch that can't be read is the scrubber's business, not the dashboard's
                if record is not None:
                    oldest_ms = min(oldest_ms, record.timestamp)
        return wall_ms - oldest_ms

    # -- retention -----------------------------------------------------------------------------------------------------

    def delivered_to(self, tp: TopicPartition) -> int | None:
        """Everything before this is done for every queue and share group that reads the partition
        (`retention=delivered`). None when that is not known here, or nobody reads it."""
        hosted = self._shards.hosted.get(tp)
        if hosted is None or not hosted.ready or not hosted.shard.is_settled:
            return None  # what only memory knows could come back after a crash
        machine = hosted.machine
        sources = machine.sources()
        if not sources or set(self._catalog.names_over(tp.topic)) - {one.queue for one in sources}:
            return None
        done = [machine.done_offset(source) for source in sources]
        return min((offset for offset in done if offset is not None), default=None)

    def retention_limit(self, partition: Partition) -> int:
        """Retention may take what is below. What is owed to somebody is kept on the leader (decision 0061); followers, who do not
        know what that is, follow the leader, and so does a leader whose journal is led elsewhere for the moment: only what lies
        before the start of the log goes there."""
        has_delays = partition.config.delay_enabled
        if not has_delays and not self._catalog.names_over(partition.tp.topic):
            return partition.high_watermark
        start = partition.log.start_offset
        hosted = self._shards.hosted.get(partition.tp)
        if not partition.is_leader or hosted is None or hosted.data is not partition or not hosted.ready:
            return start
        machine = hosted.machine
        owed = machine.owed_from(self._runtime.clock.now_ms(), partition.config.retention_ms)
        limit = partition.high_watermark if owed is None else min(owed, partition.high_watermark)
        if has_delays:
            done = machine.done_offset(Source(names.DELAYS_PREFIX + partition.tp.topic, *partition.tp))
            limit = start if done is None else min(done, limit)
        return limit


def _open(
    hosted: Hosted, source: Source, received: ReceivedRuns
) -> tuple[list[DeliveredMessage], list[Handle]]:
    """From offsets to messages, and handles of what retention has taken meanwhile."""
    runs, data = received.runs, hosted.data
    offsets: list[int] = []
    for first, end, _, _ in runs:
        offsets += range(first, end)
    records = hosted.payloads.get(offsets, waiting=is_delays(source.queue))
    found: list[DeliveredMessage] = []
    gone: list[Handle] = []
    topic_id, number, epoch = data.topic_id, source.partition, received.epoch
    for first, end, delivery, first_received_ms in runs:
        for offset in range(first, end):
            handle = new_tuple(Handle, (offset, delivery, epoch))
            record = records.get(offset)
            if record is not None:
                message_id = (
                    names.message_id_of(record, topic_id, number)
                    if record.headers
                    else names.encode_message_id(topic_id, number, offset)
                )
                found.append(
                    new_tuple(DeliveredMessage, (source, record, handle, first_received_ms, message_id))
                )
            elif offset < data.last_stable_offset:
                # Beyond what can be read yet it is no gap: its lease ends, and it is handed out again.
                gone.append(handle)
    return found, gone

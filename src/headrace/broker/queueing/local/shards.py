"""Driver: the queue shards on this broker. The journal of a data partition is a partition of its own topic
`__queue.<topic>`, with the same number and the same replicas, so whoever leads the journal holds the data too.

A shard is fed from the local replica up to its high watermark, whether this broker leads the data or follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import assert_never

from headrace.broker.load import LoadedShard, ShardState
from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.local.hosted import Hosted, QueueLoad
from headrace.broker.queueing.local.intake import MAX_LOOKED, describe
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.runtime import Runtime
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.queues.commands import (
    Close,
    Configure,
    DataAvailable,
    LoggedMessage,
    MoveToDeadLetter,
    Open,
    QueueEffect,
    ReadAhead,
    Released,
    RemoveQueue,
    SetClock,
    Source,
    WakeReceivers,
    WantedRecords,
)
from headrace.queues.shard import QueueShard
from headrace.records.build import Record
from headrace.records.filters import Filter, FilterProblem, compile_filter

log = logging.getLogger(__name__)

LOAD_BITS = 11
EPOCH_BITS = LOAD_BITS + 31


class QueueShards:
    def __init__(
        self,
        runtime: Runtime,
        find_data: Callable[[str, int], Partition | None],
        specs_over: Callable[[str], Iterable[QueueSpec]],
        spec_of: Callable[[str], QueueSpec | None],
    ) -> None:
        """`specs_over(topic)` are the queues that read a topic; `spec_of(queue)` is None for share groups."""
        self._runtime = runtime
        self._find_data = find_data
        self._specs_over = specs_over
        self._spec_of = spec_of
        self.hosted: dict[tuple[str, int], Hosted] = {}
        """By topic and partition of the data."""
        self._loads: dict[TopicPartition, tuple[int, Iterator[int]]] = {}
        """By journal: its epoch, and the numbers of the loads in it."""
        self._ready = asyncio.Event()
        """Set when the next shard has loaded."""
        self._arrivals: dict[str, asyncio.Event] = {}
        self._arrival_counts: dict[str, int] = {}
        self.on_wake: Callable[[str], None] = lambda queue: None
        self._filters: dict[str, Filter | None] = {}
        self.settle: Callable[[Partition], Awaitable[None]] = _nothing_open
        """Ends a transaction that an earlier life of a journal's shard left open in it."""
        self.on_hosted: Callable[[], None] = lambda: None
        """A shard came or went."""
        self.on_delays: Callable[[Hosted, QueueLoad, Source], None] = lambda hosted, load, source: None
        self.belongs: Callable[[Partition, Partition], bool] = lambda journal, data: True
        """Whether a journal is that of this very topic and not of one that had its name before."""
        self.on_dead: Callable[[Hosted, QueueLoad, MoveToDeadLetter], None] = lambda hosted, load, effect: (
            None
        )

    # -- leadership ------------------------------------------------------------------------------------------------

    def owns(self, topic: str) -> bool:
        return names.data_topic(topic) is not None

    def lead(self, journal: Partition) -> None:
        topic = names.data_topic(journal.tp.topic)
        assert topic is not None
        tp = TopicPartition(topic, journal.tp.partition)
        self.resign(journal)
        data = self._find_data(*tp)
        if data is None:
            log.warning("%s: no replica of the data here yet; the queue waits for it", journal.tp)
            return
        if not self.belongs(journal, data):
            log.warning("%s is of a topic that was deleted; the queue waits for its own", journal.tp)
            return
        epoch, loads = self._loads.get(journal.tp, (-1, count()))
        if epoch != journal.leader_epoch:
            loads = count()
        self._loads[journal.tp] = (journal.leader_epoch, loads)
        # Deltas are replayed by their numbers, so a marker may come before or after what was decided in the same turn.
        shard = Shard(
            self._runtime,
            journal,
            lambda: self._new_machine(journal, next(loads)),
            self._perform,
            _is_refused,
            gathers=True,
        )
        hosted = Hosted(shard, data)
        shard.on_ready = lambda load: self._is_ready(hosted)
        shard.settle = lambda: self.settle(journal)
        self.hosted[tp] = hosted
        self.on_hosted()
        hosted.grown = self._grown(hosted)
        data.on_commit.append(
            hosted.grown, lambda problem: hosted.load.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)
        )
        shard.start()

    def _is_ready(self, hosted: Hosted) -> None:
        self._refresh(hosted)
        ready, self._ready = self._ready, asyncio.Event()
        ready.set()
        hosted.load_ended()
        for source in hosted.machine.sources():
            self.wake(source.queue)  # whoever waits was told that it loads

    async def wait_for(self, tp: TopicPartition) -> Hosted:
        """Until the shard of a partition is here and has loaded."""
        while True:
            hosted = self.hosted.get(tp)
            if hosted is not None and hosted.ready:
                return hosted
            await self._ready.wait()

    def data_opened(self, data: Partition, journal: Partition | None) -> None:
        """The data replica came after its journal was led, or came back in a new life after it had been moved away."""
        hosted = self.hosted.get(data.tp)
        if journal is not None and journal.is_leader and (hosted is None or hosted.data is not data):
            self.lead(journal)

    def resign(self, journal: Partition) -> None:
        topic = names.data_topic(journal.tp.topic)
        hosted = self.hosted.pop(TopicPartition(topic or "", journal.tp.partition), None)
        if hosted is not None:
            self.on_hosted()
            hosted.shard.close()
            hosted.load_ended()
            hosted.data.on_commit.remove(hosted.grown)
            self.wake_all()

    def _new_machine(self, journal: Partition, load: int) -> QueueShard:
        clock = self._runtime.clock
        # Leases of this load must differ from those of any load before it, also within one leadership. With the engine's
        # own 20 bits an epoch fits the 64 bits of a receipt. A journal made again counts from 0 again, so its id goes in too.
        epoch = (journal.leader_epoch << LOAD_BITS) | (load % (1 << LOAD_BITS))
        own = int.from_bytes(journal.topic_id[-8:], "big") & ((1 << EPOCH_BITS) - 1)
        return QueueShard(lease_epoch=epoch ^ own, wall_offset_ms=clock.wall_ms() - clock.now_ms())

    # -- which queues there are ------------------------------------------------------------------------------------

    def specs_changed(self, topics: Iterable[str]) -> None:
        self._filters.clear()
        wanted = set(topics)
        for tp, hosted in list(self.hosted.items()):
            if tp[0] in wanted:
                self._refresh(hosted)

    def _refresh(self, hosted: Hosted) -> None:
        """Bring a shard in line with the queues that should read its partition."""
        if not hosted.ready:
            return
        load, machine, tp = hosted.load, hosted.machine, hosted.data.tp
        specs = {spec.name: spec for spec in self._specs_over(tp.topic)}
        for source in machine.sources():
            if is_delays(source.queue):
                self._keep_open(specs, source)
            elif not is_share(source.queue) and not _is_of(machine, source.queue, specs):
                load.tell(Close(source))
                load.tell(RemoveQueue(source.queue))
        for spec in specs.values():
            load.tell(Configure(spec.name, spec.queue_config))
            source = Source(spec.name, *tp)
            data = hosted.data
            at_end = spec.starts_at_end(data.topic_id, tp.partition)
            load.tell(Open(source, data.high_watermark if at_end else data.log.start_offset))
            if is_delays(spec.name):
                self.on_delays(hosted, load, source)
        self._feed(hosted)

    def _keep_open(self, specs: dict[str, QueueSpec], source: Source) -> None:
        """What waits in a topic is let go when it is due, also when the topic takes no more of it."""
        spec = self._spec_of(source.queue)
        if spec is not None:
            specs.setdefault(source.queue, spec)

    # -- what the log says -----------------------------------------------------------------------------------------

    def _grown(self, hosted: Hosted) -> Callable[[int], None]:
        def grown(high_watermark: int) -> None:
            # Many batches may be committed in one turn; look once.
            if not hosted.feeding and hosted.ready:
                hosted.feeding = True
                asyncio.get_running_loop().call_soon(self._feed, hosted)

        return grown

    def _feed(self, hosted: Hosted) -> None:
        hosted.feeding = False
        load = hosted.shard.current
        if load.state is ShardState.READY:
            for source in load.machine.sources():
                self.feed_source(hosted, source)
            if hosted.written.special:
                hosted.forget_special(hosted.data.last_stable_offset)

    def feed_source(self, hosted: Hosted, source: Source, *, at_once: bool = False) -> None:
        """Tell one queue how far the log goes and, if it wants to know, what is special about what is new.

        A backlog is looked through piece by piece, so that others have their turn in between; `at_once`: not a short one.
        """
        data, spec = hosted.data, self._spec_of(source.queue)
        start = data.log.start_offset
        if spec is None or not spec.is_indexed:
            hosted.tell(DataAvailable(source, hosted.readable_end(source.queue), start))
            return
        end, machine = data.last_stable_offset, hosted.machine
        wanted = machine.wanted(source, end)
        if wanted is not None and end - wanted.first > MAX_LOOKED:
            at_once = False
        if not at_once and source in hosted.reading:
            wanted = None
        if wanted is not None and wanted.first >= start:
            messages = _written_here(hosted, spec, wanted, end)
            if messages is not None:
                hosted.tell(DataAvailable(source, end, start, wanted.end, messages))
                return
            if not at_once and self._read_on(hosted, source):
                return  # it was told with the first piece
        elif wanted is None and machine.knows(source, start, end):
            return
        hosted.tell(DataAvailable(source, end, start, indexed_to=None))
        if not at_once:
            self._read_later(hosted, source)
            return
        while self._read_piece(hosted, source):
            pass

    def _read_later(self, hosted: Hosted, source: Source) -> None:
        """One piece of each backlog in a turn of the loop, however many ask for it."""
        if source not in hosted.reading:
            hosted.reading.add(source)
            asyncio.get_running_loop().call_soon(self._read_on, hosted, source)

    def _read_on(self, hosted: Hosted, source: Source) -> bool:
        hosted.reading.discard(source)
        found = self._read_piece(hosted, source)
        if found and hosted.machine.wanted(source, hosted.data.last_stable_offset) is not None:
            self._read_later(hosted, source)
        return found

    def _read_piece(self, hosted: Hosted, source: Source) -> bool:
        """False when nothing was there to be looked at."""
        if not hosted.ready:
            return False
        machine, spec = hosted.machine, self._spec_of(source.queue)
        end, start = hosted.data.last_stable_offset, hosted.data.log.start_offset
        wanted = machine.wanted(source, end)
        if spec is None or wanted is None or wanted.first >= min(wanted.end, end):
            return False
        seen = hosted.intake(source).look(
            wanted,
            spec.queue_config,
            self._filter(spec),
            spec.default_delay_ms,
            only_waiting=is_delays(source.queue),
            ordinary_to=hosted.ordinary_to(wanted.first, end),
        )
        if seen.indexed_to <= wanted.first:
            return False
        hosted.tell(DataAvailable(source, end, start, seen.indexed_to, seen.messages, seen.skipped))
        if seen.released:
            hosted.tell(Released(source, tuple(seen.released)))
        return hosted.ready and hosted.machine is machine

    def _filter(self, spec: QueueSpec) -> Filter | None:
        if not spec.filter:
            return None
        if spec.name not in self._filters:
            try:
                self._filters[spec.name] = compile_filter(spec.filter)
            except FilterProblem as problem:
                log.error("the filter of %s is not understood: %s", spec.name, problem.detail)
                self._filters[spec.name] = None
        return self._filters[spec.name]

    def tell_wall_clock(self) -> None:
        for hosted in self.hosted.values():
            hosted.tell(SetClock(self._runtime.clock.wall_ms()))

    def wrote(
        self, data: Partition, base_offset: int, records: Sequence[Record], stays_as_sent: bool
    ) -> None:
        """A batch was written for a queue just now. What in it is special is known then, and it need not be read again."""
        hosted = self.hosted.get(data.tp)
        if hosted is None or hosted.data is not data:
            return
        special: list[Record] = []
        for place, record in enumerate(records):
            if record.headers or record.key:
                own = names.own_headers(record)
                if own and (not stays_as_sent or record.timestamp < 0):
                    return
                if own or record.key:
                    special.append(Record(record.key, None, own, record.timestamp, base_offset + place))
        hosted.wrote(base_offset, base_offset + len(records), tuple(special))

    def committed(self, data: Partition, base_offset: int, records: Sequence[Record]) -> None:
        hosted = self.hosted.get(data.tp)
        if hosted is not None and hosted.data is data:
            hosted.payloads.sent(base_offset, records)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _perform(self, load: QueueLoad, effect: QueueEffect) -> None:
        if isinstance(effect, WakeReceivers):
            self.wake(effect.queue)
            return
        hosted = self._hosting(load.shard)
        if hosted is None:
            return
        if isinstance(effect, ReadAhead):
            self._read_later(hosted, effect.source)
        elif isinstance(effect, MoveToDeadLetter):
            self.on_dead(hosted, load, effect)
        else:
            assert_never(effect)

    def _hosting(self, shard: LoadedShard[QueueShard, QueueEffect]) -> Hosted | None:
        tp = shard.partition.tp
        hosted = self.hosted.get(TopicPartition(names.data_topic(tp.topic) or "", tp.partition))
        return hosted if hosted is not None and hosted.shard is shard else None

    # -- receivers that wait ---------------------------------------------------------------------------------------

    def wake(self, queue: str) -> None:
        if queue in self._arrival_counts:
            self._arrival_counts[queue] += 1
        arrival = self._arrivals.pop(queue, None)
        if arrival is not None:
            arrival.set()
        self.on_wake(queue)

    def wake_all(self) -> None:
        for queue in dict.fromkeys((*self._arrivals, *self._arrival_counts)):
            self.wake(queue)

    def arrival_count(self, queue: str) -> int:
        """Another number whenever something may have become available since. Counted from the first question on."""
        return self._arrival_counts.setdefault(queue, 0)

    def arrival(self, queue: str) -> asyncio.Event:
        """Set when something may have become available; get it before looking, wait after."""
        return self._arrivals.setdefault(queue, asyncio.Event())


def _is_of(machine: QueueShard, queue: str, specs: dict[str, QueueSpec]) -> bool:
    """Whether what the shard knows of a queue is of the queue that there is, and not of one that had its name before."""
    spec, held = specs.get(queue), machine.config(queue)
    return spec is not None and (held is None or held.queue_id in ("", spec.id))


def _is_refused(command: object, answer: object) -> bool:
    """R7: that a receipt is not the latest is for the leader to say. One that was replaced and has not heard does not know the
    deliveries since: it took the receipt of one for stale, which SQS answers with a success, and the message came again."""
    return isinstance(answer, Rejected) or (
        isinstance(answer, tuple) and any(isinstance(one, Rejected) for one in answer)
    )


def _written_here(
    hosted: Hosted, spec: QueueSpec, wanted: WantedRecords, end: int
) -> list[LoggedMessage] | None:
    """What is special about all that is wanted, when we wrote it ourselves and need not read it again."""
    if not spec.takes_as_sent:
        return None
    known_to, special = hosted.written_from(wanted.first, end)
    config = spec.queue_config
    if not config.fifo and special:
        special = [record for record in special if record.headers]  # keys are nothing to it
    is_long = wanted.end - wanted.first > min(wanted.limit, MAX_LOOKED)
    if wanted.end > known_to or (is_long and (special or config.fifo)):
        return None
    messages = []
    for record in special:
        message = describe(record, config)
        if message is not None:
            messages.append(message)
    return messages


async def _nothing_open(journal: Partition) -> None:
    """Without transactions there is nothing to settle."""


SHARE_PREFIX = "share/"


def is_share(queue: str) -> bool:
    """Share groups live in the same shards, under names no queue can have."""
    return queue.startswith(SHARE_PREFIX)


def is_delays(queue: str) -> bool:
    """So do the records that wait in a topic."""
    return queue.startswith(names.DELAYS_PREFIX)
